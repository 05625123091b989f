#include "train/recipe.h"

#include <assert.h>
#include <string.h>

enum { MAX_RECIPES = 32 };
static const cod_recipe_kind *kinds[MAX_RECIPES];

void cod_recipe_register(const cod_recipe_kind *kind)
{
    for (size_t i = 0; i < MAX_RECIPES; i++) {
        if (kinds[i] == NULL || strcmp(kinds[i]->name, kind->name) == 0) {
            kinds[i] = kind;
            return;
        }
    }
    assert(!"there are more of them than MAX_RECIPES");
}

const cod_recipe_kind *cod_recipe_find(const char *name)
{
    for (size_t i = 0; i < MAX_RECIPES && kinds[i] != NULL; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

const cod_recipe_kind *cod_recipe_at(size_t index)
{
    return index < MAX_RECIPES ? kinds[index] : NULL;
}

/** Whether step `at` lies between the first and the last one that a sub-step may run in. */
static bool is_within(const cod_sub_step *sub_step, int64_t at)
{
    return at >= sub_step->first && (sub_step->end == 0 || at < sub_step->end);
}

/** Whether `earlier` runs, around step `at`, in every step that `later` runs in. */
static bool is_due_with(const cod_sub_step *earlier, const cod_sub_step *later, int64_t at)
{
    const int64_t every = later->every > 1 ? later->every : 1;
    return is_within(earlier, at) && (earlier->every <= 1 || every % earlier->every == 0);
}

/** Whether an earlier sub-step leaves `value` to sub-step `step` in steps around `at`. */
static bool is_left(const cod_recipe *recipe, size_t step, cod_value value, int64_t at, bool accumulates)
{
    const cod_sub_step *const steps = recipe->steps;
    for (size_t s = step; s-- > 0 && !(accumulates && steps[s].program.trains != NULL);)
        for (size_t o = 0; o < COD_PROGRAM_MAX_OUTPUTS; o++)
            if (steps[s].program.outputs[o] == value && is_due_with(&steps[s], &steps[step], at))
                return true;
    return false;
}

/**
 * Whether is_left() holds in all steps in which sub-step `step` runs. It can change only where a sub-step begins or
 * ends.
 */
static bool is_always_left(const cod_recipe *recipe, size_t step, cod_value value, bool accumulates)
{
    const cod_sub_step *taker = &recipe->steps[step];
    bool left = is_left(recipe, step, value, taker->first, accumulates);
    for (size_t s = 0; s < step; s++) {
        const int64_t changes[] = {recipe->steps[s].first, recipe->steps[s].end};
        for (int i = 0; i < 2; i++)
            left = left && (!is_within(taker, changes[i]) || is_left(recipe, step, value, changes[i], accumulates));
    }
    return left;
}

/**
 * What a sub-step is given was left in the same step, on the same mini-batch: with several mini-batches a step, since
 * the last update.
 */
static cod_status check_given(const cod_recipe *recipe, size_t step, bool accumulates)
{
    const cod_sub_step *const taker = &recipe->steps[step];
    for (size_t g = 0; g < COD_PROGRAM_MAX_GIVEN && taker->program.given[g] != 0; g++) {
        COD_REQUIRE(is_always_left(recipe, step, taker->program.given[g], accumulates),
                    "recipe '%s': '%s' can be given only what earlier sub-steps have left in the same step%s",
                    recipe->kind->name, taker->program.name,
                    accumulates ? ", with train.accumulate above 1 since the last update" : "");
    }
    return COD_OK;
}

/** Metrics know losses by their names alone. */
static cod_status check_loss(const cod_recipe *recipe, size_t step, size_t loss)
{
    const char *recipe_name = recipe->kind->name, *name = recipe->steps[step].losses[loss];
    COD_REQUIRE((name != NULL) == (recipe->steps[step].program.losses[loss] != 0),
                "recipe '%s': loss %zu of '%s' needs a name", recipe_name, loss, recipe->steps[step].program.name);
    for (size_t i = 0; name != NULL && i < step * COD_PROGRAM_MAX_LOSSES + loss; i++) {
        const char *other = recipe->steps[i / COD_PROGRAM_MAX_LOSSES].losses[i % COD_PROGRAM_MAX_LOSSES];
        COD_REQUIRE(other == NULL || strcmp(other, name) != 0, "recipe '%s': two losses are called '%s'", recipe_name,
                    name);
    }
    return COD_OK;
}

static cod_status check_figure(const cod_recipe *recipe, size_t step, size_t figure)
{
    const cod_sub_step *sub_step = &recipe->steps[step];
    const cod_value value = sub_step->figures[figure];
    bool is_output = value == 0;
    for (size_t i = 0; i < COD_PROGRAM_MAX_OUTPUTS; i++)
        is_output = is_output || sub_step->program.outputs[i] == value;
    COD_REQUIRE(is_output && (sub_step->figure_names[figure] != NULL) == (value != 0),
                "recipe '%s': figure %zu of '%s' needs a name and must be an output of its program", recipe->kind->name,
                figure, sub_step->program.name);
    return COD_OK;
}

static cod_status check_step(const cod_recipe *recipe, size_t index)
{
    const char *name = recipe->kind->name;
    const cod_sub_step *step = &recipe->steps[index];
    COD_REQUIRE(step->program.name != NULL, "recipe '%s': sub-step %zu has no name", name, index);
    for (size_t i = 0; i < index; i++)
        COD_REQUIRE(strcmp(recipe->steps[i].program.name, step->program.name) != 0,
                    "recipe '%s': two sub-steps are called '%s'", name, step->program.name);
    for (size_t i = 0; i < COD_PROGRAM_MAX_LOSSES; i++)
        COD_TRY(check_loss(recipe, index, i));
    for (size_t i = 0; i < COD_PROGRAM_MAX_OUTPUTS; i++)
        COD_TRY(check_figure(recipe, index, i));
    if (step->program.trains == NULL)
        return COD_OK;
    const int set = cod_graph_set_index(recipe->model.graph, step->program.trains);
    COD_REQUIRE(set >= 0 && recipe->sets[set].trained, "recipe '%s': '%s' trains '%s', which has no optimiser", name,
                step->program.name, step->program.trains);
    return COD_OK;
}

static bool has_loss(const cod_recipe *recipe, cod_value loss)
{
    for (size_t i = 0; i < recipe->step_count * COD_PROGRAM_MAX_LOSSES; i++)
        if (recipe->steps[i / COD_PROGRAM_MAX_LOSSES].program.losses[i % COD_PROGRAM_MAX_LOSSES] == loss)
            return true;
    return false;
}

/** Whether metrics have a loss or a figure of this name. */
static bool has_name(const cod_recipe *recipe, const char *name)
{
    for (size_t s = 0; s < recipe->step_count; s++) {
        for (size_t i = 0; i < COD_PROGRAM_MAX_LOSSES && recipe->steps[s].losses[i] != NULL; i++)
            if (strcmp(recipe->steps[s].losses[i], name) == 0)
                return true;
        for (size_t i = 0; i < COD_PROGRAM_MAX_OUTPUTS && recipe->steps[s].figure_names[i] != NULL; i++)
            if (strcmp(recipe->steps[s].figure_names[i], name) == 0)
                return true;
    }
    return false;
}

static cod_status check_guard(const cod_recipe *recipe, const cod_recipe_guard *guard)
{
    const char *const names[] = {guard->figure, guard->other};
    COD_REQUIRE((guard->other == NULL) == (guard->relation == COD_GUARD_ALONE) && guard->least < guard->most,
                "recipe '%s': guard '%s' needs a band whose least is below its most, and a second figure if and only "
                "if it relates two",
                recipe->kind->name, guard->name);
    for (int i = 0; i < 2; i++)
        COD_REQUIRE(names[i] == NULL || has_name(recipe, names[i]),
                    "recipe '%s': guard '%s' watches '%s', which no sub-step has", recipe->kind->name, guard->name,
                    names[i]);
    return COD_OK;
}

static cod_status check(const cod_recipe *recipe, bool accumulates)
{
    const char *name = recipe->kind->name;
    size_t distilling = 0, training = 0;
    for (size_t i = 0; i < recipe->step_count; i++) {
        COD_TRY(check_step(recipe, i));
        COD_TRY(check_given(recipe, i, accumulates));
        distilling += recipe->steps[i].distils;
        training += recipe->steps[i].program.trains != NULL;
    }
    for (size_t i = 0; i < recipe->guard_count; i++)
        COD_TRY(check_guard(recipe, &recipe->guards[i]));
    COD_REQUIRE(training > 0, "recipe '%s' trains nothing", name);
    COD_REQUIRE(recipe->sets[0].trained, "recipe '%s' does not train its model", name);
    COD_REQUIRE(distilling <= 1, "recipe '%s': %zu sub-steps distil; at most one can", name, distilling);
    COD_REQUIRE(recipe->task_loss != 0 && recipe->target != 0, "recipe '%s' has no task loss", name);
    COD_REQUIRE(has_loss(recipe, recipe->task_loss), "recipe '%s': no sub-step has the task loss", name);
    COD_REQUIRE(recipe->sets[0].travels, "recipe '%s': its model must travel between groups", name);
    return COD_OK;
}

cod_status cod_recipe_build(const cod_recipe_setting *setting, cod_recipe *recipe)
{
    *recipe = (cod_recipe){.kind = setting->config->recipe};
    COD_TRY(recipe->kind->build(setting, recipe));
    COD_TRY(cod_graph_status(recipe->model.graph));
    for (size_t s = 0; s < cod_graph_set_count(recipe->model.graph); s++)
        recipe->sets[s].name = cod_graph_set_name(recipe->model.graph, (int)s);
    return check(recipe, setting->config->train.accumulate > 1);
}

void cod_recipe_clear(cod_recipe *recipe)
{
    cod_model_clear(&recipe->model);
    *recipe = (cod_recipe){0};
}

cod_sets cod_recipe_travelling(const cod_recipe *recipe)
{
    cod_sets sets = 0;
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++)
        sets |= recipe->sets[s].travels ? cod_set_of(s) : 0;
    return sets;
}

static bool trains(const cod_recipe *recipe, const cod_program_spec *program, int set)
{
    return program->trains != NULL && strcmp(program->trains, recipe->sets[set].name) == 0;
}

bool cod_recipe_reads_statistics(const cod_recipe *recipe)
{
    for (int s = 0; s < (int)cod_graph_set_count(recipe->model.graph); s++) {
        const bool moves = recipe->sets[s].trained && cod_graph_set_range(recipe->model.graph, s).state_count > 0;
        for (size_t i = 0; moves && i < recipe->step_count; i++) {
            const cod_program_spec *program = &recipe->steps[i].program;
            if (!trains(recipe, program, s) && (program->batch_statistics & cod_set_of(s)) == 0)
                return true;
        }
    }
    return false;
}

cod_value cod_recipe_compared_loss(const cod_recipe *recipe)
{
    return recipe->compared_loss != 0 ? recipe->compared_loss : recipe->task_loss;
}

const cod_sub_step *cod_recipe_distilling(const cod_recipe *recipe)
{
    for (size_t i = 0; i < recipe->step_count; i++)
        if (recipe->steps[i].distils)
            return &recipe->steps[i];
    return NULL;
}

bool cod_sub_step_is_due(const cod_sub_step *sub_step, int64_t step)
{
    return is_within(sub_step, step) && (sub_step->every <= 1 || step % sub_step->every == 0);
}

int64_t cod_sub_step_times_due(const cod_sub_step *sub_step, int64_t steps)
{
    const int64_t every = sub_step->every > 1 ? sub_step->every : 1, first = sub_step->first;
    const int64_t end = sub_step->end > 0 && sub_step->end < steps ? sub_step->end : steps;
    return end > first ? (end + every - 1) / every - (first + every - 1) / every : 0;
}

int64_t cod_recipe_updates(const cod_recipe *recipe, int set, int64_t step, size_t index)
{
    int64_t updates = 0;
    for (size_t i = 0; i < recipe->step_count; i++) {
        const cod_sub_step *s = &recipe->steps[i];
        if (s->program.trains != NULL && cod_graph_set_index(recipe->model.graph, s->program.trains) == set)
            updates += cod_sub_step_times_due(s, step) + (i < index && cod_sub_step_is_due(s, step));
    }
    return updates;
}

cod_optimiser_options cod_recipe_optimiser(const cod_run_config *config)
{
    const cod_train_options *train = &config->train;
    return (cod_optimiser_options){.kind = (cod_optimiser_kind)train->optimiser,
                                   .momentum = train->momentum,
                                   .nesterov = train->nesterov,
                                   .beta1 = train->beta1,
                                   .beta2 = train->beta2,
                                   .epsilon = train->epsilon,
                                   .weight_decay = train->weight_decay,
                                   .clip_norm = train->clip_norm,
                                   .ema_decay = train->ema};
}

cod_truth cod_recipe_truth(const cod_run_config *run)
{
    if (run->recipe != NULL && run->recipe->truth != NULL)
        return run->recipe->truth(run);
    return run->data.gt_usm ? COD_TRUTH_SHARP : COD_TRUTH_PLAIN;
}

cod_schedule cod_recipe_schedule(const cod_run_config *config)
{
    const cod_train_options *train = &config->train;
    return (cod_schedule){.kind = (cod_schedule_kind)train->schedule,
                          .rate = train->rate,
                          .steps = train->steps,
                          .warmup_steps = train->warmup,
                          .milestones = train->milestones,
                          .gamma = train->gamma,
                          .final_factor = train->final_factor};
}

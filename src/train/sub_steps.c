/* Runs a step's programs and updates in the order of the recipe. */
#include "train/trainer_internal.h"

static cod_status bucket_ready(void *context, size_t index, cod_event *complete)
{
    trainer *t = context;
    return STRATEGY(t, gradient_ready, &t->context, t->running_set, cod_program_bucket(t->running, index), complete);
}

/** Index of the set that a sub-step trains; -1 = none. */
static int trained_set(const trainer *t, const cod_sub_step *sub_step)
{
    const char *set = sub_step->program.trains;
    return set != NULL ? cod_graph_set_index(t->session.recipe.model.graph, set) : -1;
}

/** Whether neither other ranks nor the strategy act between gradients and update: both are one recording. */
static bool joins_update(const trainer *t)
{
    return t->config->strategy->only_averages && !t->session.averages;
}

/** Queues the optimiser of sub-step `index`'s set. @param program  to be run before, in one recording; NULL = it was */
static cod_status optimise(const trainer *t, size_t index, cod_program *program)
{
    const cod_train_session *session = &t->session;
    const int64_t step = t->context.step;
    const int set = trained_set(t, &session->recipe.steps[index]);
    const double rate = cod_train_session_rate(session, set, step);
    const int64_t number = cod_recipe_updates(&session->recipe, set, step, index) + 1;
    return program != NULL ? cod_optimiser_run(session->optimisers[set], program, rate, number)
                           : cod_optimiser_step(session->optimisers[set], rate, number);
}

/** Queues sub-step `index`'s program for mini-batch `batch`, which is on the device; with the update if they join. */
static cod_status run_sub_step(trainer *t, size_t index, int64_t batch, const char *distilling)
{
    const cod_sub_step *sub_step = &t->session.recipe.steps[index];
    const char *name = sub_step->distils ? distilling : sub_step->program.name;
    const bool reduces = sub_step->program.trains != NULL && batch == t->batches.count - 1;
    cod_program *program = cod_train_program(t->session.executable, name, batch);
    COD_REQUIRE(program != NULL, "strategy '%s' chose the program '%s', which does not exist",
                t->config->strategy->name, name);
    if (sub_step->distils)
        COD_TRY(STRATEGY_PART(t, teaching, before_batch, &t->context));
    t->running = program;
    t->running_set = trained_set(t, sub_step);
    if (reduces && joins_update(t))
        COD_TRY(optimise(t, index, program));
    else
        COD_TRY(cod_program_run(program, reduces ? bucket_ready : NULL, t));
    return trainer_losses_put(&t->losses, t->context.step, sub_step, batch);
}

/** Whether this rank runs the optimiser: all do, but where some serve only these. */
static bool updates_here(const trainer *t)
{
    return trainer_servers(t) == 0 || !trainer_trains(t);
}

/** Updates a set after sub-step `index`. */
static cod_status update(trainer *t, size_t index)
{
    cod_train_context *context = &t->context;
    const cod_strategy_division *division = t->strategy->ops->division;
    const int set = trained_set(t, &t->session.recipe.steps[index]);
    COD_TRY(STRATEGY(t, before_update, context, set));
    if (division != NULL && division->update != NULL)
        COD_TRY(division->update(t->strategy, context));
    else if (updates_here(t) && !joins_update(t)) /* else the program's run did */
        COD_TRY(optimise(t, index, NULL));
    return STRATEGY(t, after_update, context, set);
}

/**
 * Runs sub-steps from `first` up to the one at `last`, which alone may update a set, on all mini-batches; then updates.
 */
static cod_status run_round(trainer *t, size_t first, size_t last, const char *distilling)
{
    const cod_sub_step *steps = t->session.recipe.steps;
    const bool updates = steps[last].program.trains != NULL && cod_sub_step_is_due(&steps[last], t->context.step);
    for (int64_t batch = 0; batch < t->batches.count && trainer_trains(t); batch++) {
        COD_TRY(cod_batches_load(&t->batches, t->context.loader, batch, first == 0));
        t->context.mini_batch = t->batches.host;
        for (size_t i = first; i <= last; i++)
            if (cod_sub_step_is_due(&steps[i], t->context.step))
                COD_TRY(run_sub_step(t, i, batch, distilling));
    }
    return updates ? update(t, last) : COD_OK;
}

/** Sets what this step's updates go by: all of a step's scalars travel to the device together. */
static void set_rates(trainer *t)
{
    const cod_train_session *session = &t->session;
    const cod_recipe *recipe = &session->recipe;
    const int64_t step = t->context.step;
    for (size_t i = 0; i < recipe->step_count; i++) {
        const int set = trained_set(t, &recipe->steps[i]);
        if (set >= 0 && cod_sub_step_is_due(&recipe->steps[i], step))
            cod_optimiser_set_rate(session->optimisers[set], cod_train_session_rate(session, set, step),
                                   cod_recipe_updates(recipe, set, step, i) + 1);
    }
}

cod_status trainer_run_sub_steps(trainer *t)
{
    const cod_recipe *recipe = &t->session.recipe;
    const cod_sub_step *distils = cod_recipe_distilling(recipe);
    const char *distilling = distils != NULL ? distils->program.name : NULL;
    COD_TRY(STRATEGY(t, before_step, &t->context));
    if (trainer_leaves_computing(t)) {
        COD_TRY(t->strategy->ops->division->compute(t->strategy, &t->context, &t->losses.items[0].computed));
        return update(t, 0);
    }
    if (distils != NULL && cod_sub_step_is_due(distils, t->context.step))
        COD_TRY(STRATEGY_PART(t, teaching, choose, &t->context, &distilling));
    trainer_losses_begin(&t->losses, t->context.step);
    set_rates(t);
    cod_batches_begin(&t->batches);
    for (size_t first = 0; first < recipe->step_count;) {
        size_t last = first;
        while (last + 1 < recipe->step_count && recipe->steps[last].program.trains == NULL)
            last++;
        COD_TRY(run_round(t, first, last, distilling));
        first = last + 1;
    }
    return trainer_losses_end(&t->losses, t->context.step);
}

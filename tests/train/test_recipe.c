/*
 * What cod_recipe_build() refuses of a recipe: each of the mistakes that would else be seen in mid-run, or not at all.
 */
#include "support/test.h"

#include "train/recipe.h"

enum { FORWARD, CRITIC, MODEL, STEPS };

static void (*spoil)(cod_recipe *recipe);

/** A network and a critic, each of one layer. */
static cod_status build(const cod_recipe_setting *setting, cod_recipe *recipe)
{
    const cod_loss_spec mse = {.kind = COD_LOSS_MSE, .weight = setting->loss_factor};
    cod_graph *graph;
    COD_TRY(cod_graph_create(&graph));
    cod_model *model = &recipe->model;
    model->graph = graph;
    model->input = cod_graph_input(graph, COD_INPUT_DATA, 4);
    model->output = cod_graph_linear(graph, "layer", model->input, 2, false);
    recipe->target = cod_graph_input_like(graph, COD_INPUT_TRUTH, model->output);
    recipe->task_loss = cod_graph_loss(graph, "task", model->output, recipe->target, mse);
    cod_graph_use_set(graph, "critic");
    const cod_value normal = cod_graph_norm(graph, "norm", model->output);
    const cod_value judged = cod_graph_linear(graph, "layer", normal, 1, false);
    const cod_value judgement =
        cod_graph_loss(graph, "judgement", judged, cod_graph_input_like(graph, "ones", judged), mse);
    recipe->sets[0] = recipe->sets[1] = (cod_recipe_set){.trained = true, .travels = true};
    recipe->steps[FORWARD] = (cod_sub_step){.program = {.name = "forward", .outputs = {model->output}}};
    recipe->steps[CRITIC] = (cod_sub_step){
        .program = {.name = "critic", .trains = "critic", .losses = {judgement}, .given = {model->output}},
        .losses = {"judgement"}};
    recipe->steps[MODEL] =
        (cod_sub_step){.program = {.name = "model", .trains = "model", .losses = {recipe->task_loss}},
                       .losses = {"task"},
                       .distils = true};
    recipe->step_count = STEPS;
    if (spoil != NULL)
        spoil(recipe);
    return COD_OK;
}

/** @param change  NULL = none */
static cod_status builds(void (*change)(cod_recipe *recipe), int64_t accumulate)
{
    static const cod_recipe_kind kind = {.name = "pair", .build = build};
    const cod_run_config config = {.recipe = &kind, .train = {.accumulate = accumulate}};
    const cod_recipe_setting setting = {.config = &config, .loss_factor = 1};
    cod_recipe recipe;
    spoil = change;
    const cod_status status = cod_recipe_build(&setting, &recipe);
    cod_recipe_clear(&recipe);
    return status;
}

static void leave_a_loss_without_name(cod_recipe *recipe)
{
    recipe->steps[CRITIC].losses[0] = NULL;
}

static void name_losses_alike(cod_recipe *recipe)
{
    recipe->steps[CRITIC].losses[0] = "task";
}

static void name_sub_steps_alike(cod_recipe *recipe)
{
    recipe->steps[MODEL].program.name = "critic";
}

static void train_what_is_not_there(cod_recipe *recipe)
{
    recipe->steps[CRITIC].program.trains = "judge";
}

static void leave_the_model_alone(cod_recipe *recipe)
{
    recipe->sets[0].trained = false;
    recipe->steps[MODEL].program.trains = NULL;
}

static void keep_the_model_home(cod_recipe *recipe)
{
    recipe->sets[0].travels = false;
}

static void compute_no_task_loss(cod_recipe *recipe)
{
    recipe->steps[MODEL].program.losses[0] = 0;
    recipe->steps[MODEL].losses[0] = NULL;
}

static void distil_twice(cod_recipe *recipe)
{
    recipe->steps[CRITIC].distils = true;
}

static void look_away_every_second_step(cod_recipe *recipe)
{
    recipe->steps[FORWARD].every = 2;
}

static void rest_together(cod_recipe *recipe)
{
    recipe->steps[FORWARD].every = 2;
    recipe->steps[CRITIC].every = 4;
}

static void give_before_it_is_left(cod_recipe *recipe)
{
    const cod_sub_step critic = recipe->steps[CRITIC];
    recipe->steps[CRITIC] = recipe->steps[FORWARD];
    recipe->steps[FORWARD] = critic;
}

/** Until step 6 `forward` leaves the output, from then on `model` does. */
static void begin_later(cod_recipe *recipe)
{
    const cod_sub_step critic = recipe->steps[CRITIC];
    recipe->steps[CRITIC] = recipe->steps[MODEL];
    recipe->steps[MODEL] = critic;
    recipe->steps[FORWARD].end = 6;
    recipe->steps[CRITIC].first = 6;
    recipe->steps[CRITIC].program.outputs[0] = recipe->model.output;
}

static void begin_too_late(cod_recipe *recipe)
{
    begin_later(recipe);
    recipe->steps[CRITIC].first = 7;
}

static void end_too_early(cod_recipe *recipe)
{
    begin_later(recipe);
    recipe->steps[CRITIC].end = 9;
}

/** In the steps without an output the critic does not run. */
static void begin_together(cod_recipe *recipe)
{
    end_too_early(recipe);
    recipe->steps[MODEL].first = 2;
    recipe->steps[MODEL].end = 9;
}

static void tell_a_figure(cod_recipe *recipe)
{
    recipe->steps[FORWARD].figures[0] = recipe->model.output;
    recipe->steps[FORWARD].figure_names[0] = "first_output";
}

static void tell_no_output(cod_recipe *recipe)
{
    tell_a_figure(recipe);
    recipe->steps[FORWARD].figures[0] = recipe->target;
}

static void leave_a_figure_without_name(cod_recipe *recipe)
{
    tell_a_figure(recipe);
    recipe->steps[FORWARD].figure_names[0] = NULL;
}

static void guard(cod_recipe *recipe)
{
    recipe->guards[0] = (cod_recipe_guard){
        .name = "far", .figure = "task", .other = "judgement", .relation = COD_GUARD_RATIO, .least = 1, .most = 2};
    recipe->guard_count = 1;
}

static void guard_what_nobody_computes(cod_recipe *recipe)
{
    guard(recipe);
    recipe->guards[0].other = "judgment";
}

static void guard_without_a_band(cod_recipe *recipe)
{
    guard(recipe);
    recipe->guards[0].most = 1;
}

static void guard_a_ratio_to_nothing(cod_recipe *recipe)
{
    guard(recipe);
    recipe->guards[0].other = NULL;
}

static void give_across_an_update(cod_recipe *recipe)
{
    recipe->steps[MODEL].program.given[0] = recipe->model.output;
}

TEST(mistakes_are_told)
{
    static const char given[] = "'critic' can be given only what earlier sub-steps have left in the same step";
    assert_ok(builds(NULL, 1));
    assert_ok(builds(NULL, 2));
    assert_fails(COD_ERR_ARGUMENT, "recipe 'pair': loss 0 of 'critic' needs a name",
                 builds(leave_a_loss_without_name, 1));
    assert_fails(COD_ERR_ARGUMENT, "recipe 'pair': two losses are called 'task'", builds(name_losses_alike, 1));
    assert_fails(COD_ERR_ARGUMENT, "recipe 'pair': two sub-steps are called 'critic'", builds(name_sub_steps_alike, 1));
    assert_fails(COD_ERR_ARGUMENT, "'critic' trains 'judge', which has no optimiser",
                 builds(train_what_is_not_there, 1));
    assert_fails(COD_ERR_ARGUMENT, "recipe 'pair' does not train its model", builds(leave_the_model_alone, 1));
    assert_fails(COD_ERR_ARGUMENT, "its model must travel between groups", builds(keep_the_model_home, 1));
    assert_fails(COD_ERR_ARGUMENT, "no sub-step has the task loss", builds(compute_no_task_loss, 1));
    assert_fails(COD_ERR_ARGUMENT, "recipe 'pair': 2 sub-steps distil", builds(distil_twice, 1));
    assert_ok(builds(rest_together, 1));
    assert_fails(COD_ERR_ARGUMENT, given, builds(look_away_every_second_step, 1));
    assert_fails(COD_ERR_ARGUMENT, given, builds(give_before_it_is_left, 1));
    assert_ok(builds(begin_later, 1));
    assert_ok(builds(begin_together, 1));
    assert_fails(COD_ERR_ARGUMENT, "'critic' can be given only", builds(begin_too_late, 1));
    assert_fails(COD_ERR_ARGUMENT, "'critic' can be given only", builds(end_too_early, 1));
    assert_ok(builds(tell_a_figure, 1));
    assert_fails(COD_ERR_ARGUMENT, "figure 0 of 'forward' needs a name and must be an output",
                 builds(tell_no_output, 1));
    assert_fails(COD_ERR_ARGUMENT, "figure 0 of 'forward' needs a name", builds(leave_a_figure_without_name, 1));
    assert_ok(builds(guard, 1));
    assert_fails(COD_ERR_ARGUMENT, "recipe 'pair': guard 'far' watches 'judgment', which no sub-step has",
                 builds(guard_what_nobody_computes, 1));
    assert_fails(COD_ERR_ARGUMENT, "guard 'far' needs a band", builds(guard_without_a_band, 1));
    assert_fails(COD_ERR_ARGUMENT, "guard 'far' needs a band", builds(guard_a_ratio_to_nothing, 1));
    assert_ok(builds(give_across_an_update, 1));
    assert_fails(COD_ERR_ARGUMENT, "with train.accumulate above 1 since the last update",
                 builds(give_across_an_update, 2));
}

static bool reads_statistics(cod_sets by_batch, bool trained)
{
    static const cod_recipe_kind kind = {.name = "pair", .build = build};
    const cod_run_config config = {.recipe = &kind, .train = {.accumulate = 1}};
    const cod_recipe_setting setting = {.config = &config, .loss_factor = 1};
    cod_recipe recipe;
    spoil = NULL;
    assert_ok(cod_recipe_build(&setting, &recipe));
    cod_graph_layout(recipe.model.graph);
    recipe.steps[FORWARD].program.batch_statistics = COD_ALL_SETS;
    recipe.steps[MODEL].program.batch_statistics = by_batch;
    recipe.sets[1].trained = trained;
    const bool reads = cod_recipe_reads_statistics(&recipe);
    cod_recipe_clear(&recipe);
    return reads;
}

/** The critic's, where it is frozen with what training left of them; the model has none. */
TEST(running_statistics_that_move_are_seen)
{
    assert_true(reads_statistics(0, true));
    assert_false(reads_statistics(cod_set_of(1), true));
    assert_false(reads_statistics(0, false));
}

/** The counts that optimisers go by are those of looking at each step. */
TEST(updates_are_counted_as_they_come)
{
    static const cod_sub_step cases[] = {{.every = 0},
                                         {.every = 3},
                                         {.every = 3, .first = 4},
                                         {.every = 3, .first = 6},
                                         {.first = 5, .end = 9},
                                         {.every = 4, .first = 5, .end = 13},
                                         {.every = 2, .end = 7},
                                         {.every = 7, .first = 8, .end = 10}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t times = 0;
        for (int64_t step = 0; step < 40; step++) {
            assert_int_equal(cod_sub_step_times_due(&cases[i], step), times);
            times += cod_sub_step_is_due(&cases[i], step);
        }
        assert_true(times > 0 || i == 7);
    }
}

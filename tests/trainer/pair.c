#include "pair.h"

#include "train/recipe.h"
#include "train/task.h"

#include <math.h>
#include <string.h>

enum { LOOK, CRITIC, MODEL };

typedef enum flaw {
    FLAW_NONE,
    FLAW_TWICE,
    FLAW_UNNAMED,
    FLAW_LOSS,
    FLAW_OPTIMISER,
    FLAW_ACROSS,
    FLAW_BOTH,
    FLAW_IDLE,
    FLAW_AIM,
    FLAW_CONSTANT,
    FLAW_SET,
    FLAW_ALONE,
} flaw;
static const char *const flaws[] = {"none", "twice", "unnamed",  "loss", "optimiser", "across", "both",
                                    "idle", "aim",   "constant", "set",  "alone",     NULL};

typedef struct pair_options {
    int flaw;
    const char *distils;
    int64_t every;
    double most;
    bool spoils;
    int64_t guarded;
} pair_options;

static const cod_option option_list[] = {
    {"flaw", COD_OPTION_CHOICE, offsetof(pair_options, flaw), "none", 0, 0, flaws, "what is wrong with the recipe"},
    {"distils", COD_OPTION_STRING, offsetof(pair_options, distils), "model", 0, 0, NULL, "the sub-step that distils"},
    {"every", COD_OPTION_INT, offsetof(pair_options, every), "0", 0, 100, NULL,
     "steps from one of the critic's to the next"},
    {"most", COD_OPTION_FLOAT, offsetof(pair_options, most), "0", 0, 100, NULL,
     "a guard expects the task's loss to be at most this; 0 = there is no guard"},
    {"spoils", COD_OPTION_BOOL, offsetof(pair_options, spoils), "false", 0, 0, NULL,
     "the model is no good outside that band"},
    {"guarded", COD_OPTION_INT, offsetof(pair_options, guarded), "-1", -1, 100, NULL,
     "the group that has the guard; -1 = all"},
};
static const cod_option_table table = {"pair", "Two networks", option_list, sizeof option_list / sizeof option_list[0],
                                       sizeof(pair_options)};

static cod_value constant(cod_recipe *recipe, const char *name, cod_value like, float value)
{
    recipe->constants[recipe->constant_count++] = (cod_recipe_constant){name, value};
    return cod_graph_input_like(recipe->model.graph, name, like);
}

static void add_steps(const pair_options *options, float factor, cod_recipe *recipe)
{
    cod_graph *graph = recipe->model.graph;
    const cod_value output = recipe->model.output;
    const cod_loss_spec whole = {.kind = COD_LOSS_BCE, .weight = factor}, tenth = {COD_LOSS_BCE, .weight = factor / 10};
    cod_graph_use_set(graph, "critic");
    const cod_value of_truth = cod_graph_linear(graph, "score", recipe->target, 1, false);
    const cod_value of_output = cod_graph_linear(graph, "score", output, 1, false);
    const cod_value ones = constant(recipe, "ones", of_truth, 1), zeros = constant(recipe, "zeros", of_truth, 0);
    const cod_value real = cod_graph_loss(graph, "real", of_truth, ones, whole);
    const cod_value fake = cod_graph_loss(graph, "fake", of_output, zeros, whole);
    const cod_value fool = cod_graph_loss(graph, "fool", of_output, ones, tenth);
    const cod_program_spec look = {.name = "look", .outputs = {output}};
    const cod_program_spec critic = {.name = "critic", .trains = "critic", .losses = {real, fake}, .given = {output}};
    const cod_program_spec model = {.name = "model", .trains = "model", .losses = {recipe->task_loss, fool}};
    recipe->steps[LOOK] = (cod_sub_step){.program = look, .every = options->every};
    recipe->steps[CRITIC] = (cod_sub_step){.program = critic, .losses = {"real", "fake"}, .every = options->every};
    recipe->steps[MODEL] = (cod_sub_step){.program = model, .losses = {"task", "fool"}};
    recipe->step_count = 3;
    for (size_t i = 0; i < recipe->step_count; i++)
        recipe->steps[i].distils = strcmp(recipe->steps[i].program.name, options->distils) == 0;
}

static void spoil(flaw what, cod_recipe *recipe)
{
    cod_sub_step *steps = recipe->steps;
    switch (what) {
    case FLAW_NONE:
        return;
    case FLAW_TWICE:
        steps[MODEL].program.name = "critic";
        return;
    case FLAW_UNNAMED:
        steps[CRITIC].program.name = NULL;
        return;
    case FLAW_LOSS:
        steps[MODEL].losses[1] = NULL;
        return;
    case FLAW_OPTIMISER:
        recipe->sets[1].trained = false;
        return;
    case FLAW_ACROSS: /* the critic's update lies between */
        steps[MODEL].program.given[0] = recipe->model.output;
        return;
    case FLAW_BOTH:
        steps[CRITIC].distils = steps[MODEL].distils = true;
        return;
    case FLAW_IDLE:
        recipe->step_count = 1;
        return;
    case FLAW_AIM:
        recipe->task_loss = 0;
        return;
    case FLAW_CONSTANT:
        recipe->constants[1].input = "noughts";
        return;
    case FLAW_SET:
        steps[CRITIC].program.trains = "judge";
        return;
    case FLAW_ALONE: /* one set is trained, but another program runs before its own */
        steps[CRITIC] = steps[MODEL];
        recipe->step_count = 2;
        recipe->sets[1].trained = false;
    }
}

static cod_status build(const cod_recipe_setting *setting, cod_recipe *recipe)
{
    const cod_group_config *group = cod_run_config_group(setting->config, setting->group);
    const pair_options *options = cod_run_config_section(setting->config, &table);
    cod_model *model = &recipe->model;
    COD_TRY(cod_model_build(group->kind, group->architecture, model));
    cod_loss_spec loss = cod_train_loss(setting->config, model->task);
    loss.weight = setting->loss_factor;
    recipe->target = cod_graph_input_like(model->graph, COD_INPUT_TRUTH, model->output);
    recipe->task_loss = cod_graph_loss(model->graph, "task", model->output, recipe->target, loss);
    recipe->sets[0] = (cod_recipe_set){.travels = true,
                                       .trained = true,
                                       .optimiser = cod_recipe_optimiser(setting->config),
                                       .schedule = cod_recipe_schedule(setting->config)};
    recipe->sets[1] = (cod_recipe_set){.trained = true,
                                       .optimiser = {.kind = COD_OPT_SGD, .momentum = 0.5},
                                       .schedule = {.kind = COD_SCHEDULE_CONSTANT, .rate = 0.1}};
    add_steps(options, setting->loss_factor, recipe);
    if (options->most > 0 && (options->guarded < 0 || options->guarded == setting->group))
        recipe->guards[recipe->guard_count++] = (cod_recipe_guard){.name = "far",
                                                                   .figure = "task",
                                                                   .least = -INFINITY,
                                                                   .most = options->most,
                                                                   .advice = "train it",
                                                                   .spoils = options->spoils};
    spoil((flaw)options->flaw, recipe);
    return COD_OK;
}

void pair_register(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_recipe_kind kind = {
        .name = "pair", .help = "two networks", .tables = tables, .table_count = 1, .build = build};
    cod_recipe_register(&kind);
}

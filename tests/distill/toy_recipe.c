#include "toy_recipe.h"

#include "train/prior.h"
#include "train/recipe.h"
#include "train/task.h"

typedef struct toy_options {
    int64_t critic_every, model_every;
    double critic_rate, adversarial;
} toy_options;

static const cod_option option_list[] = {
    {"critic_every", COD_OPTION_INT, offsetof(toy_options, critic_every), "1", 1, 1000, NULL,
     "steps between two updates of the critic"},
    {"model_every", COD_OPTION_INT, offsetof(toy_options, model_every), "1", 1, 1000, NULL,
     "steps between two updates of the model"},
    {"critic_rate", COD_OPTION_FLOAT, offsetof(toy_options, critic_rate), "0.05", 1e-6, 10, NULL,
     "learning rate of the critic, after four steps of warm-up"},
    {"adversarial", COD_OPTION_FLOAT, offsetof(toy_options, adversarial), "0.1", 1e-30, 10, NULL,
     "weight of the adversarial loss beside the task loss"},
};
static const cod_option_table table = {"toy", "A classifier and its critic: recipe toy", option_list,
                                       sizeof option_list / sizeof option_list[0], sizeof(toy_options)};

/**
 * Adds the critic's judgement of vectors {N,1,1,K}: logits {N,1,1,1} that they are true. Uses of it share their
 * parameters.
 */
static cod_value judge(cod_graph *graph, cod_value x)
{
    enum { WIDTH = 8 };
    x = cod_graph_linear(graph, "features.0", x, WIDTH, true);
    x = cod_graph_activation(graph, cod_graph_norm(graph, "features.1", x), COD_ACT_LEAKY_RELU, 0.2f);
    return cod_graph_linear(graph, "classifier", x, 1, false);
}

static void add_steps(cod_recipe *recipe, const toy_options *options, cod_value adversarial, cod_value fake,
                      cod_value real)
{
    const cod_sets batch = cod_set_of(0);
    const cod_value logits = recipe->model.output;
    recipe->steps[recipe->step_count++] = (cod_sub_step){
        .program = {.name = "forward", .batch_statistics = batch, .outputs = {logits}}, .every = options->critic_every};
    recipe->steps[recipe->step_count++] =
        (cod_sub_step){.program = {.name = "critic", .trains = "critic", .losses = {fake, real}, .given = {logits}},
                       .losses = {"critic_fake", "critic_real"},
                       .every = options->critic_every};
    recipe->steps[recipe->step_count++] =
        (cod_sub_step){.program = {.name = "model", .trains = "model", .losses = {recipe->task_loss, adversarial}},
                       .losses = {"task", "adversarial"},
                       .every = options->model_every,
                       .distils = true};
}

static void add_sets(cod_recipe *recipe, const cod_run_config *config, double critic_rate)
{
    recipe->sets[0] = (cod_recipe_set){.travels = true,
                                       .trained = true,
                                       .optimiser = cod_recipe_optimiser(config),
                                       .schedule = cod_recipe_schedule(config)};
    recipe->sets[1] = (cod_recipe_set){
        .trained = true,
        .optimiser = {.kind = COD_OPT_SGD, .momentum = 0.8, .ema_decay = config->train.ema},
        .schedule = {
            .kind = COD_SCHEDULE_CONSTANT, .rate = critic_rate, .steps = config->train.steps, .warmup_steps = 4}};
}

static cod_status build(const cod_recipe_setting *setting, cod_recipe *recipe)
{
    const cod_run_config *config = setting->config;
    const toy_options *options = cod_run_config_section(config, &table);
    const cod_group_config *group = cod_run_config_group(config, setting->group);
    cod_model *model = &recipe->model;
    COD_TRY(cod_model_build(group->kind, group->architecture, model));
    cod_graph *graph = model->graph;
    cod_loss_spec task = cod_train_loss(config, model->task);
    cod_loss_spec bce = {.kind = COD_LOSS_BCE, .weight = setting->loss_factor};
    task.weight = setting->loss_factor;
    recipe->target = cod_graph_input_like(graph, COD_INPUT_TRUTH, model->output);
    recipe->task_loss = cod_prior_task_loss(setting->priors, graph, "task", model->output, recipe->target, task);

    cod_graph_use_set(graph, "critic");
    const cod_value fake = judge(graph, model->output), real = judge(graph, recipe->target);
    const cod_value zeros = cod_graph_input_like(graph, "zeros", fake),
                    ones = cod_graph_input_like(graph, "ones", fake);
    const cod_value on_fake = cod_graph_loss(graph, "critic_fake", fake, zeros, bce);
    const cod_value on_real = cod_graph_loss(graph, "critic_real", real, ones, bce);
    bce.weight *= (float)options->adversarial;
    const cod_value adversarial = cod_graph_loss(graph, "adversarial", fake, ones, bce);
    recipe->constants[recipe->constant_count++] = (cod_recipe_constant){"zeros", 0};
    recipe->constants[recipe->constant_count++] = (cod_recipe_constant){"ones", 1};
    add_sets(recipe, config, options->critic_rate);
    add_steps(recipe, options, adversarial, on_fake, on_real);
    return COD_OK;
}

static void check(const cod_run_config *run)
{
    if (run->whole.kind != NULL && run->whole.kind->task != COD_TASK_CLASSIFICATION)
        cod_config_problem_key(run->config, "train.recipe",
                               "the critic of recipe 'toy' judges logits; model '%s' has none", run->whole.kind->name);
}

void toy_recipe_register(void)
{
    static const cod_option_table *const tables[] = {&table};
    static const cod_recipe_kind kind = {.name = "toy",
                                         .help = "a classifier, and a critic that judges its logits",
                                         .tables = tables,
                                         .table_count = 1,
                                         .check = check,
                                         .build = build};
    cod_recipe_register(&kind);
}

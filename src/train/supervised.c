/* The recipe `supervised`: a network, and a loss between its output and the truth. */
#include "train/prior.h"
#include "train/recipe.h"
#include "train/task.h"

static cod_status build(const cod_recipe_setting *setting, cod_recipe *recipe)
{
    const cod_group_config *group = cod_run_config_group(setting->config, setting->group);
    cod_model *model = &recipe->model;
    COD_TRY(cod_model_build(group->kind, group->architecture, model));
    cod_loss_spec loss = cod_train_loss(setting->config, model->task);
    loss.weight = setting->loss_factor;
    recipe->target = cod_graph_input_like(model->graph, COD_INPUT_TRUTH, model->output);
    recipe->task_loss = cod_prior_task_loss(setting->priors, model->graph, "task", model->output, recipe->target, loss);
    recipe->sets[0] = (cod_recipe_set){.travels = true,
                                       .trained = true,
                                       .optimiser = cod_recipe_optimiser(setting->config),
                                       .schedule = cod_recipe_schedule(setting->config)};
    recipe->steps[recipe->step_count++] =
        (cod_sub_step){.program = {.name = "plain", .trains = "model", .losses = {recipe->task_loss}},
                       .losses = {"task"},
                       .distils = true};
    return COD_OK;
}

void cod_recipe_register_supervised(void)
{
    static const cod_recipe_kind kind = {.name = "supervised",
                                         .help = "one network, trained by the loss between its output and the truth",
                                         .build = build};
    cod_recipe_register(&kind);
}

#include "distill/models.h"

#include "train/recipe.h"

#include <stdlib.h>

/** What of the recipe's sets travels between groups. */
static cod_exchange_model model_of(const cod_recipe *recipe)
{
    cod_graph *graph = recipe->model.graph;
    const cod_sets sets = cod_recipe_travelling(recipe);
    cod_exchange_model model = {.hash = cod_graph_fingerprint(graph, sets)};
    cod_graph_layout(graph);
    for (int s = 0; s < (int)cod_graph_set_count(graph); s++) {
        const cod_set_range range = cod_graph_set_range(graph, s);
        const size_t travels = (sets & cod_set_of(s)) != 0;
        model.count += travels * range.count;
        model.state_count += travels * range.state_count;
    }
    return model;
}

static cod_status read_model(const cod_run_config *config, int group, cod_exchange_model *out)
{
    const cod_recipe_setting setting = {.config = config, .group = group, .loss_factor = 1};
    cod_recipe recipe;
    const cod_status status = cod_recipe_build(&setting, &recipe);
    if (status == COD_OK)
        *out = model_of(&recipe);
    cod_recipe_clear(&recipe);
    return status;
}

cod_status cod_exchange_models_read(const cod_run_config *config, int groups, cod_exchange_model **models)
{
    cod_status status = COD_OK;
    cod_exchange_model *all = *models = calloc((size_t)groups, sizeof *all);
    COD_REQUIRE_MEMORY(all);
    for (int g = 0; g < groups && status == COD_OK; g++) {
        const cod_group_config *group = cod_run_config_group(config, g);
        if (g > 0 && group->architecture == cod_run_config_group(config, g - 1)->architecture)
            all[g] = all[g - 1];
        else
            status = read_model(config, g, &all[g]);
    }
    if (status != COD_OK) {
        free(all);
        *models = NULL;
    }
    return status;
}

#include "distill/models.h"

#include <stdlib.h>

static cod_status read_model(const cod_group_config *group, cod_exchange_model *out)
{
    cod_model model = {0};
    cod_status status = cod_model_build(group->kind, group->architecture, &model);
    if (status == COD_OK)
        status = cod_graph_status(model.graph);
    if (status == COD_OK) {
        const cod_layout layout = cod_graph_layout(model.graph);
        *out = (cod_exchange_model){.count = layout.trainable,
                                    .state_count = layout.state,
                                    .hash = cod_graph_fingerprint(model.graph, COD_ALL_SETS)};
    }
    cod_model_clear(&model);
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
            status = read_model(group, &all[g]);
    }
    if (status != COD_OK) {
        free(all);
        *models = NULL;
    }
    return status;
}

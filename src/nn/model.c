#include "nn/model.h"

#include "nn/models/models_internal.h"

#include <string.h>

/** The registry: one line a kind. */
static const cod_model_kind *const kinds[] = {&cod_model_srresnet, &cod_model_msrresnet, &cod_model_compact,
                                              &cod_model_mlp};

const cod_model_kind *cod_model_kind_at(size_t index)
{
    return index < sizeof kinds / sizeof kinds[0] ? kinds[index] : NULL;
}

const cod_model_kind *cod_model_kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

cod_status cod_model_build(const cod_model_kind *kind, const void *options, cod_model *out)
{
    *out = (cod_model){.kind = kind, .options = options};
    COD_TRY(cod_graph_create(&out->graph));
    out->input = cod_graph_input(out->graph, "input", cod_model_input_channels(kind, options));
    out->output = kind->build(out->graph, out->input, options);
    const cod_status status = cod_graph_status(out->graph);
    if (status != COD_OK) {
        cod_model_clear(out);
        return cod_fail_prefix(status, "model '%s'", kind->name);
    }
    return COD_OK;
}

void cod_model_clear(cod_model *model)
{
    cod_graph_destroy(model->graph);
    *model = (cod_model){0};
}

int64_t cod_model_input_channels(const cod_model_kind *kind, const void *options)
{
    return kind->input_channels != NULL ? kind->input_channels(options) : 3;
}

int cod_model_scale(const cod_model *model)
{
    return model->kind->scale != NULL ? model->kind->scale(model->options) : 1;
}

#include "nn/model.h"

#include "nn/models/models_internal.h"

#include <string.h>

/** The registry: one line a kind. */
static const cod_model_kind *const kinds[] = {
    &cod_model_srresnet, &cod_model_msrresnet, &cod_model_rrdb, &cod_model_edsr,     &cod_model_compact,
    &cod_model_logistic, &cod_model_mlp,       &cod_model_cnn,  &cod_model_resnet18, &cod_model_resnet50};

const char *cod_task_name(cod_task task)
{
    return task == COD_TASK_CLASSIFICATION ? "classification" : "super-resolution";
}

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

const cod_classifier_sizes *cod_model_sizes(const cod_model_kind *kind, const void *options)
{
    return kind->task == COD_TASK_CLASSIFICATION ? options : NULL;
}

enum { SIZES = 4 };
static const char *const size_names[SIZES] = {"height", "width", "channels", "classes"};

static int64_t size_at(const cod_classifier_sizes *sizes, int index)
{
    return ((const int64_t[SIZES]){sizes->height, sizes->width, sizes->channels, sizes->classes})[index];
}

cod_status cod_model_fit_sizes(const cod_model_kind *kind, void *options, const cod_classifier_sizes *data)
{
    cod_classifier_sizes *own = options;
    COD_REQUIRE(kind->task == COD_TASK_CLASSIFICATION, "model '%s' is no classifier", kind->name);
    for (int i = 0; i < SIZES; i++)
        COD_REQUIRE(size_at(own, i) == 0 || size_at(own, i) == size_at(data, i),
                    "model '%s': %s is %lld, but the data has %lld", kind->name, size_names[i],
                    (long long)size_at(own, i), (long long)size_at(data, i));
    *own = *data;
    return COD_OK;
}

static cod_status check_sizes(const cod_model_kind *kind, const void *options)
{
    const cod_classifier_sizes *sizes = cod_model_sizes(kind, options);
    for (int i = 0; sizes != NULL && i < SIZES; i++)
        COD_REQUIRE(size_at(sizes, i) > 0,
                    "model '%s': %s is 0, as the data has it, but no data are known; give a number", kind->name,
                    size_names[i]);
    return COD_OK;
}

cod_status cod_model_build(const cod_model_kind *kind, const void *options, cod_model *out)
{
    *out = (cod_model){.kind = kind, .task = kind->task, .options = options};
    COD_TRY(check_sizes(kind, options));
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
    const cod_classifier_sizes *sizes = cod_model_sizes(kind, options);
    return sizes != NULL ? sizes->channels : 3;
}

int cod_model_multiple(const cod_model_kind *kind, const void *options)
{
    return kind->multiple != NULL ? kind->multiple(options) : 1;
}

int cod_model_scale(const cod_model *model)
{
    return model->kind->scale != NULL ? model->kind->scale(model->options) : 1;
}

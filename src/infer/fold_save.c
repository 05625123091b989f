/* Folded model files: the tensors of a folded model under the names of the same architecture without normalisation. */
#include "infer/fold.h"

#include "infer/int8.h"
#include "infer_internal.h"

#include <stdlib.h>
#include <string.h>

/** The model as it is (`from`) and as its kind builds it with `norm: none` (`to`), node by node. */
typedef struct model_twin {
    const cod_model *from;
    const cod_folded *folded;
    const float *values;
    const char *int8; /**< ranges under the names of `from`, or NULL */
    bool bf16;        /**< weights are rounded */
    graph_part part;
    cod_model to;
    named_tensor *tensors;  /**< [param count of `to`]; values NULL = not known yet */
    cod_value *counterpart; /**< [value of `from`] value of `to`; 0 = none */
} model_twin;

static const cod_folded_layer *folded_norm(const cod_folded *folded, const cod_node *node)
{
    const cod_folded_layer *layer = node->kind == COD_NODE_NORM ? cod_folded_find(folded, node->output) : NULL;
    return layer != NULL && layer->norm == node ? layer : NULL;
}

/** Gives `to`'s parameter the values found for it; false when they do not fit, or differ from those it has. */
static bool tensor_assign(model_twin *twin, int param, cod_shape shape, const float *values)
{
    const cod_param *target = cod_graph_param(twin->to.graph, (size_t)param);
    named_tensor *tensor = &twin->tensors[param];
    if (values == NULL || !cod_shape_equal(target->shape, shape) || (tensor->values && tensor->values != values))
        return false;
    *tensor = (named_tensor){*target, values};
    return true;
}

/** Whether `b` is what `a` has become; if so its parameters get their values. */
static bool nodes_match(model_twin *twin, const cod_node *a, const cod_node *b, cod_arena *arena)
{
    if (a->kind != b->kind || a->input_count != b->input_count || a->channels != b->channels)
        return false;
    for (int i = 0; i < a->input_count; i++)
        if (twin->counterpart[a->inputs[i]] != b->inputs[i])
            return false;
    const cod_folded_layer *layer = cod_folded_find(twin->folded, a->output);
    for (int i = 0; i < COD_NODE_MAX_PARAMS; i++) {
        const cod_param *source = a->params[i] < 0 ? NULL : cod_graph_param(twin->from->graph, (size_t)a->params[i]);
        const bool has_values = layer != NULL && i == 1 ? layer->bias != NULL : source != NULL;
        if (b->params[i] < 0) {
            if (has_values)
                return false;
            continue;
        }
        const cod_shape shape = source ? source->shape : (cod_shape){1, 1, 1, a->channels};
        const float *values = source ? twin->values + source->offset : NULL;
        if (layer != NULL && i < 2)
            values = i == 0 ? layer->weight : layer->bias;
        if (values == NULL) /* a bias that `from` has no need of */
            values = cod_arena_alloc(arena, (size_t)a->channels * sizeof *values);
        if (!tensor_assign(twin, b->params[i], shape, values))
            return false;
    }
    return true;
}

/** Walks both graphs side by side, stepping over the norms that were folded. */
static bool graphs_match(model_twin *twin, cod_arena *arena)
{
    const cod_graph *from = twin->from->graph, *to = twin->to.graph;
    size_t k = 0;
    for (size_t i = 0; i < cod_graph_node_count(from); i++) {
        const cod_node *a = cod_graph_node(from, i);
        if (!twin->part.nodes[i])
            continue;
        if (folded_norm(twin->folded, a) != NULL) {
            twin->counterpart[a->output] = twin->counterpart[a->inputs[0]];
            continue;
        }
        const cod_node *b = cod_graph_node(to, k++);
        if (b == NULL || !nodes_match(twin, a, b, arena))
            return false;
        twin->counterpart[a->output] = b->output;
    }
    return k == cod_graph_node_count(to) && twin->counterpart[twin->from->output] == twin->to.output;
}

/** The options of `from` with `norm: none`; NULL when its kind has no such choice. */
static void *options_without_norm(const cod_model *from, cod_arena *arena)
{
    const cod_option_table *table = from->kind->table;
    const cod_option *norm = cod_option_find(table, "norm");
    const char *none = "none";
    void *options = norm ? cod_arena_alloc(arena, table->struct_bytes) : NULL;
    if (options == NULL)
        return NULL;
    memcpy(options, from->options, table->struct_bytes);
    return cod_option_set(norm, options, &none, 1, arena) == COD_OK ? options : NULL;
}

/** The ranges under the names of `to`. @param[out] text  new; free() */
static cod_status ranges_translate(const model_twin *twin, cod_arena *arena, char **text)
{
    const cod_graph *from = twin->from->graph, *to = twin->to.graph;
    float *ranges = cod_arena_alloc(arena, cod_graph_node_count(from) * sizeof *ranges);
    float *translated = cod_arena_alloc(arena, cod_graph_node_count(to) * sizeof *translated);
    COD_REQUIRE_MEMORY(ranges);
    COD_REQUIRE_MEMORY(translated);
    COD_TRY(cod_int8_parse(from, twin->int8, ranges));
    for (size_t i = 0; i < cod_graph_node_count(from); i++) {
        const cod_value value = twin->counterpart[cod_graph_node(from, i)->output];
        if (ranges[i] > 0 && value != 0)
            translated[cod_node_index(to, cod_graph_producer(to, value))] = ranges[i];
    }
    return cod_int8_format(to, translated, text);
}

/** Writes the twin; *loadable stays false, and nothing is written, when the kind cannot express it. */
static cod_status twin_write(const char *path, model_twin *twin, cod_arena *arena, bool *loadable)
{
    const void *options = options_without_norm(twin->from, arena);
    cod_st_text metadata[COD_MODEL_METADATA_COUNT + 1];
    if (options == NULL || cod_model_build(twin->from->kind, options, &twin->to) != COD_OK)
        return COD_OK;
    const size_t count = cod_graph_param_count(twin->to.graph);
    twin->tensors = cod_arena_alloc(arena, count * sizeof *twin->tensors);
    twin->counterpart =
        cod_arena_alloc(arena, (cod_graph_node_count(twin->from->graph) + 1) * sizeof *twin->counterpart);
    COD_REQUIRE_MEMORY(twin->tensors);
    COD_REQUIRE_MEMORY(twin->counterpart);
    if (!graphs_match(twin, arena))
        return COD_OK;
    COD_TRY(cod_model_metadata(twin->from->kind, options, arena, metadata));
    char *int8 = NULL;
    if (twin->int8 != NULL)
        COD_TRY(ranges_translate(twin, arena, &int8));
    metadata[COD_MODEL_METADATA_COUNT] = (cod_st_text){COD_INT8_METADATA, int8};
    const cod_status status =
        cod_tensors_write(path, twin->tensors, count, metadata, COD_MODEL_METADATA_COUNT + (int8 != NULL), twin->bf16);
    free(int8);
    *loadable = status == COD_OK;
    return status;
}

/** Appends a tensor, once where layers share it. */
static void tensor_add(named_tensor *tensors, size_t *count, cod_param param, const float *values)
{
    for (size_t i = 0; i < *count; i++)
        if (tensors[i].values == values)
            return;
    tensors[(*count)++] = (named_tensor){param, values};
}

/** Writes the folded tensors under the model's own names, without an architecture. */
static cod_status bare_write(const char *path, const model_twin *twin, cod_arena *arena)
{
    const cod_graph *graph = twin->from->graph;
    const size_t nodes = cod_graph_node_count(graph);
    static const cod_st_text metadata = {"format", "pt"};
    named_tensor *tensors = cod_arena_alloc(arena, nodes * COD_NODE_MAX_PARAMS * sizeof *tensors);
    COD_REQUIRE_MEMORY(tensors);
    size_t count = 0;
    for (size_t i = 0; i < nodes; i++) {
        const cod_node *node = cod_graph_node(graph, i);
        if (!twin->part.nodes[i] || folded_norm(twin->folded, node) != NULL)
            continue;
        const cod_folded_layer *layer = cod_folded_find(twin->folded, node->output);
        for (int k = 0; k < COD_NODE_MAX_PARAMS; k++) {
            if (node->params[k] < 0)
                continue;
            const cod_param *param = cod_graph_param(graph, (size_t)node->params[k]);
            const float *values = layer && k < 2 ? (k ? layer->bias : layer->weight) : twin->values + param->offset;
            tensor_add(tensors, &count, *param, values);
        }
        if (layer != NULL && layer->bias != NULL && node->params[1] < 0) {
            const size_t bytes = strlen(node->name) + sizeof ".bias";
            char *name = cod_arena_alloc(arena, bytes);
            COD_REQUIRE_MEMORY(name);
            strcat(strcpy(name, node->name), ".bias");
            const cod_param bias = {.name = name, .shape = {1, 1, 1, node->channels}, .rank = 1};
            tensor_add(tensors, &count, bias, layer->bias);
        }
    }
    return cod_tensors_write(path, tensors, count, &metadata, 1, twin->bf16);
}

/** @param[out] loadable  true before; whether the file can be loaded as a model of its kind */
static cod_status save_folded(const char *path, model_twin *twin, cod_arena *arena, bool *loadable)
{
    const cod_st_text extra = {COD_INT8_METADATA, twin->int8};
    size_t norms = 0;
    for (size_t i = 0; i < twin->folded->count; i++)
        norms += twin->folded->layers[i].norm != NULL;
    COD_TRY(cod_graph_part_find(twin->from, arena, &twin->part));
    if (norms == 0)
        return cod_model_save_as(path, twin->from, twin->values, &extra, twin->int8 != NULL, twin->bf16);
    *loadable = false;
    COD_TRY(twin_write(path, twin, arena, loadable));
    return *loadable ? COD_OK : bare_write(path, twin, arena);
}

cod_status cod_model_save_folded(const char *path, const cod_model *model, const float *values, const char *int8,
                                 bool bf16, bool *loadable)
{
    cod_arena arena = {0};
    cod_folded folded;
    COD_TRY(cod_model_fold(model, values, &folded));
    model_twin twin = {.from = model, .folded = &folded, .values = values, .int8 = int8, .bf16 = bf16};
    bool done = true;
    const cod_status status = save_folded(path, &twin, &arena, &done);
    if (loadable != NULL)
        *loadable = done;
    cod_model_clear(&twin.to);
    cod_folded_clear(&folded);
    cod_arena_clear(&arena);
    return status;
}

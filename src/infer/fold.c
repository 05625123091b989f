#include "infer/fold.h"

#include "infer_internal.h"

#include <math.h>

void cod_folded_clear(cod_folded *folded)
{
    if (folded == NULL)
        return;
    cod_arena_clear(&folded->arena);
    *folded = (cod_folded){0};
}

const cod_folded_layer *cod_folded_find(const cod_folded *folded, cod_value value)
{
    for (size_t i = 0; i < folded->count; i++)
        if (folded->layers[i].output == value || folded->layers[i].node->output == value)
            return &folded->layers[i];
    return NULL;
}

static const float *param_values(const cod_graph *graph, int param, const float *values)
{
    return param < 0 ? NULL : values + cod_graph_param(graph, (size_t)param)->offset;
}

/** Multiplies the layer's weight by the norm's factor and moves the rest into a bias. */
static cod_status fold_norm(const cod_graph *graph, const float *values, cod_arena *arena, cod_folded_layer *layer)
{
    const cod_shape shape = cod_graph_param(graph, (size_t)layer->node->params[0])->shape;
    const int64_t inner = shape.h * shape.w * shape.c;
    float *weight = cod_arena_alloc(arena, (size_t)cod_shape_count(shape) * sizeof *weight);
    float *bias = cod_arena_alloc(arena, (size_t)shape.n * sizeof *bias);
    COD_REQUIRE_MEMORY(weight);
    COD_REQUIRE_MEMORY(bias);
    const float *norm[4];
    for (int i = 0; i < 4; i++)
        norm[i] = param_values(graph, layer->norm->params[i], values);
    for (int64_t o = 0; o < shape.n; o++) {
        const double factor = norm[0][o] / sqrt((double)norm[3][o] + (double)layer->norm->attr.epsilon);
        for (int64_t i = 0; i < inner; i++)
            weight[o * inner + i] = (float)(layer->weight[o * inner + i] * factor);
        const double before = layer->bias ? layer->bias[o] : 0;
        bias[o] = (float)(norm[1][o] + (before - norm[2][o]) * factor);
    }
    layer->weight = weight;
    layer->bias = bias;
    return COD_OK;
}

static cod_folded_layer *layer_of(cod_folded *folded, cod_value output)
{
    for (size_t i = 0; i < folded->count; i++)
        if (folded->layers[i].output == output)
            return &folded->layers[i];
    return NULL;
}

static cod_status fold(const cod_model *model, const float *values, cod_folded *folded)
{
    const cod_graph *graph = model->graph;
    const size_t count = cod_graph_node_count(graph);
    graph_part part;
    COD_TRY(cod_graph_part_find(model, &folded->arena, &part));
    folded->layers = cod_arena_alloc(&folded->arena, count * sizeof *folded->layers);
    COD_REQUIRE_MEMORY(folded->layers);
    for (size_t i = 0; i < count; i++) {
        const cod_node *node = cod_graph_node(graph, i);
        if (!part.nodes[i])
            continue;
        if (node->kind == COD_NODE_CONV2D || node->kind == COD_NODE_LINEAR) {
            folded->layers[folded->count++] = (cod_folded_layer){
                .node = node,
                .output = node->output,
                .weight = param_values(graph, node->params[0], values),
                .bias = param_values(graph, node->params[1], values),
            };
        } else if (node->kind == COD_NODE_NORM) {
            cod_folded_layer *layer = layer_of(folded, node->inputs[0]);
            if (layer == NULL || layer->norm != NULL || part.readers[cod_node_index(graph, layer->node)] != 1)
                continue;
            layer->norm = node;
            layer->output = node->output;
            COD_TRY(fold_norm(graph, values, &folded->arena, layer));
        }
    }
    return COD_OK;
}

cod_status cod_model_fold(const cod_model *model, const float *values, cod_folded *folded)
{
    *folded = (cod_folded){0};
    const cod_status status = fold(model, values, folded);
    if (status != COD_OK)
        cod_folded_clear(folded);
    return status;
}

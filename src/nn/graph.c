#include "nn/graph_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAM_ALIGNMENT = 16 }; /* elements: 64 bytes of f32 */

typedef struct value_info {
    int64_t channels;
    int producer; /* node index */
} value_info;

struct cod_graph {
    cod_arena arena;
    cod_status status;
    char message[512];
    cod_node *nodes;
    size_t node_count, node_capacity;
    cod_param *params;
    size_t param_count, param_capacity;
    value_info *values; /* [0] is none */
    size_t value_count, value_capacity;
    const char **sets;
    size_t set_count, set_capacity;
    const char **scalars;
    size_t scalar_count, scalar_capacity;
    int current_set;
};

void cod_graph_fail(cod_graph *graph, cod_status status)
{
    if (graph->status == COD_OK) {
        graph->status = status;
        snprintf(graph->message, sizeof graph->message, "%s", cod_error_message());
    }
}

/** Makes room for one more element; false (and a failed graph) when memory is short. */
static bool grow(cod_graph *graph, void *items_address, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    void *items;
    memcpy(&items, items_address, sizeof items);
    const size_t wanted = *capacity ? 2 * *capacity : 32;
    void *grown = realloc(items, wanted * item_bytes);
    if (grown == NULL) {
        cod_graph_fail(graph, cod_fail(COD_ERR_MEMORY, "out of memory for the graph"));
        return false;
    }
    memcpy(items_address, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

cod_status cod_graph_create(cod_graph **out)
{
    cod_graph *graph = calloc(1, sizeof *graph);
    COD_REQUIRE_MEMORY(graph);
    if (!grow(graph, &graph->values, 0, &graph->value_capacity, sizeof *graph->values)) {
        cod_graph_destroy(graph);
        return COD_ERR_MEMORY;
    }
    graph->values[0] = (value_info){0, -1};
    graph->value_count = 1;
    cod_graph_use_set(graph, "model");
    const cod_status status = graph->status;
    if (status == COD_OK)
        *out = graph;
    else
        cod_graph_destroy(graph);
    return status;
}

void cod_graph_destroy(cod_graph *graph)
{
    if (graph == NULL)
        return;
    free(graph->nodes);
    free(graph->params);
    free(graph->values);
    free(graph->sets);
    free(graph->scalars);
    cod_arena_clear(&graph->arena);
    free(graph);
}

cod_status cod_graph_status(const cod_graph *graph)
{
    return graph->status == COD_OK ? COD_OK : cod_fail(graph->status, "%s", graph->message);
}

/** Index of `name` among `names`, which it joins if new; -1 if memory is short, which fails the graph. */
static int intern(cod_graph *graph, const char ***names, size_t *count, size_t *capacity, const char *name)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp((*names)[i], name) == 0)
            return (int)i;
    if (!grow(graph, names, *count, capacity, sizeof **names))
        return -1;
    (*names)[*count] = cod_arena_strdup(&graph->arena, name);
    if ((*names)[*count] == NULL) {
        cod_graph_fail(graph, COD_ERR_MEMORY);
        return -1;
    }
    return (int)(*count)++;
}

void cod_graph_use_set(cod_graph *graph, const char *name)
{
    const int set = intern(graph, &graph->sets, &graph->set_count, &graph->set_capacity, name);
    if (set >= COD_GRAPH_MAX_SETS)
        GRAPH_FAIL(graph, "parameter set '%s': a graph has at most %d sets", name, COD_GRAPH_MAX_SETS);
    else if (set >= 0)
        graph->current_set = set;
}

size_t cod_graph_set_count(const cod_graph *graph)
{
    return graph->set_count;
}

const char *cod_graph_set_name(const cod_graph *graph, int set)
{
    return graph->sets[set];
}

int cod_graph_set_index(const cod_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->set_count; i++)
        if (strcmp(graph->sets[i], name) == 0)
            return (int)i;
    return -1;
}

cod_value graph_add_node(cod_graph *graph, cod_node node, const char *name)
{
    if (graph->status != COD_OK)
        return 0;
    char numbered[64];
    if (name == NULL) {
        snprintf(numbered, sizeof numbered, "node%zu", graph->node_count);
        name = numbered;
    }
    for (int i = 0; i < node.input_count; i++) {
        if (node.inputs[i] < 1 || (size_t)node.inputs[i] >= graph->value_count) {
            GRAPH_FAIL(graph, "'%s': input %d is not a value of this graph", name, i);
            return 0;
        }
    }
    if (node.channels < 1) {
        GRAPH_FAIL(graph, "'%s': %lld channels; at least 1 is needed", name, (long long)node.channels);
        return 0;
    }
    if (!grow(graph, &graph->nodes, graph->node_count, &graph->node_capacity, sizeof *graph->nodes) ||
        !grow(graph, &graph->values, graph->value_count, &graph->value_capacity, sizeof *graph->values))
        return 0;
    node.name = cod_arena_strdup(&graph->arena, name);
    if (node.name == NULL) {
        cod_graph_fail(graph, COD_ERR_MEMORY);
        return 0;
    }
    node.output = (cod_value)graph->value_count;
    graph->values[graph->value_count++] = (value_info){node.channels, (int)graph->node_count};
    graph->nodes[graph->node_count++] = node;
    return node.output;
}

bool graph_has_failed(const cod_graph *graph)
{
    return graph->status != COD_OK;
}

cod_node graph_new_node(cod_node_kind kind, int64_t channels)
{
    return (cod_node){.kind = kind, .channels = channels, .params = {-1, -1, -1, -1, -1}, .weight_scalar = -1};
}

int64_t graph_channels(const cod_graph *graph, cod_value x)
{
    return x > 0 && (size_t)x < graph->value_count ? graph->values[x].channels : 1;
}

cod_node graph_new_unary(const cod_graph *graph, cod_node_kind kind, cod_value x)
{
    cod_node node = graph_new_node(kind, graph_channels(graph, x));
    node.input_count = 1;
    node.inputs[0] = x;
    return node;
}

cod_node graph_new_gradient(const cod_graph *graph, cod_node_kind kind, const cod_node *of, cod_value dy)
{
    cod_node node = *of;
    node.kind = kind;
    node.like = of->inputs[0];
    node.inputs[0] = dy;
    node.params[1] = -1;
    node.channels = graph_channels(graph, node.like);
    return node;
}

int graph_use_param(cod_graph *graph, graph_param_spec spec)
{
    char name[256];
    if (graph->status != COD_OK)
        return -1;
    snprintf(name, sizeof name, "%s.%s", spec.layer, spec.suffix);
    for (size_t i = 0; i < graph->param_count; i++) {
        if (graph->params[i].set != graph->current_set || strcmp(graph->params[i].name, name) != 0)
            continue;
        if (cod_shape_equal(graph->params[i].shape, spec.shape))
            return (int)i;
        GRAPH_FAIL(graph, "parameter '%s' is used with two shapes", name);
        return -1;
    }
    if (!grow(graph, &graph->params, graph->param_count, &graph->param_capacity, sizeof *graph->params))
        return -1;
    const char *kept = cod_arena_strdup(&graph->arena, name);
    if (kept == NULL) {
        cod_graph_fail(graph, COD_ERR_MEMORY);
        return -1;
    }
    graph->params[graph->param_count] = (cod_param){
        .name = kept,
        .shape = spec.shape,
        .rank = spec.rank,
        .is_state = spec.is_state,
        .set = graph->current_set,
        .init = spec.init,
    };
    return (int)graph->param_count++;
}

int graph_use_vector(cod_graph *graph, const char *layer, const char *suffix, int64_t channels, double value,
                     bool is_state)
{
    return graph_use_param(
        graph, (graph_param_spec){layer, suffix, {1, 1, 1, channels}, 1, is_state, {COD_INIT_CONSTANT, value}});
}

const double *graph_keep(cod_graph *graph, const double *values, size_t count)
{
    double *kept = cod_arena_alloc(&graph->arena, count * sizeof *kept);
    if (kept == NULL)
        cod_graph_fail(graph, COD_ERR_MEMORY);
    else
        memcpy(kept, values, count * sizeof *kept);
    return kept;
}

void graph_start_param(cod_graph *graph, int param, const double *values)
{
    if (param >= 0 && values != NULL)
        graph->params[param].start = graph_keep(graph, values, (size_t)cod_shape_count(graph->params[param].shape));
}

void graph_note_flattened(cod_graph *graph, int param, cod_shape picture)
{
    if (param >= 0)
        graph->params[param].flattened = picture;
}

int graph_use_scalar(cod_graph *graph, const char *name)
{
    return intern(graph, &graph->scalars, &graph->scalar_count, &graph->scalar_capacity, name);
}

size_t cod_graph_node_count(const cod_graph *graph)
{
    return graph->node_count;
}

const cod_node *cod_graph_node(const cod_graph *graph, size_t index)
{
    return index < graph->node_count ? &graph->nodes[index] : NULL;
}

const cod_node *cod_graph_producer(const cod_graph *graph, cod_value value)
{
    return value > 0 && (size_t)value < graph->value_count ? &graph->nodes[graph->values[value].producer] : NULL;
}

size_t cod_graph_param_count(const cod_graph *graph)
{
    return graph->param_count;
}

const cod_param *cod_graph_param(const cod_graph *graph, size_t index)
{
    return index < graph->param_count ? &graph->params[index] : NULL;
}

size_t cod_graph_scalar_count(const cod_graph *graph)
{
    return graph->scalar_count;
}

const char *cod_graph_scalar_name(const cod_graph *graph, size_t index)
{
    return index < graph->scalar_count ? graph->scalars[index] : NULL;
}

static size_t padded(size_t count)
{
    return (count + PARAM_ALIGNMENT - 1) / PARAM_ALIGNMENT * PARAM_ALIGNMENT;
}

cod_layout cod_graph_layout(cod_graph *graph)
{
    size_t at = 0, trainable = 0;
    for (int pass = 0; pass < 2; pass++) {
        const bool states = pass == 1;
        for (size_t set = 0; set < graph->set_count; set++) {
            for (size_t i = 0; i < graph->param_count; i++) {
                cod_param *param = &graph->params[i];
                if (param->set != (int)set || param->is_state != states)
                    continue;
                param->offset = at;
                at += padded((size_t)cod_shape_count(param->shape));
            }
        }
        if (!states)
            trainable = at;
    }
    return (cod_layout){.trainable = trainable, .state = at - trainable};
}

cod_set_range cod_graph_set_range(const cod_graph *graph, int set)
{
    size_t begin[2] = {0, 0}, end[2] = {0, 0}, last[2] = {0, 0}; /* trainable, states; last: of all sets */
    for (size_t i = 0; i < graph->param_count; i++) {
        const cod_param *param = &graph->params[i];
        const size_t behind = param->offset + padded((size_t)cod_shape_count(param->shape));
        const bool state = param->is_state;
        last[state] = behind > last[state] ? behind : last[state];
        if (param->set != set)
            continue;
        begin[state] = end[state] == 0 || param->offset < begin[state] ? param->offset : begin[state];
        end[state] = behind > end[state] ? behind : end[state];
    }
    const bool has_states = end[1] > 0;
    return (cod_set_range){.first = begin[0],
                           .count = end[0] - begin[0],
                           .state_first = has_states ? begin[1] : last[0],
                           .state_count = end[1] - begin[1]};
}

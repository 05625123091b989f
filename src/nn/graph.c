#include "nn/graph_internal.h"

#include <math.h>
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

#define GRAPH_FAIL(graph, ...) cod_graph_fail((graph), cod_fail(COD_ERR_ARGUMENT, __VA_ARGS__))

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
    *out = graph;
    return COD_OK;
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

/** Index of `name` among `names`, which it joins if new; -1 on failure. */
static int intern(cod_graph *graph, const char ***names, size_t *count, size_t *capacity, const char *name)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp((*names)[i], name) == 0)
            return (int)i;
    if (!grow(graph, names, *count, capacity, sizeof **names))
        return -1;
    (*names)[*count] = cod_arena_strdup(&graph->arena, name);
    return (*names)[*count] ? (int)(*count)++ : -1;
}

void cod_graph_use_set(cod_graph *graph, const char *name)
{
    const int set = intern(graph, &graph->sets, &graph->set_count, &graph->set_capacity, name);
    if (set >= COD_GRAPH_MAX_SETS)
        GRAPH_FAIL(graph, "parameter set '%s': a graph has at most %d sets", name, COD_GRAPH_MAX_SETS);
    else
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

static cod_node node_of(cod_node_kind kind, int64_t channels)
{
    return (cod_node){.kind = kind, .channels = channels, .params = {-1, -1, -1, -1, -1}, .weight_scalar = -1};
}

/** A node with one input that keeps the number of channels unless changed after. */
static cod_node unary(const cod_graph *graph, cod_node_kind kind, cod_value x)
{
    const bool known = x > 0 && (size_t)x < graph->value_count;
    cod_node node = node_of(kind, known ? graph->values[x].channels : 1);
    node.input_count = 1;
    node.inputs[0] = x;
    return node;
}

static int64_t channels_of(const cod_graph *graph, cod_value x)
{
    return x > 0 && (size_t)x < graph->value_count ? graph->values[x].channels : 1;
}

typedef struct param_spec {
    const char *layer, *suffix;
    cod_shape shape;
    int rank;
    bool is_state;
    cod_init init;
} param_spec;

/** The current set's parameter LAYER.SUFFIX, made or, if it exists with the same shape, shared; -1 on failure. */
static int param_use(cod_graph *graph, param_spec spec)
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
    graph->params[graph->param_count] = (cod_param){
        .name = cod_arena_strdup(&graph->arena, name),
        .shape = spec.shape,
        .rank = spec.rank,
        .is_state = spec.is_state,
        .set = graph->current_set,
        .init = spec.init,
    };
    return (int)graph->param_count++;
}

static int vector_use(cod_graph *graph, const char *layer, const char *suffix, int64_t channels, double value,
                      bool is_state)
{
    return param_use(graph, (param_spec){layer, suffix, {1, 1, 1, channels}, 1, is_state, {COD_INIT_CONSTANT, value}});
}

/** Copies numbers for the graph's life; NULL when memory is short. */
static const double *keep(cod_graph *graph, const double *values, size_t count)
{
    double *kept = cod_arena_alloc(&graph->arena, count * sizeof *kept);
    if (kept == NULL)
        cod_graph_fail(graph, COD_ERR_MEMORY);
    else
        memcpy(kept, values, count * sizeof *kept);
    return kept;
}

/** Copies what a parameter starts at; NULL = it stays as its `init` says. */
static void param_start(cod_graph *graph, int param, const double *values)
{
    if (param >= 0 && values != NULL)
        graph->params[param].start = keep(graph, values, (size_t)cod_shape_count(graph->params[param].shape));
}

/** Programs find inputs by their names. */
static cod_value input_add(cod_graph *graph, cod_node node, const char *name)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].kind == COD_NODE_INPUT && strcmp(graph->nodes[i].name, name) == 0) {
            GRAPH_FAIL(graph, "two inputs are called '%s'", name);
            return 0;
        }
    }
    return graph_add_node(graph, node, name);
}

cod_value cod_graph_input(cod_graph *graph, const char *name, int64_t channels)
{
    return input_add(graph, node_of(COD_NODE_INPUT, channels), name);
}

cod_value cod_graph_input_like_of(cod_graph *graph, const char *name, cod_value like, int64_t channels)
{
    cod_node node = node_of(COD_NODE_INPUT, channels);
    node.like = like;
    return like ? input_add(graph, node, name) : 0;
}

cod_value cod_graph_input_like(cod_graph *graph, const char *name, cod_value like)
{
    return cod_graph_input_like_of(graph, name, like, channels_of(graph, like));
}

/** The singular vectors of a weight's largest singular value, as far as they are known; they start anywhere. */
static void use_spectrum(cod_graph *graph, const char *layer, cod_shape weight, cod_node *node)
{
    const cod_init anywhere = {COD_INIT_NORMAL, 1};
    node->params[2] = param_use(graph, (param_spec){layer, "weight_u", {1, 1, 1, weight.n}, 1, true, anywhere});
    node->params[3] =
        param_use(graph, (param_spec){layer, "weight_v", {1, weight.h, weight.w, weight.c}, 1, true, anywhere});
}

cod_value cod_graph_conv2d(cod_graph *graph, const char *name, cod_value x, cod_conv2d_spec spec)
{
    const int64_t in = channels_of(graph, x), fan_in = in * spec.kernel * spec.kernel;
    if (spec.kernel < 1 || spec.padding < 0 || spec.out_channels < 1) {
        GRAPH_FAIL(graph, "convolution '%s': kernel %d, padding %d, %lld channels", name, spec.kernel, spec.padding,
                   (long long)spec.out_channels);
        return 0;
    }
    /* PyTorch's default, kaiming_uniform_(a=√5), is uniform within ±1/√fan_in for weight and bias. */
    cod_init weight = {COD_INIT_UNIFORM, 1 / sqrt((double)fan_in)}, bias = weight;
    if (spec.zero_init)
        weight = bias = (cod_init){COD_INIT_CONSTANT, 0};
    else if (spec.init_gain > 0)
        weight = (cod_init){COD_INIT_NORMAL, spec.init_gain * sqrt(2.0 / (double)fan_in)},
        bias = (cod_init){COD_INIT_CONSTANT, 0};
    cod_node node = unary(graph, COD_NODE_CONV2D, x);
    node.channels = spec.out_channels;
    const int stride = spec.stride ? spec.stride : 1;
    node.attr = (cod_op_attr){.stride_h = stride, .stride_w = stride, .pad_h = spec.padding, .pad_w = spec.padding};
    const cod_shape shape = {spec.out_channels, spec.kernel, spec.kernel, in};
    node.params[0] =
        param_use(graph, (param_spec){name, spec.spectral_norm ? "weight_orig" : "weight", shape, 4, false, weight});
    if (!spec.no_bias)
        node.params[1] = param_use(graph, (param_spec){name, "bias", {1, 1, 1, spec.out_channels}, 1, false, bias});
    if (spec.spectral_norm)
        use_spectrum(graph, name, shape, &node);
    param_start(graph, node.params[0], spec.weights);
    param_start(graph, node.params[1], spec.biases);
    return graph_add_node(graph, node, name);
}

cod_value cod_graph_linear(cod_graph *graph, const char *name, cod_value x, int64_t out_features, bool no_bias)
{
    const int64_t in = channels_of(graph, x);
    const cod_init init = {COD_INIT_UNIFORM, 1 / sqrt((double)in)};
    cod_node node = unary(graph, COD_NODE_LINEAR, x);
    node.channels = out_features;
    node.params[0] = param_use(graph, (param_spec){name, "weight", {out_features, 1, 1, in}, 2, false, init});
    if (!no_bias)
        node.params[1] = param_use(graph, (param_spec){name, "bias", {1, 1, 1, out_features}, 1, false, init});
    const cod_node *before = graph->status == COD_OK && x ? cod_graph_producer(graph, x) : NULL;
    if (before != NULL && before->kind == COD_NODE_FLATTEN && node.params[0] >= 0)
        graph->params[node.params[0]].flattened =
            (cod_shape){1, before->attr.kernel_h, before->attr.kernel_w, channels_of(graph, before->inputs[0])};
    return graph_add_node(graph, node, name);
}

cod_value cod_graph_norm(cod_graph *graph, const char *name, cod_value x)
{
    cod_node node = unary(graph, COD_NODE_NORM, x);
    node.attr = (cod_op_attr){.epsilon = 1e-5f, .momentum = 0.1f};
    node.params[0] = vector_use(graph, name, "weight", node.channels, 1, false);
    node.params[1] = vector_use(graph, name, "bias", node.channels, 0, false);
    node.params[2] = vector_use(graph, name, "running_mean", node.channels, 0, true);
    node.params[3] = vector_use(graph, name, "running_var", node.channels, 1, true);
    return graph_add_node(graph, node, name);
}

cod_value cod_graph_activation(cod_graph *graph, cod_value x, cod_activation activation, float leak)
{
    if (activation == COD_ACT_PRELU || activation == COD_ACT_NONE) {
        GRAPH_FAIL(graph, "cod_graph_activation() makes ReLU, leaky ReLU, sigmoid and tanh");
        return 0;
    }
    cod_node node = unary(graph, COD_NODE_ACTIVATION, x);
    node.attr = (cod_op_attr){.activation = activation, .leak = leak};
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_prelu(cod_graph *graph, const char *name, cod_value x, bool per_channel)
{
    cod_node node = unary(graph, COD_NODE_ACTIVATION, x);
    node.attr.activation = COD_ACT_PRELU;
    node.params[0] = vector_use(graph, name, "weight", per_channel ? node.channels : 1, 0.25, false);
    return graph_add_node(graph, node, name);
}

cod_value cod_graph_add(cod_graph *graph, cod_value a, cod_value b)
{
    return cod_graph_scaled_add(graph, 1, a, 1, b);
}

cod_value cod_graph_scaled_add(cod_graph *graph, float alpha, cod_value a, float beta, cod_value b)
{
    if (graph->status == COD_OK && channels_of(graph, a) != channels_of(graph, b)) {
        GRAPH_FAIL(graph, "cannot add %lld and %lld channels", (long long)channels_of(graph, a),
                   (long long)channels_of(graph, b));
        return 0;
    }
    cod_node node = unary(graph, COD_NODE_ADD, a);
    node.input_count = 2;
    node.inputs[1] = b;
    node.attr = (cod_op_attr){.alpha = alpha, .beta = beta};
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_affine(cod_graph *graph, cod_value x, double scale, const double *shift)
{
    cod_node node = unary(graph, COD_NODE_AFFINE, x);
    node.attr.alpha = (float)scale;
    node.shift = keep(graph, shift, (size_t)node.channels);
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_concat(cod_graph *graph, const cod_value *parts, int count)
{
    if (count < 1 || count > COD_NODE_MAX_INPUTS) {
        GRAPH_FAIL(graph, "a concatenation takes 1 to %d parts, not %d", COD_NODE_MAX_INPUTS, count);
        return 0;
    }
    cod_node node = node_of(COD_NODE_CONCAT, 0);
    for (int i = 0; i < count; i++) {
        node.inputs[node.input_count++] = parts[i];
        node.channels += channels_of(graph, parts[i]);
    }
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_pixel_shuffle(cod_graph *graph, cod_value x, int factor)
{
    const int64_t channels = channels_of(graph, x);
    if (graph->status == COD_OK && (factor < 1 || channels % ((int64_t)factor * factor) != 0)) {
        GRAPH_FAIL(graph, "pixel shuffle by %d needs a multiple of %d channels, not %lld", factor, factor * factor,
                   (long long)channels);
        return 0;
    }
    cod_node node = unary(graph, COD_NODE_PIXEL_SHUFFLE, x);
    node.channels = channels / ((int64_t)factor * factor);
    node.attr.factor = factor;
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_pixel_unshuffle(cod_graph *graph, cod_value x, int factor)
{
    if (factor < 1) {
        GRAPH_FAIL(graph, "pixel unshuffle by %d", factor);
        return 0;
    }
    cod_node node = unary(graph, COD_NODE_PIXEL_UNSHUFFLE, x);
    node.channels *= (int64_t)factor * factor;
    node.attr.factor = factor;
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_resize(cod_graph *graph, cod_value x, int factor, cod_resize_mode mode)
{
    cod_node node = unary(graph, COD_NODE_RESIZE, x);
    node.attr = (cod_op_attr){.factor = factor, .resize = mode};
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_pool(cod_graph *graph, cod_value x, cod_pool_kind kind, int kernel, int stride, int padding)
{
    cod_node node = unary(graph, COD_NODE_POOL, x);
    node.attr = (cod_op_attr){.pool = kind,
                              .kernel_h = kernel,
                              .kernel_w = kernel,
                              .stride_h = stride,
                              .stride_w = stride,
                              .pad_h = padding,
                              .pad_w = padding};
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_max_pool_ceil(cod_graph *graph, cod_value x, int kernel, int stride)
{
    cod_node node = unary(graph, COD_NODE_POOL, x);
    node.attr = (cod_op_attr){.pool = COD_POOL_MAX,
                              .pool_ceil = true,
                              .kernel_h = kernel,
                              .kernel_w = kernel,
                              .stride_h = stride,
                              .stride_w = stride};
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_global_pool(cod_graph *graph, cod_value x)
{
    cod_node node = unary(graph, COD_NODE_POOL, x);
    node.attr.pool = COD_POOL_GLOBAL_AVERAGE;
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_flatten(cod_graph *graph, cod_value x, int64_t h, int64_t w)
{
    cod_node node = unary(graph, COD_NODE_FLATTEN, x);
    node.channels *= h * w;
    node.attr = (cod_op_attr){.kernel_h = (int)h, .kernel_w = (int)w};
    return graph_add_node(graph, node, NULL);
}

cod_value cod_graph_stop_gradient(cod_graph *graph, cod_value x)
{
    return graph_add_node(graph, unary(graph, COD_NODE_STOP_GRADIENT, x), NULL);
}

cod_value cod_graph_mean(cod_graph *graph, cod_value x)
{
    return graph_add_node(graph, unary(graph, COD_NODE_MEAN, x), NULL);
}

/** Fails the graph where a loss's target does not suit its kind. */
static void check_target(cod_graph *graph, const char *name, cod_value prediction, cod_value target, cod_loss_spec spec)
{
    if (graph->status != COD_OK)
        return;
    if (spec.kind == COD_LOSS_TV && (target != 0 || spec.target_gradient))
        GRAPH_FAIL(graph, "loss '%s': total variation has no target", name);
    else if (spec.kind != COD_LOSS_TV && target == 0)
        GRAPH_FAIL(graph, "loss '%s' needs a target", name);
    else if (spec.target_gradient && target == prediction)
        GRAPH_FAIL(graph, "loss '%s': prediction and target are one value; only two have a gradient each", name);
}

cod_value cod_graph_loss(cod_graph *graph, const char *name, cod_value prediction, cod_value target, cod_loss_spec spec)
{
    check_target(graph, name, prediction, target, spec);
    cod_node node = unary(graph, COD_NODE_LOSS, prediction);
    node.channels = 1;
    node.input_count = spec.kind == COD_LOSS_TV ? 1 : 2;
    node.inputs[1] = target;
    node.attr = (cod_op_attr){.loss = spec.kind,
                              .epsilon = spec.epsilon > 0 ? spec.epsilon : 1e-3f,
                              .temperature = spec.temperature > 0 ? spec.temperature : 1,
                              .smoothing = spec.smoothing,
                              .alpha = spec.weight != 0 ? spec.weight : 1};
    node.first_items = spec.first_items;
    node.target_gradient = spec.target_gradient;
    if (spec.scalar != NULL)
        node.weight_scalar = intern(graph, &graph->scalars, &graph->scalar_count, &graph->scalar_capacity, spec.scalar);
    return graph_add_node(graph, node, name);
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

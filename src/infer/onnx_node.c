/* ONNX forms of the graph's nodes, with the weights that they read. */
#include "onnx_internal.h"

#include <stdio.h>

/* Field numbers of onnx/onnx.proto3. */
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP_TYPE = 4, NODE_ATTRIBUTE = 5 };
enum { ATTR_NAME = 1, ATTR_FLOAT = 2, ATTR_INT = 3, ATTR_STRING = 4, ATTR_INTS = 8, ATTR_TYPE = 20 };
enum { ATTR_TYPE_FLOAT = 1, ATTR_TYPE_INT = 2, ATTR_TYPE_STRING = 3, ATTR_TYPE_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_DATA_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW_DATA = 9 };

enum { NAME_BYTES = 320 };

static void attr_open(cod_proto *proto, const char *name, int type)
{
    cod_proto_open(proto, NODE_ATTRIBUTE);
    cod_proto_string(proto, ATTR_NAME, name);
    cod_proto_int(proto, ATTR_TYPE, type);
}

static void attr_int(cod_proto *proto, const char *name, int64_t value)
{
    attr_open(proto, name, ATTR_TYPE_INT);
    cod_proto_int(proto, ATTR_INT, value);
    cod_proto_close(proto);
}

static void attr_float(cod_proto *proto, const char *name, float value)
{
    attr_open(proto, name, ATTR_TYPE_FLOAT);
    cod_proto_float(proto, ATTR_FLOAT, value);
    cod_proto_close(proto);
}

static void attr_string(cod_proto *proto, const char *name, const char *value)
{
    attr_open(proto, name, ATTR_TYPE_STRING);
    cod_proto_string(proto, ATTR_STRING, value);
    cod_proto_close(proto);
}

static void attr_ints(cod_proto *proto, const char *name, const int64_t *values, size_t count)
{
    attr_open(proto, name, ATTR_TYPE_INTS);
    cod_proto_ints(proto, ATTR_INTS, values, count);
    cod_proto_close(proto);
}

/**
 * Starts a node named "LAYER_VALUE", as a layer's name may be used twice; attributes follow, then cod_proto_close().
 */
static void node_open(exporter *e, const char *type, const char *layer, const char *output, const char *const *inputs,
                      size_t count)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s_%s", layer, output);
    cod_proto_open(e->proto, ONNX_GRAPH_NODE);
    for (size_t i = 0; i < count; i++)
        cod_proto_string(e->proto, NODE_INPUT, inputs[i]);
    cod_proto_string(e->proto, NODE_OUTPUT, output);
    cod_proto_string(e->proto, NODE_NAME, name);
    cod_proto_string(e->proto, NODE_OP_TYPE, type);
}

/** A node with one input and no attributes. */
static void simple_node(exporter *e, const char *type, const char *layer, const char *output, const char *input)
{
    node_open(e, type, layer, output, &input, 1);
    cod_proto_close(e->proto);
}

static void initializer(exporter *e, const char *name, const int64_t *dims, int rank, const float *values)
{
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= (size_t)dims[i];
    cod_proto_open(e->proto, ONNX_GRAPH_INITIALIZER);
    cod_proto_ints(e->proto, TENSOR_DIMS, dims, (size_t)rank);
    cod_proto_int(e->proto, TENSOR_DATA_TYPE, ONNX_TENSOR_FLOAT);
    cod_proto_string(e->proto, TENSOR_NAME, name);
    cod_proto_bytes(e->proto, TENSOR_RAW_DATA, values, count * sizeof *values);
    cod_proto_close(e->proto);
}

/** A unique name for something that belongs to `output`: "v7.alpha". */
static const char *derived_name(exporter *e, const char *output, const char *suffix)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%s", output, suffix);
    const char *kept = cod_arena_strdup(&e->arena, name);
    if (kept == NULL)
        e->proto->status = COD_ERR_MEMORY;
    return kept != NULL ? kept : "";
}

/**
 * Writes a layer's weight as OIHW (convolution) or [O, I] (linear). The columns of a linear layer stay in our order, as
 * flattening is exported in that order too.
 */
static cod_status weight_initializer(exporter *e, const char *name, const cod_param *param, const float *values)
{
    int64_t dims[4];
    cod_param plain = *param;
    plain.flattened = (cod_shape){0};
    float *torch = NULL;
    void *memory = NULL;
    COD_TRY(cod_aligned_alloc(&memory, (size_t)cod_shape_count(param->shape) * sizeof *torch));
    torch = memory;
    cod_param_to_torch(&plain, values, torch, dims);
    initializer(e, name, dims, param->rank, torch);
    cod_aligned_free(memory);
    return COD_OK;
}

/** Writes the initializers of a layer; names[0], names[1] receive theirs. */
static cod_status layer_initializers(exporter *e, const cod_folded_layer *layer, const char *names[2])
{
    const cod_node *node = layer->node;
    const cod_param *weight = cod_graph_param(e->model->graph, (size_t)node->params[0]);
    const char *output = e->names[layer->output];
    const bool own = layer->norm == NULL;
    names[0] = own ? weight->name : derived_name(e, output, "weight");
    if (!own || !e->emitted[node->params[0]])
        COD_TRY(weight_initializer(e, names[0], weight, layer->weight));
    e->emitted[node->params[0]] |= own;
    if (layer->bias == NULL)
        return COD_OK;
    names[1] = own ? cod_graph_param(e->model->graph, (size_t)node->params[1])->name : derived_name(e, output, "bias");
    if (!own || !e->emitted[node->params[1]])
        initializer(e, names[1], &weight->shape.n, 1, layer->bias);
    if (own)
        e->emitted[node->params[1]] = true;
    return COD_OK;
}

/** A vector parameter as [C], or for broadcasting over pixels [C, 1, 1]; returns its name. */
static const char *vector_initializer(exporter *e, int param, bool over_pixels)
{
    const cod_param *source = cod_graph_param(e->model->graph, (size_t)param);
    if (!e->emitted[param])
        initializer(e, source->name, (const int64_t[]){source->shape.c, 1, 1}, over_pixels ? 3 : 1,
                    e->values + source->offset);
    e->emitted[param] = true;
    return source->name;
}

/**
 * Writes `input` as [N, features] to `output`: in our order, pixels before channels, where it has more than one pixel.
 */
static void flatten(exporter *e, const cod_node *node, const char *input, const char *output, bool one_pixel)
{
    if (!one_pixel) {
        const char *nhwc = derived_name(e, e->names[node->output], "nhwc");
        node_open(e, "Transpose", node->name, nhwc, &input, 1);
        attr_ints(e->proto, "perm", (const int64_t[]){0, 2, 3, 1}, 4);
        cod_proto_close(e->proto);
        input = nhwc;
    }
    node_open(e, "Flatten", node->name, output, &input, 1);
    attr_int(e->proto, "axis", 1);
    cod_proto_close(e->proto);
}

static cod_status conv_or_linear(exporter *e, const cod_node *node)
{
    const cod_folded_layer *layer = cod_folded_find(&e->folded, node->output);
    const bool conv = node->kind == COD_NODE_CONV2D;
    const char *inputs[3] = {e->names[node->inputs[0]]};
    COD_TRY(layer_initializers(e, layer, inputs + 1));
    if (!conv && !e->flat[node->inputs[0]]) {
        const char *flat = derived_name(e, e->names[node->output], "flat");
        flatten(e, node, inputs[0], flat, true);
        inputs[0] = flat;
    }
    node_open(e, conv ? "Conv" : "Gemm", node->name, e->names[layer->output], inputs, layer->bias ? 3 : 2);
    if (conv) {
        const cod_shape shape = cod_graph_param(e->model->graph, (size_t)node->params[0])->shape;
        const int64_t h = node->attr.pad_h, w = node->attr.pad_w;
        attr_ints(e->proto, "kernel_shape", (const int64_t[]){shape.h, shape.w}, 2);
        attr_ints(e->proto, "strides", (const int64_t[]){node->attr.stride_h, node->attr.stride_w}, 2);
        attr_ints(e->proto, "pads", (const int64_t[]){h, w, h, w}, 4);
    } else {
        attr_int(e->proto, "transB", 1);
    }
    cod_proto_close(e->proto);
    e->flat[layer->output] = e->flat[node->output] = !conv;
    return COD_OK;
}

/** A normalisation that could not be folded. */
static void norm(exporter *e, const cod_node *node)
{
    const char *inputs[5] = {e->names[node->inputs[0]]};
    for (int i = 0; i < 4; i++)
        inputs[i + 1] = vector_initializer(e, node->params[i], false);
    node_open(e, "BatchNormalization", node->name, e->names[node->output], inputs, 5);
    attr_float(e->proto, "epsilon", node->attr.epsilon);
    cod_proto_close(e->proto);
}

static void activation(exporter *e, const cod_node *node)
{
    static const char *const types[] = {
        [COD_ACT_NONE] = "Identity", [COD_ACT_RELU] = "Relu",       [COD_ACT_LEAKY_RELU] = "LeakyRelu",
        [COD_ACT_PRELU] = "PRelu",   [COD_ACT_SIGMOID] = "Sigmoid", [COD_ACT_TANH] = "Tanh"};
    const cod_activation kind = node->attr.activation;
    const char *inputs[2] = {e->names[node->inputs[0]]};
    if (kind == COD_ACT_PRELU)
        inputs[1] = vector_initializer(e, node->params[0], !e->flat[node->inputs[0]]);
    node_open(e, types[kind], node->name, e->names[node->output], inputs, kind == COD_ACT_PRELU ? 2 : 1);
    if (kind == COD_ACT_LEAKY_RELU)
        attr_float(e->proto, "alpha", node->attr.leak);
    cod_proto_close(e->proto);
}

/** Name of `factor`·input; the input itself where the factor is 1. */
static const char *scaled(exporter *e, const cod_node *node, int index, float factor)
{
    const char *input = e->names[node->inputs[index]];
    if (factor == 1)
        return input;
    const char *output = e->names[node->output];
    const char *constant = derived_name(e, output, index ? "beta" : "alpha");
    const char *product = derived_name(e, output, index ? "scaled_b" : "scaled_a");
    initializer(e, constant, NULL, 0, &factor);
    node_open(e, "Mul", node->name, product, (const char *const[]){input, constant}, 2);
    cod_proto_close(e->proto);
    return product;
}

static void add(exporter *e, const cod_node *node)
{
    const char *inputs[2] = {scaled(e, node, 0, node->attr.alpha), scaled(e, node, 1, node->attr.beta)};
    node_open(e, "Add", node->name, e->names[node->output], inputs, 2);
    cod_proto_close(e->proto);
}

static cod_status affine(exporter *e, const cod_node *node)
{
    const char *shift = derived_name(e, e->names[node->output], "shift");
    const char *inputs[2] = {scaled(e, node, 0, node->attr.alpha), shift};
    float *values = cod_arena_alloc(&e->arena, (size_t)node->channels * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    for (int64_t c = 0; c < node->channels; c++)
        values[c] = (float)node->shift[c];
    initializer(e, shift, (const int64_t[]){node->channels, 1, 1}, e->flat[node->inputs[0]] ? 1 : 3, values);
    node_open(e, "Add", node->name, e->names[node->output], inputs, 2);
    cod_proto_close(e->proto);
    return COD_OK;
}

static void concat(exporter *e, const cod_node *node)
{
    const char *inputs[COD_NODE_MAX_INPUTS];
    for (int i = 0; i < node->input_count; i++)
        inputs[i] = e->names[node->inputs[i]];
    node_open(e, "Concat", node->name, e->names[node->output], inputs, (size_t)node->input_count);
    attr_int(e->proto, "axis", 1);
    cod_proto_close(e->proto);
}

static void pixel_shuffle(exporter *e, const cod_node *node)
{
    node_open(e, "DepthToSpace", node->name, e->names[node->output], &e->names[node->inputs[0]], 1);
    attr_int(e->proto, "blocksize", node->attr.factor);
    attr_string(e->proto, "mode", "CRD"); /* channels outermost, as PyTorch's PixelShuffle */
    cod_proto_close(e->proto);
}

/** A convolution that picks pixels: SpaceToDepth would order channels otherwise. */
static cod_status pixel_unshuffle(exporter *e, const cod_node *node)
{
    const int64_t r = node->attr.factor, outputs = node->channels, inputs = outputs / (r * r);
    const char *output = e->names[node->output], *weight = derived_name(e, output, "picks");
    float *picks = cod_arena_alloc(&e->arena, (size_t)(outputs * outputs) * sizeof *picks);
    COD_REQUIRE_MEMORY(picks);
    for (int64_t o = 0; o < outputs; o++) /* [o, c, y, x] with o = c·r² + y·r + x */
        picks[o * outputs + o] = 1;
    initializer(e, weight, (const int64_t[]){outputs, inputs, r, r}, 4, picks);
    node_open(e, "Conv", node->name, output, (const char *const[]){e->names[node->inputs[0]], weight}, 2);
    attr_ints(e->proto, "kernel_shape", (const int64_t[]){r, r}, 2);
    attr_ints(e->proto, "strides", (const int64_t[]){r, r}, 2);
    cod_proto_close(e->proto);
    return COD_OK;
}

static void resize(exporter *e, const cod_node *node)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    const float factor = (float)node->attr.factor;
    const char *output = e->names[node->output], *scales = derived_name(e, output, "scales");
    const bool nearest = node->attr.resize == COD_RESIZE_NEAREST;
    initializer(e, scales, (const int64_t[]){4}, 1, (const float[]){1, 1, factor, factor});
    node_open(e, "Resize", node->name, output, (const char *const[]){e->names[node->inputs[0]], "", scales}, 3);
    attr_string(e->proto, "mode", modes[node->attr.resize]);
    attr_string(e->proto, "coordinate_transformation_mode", nearest ? "asymmetric" : "half_pixel");
    if (nearest)
        attr_string(e->proto, "nearest_mode", "floor");
    if (node->attr.resize == COD_RESIZE_BICUBIC)
        attr_float(e->proto, "cubic_coeff_a", -0.75f);
    cod_proto_close(e->proto);
}

static void pool(exporter *e, const cod_node *node)
{
    static const char *const types[] = {[COD_POOL_MAX] = "MaxPool",
                                        [COD_POOL_AVERAGE] = "AveragePool",
                                        [COD_POOL_GLOBAL_AVERAGE] = "GlobalAveragePool"};
    const cod_op_attr *attr = &node->attr;
    node_open(e, types[attr->pool], node->name, e->names[node->output], &e->names[node->inputs[0]], 1);
    if (attr->pool != COD_POOL_GLOBAL_AVERAGE) {
        attr_ints(e->proto, "kernel_shape", (const int64_t[]){attr->kernel_h, attr->kernel_w}, 2);
        attr_ints(e->proto, "strides", (const int64_t[]){attr->stride_h, attr->stride_w}, 2);
        attr_ints(e->proto, "pads", (const int64_t[]){attr->pad_h, attr->pad_w, attr->pad_h, attr->pad_w}, 4);
    }
    if (attr->pool == COD_POOL_AVERAGE)
        attr_int(e->proto, "count_include_pad", 1);
    if (attr->pool_ceil)
        attr_int(e->proto, "ceil_mode", 1);
    cod_proto_close(e->proto);
}

cod_status onnx_node_write(exporter *e, const cod_node *node)
{
    const cod_folded_layer *layer;
    e->flat[node->output] = node->input_count > 0 && e->flat[node->inputs[0]];
    switch (node->kind) {
    case COD_NODE_INPUT:
        return node->output == e->model->input
                   ? COD_OK
                   : cod_fail(COD_ERR_UNSUPPORTED, "ONNX export: a second input '%s'", node->name);
    case COD_NODE_CONV2D:
    case COD_NODE_LINEAR:
        return conv_or_linear(e, node);
    case COD_NODE_NORM:
        layer = cod_folded_find(&e->folded, node->output);
        if (layer == NULL)
            norm(e, node);
        return COD_OK;
    case COD_NODE_ACTIVATION:
        activation(e, node);
        return COD_OK;
    case COD_NODE_ADD:
        add(e, node);
        return COD_OK;
    case COD_NODE_AFFINE:
        return affine(e, node);
    case COD_NODE_CONCAT:
        concat(e, node);
        return COD_OK;
    case COD_NODE_PIXEL_SHUFFLE:
        pixel_shuffle(e, node);
        return COD_OK;
    case COD_NODE_PIXEL_UNSHUFFLE:
        return pixel_unshuffle(e, node);
    case COD_NODE_RESIZE:
        resize(e, node);
        return COD_OK;
    case COD_NODE_POOL:
        pool(e, node);
        return COD_OK;
    case COD_NODE_FLATTEN:
        flatten(e, node, e->names[node->inputs[0]], e->names[node->output], e->flat[node->inputs[0]]);
        e->flat[node->output] = true;
        return COD_OK;
    case COD_NODE_STOP_GRADIENT:
        simple_node(e, "Identity", node->name, e->names[node->output], e->names[node->inputs[0]]);
        return COD_OK;
    case COD_NODE_SLICE:
        return cod_fail(COD_ERR_UNSUPPORTED, "ONNX export: '%s' takes channels of an input", node->name);
    case COD_NODE_MEAN:
        return cod_fail(COD_ERR_UNSUPPORTED, "ONNX export: '%s' is a mean over the batch", node->name);
    case COD_NODE_CONV2D_BACKWARD:
    case COD_NODE_ACTIVATION_BACKWARD:
    case COD_NODE_RESIZE_BACKWARD:
        return cod_fail(COD_ERR_UNSUPPORTED, "ONNX export: '%s' is a gradient", node->name);
    case COD_NODE_LOSS:
        break;
    }
    return cod_fail(COD_ERR_UNSUPPORTED, "ONNX export: the model's output needs a loss, '%s'", node->name);
}

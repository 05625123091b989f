#include "nn/ir_internal.h"

#include <string.h>

static cod_status window_size(const cod_node *node, int64_t in, int64_t kernel, int pad, int stride, int64_t *out)
{
    if (stride < 1 || kernel < 1 || in + 2 * pad < kernel)
        return cod_fail(COD_ERR_ARGUMENT,
                        "'%s': a window of %lld (stride %d, padding %d) does not fit an input of %lld", node->name,
                        (long long)kernel, stride, pad, (long long)in);
    *out = (in + 2 * pad - kernel) / stride + 1;
    return COD_OK;
}

static cod_status same_sizes(const cod_node *node, const cod_shape *a, const cod_shape *b)
{
    if (a->n == b->n && a->h == b->h && a->w == b->w)
        return COD_OK;
    return cod_fail(COD_ERR_ARGUMENT,
                    "'%s': inputs of %lldx%lldx%lld and %lldx%lldx%lld (batch, height, width) do not fit", node->name,
                    (long long)a->n, (long long)a->h, (long long)a->w, (long long)b->n, (long long)b->h,
                    (long long)b->w);
}

static cod_status input_shape(const ir_context *context, const cod_node *node, cod_shape *out)
{
    if (node->like) {
        *out = context->shapes[node->like];
        return COD_OK;
    }
    for (size_t i = 0; i < context->options->input_count; i++) {
        const cod_input_shape *given = &context->options->inputs[i];
        if (strcmp(given->name, node->name) != 0)
            continue;
        if (given->shape.n < 1 || given->shape.h < 1 || given->shape.w < 1 || given->shape.c != node->channels)
            return cod_fail(COD_ERR_ARGUMENT, "input '%s' cannot be %lldx%lldx%lldx%lld; it has %lld channels",
                            node->name, (long long)given->shape.n, (long long)given->shape.h, (long long)given->shape.w,
                            (long long)given->shape.c, (long long)node->channels);
        *out = given->shape;
    }
    return COD_OK;
}

static cod_status node_shape(const ir_context *context, const cod_node *node, cod_shape *out)
{
    const cod_op_attr *attr = &node->attr;
    if (node->kind == COD_NODE_INPUT)
        return input_shape(context, node, out);
    const cod_shape x = context->shapes[node->inputs[0]];
    *out = x;
    for (int i = 0; i < node->input_count; i++) {
        if (context->shapes[node->inputs[i]].n == 0) {
            out->n = 0;
            return COD_OK;
        }
    }
    int64_t kernel_h = attr->kernel_h, kernel_w = attr->kernel_w;
    switch (node->kind) {
    case COD_NODE_CONV2D:
        kernel_h = cod_graph_param(context->graph, (size_t)node->params[0])->shape.h;
        kernel_w = cod_graph_param(context->graph, (size_t)node->params[0])->shape.w;
        COD_TRY(window_size(node, x.h, kernel_h, attr->pad_h, attr->stride_h, &out->h));
        return window_size(node, x.w, kernel_w, attr->pad_w, attr->stride_w, &out->w);
    case COD_NODE_POOL:
        if (attr->pool == COD_POOL_GLOBAL_AVERAGE) {
            out->h = out->w = 1;
            return COD_OK;
        }
        COD_TRY(window_size(node, x.h, kernel_h, attr->pad_h, attr->stride_h, &out->h));
        COD_TRY(window_size(node, x.w, kernel_w, attr->pad_w, attr->stride_w, &out->w));
        out->h = cod_pool_outputs(x.h, attr->kernel_h, attr->stride_h, attr->pad_h, attr->pool_ceil);
        out->w = cod_pool_outputs(x.w, attr->kernel_w, attr->stride_w, attr->pad_w, attr->pool_ceil);
        return COD_OK;
    case COD_NODE_LINEAR:
        COD_REQUIRE(x.h == 1 && x.w == 1,
                    "'%s': a linear layer takes vectors, not %lldx%lld images; flatten them first", node->name,
                    (long long)x.h, (long long)x.w);
        return COD_OK;
    case COD_NODE_ADD:
    case COD_NODE_CONCAT:
        for (int i = 1; i < node->input_count; i++)
            COD_TRY(same_sizes(node, &x, &context->shapes[node->inputs[i]]));
        return COD_OK;
    case COD_NODE_PIXEL_SHUFFLE:
    case COD_NODE_RESIZE:
        out->h *= attr->factor;
        out->w *= attr->factor;
        return COD_OK;
    case COD_NODE_PIXEL_UNSHUFFLE:
        COD_REQUIRE(x.h % attr->factor == 0 && x.w % attr->factor == 0,
                    "'%s': sides of %lldx%lld pixels are no multiples of %d", node->name, (long long)x.h,
                    (long long)x.w, attr->factor);
        out->h /= attr->factor;
        out->w /= attr->factor;
        return COD_OK;
    case COD_NODE_FLATTEN:
        COD_REQUIRE(x.h == attr->kernel_h && x.w == attr->kernel_w,
                    "'%s': the image is %lldx%lld, but the model was built for %dx%d", node->name, (long long)x.h,
                    (long long)x.w, attr->kernel_h, attr->kernel_w);
        out->h = out->w = 1;
        return COD_OK;
    case COD_NODE_LOSS:
        *out = (cod_shape){1, 1, 1, 1};
        return COD_OK;
    case COD_NODE_CONV2D_BACKWARD:
    case COD_NODE_ACTIVATION_BACKWARD:
    case COD_NODE_RESIZE_BACKWARD:
        *out = context->shapes[node->like];
        return COD_OK;
    case COD_NODE_INPUT:
    case COD_NODE_SLICE:
    case COD_NODE_NORM:
    case COD_NODE_ACTIVATION:
    case COD_NODE_AFFINE:
    case COD_NODE_STOP_GRADIENT:
    case COD_NODE_MEAN:
        return COD_OK;
    }
    return COD_OK;
}

cod_status ir_infer_shapes(ir_context *context)
{
    for (size_t i = 0; i < cod_graph_node_count(context->graph); i++) {
        const cod_node *node = cod_graph_node(context->graph, i);
        cod_shape *shape = &context->shapes[node->output];
        COD_TRY(node_shape(context, node, shape));
        shape->c = node->channels;
    }
    return COD_OK;
}

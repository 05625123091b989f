#include "cuda/library.cuh"

#ifdef COD_HAVE_CUDNN
#include "cuda/conv.cuh"
#include "cuda/cudnn.cuh"

#include <cstdlib>

void cudnn_bag_clear(cudnn_bag *bag)
{
    while (bag->count > 0)
        bag->calls->cudnnBackendDestroyDescriptor(bag->items[--bag->count]);
    free(bag->items);
    *bag = {bag->calls, nullptr, 0, 0, COD_OK};
}

static cod_status bag_grow(cudnn_bag *bag)
{
    if (bag->count < bag->room)
        return COD_OK;
    const size_t room = bag->room > 0 ? 2 * bag->room : 32;
    void *items = realloc(bag->items, room * sizeof *bag->items);
    COD_REQUIRE_MEMORY(items);
    bag->items = static_cast<cudnnBackendDescriptor_t *>(items);
    bag->room = room;
    return COD_OK;
}

cudnnBackendDescriptor_t cudnn_create(cudnn_bag *bag, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = nullptr;
    COD_THEN(bag->status, bag_grow(bag));
    COD_THEN(bag->status, COD_CUDNN(bag->calls, cudnnBackendCreateDescriptor(type, &descriptor)));
    if (bag->status != COD_OK)
        return nullptr;
    bag->items[bag->count++] = descriptor;
    return descriptor;
}

void cudnn_set(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    COD_THEN(bag->status, COD_CUDNN(bag->calls, cudnnBackendSetAttribute(descriptor, name, type, count, values)));
    if (bag->status != COD_OK)
        bag->status = cod_fail_prefix(bag->status, "attribute %d", static_cast<int>(name));
}

void cudnn_finalize(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, const char *what)
{
    if (bag->status != COD_OK)
        return;
    bag->status = COD_CUDNN(bag->calls, cudnnBackendFinalize(descriptor));
    if (bag->status != COD_OK)
        bag->status = cod_fail_prefix(bag->status, "%s", what);
}

static void set_int(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                    int64_t value)
{
    cudnn_set(bag, descriptor, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_float(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      float value)
{
    cudnn_set(bag, descriptor, name, CUDNN_TYPE_FLOAT, 1, &value);
}

static void set_type(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                     cudnnDataType_t value)
{
    cudnn_set(bag, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

static void set_child(cudnn_bag *bag, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendDescriptor_t value)
{
    cudnn_set(bag, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* Tensors. */

static cudnnDataType_t type_of(cod_dtype dtype)
{
    return dtype == COD_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/** cuDNN names dimensions in the order N, C, H, W, whatever their order in memory; weights likewise: O, I, KH, KW. */
static cudnnBackendDescriptor_t tensor(cudnn_bag *bag, int64_t uid, cod_shape shape, int64_t pixel_stride,
                                       cudnnDataType_t type, int64_t alignment)
{
    const bool inner = uid >= CUDNN_INNER;
    const int64_t dimensions[4] = {shape.n, shape.c, shape.h, shape.w};
    const int64_t strides[4] = {shape.h * shape.w * pixel_stride, 1, shape.w * pixel_stride, pixel_stride};
    cudnnBackendDescriptor_t out = cudnn_create(bag, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(bag, out, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    cudnn_set(bag, out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dimensions);
    cudnn_set(bag, out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set_int(bag, out, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
    set_int(bag, out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    cudnn_set(bag, out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner);
    cudnn_finalize(bag, out, "tensor");
    return out;
}

/** The largest power of two up to 16 that divides the address. */
static int64_t alignment_of(const cod_view *view)
{
    const uintptr_t address = reinterpret_cast<uintptr_t>(cuda_view_of(view).data) | 16;
    return static_cast<int64_t>(address & (~address + 1));
}

static cudnnBackendDescriptor_t tensor_of(cudnn_bag *bag, int64_t uid, const cod_view *view)
{
    return tensor(bag, uid, view->shape, view->pixel_stride, type_of(view->dtype), alignment_of(view));
}

/** Weights that are read: in the activations' type; packed where that is not the view's own. */
static cudnnBackendDescriptor_t weights_of(cudnn_bag *bag, const cod_view *w, cod_dtype dtype)
{
    if (dtype == w->dtype)
        return tensor_of(bag, CUDNN_W, w);
    return tensor(bag, CUDNN_W, w->shape, w->shape.c, type_of(dtype), 16);
}

/** What passes between two operations, in f32: it lies in registers. */
static cudnnBackendDescriptor_t inner_tensor(cudnn_bag *bag, int number, cod_shape shape)
{
    return tensor(bag, CUDNN_INNER + number, shape, shape.c, CUDNN_DATA_FLOAT, 16);
}

/* Operations. */

static cudnnBackendDescriptor_t convolution(cudnn_bag *bag, const cod_op_attr *attr)
{
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t pads[2] = {attr->pad_h, attr->pad_w}, dilations[2] = {1, 1};
    const int64_t strides[2] = {attr->stride_h, attr->stride_w};
    cudnnBackendDescriptor_t out = cudnn_create(bag, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(bag, out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    cudnn_set(bag, out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_int(bag, out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
    cudnn_set(bag, out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    cudnn_set(bag, out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
    cudnn_set(bag, out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    cudnn_set(bag, out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    cudnn_finalize(bag, out, "convolution");
    return out;
}

/** How the kinds call what they have in common. */
struct convolution_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
};

static const convolution_names forward_names = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
};
static const convolution_names data_names = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
};
static const convolution_names weight_names = {
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
};

static cudnnBackendDescriptor_t convolve(cudnn_bag *bag, const convolution_names *names, const cod_op *op,
                                         cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t w,
                                         cudnnBackendDescriptor_t y)
{
    cudnnBackendDescriptor_t attributes = convolution(bag, &op->attr), out = cudnn_create(bag, names->type);
    set_float(bag, out, names->alpha, 1);
    set_float(bag, out, names->beta, op->accumulate && op->kind != COD_OP_CONV2D ? 1 : 0);
    set_child(bag, out, names->convolution, attributes);
    set_child(bag, out, names->x, x);
    set_child(bag, out, names->w, w);
    set_child(bag, out, names->y, y);
    cudnn_finalize(bag, out, "operation of a convolution");
    return out;
}

/** y = mode(x[, b]), NaN where x is. @param slope  of ReLU below zero */
static cudnnBackendDescriptor_t pointwise(cudnn_bag *bag, cudnnPointwiseMode_t mode, double slope,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t y)
{
    static const cudnnNanPropagation_t keep = CUDNN_PROPAGATE_NAN;
    cudnnBackendDescriptor_t attributes = cudnn_create(bag, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnn_set(bag, attributes, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(bag, attributes, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (mode == CUDNN_POINTWISE_RELU_FWD)
        cudnn_set(bag, attributes, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &keep);
    if (slope != 0)
        cudnn_set(bag, attributes, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, CUDNN_TYPE_DOUBLE, 1, &slope);
    cudnn_finalize(bag, attributes, "pointwise attributes");
    cudnnBackendDescriptor_t out = cudnn_create(bag, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_child(bag, out, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, attributes);
    set_child(bag, out, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != nullptr)
        set_child(bag, out, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_child(bag, out, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    cudnn_finalize(bag, out, "pointwise operation");
    return out;
}

/** y = activation(conv(x, w) + b) + residual, each operation's output an inner tensor but the last's. */
static int describe_forward(cudnn_bag *bag, const cod_op *op, bool rounded_bias, cudnnBackendDescriptor_t *operations)
{
    const cod_view *b = &op->inputs[2], *residual = &op->inputs[4], *y = &op->outputs[0];
    const bool biased = b->buffer != nullptr, added = residual->buffer != nullptr;
    const bool activated = op->attr.activation != COD_ACT_NONE;
    const int count = 1 + biased + activated + added;
    cudnnBackendDescriptor_t target[CUDNN_MOST_OPERATIONS];
    for (int i = 0; i < count; i++)
        target[i] = i == count - 1 ? tensor_of(bag, CUDNN_Y, y) : inner_tensor(bag, i, y->shape);
    cudnnBackendDescriptor_t x = tensor_of(bag, CUDNN_X, &op->inputs[0]);
    int at = 0;
    operations[at] =
        convolve(bag, &forward_names, op, x, weights_of(bag, &op->inputs[1], op->inputs[0].dtype), target[0]);
    if (biased) {
        cudnnBackendDescriptor_t bias = rounded_bias
                                            ? tensor(bag, CUDNN_BIAS, b->shape, b->shape.c, CUDNN_DATA_BFLOAT16, 16)
                                            : tensor_of(bag, CUDNN_BIAS, b);
        at++;
        operations[at] = pointwise(bag, CUDNN_POINTWISE_ADD, 0, target[at - 1], bias, target[at]);
    }
    if (activated) {
        at++;
        operations[at] =
            pointwise(bag, CUDNN_POINTWISE_RELU_FWD, op->attr.activation == COD_ACT_LEAKY_RELU ? op->attr.leak : 0,
                      target[at - 1], nullptr, target[at]);
    }
    if (added) {
        at++;
        operations[at] = pointwise(bag, CUDNN_POINTWISE_ADD, 0, target[at - 1],
                                   tensor_of(bag, CUDNN_RESIDUAL, residual), target[at]);
    }
    return count;
}

int cudnn_describe(cudnn_bag *bag, const cod_op *op, bool rounded_bias,
                   cudnnBackendDescriptor_t operations[CUDNN_MOST_OPERATIONS])
{
    int count = 1;
    if (op->kind == COD_OP_CONV2D) {
        count = describe_forward(bag, op, rounded_bias, operations);
    } else if (op->kind == COD_OP_CONV2D_BACKWARD_DATA) {
        cudnnBackendDescriptor_t dx = tensor_of(bag, CUDNN_X, &op->outputs[0]);
        cudnnBackendDescriptor_t dy = tensor_of(bag, CUDNN_Y, &op->inputs[0]);
        operations[0] = convolve(bag, &data_names, op, dx, weights_of(bag, &op->inputs[1], op->inputs[0].dtype), dy);
    } else {
        cudnnBackendDescriptor_t x = tensor_of(bag, CUDNN_X, &op->inputs[0]);
        cudnnBackendDescriptor_t dy = tensor_of(bag, CUDNN_Y, &op->inputs[1]);
        operations[0] = convolve(bag, &weight_names, op, x, tensor_of(bag, CUDNN_W, &op->outputs[0]), dy);
    }
    return bag->status == COD_OK ? count : 0;
}

cod_status cudnn_fits(const cod_op *op)
{
    const bool weights = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS, forward = op->kind == COD_OP_CONV2D;
    const cod_view *x = &op->inputs[0], *other = weights ? &op->inputs[1] : &op->outputs[0];
    const cod_activation activation = forward ? op->attr.activation : COD_ACT_NONE;
    const char *why = nullptr;
    if (!forward && !weights && op->kind != COD_OP_CONV2D_BACKWARD_DATA)
        why = "it is no convolution";
    else if (forward && op->attr.int8_range > 0)
        why = "it is on 8-bit integers";
    else if (cod_op_shuffle(&op->attr) > 1)
        why = "it shuffles pixels";
    else if (conv_is_joined(op))
        why = "an activation or its gradient is in it";
    else if (x->dtype != other->dtype ||
             (forward && op->inputs[4].buffer != nullptr && op->inputs[4].dtype != x->dtype))
        why = "its activations have two types";
    else if (activation != COD_ACT_NONE && activation != COD_ACT_RELU && activation != COD_ACT_LEAKY_RELU)
        why = "its activation is neither ReLU nor leaky ReLU";
    return why == nullptr ? COD_OK : cod_fail(COD_ERR_UNSUPPORTED, "not by cuDNN: %s", why);
}

#endif

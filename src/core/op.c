#include "core/backend.h"
#include "core/chunk_format.h"
#include "core/int8_range.h"

#include <float.h>

/** Bits for the places of inputs or outputs. */
#define AT(place) (1U << (place))

/* Where no items are named, the op mixes those of the batch, or holds none. */
static const cod_op_traits traits[COD_OP_KIND_COUNT] = {
    [COD_OP_CONV2D] = {"conv2d", .item_inputs = AT(0) | AT(4), .item_outputs = AT(0)},
    [COD_OP_CONV2D_BACKWARD_DATA] = {"conv2d_backward_data", .accumulated = AT(0), .item_inputs = AT(0),
                                     .item_outputs = AT(0)},
    [COD_OP_CONV2D_BACKWARD_WEIGHTS] = {"conv2d_backward_weights", .accumulated = AT(0) | AT(1),
                                        .item_inputs = AT(0) | AT(1)},
    [COD_OP_LINEAR] = {"linear", .item_inputs = AT(0) | AT(4), .item_outputs = AT(0)},
    [COD_OP_LINEAR_BACKWARD_DATA] = {"linear_backward_data", .accumulated = AT(0), .item_inputs = AT(0),
                                     .item_outputs = AT(0)},
    [COD_OP_LINEAR_BACKWARD_WEIGHTS] = {"linear_backward_weights", .accumulated = AT(0) | AT(1),
                                        .item_inputs = AT(0) | AT(1)},
    [COD_OP_NORM_TRAIN] = {"norm_train", .updated = AT(3) | AT(4), .is_cheap = true},
    [COD_OP_NORM_INFERENCE] = {"norm_inference", .item_inputs = AT(0) | AT(6), .item_outputs = AT(0), .is_cheap = true},
    [COD_OP_NORM_BACKWARD] = {"norm_backward", .accumulated = AT(0) | AT(1) | AT(2) | AT(3)},
    [COD_OP_NORM_INFERENCE_BACKWARD] = {"norm_inference_backward", .accumulated = AT(0), .item_inputs = AT(0) | AT(1),
                                        .item_outputs = AT(0)},
    [COD_OP_NORM_STATISTICS] = {"norm_statistics", .updated = AT(2) | AT(3)},
    [COD_OP_NORM_APPLY] = {"norm_apply", .is_cheap = true},
    [COD_OP_NORM_BACKWARD_REDUCE] = {"norm_backward_reduce", .accumulated = AT(2) | AT(3) | AT(4)},
    [COD_OP_NORM_BACKWARD_APPLY] = {"norm_backward_apply", .accumulated = AT(0)},
    [COD_OP_FOLD_NORM] = {"fold_norm"},
    [COD_OP_ACTIVATION] = {"activation", .in_place = AT(0), .item_inputs = AT(0), .item_outputs = AT(0),
                           .is_cheap = true},
    [COD_OP_ACTIVATION_BACKWARD] = {"activation_backward", .accumulated = AT(0) | AT(1), .in_place = AT(1),
                                    .item_inputs = AT(0) | AT(1), .item_outputs = AT(0)},
    [COD_OP_ADD] = {"add", .accumulated = AT(0), .in_place = AT(0), .item_inputs = AT(0) | AT(1), .item_outputs = AT(0),
                    .is_cheap = true},
    [COD_OP_MEAN] = {"mean", .accumulated = AT(0)},
    [COD_OP_PIXEL_SHUFFLE] = {"pixel_shuffle", .item_inputs = AT(0), .item_outputs = AT(0), .is_cheap = true},
    [COD_OP_PIXEL_UNSHUFFLE] = {"pixel_unshuffle", .accumulated = AT(0), .item_inputs = AT(0), .item_outputs = AT(0)},
    [COD_OP_RESIZE] = {"resize", .item_inputs = AT(0), .item_outputs = AT(0)},
    [COD_OP_RESIZE_BACKWARD] = {"resize_backward", .accumulated = AT(0), .item_inputs = AT(0), .item_outputs = AT(0)},
    [COD_OP_POOL] = {"pool", .item_inputs = AT(0), .item_outputs = AT(0) | AT(1)},
    [COD_OP_POOL_BACKWARD] = {"pool_backward", .accumulated = AT(0), .item_inputs = AT(0) | AT(1),
                              .item_outputs = AT(0)},
    [COD_OP_LOSS] = {"loss", .accumulated = AT(1) | AT(2), .item_inputs = AT(0) | AT(1), .item_outputs = AT(1) | AT(2)},
    [COD_OP_GRAD_NORM] = {"grad_norm"},
    [COD_OP_OPTIMISER] = {"optimiser", .updated = AT(0) | AT(1) | AT(2) | AT(3)},
    [COD_OP_EMA] = {"ema", .updated = AT(0)},
    [COD_OP_FILL] = {"fill"},
    [COD_OP_TURN] = {"turn"},
    [COD_OP_MIX] = {"mix", .updated = AT(0)},
    [COD_OP_SPECTRAL_NORM] = {"spectral_norm"},
    [COD_OP_SPECTRAL_NORM_BACKWARD] = {"spectral_norm_backward", .accumulated = AT(0)},
    [COD_OP_QUANTISE] = {"quantise"},
    [COD_OP_DEQUANTISE] = {"dequantise"},
    [COD_OP_MAGNITUDES] = {"magnitudes", .accumulated = AT(0)},
    [COD_OP_RANGES] = {"ranges"},
};

const cod_op_traits *cod_op_traits_of(cod_op_kind kind)
{
    return &traits[kind];
}

const char *cod_op_kind_name(cod_op_kind kind)
{
    return (size_t)kind < COD_OP_KIND_COUNT ? traits[kind].name : "unknown";
}

cod_output_role cod_op_output_role(cod_op_kind kind, size_t output)
{
    if ((traits[kind].accumulated & AT(output)) != 0)
        return COD_OUTPUT_ACCUMULATED;
    return (traits[kind].updated & AT(output)) != 0 ? COD_OUTPUT_UPDATED : COD_OUTPUT_WRITTEN;
}

static bool present(const cod_view *view)
{
    return view->buffer != NULL;
}

static bool is_shape(const cod_view *view, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return present(view) && cod_shape_equal(view->shape, (cod_shape){n, h, w, c});
}

static bool same_shape(const cod_view *a, const cod_view *b)
{
    return present(a) && present(b) && cod_shape_equal(a->shape, b->shape);
}

/** Vectors of one value per channel. */
static bool are_vectors(const cod_view *views, size_t first, size_t last, int64_t channels)
{
    for (size_t i = first; i <= last; i++)
        if (!is_shape(&views[i], 1, 1, 1, channels))
            return false;
    return true;
}

static bool slope_fits(const cod_view *slope, cod_activation activation, int64_t channels)
{
    if (activation != COD_ACT_PRELU)
        return !present(slope);
    return present(slope) && (cod_shape_count(slope->shape) == 1 || is_shape(slope, 1, 1, 1, channels));
}

static bool conv_fits(const cod_op_attr *attr, const cod_view *x, const cod_view *w, const cod_view *y)
{
    if (!present(x) || !present(w) || !present(y) || attr->stride_h < 1 || attr->stride_w < 1)
        return false;
    const int64_t h = (x->shape.h + 2 * attr->pad_h - w->shape.h) / attr->stride_h + 1;
    const int64_t width = (x->shape.w + 2 * attr->pad_w - w->shape.w) / attr->stride_w + 1;
    const int64_t r = cod_op_shuffle(attr);
    return x->shape.c == w->shape.c && x->shape.h + 2 * attr->pad_h >= w->shape.h &&
           x->shape.w + 2 * attr->pad_w >= w->shape.w && w->shape.n % (r * r) == 0 &&
           is_shape(y, x->shape.n, h * r, width * r, w->shape.n / (r * r));
}

static bool linear_fits(const cod_view *x, const cod_view *w, const cod_view *y)
{
    return present(x) && present(w) && is_shape(x, x->shape.n, 1, 1, w->shape.c) &&
           is_shape(w, w->shape.n, 1, 1, w->shape.c) && is_shape(y, x->shape.n, 1, 1, w->shape.n);
}

static bool optional_vector(const cod_view *view, int64_t channels)
{
    return !present(view) || is_shape(view, 1, 1, 1, channels);
}

static bool optional_like(const cod_view *view, const cod_view *like)
{
    return !present(view) || same_shape(view, like);
}

/** Counts of the magnitudes of so many tensors. */
static bool counts_fit(const cod_view *counts, int64_t tensors)
{
    return is_shape(counts, 1, tensors, 1, COD_MAGNITUDES) && counts->dtype == COD_I32 && cod_view_is_dense(counts);
}

/** Of a convolution on 8-bit integers. */
static bool range_fits(const cod_view *range, const cod_op_attr *attr)
{
    return !present(range) || (attr->int8_range > 0 && range->dtype == COD_F32 && cod_shape_count(range->shape) == 1);
}

static bool enlarged(const cod_view *small, const cod_view *large, int factor, int64_t channels)
{
    return present(small) && factor >= 1 &&
           is_shape(large, small->shape.n, small->shape.h * factor, small->shape.w * factor, channels);
}

int64_t cod_pool_outputs(int64_t size, int kernel, int stride, int padding, bool ceil)
{
    const int64_t room = size + 2 * (int64_t)padding - kernel;
    int64_t outputs = (room + (ceil ? stride - 1 : 0)) / stride + 1;
    if (ceil && (outputs - 1) * stride >= size + padding)
        outputs--;
    return room < 0 ? 0 : outputs;
}

static bool pool_fits(const cod_op_attr *attr, const cod_view *x, const cod_view *y)
{
    if (!present(x) || !present(y))
        return false;
    if (attr->pool == COD_POOL_GLOBAL_AVERAGE)
        return is_shape(y, x->shape.n, 1, 1, x->shape.c);
    if (attr->stride_h < 1 || attr->stride_w < 1 || attr->kernel_h < 1 || attr->kernel_w < 1 ||
        2 * attr->pad_h > attr->kernel_h || 2 * attr->pad_w > attr->kernel_w ||
        (attr->pool_ceil && attr->pool != COD_POOL_MAX))
        return false;
    const int64_t h = cod_pool_outputs(x->shape.h, attr->kernel_h, attr->stride_h, attr->pad_h, attr->pool_ceil);
    const int64_t w = cod_pool_outputs(x->shape.w, attr->kernel_w, attr->stride_w, attr->pad_w, attr->pool_ceil);
    return h > 0 && w > 0 && is_shape(y, x->shape.n, h, w, x->shape.c);
}

static bool loss_fits(const cod_op *op)
{
    const cod_view *prediction = &op->inputs[0], *target = &op->inputs[1];
    if (!present(prediction) || cod_shape_count(op->outputs[0].shape) != 1 ||
        (present(&op->inputs[2]) && cod_shape_count(op->inputs[2].shape) != 1))
        return false;
    if (!optional_like(&op->outputs[1], prediction) || !optional_like(&op->outputs[2], prediction))
        return false;
    if (op->attr.loss == COD_LOSS_TV)
        return true;
    const bool rows = op->attr.loss == COD_LOSS_CROSS_ENTROPY || op->attr.loss == COD_LOSS_KL;
    return same_shape(prediction, target) && (!rows || (prediction->shape.h == 1 && prediction->shape.w == 1));
}

/** What a loss may not have, whatever the shapes. */
static cod_status check_loss(const cod_op *op)
{
    const cod_view *dprediction = &op->outputs[1], *dtarget = &op->outputs[2];
    const char *name = op->name ? op->name : "";
    COD_REQUIRE((size_t)op->attr.loss <= COD_LOSS_TV, "loss '%s': kind %d does not exist", name, (int)op->attr.loss);
    COD_REQUIRE(op->attr.loss != COD_LOSS_TV || (!present(&op->inputs[1]) && !present(dtarget)),
                "loss '%s': total variation has neither a target nor a gradient for one", name);
    COD_REQUIRE(!present(dprediction) || dprediction->buffer != dtarget->buffer ||
                    dprediction->offset != dtarget->offset,
                "loss '%s': the gradients of prediction and target are one tensor; each needs its own", name);
    return COD_OK;
}

/** Pixels change places, so that none can be written before all are read. Bytes need a table, and a table bytes. */
static cod_status check_turn(const cod_op *op)
{
    const bool looks_up = present(&op->inputs[2]), bytes = op->inputs[0].dtype == COD_U8;
    COD_REQUIRE(looks_up == bytes, "turn '%s': x is %s %s a table; bytes (u8) need one, and it is for nothing else",
                op->name ? op->name : "", cod_dtype_name(op->inputs[0].dtype), looks_up ? "with" : "without");
    COD_REQUIRE(!looks_up || (op->inputs[2].dtype == COD_F32 && cod_view_is_dense(&op->inputs[2])),
                "turn '%s': the table is not dense f32", op->name ? op->name : "");
    COD_REQUIRE(op->inputs[0].buffer != op->outputs[0].buffer || op->inputs[0].offset != op->outputs[0].offset,
                "turn '%s': input and output are one tensor; each needs its own", op->name ? op->name : "");
    return COD_OK;
}

static bool is_vector(const cod_view *view, cod_dtype dtype)
{
    return present(view) && view->dtype == dtype && is_shape(view, 1, 1, 1, view->shape.c) && cod_view_is_dense(view);
}

/** What spectral normalisation knows of a weight: sigma, u and v. */
static bool spectrum_fits(const cod_view *w, const cod_view *sigma, const cod_view *u, const cod_view *v)
{
    return present(w) && present(sigma) && cod_shape_count(sigma->shape) == 1 && is_shape(u, 1, 1, 1, w->shape.n) &&
           is_shape(v, 1, w->shape.h, w->shape.w, w->shape.c);
}

/** Headers and payloads of plain chunks, these in so many rows. */
static bool chunks_fit(const cod_view *heads, const cod_view *payloads, int64_t rows)
{
    const bool bytes = present(heads) && present(payloads) && heads->dtype == COD_U8 && payloads->dtype == COD_U8;
    return bytes && is_shape(heads, 1, 1, heads->shape.w, COD_CHUNK_HEADER_BYTES) && cod_view_is_dense(heads) &&
           is_shape(payloads, 1, 1, rows, payloads->shape.c) && cod_view_is_dense(payloads) &&
           payloads->shape.c % 16 == 0;
}

static bool values_fit(const cod_view *x, const cod_view *y, const cod_view *reference)
{
    return is_vector(x, COD_F32) && is_vector(y, COD_F32) && same_shape(x, y) &&
           (!present(reference) || (is_vector(reference, COD_F32) && same_shape(x, reference)));
}

static bool shapes_fit(const cod_op *op)
{
    const cod_view *in = op->inputs, *out = op->outputs;
    const cod_op_attr *attr = &op->attr;
    switch (op->kind) {
    case COD_OP_CONV2D:
        return conv_fits(attr, &in[0], &in[1], &out[0]) && optional_vector(&in[2], in[1].shape.n) &&
               slope_fits(&in[3], attr->activation, out[0].shape.c) && optional_like(&in[4], &out[0]) &&
               range_fits(&in[5], attr);
    case COD_OP_CONV2D_BACKWARD_DATA:
        return conv_fits(attr, &out[0], &in[1], &in[0]);
    case COD_OP_CONV2D_BACKWARD_WEIGHTS:
        return conv_fits(attr, &in[0], &out[0], &in[1]) && optional_vector(&out[1], out[0].shape.n);
    case COD_OP_LINEAR:
        return linear_fits(&in[0], &in[1], &out[0]) && optional_vector(&in[2], in[1].shape.n) &&
               slope_fits(&in[3], attr->activation, in[1].shape.n);
    case COD_OP_LINEAR_BACKWARD_DATA:
        return linear_fits(&out[0], &in[1], &in[0]);
    case COD_OP_LINEAR_BACKWARD_WEIGHTS:
        return linear_fits(&in[0], &out[0], &in[1]) && optional_vector(&out[1], out[0].shape.n);
    case COD_OP_NORM_TRAIN:
        return same_shape(&in[0], &out[0]) && are_vectors(in, 1, 2, in[0].shape.c) &&
               slope_fits(&in[3], attr->activation, in[0].shape.c) && optional_like(&in[4], &in[0]) &&
               are_vectors(out, 1, 2, in[0].shape.c) && optional_vector(&out[3], in[0].shape.c) &&
               optional_vector(&out[4], in[0].shape.c) && present(&out[3]) == present(&out[4]);
    case COD_OP_NORM_INFERENCE:
    case COD_OP_NORM_APPLY:
        return same_shape(&in[0], &out[0]) && are_vectors(in, 1, 4, in[0].shape.c) &&
               slope_fits(&in[5], attr->activation, in[0].shape.c) && optional_like(&in[6], &in[0]);
    case COD_OP_NORM_BACKWARD:
        return same_shape(&in[0], &in[1]) && same_shape(&in[0], &out[0]) && are_vectors(in, 2, 5, in[0].shape.c) &&
               are_vectors(out, 1, 2, in[0].shape.c) && slope_fits(&in[6], attr->activation, in[0].shape.c) &&
               (attr->activation != COD_ACT_PRELU || same_shape(&in[6], &out[3]));
    case COD_OP_NORM_INFERENCE_BACKWARD:
        return same_shape(&in[0], &in[1]) && same_shape(&in[0], &out[0]) && are_vectors(in, 2, 5, in[0].shape.c) &&
               slope_fits(&in[6], attr->activation, in[0].shape.c);
    case COD_OP_NORM_STATISTICS:
        return present(&in[0]) && are_vectors(out, 0, 1, in[0].shape.c) && optional_vector(&out[2], in[0].shape.c) &&
               optional_vector(&out[3], in[0].shape.c) && present(&out[2]) == present(&out[3]);
    case COD_OP_NORM_BACKWARD_REDUCE:
        return same_shape(&in[0], &in[1]) && optional_like(&out[0], &in[0]) && are_vectors(in, 2, 5, in[0].shape.c) &&
               slope_fits(&in[6], attr->activation, in[0].shape.c) && is_shape(&out[1], 1, 1, 2, in[0].shape.c) &&
               are_vectors(out, 2, 3, in[0].shape.c) &&
               (attr->activation != COD_ACT_PRELU || same_shape(&in[6], &out[4])) &&
               (attr->activation == COD_ACT_NONE || present(&out[0]));
    case COD_OP_NORM_BACKWARD_APPLY:
        return same_shape(&in[0], &in[1]) && same_shape(&in[0], &out[0]) && are_vectors(in, 2, 4, in[0].shape.c) &&
               is_shape(&in[5], 1, 1, 2, in[0].shape.c);
    case COD_OP_FOLD_NORM:
        return same_shape(&in[0], &out[0]) && optional_vector(&in[1], in[0].shape.n) &&
               are_vectors(in, 2, 5, in[0].shape.n) && are_vectors(out, 1, 1, in[0].shape.n);
    case COD_OP_ACTIVATION:
        return same_shape(&in[0], &out[0]) && slope_fits(&in[1], attr->activation, in[0].shape.c);
    case COD_OP_ACTIVATION_BACKWARD:
        return same_shape(&in[0], &in[1]) && same_shape(&in[0], &out[0]) &&
               slope_fits(&in[2], attr->activation, in[0].shape.c) &&
               (attr->activation != COD_ACT_PRELU || same_shape(&in[2], &out[1]));
    case COD_OP_ADD:
        return same_shape(&in[0], &out[0]) && optional_like(&in[1], &in[0]);
    case COD_OP_MEAN:
        return same_shape(&in[0], &out[0]);
    case COD_OP_PIXEL_SHUFFLE:
        return present(&out[0]) && in[0].shape.c == out[0].shape.c * attr->factor * attr->factor &&
               enlarged(&in[0], &out[0], attr->factor, out[0].shape.c);
    case COD_OP_PIXEL_UNSHUFFLE:
        return present(&in[0]) && out[0].shape.c == in[0].shape.c * attr->factor * attr->factor &&
               enlarged(&out[0], &in[0], attr->factor, in[0].shape.c);
    case COD_OP_RESIZE:
        return present(&in[0]) && enlarged(&in[0], &out[0], attr->factor, in[0].shape.c);
    case COD_OP_RESIZE_BACKWARD:
        return present(&out[0]) && enlarged(&out[0], &in[0], attr->factor, out[0].shape.c);
    case COD_OP_POOL:
        return pool_fits(attr, &in[0], &out[0]) && (attr->pool != COD_POOL_MAX || same_shape(&out[0], &out[1]));
    case COD_OP_POOL_BACKWARD:
        return pool_fits(attr, &out[0], &in[0]) && (attr->pool != COD_POOL_MAX || same_shape(&in[0], &in[1]));
    case COD_OP_LOSS:
        return loss_fits(op);
    case COD_OP_GRAD_NORM:
        return present(&in[0]) && present(&out[0]) && cod_shape_count(out[0].shape) == 1;
    case COD_OP_OPTIMISER:
        return same_shape(&in[0], &out[0]) && cod_shape_count(in[1].shape) == 4 && optional_like(&out[1], &in[0]) &&
               optional_like(&out[2], &in[0]) && optional_like(&out[3], &in[0]) && optional_like(&out[4], &in[3]) &&
               present(&in[3]) == present(&out[4]);
    case COD_OP_EMA:
        return same_shape(&in[0], &out[0]) && cod_shape_count(in[1].shape) == 1;
    case COD_OP_FILL:
        return present(&out[0]);
    case COD_OP_TURN:
        return same_shape(&in[0], &out[0]) && is_shape(&in[1], 1, 1, 1, in[0].shape.n) &&
               (!present(&in[2]) || is_shape(&in[2], 1, 1, 256, in[0].shape.c));
    case COD_OP_MIX:
        return is_shape(&in[0], in[0].shape.n, 1, 1, in[0].shape.c) && same_shape(&in[0], &out[0]) &&
               cod_shape_count(in[1].shape) == 1;
    case COD_OP_SPECTRAL_NORM:
        return same_shape(&in[0], &out[0]) && is_shape(&in[1], 1, 1, 1, in[0].shape.n) &&
               spectrum_fits(&in[0], &out[1], &out[2], &out[3]);
    case COD_OP_SPECTRAL_NORM_BACKWARD:
        return same_shape(&in[0], &in[1]) && same_shape(&in[0], &out[0]) &&
               spectrum_fits(&in[0], &in[2], &in[3], &in[4]);
    case COD_OP_QUANTISE:
        return chunks_fit(&in[1], &out[1], in[1].shape.w) && same_shape(&in[1], &out[0]) &&
               values_fit(&in[0], &out[2], &in[2]);
    case COD_OP_DEQUANTISE:
        return chunks_fit(&in[0], &in[1], 1) && is_shape(&out[1], 1, 1, in[0].shape.w, sizeof(uint64_t)) &&
               values_fit(&out[0], &out[0], &in[2]);
    case COD_OP_MAGNITUDES:
        return present(&in[0]) && counts_fit(&out[0], 1);
    case COD_OP_RANGES:
        return counts_fit(&in[0], in[0].shape.h) && is_shape(&out[0], 1, 1, 1, in[0].shape.h) &&
               out[0].dtype == COD_F32;
    case COD_OP_KIND_COUNT:
        break;
    }
    return false;
}

cod_status cod_op_check(const cod_op *op)
{
    if ((size_t)op->kind >= COD_OP_KIND_COUNT)
        return cod_fail(COD_ERR_ARGUMENT, "op kind %d does not exist", (int)op->kind);
    if (op->kind == COD_OP_LOSS)
        COD_TRY(check_loss(op));
    if (op->kind == COD_OP_QUANTISE && !(op->attr.rounding > 0 && op->attr.rounding <= 0.5f))
        return cod_fail(COD_ERR_ARGUMENT, "quantise '%s': rounding is above 0 and at most 0.5, not %g", op->name,
                        (double)op->attr.rounding);
    if (!shapes_fit(op)) {
        const cod_shape a = op->inputs[0].shape, b = op->inputs[1].shape, y = op->outputs[0].shape;
        return cod_fail(COD_ERR_ARGUMENT,
                        "%s '%s': shapes do not fit together: inputs %lldx%lldx%lldx%lld and %lldx%lldx%lldx%lld, "
                        "output %lldx%lldx%lldx%lld",
                        cod_op_kind_name(op->kind), op->name ? op->name : "", (long long)a.n, (long long)a.h,
                        (long long)a.w, (long long)a.c, (long long)b.n, (long long)b.h, (long long)b.w, (long long)b.c,
                        (long long)y.n, (long long)y.h, (long long)y.w, (long long)y.c);
    }
    if (op->kind == COD_OP_TURN)
        COD_TRY(check_turn(op));
    if (!(op->attr.int8_range >= 0 && op->attr.int8_range <= FLT_MAX))
        return cod_fail(COD_ERR_ARGUMENT, "%s '%s': int8_range is %g", cod_op_kind_name(op->kind),
                        op->name ? op->name : "", (double)op->attr.int8_range);
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const cod_view *view = i < COD_OP_MAX_INPUTS ? &op->inputs[i] : &op->outputs[i - COD_OP_MAX_INPUTS];
        const bool bytes =
            op->kind == COD_OP_QUANTISE || op->kind == COD_OP_DEQUANTISE || (op->kind == COD_OP_TURN && i == 0);
        if (present(view) && view->dtype == COD_U8 && !bytes)
            return cod_fail(COD_ERR_UNSUPPORTED,
                            "%s '%s': view %zu holds bytes (u8), which only turn's x and chunks may",
                            cod_op_kind_name(op->kind), op->name ? op->name : "", i);
        if (present(view) &&
            (view->pixel_stride < view->shape.c || view->offset + cod_view_span_bytes(view) > view->buffer->bytes))
            return cod_fail(COD_ERR_ARGUMENT, "%s '%s': view %zu reaches past its buffer", cod_op_kind_name(op->kind),
                            op->name ? op->name : "", i);
    }
    return COD_OK;
}

double cod_op_flops(const cod_op *op)
{
    const cod_view *y, *w;
    switch (op->kind) {
    case COD_OP_CONV2D:
    case COD_OP_LINEAR:
        y = &op->outputs[0], w = &op->inputs[1];
        break;
    case COD_OP_CONV2D_BACKWARD_DATA:
    case COD_OP_LINEAR_BACKWARD_DATA:
        y = &op->inputs[0], w = &op->inputs[1];
        break;
    case COD_OP_CONV2D_BACKWARD_WEIGHTS:
    case COD_OP_LINEAR_BACKWARD_WEIGHTS:
        y = &op->inputs[1], w = &op->outputs[0];
        break;
    default:
        return 0;
    }
    return 2.0 * (double)cod_shape_count(y->shape) * (double)(w->shape.h * w->shape.w * w->shape.c);
}

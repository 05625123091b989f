/**
 * @file
 * How the ops of `ref` are written: as functions on dense arrays of double.
 *
 * A plan loads every view that the op reads into a dense NHWC array of double, calls the op's kernel, and stores the
 * outputs, adding where `accumulate` says so. The plan deals with data types, pixel strides, accumulation, and outputs
 * that alias inputs; a kernel contains only the formula.
 */
#ifndef COD_REF_REF_INTERNAL_H
#define COD_REF_REF_INTERNAL_H

#include "core/backend.h"

/** Arguments of a kernel. Arrays are dense; arrays of absent views are NULL, and their shapes are zero. */
typedef struct ref_args {
    const cod_op_attr *attr;
    const double *in[COD_OP_MAX_INPUTS];
    double *out[COD_OP_MAX_OUTPUTS]; /**< to be overwritten; those that the table marks + hold their old values */
    cod_shape in_shape[COD_OP_MAX_INPUTS], out_shape[COD_OP_MAX_OUTPUTS];
    double *workspace; /**< sized in backend.c */
} ref_args;

typedef cod_status ref_kernel(const ref_args *args);

ref_kernel ref_conv2d, ref_conv2d_backward_data, ref_conv2d_backward_weights;
ref_kernel ref_linear, ref_linear_backward_data, ref_linear_backward_weights;
ref_kernel ref_norm_inference, ref_norm_backward, ref_norm_inference_backward, ref_fold_norm;
ref_kernel ref_norm_statistics, ref_norm_apply, ref_norm_backward_reduce, ref_norm_backward_apply;
ref_kernel ref_activation, ref_activation_backward;
ref_kernel ref_add, ref_mean, ref_fill, ref_pixel_shuffle, ref_pixel_unshuffle, ref_turn;
ref_kernel ref_resize, ref_resize_backward;
ref_kernel ref_pool, ref_pool_backward;
ref_kernel ref_loss, ref_mix;
ref_kernel ref_spectral_norm, ref_spectral_norm_backward;
ref_kernel ref_grad_norm, ref_optimiser, ref_ema;

/** A kernel that works on the bits of its views, which are not loaded. */
typedef void ref_direct_kernel(const cod_op *op);
ref_direct_kernel ref_quantise, ref_dequantise, ref_magnitudes, ref_ranges;

/** Whether views may have this type. */
bool ref_dtype_known(cod_dtype dtype);
/** Reads a view into a dense array. */
void ref_load(const cod_view *view, double *dense);
/** Rounds a dense array into a view, or its sum with what the view holds. */
void ref_store(const cod_view *view, const double *dense, bool add);

/** An activation function with its slopes resolved. */
typedef struct ref_activator {
    cod_activation kind;
    double leak;
    const double *slope; /**< PRELU: [1] or [C] */
    bool slope_per_channel;
} ref_activator;

ref_activator ref_activator_open(const cod_op_attr *attr, const double *slope, cod_shape slope_shape);

/** Factor on the side x <= 0 of the ReLU family. */
static inline double ref_slope(const ref_activator *act, int64_t channel)
{
    switch (act->kind) {
    case COD_ACT_LEAKY_RELU:
        return act->leak;
    case COD_ACT_PRELU:
        return act->slope[act->slope_per_channel ? channel : 0];
    default:
        return 0;
    }
}

double ref_activate(const ref_activator *act, double x, int64_t channel);
/** dy/dx from y, or from x for PRELU, whose y may not tell the sign of x. */
double ref_activation_slope(const ref_activator *act, double x_or_y, int64_t channel);
/** Applies the activation to pixels [count / channels][channels], in place. */
void ref_activate_all(const ref_activator *act, double *values, int64_t count, int64_t channels);

/** Between images as `large` and r times smaller ones with r² times the channels; `enlarge`: to the large. */
void ref_shuffle(cod_shape large, int64_t r, const double *source, double *target, bool enlarge);

static inline void ref_zero(double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = 0;
}

/** y += factor·x */
static inline void ref_axpy(double *restrict y, double factor, const double *restrict x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += factor * x[i];
}

/**
 * y += factors[r]·x[r] for one row r of x after the other; rows lie `stride` apart. Convolutions spend their time here:
 * y passes through registers once for four rows, and each element still adds them in their order.
 */
static inline void ref_axpy_rows(double *restrict y, const double *factors, const double *restrict x, int64_t stride,
                                 int64_t rows, int64_t count)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const double a = factors[r], b = factors[r + 1], c = factors[r + 2], d = factors[r + 3];
        const double *xa = x + r * stride, *xb = xa + stride, *xc = xb + stride, *xd = xc + stride;
        for (int64_t i = 0; i < count; i++)
            y[i] = y[i] + a * xa[i] + b * xb[i] + c * xc[i] + d * xd[i];
    }
    for (; r < rows; r++)
        ref_axpy(y, factors[r], x + r * stride, count);
}

#endif

#include "core/wide.h"
#include "ref/ref_internal.h"

#include <math.h>

/*
 * x {N,H,W,I}, w {O,KH,KW,I}, y {N,P,Q,O}. The three ops walk the same pairs of an output pixel and a kernel position
 * that meet inside x; they differ in what they do there, with channels in the inner, contiguous loops.
 */

typedef struct conv_walk {
    cod_shape x, w, y;
    const double *x_data, *w_data, *y_data;
    double *result;
} conv_walk;

/**
 * One output pixel meets one input pixel at kernel position k (= kh·KW + kw); offsets of the pixels' first channels.
 */
typedef void conv_meet(const conv_walk *walk, int64_t x_at, int64_t y_at, int64_t k);

/**
 * Takes one kernel position after the other, so that its weights stay in the cache for all pixels. Backwards starts at
 * the last position: each input pixel then meets its output pixels in ascending order.
 */
static inline __attribute__((always_inline)) void walk_pixels(const conv_walk *walk, const cod_op_attr *attr,
                                                              bool backwards, conv_meet *meet)
{
    const cod_shape x = walk->x, w = walk->w, y = walk->y;
    for (int64_t i = 0; i < w.h * w.w; i++) {
        const int64_t k = backwards ? w.h * w.w - 1 - i : i;
        for (int64_t n = 0; n < y.n; n++) {
            for (int64_t p = 0; p < y.h; p++) {
                const int64_t row = p * attr->stride_h - attr->pad_h + k / w.w;
                for (int64_t q = 0; q < y.w && row >= 0 && row < x.h; q++) {
                    const int64_t column = q * attr->stride_w - attr->pad_w + k % w.w;
                    if (column >= 0 && column < x.w)
                        meet(walk, ((n * x.h + row) * x.w + column) * x.c, ((n * y.h + p) * y.w + q) * y.c, k);
                }
            }
        }
    }
}

/** y[o] += sum over i of x[i]·w[k][i][o]; the weights lie {KH,KW,I,O} here, so that the inner loop is no reduction. */
static void meet_forward(const conv_walk *walk, int64_t x_at, int64_t y_at, int64_t k)
{
    const int64_t inputs = walk->x.c, outputs = walk->y.c;
    ref_axpy_rows(walk->result + y_at, walk->x_data + x_at, walk->w_data + k * inputs * outputs, outputs, inputs,
                  outputs);
}

/** dx[i] += sum over o of dy[o]·w[o][k][i] */
static void meet_backward_data(const conv_walk *walk, int64_t x_at, int64_t y_at, int64_t k)
{
    const int64_t inputs = walk->x.c, kernel = walk->w.h * walk->w.w;
    ref_axpy_rows(walk->result + x_at, walk->y_data + y_at, walk->w_data + k * inputs, kernel * inputs, walk->y.c,
                  inputs);
}

/** dw[o][k][i] += dy[o]·x[i] */
static void meet_backward_weights(const conv_walk *walk, int64_t x_at, int64_t y_at, int64_t k)
{
    const int64_t inputs = walk->x.c, kernel = walk->w.h * walk->w.w;
    for (int64_t o = 0; o < walk->y.c; o++)
        ref_axpy(walk->result + (o * kernel + k) * inputs, walk->y_data[y_at + o], walk->x_data + x_at, inputs);
}

/** {O,KH,KW,I} -> {KH,KW,I,O} */
static void transpose_weights(const double *w, cod_shape shape, double *transposed)
{
    const int64_t inner = shape.h * shape.w * shape.c;
    for (int64_t o = 0; o < shape.n; o++)
        for (int64_t i = 0; i < inner; i++)
            transposed[i * shape.n + o] = w[o * inner + i];
}

/** The shape of an output before its pixels are shuffled. */
static cod_shape unshuffled(cod_shape y, int64_t r)
{
    return (cod_shape){y.n, y.h / r, y.w / r, y.c * r * r};
}

/** dy as the convolution itself gave y; in `workspace` where its pixels are shuffled. */
static const double *unshuffle(const ref_args *args, size_t input, double *workspace)
{
    const int64_t r = cod_op_shuffle(args->attr);
    if (r == 1)
        return args->in[input];
    ref_shuffle(args->in_shape[input], r, args->in[input], workspace, false);
    return workspace;
}

/** y = conv(x, w) without bias, not shuffled. */
COD_WIDE static void convolve(const ref_args *args, const double *x, const double *w, double *transposed, double *y)
{
    transpose_weights(w, args->in_shape[1], transposed);
    ref_zero(y, cod_shape_count(args->out_shape[0]));
    const conv_walk walk = {.x = args->in_shape[0],
                            .w = args->in_shape[1],
                            .y = unshuffled(args->out_shape[0], cod_op_shuffle(args->attr)),
                            .x_data = x,
                            .w_data = transposed,
                            .result = y};
    walk_pixels(&walk, args->attr, false, meet_forward);
}

static void quantise(const double *values, float factor, double *integers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float scaled = (float)values[i] * factor;
        integers[i] = isnan(scaled) ? 0 : (double)rintf(fminf(fmaxf(scaled, -127), 127));
    }
}

/** Rounds an output channel's weights to integers; returns what their sums are to be multiplied with. */
static float quantise_weights(const double *w, float range, double *integers, int64_t count)
{
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = isnan(w[i]) || isnan(largest) ? NAN : fmaxf(largest, fabsf((float)w[i]));
    const float factor = range / 127 * (largest / 127);
    quantise(w, factor < 1e-30f ? 0 : 127 / largest, integers, count);
    return factor;
}

static void convolve_int8(const ref_args *args, double *transposed, double *y)
{
    const cod_shape x = args->in_shape[0], w = args->in_shape[1];
    const int64_t weights = cod_shape_count(w), inner = weights / w.n;
    double *qw = transposed + weights, *factor = qw + weights, *qx = factor + w.n;
    const float range = args->in[5] != NULL ? (float)args->in[5][0] : args->attr->int8_range;
    quantise(args->in[0], 127 / range, qx, cod_shape_count(x));
    for (int64_t o = 0; o < w.n; o++)
        factor[o] = quantise_weights(args->in[1] + o * inner, range, qw + o * inner, inner);
    convolve(args, qx, qw, transposed, y);
    for (int64_t i = 0; i < cod_shape_count(args->out_shape[0]); i++)
        y[i] *= factor[i % w.n];
}

cod_status ref_conv2d(const ref_args *args)
{
    const double *bias = args->in[2];
    const int64_t count = cod_shape_count(args->out_shape[0]), outputs = args->in_shape[1].n,
                  r = cod_op_shuffle(args->attr);
    double *y = r > 1 ? args->workspace : args->out[0], *rest = args->workspace + (r > 1 ? count : 0);
    if (args->attr->int8_range > 0)
        convolve_int8(args, rest, y);
    else
        convolve(args, args->in[0], args->in[1], rest, y);
    for (int64_t i = 0; i < count && bias != NULL; i++)
        y[i] += bias[i % outputs];
    if (r > 1)
        ref_shuffle(args->out_shape[0], r, y, args->out[0], true);
    const ref_activator act = ref_activator_open(args->attr, args->in[3], args->in_shape[3]);
    ref_activate_all(&act, args->out[0], count, args->out_shape[0].c);
    for (int64_t i = 0; i < count && args->in[4] != NULL; i++)
        args->out[0][i] += args->in[4][i];
    return COD_OK;
}

COD_WIDE cod_status ref_conv2d_backward_data(const ref_args *args)
{
    const conv_walk walk = {.x = args->out_shape[0],
                            .w = args->in_shape[1],
                            .y = unshuffled(args->in_shape[0], cod_op_shuffle(args->attr)),
                            .w_data = args->in[1],
                            .y_data = unshuffle(args, 0, args->workspace),
                            .result = args->out[0]};
    ref_zero(walk.result, cod_shape_count(walk.x));
    walk_pixels(&walk, args->attr, true, meet_backward_data);
    return COD_OK;
}

COD_WIDE cod_status ref_conv2d_backward_weights(const ref_args *args)
{
    const conv_walk walk = {.x = args->in_shape[0],
                            .w = args->out_shape[0],
                            .y = unshuffled(args->in_shape[1], cod_op_shuffle(args->attr)),
                            .x_data = args->in[0],
                            .y_data = unshuffle(args, 1, args->workspace),
                            .result = args->out[0]};
    ref_zero(walk.result, cod_shape_count(walk.w));
    walk_pixels(&walk, args->attr, false, meet_backward_weights);
    double *dbias = args->out[1];
    if (dbias != NULL) {
        ref_zero(dbias, walk.y.c);
        for (int64_t i = 0; i < cod_shape_count(walk.y); i++)
            dbias[i % walk.y.c] += walk.y_data[i];
    }
    return COD_OK;
}

/*
 * A linear layer is a 1x1 convolution of one pixel. Its attributes are not the caller's, who need not set strides.
 */
static cod_status as_convolution(ref_kernel *kernel, const ref_args *args)
{
    cod_op_attr attr = *args->attr;
    attr.stride_h = attr.stride_w = 1;
    attr.pad_h = attr.pad_w = 0;
    attr.int8_range = 0;
    attr.factor = 1;
    ref_args convolution = *args;
    convolution.attr = &attr;
    return kernel(&convolution);
}

cod_status ref_linear(const ref_args *args)
{
    return as_convolution(ref_conv2d, args);
}

cod_status ref_linear_backward_data(const ref_args *args)
{
    return as_convolution(ref_conv2d_backward_data, args);
}

cod_status ref_linear_backward_weights(const ref_args *args)
{
    return as_convolution(ref_conv2d_backward_weights, args);
}

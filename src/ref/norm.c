#include "ref/ref_internal.h"

#include <math.h>

/** Biased mean and variance of each channel, in two passes. */
static void channel_moments(const double *x, cod_shape shape, double *mean, double *variance)
{
    const int64_t channels = shape.c, count = cod_shape_count(shape);
    const double pixels = (double)(shape.n * shape.h * shape.w);
    ref_zero(mean, channels);
    ref_zero(variance, channels);
    for (int64_t i = 0; i < count; i++)
        mean[i % channels] += x[i] / pixels;
    for (int64_t i = 0; i < count; i++) {
        const double d = x[i] - mean[i % channels];
        variance[i % channels] += d * d / pixels;
    }
}

static void normalise(const double *x, int64_t count, int64_t channels, const double *const vectors[4],
                      const ref_activator *act, const double *residual, double *y)
{
    const double *mean = vectors[0], *inv_std = vectors[1], *gamma = vectors[2], *beta = vectors[3];
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % channels;
        y[i] = ref_activate(act, gamma[c] * (x[i] - mean[c]) * inv_std[c] + beta[c], c) + (residual ? residual[i] : 0);
    }
}

/** Statistics of the batch; [running_mean, running_var] move toward them. */
typedef struct norm_statistics {
    double *mean, *inv_std, *running_mean, *running_var;
} norm_statistics;

static void gather_statistics(const cod_op_attr *attr, const double *x, cod_shape shape, const norm_statistics *out)
{
    channel_moments(x, shape, out->mean, out->inv_std);
    const double pixels = (double)(shape.n * shape.h * shape.w);
    /* A single value has no unbiased variance; its biased one, zero, is kept. */
    const double unbiased = pixels > 1 ? pixels / (pixels - 1) : 1;
    for (int64_t c = 0; c < shape.c; c++) {
        const double variance = out->inv_std[c];
        if (out->running_mean != NULL) {
            out->running_mean[c] += attr->momentum * (out->mean[c] - out->running_mean[c]);
            out->running_var[c] += attr->momentum * (variance * unbiased - out->running_var[c]);
        }
        out->inv_std[c] = 1 / sqrt(variance + attr->epsilon);
    }
}

cod_status ref_norm_statistics(const ref_args *args)
{
    const norm_statistics statistics = {args->out[0], args->out[1], args->out[2], args->out[3]};
    gather_statistics(args->attr, args->in[0], args->in_shape[0], &statistics);
    return COD_OK;
}

cod_status ref_norm_apply(const ref_args *args)
{
    const ref_activator act = ref_activator_open(args->attr, args->in[5], args->in_shape[5]);
    normalise(args->in[0], cod_shape_count(args->in_shape[0]), args->in_shape[0].c,
              (const double *const[]){args->in[3], args->in[4], args->in[1], args->in[2]}, &act, args->in[6],
              args->out[0]);
    return COD_OK;
}

cod_status ref_norm_inference(const ref_args *args)
{
    const cod_shape shape = args->in_shape[0];
    double *inv_std = args->workspace;
    for (int64_t c = 0; c < shape.c; c++)
        inv_std[c] = 1 / sqrt(args->in[4][c] + args->attr->epsilon);
    const ref_activator act = ref_activator_open(args->attr, args->in[5], args->in_shape[5]);
    normalise(args->in[0], cod_shape_count(shape), shape.c,
              (const double *const[]){args->in[3], inv_std, args->in[1], args->in[2]}, &act, args->in[6], args->out[0]);
    return COD_OK;
}

/*
 * With xhat = (x - mean)·inv_std, z = gamma·xhat + beta, g = dy·activation'(z), and M pixels:
 * dbeta = sum g, dgamma = sum g·xhat, dx = gamma·inv_std·(g - dbeta/M - xhat·dgamma/M)   (Ioffe & Szegedy 2015).
 */

/**
 * Sums over the batch of g, of g·xhat and, where it is not NULL, the slope's gradient; g itself where it is not NULL.
 */
typedef struct norm_sums {
    double *g, *sum_g, *sum_gx, *dslope;
} norm_sums;

/** The inputs x, dy, gamma, beta, mean, inv_std, [slope] are the args' first ones. */
static void reduce_gradient(const ref_args *args, cod_shape slope, const norm_sums *out)
{
    const double *x = args->in[0], *dy = args->in[1], *gamma = args->in[2], *beta = args->in[3], *mean = args->in[4],
                 *inv_std = args->in[5];
    const int64_t count = cod_shape_count(args->in_shape[0]), channels = args->in_shape[0].c;
    const ref_activator act = ref_activator_open(args->attr, args->in[6], args->in_shape[6]);
    ref_zero(out->sum_g, channels);
    ref_zero(out->sum_gx, channels);
    if (out->dslope != NULL)
        ref_zero(out->dslope, cod_shape_count(slope));
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % channels;
        const double xhat = (x[i] - mean[c]) * inv_std[c], z = gamma[c] * xhat + beta[c];
        const double g =
            dy[i] * ref_activation_slope(&act, act.kind == COD_ACT_PRELU ? z : ref_activate(&act, z, c), c);
        out->sum_g[c] += g;
        out->sum_gx[c] += g * xhat;
        if (out->dslope != NULL && !(z > 0))
            out->dslope[act.slope_per_channel ? c : 0] += dy[i] * z;
        if (out->g != NULL)
            out->g[i] = g;
    }
}

/** `vectors`: gamma, mean, inv_std, sum of g, sum of g·xhat. dx may be g. */
static void apply_gradient(const double *x, const double *g, cod_shape shape, const double *const vectors[5],
                           double *dx)
{
    const double *gamma = vectors[0], *mean = vectors[1], *inv_std = vectors[2], *sum_g = vectors[3],
                 *sum_gx = vectors[4];
    const double pixels = (double)(shape.n * shape.h * shape.w);
    for (int64_t i = 0; i < cod_shape_count(shape); i++) {
        const int64_t c = i % shape.c;
        const double xhat = (x[i] - mean[c]) * inv_std[c];
        dx[i] = gamma[c] * inv_std[c] * (g[i] - sum_g[c] / pixels - xhat * sum_gx[c] / pixels);
    }
}

cod_status ref_norm_backward_reduce(const ref_args *args)
{
    const int64_t channels = args->in_shape[0].c;
    double *sums = args->out[1];
    const norm_sums out = {.g = args->out[0], .sum_g = sums, .sum_gx = sums + channels, .dslope = args->out[4]};
    reduce_gradient(args, args->out_shape[4], &out);
    for (int64_t c = 0; c < channels; c++) {
        args->out[2][c] = out.sum_gx[c];
        args->out[3][c] = out.sum_g[c];
    }
    return COD_OK;
}

cod_status ref_norm_backward_apply(const ref_args *args)
{
    const double *sums = args->in[5];
    apply_gradient(args->in[0], args->in[1], args->in_shape[0],
                   (const double *const[]){args->in[2], args->in[3], args->in[4], sums, sums + args->in_shape[0].c},
                   args->out[0]);
    return COD_OK;
}

cod_status ref_norm_backward(const ref_args *args)
{
    double *dx = args->out[0], *dgamma = args->out[1], *dbeta = args->out[2];
    const norm_sums out = {.g = dx, .sum_g = dbeta, .sum_gx = dgamma, .dslope = args->out[3]};
    reduce_gradient(args, args->out_shape[3], &out);
    apply_gradient(args->in[0], dx, args->in_shape[0],
                   (const double *const[]){args->in[2], args->in[4], args->in[5], dbeta, dgamma}, dx);
    return COD_OK;
}

/** dx = dy·activation'(z)·gamma/sqrt(var + epsilon), z the normalised x. */
cod_status ref_norm_inference_backward(const ref_args *args)
{
    const double *x = args->in[0], *dy = args->in[1], *gamma = args->in[2], *beta = args->in[3], *mean = args->in[4],
                 *var = args->in[5];
    const int64_t channels = args->in_shape[0].c;
    const ref_activator act = ref_activator_open(args->attr, args->in[6], args->in_shape[6]);
    for (int64_t i = 0; i < cod_shape_count(args->in_shape[0]); i++) {
        const int64_t c = i % channels;
        const double scale = gamma[c] / sqrt(var[c] + args->attr->epsilon), z = scale * (x[i] - mean[c]) + beta[c];
        args->out[0][i] =
            dy[i] * scale * ref_activation_slope(&act, act.kind == COD_ACT_PRELU ? z : ref_activate(&act, z, c), c);
    }
    return COD_OK;
}

cod_status ref_fold_norm(const ref_args *args)
{
    const double *w = args->in[0], *b = args->in[1], *gamma = args->in[2], *beta = args->in[3], *mean = args->in[4],
                 *var = args->in[5];
    const cod_shape shape = args->in_shape[0];
    const int64_t inner = shape.h * shape.w * shape.c;
    for (int64_t o = 0; o < shape.n; o++) {
        const double scale = gamma[o] / sqrt(var[o] + args->attr->epsilon);
        for (int64_t i = o * inner; i < (o + 1) * inner; i++)
            args->out[0][i] = w[i] * scale;
        args->out[1][o] = ((b ? b[o] : 0) - mean[o]) * scale + beta[o];
    }
    return COD_OK;
}

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

cod_status ref_norm_train(const ref_args *args)
{
    const cod_op_attr *attr = args->attr;
    const cod_shape shape = args->in_shape[0];
    double *mean = args->out[1], *inv_std = args->out[2], *running_mean = args->out[3], *running_var = args->out[4];
    channel_moments(args->in[0], shape, mean, inv_std);
    const double pixels = (double)(shape.n * shape.h * shape.w);
    /* A single value has no unbiased variance; its biased one, zero, is kept. */
    const double unbiased = pixels > 1 ? pixels / (pixels - 1) : 1;
    for (int64_t c = 0; c < shape.c; c++) {
        const double variance = inv_std[c];
        if (running_mean != NULL) {
            running_mean[c] += attr->momentum * (mean[c] - running_mean[c]);
            running_var[c] += attr->momentum * (variance * unbiased - running_var[c]);
        }
        inv_std[c] = 1 / sqrt(variance + attr->epsilon);
    }
    const ref_activator act = ref_activator_open(attr, args->in[3], args->in_shape[3]);
    normalise(args->in[0], cod_shape_count(shape), shape.c,
              (const double *const[]){mean, inv_std, args->in[1], args->in[2]}, &act, args->in[4], args->out[0]);
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
 * With xhat = (x - mean)·inv_std, z = gamma·xhat + beta, dz = dy·activation'(z), and M pixels:
 * dbeta = sum dz, dgamma = sum dz·xhat, dx = gamma·inv_std·(dz - dbeta/M - xhat·dgamma/M)   (Ioffe & Szegedy 2015).
 */
cod_status ref_norm_backward(const ref_args *args)
{
    const double *x = args->in[0], *dy = args->in[1], *gamma = args->in[2], *beta = args->in[3], *mean = args->in[4],
                 *inv_std = args->in[5];
    double *dx = args->out[0], *dgamma = args->out[1], *dbeta = args->out[2], *dslope = args->out[3];
    const cod_shape shape = args->in_shape[0];
    const int64_t count = cod_shape_count(shape), channels = shape.c;
    const double pixels = (double)(shape.n * shape.h * shape.w);
    const ref_activator act = ref_activator_open(args->attr, args->in[6], args->in_shape[6]);
    ref_zero(dgamma, channels);
    ref_zero(dbeta, channels);
    if (dslope != NULL)
        ref_zero(dslope, cod_shape_count(args->out_shape[3]));
    for (int64_t i = 0; i < count; i++) { /* dz is kept in dx */
        const int64_t c = i % channels;
        const double xhat = (x[i] - mean[c]) * inv_std[c], z = gamma[c] * xhat + beta[c];
        dx[i] = dy[i] * ref_activation_slope(&act, act.kind == COD_ACT_PRELU ? z : ref_activate(&act, z, c), c);
        dbeta[c] += dx[i];
        dgamma[c] += dx[i] * xhat;
        if (dslope != NULL && !(z > 0))
            dslope[act.slope_per_channel ? c : 0] += dy[i] * z;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % channels;
        const double xhat = (x[i] - mean[c]) * inv_std[c];
        dx[i] = gamma[c] * inv_std[c] * (dx[i] - dbeta[c] / pixels - xhat * dgamma[c] / pixels);
    }
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

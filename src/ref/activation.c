#include "ref/ref_internal.h"

#include <math.h>

ref_activator ref_activator_open(const cod_op_attr *attr, const double *slope, cod_shape slope_shape)
{
    return (ref_activator){.kind = attr->activation,
                           .leak = attr->leak,
                           .slope = slope,
                           .slope_per_channel = cod_shape_count(slope_shape) > 1};
}

double ref_activate(const ref_activator *act, double x, int64_t channel)
{
    switch (act->kind) {
    case COD_ACT_RELU:
        return x <= 0 ? 0 : x; /* NaN stays NaN */
    case COD_ACT_LEAKY_RELU:
    case COD_ACT_PRELU:
        return x <= 0 ? ref_slope(act, channel) * x : x;
    case COD_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case COD_ACT_TANH:
        return tanh(x);
    case COD_ACT_NONE:
        break;
    }
    return x;
}

double ref_activation_slope(const ref_activator *act, double x_or_y, int64_t channel)
{
    switch (act->kind) {
    case COD_ACT_RELU:
    case COD_ACT_LEAKY_RELU:
    case COD_ACT_PRELU:
        return x_or_y > 0 ? 1 : ref_slope(act, channel);
    case COD_ACT_SIGMOID:
        return x_or_y * (1 - x_or_y);
    case COD_ACT_TANH:
        return 1 - x_or_y * x_or_y;
    case COD_ACT_NONE:
        break;
    }
    return 1;
}

void ref_activate_all(const ref_activator *act, double *values, int64_t count, int64_t channels)
{
    if (act->kind == COD_ACT_NONE)
        return;
    for (int64_t i = 0; i < count; i++)
        values[i] = ref_activate(act, values[i], i % channels);
}

cod_status ref_activation(const ref_args *args)
{
    const ref_activator act = ref_activator_open(args->attr, args->in[1], args->in_shape[1]);
    const int64_t count = cod_shape_count(args->in_shape[0]);
    for (int64_t i = 0; i < count; i++)
        args->out[0][i] = ref_activate(&act, args->in[0][i], i % args->in_shape[0].c);
    return COD_OK;
}

cod_status ref_activation_backward(const ref_args *args)
{
    const double *x_or_y = args->in[0], *dy = args->in[1];
    double *dx = args->out[0], *dslope = args->out[1];
    const ref_activator act = ref_activator_open(args->attr, args->in[2], args->in_shape[2]);
    const int64_t count = cod_shape_count(args->in_shape[0]), channels = args->in_shape[0].c;
    for (int64_t i = 0; i < count; i++)
        dx[i] = dy[i] * ref_activation_slope(&act, x_or_y[i], i % channels);
    if (dslope == NULL)
        return COD_OK;
    ref_zero(dslope, cod_shape_count(args->out_shape[1]));
    for (int64_t i = 0; i < count; i++)
        if (!(x_or_y[i] > 0))
            dslope[act.slope_per_channel ? i % channels : 0] += dy[i] * x_or_y[i];
    return COD_OK;
}

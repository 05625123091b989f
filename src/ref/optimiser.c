#include "ref/ref_internal.h"

#include <math.h>

cod_status ref_grad_norm(const ref_args *args)
{
    double sum = 0;
    for (int64_t i = 0; i < cod_shape_count(args->in_shape[0]); i++)
        sum += args->in[0][i] * args->in[0][i];
    args->out[0][0] = sqrt(sum);
    return COD_OK;
}

cod_status ref_ema(const ref_args *args)
{
    const double decay = args->in[1][0];
    for (int64_t i = 0; i < cod_shape_count(args->in_shape[0]); i++)
        args->out[0][i] = decay * args->out[0][i] + (1 - decay) * args->in[0][i];
    return COD_OK;
}

static void sgd(const cod_op_attr *attr, double lr, double scale, const ref_args *args)
{
    double *param = args->out[0], *m = attr->momentum != 0 ? args->out[1] : NULL;
    const double momentum = attr->momentum;
    for (int64_t i = 0; i < cod_shape_count(args->in_shape[0]); i++) {
        const double g = scale * args->in[0][i] + attr->weight_decay * param[i];
        double step = g;
        if (m != NULL) {
            m[i] = momentum * m[i] + g;
            step = attr->nesterov ? g + momentum * m[i] : m[i];
        }
        param[i] -= lr * step;
    }
}

static void adam(const cod_op_attr *attr, const double *scalars, double scale, const ref_args *args)
{
    double *param = args->out[0], *m = args->out[1], *v = args->out[2];
    const double lr = scalars[0], correction1 = scalars[1], correction2 = scalars[2], decay = attr->weight_decay;
    const bool decoupled = attr->optimiser == COD_OPT_ADAMW;
    for (int64_t i = 0; i < cod_shape_count(args->in_shape[0]); i++) {
        const double g = scale * args->in[0][i] + (decoupled ? 0 : decay * param[i]);
        m[i] = attr->beta1 * m[i] + (1 - (double)attr->beta1) * g;
        v[i] = attr->beta2 * v[i] + (1 - (double)attr->beta2) * g * g;
        if (decoupled)
            param[i] -= lr * decay * param[i];
        param[i] -= lr * (m[i] / correction1) / (sqrt(v[i] / correction2) + attr->epsilon);
    }
}

cod_status ref_optimiser(const ref_args *args)
{
    const cod_op_attr *attr = args->attr;
    const double *scalars = args->in[1], *norm = args->in[2];
    /* A norm that is not a number must not pass for one within bounds, so not fmin(). */
    const double ratio = norm != NULL && attr->max_norm > 0 ? attr->max_norm / (norm[0] + 1e-6) : 1;
    const double scale = ratio > 1 ? 1 : ratio;
    if (attr->optimiser == COD_OPT_SGD)
        sgd(attr, scalars[0], scale, args);
    else
        adam(attr, scalars, scale, args);
    for (int64_t i = 0; args->out[4] != NULL && i < cod_shape_count(args->in_shape[3]); i++)
        args->out[4][i] = args->in[3][i];
    return COD_OK;
}

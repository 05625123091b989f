#include "ref/ref_internal.h"

#include <math.h>

/** Value and derivative of an elementwise loss of difference d = prediction - target. */
static double elementwise(const cod_op_attr *attr, double d, double *derivative)
{
    switch (attr->loss) {
    case COD_LOSS_L1:
        *derivative = d > 0 ? 1 : d < 0 ? -1 : d; /* 0 at 0, NaN stays NaN */
        return fabs(d);
    case COD_LOSS_MSE:
        *derivative = 2 * d;
        return d * d;
    default: {
        const double epsilon = attr->epsilon, root = sqrt(d * d + epsilon * epsilon);
        *derivative = root > 0 ? d / root : 0;
        return root;
    }
    }
}

/** out[k] = log softmax(logits / temperature)[k] */
static void log_softmax(const double *logits, int64_t classes, double temperature, double *out)
{
    double maximum = -INFINITY, sum = 0;
    for (int64_t k = 0; k < classes; k++)
        maximum = fmax(maximum, logits[k] / temperature);
    for (int64_t k = 0; k < classes; k++)
        sum += exp(logits[k] / temperature - maximum);
    for (int64_t k = 0; k < classes; k++)
        out[k] = logits[k] / temperature - maximum - log(sum);
}

/** One row's T²·KL(target ‖ prediction) and its gradient T·(p_prediction - p_target); log_p, log_q: room for K each. */
static double kl_row(const double *prediction, const double *target, int64_t classes, double temperature, double *log_p,
                     double *log_q, double *gradient)
{
    double value = 0;
    log_softmax(target, classes, temperature, log_p);
    log_softmax(prediction, classes, temperature, log_q);
    for (int64_t k = 0; k < classes; k++) {
        const double p = exp(log_p[k]);
        value += p > 0 || isnan(p) ? p * (log_p[k] - log_q[k]) : 0; /* 0·log 0 = 0 */
        gradient[k] = temperature * (exp(log_q[k]) - p);
    }
    return temperature * temperature * value;
}

/** One row's -Σ t·log q and its gradient q·Σ t - t, t the smoothed target. */
static double cross_entropy_row(const double *logits, const double *target, int64_t classes, double smoothing,
                                double *log_q, double *gradient)
{
    double value = 0, sum = 0;
    log_softmax(logits, classes, 1, log_q);
    for (int64_t k = 0; k < classes; k++) {
        const double t = (1 - smoothing) * target[k] + smoothing / (double)classes;
        value -= t == 0 ? 0 : t * log_q[k]; /* 0·log 0 = 0 */
        sum += t;
        gradient[k] = -t;
    }
    for (int64_t k = 0; k < classes; k++)
        gradient[k] += sum * exp(log_q[k]);
    return value;
}

/** The mean loss; `gradient` [count] receives its derivative. */
static double evaluate(const ref_args *args, double *gradient)
{
    const cod_op_attr *attr = args->attr;
    const double *prediction = args->in[0], *target = args->in[1];
    const cod_shape shape = args->in_shape[0];
    const int64_t count = cod_shape_count(shape), classes = shape.c;
    const bool rows = attr->loss == COD_LOSS_KL || attr->loss == COD_LOSS_CROSS_ENTROPY;
    const double mean = 1 / (double)(rows ? shape.n : count);
    const double temperature = attr->temperature == 0 ? 1 : attr->temperature;
    double *log_p = args->workspace + count, *log_q = log_p + classes, sum = 0;
    for (int64_t i = 0; i < count && !rows; i++)
        sum += elementwise(attr, prediction[i] - target[i], &gradient[i]);
    for (int64_t at = 0; at < count && rows; at += classes)
        sum += attr->loss == COD_LOSS_KL
                   ? kl_row(prediction + at, target + at, classes, temperature, log_p, log_q, gradient + at)
                   : cross_entropy_row(prediction + at, target + at, classes, attr->smoothing, log_q, gradient + at);
    for (int64_t i = 0; i < count; i++)
        gradient[i] *= mean;
    return sum * mean;
}

cod_status ref_loss(const ref_args *args)
{
    double *gradient = args->workspace, *dprediction = args->out[1];
    args->out[0][0] = evaluate(args, gradient);
    const double scale = args->attr->alpha * (args->in[2] ? args->in[2][0] : 1);
    if (dprediction != NULL)
        for (int64_t i = 0; i < cod_shape_count(args->in_shape[0]); i++)
            dprediction[i] = scale * gradient[i];
    return COD_OK;
}

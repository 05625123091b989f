#include "ref/ref_internal.h"

#include <math.h>

/** The sign of d: 0 at 0, NaN stays NaN. */
static double sign(double d)
{
    return d > 0 ? 1 : d < 0 ? -1 : d;
}

/** Value of a loss of the difference d = prediction - target, and its derivative by d. */
static double of_difference(const cod_op_attr *attr, double d, double *derivative)
{
    switch (attr->loss) {
    case COD_LOSS_L1:
        *derivative = sign(d);
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

/**
 * Binary cross entropy of a logit; the derivative by x is sigmoid(x) - t, in a form that does not cancel at t = 0 and t
 * = 1.
 */
static double binary_cross_entropy(double x, double t, double *dx, double *dt)
{
    const double e = exp(-fabs(x)), tail = e / (1 + e); /* the smaller of sigmoid(x) and 1 - sigmoid(x) */
    *dx = x > 0 ? (1 - t) - tail : tail - t;
    *dt = -x;
    return (x > 0 ? x : 0) - x * t + log1p(e);
}

static double hinge(double x, double t, double *dx, double *dt)
{
    const double margin = 1 - t * x, flat = margin <= 0 ? 0 : margin; /* NaN stays NaN */
    *dx = margin > 0 ? -t : flat;
    *dt = margin > 0 ? -x : flat;
    return margin > 0 ? margin : flat;
}

/** Value and derivatives of a loss that is a mean over elements. */
static double elementwise(const cod_op_attr *attr, double x, double t, double *dx, double *dt)
{
    if (attr->loss == COD_LOSS_BCE)
        return binary_cross_entropy(x, t, dx, dt);
    if (attr->loss == COD_LOSS_HINGE)
        return hinge(x, t, dx, dt);
    const double value = of_difference(attr, x - t, dx);
    *dt = -*dx;
    return value;
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

/**
 * One row of a loss over classes: logits or probabilities in, derivatives out; log_p and log_q have room for K each.
 */
typedef struct class_row {
    const double *prediction, *target;
    double *dx, *dt, *log_p, *log_q;
    int64_t classes;
} class_row;

/** T²·KL(target ‖ prediction), its gradients T·(q - p) by the prediction and T·p·(log p - log q - KL) by the target. */
static double kl_row(const class_row *row, double temperature)
{
    double divergence = 0;
    log_softmax(row->target, row->classes, temperature, row->log_p);
    log_softmax(row->prediction, row->classes, temperature, row->log_q);
    for (int64_t k = 0; k < row->classes; k++) {
        const double p = exp(row->log_p[k]);
        divergence += p > 0 || isnan(p) ? p * (row->log_p[k] - row->log_q[k]) : 0; /* 0·log 0 = 0 */
        row->dx[k] = temperature * (exp(row->log_q[k]) - p);
    }
    for (int64_t k = 0; k < row->classes; k++) {
        const double p = exp(row->log_p[k]);
        row->dt[k] = p > 0 || isnan(p) ? temperature * p * (row->log_p[k] - row->log_q[k] - divergence) : 0;
    }
    return temperature * temperature * divergence;
}

/** -Σ t'·log q, t' = (1-s)·t + s/K, its gradients q·Σ t' - t' by the prediction and -(1-s)·log q by the target. */
static double cross_entropy_row(const class_row *row, double smoothing)
{
    double value = 0, sum = 0;
    log_softmax(row->prediction, row->classes, 1, row->log_q);
    for (int64_t k = 0; k < row->classes; k++) {
        const double t = (1 - smoothing) * row->target[k] + smoothing / (double)row->classes;
        value -= t == 0 ? 0 : t * row->log_q[k]; /* 0·log 0 = 0 */
        sum += t;
        row->dx[k] = -t;
        row->dt[k] = -(1 - smoothing) * row->log_q[k];
    }
    for (int64_t k = 0; k < row->classes; k++)
        row->dx[k] += sum * exp(row->log_q[k]);
    return value;
}

/**
 * The mean of |x[i + step] - x[i]| over pairs within `blocks` blocks of `block` elements, 0 without any; adds its
 * derivative to dx.
 */
static double variation(const double *x, double *dx, int64_t blocks, int64_t block, int64_t step)
{
    const int64_t pairs = blocks * (block - step);
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++) {
        for (int64_t i = b * block; i < (b + 1) * block - step; i++) {
            const double d = x[i + step] - x[i];
            sum += fabs(d);
            dx[i + step] += sign(d) / (double)pairs;
            dx[i] -= sign(d) / (double)pairs;
        }
    }
    return pairs > 0 ? sum / (double)pairs : 0;
}

/** The mean loss; `dx` and `dt` [count] receive its derivatives by prediction and target. */
static double evaluate(const ref_args *args, double *dx, double *dt)
{
    const cod_op_attr *attr = args->attr;
    const double *prediction = args->in[0], *target = args->in[1];
    const cod_shape shape = args->in_shape[0];
    const int64_t count = cod_shape_count(shape), classes = shape.c;
    const bool rows = attr->loss == COD_LOSS_KL || attr->loss == COD_LOSS_CROSS_ENTROPY;
    const double mean = 1 / (double)(rows ? shape.n : count);
    const double temperature = attr->temperature == 0 ? 1 : attr->temperature;
    double sum = 0;
    if (attr->loss == COD_LOSS_TV) {
        ref_zero(dx, count);
        return variation(prediction, dx, shape.n, shape.h * shape.w * shape.c, shape.w * shape.c) +
               variation(prediction, dx, shape.n * shape.h, shape.w * shape.c, shape.c);
    }
    for (int64_t i = 0; i < count && !rows; i++)
        sum += elementwise(attr, prediction[i], target[i], &dx[i], &dt[i]);
    for (int64_t at = 0; at < count && rows; at += classes) {
        const class_row row = {prediction + at, target + at,          dx + at, dt + at,
                               dt + count,      dt + count + classes, classes};
        sum += attr->loss == COD_LOSS_KL ? kl_row(&row, temperature) : cross_entropy_row(&row, attr->smoothing);
    }
    for (int64_t i = 0; i < count; i++) {
        dx[i] *= mean;
        dt[i] *= mean;
    }
    return sum * mean;
}

cod_status ref_loss(const ref_args *args)
{
    const int64_t count = cod_shape_count(args->in_shape[0]);
    double *const gradients[] = {args->workspace, args->workspace + count};
    args->out[0][0] = evaluate(args, gradients[0], gradients[1]);
    const double scale = args->attr->alpha * (args->in[2] ? args->in[2][0] : 1);
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < count && args->out[1 + side] != NULL; i++)
            args->out[1 + side][i] = scale * gradients[side][i];
    return COD_OK;
}

cod_status ref_mix(const ref_args *args)
{
    const double temperature = args->attr->temperature == 0 ? 1 : args->attr->temperature;
    const double share = args->in[1][0];
    const int64_t rows = args->in_shape[0].n, classes = args->in_shape[0].c;
    double *const log_x = args->workspace, *const log_y = log_x + classes;
    for (int64_t n = 0; n < rows; n++) {
        double *y = args->out[0] + n * classes;
        log_softmax(args->in[0] + n * classes, classes, temperature, log_x);
        log_softmax(y, classes, temperature, log_y);
        for (int64_t k = 0; k < classes; k++) {
            const double a = log(share) + log_x[k], b = log(1 - share) + log_y[k];
            y[k] = temperature * (fmax(a, b) + log1p(exp(-fabs(a - b))));
        }
    }
    return COD_OK;
}

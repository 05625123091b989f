#include "ref/ref_internal.h"

#include <math.h>

/** The window's size, step and padding; a global average is one window over everything. */
typedef struct window {
    int64_t h, w, stride_h, stride_w, pad_h, pad_w;
} window;

static window window_of(const cod_op_attr *attr, cod_shape x)
{
    if (attr->pool == COD_POOL_GLOBAL_AVERAGE)
        return (window){x.h, x.w, 1, 1, 0, 0};
    return (window){attr->kernel_h, attr->kernel_w, attr->stride_h, attr->stride_w, attr->pad_h, attr->pad_w};
}

/** Index in x of the element at position k of the window of output (n, p, q), channel c; -1 in the padding. */
static int64_t window_element(const window *win, cod_shape x, int64_t n, int64_t p, int64_t q, int64_t c, int64_t k)
{
    const int64_t row = p * win->stride_h - win->pad_h + k / win->w,
                  column = q * win->stride_w - win->pad_w + k % win->w;
    if (row < 0 || row >= x.h || column < 0 || column >= x.w)
        return -1;
    return ((n * x.h + row) * x.w + column) * x.c + c;
}

/** The position of the first maximum; NaN counts as the largest, so that it is seen. */
static int64_t first_maximum(const window *win, cod_shape x, const double *data, int64_t n, int64_t p, int64_t q,
                             int64_t c)
{
    int64_t best = -1;
    double maximum = -INFINITY;
    for (int64_t k = 0; k < win->h * win->w; k++) {
        const int64_t at = window_element(win, x, n, p, q, c, k);
        if (at < 0)
            continue;
        if (best < 0 || data[at] > maximum || (isnan(data[at]) && !isnan(maximum))) {
            best = k;
            maximum = data[at];
        }
    }
    return best;
}

static double window_average(const window *win, cod_shape x, const double *data, int64_t n, int64_t p, int64_t q,
                             int64_t c)
{
    double sum = 0;
    for (int64_t k = 0; k < win->h * win->w; k++) {
        const int64_t at = window_element(win, x, n, p, q, c, k);
        sum += at < 0 ? 0 : data[at];
    }
    return sum / (double)(win->h * win->w);
}

cod_status ref_pool(const ref_args *args)
{
    const double *x = args->in[0];
    double *y = args->out[0], *index = args->out[1];
    const cod_shape xs = args->in_shape[0], ys = args->out_shape[0];
    const window win = window_of(args->attr, xs);
    int64_t at = 0;
    for (int64_t n = 0; n < ys.n; n++)
        for (int64_t p = 0; p < ys.h; p++)
            for (int64_t q = 0; q < ys.w; q++)
                for (int64_t c = 0; c < ys.c; c++, at++) {
                    if (args->attr->pool != COD_POOL_MAX) {
                        y[at] = window_average(&win, xs, x, n, p, q, c);
                        continue;
                    }
                    const int64_t best = first_maximum(&win, xs, x, n, p, q, c);
                    y[at] = x[window_element(&win, xs, n, p, q, c, best)];
                    if (index != NULL)
                        index[at] = (double)best;
                }
    return COD_OK;
}

cod_status ref_pool_backward(const ref_args *args)
{
    const double *dy = args->in[0], *index = args->in[1];
    double *dx = args->out[0];
    const cod_shape xs = args->out_shape[0], ys = args->in_shape[0];
    const window win = window_of(args->attr, xs);
    const int64_t positions = win.h * win.w;
    ref_zero(dx, cod_shape_count(xs));
    int64_t at = 0;
    for (int64_t n = 0; n < ys.n; n++)
        for (int64_t p = 0; p < ys.h; p++)
            for (int64_t q = 0; q < ys.w; q++)
                for (int64_t c = 0; c < ys.c; c++, at++) {
                    if (args->attr->pool == COD_POOL_MAX) {
                        const int64_t k = (int64_t)index[at];
                        const int64_t target = k < 0 || k >= positions ? -1 : window_element(&win, xs, n, p, q, c, k);
                        if (target < 0)
                            return cod_fail(COD_ERR_ARGUMENT, "pooling index %lld is outside its window of %lld",
                                            (long long)k, (long long)positions);
                        dx[target] += dy[at];
                        continue;
                    }
                    for (int64_t k = 0; k < positions; k++) {
                        const int64_t target = window_element(&win, xs, n, p, q, c, k);
                        if (target >= 0)
                            dx[target] += dy[at] / (double)positions;
                    }
                }
    return COD_OK;
}

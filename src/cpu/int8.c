/* Convolutions on 8-bit integers: how weights and inputs are rounded to them. The formula is in core/backend.h. */
#include "cpu/cpu_internal.h"

#include <math.h>

float cpu_int8_factor(const cod_op *op)
{
    return 127 / op->attr.int8_range;
}

/** The largest magnitude; NaN where one is NaN. */
static float largest_of(const float *w, int64_t count)
{
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(w[i]) <= largest))
            largest = isnan(largest) ? largest : fabsf(w[i]);
    return largest;
}

static void round_all(const float *w, int64_t count, float factor, float *integers)
{
    for (int64_t i = 0; i < count; i++) {
        const float scaled = w[i] * factor;
        integers[i] = isnan(scaled) ? 0 : rintf(fminf(fmaxf(scaled, -127), 127));
    }
}

void cpu_int8_weights(const cod_plan *plan, float *integers, float *factors)
{
    const cod_view *view = &plan->op.inputs[1];
    const int64_t outputs = view->shape.n, inner = cod_shape_count(view->shape) / outputs;
    const float *w = cod_view_host(view), range = plan->op.attr.int8_range;
    for (int64_t o = 0; o < outputs; o++) {
        const float largest = largest_of(w + o * inner, inner), factor = range / 127 * (largest / 127);
        const bool zeros = factor < 1e-30f;
        round_all(w + o * inner, inner, zeros ? 0 : 127 / largest, integers + o * inner);
        factors[o] = zeros ? 1 : factor;
    }
}

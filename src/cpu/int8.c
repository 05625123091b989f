/* Convolutions on 8-bit integers: how weights and inputs are rounded to them. The formula is in core/backend.h. */
#include "cpu/cpu_internal.h"

#include "core/memory.h"

#include <math.h>
#include <string.h>

/** Of a channel whose sums are zeros: anything but 1, see avoid_one(). */
static const float no_factor = 0.5f;

static float range_of(const cod_op *op)
{
    const cod_view *range = &op->inputs[5];
    return cpu_present(range) ? *(const float *)cod_view_host(range) : op->attr.int8_range;
}

float cpu_int8_input_factor(const cod_op *op)
{
    return 127 / range_of(op);
}

cod_status cpu_int8_create(const cod_plan *plan, cpu_int8 **out)
{
    const int64_t outputs = plan->op.inputs[1].shape.n;
    void *memory;
    if (!plan->device->native_int8)
        return cod_fail(COD_ERR_UNSUPPORTED, "8-bit integers need AVX512-VNNI or AMX (%s)", plan->device->description);
    COD_TRY(cod_aligned_alloc(&memory, sizeof(cpu_int8) + 2 * (size_t)outputs * sizeof(float)));
    cpu_int8 *int8 = memory;
    int8->factors = (float *)(void *)(int8 + 1);
    int8->bias = int8->factors + outputs;
    for (int64_t o = 0; o < outputs; o++)
        int8->factors[o] = no_factor;
    *out = int8;
    return COD_OK;
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

/** oneDNN takes factors that are all 1 for none, and chooses another implementation, with another layout of weights. */
static float avoid_one(float factor)
{
    return factor == 1 ? nextafterf(1, 2) : factor;
}

/** Whether the bits differ: NaN is equal to itself. */
static bool replace(float *value, float by)
{
    const bool differs = memcmp(value, &by, sizeof by) != 0;
    *value = by;
    return differs;
}

bool cpu_int8_round(const cod_plan *plan, cpu_int8 *int8, float *integers)
{
    const cod_view *view = &plan->op.inputs[1], *slope = &plan->op.inputs[3];
    const int64_t outputs = view->shape.n, inner = cod_shape_count(view->shape) / outputs;
    const float *w = cod_view_host(view), range = range_of(&plan->op);
    const float *bias = cpu_present(&plan->op.inputs[2]) ? cod_view_host(&plan->op.inputs[2]) : NULL;
    bool differs = cpu_present(slope) && replace(&int8->slope, *(const float *)cod_view_host(slope));
    for (int64_t o = 0; o < outputs; o++) {
        const float largest = largest_of(w + o * inner, inner), factor = range / 127 * (largest / 127);
        const bool zeros = factor < 1e-30f;
        round_all(w + o * inner, inner, zeros ? 0 : 127 / largest, integers + o * inner);
        differs = replace(&int8->factors[o], zeros ? no_factor : avoid_one(factor)) || differs;
        int8->bias[o] = bias != NULL ? bias[o] / int8->factors[o] : 0;
    }
    return differs;
}

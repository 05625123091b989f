/* Which of several implementations a convolution gets. */
#include "cpu/bench.h"
#include "cpu/cpu_internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_plain(const cod_device *device, const cod_op *op)
{
    return !cpu_shuffled_fits(device, op);
}

/** Winograd's sums of inputs do not fit 8 bits. */
static bool winograd_fits(const cod_device *device, const cod_op *op)
{
    return !(op->kind == COD_OP_CONV2D && op->attr.int8_range > 0) && cpu_winograd_fits(device, op);
}

static bool winograd4_fits(const cod_device *device, const cod_op *op)
{
    return !(op->kind == COD_OP_CONV2D && op->attr.int8_range > 0) && cpu_winograd4_fits(device, op);
}

/** Not where oneDNN multiplies these types on AMX, several times as fast as vectors do. */
static bool without_amx(const cod_device *device, const cod_op *op)
{
    return !(device->amx && op->inputs[0].dtype == COD_BF16);
}

/**
 * Where there is nothing to gather, or the gradient is most of what moves. With a stride others gather, too, and leave
 * parts of their tiles empty.
 */
static bool has_short_columns(const cod_device *device, const cod_op *op)
{
    (void)device;
    const cod_shape w = op->outputs[0].shape;
    const bool strided = op->attr.stride_h * op->attr.stride_w > 1;
    return w.h * w.w == 1 || cpu_pixels(&op->inputs[1]) <= (strided ? 4 : 1) * w.n;
}

/** oneDNN reads every second pixel as fast as others, but where it writes them it writes zeros between them first. */
static bool is_data_gradient(const cod_device *device, const cod_op *op)
{
    (void)device;
    return op->kind == COD_OP_CONV2D_BACKWARD_DATA;
}

static cod_status plan_shuffled(cod_plan *plan)
{
    return cpu_plan_shuffled(plan, cpu_plan_convolution);
}

/** In the order of what is best where nothing was timed. */
static const cpu_candidate candidates[] = {
    {.name = "columns", .fits = cpu_columns_fits, .preferred = has_short_columns, .create = cpu_plan_columns},
    {.name = "tiles", .fits = cpu_tiles_fits, .create = cpu_plan_tiles},
    {.name = "narrow", .fits = cpu_narrow_fits, .preferred = without_amx, .create = cpu_plan_narrow},
    {.name = "winograd4",
     .fits = winograd4_fits,
     .preferred = cpu_winograd4_preferred,
     .create = cpu_plan_winograd4,
     .adds_residual = true},
    {.name = "winograd",
     .fits = winograd_fits,
     .preferred = without_amx,
     .create = cpu_plan_winograd,
     .adds_residual = true},
    {.name = "strided", .fits = cpu_strided_fits, .create = cpu_plan_strided},
    {.name = "phased", .fits = cpu_phased_fits, .preferred = is_data_gradient, .create = cpu_plan_phased},
    {.name = "shuffled", .fits = cpu_shuffled_fits, .create = plan_shuffled},
    {.name = "onednn", .fits = is_plain, .create = cpu_plan_conv},
};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };
_Static_assert((int)CANDIDATES <= (int)COD_CPU_MOST_CHOICES, "a trial has room for all candidates");

cod_status cpu_convolution_force(cod_device *device)
{
    const char *name = getenv("COD_CPU_CONVOLUTION");
    if (name == NULL || strcmp(name, "auto") == 0)
        return COD_OK;
    for (size_t i = 0; i < CANDIDATES; i++)
        if (strcmp(name, candidates[i].name) == 0)
            device->forced = &candidates[i];
    device->no_autotune = true;
    return device->forced != NULL || strcmp(name, "fixed") == 0
               ? COD_OK
               : cod_fail(COD_ERR_ARGUMENT,
                          "COD_CPU_CONVOLUTION is '%s'; it must be auto, fixed, columns, tiles, narrow, "
                          "winograd, winograd4, strided, phased or onednn",
                          name);
}

size_t cpu_candidates_of(const cod_device *device, const cod_op *op, const cpu_candidate **fitting, size_t *rule)
{
    size_t count = 0;
    bool ruled = false;
    for (size_t i = 0; i < CANDIDATES; i++) {
        if (!candidates[i].fits(device, op))
            continue;
        if (!ruled && (candidates[i].preferred == NULL || candidates[i].preferred(device, op))) {
            *rule = count;
            ruled = true;
        }
        fitting[count++] = &candidates[i];
    }
    return count;
}

static cod_status choose(cod_device *device, const cod_op *op, const cpu_candidate **chosen)
{
    const cpu_candidate *fitting[CANDIDATES];
    size_t choice = 0;
    const size_t count = cpu_candidates_of(device, op, fitting, &choice);
    /* Storing shuffled saves a pass, so one that can needs no comparison, unless it lacks the AMX that oneDNN has. */
    const bool stores_shuffled = op->attr.factor > 1 && count > 1 && !device->amx;
    if (device->forced != NULL) {
        *chosen = device->forced->fits(device, op) ? device->forced : fitting[count - 1];
        return COD_OK;
    }
    if (count > 1 && !stores_shuffled && !device->no_autotune && !op->deterministic)
        COD_TRY(cpu_tune(device, op, fitting, count, &choice));
    *chosen = fitting[choice];
    return COD_OK;
}

cod_status cpu_plan_convolution(cod_plan *plan)
{
    const cpu_candidate *chosen;
    cod_op op = plan->op;
    const bool residual = op.kind == COD_OP_CONV2D && cpu_present(&op.inputs[4]);
    if (residual) /* a small part of the time: what is fastest without it is so with it */
        op.inputs[4] = (cod_view){.buffer = NULL};
    COD_TRY(choose(plan->device, &op, &chosen));
    return residual && !chosen->adds_residual ? cpu_plan_added(plan, chosen->create) : chosen->create(plan);
}

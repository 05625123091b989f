/* Which of several implementations a convolution gets. */
#include "cpu/bench.h"
#include "cpu/tune_internal.h"

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

/*
 * What is preferred, as measured on a Xeon (Sapphire Rapids) on whole batches, with the preparation of weights after
 * each update. `docs/performance.md` has the command.
 */

/** A convolution's weights, whichever of its ops this is. */
static cod_shape weights_of(const cod_op *op)
{
    return (op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? &op->outputs[0] : &op->inputs[1])->shape;
}

/** The pixels that it writes, or of the gradient that it reads; those of all pictures, before a shuffle. */
static int64_t pixels_of(const cod_op *op)
{
    const int64_t r = op->kind == COD_OP_CONV2D_BACKWARD_DATA ? 1 : cod_op_shuffle(&op->attr);
    return cpu_pixels(op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? &op->inputs[1] : &op->outputs[0]) / (r * r);
}

/** Whether oneDNN has its vectors for f32 here, and our kernels theirs. */
static bool is_f32_by_vectors(const cod_device *device, const cod_op *op)
{
    return op->inputs[0].dtype == COD_F32 && device->kernels != &cpu_kernels_generic;
}

/** Whether oneDNN and we multiply by AVX2. */
static bool has_only_avx2(const cod_device *device)
{
#if defined(__x86_64__)
    return device->kernels == &cpu_kernels_avx2;
#else
    (void)device;
    return false;
#endif
}

/** Not where oneDNN multiplies these types on AMX, several times as fast as vectors do. */
static bool without_amx(const cod_device *device, const cod_op *op)
{
    return !(device->amx && op->inputs[0].dtype == COD_BF16);
}

/** Of f32, with stride 2: data gradients with few weights, and gradients of many. */
static bool strided_preferred(const cod_device *device, const cod_op *op)
{
    enum { FEW_WEIGHTS = 128 * 128, MANY_WEIGHTS = 512 * 512 };
    const cod_shape w = weights_of(op);
    if (!is_f32_by_vectors(device, op))
        return true;
    return op->kind == COD_OP_CONV2D_BACKWARD_DATA ? w.n * w.c <= FEW_WEIGHTS
                                                   : op->kind != COD_OP_CONV2D && w.n * w.c >= MANY_WEIGHTS;
}

/**
 * Where there is nothing to gather, or the gradient is most of what moves. With a stride others gather, too, and leave
 * parts of their tiles empty; Winograd's gathers less. oneDNN's product into many weights needs AVX-512, unless the
 * other way is its convolution with a stride, which is slower still.
 */
static bool has_short_columns(const cod_device *device, const cod_op *op)
{
    enum { MANY_WEIGHTS = 1 << 20 };
    const cod_shape w = op->outputs[0].shape;
    const bool strided = op->attr.stride_h * op->attr.stride_w > 1, gathers = w.h * w.w > 1;
    const bool vectors = is_f32_by_vectors(device, op);
    if (vectors && has_only_avx2(device) && cod_shape_count(w) >= MANY_WEIGHTS && (gathers || !strided))
        return false;
    return !gathers ||
           (cpu_pixels(&op->inputs[1]) <= (strided ? 4 : 1) * w.n && !(vectors && winograd_fits(device, op)));
}

/**
 * In f32, oneDNN reads pictures of few channels faster than we do, but writes them, or their gradient, more slowly, and
 * large kernels' data gradient.
 */
static bool narrow_preferred(const cod_device *device, const cod_op *op)
{
    const cod_shape w = weights_of(op);
    const bool data = op->kind == COD_OP_CONV2D_BACKWARD_DATA;
    const bool writes_few = data ? w.c < w.n || w.h * w.w > 9 : w.n < w.c;
    return without_amx(device, op) && (writes_few || !is_f32_by_vectors(device, op));
}

/** Sums of products of a channel with a channel, by Winograd's tiles of n x n outputs. */
static int64_t winograd_products(const cod_op *op, int64_t n)
{
    const cod_shape to = (op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? &op->inputs[1] : &op->outputs[0])->shape;
    const int64_t r = op->kind != COD_OP_CONV2D_BACKWARD_DATA ? cod_op_shuffle(&op->attr) : 1;
    return to.n * ((to.h / r + n - 1) / n) * ((to.w / r + n - 1) / n) * (n + 2) * (n + 2);
}

/**
 * A gradient's transforms of pictures weigh more where there are few channels. Elsewhere the transform of the weights
 * after each update takes as long as the products of some pixels: of more where transformed weights fill the cache.
 */
static bool winograd_preferred(const cod_device *device, const cod_op *op)
{
    enum { FEW_CHANNELS = 32 * 32, MANY_WEIGHTS = 32768, LEAST_PIXELS = 500, LEAST_PIXELS_OF_MANY = 1000 };
    const cod_shape w = weights_of(op);
    if (!is_f32_by_vectors(device, op))
        return without_amx(device, op);
    if (op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS)
        return w.n * w.c > FEW_CHANNELS;
    return pixels_of(op) >= (w.n * w.c > MANY_WEIGHTS ? LEAST_PIXELS_OF_MANY : LEAST_PIXELS);
}

/** Where tiles of 4x4 outputs take a fifth fewer products than those of 2x2, and save the longer transform, too. */
static bool winograd4_preferred(const cod_device *device, const cod_op *op)
{
    enum { FEW_CHANNELS = 32 * 32, LEAST_PIXELS = 300, FEW_WEIGHTS = 96 * 64, LEAST_SAVED = 900, LEAST_OF_MANY = 3600 };
    const cod_shape w = weights_of(op);
    const int64_t large = winograd_products(op, 4), small = winograd_products(op, 2);
    if (5 * large > 4 * small)
        return false;
    if (!is_f32_by_vectors(device, op))
        return true;
    if (op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS)
        return w.n * w.c > FEW_CHANNELS && pixels_of(op) >= LEAST_PIXELS;
    return small - large >= (w.n * w.c > FEW_WEIGHTS ? LEAST_OF_MANY : LEAST_SAVED);
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
    {.name = "narrow", .fits = cpu_narrow_fits, .preferred = narrow_preferred, .create = cpu_plan_narrow},
    {.name = "winograd4",
     .fits = winograd4_fits,
     .preferred = winograd4_preferred,
     .create = cpu_plan_winograd4,
     .adds_residual = true},
    {.name = "winograd",
     .fits = winograd_fits,
     .preferred = winograd_preferred,
     .create = cpu_plan_winograd,
     .adds_residual = true},
    {.name = "strided", .fits = cpu_strided_fits, .preferred = strided_preferred, .create = cpu_plan_strided},
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

/** @param[out] tuned  how it was timed; NULL = it was not */
static cod_status choose(cod_device *device, const cod_op *op, const cpu_candidate **chosen, cpu_tuned **tuned)
{
    char text[1024];
    const cpu_candidate *fitting[CANDIDATES];
    size_t choice = 0;
    const size_t count = cpu_candidates_of(device, op, fitting, &choice);
    /* Storing shuffled saves a pass, so one that can needs no comparison, unless it lacks the AMX that oneDNN has. */
    const bool stores_shuffled = op->attr.factor > 1 && count > 1 && !device->amx;
    if (device->forced != NULL) {
        *chosen = device->forced->fits(device, op) ? device->forced : fitting[count - 1];
        return COD_OK;
    }
    *tuned = NULL;
    if (count > 1 && !stores_shuffled && !device->no_autotune && !op->deterministic) {
        COD_TRY(cpu_tune(device, op, fitting, count, &choice));
        *tuned = cpu_tuned_last(device, cpu_tune_key(device, op, fitting, count, text, sizeof text));
    }
    *chosen = fitting[choice];
    return COD_OK;
}

cod_status cpu_plan_convolution(cod_plan *plan)
{
    const cpu_candidate *chosen;
    cpu_tuned *tuned = NULL;
    cod_op op = plan->op;
    const bool residual = op.kind == COD_OP_CONV2D && cpu_present(&op.inputs[4]);
    if (residual) /* a small part of the time: what is fastest without it is so with it */
        op.inputs[4] = (cod_view){.buffer = NULL};
    COD_TRY(choose(plan->device, &op, &chosen, &tuned));
    if (!residual)
        cpu_watch_start(plan, tuned);
    return residual && !chosen->adds_residual ? cpu_plan_added(plan, chosen->create) : chosen->create(plan);
}

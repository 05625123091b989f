/*
 * Weight gradients on AMX's tiles: lines of x and dy are copied to scratch as tiles take them, a chunk that fits the
 * second-level cache at a time, and multiplied there. One task adds up all products of a sum, in an order that shapes
 * alone decide, so results are the same for any number of threads.
 */
#include "core/memory.h"
#include "cpu/cpu_internal.h"
#include "cpu/tiles_internal.h"

#include <string.h>

enum {
    CHUNK_BYTES = 768 * 1024, /**< of pairs and planes; they stay in the second-level cache */
    STEPS = 8,                /**< of CPU_TILE_PIXELS pixels, for all taps of a group before the next */
    SLACK = 64,               /**< pixels behind the last line of a plane that a step may read */
};

typedef struct tiles_state {
    const cod_view *x, *dy;
    int64_t kernel_h, kernel_w;
    int64_t top, margin;     /**< lines above dy and zeros left of it: as the last tap of a direction wants them */
    int64_t pitch;           /**< pixels of a line; even, so that no pair has pixels of two lines */
    int64_t lines;           /**< of x in a chunk */
    int64_t inputs, outputs; /**< tiles of 16 channels */
    bool by_column;          /**< rows of the first operand are columns of the kernel, not outputs */
    int64_t groups;          /**< blocks of outputs; by column: outputs */
    int64_t taps;            /**< positions of the kernel; by column: its lines */
    int64_t parts;           /**< that a group's taps are cut into, so that all threads have work */
    int64_t block_bytes;     /**< of a block of x's channels */
    int64_t plane_bytes;
    size_t at_pairs, at_planes; /**< in scratch, behind the sums */
} tiles_state;

bool cpu_tiles_fits(const cod_device *device, const cod_op *op)
{
#if defined(__x86_64__)
    const cod_view *x = &op->inputs[0], *dy = &op->inputs[1];
    const cod_shape w = op->outputs[0].shape;
    return device->amx && device->native_bf16 && op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS && x->dtype == COD_BF16 &&
           dy->dtype == COD_BF16 && cod_op_shuffle(&op->attr) == 1 && w.h * w.w > 1 && w.w <= CPU_TILE &&
           op->attr.stride_h == 1 && op->attr.stride_w == 1 && op->attr.pad_h < w.h && op->attr.pad_w < w.w;
#else
    (void)device, (void)op;
    return false;
#endif
}

#if defined(__x86_64__)
static int64_t round_up(int64_t value, int64_t to)
{
    return (value + to - 1) / to * to;
}

typedef struct tiles_run {
    const cod_plan *plan;
    const tiles_state *s;
    int64_t image, first, lines; /**< of the chunk, in x */
    bool accumulate;
} tiles_run;

static const char *line_of(const cod_view *view, int64_t image, int64_t line)
{
    return (const char *)cod_view_host(view) + (image * view->shape.h + line) * view->shape.w * view->pixel_stride * 2;
}

static int64_t steps_of(const tiles_run *run)
{
    return (run->lines * run->s->pitch + CPU_TILE_PIXELS - 1) / CPU_TILE_PIXELS;
}

/**
 * Task i: line i of the planes, and of x where the chunk has one. The last of both also clear what steps read behind
 * them.
 */
static void layout_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_state *s = run->s;
    const cod_view *x = s->x, *dy = s->dy;
    char *scratch = run->plan->device->scratch, *pairs = scratch + s->at_pairs, *planes = scratch + s->at_planes;
    const int64_t line = run->first - s->top + i, last = run->lines + s->kernel_h - 2;
    const bool inside = line >= 0 && line < dy->shape.h;
    cpu_tile_planes(line_of(dy, run->image, inside ? line : 0), dy->pixel_stride * 2, inside ? dy->shape.w : 0,
                    s->margin, s->pitch, dy->shape.c, planes + i * s->pitch * 2, s->plane_bytes);
    if (i == last)
        for (int64_t c = 0; c < s->outputs * CPU_TILE; c++)
            memset(planes + c * s->plane_bytes + (i + 1) * s->pitch * 2, 0, SLACK * 2);
    if (i >= run->lines)
        return;
    cpu_tile_pairs(line_of(x, run->image, run->first + i), x->pixel_stride * 2, x->shape.w, s->pitch, x->shape.c, pairs,
                   s->block_bytes, i * s->pitch / 2);
    const int64_t used = run->lines * s->pitch / 2 * 64, all = steps_of(run) * CPU_TILE_BYTES;
    for (int64_t b = 0; i == run->lines - 1 && b < s->inputs; b++)
        memset(pairs + b * s->block_bytes + used, 0, (size_t)(all - used));
}

/** Where the rows of a first operand begin. */
static const char *first_operand(const tiles_run *run, int64_t group, int64_t tap)
{
    const tiles_state *s = run->s;
    const int64_t kh = s->by_column ? tap : tap / s->kernel_w;
    const int64_t kw = s->by_column ? s->kernel_w - 1 : tap % s->kernel_w;
    const int64_t plane = s->by_column ? group : group * CPU_TILE;
    return run->plan->device->scratch + s->at_planes + plane * s->plane_bytes +
           ((s->kernel_h - 1 - kh) * s->pitch + s->kernel_w - 1 - kw) * 2;
}

/** The tile of a group's tap and a block of inputs. */
static float *sums_of(const cod_plan *plan, int64_t group, int64_t tap, int64_t input)
{
    const tiles_state *s = plan->state;
    return (float *)(void *)plan->device->scratch + ((group * s->taps + tap) * s->inputs + input) * CPU_TILE_SUMS;
}

/** Two taps of a group and two blocks of inputs, for some of the chunk's steps. */
static void multiply(const tiles_run *run, int64_t group, int64_t tap, int64_t input, int64_t step, int64_t steps)
{
    const tiles_state *s = run->s;
    cpu_tile_product product = {
        .row_bytes = s->by_column ? 2 : s->plane_bytes, .steps = steps, .accumulate = run->accumulate || step > 0};
    for (int64_t k = 0; k < 2; k++) {
        if (tap + k < s->taps)
            product.planes[k] = first_operand(run, group, tap + k) + step * CPU_TILE_PIXELS * 2;
        if (input + k < s->inputs)
            product.pairs[k] =
                run->plan->device->scratch + s->at_pairs + (input + k) * s->block_bytes + step * CPU_TILE_BYTES;
        for (int64_t j = 0; j < 2; j++)
            product.sums[k][j] = sums_of(run->plan, group, tap + k, input + j);
    }
    cpu_tile_multiply(&product);
}

/**
 * Task i: a part of the taps of a group, for two blocks of inputs. The inner loop is over taps, so that what STEPS
 * steps read comes from the first-level cache for all taps but the first.
 */
static void multiply_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_state *s = run->s;
    const int64_t part = i % s->parts, group = i / s->parts % s->groups, input = i / s->parts / s->groups * 2;
    const int64_t pairs = (s->taps + 1) / 2, first = part * pairs / s->parts, end = (part + 1) * pairs / s->parts;
    const int64_t steps = steps_of(run);
    cpu_tile_begin(s->by_column ? (int)s->kernel_w : CPU_TILE);
    for (int64_t step = 0; step < steps; step += STEPS)
        for (int64_t pair = first; pair < end; pair++)
            multiply(run, group, 2 * pair, input, step, cpu_least(steps - step, STEPS));
    cpu_tile_end();
}

/** Task o: an output's gradient from the sums. */
static void store_task(void *context, int64_t o, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_state *s = run->s;
    const int64_t channels = s->x->shape.c, positions = s->kernel_h * s->kernel_w;
    float *dw = (float *)cod_view_host(&run->plan->op.outputs[0]) + o * positions * channels;
    for (int64_t position = 0; position < positions; position++) {
        const int64_t kh = position / s->kernel_w, kw = position % s->kernel_w;
        const int64_t group = s->by_column ? o : o / CPU_TILE, tap = s->by_column ? kh : position;
        const int64_t row = s->by_column ? s->kernel_w - 1 - kw : o % CPU_TILE;
        for (int64_t c = 0; c < channels; c++) {
            const float sum = sums_of(run->plan, group, tap, c / CPU_TILE)[row * CPU_TILE + c % CPU_TILE];
            float *to = dw + position * channels + c;
            *to = run->plan->op.accumulate ? *to + sum : sum;
        }
    }
}

static cod_status tiles_run_plan(cod_plan *plan)
{
    const tiles_state *s = plan->state;
    tiles_run run = {.plan = plan, .s = s};
    for (run.image = 0; run.image < s->x->shape.n; run.image++) {
        for (run.first = 0; run.first < s->x->shape.h; run.first += s->lines) {
            run.lines = cpu_least(s->x->shape.h - run.first, s->lines);
            cpu_parallel_for(plan->device, run.lines + s->kernel_h - 1, layout_task, &run);
            cpu_parallel_for(plan->device, s->parts * s->groups * ((s->inputs + 1) / 2), multiply_task, &run);
            run.accumulate = true;
        }
    }
    cpu_parallel_for(plan->device, s->dy->shape.c, store_task, &run);
    if (cpu_present(&plan->op.outputs[1]))
        cpu_bias_gradient(plan);
    return COD_OK;
}

cod_status cpu_plan_tiles(cod_plan *plan)
{
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(tiles_state)));
    tiles_state *s = plan->state;
    const cod_op *op = &plan->op;
    const cod_shape w = op->outputs[0].shape;
    s->x = &op->inputs[0], s->dy = &op->inputs[1];
    s->kernel_h = w.h, s->kernel_w = w.w;
    s->top = w.h - 1 - op->attr.pad_h, s->margin = w.w - 1 - op->attr.pad_w;
    s->pitch = round_up(s->x->shape.w + op->attr.pad_w, 2);
    s->inputs = round_up(w.c, CPU_TILE) / CPU_TILE, s->outputs = round_up(w.n, CPU_TILE) / CPU_TILE;
    s->by_column = w.n < CPU_TILE && w.n < w.w;
    s->groups = s->by_column ? w.n : s->outputs;
    s->taps = s->by_column ? w.h : w.h * w.w;
    const int64_t tasks = s->groups * ((s->inputs + 1) / 2);
    s->parts = cpu_least((s->taps + 1) / 2, (plan->device->threads + tasks - 1) / tasks);
    const int64_t line_bytes = s->pitch * 2 * CPU_TILE * (s->inputs + s->outputs);
    s->lines = cpu_least(cpu_greatest(CHUNK_BYTES / line_bytes, w.h), s->x->shape.h);
    s->block_bytes = round_up(s->lines * s->pitch, CPU_TILE_PIXELS) / CPU_TILE_PIXELS * CPU_TILE_BYTES;
    s->plane_bytes = round_up(((s->lines + w.h - 1) * s->pitch + SLACK) * 2, 64);
    s->plane_bytes += s->plane_bytes / 64 % 2 == 0 ? 64 : 0; /* planes would share sets of the first-level cache */
    const size_t bias_bytes = 3 * (size_t)cpu_padded(w.n) * sizeof(float);
    const size_t sum_bytes = (size_t)(s->groups * s->taps * s->inputs * CPU_TILE_SUMS) * sizeof(float);
    s->at_pairs = cod_align_up(bias_bytes > sum_bytes ? bias_bytes : sum_bytes);
    s->at_planes = s->at_pairs + (size_t)(s->inputs * s->block_bytes);
    plan->run = tiles_run_plan;
    return cpu_plan_need_scratch(plan, s->at_planes + (size_t)(s->outputs * CPU_TILE * s->plane_bytes));
}
#else
cod_status cpu_plan_tiles(cod_plan *plan)
{
    (void)plan;
    return cod_fail(COD_ERR_UNSUPPORTED, "this processor has no AMX");
}
#endif

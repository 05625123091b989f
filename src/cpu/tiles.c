/*
 * Weight gradients on AMX's tiles: lines of x and dy are copied to scratch as tiles take them, a chunk that fits the
 * second-level cache at a time, and multiplied there. One task adds up all products of a sum, in an order that shapes
 * alone decide, so results are the same for any number of threads.
 *
 * With stride 2, every second line and column of the kernel meets every second line and column of x. Each of these four
 * *phases* is a gradient with stride 1 of a smaller picture and kernel, and is computed as one.
 */
#include "core/memory.h"
#include "cpu/axis_internal.h"
#include "cpu/cpu_internal.h"
#include "cpu/stack_internal.h"
#include "cpu/tiles_internal.h"

#include <string.h>

enum {
    STEPS = 8,  /**< of CPU_TILE_PIXELS pixels, for all taps of a group before the next */
    SLACK = 64, /**< pixels behind the last line of a plane that a step may read */
    MOST_STRIDE = 2,
};

typedef struct tiles_phase {
    cpu_axis high, wide;
    int64_t line, column;    /**< of x, where it begins */
    int64_t top, margin;     /**< lines above dy and zeros left of it: as the last tap of a direction wants them */
    int64_t pitch;           /**< pixels of a line; even, so that no pair has pixels of two lines */
    cpu_stack stack;         /**< of x; its period is such that no tap of an image reaches the next */
    int64_t inputs, outputs; /**< tiles of 16 channels */
    bool by_column;          /**< rows of the first operand are columns of the kernel, not outputs */
    int64_t groups;          /**< blocks of outputs; by column: outputs */
    int64_t taps;            /**< positions of the kernel; by column: its lines */
    int64_t parts;           /**< that a group's taps are cut into, so that all threads have work */
    int64_t block_bytes;     /**< of a block of x's channels */
    int64_t plane_bytes;
    size_t at_pairs, at_planes, bytes; /**< in scratch, behind the sums */
} tiles_phase;

typedef struct tiles_state {
    const cod_view *x, *dy;
    int64_t stride_h, stride_w;
    int64_t shuffle; /**< dy's pixels are shuffled by this factor, or 1 */
    tiles_phase phases[MOST_STRIDE * MOST_STRIDE];
} tiles_state;

/** Whether no phase has more padding than its kernel can meet. */
static bool padding_fits(int64_t kernel, int64_t pad, int64_t stride)
{
    for (int64_t phase = 0; phase < stride; phase++) {
        const cpu_axis axis = cpu_axis_of(stride, kernel, pad, stride, phase);
        if (axis.taps > 0 && axis.pad >= axis.taps)
            return false;
    }
    return true;
}

bool cpu_tiles_fits(const cod_device *device, const cod_op *op)
{
#if defined(__x86_64__)
    const cod_view *x = &op->inputs[0], *dy = &op->inputs[1];
    const cod_shape w = op->outputs[0].shape;
    const cod_op_attr *attr = &op->attr;
    return device->amx && device->native_bf16 && op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS && x->dtype == COD_BF16 &&
           dy->dtype == COD_BF16 && (cod_op_shuffle(attr) == 1 || dy->shape.c % CPU_TILE == 0) && w.h * w.w > 1 &&
           w.w <= CPU_TILE && attr->stride_h <= MOST_STRIDE && attr->stride_w <= MOST_STRIDE &&
           padding_fits(w.h, attr->pad_h, attr->stride_h) && padding_fits(w.w, attr->pad_w, attr->stride_w);
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
    const tiles_phase *p;
    cpu_stack_chunk chunk; /**< of x */
    bool accumulate;
} tiles_run;

static int64_t steps_of(const tiles_run *run)
{
    return (run->chunk.lines * run->p->pitch + CPU_TILE_PIXELS - 1) / CPU_TILE_PIXELS;
}

/**
 * The line that lies `line` lines below the first image's first one, images being `period` apart; NULL between them.
 */
static const char *line_of(const tiles_run *run, const cod_view *view, int64_t line, int64_t stride, int64_t first)
{
    const int64_t period = run->p->stack.period, end = run->chunk.image + run->chunk.images;
    const int64_t image = run->chunk.image + line / period, inside = first + line % period * stride;
    if (line < 0 || image >= end || inside >= view->shape.h)
        return NULL;
    return (const char *)cod_view_host(view) +
           (image * view->shape.h + inside) * view->shape.w * view->pixel_stride * 2;
}

/** Line i of the planes. Where pixels are shuffled, every r-th of every r-th line belongs to the same outputs. */
static void layout_dy(const tiles_run *run, int64_t i, char *planes)
{
    const tiles_phase *p = run->p;
    const cod_view *dy = run->s->dy;
    const int64_t r = run->s->shuffle, pixel_bytes = dy->pixel_stride * 2;
    for (int64_t o = 0; o < r * r; o++) {
        const char *line = line_of(run, dy, run->chunk.first - p->top + i, r, o / r);
        cpu_tile_planes(line != NULL ? line + o % r * pixel_bytes : NULL, r * pixel_bytes,
                        line != NULL ? dy->shape.w / r : 0, p->margin, p->pitch, dy->shape.c,
                        planes + o * p->plane_bytes + i * p->pitch * 2, r * r * p->plane_bytes);
    }
}

/** Line i of the pairs. */
static void layout_x(const tiles_run *run, int64_t i, char *pairs)
{
    const tiles_phase *p = run->p;
    const tiles_state *s = run->s;
    const int64_t pixel_bytes = s->x->pixel_stride * 2;
    const char *line = line_of(run, s->x, run->chunk.first + i, s->stride_h, p->line);
    cpu_tile_pairs(line != NULL ? line + p->column * pixel_bytes : NULL, s->stride_w * pixel_bytes,
                   line != NULL ? p->wide.pixels : 0, p->pitch, s->x->shape.c, pairs, p->block_bytes, i * p->pitch / 2);
}

/**
 * Task i: line i of the planes, and of x where the chunk has one. The last of both also clear what steps read behind
 * them.
 */
static void layout_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_phase *p = run->p;
    char *scratch = run->plan->device->scratch, *pairs = scratch + p->at_pairs, *planes = scratch + p->at_planes;
    layout_dy(run, i, planes);
    if (i == run->chunk.lines + p->high.taps - 2)
        for (int64_t c = 0; c < p->outputs * CPU_TILE; c++)
            memset(planes + c * p->plane_bytes + (i + 1) * p->pitch * 2, 0, SLACK * 2);
    if (i >= run->chunk.lines)
        return;
    layout_x(run, i, pairs);
    const int64_t used = run->chunk.lines * p->pitch / 2 * 64, all = steps_of(run) * CPU_TILE_BYTES;
    for (int64_t b = 0; i == run->chunk.lines - 1 && b < p->inputs; b++)
        memset(pairs + b * p->block_bytes + used, 0, (size_t)(all - used));
}

/** Where the rows of a first operand begin. */
static const char *first_operand(const tiles_run *run, int64_t group, int64_t tap)
{
    const tiles_phase *p = run->p;
    const int64_t kh = p->by_column ? tap : tap / p->wide.taps;
    const int64_t kw = p->by_column ? p->wide.taps - 1 : tap % p->wide.taps;
    const int64_t plane = p->by_column ? group : group * CPU_TILE;
    return run->plan->device->scratch + p->at_planes + plane * p->plane_bytes +
           ((p->high.taps - 1 - kh) * p->pitch + p->wide.taps - 1 - kw) * 2;
}

/** The tile of a group's tap and a block of inputs. */
static float *sums_of(const tiles_run *run, int64_t group, int64_t tap, int64_t input)
{
    const tiles_phase *p = run->p;
    float *sums = (float *)(void *)run->plan->device->scratch;
    return sums + ((group * p->taps + tap) * p->inputs + input) * CPU_TILE_SUMS;
}

/** Two taps of a group and two blocks of inputs, for some of the chunk's steps. */
static void multiply(const tiles_run *run, int64_t group, int64_t tap, int64_t input, int64_t step, int64_t steps)
{
    const tiles_phase *p = run->p;
    cpu_tile_product product = {
        .row_bytes = p->by_column ? 2 : p->plane_bytes, .steps = steps, .accumulate = run->accumulate || step > 0};
    for (int64_t k = 0; k < 2; k++) {
        if (tap + k < p->taps)
            product.planes[k] = first_operand(run, group, tap + k) + step * CPU_TILE_PIXELS * 2;
        if (input + k < p->inputs)
            product.pairs[k] =
                run->plan->device->scratch + p->at_pairs + (input + k) * p->block_bytes + step * CPU_TILE_BYTES;
        for (int64_t j = 0; j < 2; j++)
            product.sums[k][j] = sums_of(run, group, tap + k, input + j);
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
    const tiles_phase *p = run->p;
    const int64_t part = i % p->parts, group = i / p->parts % p->groups, input = i / p->parts / p->groups * 2;
    const int64_t pairs = (p->taps + 1) / 2, first = part * pairs / p->parts, end = (part + 1) * pairs / p->parts;
    const int64_t steps = steps_of(run);
    cpu_tile_begin(p->by_column ? (int)p->wide.taps : CPU_TILE);
    for (int64_t step = 0; step < steps; step += STEPS)
        for (int64_t pair = first; pair < end; pair++)
            multiply(run, group, 2 * pair, input, step, cpu_least(steps - step, STEPS));
    cpu_tile_end();
}

/** Task o: an output's gradient from the sums, at the positions of the phase. */
static void store_task(void *context, int64_t o, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_state *s = run->s;
    const tiles_phase *p = run->p;
    const cod_shape w = run->plan->op.outputs[0].shape;
    float *dw = (float *)cod_view_host(&run->plan->op.outputs[0]) + o * w.h * w.w * w.c;
    for (int64_t i = 0; i < p->high.taps * p->wide.taps; i++) {
        const int64_t kh = i / p->wide.taps, kw = i % p->wide.taps;
        const int64_t group = p->by_column ? o : o / CPU_TILE, tap = p->by_column ? kh : i;
        const int64_t row = p->by_column ? p->wide.taps - 1 - kw : o % CPU_TILE;
        float *to = dw + ((p->high.first_k + s->stride_h * kh) * w.w + p->wide.first_k + s->stride_w * kw) * w.c;
        for (int64_t c = 0; c < w.c; c++, to++) {
            const float sum = sums_of(run, group, tap, c / CPU_TILE)[row * CPU_TILE + c % CPU_TILE];
            *to = run->plan->op.accumulate ? *to + sum : sum;
        }
    }
}

/** One chunk's products. */
static void run_chunk(tiles_run *run)
{
    const tiles_phase *p = run->p;
    cpu_parallel_for(run->plan->device, run->chunk.lines + p->high.taps - 1, layout_task, run);
    cpu_parallel_for(run->plan->device, p->parts * p->groups * ((p->inputs + 1) / 2), multiply_task, run);
    run->accumulate = true;
}

static void run_phase(cod_plan *plan, const tiles_phase *p)
{
    const tiles_state *s = plan->state;
    tiles_run run = {.plan = plan, .s = s, .p = p};
    while (cpu_stack_next(&p->stack, &run.chunk))
        run_chunk(&run);
    cpu_parallel_for(plan->device, plan->op.outputs[0].shape.n, store_task, &run);
}

static cod_status tiles_run_plan(cod_plan *plan)
{
    const tiles_state *s = plan->state;
    for (int64_t i = 0; i < s->stride_h * s->stride_w; i++)
        if (s->phases[i].taps > 0)
            run_phase(plan, &s->phases[i]);
    if (cpu_present(&plan->op.outputs[1]))
        cpu_bias_gradient(plan);
    return COD_OK;
}

static void plan_phase(const cod_plan *plan, tiles_phase *p)
{
    const tiles_state *s = plan->state;
    const cod_shape w = plan->op.outputs[0].shape;
    const int64_t high = s->dy->shape.h / s->shuffle, wide = s->dy->shape.w / s->shuffle;
    p->top = p->high.taps - 1 - p->high.pad, p->margin = p->wide.taps - 1 - p->wide.pad;
    p->pitch = round_up(cpu_greatest(p->wide.pixels + p->wide.pad, p->margin + wide), 2);
    p->stack = (cpu_stack){.images = s->dy->shape.n,
                           .height = p->high.pixels,
                           .period = cpu_greatest(p->high.pixels + p->high.pad, p->top + high)};
    p->inputs = round_up(w.c, CPU_TILE) / CPU_TILE, p->outputs = round_up(w.n, CPU_TILE) / CPU_TILE;
    p->by_column = w.n < CPU_TILE && w.n < p->wide.taps;
    p->groups = p->by_column ? w.n : p->outputs;
    p->taps = p->by_column ? p->high.taps : p->high.taps * p->wide.taps;
    const int64_t tasks = p->groups * ((p->inputs + 1) / 2);
    p->parts = cpu_least((p->taps + 1) / 2, (plan->device->threads + tasks - 1) / tasks);
    cpu_stack_cut(&p->stack, p->pitch * 2 * CPU_TILE * (p->inputs + p->outputs), p->high.taps);
    p->block_bytes = round_up(p->stack.chunk_lines * p->pitch, CPU_TILE_PIXELS) / CPU_TILE_PIXELS * CPU_TILE_BYTES;
    p->plane_bytes = round_up(((p->stack.chunk_lines + p->high.taps - 1) * p->pitch + SLACK) * 2, 64);
    p->plane_bytes += p->plane_bytes / 64 % 2 == 0 ? 64 : 0; /* planes would share sets of the first-level cache */
    const size_t bias_bytes = 3 * (size_t)cpu_padded(w.n) * sizeof(float);
    const size_t sum_bytes = (size_t)(p->groups * p->taps * p->inputs * CPU_TILE_SUMS) * sizeof(float);
    p->at_pairs = cod_align_up(bias_bytes > sum_bytes ? bias_bytes : sum_bytes);
    p->at_planes = p->at_pairs + (size_t)(p->inputs * p->block_bytes);
    p->bytes = p->at_planes + (size_t)(p->outputs * CPU_TILE * p->plane_bytes);
}

cod_status cpu_plan_tiles(cod_plan *plan)
{
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(tiles_state)));
    tiles_state *s = plan->state;
    const cod_op *op = &plan->op;
    const cod_shape w = op->outputs[0].shape;
    s->x = &op->inputs[0], s->dy = &op->inputs[1];
    s->stride_h = op->attr.stride_h, s->stride_w = op->attr.stride_w, s->shuffle = cod_op_shuffle(&op->attr);
    plan->run = tiles_run_plan;
    for (int64_t i = 0; i < s->stride_h * s->stride_w; i++) {
        tiles_phase *p = &s->phases[i];
        p->line = i / s->stride_w, p->column = i % s->stride_w;
        p->high = cpu_axis_of(s->x->shape.h, w.h, op->attr.pad_h, s->stride_h, p->line);
        p->wide = cpu_axis_of(s->x->shape.w, w.w, op->attr.pad_w, s->stride_w, p->column);
        if (p->high.taps * p->wide.taps > 0)
            plan_phase(plan, p);
        COD_TRY(cpu_plan_need_scratch(plan, p->bytes));
    }
    return COD_OK;
}
#else
cod_status cpu_plan_tiles(cod_plan *plan)
{
    (void)plan;
    return cod_fail(COD_ERR_UNSUPPORTED, "this processor has no AMX");
}
#endif

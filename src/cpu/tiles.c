/*
 * Weight gradients on AMX's tiles: lines of x and dy are copied to scratch as tiles take them, a chunk that fits the
 * second-level cache at a time, and multiplied there. One task adds up all products of a sum, in an order that shapes
 * alone decide, so results are the same for any number of threads.
 *
 * With stride 2, every second line and column of the kernel meets every second line and column of x. Each of these four
 * *phases* is a gradient with stride 1 of a smaller picture and kernel; all of them read the same copy of dy.
 *
 * Where x has few channels, most columns of a tile would be empty. What a line of the kernel meets of a line of x lies
 * side by side there, so it is taken for the channels of one position (`flat`), and only lines have phases.
 */
#include "core/memory.h"
#include "cpu/axis_internal.h"
#include "cpu/cpu_internal.h"
#include "cpu/stack_internal.h"
#include "cpu/tiles_internal.h"

#include <string.h>

enum {
    SLACK = 64, /**< pixels behind the last line of a copy of x that a step may read */
    FRONT = 32, /**< zeros before a plane that rows of columns of the kernel may read */
    MOST_STRIDE = 2,
};

typedef struct tiles_phase {
    cpu_axis high, wide;
    int64_t line, column; /**< of x, where it begins */
    int64_t taps;         /**< positions of the kernel; by column: its lines */
    int64_t first_sum;    /**< tiles of sums before its own; unless they are in place */
} tiles_phase;

typedef struct tiles_state {
    const cod_view *x, *dy;
    int64_t stride_h, stride_w;
    int64_t shuffle; /**< dy's pixels are shuffled by this factor, or 1 */
    bool flat;
    bool by_column; /**< rows of the first operand are columns of the kernel, not outputs */
    bool in_place;  /**< sums lie in the gradient, all tiles of which are whole */
    /**
     * Sums that the second-level cache does not hold: they are taken in their order, and by fewer and larger chunks.
     * Others are taken in the order of the taps, which read the same pairs.
     */
    bool many_sums;
    int64_t depth;           /**< channels of x; flat: those of a line of the kernel */
    int64_t output_stride;   /**< of the gradient */
    int64_t inputs, outputs; /**< tiles of 16 channels */
    int64_t groups;          /**< blocks of outputs; by column: outputs */
    int64_t pitch;           /**< pixels of a line; even, so that no pair has pixels of two lines */
    cpu_stack stack;         /**< of dy; its period is such that no tap of an image reaches the next */
    int64_t plane_bytes;
    int64_t copy_bytes, block_bytes; /**< of the pairs of a block of x's channels; of all their copies */
    int64_t phase_count;
    tiles_phase phases[MOST_STRIDE * MOST_STRIDE];
    size_t at_planes, at_pairs, at_lines, line_bytes; /**< in scratch, behind the sums; a line for each thread */
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
    cpu_stack_chunk chunk;      /**< of dy */
    bool accumulate, adds_bias; /**< to what an earlier chunk or the caller left there */
} tiles_run;

static int64_t steps_of(const tiles_run *run)
{
    return (run->chunk.lines * run->s->pitch + CPU_TILE_PIXELS - 1) / CPU_TILE_PIXELS;
}

/**
 * Line `first` + `stride`·k of an image, where k is how far below the image's place in the stack the chunk's line
 * `line` lies, less `above`; NULL between images.
 */
static const char *line_of(const tiles_run *run, const cod_view *view, int64_t line, int64_t above, int64_t stride,
                           int64_t first)
{
    const int64_t period = run->s->stack.period, at = run->chunk.first + line, k = at % period - above;
    const int64_t image = run->chunk.image + at / period, inside = first + k * stride;
    if (k < 0 || image >= run->chunk.image + run->chunk.images || inside >= view->shape.h)
        return NULL;
    return (const char *)cod_view_host(view) +
           (image * view->shape.h + inside) * view->shape.w * view->pixel_stride * 2;
}

/**
 * Task i: line i of the planes. Where pixels are shuffled, every r-th of every r-th line belongs to the same outputs.
 * The first and the last line also clear what is read around them.
 */
static void layout_dy_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_state *s = run->s;
    const cod_view *dy = s->dy;
    const int64_t r = s->shuffle, pixel_bytes = dy->pixel_stride * 2;
    char *planes = run->plan->device->scratch + s->at_planes, *lines = planes + FRONT * 2;
    for (int64_t o = 0; o < r * r; o++) {
        const char *line = line_of(run, dy, i, 0, r, o / r);
        cpu_tile_planes(line != NULL ? line + o % r * pixel_bytes : NULL, r * pixel_bytes,
                        line != NULL ? dy->shape.w / r : 0, s->pitch, dy->shape.c,
                        lines + o * s->plane_bytes + i * s->pitch * 2, r * r * s->plane_bytes);
    }
    for (int64_t c = 0; s->by_column && i == 0 && c < s->outputs * CPU_TILE; c++)
        memset(planes + c * s->plane_bytes, 0, FRONT * 2);
    for (int64_t c = 0; i == run->chunk.lines - 1 && c < s->outputs * CPU_TILE; c++)
        memset(lines + c * s->plane_bytes + (i + 1) * s->pitch * 2, 0, CPU_TILE_PIXELS * 2);
}

/** Copies a line of x with the zeros around it, its pixels side by side; returns where the first output's begin. */
static const char *pad_line(const tiles_run *run, const char *line, int thread)
{
    const tiles_state *s = run->s;
    const cod_shape x = s->x->shape;
    const size_t pixel = (size_t)x.c * 2, before = (size_t)run->plan->op.attr.pad_w * pixel;
    char *begin = run->plan->device->scratch + s->at_lines + (size_t)thread * s->line_bytes, *to = begin + before;
    memset(begin, 0, before);
    for (int64_t i = 0; s->x->pixel_stride != x.c && i < x.w; i++)
        memcpy(to + (size_t)i * pixel, line + i * s->x->pixel_stride * 2, pixel);
    if (s->x->pixel_stride == x.c)
        memcpy(to, line, (size_t)x.w * pixel);
    to += (size_t)x.w * pixel;
    memset(to, 0, (size_t)(begin + s->line_bytes - to));
    return begin;
}

/** Task i: line i of the phase's pairs. The last one also clears what steps read behind them. */
static void layout_x_task(void *context, int64_t i, int thread)
{
    const tiles_run *run = context;
    const tiles_phase *p = run->p;
    const tiles_state *s = run->s;
    const int64_t pixel_bytes = (s->flat ? s->x->shape.c : s->x->pixel_stride) * 2,
                  copies = s->block_bytes / s->copy_bytes;
    const char *line = line_of(run, s->x, i, p->high.pad, s->stride_h, p->line);
    if (line != NULL)
        line = s->flat ? pad_line(run, line, thread) : line + p->column * pixel_bytes;
    char *pairs = run->plan->device->scratch + s->at_pairs;
    const cpu_tile_line to = {.pairs = pairs + i * s->pitch / 2 * CPU_TILE_PAIR_BYTES,
                              .block_bytes = s->block_bytes,
                              .odd_bytes = copies > 1 ? s->copy_bytes : 0,
                              .margin = p->wide.pad,
                              .pitch = s->pitch};
    cpu_tile_pairs(line, s->stride_w * pixel_bytes, line != NULL ? p->wide.pixels : 0, s->depth, &to);
    const int64_t last = run->chunk.lines + p->high.taps - 2;
    for (int64_t b = 0; i == last && b < s->inputs * copies; b++)
        memset(pairs + b * s->copy_bytes + (i + 1) * s->pitch / 2 * CPU_TILE_PAIR_BYTES, 0,
               SLACK / 2 * CPU_TILE_PAIR_BYTES);
}

/** Where the rows of a group's first operand begin. By column, row r is the plane r + 1 - taps pixels further on. */
static const char *first_operand(const tiles_run *run, int64_t group)
{
    const tiles_state *s = run->s;
    const char *planes = run->plan->device->scratch + s->at_planes + FRONT * 2;
    return s->by_column ? planes + group * s->plane_bytes - (run->p->wide.taps - 1) * 2
                        : planes + group * CPU_TILE * s->plane_bytes;
}

/** Line and column of the kernel's position `tap`, of those of the phase. */
typedef struct tiles_tap {
    int64_t high, wide;
} tiles_tap;

static tiles_tap tap_of(const tiles_run *run, int64_t tap)
{
    const int64_t wide = run->s->by_column ? 1 : run->p->wide.taps;
    return (tiles_tap){tap / wide, tap % wide};
}

/** An even number of pixels further on is some pairs further on; odd ones are so in the copy that is a pixel ahead. */
static const char *second_operand(const tiles_run *run, int64_t tap, int64_t input)
{
    const tiles_state *s = run->s;
    const tiles_tap t = tap_of(run, tap);
    const int64_t pixels = t.high * s->pitch + t.wide;
    return run->plan->device->scratch + s->at_pairs + input * s->block_bytes + t.wide % 2 * s->copy_bytes +
           pixels / 2 * CPU_TILE_PAIR_BYTES;
}

/** Where the phase's position at (high, wide) begins in an output's gradient. */
static int64_t place_of(const tiles_run *run, int64_t high, int64_t wide)
{
    const tiles_state *s = run->s;
    const cod_shape w = run->plan->op.outputs[0].shape;
    return ((run->p->high.first_k + s->stride_h * high) * w.w + run->p->wide.first_k + s->stride_w * wide) * w.c;
}

/** The tile of a group's tap and a block of inputs. */
static float *sums_of(const tiles_run *run, int64_t group, int64_t tap, int64_t input)
{
    const tiles_state *s = run->s;
    const tiles_tap t = tap_of(run, tap);
    if (s->in_place)
        return (float *)cod_view_host(&run->plan->op.outputs[0]) + group * CPU_TILE * s->output_stride +
               place_of(run, t.high, t.wide) + input * CPU_TILE;
    float *sums = (float *)(void *)run->plan->device->scratch;
    return sums + (run->p->first_sum + (group * run->p->taps + tap) * s->inputs + input) * CPU_TILE_SUMS;
}

static int64_t operands_of(const tiles_run *run)
{
    return run->p->taps * run->s->inputs;
}

static int64_t products_of(const tiles_run *run)
{
    return (operands_of(run) + CPU_TILE_PRODUCTS - 1) / CPU_TILE_PRODUCTS;
}

/** Task i: all of the chunk's products of a group and some second operands, each of a tap and a block of inputs. */
static void multiply_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_state *s = run->s;
    const int64_t group = i / products_of(run), first = i % products_of(run) * CPU_TILE_PRODUCTS;
    cpu_tile_product product = {.planes = first_operand(run, group),
                                .row_bytes = s->by_column ? 2 : s->plane_bytes,
                                .sum_stride = s->in_place ? s->output_stride : CPU_TILE,
                                .count = (int)cpu_least(operands_of(run) - first, CPU_TILE_PRODUCTS),
                                .steps = steps_of(run),
                                .accumulate = run->accumulate};
    for (int64_t k = 0; k < product.count; k++) {
        const int64_t operand = first + k, taps = run->p->taps;
        const int64_t tap = s->many_sums ? operand / s->inputs : operand % taps;
        const int64_t input = s->many_sums ? operand % s->inputs : operand / taps;
        product.pairs[k] = second_operand(run, tap, input);
        product.sums[k] = sums_of(run, group, tap, input);
    }
    cpu_tile_begin(s->by_column ? (int)run->p->wide.taps : CPU_TILE);
    cpu_tile_multiply(&product);
    cpu_tile_end();
}

/** Task o: adds the chunk's part to the gradient of an output's bias; planes have zeros between lines. */
static void bias_task(void *context, int64_t o, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_state *s = run->s;
    float *db = cod_view_host(&run->plan->op.outputs[1]);
    const char *plane = run->plan->device->scratch + s->at_planes + FRONT * 2 + o * s->plane_bytes;
    const float sum = cpu_tile_plane_sum(plane, run->chunk.lines * s->pitch);
    db[o] = run->adds_bias ? db[o] + sum : sum;
}

/** Task o: an output's gradient from the sums, at the positions of the phase. */
static void store_task(void *context, int64_t o, int thread)
{
    (void)thread;
    const tiles_run *run = context;
    const tiles_state *s = run->s;
    const tiles_phase *p = run->p;
    float *dw = (float *)cod_view_host(&run->plan->op.outputs[0]) + o * s->output_stride;
    for (int64_t i = 0; i < p->high.taps * p->wide.taps; i++) {
        const int64_t kh = i / p->wide.taps, kw = i % p->wide.taps;
        const int64_t group = s->by_column ? o : o / CPU_TILE, tap = s->by_column ? kh : i;
        const int64_t row = s->by_column ? p->wide.taps - 1 - kw : o % CPU_TILE;
        float *to = dw + place_of(run, kh, kw);
        for (int64_t c = 0; c < s->depth; c += CPU_TILE) {
            const float *sums = sums_of(run, group, tap, c / CPU_TILE) + row * CPU_TILE;
            for (int64_t k = 0; k < cpu_least(s->depth - c, CPU_TILE); k++)
                to[c + k] = run->plan->op.accumulate ? to[c + k] + sums[k] : sums[k];
        }
    }
}

static void run_chunk(tiles_run *run)
{
    const cod_device *device = run->plan->device;
    const tiles_state *s = run->s;
    cpu_parallel_for(device, run->chunk.lines, layout_dy_task, run);
    if (cpu_present(&run->plan->op.outputs[1]))
        cpu_parallel_for(device, run->plan->op.outputs[0].shape.n, bias_task, run);
    for (run->p = s->phases; run->p < s->phases + s->phase_count; run->p++) {
        cpu_parallel_for(device, run->chunk.lines + run->p->high.taps - 1, layout_x_task, run);
        cpu_parallel_for(device, s->groups * products_of(run), multiply_task, run);
    }
    run->accumulate = run->adds_bias = true;
}

static cod_status tiles_run_plan(cod_plan *plan)
{
    const tiles_state *s = plan->state;
    const bool adds = plan->op.accumulate;
    tiles_run run = {.plan = plan, .s = s, .accumulate = s->in_place && adds, .adds_bias = adds};
    while (cpu_stack_next(&s->stack, &run.chunk))
        run_chunk(&run);
    for (run.p = s->phases; !s->in_place && run.p < s->phases + s->phase_count; run.p++)
        cpu_parallel_for(plan->device, plan->op.outputs[0].shape.n, store_task, &run);
    return COD_OK;
}

/** The phases that positions of the kernel meet, and how far apart lines and images are for all of them. */
static void plan_phases(const cod_plan *plan, tiles_state *s)
{
    const cod_op_attr *attr = &plan->op.attr;
    const cod_shape w = plan->op.outputs[0].shape, x = s->x->shape;
    const int64_t high = s->dy->shape.h / s->shuffle, wide = s->dy->shape.w / s->shuffle;
    const int64_t columns = s->flat ? 1 : s->stride_w;
    s->stack = (cpu_stack){.images = s->dy->shape.n, .height = high};
    for (int64_t i = 0; i < s->stride_h * columns; i++) {
        tiles_phase *p = &s->phases[s->phase_count];
        *p = (tiles_phase){.line = i / columns, .column = i % columns};
        p->high = cpu_axis_of(x.h, w.h, attr->pad_h, s->stride_h, p->line);
        p->wide = s->flat ? (cpu_axis){.taps = 1, .pixels = wide}
                          : cpu_axis_of(x.w, w.w, attr->pad_w, s->stride_w, p->column);
        if (p->high.taps * p->wide.taps == 0)
            continue;
        s->pitch =
            cpu_greatest(s->pitch, cpu_greatest(p->wide.pixels + p->wide.pad, wide + p->wide.taps - 1 - p->wide.pad));
        s->stack.period = cpu_greatest(
            s->stack.period, cpu_greatest(p->high.pixels + p->high.pad, high + p->high.taps - 1 - p->high.pad));
        s->phase_count++;
    }
    s->pitch = round_up(s->pitch, 2);
}

/** Where sums and copies lie, and how large they are. */
static size_t lay_out_scratch(const cod_plan *plan, tiles_state *s)
{
    const cod_shape w = plan->op.outputs[0].shape;
    int64_t sums = 0, lines = 0, copies = 1;
    for (tiles_phase *p = s->phases; p < s->phases + s->phase_count; p++) {
        p->taps = s->by_column ? p->high.taps : p->high.taps * p->wide.taps;
        p->first_sum = sums;
        sums += s->in_place ? 0 : s->groups * p->taps * s->inputs;
        lines = cpu_greatest(lines, p->high.taps);
        copies = p->wide.taps > 1 && !s->by_column ? 2 : copies;
    }
    s->many_sums = cod_shape_count(w) * (int64_t)sizeof(float) > CPU_STACK_CHUNK_BYTES;
    cpu_stack_cut(&s->stack, (s->many_sums ? 2 : 1) * CPU_STACK_CHUNK_BYTES,
                  s->pitch * 2 * CPU_TILE * (copies * s->inputs + s->outputs), lines);
    lines += s->stack.chunk_lines - 1;
    s->copy_bytes = (lines * s->pitch + SLACK) / 2 * CPU_TILE_PAIR_BYTES;
    s->block_bytes = copies * s->copy_bytes;
    s->plane_bytes = round_up((FRONT + s->stack.chunk_lines * s->pitch + CPU_TILE_PIXELS) * 2, 64);
    s->plane_bytes += s->plane_bytes / 64 % 2 == 0 ? 64 : 0; /* planes would share sets of the first-level cache */
    s->at_planes = cod_align_up((size_t)(sums * CPU_TILE_SUMS) * sizeof(float));
    s->at_pairs = s->at_planes + (size_t)(s->outputs * CPU_TILE * s->plane_bytes);
    s->at_lines = s->at_pairs + (size_t)(s->inputs * s->block_bytes);
    const int64_t met =
        cpu_greatest(s->x->shape.w + 2 * plan->op.attr.pad_w, s->stride_w * s->phases->wide.pixels + w.w);
    s->line_bytes = s->flat ? cod_align_up((size_t)(met * w.c * 2)) : 0;
    return s->at_lines + (size_t)plan->device->threads * s->line_bytes;
}

cod_status cpu_plan_tiles(cod_plan *plan)
{
    enum { FEW = 8 };
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(tiles_state)));
    tiles_state *s = plan->state;
    const cod_op *op = &plan->op;
    const cod_shape w = op->outputs[0].shape;
    plan->run = tiles_run_plan;
    s->x = &op->inputs[0], s->dy = &op->inputs[1];
    s->stride_h = op->attr.stride_h, s->stride_w = op->attr.stride_w, s->shuffle = cod_op_shuffle(&op->attr);
    s->flat = w.c <= FEW && w.w > 1;
    s->depth = s->flat ? w.w * w.c : w.c;
    s->inputs = round_up(s->depth, CPU_TILE) / CPU_TILE, s->outputs = round_up(w.n, CPU_TILE) / CPU_TILE;
    s->output_stride = w.h * w.w * w.c;
    s->by_column = !s->flat && w.n < CPU_TILE && w.n < w.w / s->stride_w;
    s->groups = s->by_column ? w.n : s->outputs;
    s->in_place = !s->by_column && w.n % CPU_TILE == 0 && s->depth % CPU_TILE == 0;
    plan_phases(plan, s);
    return cpu_plan_need_scratch(plan, lay_out_scratch(plan, s));
}
#else
cod_status cpu_plan_tiles(cod_plan *plan)
{
    (void)plan;
    return cod_fail(COD_ERR_UNSUPPORTED, "this processor has no AMX");
}
#endif

/*
 * Convolutions of bf16 with stride 2 on AMX's tiles, forward and backward data, as convolutions with stride 1
 * (axis_internal.h).
 *
 * What is read is copied to scratch, a chunk that fits the second-level cache at a time: forward, each phase of x
 * apart; backward data, dy. Zeros lie between a copy's lines and pictures, so that pixels are rows of products, one
 * behind the other, and a tap is an offset to them. What products give for the zeros' places is left out. Forward adds
 * all phases' taps up for each output; backward data gives each phase of dx its own.
 */
#include "core/memory.h"
#include "cpu/axis_internal.h"
#include "cpu/cpu_internal.h"
#include "cpu/stack_internal.h"
#include "cpu/tiles_internal.h"

#include <string.h>

enum {
    STRIDE = 2,
    PHASES = STRIDE * STRIDE,
    ROWS = 32,      /**< of a block of products */
    COLUMNS = 32,   /**< of one, at most: a panel of channels */
    STEP = 32,      /**< elements of the depth that AMX takes at a time */
    MOST_TAPS = 64, /**< of a kernel */
};

/** A position of the kernel. */
typedef struct phased_tap {
    int64_t plane;       /**< copy that it reads */
    int64_t down, right; /**< where it begins to read, lines and pixels from the first result's place */
    int64_t position;    /**< in the kernel */
} phased_tap;

typedef struct phased_result {
    const phased_tap *taps;
    int64_t tap_count;
    int64_t h, w, line, column; /**< size, and place of the first pixel in `to` */
    int32_t *packed;            /**< [panel][tap][depth / 2][columns of the panel] pairs */
} phased_result;

typedef struct phased_state {
    bool data;
    const cod_view *from, *to;
    cod_shape w;
    cpu_axis high[STRIDE], wide[STRIDE];
    phased_result results[PHASES]; /**< forward: one */
    int64_t result_count, plane_count;
    int64_t step;        /**< from result to result in `to`, lines and pixels */
    int64_t depth;       /**< channels of `from` */
    int64_t above, left; /**< zeros */
    int64_t below;       /**< lines behind a chunk's results that its taps read */
    int64_t pitch;
    cpu_stack stack; /**< of results */
    int64_t row_bytes, plane_bytes;
    char *rounded; /**< weights in bf16 */
    int32_t *packed;
    phased_tap *taps;
    size_t at_planes, at_threads; /**< in scratch, behind the activation's vectors */
} phased_state;

bool cpu_phased_fits(const cod_device *device, const cod_op *op)
{
    const bool forward = op->kind == COD_OP_CONV2D;
    const cod_shape w = op->inputs[1].shape;
    const cod_op_attr *attr = &op->attr;
    if (!forward && op->kind != COD_OP_CONV2D_BACKWARD_DATA)
        return false;
    const bool geometry =
        attr->stride_h == STRIDE && attr->stride_w == STRIDE && cod_op_shuffle(attr) == 1 && w.h * w.w <= MOST_TAPS;
    const int64_t depth = forward ? w.c : w.n, columns = forward ? w.n : w.c;
    return geometry && op->inputs[0].dtype == COD_BF16 && device->amx && device->native_bf16 && depth % STEP == 0 &&
           columns % CPU_PAD == 0 && (!forward || (attr->int8_range <= 0 && cpu_activation_of(attr) == CPU_ACT_SLOPE));
}

#if defined(__x86_64__)
static void phased_destroy(void *memory)
{
    phased_state *s = memory;
    cod_aligned_free(s->rounded);
    cod_aligned_free(s->packed);
    cod_aligned_free(s->taps);
    cod_aligned_free(s);
}

/* Weights. */

typedef struct pack_run {
    const cod_plan *plan;
    const phased_result *result;
} pack_run;

static int64_t columns_of(const phased_state *s, int64_t panel)
{
    return cpu_least(s->to->shape.c - panel * COLUMNS, COLUMNS);
}

static int64_t panels_of(const phased_state *s)
{
    return (s->to->shape.c + COLUMNS - 1) / COLUMNS;
}

/** A panel's weights. */
static int32_t *packed_of(const phased_state *s, const phased_result *result, int64_t panel)
{
    return result->packed + result->tap_count * s->depth / 2 * panel * COLUMNS;
}

/** Task i: one panel of a result. */
static void pack_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const pack_run *run = context;
    const phased_state *s = run->plan->state;
    const cpu_kernels *kernels = run->plan->device->kernels;
    const int64_t columns = columns_of(s, i), first = i * COLUMNS, row_bytes = s->w.h * s->w.w * s->w.c * 2;
    int32_t *to = packed_of(s, run->result, i);
    for (int64_t t = 0; t < run->result->tap_count; t++, to += s->depth / 2 * columns) {
        const char *from = s->rounded + run->result->taps[t].position * s->w.c * 2;
        if (s->data)
            kernels->lanes_pair(from + first * 2, row_bytes, s->depth, columns, true, to, columns);
        else
            kernels->lanes_spread(from + first * row_bytes, row_bytes, columns, s->depth * 2, 0, to, columns);
    }
}

static cod_status phased_prepare(cod_plan *plan)
{
    const phased_state *s = plan->state;
    const int64_t positions = s->w.n * s->w.h * s->w.w;
    const cpu_rows from = {cod_view_host(&plan->op.inputs[1]), s->w.c, false}, to = {s->rounded, s->w.c, true};
    plan->device->kernels->add(from, (cpu_rows){0}, to, positions, s->w.c, 1, 0, false);
    for (int64_t r = 0; r < s->result_count; r++)
        cpu_parallel_for(plan->device, panels_of(s), pack_task, &(pack_run){plan, &s->results[r]});
    return COD_OK;
}

/* Copies. */

typedef struct phased_run {
    const cod_plan *plan;
    cpu_stack_chunk chunk; /**< of results */
} phased_run;

static char *plane_of(const cod_plan *plan, int64_t plane)
{
    const phased_state *s = plan->state;
    return plan->device->scratch + s->at_planes + plane * s->plane_bytes;
}

static int64_t copied_lines(const phased_state *s, int64_t lines)
{
    return s->above + lines + s->below;
}

/** Task i: one line of a plane. */
static void copy_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const phased_run *run = context;
    const phased_state *s = run->plan->state;
    const int64_t lines = copied_lines(s, run->chunk.lines), plane = i / lines;
    const int64_t at = run->chunk.first + i % lines - s->above;
    const int64_t down = plane / STRIDE, right = plane % STRIDE, step = s->data ? 1 : STRIDE;
    const int64_t height = s->data ? s->from->shape.h : s->high[down].pixels;
    const int64_t width = s->data ? s->from->shape.w : s->wide[right].pixels;
    const int64_t image = run->chunk.image + at / s->stack.period, line = at % s->stack.period;
    char *to = plane_of(run->plan, plane) + i % lines * s->pitch * s->row_bytes;
    if (i % lines == lines - 1) /* taps at the end of a line see the zeros that the next one begins with */
        memset(to + s->pitch * s->row_bytes, 0, (size_t)(s->left * s->row_bytes));
    if (at < 0 || image >= run->chunk.image + run->chunk.images || line >= height) {
        memset(to, 0, (size_t)(s->pitch * s->row_bytes));
        return;
    }
    const int64_t pixel = (image * s->from->shape.h + line * step + down) * s->from->shape.w + right;
    const int64_t stride = s->from->pixel_stride * 2;
    const char *from = (const char *)cod_view_host(s->from) + pixel * stride;
    memset(to, 0, (size_t)(s->left * s->row_bytes));
    to += s->left * s->row_bytes;
    for (int64_t p = 0; p < width; p++, to += s->row_bytes)
        memcpy(to, from + p * step * stride, (size_t)s->depth * 2);
    memset(to, 0, (size_t)((s->pitch - s->left - width) * s->row_bytes));
}

/* Products. */

/** Stores rows of a result that are results, and not places between lines or pictures. */
static void store(const phased_run *run, const phased_result *result, int64_t row, const float *sums, int64_t column,
                  int64_t columns)
{
    const cod_plan *plan = run->plan;
    const phased_state *s = plan->state;
    const int64_t end = cpu_least(row + ROWS, run->chunk.lines * s->pitch);
    const cpu_affine affine =
        cpu_biased_from((const float *)(const void *)plan->device->scratch, s->to->shape.c, column);
    for (int64_t r = row, pixels; r < end; r += pixels) {
        const int64_t at = run->chunk.first + r / s->pitch, x = r % s->pitch, line = at % s->stack.period;
        pixels = cpu_least(end - r, s->pitch - x);
        const int64_t inside = cpu_least(pixels, result->w - x);
        if (line >= result->h || inside <= 0)
            continue;
        const int64_t image = run->chunk.image + at / s->stack.period;
        cpu_rows to = cpu_rows_from(cpu_rows_of(s->to),
                                    (image * s->to->shape.h + result->line + s->step * line) * s->to->shape.w +
                                        result->column + s->step * x);
        to.data += column * (to.bf16 ? 2 : 4);
        to.stride *= s->step;
        const cpu_rows from = {(char *)(uintptr_t)(sums + (r - row) * COLUMNS), COLUMNS, false};
        if (s->data)
            plan->device->kernels->add(from, (cpu_rows){0}, to, inside, columns, 1, 0, plan->op.accumulate);
        else
            plan->device->kernels->affine(from, to, inside, columns, CPU_ACT_SLOPE, &affine);
    }
}

/** Task i: one panel of a result. */
static void multiply_task(void *context, int64_t i, int thread)
{
    const phased_run *run = context;
    const cod_plan *plan = run->plan;
    const phased_state *s = plan->state;
    const int64_t panel = i % panels_of(s), columns = columns_of(s, panel), rows = run->chunk.lines * s->pitch;
    const phased_result *result = &s->results[i / panels_of(s)];
    float *sums = (float *)(void *)cpu_thread_scratch(plan, s->at_threads, ROWS * COLUMNS * sizeof(float), thread);
    const char *taps[MOST_TAPS];
    cpu_tile_rows product = {.taps = taps,
                             .tap_count = result->tap_count,
                             .row_bytes = s->row_bytes,
                             .steps = s->depth / STEP,
                             .b = packed_of(s, result, panel),
                             .columns = columns,
                             .c = sums,
                             .c_stride = COLUMNS,
                             .two_columns = columns > CPU_TILE};
    cpu_tile_begin(CPU_TILE);
    for (int64_t row = 0; row < rows; row += ROWS) {
        for (int64_t t = 0; t < product.tap_count; t++) {
            const phased_tap *tap = &result->taps[t];
            taps[t] = plane_of(plan, tap->plane) +
                      ((s->above + tap->down) * s->pitch + s->left + tap->right + row) * s->row_bytes;
        }
        product.two_rows = rows - row > CPU_TILE;
        cpu_tile_multiply_rows(&product);
        store(run, result, row, sums, panel * COLUMNS, columns);
    }
    cpu_tile_end();
}

static void run_chunk(phased_run *run)
{
    const phased_state *s = run->plan->state;
    cpu_parallel_for(run->plan->device, s->plane_count * copied_lines(s, run->chunk.lines), copy_task, run);
    cpu_parallel_for(run->plan->device, s->result_count * panels_of(s), multiply_task, run);
}

static cod_status phased_run_plan(cod_plan *plan)
{
    const phased_state *s = plan->state;
    phased_run run = {.plan = plan};
    if (!s->data)
        cpu_fill_biased((float *)(void *)plan->device->scratch, s->to->shape.c, &plan->op);
    while (cpu_stack_next(&s->stack, &run.chunk))
        run_chunk(&run);
    return COD_OK;
}

/* Planning. */

/** How far behind a result's place what tap `tap` reads lies. */
static int64_t offset_of(const phased_state *s, const cpu_axis *axis, int64_t tap)
{
    return s->data ? axis->pad - tap : tap - axis->pad;
}

/** Lists the taps of one phase. */
static int64_t list_taps(const phased_state *s, int64_t phase, phased_tap *taps)
{
    const cpu_axis *high = &s->high[phase / STRIDE], *wide = &s->wide[phase % STRIDE];
    int64_t count = 0;
    for (int64_t i = 0; i < high->taps; i++)
        for (int64_t k = 0; k < wide->taps; k++)
            taps[count++] =
                (phased_tap){.plane = s->data ? 0 : phase,
                             .down = offset_of(s, high, i),
                             .right = offset_of(s, wide, k),
                             .position = (high->first_k + STRIDE * i) * s->w.w + wide->first_k + STRIDE * k};
    return count;
}

static void list_results(phased_state *s)
{
    const cod_shape to = s->to->shape;
    int64_t listed = 0;
    s->result_count = s->data ? PHASES : 1, s->plane_count = s->data ? 1 : PHASES, s->step = s->data ? STRIDE : 1;
    s->results[0] = (phased_result){.taps = s->taps, .h = to.h, .w = to.w, .packed = s->packed};
    for (int64_t phase = 0; phase < PHASES; phase++) {
        const int64_t count = list_taps(s, phase, s->taps + listed);
        if (s->data)
            s->results[phase] = (phased_result){.taps = s->taps + listed,
                                                .tap_count = count,
                                                .h = s->high[phase / STRIDE].pixels,
                                                .w = s->wide[phase % STRIDE].pixels,
                                                .line = phase / STRIDE,
                                                .column = phase % STRIDE,
                                                .packed = s->packed + listed * s->depth / 2 * to.c};
        else
            s->results[0].tap_count += count;
        listed += count;
    }
}

/**
 * Of one direction, in which y has `y` pixels: zeros before and behind what is read, and how far apart lines (or
 * pictures) are.
 */
static void plan_axis(const phased_state *s, const cpu_axis axes[STRIDE], int64_t y, int64_t *before, int64_t *behind,
                      int64_t *period)
{
    *before = *behind = *period = 0;
    for (int phase = 0; phase < STRIDE; phase++) {
        const cpu_axis *axis = &axes[phase];
        for (int64_t t = 0; t < axis->taps; t++) {
            *before = cpu_greatest(*before, -offset_of(s, axis, t));
            *behind = cpu_greatest(*behind, offset_of(s, axis, t));
        }
    }
    for (int phase = 0; phase < STRIDE; phase++) {
        const int64_t pixels = s->data ? y : axes[phase].pixels, results = s->data ? axes[phase].pixels : y;
        *period = cpu_greatest(*period, cpu_greatest(*before + pixels, results + *behind));
    }
}

static cod_status allocate(phased_state *s)
{
    const size_t weights = (size_t)cod_shape_count(s->w);
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, weights * 2));
    s->rounded = memory;
    COD_TRY(cod_aligned_alloc(&memory, weights * 2));
    s->packed = memory;
    COD_TRY(cod_aligned_alloc(&memory, (size_t)(s->w.h * s->w.w) * sizeof *s->taps));
    s->taps = memory;
    return COD_OK;
}

cod_status cpu_plan_phased(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(phased_state)));
    phased_state *s = plan->state;
    plan->destroy = phased_destroy, plan->prepare = phased_prepare, plan->run = phased_run_plan;
    s->data = op->kind == COD_OP_CONV2D_BACKWARD_DATA;
    s->from = &op->inputs[0], s->to = &op->outputs[0], s->w = op->inputs[1].shape;
    const cod_shape x = s->data ? s->to->shape : s->from->shape, y = s->data ? s->from->shape : s->to->shape;
    for (int phase = 0; phase < STRIDE; phase++) {
        s->high[phase] = cpu_axis_of(x.h, s->w.h, op->attr.pad_h, STRIDE, phase);
        s->wide[phase] = cpu_axis_of(x.w, s->w.w, op->attr.pad_w, STRIDE, phase);
    }
    s->depth = s->from->shape.c;
    COD_TRY(allocate(s));
    list_results(s);
    s->stack = (cpu_stack){.images = s->to->shape.n, .height = s->results[0].h}; /* phase 0 has the most */
    int64_t right;
    plan_axis(s, s->high, y.h, &s->above, &s->below, &s->stack.period);
    plan_axis(s, s->wide, y.w, &s->left, &right, &s->pitch);
    s->row_bytes = s->depth * 2;
    s->row_bytes += s->row_bytes % 128 == 0 ? 64 : 0; /* rows would share sets of the first-level cache */
    cpu_stack_cut(&s->stack, CPU_STACK_CHUNK_BYTES, s->plane_count * s->pitch * s->row_bytes, 1);
    s->plane_bytes = (copied_lines(s, s->stack.chunk_lines) * s->pitch + s->left + right + ROWS) * s->row_bytes;
    s->at_planes = cod_align_up(4 * (size_t)cpu_padded(s->to->shape.c) * sizeof(float));
    s->at_threads = cod_align_up(s->at_planes + (size_t)(s->plane_count * s->plane_bytes));
    return cpu_plan_need_scratch(plan, s->at_threads + (size_t)plan->device->threads * ROWS * COLUMNS * sizeof(float));
}
#else
cod_status cpu_plan_phased(cod_plan *plan)
{
    (void)plan;
    return cod_fail(COD_ERR_UNSUPPORTED, "this processor has no AMX");
}
#endif

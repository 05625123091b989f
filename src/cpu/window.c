#include "core/memory.h"
#include "cpu/cpu_internal.h"

#include <math.h>

/* Pixel shuffle, turns, pooling and resizing: each line of the output is a task of its own. */

typedef struct shuffle_run {
    const cod_plan *plan;
    cpu_rows small, large;
    cod_shape shape; /**< of the small image */
} shuffle_run;

static void shuffle_line(void *context, int64_t line, int thread)
{
    (void)thread;
    const shuffle_run *run = context;
    const cpu_kernels *kernels = run->plan->device->kernels;
    const int factor = run->plan->op.attr.factor;
    const int64_t width = run->shape.w, row_step = width * factor, channels = run->shape.c / (factor * factor);
    const cpu_rows small = cpu_rows_from(run->small, line * width);
    const cpu_rows large = cpu_rows_from(run->large, line * factor * row_step);
    if (run->plan->op.kind == COD_OP_PIXEL_SHUFFLE)
        kernels->shuffle(small, large, width, channels, factor, row_step);
    else
        kernels->unshuffle(large, small, width, channels, factor, row_step, run->plan->op.accumulate);
}

static cod_status shuffle_run_plan(cod_plan *plan)
{
    const bool forward = plan->op.kind == COD_OP_PIXEL_SHUFFLE;
    const cod_view *in = &plan->op.inputs[0], *out = &plan->op.outputs[0];
    shuffle_run run = {.plan = plan,
                       .small = cpu_rows_of(forward ? in : out),
                       .large = cpu_rows_of(forward ? out : in),
                       .shape = forward ? in->shape : out->shape};
    cpu_parallel_for(plan->device, run.shape.n * run.shape.h, shuffle_line, &run);
    return COD_OK;
}

cod_status cpu_plan_shuffle(cod_plan *plan)
{
    plan->run = shuffle_run_plan;
    return COD_OK;
}

typedef struct turn_run {
    cpu_rows x, y;
    cod_shape shape;
    const int32_t *turns;
} turn_run;

/** y = x or 1 - x of a line of pixels. Plain loops, as three channels are too few for vectors. */
static inline __attribute__((always_inline)) void turn_pixels(cpu_rows x, cpu_rows y, int64_t pixels, int64_t channels,
                                                              bool invert, bool x_bf16, bool y_bf16)
{
    const float base = invert ? 1.0f : -0.0f, sign = invert ? -1.0f : 1.0f; /* -0 + x = x, also where x is 0 or -0 */
    const float *x_f32 = (const float *)(const void *)x.data;
    const uint16_t *x_half = (const uint16_t *)(const void *)x.data;
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t c = 0; c < channels; c++) {
            const int64_t from = p * x.stride + c, to = p * y.stride + c;
            const float value = x_bf16 ? cod_f32_from_bf16(x_half[from]) : x_f32[from];
            const float turned = base + sign * value;
            if (y_bf16)
                ((uint16_t *)(void *)y.data)[to] = cod_bf16_from_f32(turned);
            else
                ((float *)(void *)y.data)[to] = turned;
        }
}

static void turn_line(void *context, int64_t line, int thread)
{
    (void)thread;
    const turn_run *run = context;
    const int64_t height = run->shape.h, width = run->shape.w, channels = run->shape.c, n = line / height;
    const int32_t turn = run->turns[n];
    const bool transpose = turn & COD_TURN_TRANSPOSE && height == width, invert = turn & COD_TURN_INVERT;
    const int64_t row = turn & COD_TURN_MIRROR_Y ? height - 1 - line % height : line % height;
    const int64_t along = transpose ? width : 1, across = transpose ? 1 : width;
    const bool backward = turn & COD_TURN_MIRROR_X;
    const cpu_rows y = cpu_rows_from(run->y, line * width);
    cpu_rows x = cpu_rows_from(run->x, n * height * width + row * across + (backward ? (width - 1) * along : 0));
    x.stride *= backward ? -along : along;
    if (x.bf16 || y.bf16)
        turn_pixels(x, y, width, channels, invert, x.bf16, y.bf16);
    else
        turn_pixels(x, y, width, channels, invert, false, false);
}

static cod_status turn_run_plan(cod_plan *plan)
{
    const cod_view *x = &plan->op.inputs[0];
    turn_run run = {.x = cpu_rows_of(x),
                    .y = cpu_rows_of(&plan->op.outputs[0]),
                    .shape = x->shape,
                    .turns = cod_view_host(&plan->op.inputs[1])};
    cpu_parallel_for(plan->device, x->shape.n * x->shape.h, turn_line, &run);
    return COD_OK;
}

cod_status cpu_plan_turn(cod_plan *plan)
{
    plan->run = turn_run_plan;
    return COD_OK;
}

typedef struct pool_run {
    const cod_plan *plan;
    cpu_window window;
    cpu_rows in, out;
    int32_t *index;
    int64_t index_stride;
} pool_run;

static cpu_window window_of(const cod_op_attr *attr, cod_shape x, cod_shape y)
{
    const bool global = attr->pool == COD_POOL_GLOBAL_AVERAGE;
    return (cpu_window){.x_h = x.h,
                        .x_w = x.w,
                        .y_h = y.h,
                        .y_w = y.w,
                        .channels = x.c,
                        .kernel_h = global ? x.h : attr->kernel_h,
                        .kernel_w = global ? x.w : attr->kernel_w,
                        .stride_h = global ? 1 : attr->stride_h,
                        .stride_w = global ? 1 : attr->stride_w,
                        .pad_h = global ? 0 : attr->pad_h,
                        .pad_w = global ? 0 : attr->pad_w};
}

static void pool_line(void *context, int64_t i, int thread)
{
    (void)thread;
    const pool_run *run = context;
    const cpu_window *w = &run->window;
    const cpu_kernels *kernels = run->plan->device->kernels;
    const int64_t image = i / w->y_h, line = i % w->y_h, first = image * w->y_h * w->y_w;
    const cpu_rows x = cpu_rows_from(run->in, image * w->x_h * w->x_w), y = cpu_rows_from(run->out, first);
    if (run->plan->op.attr.pool == COD_POOL_MAX)
        kernels->pool_max(x, y, run->index + first * run->index_stride, run->index_stride, w, line);
    else
        kernels->pool_average(x, y, w, line);
}

static cod_status pool_run_plan(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const bool max = op->attr.pool == COD_POOL_MAX;
    pool_run run = {.plan = plan,
                    .window = window_of(&op->attr, op->inputs[0].shape, op->outputs[0].shape),
                    .in = cpu_rows_of(&op->inputs[0]),
                    .out = cpu_rows_of(&op->outputs[0]),
                    .index = max ? cod_view_host(&op->outputs[1]) : NULL,
                    .index_stride = op->outputs[1].pixel_stride};
    cpu_parallel_for(plan->device, op->outputs[0].shape.n * run.window.y_h, pool_line, &run);
    return COD_OK;
}

cod_status cpu_plan_pool(cod_plan *plan)
{
    plan->run = pool_run_plan;
    return COD_OK;
}

static void pool_backward_line(void *context, int64_t i, int thread)
{
    (void)thread;
    const pool_run *run = context;
    const cpu_window *w = &run->window;
    const int64_t image = i / w->x_h, line = i % w->x_h, first = image * w->y_h * w->y_w;
    run->plan->device->kernels->pool_backward(
        cpu_rows_from(run->in, first), run->index ? run->index + first * run->index_stride : NULL, run->index_stride,
        cpu_rows_from(run->out, image * w->x_h * w->x_w), w, line, run->plan->op.accumulate);
}

static cod_status pool_backward_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const bool max = op->attr.pool == COD_POOL_MAX;
    pool_run run = {.plan = plan,
                    .window = window_of(&op->attr, op->outputs[0].shape, op->inputs[0].shape),
                    .in = cpu_rows_of(&op->inputs[0]),
                    .out = cpu_rows_of(&op->outputs[0]),
                    .index = max ? cod_view_host(&op->inputs[1]) : NULL,
                    .index_stride = op->inputs[1].pixel_stride};
    cpu_parallel_for(plan->device, op->outputs[0].shape.n * run.window.x_h, pool_backward_line, &run);
    return COD_OK;
}

cod_status cpu_plan_pool_backward(cod_plan *plan)
{
    plan->run = pool_backward_run;
    return COD_OK;
}

/**
 * Resizing is linear and separable, so its gradient is the same sum with the transposed tables. A plan's state holds
 * the tables of both axes, written by fill_taps().
 */
typedef struct resize_state {
    cpu_taps vertical, horizontal;
} resize_state;

enum { MOST_TAPS = 4 };

static double keys(double t) /* Keys 1981, a = -0.75 */
{
    const double a = -0.75;
    t = fabs(t);
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/** The taps of output coordinate `at`, borders replicated. */
static int taps_of(cod_resize_mode mode, int factor, int64_t at, int64_t size, int32_t *index, double *weights)
{
    if (mode == COD_RESIZE_NEAREST) {
        index[0] = (int32_t)(at / factor);
        weights[0] = 1;
        return 1;
    }
    double centre = ((double)at + 0.5) / factor - 0.5;
    if (mode == COD_RESIZE_BILINEAR)
        centre = fmax(centre, 0);
    const int count = mode == COD_RESIZE_BILINEAR ? 2 : 4, before = count / 2 - 1;
    const int64_t base = (int64_t)floor(centre);
    for (int k = 0; k < count; k++) {
        const int64_t from = base - before + k;
        const double distance = centre - (double)from;
        index[k] = (int32_t)(from < 0 ? 0 : from >= size ? size - 1 : from);
        weights[k] = mode == COD_RESIZE_BILINEAR ? 1 - fabs(distance) : keys(distance);
    }
    return count;
}

static size_t taps_bytes(int64_t small, int64_t large)
{
    const size_t entries = (size_t)(large * MOST_TAPS);
    return cod_align_up((size_t)(small > large ? small : large) * 4 + 8) + cod_align_up(entries * 4) * 2;
}

/** Writes the tables of one axis into `memory` and returns its end; `transposed` gives those of the gradient. */
static char *fill_taps(const cod_op_attr *attr, int64_t small, bool transposed, char *memory, cpu_taps *out)
{
    const int64_t large = small * attr->factor, outputs = transposed ? small : large;
    const size_t entries = cod_align_up((size_t)(large * MOST_TAPS) * 4);
    int32_t *first = (int32_t *)(void *)memory;
    int32_t *index = (int32_t *)(void *)(memory + cod_align_up((size_t)(small > large ? small : large) * 4 + 8));
    float *weights = (float *)(void *)((char *)index + entries);
    int32_t taps[MOST_TAPS];
    double shares[MOST_TAPS];
    int32_t used = 0;
    for (int64_t o = 0; o < outputs; o++) {
        first[o] = used;
        /* Transposed: every large coordinate that reads small coordinate `o`; none is further than 3 small pixels. */
        const int64_t reach = 3 * (int64_t)attr->factor;
        const int64_t from = transposed ? (o * attr->factor > reach ? o * attr->factor - reach : 0) : o;
        const int64_t to =
            transposed
                ? (o * attr->factor + attr->factor + reach < large ? o * attr->factor + attr->factor + reach : large)
                : o + 1;
        for (int64_t at = from; at < to; at++) {
            const int count = taps_of(attr->resize, attr->factor, at, small, taps, shares);
            for (int k = 0; k < count; k++) {
                if (transposed && taps[k] != o)
                    continue;
                index[used] = transposed ? (int32_t)at : taps[k];
                weights[used++] = (float)shares[k];
            }
        }
    }
    first[outputs] = used;
    *out = (cpu_taps){first, index, weights};
    return (char *)weights + entries;
}

typedef struct resize_run {
    const cod_plan *plan;
    cpu_rows x, y;
    cod_shape in, out;
    size_t line_bytes;
    bool accumulate;
} resize_run;

static size_t line_bytes(cod_shape in)
{
    return cod_align_up((size_t)(in.w * in.c) * sizeof(float));
}

static void resize_line(void *context, int64_t i, int thread)
{
    const resize_run *run = context;
    const resize_state *state = run->plan->state;
    const int64_t image = i / run->out.h, line = i % run->out.h;
    run->plan->device->kernels->resample(
        cpu_rows_from(run->x, image * run->in.h * run->in.w), cpu_rows_from(run->y, image * run->out.h * run->out.w),
        line, run->in.w, run->out.w, run->in.c, &state->vertical, &state->horizontal,
        (float *)(void *)(run->plan->device->scratch + (size_t)thread * run->line_bytes), run->accumulate);
}

static cod_status resize_run_plan(cod_plan *plan)
{
    const cod_view *in = &plan->op.inputs[0], *out = &plan->op.outputs[0];
    resize_run run = {plan,
                      cpu_rows_of(in),
                      cpu_rows_of(out),
                      in->shape,
                      out->shape,
                      line_bytes(in->shape),
                      plan->op.accumulate && plan->op.kind == COD_OP_RESIZE_BACKWARD};
    cpu_parallel_for(plan->device, out->shape.n * out->shape.h, resize_line, &run);
    return COD_OK;
}

cod_status cpu_plan_resize(cod_plan *plan)
{
    const bool transposed = plan->op.kind == COD_OP_RESIZE_BACKWARD;
    const cod_op_attr *attr = &plan->op.attr;
    const cod_shape in = plan->op.inputs[0].shape, small = transposed ? plan->op.outputs[0].shape : in;
    COD_TRY(cpu_plan_alloc_state(plan, cod_align_up(sizeof(resize_state)) +
                                           taps_bytes(small.h, small.h * attr->factor) +
                                           taps_bytes(small.w, small.w * attr->factor)));
    resize_state *state = plan->state;
    char *memory = (char *)plan->state + cod_align_up(sizeof(resize_state));
    memory = fill_taps(attr, small.h, transposed, memory, &state->vertical);
    fill_taps(attr, small.w, transposed, memory, &state->horizontal);
    plan->run = resize_run_plan;
    return cpu_plan_need_scratch(plan, (size_t)plan->device->threads * line_bytes(in));
}

/*
 * Linear layers whose weights do not fit in the caches, on a few rows. Most of their time goes into reading the
 * weights, so these are used in the layout that they have. Packing them for oneDNN would read and write all of them
 * after each update, for each plan.
 */
#include "core/memory.h"
#include "cpu/cpu_internal.h"

#include <string.h>

enum {
    MOST_ROWS = 32,
    LEAST_WEIGHTS = 1 << 20,
    OUTPUTS_AT_ONCE = 48,   /**< of a thread */
    COLUMNS_AT_ONCE = 4096, /**< of dx, of a thread: pages of weights that are read in order */
    LINES_AT_ONCE = 16      /**< of the weights, which one product adds to dx: with 32 it takes 17 ms, not 10 */
};

typedef struct linear_state {
    int64_t rows, padded_rows, inputs, outputs;
    /** Byte offsets in scratch, all f32: x or dx, y or dy; forward also the transposes of x and y, rows padded. */
    size_t at_x, at_y, at_turned, at_turned_y;
} linear_state;

static bool fits(const cod_op *op)
{
    const bool weights = op->kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
    const cod_shape x = op->kind == COD_OP_LINEAR_BACKWARD_DATA ? op->outputs[0].shape : op->inputs[0].shape;
    const cod_shape w = weights ? op->outputs[0].shape : op->inputs[1].shape;
    return x.n <= MOST_ROWS && w.c % CPU_PAD == 0 && w.n * w.c >= LEAST_WEIGHTS &&
           cpu_activation_of(&op->attr) == CPU_ACT_SLOPE;
}

static float *scratch_at(const cod_plan *plan, size_t at)
{
    return (float *)(void *)(plan->device->scratch + at);
}

static const int32_t *lanes(const float *values)
{
    return (const int32_t *)(const void *)values;
}

/** Between a view of rows and dense f32. */
static void copy_in(const cod_plan *plan, const cod_view *view, float *to)
{
    plan->device->kernels->add(cpu_rows_of(view), (cpu_rows){0}, (cpu_rows){(char *)to, view->shape.c, false},
                               view->shape.n, view->shape.c, 1, 0, false);
}

static void copy_out(const cod_plan *plan, const float *from, const cod_view *view)
{
    const cpu_rows rows = {(char *)(uintptr_t)from, view->shape.c, false};
    plan->device->kernels->add(rows, (cpu_rows){0}, cpu_rows_of(view), view->shape.n, view->shape.c, 1, 0,
                               plan->op.accumulate);
}

/** Outputs of some lines of the weights, for all rows: W xᵀ. */
static void forward_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const linear_state *s = plan->state;
    const int64_t first = i * OUTPUTS_AT_ONCE;
    const float *w = cod_view_host(&plan->op.inputs[1]);
    const cpu_product product = {.a = lanes(w + first * s->inputs),
                                 .b = lanes(scratch_at(plan, s->at_turned)),
                                 .c = scratch_at(plan, s->at_turned_y) + first * s->padded_rows,
                                 .rows = cpu_least(s->outputs - first, OUTPUTS_AT_ONCE),
                                 .depth = s->inputs,
                                 .columns = s->padded_rows,
                                 .a_row = s->inputs,
                                 .a_depth = 1,
                                 .b_stride = s->padded_rows,
                                 .c_stride = s->padded_rows};
    plan->device->kernels->product(&product, false);
}

static cod_status forward_run(cod_plan *plan)
{
    const linear_state *s = plan->state;
    const cod_op *op = &plan->op;
    float *x = scratch_at(plan, s->at_x), *turned = scratch_at(plan, s->at_turned), *y = scratch_at(plan, s->at_y);
    const float *turned_y = scratch_at(plan, s->at_turned_y);
    const float *bias = cpu_present(&op->inputs[2]) ? cod_view_host(&op->inputs[2]) : NULL;
    copy_in(plan, &op->inputs[0], x);
    memset(turned, 0, (size_t)(s->inputs * s->padded_rows) * sizeof *turned);
    for (int64_t n = 0; n < s->rows; n++)
        for (int64_t k = 0; k < s->inputs; k++)
            turned[k * s->padded_rows + n] = x[n * s->inputs + k];
    cpu_parallel_for(plan->device, (s->outputs + OUTPUTS_AT_ONCE - 1) / OUTPUTS_AT_ONCE, forward_task, plan);
    for (int64_t n = 0; n < s->rows; n++)
        for (int64_t o = 0; o < s->outputs; o++)
            y[n * s->outputs + o] = turned_y[o * s->padded_rows + n] + (bias != NULL ? bias[o] : 0);
    const cpu_rows sums = {(char *)y, s->outputs, false};
    const cpu_affine affine = cpu_fill_activation(scratch_at(plan, 0), s->outputs, &op->attr, &op->inputs[3]);
    plan->device->kernels->affine(sums, cpu_rows_of(&op->outputs[0]), s->rows, s->outputs, CPU_ACT_SLOPE, &affine);
    return COD_OK;
}

/** Some columns of dx = dy W. */
static void data_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const linear_state *s = plan->state;
    const int64_t first = i * COLUMNS_AT_ONCE;
    const float *dy = scratch_at(plan, s->at_y), *w = (const float *)cod_view_host(&plan->op.inputs[1]) + first;
    for (int64_t o = 0; o < s->outputs; o += LINES_AT_ONCE) {
        const cpu_product product = {.a = lanes(dy + o),
                                     .b = lanes(w + o * s->inputs),
                                     .c = scratch_at(plan, s->at_x) + first,
                                     .rows = s->rows,
                                     .depth = cpu_least(s->outputs - o, LINES_AT_ONCE),
                                     .columns = cpu_least(s->inputs - first, COLUMNS_AT_ONCE),
                                     .a_row = s->outputs,
                                     .a_depth = 1,
                                     .b_stride = s->inputs,
                                     .c_stride = s->inputs,
                                     .accumulate = o > 0};
        plan->device->kernels->product(&product, false);
    }
}

static cod_status backward_data_run(cod_plan *plan)
{
    const linear_state *s = plan->state;
    copy_in(plan, &plan->op.inputs[0], scratch_at(plan, s->at_y));
    cpu_parallel_for(plan->device, (s->inputs + COLUMNS_AT_ONCE - 1) / COLUMNS_AT_ONCE, data_task, plan);
    copy_out(plan, scratch_at(plan, s->at_x), &plan->op.outputs[0]);
    return COD_OK;
}

/** Some lines of dw (+)= dyᵀ x. */
static void weights_task(void *context, int64_t i, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const linear_state *s = plan->state;
    const int64_t first = i * OUTPUTS_AT_ONCE;
    const cpu_product product = {.a = lanes(scratch_at(plan, s->at_y) + first),
                                 .b = lanes(scratch_at(plan, s->at_x)),
                                 .c = (float *)cod_view_host(&plan->op.outputs[0]) + first * s->inputs,
                                 .rows = cpu_least(s->outputs - first, OUTPUTS_AT_ONCE),
                                 .depth = s->rows,
                                 .columns = s->inputs,
                                 .a_row = 1,
                                 .a_depth = s->outputs,
                                 .b_stride = s->inputs,
                                 .c_stride = s->inputs,
                                 .accumulate = plan->op.accumulate};
    plan->device->kernels->product(&product, false);
}

static cod_status backward_weights_run(cod_plan *plan)
{
    const linear_state *s = plan->state;
    copy_in(plan, &plan->op.inputs[0], scratch_at(plan, s->at_x));
    copy_in(plan, &plan->op.inputs[1], scratch_at(plan, s->at_y));
    cpu_parallel_for(plan->device, (s->outputs + OUTPUTS_AT_ONCE - 1) / OUTPUTS_AT_ONCE, weights_task, plan);
    if (cpu_present(&plan->op.outputs[1]))
        cpu_bias_gradient(plan);
    return COD_OK;
}

static cod_status create(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const bool backward_data = op->kind == COD_OP_LINEAR_BACKWARD_DATA, forward = op->kind == COD_OP_LINEAR;
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(linear_state)));
    linear_state *s = plan->state;
    const cod_shape x = backward_data ? op->outputs[0].shape : op->inputs[0].shape;
    s->rows = x.n;
    s->padded_rows = cpu_padded(x.n);
    s->inputs = x.c;
    s->outputs = forward ? op->outputs[0].shape.c : backward_data ? op->inputs[0].shape.c : op->inputs[1].shape.c;
    /* In front, vectors of channels: of the activation, or of the bias's gradient. */
    s->at_x = cod_align_up(3 * (size_t)cpu_padded(s->outputs) * sizeof(float));
    s->at_y = s->at_x + cod_align_up((size_t)(s->rows * s->inputs) * sizeof(float));
    s->at_turned = s->at_y + cod_align_up((size_t)(s->rows * s->outputs) * sizeof(float));
    s->at_turned_y = s->at_turned + (forward ? cod_align_up((size_t)(s->inputs * s->padded_rows) * sizeof(float)) : 0);
    plan->run = forward ? forward_run : backward_data ? backward_data_run : backward_weights_run;
    return cpu_plan_need_scratch(plan, s->at_turned_y +
                                           (forward ? (size_t)(s->outputs * s->padded_rows) * sizeof(float) : 0));
}

cod_status cpu_plan_linear(cod_plan *plan)
{
    if (fits(&plan->op))
        return create(plan);
    return cpu_columns_fits(plan->device, &plan->op) ? cpu_plan_columns(plan) : cpu_plan_conv(plan);
}

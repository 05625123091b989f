/*
 * Weight gradients as one product: dw = dyᵀ · columns, where line k of `columns` has what output pixel k reads of x, in
 * the order of the weights. For kernels of one pixel and for linear layers x has these lines itself. The product is
 * stored as the gradient lies, so nothing is unpacked, which takes longer than the product where weights are many and
 * pixels few.
 */
#include "cpu/cpu_internal.h"

#include "core/memory.h"

#include <string.h>

enum { MOST_COLUMN_BYTES = 8 << 20 };

typedef struct columns_state {
    cpu_matmul *matmul;
    bool gathers;
    size_t at_columns, at_matmul; /**< bytes in scratch, behind the vectors of the bias's gradient */
} columns_state;

static int64_t line_elements(const cod_op *op)
{
    const cod_shape w = op->outputs[0].shape;
    return w.h * w.w * w.c;
}

/** Whether lines of `columns` are other than the pixels of x as they lie. */
static bool gathers(const cod_op *op)
{
    const cod_view *x = &op->inputs[0];
    const cod_shape w = op->outputs[0].shape;
    const bool moves = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS &&
                       (op->attr.stride_h * op->attr.stride_w > 1 || op->attr.pad_h + op->attr.pad_w > 0);
    return w.h * w.w > 1 || moves || x->pixel_stride != x->shape.c;
}

bool cpu_columns_fits(const cod_device *device, const cod_op *op)
{
    if (op->kind != COD_OP_CONV2D_BACKWARD_WEIGHTS && op->kind != COD_OP_LINEAR_BACKWARD_WEIGHTS)
        return false;
    const cod_view *x = &op->inputs[0], *dy = &op->inputs[1];
    const double column_bytes = (double)cpu_pixels(dy) * (double)line_elements(op) * (double)cod_dtype_bytes(x->dtype);
    return !op->deterministic && cod_op_shuffle(&op->attr) == 1 && x->dtype == dy->dtype &&
           (x->dtype == COD_F32 || device->native_bf16) && dy->pixel_stride == dy->shape.c &&
           (!gathers(op) || column_bytes <= MOST_COLUMN_BYTES);
}

static void columns_destroy(void *memory)
{
    columns_state *state = memory;
    cpu_matmul_destroy(state->matmul);
    cod_aligned_free(state);
}

/** What one pixel of dy reads of x; beyond the edges zeros. Returns the end of what was written. */
static char *gather_pixel(const cod_op *op, int64_t n, int64_t line, int64_t column, char *to)
{
    const cod_view *x = &op->inputs[0];
    const cod_shape w = op->outputs[0].shape;
    const bool linear = op->kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
    const size_t element = cod_dtype_bytes(x->dtype), bytes = (size_t)w.c * element;
    const int64_t top = linear ? 0 : line * op->attr.stride_h - op->attr.pad_h;
    const int64_t left = linear ? 0 : column * op->attr.stride_w - op->attr.pad_w;
    for (int64_t i = top; i < top + w.h; i++)
        for (int64_t j = left; j < left + w.w; j++, to += bytes) {
            const bool inside = i >= 0 && i < x->shape.h && j >= 0 && j < x->shape.w;
            const int64_t pixel = ((n * x->shape.h + i) * x->shape.w + j) * x->pixel_stride;
            if (inside)
                memcpy(to, (const char *)cod_view_host(x) + (size_t)pixel * element, bytes);
            else
                memset(to, 0, bytes);
        }
    return to;
}

static void gather_line(void *context, int64_t index, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const columns_state *s = plan->state;
    const cod_op *op = &plan->op;
    const cod_shape y = op->inputs[1].shape;
    const size_t bytes = (size_t)(y.w * line_elements(op)) * cod_dtype_bytes(op->inputs[0].dtype);
    char *to = plan->device->scratch + s->at_columns + (size_t)index * bytes;
    for (int64_t column = 0; column < y.w; column++)
        to = gather_pixel(op, index / y.h, index % y.h, column, to);
}

static cod_status columns_run(cod_plan *plan)
{
    const columns_state *s = plan->state;
    const cod_op *op = &plan->op;
    const cod_shape y = op->inputs[1].shape;
    char *scratch = plan->device->scratch;
    void *columns = s->gathers ? scratch + s->at_columns : cod_view_host(&op->inputs[0]);
    if (s->gathers)
        cpu_parallel_for(plan->device, y.n * y.h, gather_line, plan);
    COD_TRY(cpu_matmul_execute(s->matmul, cod_view_host(&op->inputs[1]), columns, cod_view_host(&op->outputs[0]),
                               scratch + s->at_matmul));
    if (cpu_present(&op->outputs[1]))
        cpu_bias_gradient(plan);
    return COD_OK;
}

cod_status cpu_plan_columns(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const cod_view *dy = &op->inputs[1];
    const int64_t pixels = cpu_pixels(dy), line = line_elements(op);
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(columns_state)));
    plan->destroy = columns_destroy;
    plan->run = columns_run;
    columns_state *s = plan->state;
    s->gathers = gathers(op);
    const cpu_matmul_problem problem = {.rows = dy->shape.c,
                                        .depth = pixels,
                                        .columns = line,
                                        .a_stride = dy->shape.c,
                                        .b_stride = line,
                                        .dtype = dy->dtype,
                                        .accumulate = op->accumulate};
    COD_TRY(cpu_matmul_create(plan->device->onednn, &problem, &s->matmul));
    s->at_columns = cod_align_up(3 * (size_t)cpu_padded(dy->shape.c) * sizeof(float));
    s->at_matmul = s->at_columns;
    if (s->gathers)
        s->at_matmul += cod_align_up((size_t)(pixels * line) * cod_dtype_bytes(dy->dtype));
    return cpu_plan_need_scratch(plan, s->at_matmul + cpu_matmul_scratch_bytes(s->matmul));
}

#include "cpu/cpu_internal.h"

#include <math.h>

/* Spectral normalisation: the weight as a matrix of O rows and KH·KW·I columns. */

enum { PIECE = 1024 }; /* columns */

typedef struct spectral_run {
    const cod_plan *plan;
    const cpu_kernels *kernels;
    int64_t rows, columns;
    float factor;  /**< 1 / sigma */
    double along;  /**< backward: the sum of dy·y */
    double *parts; /**< backward: of each row */
} spectral_run;

static spectral_run spectral_begin(const cod_plan *plan)
{
    const cod_shape w = plan->op.inputs[0].shape;
    return (spectral_run){
        .plan = plan, .kernels = plan->device->kernels, .rows = w.n, .columns = w.h * w.w * w.c, .factor = 1};
}

static cpu_rows line(const float *values)
{
    return (cpu_rows){(char *)(uintptr_t)values, 0, false};
}

static float *row_of(const spectral_run *run, const cod_view *matrix, int64_t row)
{
    return (float *)cod_view_host(matrix) + row * run->columns;
}

/** v = Wᵀu of some columns. */
static void transposed_piece(void *context, int64_t i, int thread)
{
    (void)thread;
    const spectral_run *run = context;
    const cod_op *op = &run->plan->op;
    const int64_t first = i * PIECE, count = cpu_least(PIECE, run->columns - first);
    const float *u = cod_view_host(&op->inputs[1]);
    const cpu_rows v = line((float *)cod_view_host(&op->outputs[3]) + first);
    for (int64_t o = 0; o < run->rows; o++)
        run->kernels->add(line(row_of(run, &op->inputs[0], o) + first), (cpu_rows){0}, v, 1, count, u[o], 0, o > 0);
}

static void product_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const spectral_run *run = context;
    const cod_op *op = &run->plan->op;
    float *product = cod_view_host(&op->outputs[2]);
    product[row] =
        (float)run->kernels->dot(row_of(run, &op->inputs[0], row), cod_view_host(&op->outputs[3]), run->columns);
}

static void divide_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const spectral_run *run = context;
    const cod_op *op = &run->plan->op;
    run->kernels->add(line(row_of(run, &op->inputs[0], row)), (cpu_rows){0}, line(row_of(run, &op->outputs[0], row)), 1,
                      run->columns, run->factor, 0, false);
}

/** The vector's length, but at least 1e-12; the vector becomes one of length 1. */
static float normalise(const spectral_run *run, const cod_view *vector, int64_t count)
{
    const float *values = cod_view_host(vector);
    const double length = fmax(sqrt(run->kernels->dot(values, values, count)), 1e-12);
    run->kernels->add(line(values), (cpu_rows){0}, line(values), 1, count, (float)(1 / length), 0, false);
    return (float)length;
}

static cod_status spectral_norm_run(cod_plan *plan)
{
    spectral_run run = spectral_begin(plan);
    cpu_parallel_for(plan->device, (run.columns + PIECE - 1) / PIECE, transposed_piece, &run);
    normalise(&run, &plan->op.outputs[3], run.columns);
    cpu_parallel_for(plan->device, run.rows, product_row, &run);
    const float sigma = normalise(&run, &plan->op.outputs[2], run.rows);
    *(float *)cod_view_host(&plan->op.outputs[1]) = sigma;
    run.factor = 1 / sigma;
    cpu_parallel_for(plan->device, run.rows, divide_row, &run);
    return COD_OK;
}

cod_status cpu_plan_spectral_norm(cod_plan *plan)
{
    plan->run = spectral_norm_run;
    return COD_OK;
}

static void along_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const spectral_run *run = context;
    const cod_op *op = &run->plan->op;
    run->parts[row] =
        run->kernels->dot(row_of(run, &op->inputs[0], row), row_of(run, &op->inputs[1], row), run->columns);
}

static void backward_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const spectral_run *run = context;
    const cod_op *op = &run->plan->op;
    const float *u = cod_view_host(&op->inputs[3]);
    run->kernels->add(line(row_of(run, &op->inputs[0], row)), line(cod_view_host(&op->inputs[4])),
                      line(row_of(run, &op->outputs[0], row)), 1, run->columns, run->factor,
                      (float)(-run->along * (double)u[row] * (double)run->factor), op->accumulate);
}

static cod_status spectral_norm_backward_run(cod_plan *plan)
{
    spectral_run run = spectral_begin(plan);
    run.factor = 1 / *(const float *)cod_view_host(&plan->op.inputs[2]);
    run.parts = (double *)(void *)plan->device->scratch;
    cpu_parallel_for(plan->device, run.rows, along_row, &run);
    for (int64_t o = 0; o < run.rows; o++)
        run.along += run.parts[o];
    cpu_parallel_for(plan->device, run.rows, backward_row, &run);
    return COD_OK;
}

cod_status cpu_plan_spectral_norm_backward(cod_plan *plan)
{
    plan->run = spectral_norm_backward_run;
    return cpu_plan_need_scratch(plan, (size_t)plan->op.inputs[0].shape.n * sizeof(double));
}

#include "core/memory.h"
#include "cpu/cpu_internal.h"

#include <math.h>

typedef struct loss_state {
    cpu_grid grid;
    cpu_chunks chunks;
} loss_state;

/** The gradient's factor is read when the plan runs, as its weight may change from step to step. */
typedef struct loss_run {
    const cod_plan *plan;
    const loss_state *state;
    cpu_rows prediction, target, dx;
    double *sums; /**< one for each chunk, or each row */
    float factor;
} loss_run;

static loss_run loss_begin(const cod_plan *plan, double count)
{
    const cod_op *op = &plan->op;
    loss_run run = {.plan = plan, .state = plan->state, .sums = (double *)(void *)plan->device->scratch};
    const float weight = cpu_present(&op->inputs[2]) ? *(const float *)cod_view_host(&op->inputs[2]) : 1.0f;
    run.factor = (float)((double)op->attr.alpha * (double)weight / count);
    return run;
}

static void loss_end(const loss_run *run, int64_t sums, double count)
{
    double total = 0;
    for (int64_t i = 0; i < sums; i++)
        total += run->sums[i];
    *(float *)cod_view_host(&run->plan->op.outputs[0]) = (float)(total / count);
}

static double loss_rows(const loss_run *run, int64_t first, int64_t pixels, int64_t channels)
{
    const cod_op *op = &run->plan->op;
    const cpu_loss kind = op->attr.loss == COD_LOSS_L1    ? CPU_LOSS_L1
                          : op->attr.loss == COD_LOSS_MSE ? CPU_LOSS_MSE
                                                          : CPU_LOSS_CHARBONNIER;
    return run->plan->device->kernels->loss(cpu_rows_from(run->prediction, first), cpu_rows_from(run->target, first),
                                            cpu_rows_from(run->dx, first), pixels, channels, kind, op->attr.epsilon,
                                            run->factor, op->accumulate);
}

static void loss_chunk(void *context, int64_t i, int thread)
{
    (void)thread;
    const loss_run *run = context;
    const cpu_chunks *chunks = &run->state->chunks;
    run->sums[i] = loss_rows(run, i * chunks->size, cpu_chunk_length(chunks, i), run->state->grid.channels);
}

static cod_status pixel_loss_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const double count = (double)cod_shape_count(op->inputs[0].shape);
    loss_run run = loss_begin(plan, count);
    const cpu_grid *grid = &run.state->grid;
    const int64_t chunks = run.state->chunks.count;
    run.prediction = cpu_grid_rows(grid, &op->inputs[0]);
    run.target = cpu_grid_rows(grid, &op->inputs[1]);
    run.dx = cpu_grid_rows(grid, &op->outputs[1]);
    cpu_parallel_for(plan->device, chunks, loss_chunk, &run);
    if (grid->rest > 0)
        run.sums[chunks] = loss_rows(&run, grid->pixels, 1, grid->rest);
    loss_end(&run, chunks + (grid->rest > 0), count);
    return COD_OK;
}

static float element(const cod_view *view, int64_t row, int64_t c)
{
    const int64_t i = row * view->pixel_stride + c;
    return view->dtype == COD_BF16 ? cod_f32_from_bf16(((const uint16_t *)cod_view_host(view))[i])
                                   : ((const float *)cod_view_host(view))[i];
}

static void set_element(const cod_view *view, int64_t row, int64_t c, float value, bool accumulate)
{
    const int64_t i = row * view->pixel_stride + c;
    if (accumulate)
        value += element(view, row, c);
    if (view->dtype == COD_BF16)
        ((uint16_t *)cod_view_host(view))[i] = cod_bf16_from_f32(value);
    else
        ((float *)cod_view_host(view))[i] = value;
}

/** log of the sum over c of e^(logits[row, c] / T). */
static double log_sum_exp(const cod_view *logits, int64_t row, double temperature)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < logits->shape.c; c++)
        largest = fmax(largest, (double)element(logits, row, c));
    for (int64_t c = 0; c < logits->shape.c; c++)
        sum += exp(((double)element(logits, row, c) - largest) / temperature);
    return largest / temperature + log(sum);
}

/** Value -Σ t·log q; its derivative by a logit is q·Σ t - t, whatever the targets' sum. */
static void cross_entropy_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const loss_run *run = context;
    const cod_op *op = &run->plan->op;
    const cod_view *logits = &op->inputs[0], *target = &op->inputs[1], *dx = &op->outputs[1];
    const int64_t classes = logits->shape.c;
    const double keep = 1 - (double)op->attr.smoothing, spread = (double)op->attr.smoothing / (double)classes;
    const double normaliser = log_sum_exp(logits, row, 1);
    double value = 0, sum = 0;
    for (int64_t c = 0; c < classes; c++) {
        const double t = keep * (double)element(target, row, c) + spread;
        value += t == 0 ? 0 : t * (normaliser - (double)element(logits, row, c));
        sum += t;
    }
    run->sums[row] = value;
    for (int64_t c = 0; c < classes && cpu_present(dx); c++) {
        const double t = keep * (double)element(target, row, c) + spread;
        const double q = exp((double)element(logits, row, c) - normaliser);
        set_element(dx, row, c, run->factor * (float)(sum * q - t), op->accumulate);
    }
}

/** Value T²·Σ p·(log p - log q); its derivative by a prediction's logit is T·(q - p). */
static void kl_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const loss_run *run = context;
    const cod_op *op = &run->plan->op;
    const cod_view *prediction = &op->inputs[0], *target = &op->inputs[1], *dx = &op->outputs[1];
    const double t = op->attr.temperature > 0 ? (double)op->attr.temperature : 1;
    const double log_q = log_sum_exp(prediction, row, t), log_p = log_sum_exp(target, row, t);
    double sum = 0;
    for (int64_t c = 0; c < prediction->shape.c; c++) {
        const double lq = (double)element(prediction, row, c) / t - log_q,
                     lp = (double)element(target, row, c) / t - log_p;
        const double p = exp(lp);
        sum += p > 0 ? p * (lp - lq) : p; /* 0·log 0 = 0, but NaN stays */
        if (cpu_present(dx))
            set_element(dx, row, c, run->factor * (float)(t * (exp(lq) - p)), op->accumulate);
    }
    run->sums[row] = t * t * sum;
}

static cod_status class_loss_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const int64_t rows = cpu_pixels(&op->inputs[0]);
    loss_run run = loss_begin(plan, (double)rows);
    cpu_parallel_for(plan->device, rows, op->attr.loss == COD_LOSS_KL ? kl_row : cross_entropy_row, &run);
    loss_end(&run, rows, (double)rows);
    return COD_OK;
}

cod_status cpu_plan_loss(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const cod_view *const views[] = {&op->inputs[0], &op->inputs[1], &op->outputs[1]};
    if (op->attr.loss == COD_LOSS_CROSS_ENTROPY || op->attr.loss == COD_LOSS_KL) {
        plan->run = class_loss_run;
        return cpu_plan_need_scratch(plan, (size_t)cpu_pixels(&op->inputs[0]) * sizeof(double));
    }
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(loss_state)));
    loss_state *state = plan->state;
    state->grid = cpu_grid_of(views, 3, false);
    state->chunks = cpu_chunks_of(state->grid.pixels, state->grid.channels);
    plan->run = pixel_loss_run;
    return cpu_plan_need_scratch(plan, (size_t)(state->chunks.count + 1) * sizeof(double));
}

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
    cpu_loss_pass pass;      /**< of losses that are means over elements */
    cpu_variation variation; /**< of total variation */
    double *sums;            /**< one for each chunk, row of classes, or line of pixels */
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
    cpu_loss_pass pass = run->pass;
    pass.prediction = cpu_rows_from(pass.prediction, first);
    pass.target = cpu_rows_from(pass.target, first);
    pass.dprediction = cpu_rows_from(pass.dprediction, first);
    pass.dtarget = cpu_rows_from(pass.dtarget, first);
    return run->plan->device->kernels->loss(&pass, pixels, channels);
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
    static const cpu_loss kinds[] = {[COD_LOSS_L1] = CPU_LOSS_L1,
                                     [COD_LOSS_MSE] = CPU_LOSS_MSE,
                                     [COD_LOSS_CHARBONNIER] = CPU_LOSS_CHARBONNIER,
                                     [COD_LOSS_BCE] = CPU_LOSS_BCE,
                                     [COD_LOSS_HINGE] = CPU_LOSS_HINGE};
    const cod_op *op = &plan->op;
    const double count = (double)cod_shape_count(op->inputs[0].shape);
    loss_run run = loss_begin(plan, count);
    const cpu_grid *grid = &run.state->grid;
    const int64_t chunks = run.state->chunks.count;
    run.pass = (cpu_loss_pass){.prediction = cpu_grid_rows(grid, &op->inputs[0]),
                               .target = cpu_grid_rows(grid, &op->inputs[1]),
                               .dprediction = cpu_grid_rows(grid, &op->outputs[1]),
                               .dtarget = cpu_grid_rows(grid, &op->outputs[2]),
                               .kind = kinds[op->attr.loss],
                               .epsilon = op->attr.epsilon,
                               .factor = run.factor,
                               .accumulate = op->accumulate};
    cpu_parallel_for(plan->device, chunks, loss_chunk, &run);
    if (grid->rest > 0)
        run.sums[chunks] = loss_rows(&run, grid->pixels, 1, grid->rest);
    loss_end(&run, chunks + (grid->rest > 0), count);
    return COD_OK;
}

/**
 * One line of pixels. Elements whose neighbours all lie equally far away are done in one go: of a dense view the whole
 * line between its first and last pixel, else each pixel by itself.
 */
static void variation_line(void *context, int64_t line, int thread)
{
    (void)thread;
    const loss_run *run = context;
    const cod_view *x = &run->plan->op.inputs[0], *dx = &run->plan->op.outputs[1];
    const int64_t width = x->shape.w, row = width * x->pixel_stride, h = line % x->shape.h;
    const bool dense = cod_view_is_dense(x) && (!cpu_present(dx) || cod_view_is_dense(dx));
    cpu_variation pass = run->variation;
    pass.up = h > 0 ? -row : 0;
    pass.down = h + 1 < x->shape.h ? row : 0;
    run->sums[line] = 0;
    for (int64_t first = 0, pixels; first < width; first += pixels) {
        pixels = dense && first == 1 && width > 2 ? width - 2 : 1;
        pass.x = cpu_rows_from(run->variation.x, line * width + first);
        pass.dx = cpu_rows_from(run->variation.dx, line * width + first);
        pass.left = first > 0 ? -x->pixel_stride : 0;
        pass.right = first + pixels < width ? x->pixel_stride : 0;
        run->sums[line] += run->plan->device->kernels->variation(&pass, pixels * x->shape.c);
    }
}

/** 1 over a number of pairs; 0 where there is none. */
static float share(int64_t pairs)
{
    return pairs > 0 ? 1 / (float)pairs : 0;
}

static cod_status total_variation_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const cod_shape shape = op->inputs[0].shape;
    loss_run run = loss_begin(plan, 1);
    run.variation = (cpu_variation){.x = cpu_rows_of(&op->inputs[0]),
                                    .dx = cpu_rows_of(&op->outputs[1]),
                                    .vertical = share(shape.n * (shape.h - 1) * shape.w * shape.c),
                                    .horizontal = share(shape.n * shape.h * (shape.w - 1) * shape.c),
                                    .factor = run.factor,
                                    .accumulate = op->accumulate};
    cpu_parallel_for(plan->device, shape.n * shape.h, variation_line, &run);
    loss_end(&run, shape.n * shape.h, 1);
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

/**
 * Value -Σ t'·log q, t' the smoothed target; its derivatives are q·Σ t' - t', whatever the targets' sum, and -(1-s)·log
 * q.
 */
static void cross_entropy_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const loss_run *run = context;
    const cod_op *op = &run->plan->op;
    const cod_view *logits = &op->inputs[0], *target = &op->inputs[1];
    const cod_view *dx = &op->outputs[1], *dt = &op->outputs[2];
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
    for (int64_t c = 0; c < classes; c++) {
        const double t = keep * (double)element(target, row, c) + spread;
        const double log_q = (double)element(logits, row, c) - normaliser;
        if (cpu_present(dx))
            set_element(dx, row, c, run->factor * (float)(sum * exp(log_q) - t), op->accumulate);
        if (cpu_present(dt))
            set_element(dt, row, c, run->factor * (float)(-keep * log_q), op->accumulate);
    }
}

/** Value T²·KL, KL = Σ p·(log p - log q); its derivatives by the logits are T·(q - p) and T·p·(log p - log q - KL). */
static void kl_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const loss_run *run = context;
    const cod_op *op = &run->plan->op;
    const cod_view *prediction = &op->inputs[0], *target = &op->inputs[1];
    const cod_view *dx = &op->outputs[1], *dt = &op->outputs[2];
    const int64_t classes = prediction->shape.c;
    const double t = op->attr.temperature > 0 ? (double)op->attr.temperature : 1;
    const double log_q = log_sum_exp(prediction, row, t), log_p = log_sum_exp(target, row, t);
    double divergence = 0;
    for (int64_t c = 0; c < classes; c++) {
        const double lq = (double)element(prediction, row, c) / t - log_q,
                     lp = (double)element(target, row, c) / t - log_p;
        const double p = exp(lp);
        divergence += p > 0 ? p * (lp - lq) : p; /* 0·log 0 = 0, but NaN stays */
        if (cpu_present(dx))
            set_element(dx, row, c, run->factor * (float)(t * (exp(lq) - p)), op->accumulate);
    }
    for (int64_t c = 0; c < classes && cpu_present(dt); c++) {
        const double lq = (double)element(prediction, row, c) / t - log_q,
                     lp = (double)element(target, row, c) / t - log_p;
        const double p = exp(lp), slope = p > 0 ? t * p * (lp - lq - divergence) : p;
        set_element(dt, row, c, run->factor * (float)slope, op->accumulate);
    }
    run->sums[row] = t * t * divergence;
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
    const cod_view *const views[] = {&op->inputs[0], &op->inputs[1], &op->outputs[1], &op->outputs[2]};
    if (op->attr.loss == COD_LOSS_CROSS_ENTROPY || op->attr.loss == COD_LOSS_KL) {
        plan->run = class_loss_run;
        return cpu_plan_need_scratch(plan, (size_t)cpu_pixels(&op->inputs[0]) * sizeof(double));
    }
    if (op->attr.loss == COD_LOSS_TV) {
        plan->run = total_variation_run;
        return cpu_plan_need_scratch(plan, (size_t)(views[0]->shape.n * views[0]->shape.h) * sizeof(double));
    }
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(loss_state)));
    loss_state *state = plan->state;
    state->grid = cpu_grid_of(views, 4, false);
    state->chunks = cpu_chunks_of(state->grid.pixels, state->grid.channels);
    plan->run = pixel_loss_run;
    return cpu_plan_need_scratch(plan, (size_t)(state->chunks.count + 1) * sizeof(double));
}

static void mix_row(void *context, int64_t row, int thread)
{
    (void)thread;
    const cod_plan *plan = context;
    const cod_view *x = &plan->op.inputs[0], *y = &plan->op.outputs[0];
    const double t = plan->op.attr.temperature > 0 ? (double)plan->op.attr.temperature : 1;
    const double share = (double)*(const float *)cod_view_host(&plan->op.inputs[1]);
    const double from_x = log(share) - log_sum_exp(x, row, t), from_y = log(1 - share) - log_sum_exp(y, row, t);
    for (int64_t c = 0; c < x->shape.c; c++) {
        const double a = (double)element(x, row, c) / t + from_x, b = (double)element(y, row, c) / t + from_y;
        set_element(y, row, c, (float)(t * (fmax(a, b) + log1p(exp(-fabs(a - b))))), false);
    }
}

static cod_status mix_run(cod_plan *plan)
{
    cpu_parallel_for(plan->device, cpu_pixels(&plan->op.inputs[0]), mix_row, plan);
    return COD_OK;
}

cod_status cpu_plan_mix(cod_plan *plan)
{
    plan->run = mix_run;
    return COD_OK;
}

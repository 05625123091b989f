#include "cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

/*
 * What runs over flat f32 buffers: gradient norm, optimisers, moving averages. The pieces of a sum depend on the count
 * alone.
 */

enum { PIECE = 1 << 15 };

typedef struct update_run {
    const cod_plan *plan;
    cpu_optimiser optimiser;
    int64_t count;
    double *sums;              /**< one for each piece */
    int64_t first;             /**< of an optimiser's elements that are updated next */
    cpu_packed_weights packed; /**< among them */
} update_run;

static int64_t pieces(int64_t count)
{
    return (count + PIECE - 1) / PIECE;
}

static int64_t piece_length(int64_t count, int64_t i)
{
    return count - i * PIECE < PIECE ? count - i * PIECE : PIECE;
}

static float *piece(const cod_view *view, int64_t i)
{
    return cpu_present(view) ? (float *)cod_view_host(view) + i * PIECE : NULL;
}

static void squares_piece(void *context, int64_t i, int thread)
{
    (void)thread;
    const update_run *run = context;
    const float *grad = piece(&run->plan->op.inputs[0], i);
    run->sums[i] = run->plan->device->kernels->dot(grad, grad, piece_length(run->count, i));
}

static cod_status grad_norm_run(cod_plan *plan)
{
    update_run run = {.plan = plan,
                      .count = cod_shape_count(plan->op.inputs[0].shape),
                      .sums = (double *)(void *)plan->device->scratch};
    cpu_parallel_for(plan->device, pieces(run.count), squares_piece, &run);
    double sum = 0;
    for (int64_t i = 0; i < pieces(run.count); i++)
        sum += run.sums[i];
    *(float *)cod_view_host(&plan->op.outputs[0]) = (float)sqrt(sum);
    return COD_OK;
}

cod_status cpu_plan_grad_norm(cod_plan *plan)
{
    plan->run = grad_norm_run;
    return cpu_plan_need_scratch(plan, (size_t)pieces(cod_shape_count(plan->op.inputs[0].shape)) * sizeof(double));
}

static float *element(const cod_view *view, int64_t i)
{
    return cpu_present(view) ? (float *)cod_view_host(view) + i : NULL;
}

static void update_elements(const update_run *run, int64_t first, int64_t count)
{
    const cod_op *op = &run->plan->op;
    const cpu_kernels *kernels = run->plan->device->kernels;
    const float *scalars = cod_view_host(&op->inputs[1]), *grad = element(&op->inputs[0], first);
    float *param = element(&op->outputs[0], first);
    float *m = element(&op->outputs[1], first), *v = element(&op->outputs[2], first);
    if (op->attr.optimiser == COD_OPT_SGD)
        kernels->sgd(&run->optimiser, grad, param, op->attr.momentum > 0 ? m : NULL, count);
    else
        kernels->adam(&run->optimiser, op->attr.optimiser == COD_OPT_ADAMW, grad, param, m, v, count);
    if (cpu_present(&op->outputs[3])) /* while they are in the cache */
        kernels->ema(param, element(&op->outputs[3], first), scalars[3], count);
}

static void optimiser_piece(void *context, int64_t i, int thread)
{
    (void)thread;
    const update_run *run = context;
    update_elements(run, run->first + i * PIECE, piece_length(run->count - run->first, i));
}

/** A band of weights, and while it is in the cache what plans read of it. */
static void optimiser_band(void *context, int64_t i, int thread)
{
    (void)thread;
    const update_run *run = context;
    const cpu_packed_weights *packed = &run->packed;
    update_elements(run, packed->at + i * packed->band, cpu_least(packed->count - i * packed->band, packed->band));
    cpu_packs_renew_band(packed, i);
}

/** Updates all elements: those of weights that plans keep packed band by band, those between them by pieces. */
static void update_all(update_run *run)
{
    const cod_device *device = run->plan->device;
    const float *params = cod_view_host(&run->plan->op.outputs[0]);
    const int64_t count = run->count;
    while (cpu_packs_next(device, params, count, &run->packed)) {
        run->count = run->packed.at;
        cpu_parallel_for(device, pieces(run->count - run->first), optimiser_piece, run);
        cpu_parallel_for(device, run->packed.bands, optimiser_band, run);
        cpu_packs_renewed(&run->packed);
        run->first = run->packed.at + run->packed.count;
    }
    run->count = count;
    cpu_parallel_for(device, pieces(count - run->first), optimiser_piece, run);
}

static cod_status optimiser_run(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const cod_op_attr *attr = &op->attr;
    const float *scalars = cod_view_host(&op->inputs[1]);
    update_run run = {.plan = plan, .count = cod_shape_count(op->inputs[0].shape)};
    run.optimiser = (cpu_optimiser){.lr = scalars[0],
                                    .beta1 = attr->beta1,
                                    .beta2 = attr->beta2,
                                    .correction1 = scalars[1],
                                    .root_correction2 = sqrtf(scalars[2]),
                                    .epsilon = attr->epsilon,
                                    .decay = attr->weight_decay,
                                    .momentum = attr->momentum,
                                    .grad_scale = 1,
                                    .nesterov = attr->nesterov};
    if (cpu_present(&op->inputs[2]) && attr->max_norm > 0) {
        const float scale = attr->max_norm / (*(const float *)cod_view_host(&op->inputs[2]) + 1e-6f);
        run.optimiser.grad_scale = scale < 1 || isnan(scale) ? scale : 1;
    }
    update_all(&run);
    if (cpu_present(&op->outputs[4]))
        memcpy(cod_view_host(&op->outputs[4]), cod_view_host(&op->inputs[3]), cod_view_span_bytes(&op->inputs[3]));
    return COD_OK;
}

cod_status cpu_plan_optimiser(cod_plan *plan)
{
    const cod_op *op = &plan->op;
    const bool sgd = op->attr.optimiser == COD_OPT_SGD;
    const bool first = !sgd || op->attr.momentum > 0;
    COD_REQUIRE(!first || cpu_present(&op->outputs[1]), "this optimiser needs a first moment");
    COD_REQUIRE(sgd || cpu_present(&op->outputs[2]), "this optimiser needs a second moment");
    plan->run = optimiser_run;
    return COD_OK;
}

static void ema_piece(void *context, int64_t i, int thread)
{
    (void)thread;
    const update_run *run = context;
    const cod_op *op = &run->plan->op;
    run->plan->device->kernels->ema(piece(&op->inputs[0], i), piece(&op->outputs[0], i),
                                    *(const float *)cod_view_host(&op->inputs[1]), piece_length(run->count, i));
}

static cod_status ema_run(cod_plan *plan)
{
    update_run run = {.plan = plan, .count = cod_shape_count(plan->op.inputs[0].shape)};
    cpu_parallel_for(plan->device, pieces(run.count), ema_piece, &run);
    return COD_OK;
}

cod_status cpu_plan_ema(cod_plan *plan)
{
    plan->run = ema_run;
    return COD_OK;
}

/*
 * Convolutions that shuffle pixels, by implementations that know no shuffle, such as a library's: the convolution
 * writes the small picture into scratch memory, and the kernel of PIXEL_SHUFFLE moves it, with the activation. The
 * scratch memory is that of gradients (scratch.cuh), or the small pictures of a program would need as much as its large
 * ones. Libraries are given its address for good, so a later plan that needs more gets memory of its own.
 */
#include "cuda/conv_plan.cuh"
#include "cuda/scratch.cuh"

extern "C" {
#include "core/memory.h"
}

#include <cstring>

struct shuffled_state {
    cuda_buffer between;
    cuda_scratch *scratch; /**< where it lies */
    cod_op convolution, shuffle;
    cod_plan plans[2]; /**< of the two ops */
};

/** Whether the op is a convolution and what the shuffle can do behind it. */
static bool fits(const cod_op *op)
{
    return op->kind == COD_OP_CONV2D && cod_op_shuffle(&op->attr) > 1 && op->attr.int8_range <= 0 &&
           op->inputs[4].buffer == nullptr;
}

/**
 * Takes the op apart.
 *
 * @param between  where the small picture begins
 * @param shuffle  with an activation's slope at CONV_SLOPE and its output at CONV_ACTIVATED, as a convolution has them
 */
static void take_apart(const cod_op *op, cod_buffer *between, cod_op *convolution, cod_op *shuffle)
{
    const cod_view *y = &op->outputs[0];
    const int64_t r = cod_op_shuffle(&op->attr);
    const cod_view small =
        cod_view_dense(between, 0, y->dtype, {y->shape.n, y->shape.h / r, y->shape.w / r, y->shape.c * r * r});
    *shuffle = {};
    shuffle->kind = COD_OP_PIXEL_SHUFFLE;
    shuffle->name = op->name;
    shuffle->attr = op->attr;
    shuffle->inputs[0] = small;
    shuffle->inputs[CONV_SLOPE] = op->inputs[CONV_SLOPE];
    shuffle->outputs[0] = *y;
    shuffle->outputs[CONV_ACTIVATED] = op->outputs[CONV_ACTIVATED];
    *convolution = *op;
    convolution->attr.factor = 0;
    convolution->attr.activation = COD_ACT_NONE;
    convolution->inputs[CONV_SLOPE] = convolution->outputs[CONV_ACTIVATED] = {};
    convolution->outputs[0] = small;
}

static cod_status shuffled_run(const cod_plan *plan, cudaStream_t stream)
{
    const shuffled_state *state = static_cast<const shuffled_state *>(plan->state);
    for (const cod_plan &part : state->plans)
        COD_TRY(part.run(&part, stream));
    return COD_OK;
}

static void shuffled_clear(const cod_plan *plan)
{
    shuffled_state *state = static_cast<shuffled_state *>(plan->state);
    for (cod_plan &part : state->plans)
        cuda_plan_clear(&part);
    cuda_scratch_leave(state->scratch);
}

/** What the convolution's weights need before it runs is the whole plan's. */
static void take_packing(cod_plan *plan, cod_plan *part)
{
    plan->packing = part->packing;
    memcpy(plan->rounded, part->rounded, sizeof plan->rounded);
    memset(part->rounded, 0, sizeof part->rounded);
}

static cod_status make_shuffled(cod_plan *plan, const cuda_candidate *candidate)
{
    cuda_candidate part = *candidate;
    part.make = candidate->make_part;
    COD_TRY(cuda_plan_state(plan, sizeof(shuffled_state)));
    shuffled_state *state = static_cast<shuffled_state *>(plan->state);
    take_apart(plan->ops, &state->between.base, &state->convolution, &state->shuffle);
    state->plans[0].ops = &state->convolution;
    state->plans[1].ops = &state->shuffle;
    for (cod_plan &each : state->plans) {
        each.device = plan->device;
        each.count = 1;
    }
    plan->clear = shuffled_clear;
    state->between.base.bytes = static_cast<size_t>(cod_view_span_bytes(&state->convolution.outputs[0]));
    COD_TRY(cuda_scratch_join(plan->device, plan->ops->outputs[0].buffer, state->between.base.bytes, &state->scratch));
    state->between.memory = cuda_scratch_use(state->scratch);
    COD_TRY(part.make(&state->plans[0], &part));
    take_packing(plan, &state->plans[0]);
    COD_TRY(cuda_make_pixel_shuffle(&state->plans[1]));
    plan->run = shuffled_run;
    return COD_OK;
}

void conv_shuffled_candidates(const cod_plan *plan, const char *key, cuda_lister *list_parts, cuda_candidates *list)
{
    cuda_buffer aligned = {}; /* as the scratch memory will be */
    cod_op convolution, shuffle;
    if (!fits(plan->ops))
        return;
    aligned.memory = reinterpret_cast<void *>(COD_ALIGNMENT);
    take_apart(plan->ops, &aligned.base, &convolution, &shuffle);
    cod_plan part = *plan;
    part.ops = &convolution;
    size_t at = list->count;
    list_parts(&part, key, list);
    for (; at < list->count; at++) {
        list->items[at].make_part = list->items[at].make;
        list->items[at].make = make_shuffled;
    }
}

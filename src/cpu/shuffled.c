/*
 * A convolution whose output's pixels are shuffled, as two or three plans: the convolution on an image in memory that
 * all such plans share, the shuffle, and a PReLU with a slope for each channel. For implementations that do not store
 * shuffled by themselves. (Slices of the batch that the second-level cache holds took 8 % longer with one thread, and
 * four times as long with two: a convolution of one image reads all weights and divides its work badly.)
 */
#include "cpu/cpu_internal.h"

#include "core/memory.h"

typedef struct shuffled_state {
    cod_plan *convolution, *shuffle, *activation;
} shuffled_state;

static void shuffled_destroy(void *memory)
{
    shuffled_state *state = memory;
    cpu_plan_destroy(state->convolution);
    cpu_plan_destroy(state->shuffle);
    cpu_plan_destroy(state->activation);
    cod_aligned_free(state);
}

bool cpu_shuffled_fits(const cod_device *device, const cod_op *op)
{
    (void)device;
    return op->attr.factor > 1;
}

static cod_status shuffled_prepare(cod_plan *plan)
{
    cod_plan *convolution = ((shuffled_state *)plan->state)->convolution;
    return convolution->prepare != NULL ? convolution->prepare(convolution) : COD_OK;
}

static cod_status forward_run(cod_plan *plan)
{
    const shuffled_state *state = plan->state;
    COD_TRY(state->convolution->run(state->convolution));
    COD_TRY(state->shuffle->run(state->shuffle));
    return state->activation != NULL ? state->activation->run(state->activation) : COD_OK;
}

static cod_status backward_run(cod_plan *plan)
{
    const shuffled_state *state = plan->state;
    COD_TRY(state->shuffle->run(state->shuffle));
    return state->convolution->run(state->convolution);
}

cod_status cpu_plan_shuffled(cod_plan *plan, cpu_plan_constructor *construct)
{
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(shuffled_state)));
    plan->destroy = shuffled_destroy;
    shuffled_state *state = plan->state;
    const cod_op *op = &plan->op;
    const bool forward = op->kind == COD_OP_CONV2D;
    const int64_t r = op->attr.factor;
    cod_op convolution = *op;
    cod_view *y = forward                                   ? &convolution.outputs[0]
                  : op->kind == COD_OP_CONV2D_BACKWARD_DATA ? &convolution.inputs[0]
                                                            : &convolution.inputs[1];
    const cod_view large = *y;
    const cod_shape shape = {large.shape.n, large.shape.h / r, large.shape.w / r, large.shape.c * r * r};
    COD_TRY(cpu_device_need_between(plan->device, (size_t)cod_shape_count(shape) * cod_dtype_bytes(large.dtype)));
    *y = cod_view_dense(&plan->device->between, 0, large.dtype, shape);
    convolution.attr.factor = 0;
    /* One a channel of the large image; a single one acts alike before the shuffle, where the convolution may do it. */
    const bool slopes = forward && op->attr.activation == COD_ACT_PRELU && cod_shape_count(op->inputs[3].shape) > 1;
    if (slopes) {
        convolution.attr.activation = COD_ACT_NONE;
        convolution.inputs[3] = (cod_view){.buffer = NULL};
    }
    cod_op shuffle = {.kind = forward ? COD_OP_PIXEL_SHUFFLE : COD_OP_PIXEL_UNSHUFFLE,
                      .attr = {.factor = op->attr.factor},
                      .inputs = {forward ? *y : large},
                      .outputs = {forward ? large : *y},
                      .name = op->name};
    COD_TRY(cpu_plan_create(plan->device, &convolution, construct, &state->convolution));
    COD_TRY(cpu_plan_create(plan->device, &shuffle, cpu_plan_shuffle, &state->shuffle));
    if (slopes) {
        const cod_op activation = {.kind = COD_OP_ACTIVATION,
                                   .attr = op->attr,
                                   .inputs = {large, op->inputs[3]},
                                   .outputs = {large},
                                   .name = op->name};
        COD_TRY(cpu_plan_create(plan->device, &activation, cpu_plan_activation, &state->activation));
    }
    if (op->kind != COD_OP_CONV2D_BACKWARD_WEIGHTS)
        plan->prepare = shuffled_prepare;
    plan->pack = state->convolution->pack;
    plan->run = forward ? forward_run : backward_run;
    return COD_OK;
}

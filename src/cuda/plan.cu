/* Plans: one op, or several fused ones, with the kernels that run it. */
#include "cuda/view.cuh"

#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cod_status cuda_plan_state(cod_plan *plan, size_t bytes)
{
    plan->state = calloc(1, bytes);
    COD_REQUIRE_MEMORY(plan->state);
    return COD_OK;
}

cod_status cuda_plan_memory(cod_plan *plan, size_t bytes)
{
    plan->bytes = bytes;
    return bytes > 0 ? cuda_memory_take(plan->device, bytes, &plan->memory) : COD_OK;
}

cod_status cuda_plan_write(const cod_plan *plan, void *target, const void *source, size_t bytes)
{
    return cuda_memory_write(plan->device, target, source, bytes);
}

static cuda_maker *maker_of(cod_op_kind kind)
{
    switch (kind) {
    case COD_OP_CONV2D:
    case COD_OP_CONV2D_BACKWARD_DATA:
    case COD_OP_CONV2D_BACKWARD_WEIGHTS:
    case COD_OP_LINEAR:
    case COD_OP_LINEAR_BACKWARD_DATA:
    case COD_OP_LINEAR_BACKWARD_WEIGHTS:
        return cuda_make_convolution;
    case COD_OP_NORM_TRAIN:
        return cuda_make_norm_train;
    case COD_OP_NORM_INFERENCE:
        return cuda_make_norm_inference;
    case COD_OP_NORM_BACKWARD:
        return cuda_make_norm_backward;
    case COD_OP_NORM_INFERENCE_BACKWARD:
        return cuda_make_norm_inference_backward;
    case COD_OP_NORM_STATISTICS:
        return cuda_make_norm_statistics;
    case COD_OP_NORM_APPLY:
        return cuda_make_norm_apply;
    case COD_OP_NORM_BACKWARD_REDUCE:
        return cuda_make_norm_backward_reduce;
    case COD_OP_NORM_BACKWARD_APPLY:
        return cuda_make_norm_backward_apply;
    case COD_OP_FOLD_NORM:
        return cuda_make_fold_norm;
    case COD_OP_ACTIVATION:
        return cuda_make_activation;
    case COD_OP_ACTIVATION_BACKWARD:
        return cuda_make_activation_backward;
    case COD_OP_ADD:
        return cuda_make_add;
    case COD_OP_MEAN:
        return cuda_make_mean;
    case COD_OP_PIXEL_SHUFFLE:
        return cuda_make_pixel_shuffle;
    case COD_OP_PIXEL_UNSHUFFLE:
        return cuda_make_pixel_unshuffle;
    case COD_OP_RESIZE:
        return cuda_make_resize;
    case COD_OP_RESIZE_BACKWARD:
        return cuda_make_resize_backward;
    case COD_OP_POOL:
        return cuda_make_pool;
    case COD_OP_POOL_BACKWARD:
        return cuda_make_pool_backward;
    case COD_OP_LOSS:
        return cuda_make_loss;
    case COD_OP_GRAD_NORM:
        return cuda_make_grad_norm;
    case COD_OP_OPTIMISER:
        return cuda_make_optimiser;
    case COD_OP_EMA:
        return cuda_make_ema;
    case COD_OP_FILL:
        return cuda_make_fill;
    case COD_OP_TURN:
        return cuda_make_turn;
    case COD_OP_MIX:
        return cuda_make_mix;
    case COD_OP_SPECTRAL_NORM:
        return cuda_make_spectral_norm;
    case COD_OP_SPECTRAL_NORM_BACKWARD:
        return cuda_make_spectral_norm_backward;
    case COD_OP_QUANTISE:
        return cuda_make_quantise;
    case COD_OP_DEQUANTISE:
        return cuda_make_dequantise;
    case COD_OP_MAGNITUDES:
        return cuda_make_magnitudes;
    case COD_OP_RANGES:
        return cuda_make_ranges;
    default:
        return nullptr;
    }
}

cod_status cuda_types_check(const cod_op *op)
{
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const cod_view *view = i < COD_OP_MAX_INPUTS ? &op->inputs[i] : &op->outputs[i - COD_OP_MAX_INPUTS];
        if (view->buffer != nullptr && view->dtype != COD_F32 && view->dtype != COD_BF16 && view->dtype != COD_I32 &&
            view->dtype != COD_U8)
            return cod_fail(COD_ERR_UNSUPPORTED, "no support for %s", cod_dtype_name(view->dtype));
    }
    return COD_OK;
}

void cuda_plan_clear(cod_plan *plan)
{
    cuda_memory_give(plan->device, plan->memory, plan->bytes);
    cuda_rounded_release(plan);
    if (plan->clear != nullptr)
        plan->clear(plan);
    free(plan->state);
    plan->run = nullptr;
    plan->clear = nullptr;
    plan->state = plan->memory = nullptr;
    plan->bytes = 0;
    plan->packing = {};
}

void cuda_plan_destroy(cod_plan *plan)
{
    if (plan == nullptr)
        return;
    cuda_plan_clear(plan);
    free(plan->ops);
    free(plan);
}

cod_status cuda_plan_create(cod_device *device, const cod_op *ops, size_t count, cuda_maker *make, const char *what,
                            cod_plan **out)
{
    cod_plan *plan = static_cast<cod_plan *>(calloc(1, sizeof *plan));
    COD_REQUIRE_MEMORY(plan);
    cuda_use(device); /* kernels are allowed shared memory on the thread's device */
    plan->device = device;
    plan->count = count;
    snprintf(plan->label, sizeof plan->label, "%s %s", what, ops->name != nullptr ? ops->name : "");
    plan->ops = static_cast<cod_op *>(calloc(count, sizeof *ops));
    cod_status status = COD_OK;
    if (plan->ops == nullptr) {
        status = cod_fail(COD_ERR_MEMORY, "out of memory");
    } else {
        memcpy(plan->ops, ops, count * sizeof *ops);
        status = make(plan);
    }
    if (status != COD_OK) {
        cuda_plan_destroy(plan);
        return cod_fail_prefix(status, "cuda: %s '%s'", what, ops->name != nullptr ? ops->name : "");
    }
    *out = plan;
    return COD_OK;
}

static cod_status make_single(cod_plan *plan)
{
    cuda_maker *make = maker_of(plan->ops->kind);
    COD_TRY(cuda_types_check(plan->ops));
    return make != nullptr ? make(plan) : cod_fail(COD_ERR_UNSUPPORTED, "there is no kernel for it");
}

cod_status cuda_plan_create_single(cod_device *device, const cod_op *op, cod_plan **out)
{
    COD_TRY(cod_op_check(op));
    return cuda_plan_create(device, op, 1, make_single, cod_op_kind_name(op->kind), out);
}

cod_status cuda_plans_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    return cuda_pack_plans(plans, count, false, cuda_stream(device, queue));
}

cod_status cuda_plans_prepare_updated(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    return cuda_pack_plans(plans, count, true, cuda_stream(device, queue));
}

cod_status cuda_plan_run(cod_plan *plan, cod_queue *queue)
{
    nvtxRangePushA(plan->label);
    if (plan->device->alone)
        cuda_chain_end(plan->device); /* the host waited for what was before */
    cod_status status = plan->run(plan, cuda_stream(plan->device, queue));
    if (plan->device->alone)
        COD_THEN(status, COD_CUDA(cudaStreamSynchronize(cuda_stream(plan->device, queue))));
    nvtxRangePop();
    return status == COD_OK ? COD_OK
                            : cod_fail_prefix(status, "%s '%s'", cod_op_kind_name(plan->ops[0].kind),
                                              plan->ops[0].name != nullptr ? plan->ops[0].name : "");
}

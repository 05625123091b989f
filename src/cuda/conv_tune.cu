/*
 * Convolutions and linear layers: by the kernels that the cost model prefers, or by what is fastest when it is timed.
 */
#include "cuda/conv_plan.cuh"

extern "C" {
#include "core/fused.h"
}

#include <cstring>

/** Asking libraries takes time: a choice of an own kernel that is remembered needs none of them. */
static bool is_own(const char *name)
{
    return name != nullptr && strncmp(name, "own-", 4) == 0;
}

cod_status cuda_make_convolution(cod_plan *plan)
{
    char key[CUDA_KEY_BYTES];
    cuda_tuner *tuner = nullptr;
    cuda_candidates list = {};
    const cuda_mode mode = cuda_tuner_mode(plan);
    COD_TRY(conv_check(plan->ops));
    if (mode == CUDA_MODE_FIXED)
        return conv_make_own(plan, nullptr);
    COD_TRY(cuda_tuner_of(plan->device, &tuner));
    cuda_tuner_key(plan, mode == CUDA_MODE_OWN ? "own kernels" : tuner->libraries, key, sizeof key);
    conv_own_candidates(plan, &list);
    if (mode == CUDA_MODE_AUTO && !is_own(cuda_choices_find(tuner->choices, key))) {
        cudnn_candidates(plan, key, &list);
        cublaslt_candidates(plan, &list);
    }
    return cuda_tuner_make(plan, key, &list);
}

/*
 * A linear layer's data gradient with ReLU's gradient behind it is, in this backend, one op: the first with the second's
 * activation, and with ReLU's y as input CONV_GATE. So it is tuned as others are.
 */

size_t cuda_gated_fuses(const cod_device *, const cod_op *ops, size_t count)
{
    const cod_fused fused = cod_fused_sequence(ops, count);
    if (fused.product == nullptr || fused.product->kind != COD_OP_LINEAR_BACKWARD_DATA || fused.count != 2)
        return 1;
    const cod_activation kind = fused.after->attr.activation;
    const cod_op_attr attr = conv_attributes(fused.product);
    const bool has_kernel = conv_multiplied_type(fused.product, &attr) == COD_BF16;
    return has_kernel && (kind == COD_ACT_RELU || kind == COD_ACT_LEAKY_RELU) ? 2 : 1;
}

cod_status cuda_make_gated(cod_plan *plan)
{
    cod_op *product = &plan->ops[0];
    const cod_op *gradient = &plan->ops[1];
    product->attr.activation = gradient->attr.activation;
    product->attr.leak = gradient->attr.leak;
    product->inputs[CONV_GATE] = gradient->inputs[0];
    plan->count = 1;
    return cuda_make_convolution(plan);
}

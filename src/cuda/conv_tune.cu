/*
 * Convolutions and linear layers: by the kernels that the cost model prefers, or by what is fastest when it is timed.
 */
#include "cuda/conv_plan.cuh"

extern "C" {
#include "core/fused.h"
#include "core/memory.h"
}

#include <cstring>

/** Asking libraries takes time: a choice of an own kernel that is remembered needs none of them. */
static bool is_own(const char *name)
{
    return name != nullptr && strncmp(name, "own-", 4) == 0;
}

void conv_library_candidates(const cod_plan *plan, const char *key, cuda_candidates *list)
{
    cudnn_candidates(plan, key, list);
    conv_shuffled_candidates(plan, key, cudnn_candidates, list);
    cublaslt_candidates(plan, list);
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
    if (mode == CUDA_MODE_AUTO && !is_own(cuda_choices_find(tuner->choices, key)))
        conv_library_candidates(plan, key, &list);
    return cuda_tuner_make(plan, key, &list);
}

/*
 * A product with an activation behind it, or a data gradient with an activation's gradient, is one op in this backend:
 * the product with the other op's activation, inputs and outputs at CONV_SLOPE, CONV_GATE, CONV_DSLOPE and
 * CONV_ACTIVATED. So it is tuned as others are. Libraries know linear layers' alone; therefore a convolution is joined
 * where no library is better at it, or where a library's needs a kernel behind it anyway: where it shuffles pixels, or
 * is between a wide and a narrow tensor, or where libraries are not asked.
 */

static void join_ops(cod_op *product, const cod_op *other)
{
    const bool forward = other->kind == COD_OP_ACTIVATION;
    product->attr.activation = other->attr.activation;
    product->attr.leak = other->attr.leak;
    product->inputs[CONV_SLOPE] = other->inputs[forward ? 1 : 2];
    if (forward) {
        product->outputs[CONV_ACTIVATED] = other->outputs[0];
        return;
    }
    product->inputs[CONV_GATE] = other->inputs[0];
    product->outputs[CONV_DSLOPE] = other->outputs[1];
}

/** A plan that is only looked at. */
static cod_plan plan_to_ask(const cod_device *device, cod_op *op)
{
    cod_plan plan = {};
    plan.device = const_cast<cod_device *>(device);
    plan.ops = op;
    plan.count = 1;
    return plan;
}

/**
 * Whether the op is one for the kernels between wide and narrow tensors. Its buffers may be such as only stand for real
 * ones: an address that is the same modulo COD_ALIGNMENT takes their place.
 */
static bool is_narrow(const cod_device *device, const cod_op *op)
{
    cuda_buffer buffer = {};
    cod_op copy = *op;
    buffer.memory = reinterpret_cast<void *>(COD_ALIGNMENT);
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        cod_view *view = i < COD_OP_MAX_INPUTS ? &copy.inputs[i] : &copy.outputs[i - COD_OP_MAX_INPUTS];
        if (view->buffer != nullptr)
            view->buffer = &buffer.base;
    }
    const cod_plan plan = plan_to_ask(device, &copy);
    return narrow_fits(&plan, COD_BF16);
}

/** Whether the two ops of a sequence around a convolution are faster as one. */
static bool joins(const cod_device *device, const cod_op *ops, cod_op *joined)
{
    const cod_plan plan = plan_to_ask(device, joined);
    const cod_op_attr *attr = &ops[0].attr;
    if (ops[1].outputs[1].buffer != nullptr && (attr->stride_h != 1 || attr->stride_w != 1))
        return false; /* blocks of phases without pixels would have no sums */
    if (ops[0].kind == COD_OP_CONV2D && (attr->activation != COD_ACT_NONE || ops[0].inputs[4].buffer != nullptr))
        return false;
    if (is_narrow(device, &ops[0]))
        return is_narrow(device, joined);
    return cod_op_shuffle(attr) > 1 || cuda_tuner_mode(&plan) != CUDA_MODE_AUTO;
}

size_t cuda_joined_fuses(const cod_device *device, const cod_op *ops, size_t count)
{
    const cod_fused fused = cod_fused_sequence(ops, count);
    if (fused.count != 2 || fused.after == nullptr ||
        (fused.after->kind != COD_OP_ACTIVATION && fused.after->kind != COD_OP_ACTIVATION_BACKWARD))
        return 1;
    const cod_activation kind = fused.after->attr.activation;
    const cod_op_attr attr = conv_attributes(fused.product);
    const bool linear = fused.product->kind == COD_OP_LINEAR_BACKWARD_DATA,
               kinked = kind == COD_ACT_RELU || kind == COD_ACT_LEAKY_RELU || (kind == COD_ACT_PRELU && !linear);
    if (conv_multiplied_type(fused.product, &attr) != COD_BF16 ||
        (fused.after->kind == COD_OP_ACTIVATION_BACKWARD && !kinked))
        return 1;
    cod_op joined = ops[0];
    join_ops(&joined, fused.after);
    return linear || joins(device, ops, &joined) ? 2 : 1;
}

cod_status cuda_make_joined(cod_plan *plan)
{
    join_ops(&plan->ops[0], &plan->ops[1]);
    plan->count = 1;
    return cuda_make_convolution(plan);
}

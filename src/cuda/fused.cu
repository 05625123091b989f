/* Fused plans: which kernels take several ops together, tried in the order of this list. */
#include "cuda/cuda_internal.h"

struct fusion {
    cuda_recogniser *fuses;
    cuda_maker *make;
    const char *what; /**< for messages */
};

static const fusion fusions[] = {
    {cuda_conv3_fuses, cuda_make_conv3, "3x3 convolution with normalisation"},
    {cuda_joined_fuses, cuda_make_joined, "product with an activation or its gradient"},
    {cuda_gradients_fuse, cuda_make_gradients, "weight gradients of several layers"},
};

/** The first kernel that takes two of the ops or more; *taken says how many. */
static const fusion *fusion_of(const cod_device *device, const cod_op *ops, size_t count, size_t *taken)
{
    for (const fusion &candidate : fusions) {
        *taken = count > 1 ? candidate.fuses(device, ops, count) : 1;
        if (*taken > 1)
            return &candidate;
    }
    *taken = 1;
    return nullptr;
}

size_t cuda_op_fuses(cod_device *device, const cod_op *ops, size_t count)
{
    size_t taken;
    fusion_of(device, ops, count, &taken);
    return taken;
}

cod_status cuda_plan_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    size_t taken;
    COD_REQUIRE(count > 0, "a fused plan of no ops");
    for (size_t i = 0; i < count; i++) {
        COD_TRY(cod_op_check(&ops[i]));
        COD_TRY(cuda_types_check(&ops[i]));
    }
    if (count == 1)
        return cod_cuda_backend.plan_create(device, ops, out);
    const fusion *found = fusion_of(device, ops, count, &taken);
    COD_REQUIRE(taken == count, "%zu ops from %s '%s' on are no fused plan: op_fuses() takes %zu of them", count,
                cod_op_kind_name(ops->kind), ops->name != nullptr ? ops->name : "", taken);
    return cuda_plan_create(device, ops, count, found->make, found->what, out);
}

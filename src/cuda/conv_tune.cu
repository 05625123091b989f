/*
 * Convolutions and linear layers: by the kernels that the cost model prefers, or by what is fastest when it is timed.
 */
#include "cuda/tuner.cuh"

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

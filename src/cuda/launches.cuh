/**
 * @file
 * Plans that run a fixed list of kernels, each of which has the same argument: what the maker chose, by value.
 */
#ifndef COD_CUDA_LAUNCHES_CUH
#define COD_CUDA_LAUNCHES_CUH

#include "cuda/view.cuh"

template <typename W> struct cuda_plan_kernel {
    void (*kernel)(W work);
    dim3 blocks;
    size_t shared_bytes;
    unsigned threads = CUDA_THREADS;
};

/** The state of such a plan. */
template <typename W, size_t N> struct cuda_launches {
    W work;
    cuda_plan_kernel<W> kernels[N];
};

template <typename W, size_t N> static cod_status cuda_launches_run(const cod_plan *plan, cudaStream_t stream)
{
    const auto *launches = static_cast<const cuda_launches<W, N> *>(plan->state);
    for (const cuda_plan_kernel<W> &next : launches->kernels)
        COD_TRY(cuda_launch_chained(plan->device, stream, next.kernel, next.blocks, next.threads, next.shared_bytes,
                                    launches->work));
    return COD_OK;
}

/** Makes the plan run these kernels, one after another; the last step of a maker. */
template <typename W, size_t N>
COD_MUST_CHECK cod_status cuda_plan_launches(cod_plan *plan, const W &work, const cuda_plan_kernel<W> (&kernels)[N])
{
    COD_TRY(cuda_plan_state(plan, sizeof(cuda_launches<W, N>)));
    auto *launches = static_cast<cuda_launches<W, N> *>(plan->state);
    launches->work = work;
    for (size_t i = 0; i < N; i++)
        launches->kernels[i] = kernels[i];
    plan->run = cuda_launches_run<W, N>;
    return COD_OK;
}

#endif

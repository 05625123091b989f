/**
 * @file
 * What the kernels of losses share.
 */
#ifndef COD_CUDA_LOSS_CUH
#define COD_CUDA_LOSS_CUH

#include "cuda/class_rows.cuh"

struct loss_work {
    cuda_walk walk; /**< of losses that are means over elements, and of total variation */
    cuda_view prediction, target, dprediction, dtarget;
    const float *weight; /**< of the gradients; may be NULL */
    float *value;
    cod_loss_kind kind;
    float mean;  /**< 1 over the number of elements or rows */
    float alpha; /**< constant factor of the gradients */
    float epsilon, temperature, smoothing;
    float vertical, horizontal; /**< total variation: 1 over the number of pairs; 0 without any */
    class_rows rows;            /**< losses over rows */
    cuda_sums sums;
    bool accumulate;
};

/**
 * What derivatives of single terms are multiplied by; read when the kernel runs, as the weight may change from step to
 * step.
 */
static __device__ __forceinline__ float loss_factor(const loss_work &work)
{
    return work.alpha * (work.weight != NULL ? work.weight[0] : 1) * work.mean;
}

/** The end of each kernel: the threads' sums become the value. */
static __device__ __forceinline__ void loss_finish(const loss_work &work, float sum)
{
    chain_release();
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        work.sums.partials[(blockIdx.x * gridDim.z + blockIdx.z) * gridDim.y + blockIdx.y] = sum;
    if (!block_is_last(work.sums.ticket))
        return;
    grid_totals(work.sums, gridDim.x * gridDim.y * gridDim.z);
    if (threadIdx.x == 0)
        work.value[0] = work.sums.totals[0] * work.mean;
}

/** The derivative of |d|: 0 at 0, NaN stays NaN. */
static __device__ __forceinline__ float sign_of(float d)
{
    return d > 0 ? 1 : d < 0 ? -1 : d;
}

/* loss_rows.cu: CROSS_ENTROPY and KL. */
cod_status cuda_make_loss_rows(cod_plan *plan, loss_work *work);

#endif

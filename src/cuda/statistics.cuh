/**
 * @file
 * Where a normalisation's kernels write the statistics of a batch.
 */
#ifndef COD_CUDA_STATISTICS_CUH
#define COD_CUDA_STATISTICS_CUH

#include "cuda/view.cuh"

/** By channel; the running ones are NULL where they do not move. */
struct cuda_statistics {
    float *mean, *inv_std, *running_mean, *running_var;
    float epsilon, momentum;
};

/** `outputs`: mean, inv_std, [running mean, running variance]. */
static inline cuda_statistics cuda_statistics_of(const cod_op_attr *attr, const cod_view *outputs)
{
    return {cuda_floats_of(&outputs[0]),
            cuda_floats_of(&outputs[1]),
            cuda_floats_of(&outputs[2]),
            cuda_floats_of(&outputs[3]),
            attr->epsilon,
            attr->momentum};
}

/** Writes those of `count` pixels, and moves the running ones. */
static __device__ __forceinline__ void statistics_put(const cuda_statistics &to, int channel, float mean,
                                                      float variance, float count)
{
    to.mean[channel] = mean;
    to.inv_std[channel] = 1 / sqrtf(variance + to.epsilon);
    if (to.running_mean == NULL)
        return;
    const float unbiased = count > 1 ? variance * (count / (count - 1)) : variance;
    to.running_mean[channel] += to.momentum * (mean - to.running_mean[channel]);
    to.running_var[channel] += to.momentum * (unbiased - to.running_var[channel]);
}

#endif

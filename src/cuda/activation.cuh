/**
 * @file
 * Activation functions in kernels, as the table in core/backend.h has them.
 */
#ifndef COD_CUDA_ACTIVATION_CUH
#define COD_CUDA_ACTIVATION_CUH

#include "cuda/view.cuh"

struct cuda_activation {
    cod_activation kind;
    float leak;
    const float *slope; /**< PRELU: [1] or [C] */
    bool slope_by_channel;
};

static inline cuda_activation cuda_activation_of(const cod_op_attr *attr, const cod_view *slope)
{
    cuda_activation out = {};
    out.kind = attr->activation;
    out.leak = attr->leak;
    out.slope = cuda_floats_of(slope);
    out.slope_by_channel = slope->buffer != nullptr && cod_shape_count(slope->shape) > 1;
    return out;
}

/** The factor where x <= 0, of the ReLU family. */
static __device__ __forceinline__ float activation_slope(const cuda_activation &activation, int channel)
{
    if (activation.kind == COD_ACT_PRELU)
        return activation.slope[activation.slope_by_channel ? channel : 0];
    return activation.kind == COD_ACT_LEAKY_RELU ? activation.leak : 0;
}

static __device__ __forceinline__ float activate(const cuda_activation &activation, float x, int channel)
{
    switch (activation.kind) {
    case COD_ACT_NONE:
        return x;
    case COD_ACT_SIGMOID:
        return 1 / (1 + expf(-x));
    case COD_ACT_TANH:
        return tanhf(x);
    default:
        return x > 0 ? x : activation_slope(activation, channel) * x;
    }
}

/** dy/dx from x for PRELU and none, from y for the others. */
static __device__ __forceinline__ float activation_gradient(const cuda_activation &activation, float x_or_y,
                                                            int channel)
{
    switch (activation.kind) {
    case COD_ACT_NONE:
        return 1;
    case COD_ACT_SIGMOID:
        return x_or_y * (1 - x_or_y);
    case COD_ACT_TANH:
        return 1 - x_or_y * x_or_y;
    default:
        return x_or_y > 0 ? 1 : activation_slope(activation, channel);
    }
}

#endif

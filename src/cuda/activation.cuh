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
    case COD_ACT_RELU:
        return x <= 0 ? 0 : x; /* NaN stays NaN */
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

/** The slopes of channels `channel`, … */
template <int WIDTH>
static __device__ __forceinline__ void activation_slopes(const cuda_activation &activation, int channel,
                                                         float (&out)[WIDTH])
{
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
        out[i] = activation_slope(activation, channel + i);
}

/** activate() of several channels, whose slopes are at hand: one decision for all of them. */
template <int WIDTH>
static __device__ __forceinline__ void activate_lanes(const cuda_activation &activation, const float (&slope)[WIDTH],
                                                      float (&x)[WIDTH])
{
    switch (activation.kind) {
    case COD_ACT_NONE:
        return;
    case COD_ACT_SIGMOID:
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            x[i] = 1 / (1 + expf(-x[i]));
        return;
    case COD_ACT_TANH:
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            x[i] = tanhf(x[i]);
        return;
    case COD_ACT_RELU:
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            x[i] = x[i] <= 0 ? 0 : x[i];
        return;
    default:
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            x[i] = x[i] > 0 ? x[i] : slope[i] * x[i];
    }
}

/**
 * The gradient of what went into an activation that is bent at 0, from that of what came out. A slope of 0 selects, and
 * does not multiply: what is not finite behind a closed ReLU is 0, as in PyTorch, cuDNN and cuBLASLt.
 */
static __device__ __forceinline__ float activation_gate(float x_or_y, float gradient, float slope)
{
    return x_or_y > 0 ? gradient : slope == 0 ? 0 : gradient * slope;
}

/** Multiplies gradients by dy/dx, from x for PRELU and none, from y for the others. */
template <int WIDTH>
static __device__ __forceinline__ void activation_gradients(const cuda_activation &activation,
                                                            const float (&slope)[WIDTH], const float (&x_or_y)[WIDTH],
                                                            float (&gradient)[WIDTH])
{
    switch (activation.kind) {
    case COD_ACT_NONE:
        return;
    case COD_ACT_SIGMOID:
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            gradient[i] *= x_or_y[i] * (1 - x_or_y[i]);
        return;
    case COD_ACT_TANH:
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            gradient[i] *= 1 - x_or_y[i] * x_or_y[i];
        return;
    default:
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            gradient[i] = activation_gate(x_or_y[i], gradient[i], slope[i]);
    }
}

#endif

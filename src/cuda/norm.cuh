/**
 * @file
 * What the kernels of normalisations share.
 */
#ifndef COD_CUDA_NORM_CUH
#define COD_CUDA_NORM_CUH

#include "cuda/activation.cuh"
#include "cuda/statistics.cuh"
#include "cuda/sums.cuh"

struct norm_work {
    cuda_walk walk, sums_walk; /**< of the pass that writes; of the pass that only sums */
    cuda_view x, dy, residual; /**< dy: of gradients, residual: of forward kinds; may be absent */
    cuda_view y;               /**< the output, or dx */
    cuda_view g;               /**< where the pass that sums a gradient keeps it; may be absent */
    const float *gamma, *beta, *mean, *spread;
    bool spread_is_variance; /**< else `spread` is inv_std */
    bool shifts;             /**< z is x·scale + (beta - mean·scale), as conv3_load.cuh has it, to the bits */
    float epsilon;
    cuda_activation activation;
    cuda_sums sums;         /**< [2][C] moments; [2 or 3][C] sums of the gradient */
    const float *sums_of_g; /**< [2][C], of g and of g·x^, where they are an input */
    float *sums_out;        /**< the same where they are an output; may be NULL */
    cuda_statistics statistics;
    float *dgamma, *dbeta, *dslope;
    bool accumulate, dslope_by_channel;
};

/** Vectors by channel in shared memory. MEAN_G, MEAN_GD: the means of the gradient, see norm_backward.cu. */
enum { NORM_MEAN, NORM_SCALE, NORM_OFFSET, NORM_SLOPE, NORM_MEAN_G, NORM_MEAN_GD, NORM_VECTORS };

static inline size_t norm_shared(const cuda_walk &walk)
{
    return static_cast<size_t>(NORM_VECTORS * walk.width * cuda_lanes_width(walk.lanes)) * sizeof(float);
}

/** The vectors of one thread's channels. */
template <int WIDTH> struct norm_lanes {
    float mean[WIDTH], scale[WIDTH], offset[WIDTH], slope[WIDTH];
};

static __device__ __forceinline__ float norm_inv_std(const norm_work &work, int channel)
{
    const float spread = work.spread[channel];
    return work.spread_is_variance ? 1 / sqrtf(spread + work.epsilon) : spread;
}

/**
 * Puts the vectors of the block's channels into shared memory, [NORM_VECTORS][span], where all threads see them.
 * `means`: also those of the gradient, zeros where statistics are constants.
 */
template <int WIDTH>
static __device__ __forceinline__ void norm_vectors_share(const norm_work &work, const cuda_walk &walk, bool means)
{
    float *shared = shared_memory<float>();
    const int span = walk.width * WIDTH;
    for (int i = (int)threadIdx.x; i < span; i += (int)blockDim.x) {
        const int channel = grid_tile() * span + i;
        if (channel >= walk.channels)
            break;
        const float inv_std = norm_inv_std(work, channel);
        const float mean = work.mean[channel], scale = work.gamma[channel] * inv_std;
        const float beta = work.beta != NULL ? work.beta[channel] : 0;
        shared[NORM_MEAN * span + i] = work.shifts ? 0 : mean;
        shared[NORM_SCALE * span + i] = scale;
        shared[NORM_OFFSET * span + i] = work.shifts ? beta - mean * scale : beta;
        shared[NORM_SLOPE * span + i] = activation_slope(work.activation, channel);
        if (!means)
            continue;
        const bool constant = work.spread_is_variance;
        const bool given = work.sums_of_g != NULL; /* they are of g·x^, totals of g·d */
        const float count = (float)walk.pixels, *totals = given ? work.sums_of_g : work.sums.totals;
        const float factor = given ? inv_std : inv_std * inv_std;
        shared[NORM_MEAN_G * span + i] = constant ? 0 : totals[channel] / count;
        shared[NORM_MEAN_GD * span + i] = constant ? 0 : totals[walk.channels + channel] * factor / count;
    }
    block_sync();
}

/** One of the vectors, at this thread's channels. */
template <int WIDTH>
static __device__ __forceinline__ void norm_vector(const cuda_walk &walk, int vector, float (&out)[WIDTH])
{
    const float *from = shared_memory<float>() + (vector * walk.width + (int)threadIdx.x % walk.width) * WIDTH;
    if constexpr (WIDTH == 1) {
        out[0] = from[0];
    } else {
        uint32_t words[WIDTH];
#pragma unroll
        for (int i = 0; i < WIDTH; i += 4)
            read16(words + i, reinterpret_cast<const unsigned char *>(from + i));
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            out[i] = f32_from_word(words[i]);
    }
}

template <int WIDTH> static __device__ __forceinline__ norm_lanes<WIDTH> norm_lanes_of(const cuda_walk &walk)
{
    norm_lanes<WIDTH> by;
    norm_vector(walk, NORM_MEAN, by.mean);
    norm_vector(walk, NORM_SCALE, by.scale);
    norm_vector(walk, NORM_OFFSET, by.offset);
    norm_vector(walk, NORM_SLOPE, by.slope);
    return by;
}

/** x becomes its distance from the mean, and z = gamma·(x - mean)·inv_std + beta. */
template <int WIDTH>
static __device__ __forceinline__ void normalise(const norm_lanes<WIDTH> &by, float (&x)[WIDTH], float (&z)[WIDTH])
{
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
        x[i] -= by.mean[i];
        z[i] = x[i] * by.scale[i] + by.offset[i];
    }
}

#endif

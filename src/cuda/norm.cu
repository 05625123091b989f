#include "cuda/norm.cuh"

/* NORM_TRAIN and its halves, NORM_INFERENCE. */

enum { IN_FLIGHT = 4 };

/**
 * What the sums of a block are taken of the distance from: its first pixel, so that a large mean does not cancel the
 * variance.
 */
static __device__ __forceinline__ int64_t shift_pixel(const cuda_walk &walk, unsigned block)
{
    return block * walk.share;
}

static __device__ __forceinline__ float pixels_of(const cuda_walk &walk, unsigned block)
{
    const int64_t left = walk.pixels - block * walk.share;
    return (float)(left < walk.share ? left : walk.share);
}

/** The partial sums of a block: mean and sum of squared distances from it, [2][channels]. */
template <int WIDTH> static __device__ __forceinline__ void write_moments(const norm_work &work, const float *shared)
{
    const cuda_walk &walk = work.sums_walk;
    const int span = walk.width * WIDTH;
    const float pixels = pixels_of(walk, blockIdx.x);
    float *out = work.sums.partials + (int64_t)blockIdx.x * work.sums.lists;
    for (int i = (int)threadIdx.x; i < span; i += (int)blockDim.x) {
        const int channel = grid_tile() * span + i;
        if (channel >= walk.channels)
            break;
        const float sum = shared[i], offset = sum / pixels;
        out[channel] = view_load(work.x, shift_pixel(walk, blockIdx.x), channel) + offset;
        out[walk.channels + channel] = fmaxf(shared[span + i] - sum * offset, 0);
    }
}

/**
 * The last block's part. Blocks are joined as Chan, Golub & LeVeque, "Updating formulae and a pairwise algorithm for
 * computing sample variances", 1979, have it, with distances from the first block's mean.
 */
static __device__ __forceinline__ void finish_moments(const norm_work &work)
{
    const cuda_walk &walk = work.sums_walk;
    const int channels = walk.channels, parts = parts_of(channels), wide = parts > 1 ? channels : (int)blockDim.x;
    const int part = (int)threadIdx.x / wide;
    const float share = (float)walk.share, rest = pixels_of(walk, walk.blocks - 1);
    float *shared = shared_memory<float>();
    for (int first = 0; first < channels; first += wide) {
        const int channel = first + (int)threadIdx.x % wide;
        const bool works = part < parts && channel < channels;
        const float origin = works ? work.sums.partials[channel] : 0;
        float distance = 0, squares = 0;
        const float *from = work.sums.partials + (int64_t)part * work.sums.lists + channel;
        const int64_t step = (int64_t)parts * work.sums.lists;
        if (works)
#pragma unroll 8
            for (unsigned block = (unsigned)part; block < walk.blocks; block += (unsigned)parts, from += step) {
                const float apart = from[0] - origin, weighted = (block + 1 < walk.blocks ? share : rest) * apart;
                distance += weighted;
                squares += from[channels] + weighted * apart;
            }
        shared[threadIdx.x] = distance; /* where several threads share a channel, this loop runs once */
        shared[blockDim.x + threadIdx.x] = squares;
        block_sync();
        if (part == 0 && works) {
            for (int other = 1; other < parts; other++) {
                distance += shared[other * wide + (int)threadIdx.x];
                squares += shared[(int)blockDim.x + other * wide + (int)threadIdx.x];
            }
            const float count = (float)walk.pixels, mean = distance / count;
            const float variance = fmaxf((squares - distance * mean) / count, 0);
            statistics_put(work.statistics, channel, origin + mean, variance, count);
        }
    }
}

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) norm_moments_kernel(norm_work work)
{
    chain_wait();
    const cuda_walk &walk = work.sums_walk;
    const walk_part part = walk_begin<L>(walk, blockIdx.x);
    float shift[lanes_width<L>], sums[2][lanes_width<L>] = {};
    if (part.first < part.end)
        lanes_load<L>(work.x, shift_pixel(walk, blockIdx.x), part.channel, shift);
    walk_pixels<IN_FLIGHT>(
        walk, part, [&](int64_t pixel) { return lanes_fetch<L>(work.x, pixel, part.channel); },
        [&](int64_t, const lanes_raw<L> &raw) {
            float x[lanes_width<L>];
            lanes_open<L>(work.x, raw, x);
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++) {
                const float apart = x[i] - shift[i];
                sums[0][i] += apart;
                sums[1][i] += apart * apart;
            }
        });
    write_moments<lanes_width<L>>(work, block_columns(sums, walk));
    if (block_is_last(work.sums.ticket))
        finish_moments(work);
}

template <cuda_lanes L> struct apply_raw {
    lanes_raw<L> x, residual;
};

/**
 * y = activation(gamma·(x - mean)·inv_std + beta) [+ residual], from the last block's pixels to the first's: those are
 * still in the cache that a pass from first to last has just read.
 */
template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) norm_apply_kernel(norm_work work)
{
    chain_wait();
    const walk_part part = walk_begin<L>(work.walk, gridDim.x - 1 - blockIdx.x);
    norm_vectors_share<lanes_width<L>>(work, work.walk, false);
    const norm_lanes<lanes_width<L>> by = norm_lanes_of<lanes_width<L>>(work.walk);
    walk_pixels<IN_FLIGHT>(
        work.walk, part,
        [&](int64_t pixel) {
            apply_raw<L> raw;
            raw.x = lanes_fetch<L>(work.x, pixel, part.channel);
            if (work.residual.data != NULL)
                raw.residual = lanes_fetch<L>(work.residual, pixel, part.channel);
            return raw;
        },
        [&](int64_t pixel, const apply_raw<L> &raw) {
            float x[lanes_width<L>], z[lanes_width<L>], residual[lanes_width<L>];
            lanes_open<L>(work.x, raw.x, x);
            normalise(by, x, z);
            activate_lanes(work.activation, by.slope, z);
            if (work.residual.data != NULL) {
                lanes_open<L>(work.residual, raw.residual, residual);
#pragma unroll
                for (int i = 0; i < lanes_width<L>; i++)
                    z[i] += residual[i];
            }
            lanes_store<L>(work.y, pixel, part.channel, z);
        });
}

/** What both kinds read; `slope` and `residual` are the last inputs. */
static norm_work forward_of(const cod_plan *plan, const cod_view *slope, const cod_view *residual)
{
    const cod_op *op = plan->ops;
    norm_work work = {};
    work.x = cuda_view_of(&op->inputs[0]);
    work.residual = cuda_view_of(residual);
    work.y = cuda_view_of(&op->outputs[0]);
    work.gamma = cuda_floats_of(&op->inputs[1]);
    work.beta = cuda_floats_of(&op->inputs[2]);
    work.activation = cuda_activation_of(&op->attr, slope);
    work.epsilon = op->attr.epsilon;
    work.shifts = work.x.dtype == COD_BF16; /* whose rounding hides that of a mean far from zero */
    cuda_view absent = {};
    work.walk = cuda_walk_of(plan->device, {&work.x, &work.residual, &work.y, &absent}, {.by_channel = true});
    return work;
}

/** The pass that takes the statistics of work->x; `outputs` as cuda_statistics_of() has them. */
static cod_status make_statistics(cod_plan *plan, const cod_view *outputs, norm_work *work)
{
    work->statistics = cuda_statistics_of(&plan->ops->attr, outputs);
    cuda_view absent = {};
    work->sums_walk =
        cuda_walk_of(plan->device, {&work->x, &absent, &absent, &absent}, {.by_channel = true, .sums = true});
    return cuda_sums_create(plan, 2 * static_cast<int64_t>(work->x.channels), work->sums_walk.blocks, &work->sums);
}

static cuda_plan_kernel<norm_work> statistics_kernel(const norm_work &work)
{
    return cuda_walk_kernel(CUDA_LANES_KERNEL(norm_moments_kernel, work.sums_walk.lanes), work.sums_walk,
                            cuda_sums_shared(work.sums_walk, 2));
}

static cuda_plan_kernel<norm_work> apply_kernel(const norm_work &work)
{
    return cuda_walk_kernel(CUDA_LANES_KERNEL(norm_apply_kernel, work.walk.lanes), work.walk, norm_shared(work.walk));
}

cod_status cuda_make_norm_statistics(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    norm_work work = {};
    work.x = cuda_view_of(&op->inputs[0]);
    COD_TRY(make_statistics(plan, op->outputs, &work));
    return cuda_plan_launches(plan, work, {statistics_kernel(work)});
}

cod_status cuda_make_norm_train(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    norm_work work = forward_of(plan, &op->inputs[3], &op->inputs[4]);
    work.mean = cuda_floats_of(&op->outputs[1]);
    work.spread = cuda_floats_of(&op->outputs[2]);
    COD_TRY(make_statistics(plan, &op->outputs[1], &work));
    return cuda_plan_launches(plan, work, {statistics_kernel(work), apply_kernel(work)});
}

/** NORM_APPLY and NORM_INFERENCE have the same views; the spread is inv_std or the variance. */
static cod_status make_apply(cod_plan *plan, bool spread_is_variance)
{
    const cod_op *op = plan->ops;
    norm_work work = forward_of(plan, &op->inputs[5], &op->inputs[6]);
    work.mean = cuda_floats_of(&op->inputs[3]);
    work.spread = cuda_floats_of(&op->inputs[4]);
    work.spread_is_variance = spread_is_variance;
    return cuda_plan_launches(plan, work, {apply_kernel(work)});
}

cod_status cuda_make_norm_inference(cod_plan *plan)
{
    return make_apply(plan, true);
}

cod_status cuda_make_norm_apply(cod_plan *plan)
{
    return make_apply(plan, false);
}

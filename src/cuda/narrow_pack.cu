/*
 * Around the kernels between wide and narrow tensors: weights packed as their fragments are read, and partial sums
 * added.
 */
#include "cuda/narrow.cuh"
#include "cuda/pack.cuh"

/** The element of w, or of its gradient, at tap (r, s) of a kernel as narrow.cuh counts them. */
static __device__ __forceinline__ int64_t place_of(const narrow_filter &f, int r, int s, int narrow, int wide)
{
    const int k_h = f.mirrored ? f.kernel - 1 - r : r, k_w = f.mirrored ? f.kernel - 1 - s : s;
    const int output = f.narrow_is_output ? narrow : wide, input = f.narrow_is_output ? wide : narrow;
    return (((int64_t)output * f.kernel + k_h) * f.kernel + k_w) * f.stride + input;
}

__global__ void __launch_bounds__(CUDA_THREADS) pack_gather_kernel(const cuda_pack_list list)
{
    const pack_place<narrow_packing> at = pack_place_of<narrow_packing>(list);
    const narrow_filter &f = at.how->filter;
    if (at.item >= at.how->count)
        return;
    const int columns = (NARROW_GROUP * f.kernel + 7) / 8 * 8;
    const int64_t line = at.item / f.wide, place = line / f.kernel, group = place / columns;
    const int column = (int)(place - group * columns), r = column / NARROW_GROUP;
    const int narrow = (int)group * NARROW_GROUP + column % NARROW_GROUP;
    const bool in = r < f.kernel && narrow < f.narrow;
    static_cast<uint16_t *>(at.how->packed)[at.item] = bf16_from_f32(
        in ? f.w[place_of(f, r, (int)(line - place * f.kernel), narrow, (int)(at.item - line * f.wide))] : 0);
}

/** The weight of element k of a row of the kernel, which is tap k / channels. */
static __device__ __forceinline__ float spread_weight(const narrow_filter &f, int r, int k, int wide)
{
    return k < f.kernel * f.narrow ? f.w[place_of(f, r, k / f.narrow, k % f.narrow, wide)] : 0;
}

__global__ void __launch_bounds__(CUDA_THREADS) pack_spread_kernel(const cuda_pack_list list)
{
    const pack_place<narrow_packing> at = pack_place_of<narrow_packing>(list);
    const narrow_filter &f = at.how->filter;
    if (at.item >= at.how->count)
        return;
    const int depth = at.how->depth, lane = (int)(at.item % WARP_LANES), place = (int)(at.item / WARP_LANES);
    const int step = place % depth, r = place / depth % f.kernel, slice = place / depth / f.kernel;
    bytes16 fragment;
#pragma unroll
    for (int word = 0; word < 4; word++) {
        const int wide = slice * NARROW_SLICE + lane / 4 * 2 + word % 2, k = step * 16 + word / 2 * 8 + lane % 4 * 2;
        fragment.words[word] = bf16_pair(spread_weight(f, r, k, wide), spread_weight(f, r, k + 1, wide));
    }
    static_cast<bytes16 *>(at.how->packed)[at.item] = fragment;
}

cuda_packing narrow_packing_of(const narrow_packing *how, const narrow_packing &packing)
{
    return {how, packing.depth > 0 ? pack_spread_kernel : pack_gather_kernel, cuda_item_blocks(packing.count), nullptr,
            0};
}

enum { PARTS = CUDA_THREADS / WARP_LANES };

/** Where the sum of partial sums `at` goes; NULL = nowhere. */
static __device__ __forceinline__ float *target_of(const narrow_sum &s, int64_t at)
{
    const narrow_filter &f = s.filter;
    if (at >= s.bias_at)
        return s.db != NULL && at - s.bias_at < s.db_count ? s.db + (at - s.bias_at) : NULL;
    const int64_t line = at / f.wide, row = line / (NARROW_GROUP * f.kernel);
    const int column = (int)(line - row * NARROW_GROUP * f.kernel), r = (int)(row % f.kernel);
    const int tap = (column / NARROW_GROUP + f.kernel / 2) % f.kernel;
    const int narrow = (int)(row / f.kernel) * NARROW_GROUP + column % NARROW_GROUP;
    return narrow < f.narrow ? f.w + place_of(f, r, tap, narrow, (int)(at - line * f.wide)) : NULL;
}

/** A block has WARP_LANES sums, which its warps share: warp i adds splits i, i + PARTS, …. */
__global__ void sum_kernel(narrow_sum s)
{
    chain_wait();
    float *shared = shared_memory<float>();
    const int lane = (int)threadIdx.x % WARP_LANES, part = (int)threadIdx.x / WARP_LANES;
    const int64_t at = (int64_t)blockIdx.x * WARP_LANES + lane;
    float *target = at < s.partial_count ? target_of(s, at) : NULL;
    float sum = 0;
    if (target != NULL) {
        const float *from = s.partials + part * s.partial_count + at;
#pragma unroll 4
        for (int split = part; split < s.splits; split += PARTS, from += PARTS * s.partial_count)
            sum += *from;
    }
    shared[threadIdx.x] = sum;
    block_sync();
    if (part != 0 || target == NULL)
        return;
    for (int other = 1; other < PARTS; other++)
        sum += shared[other * WARP_LANES + lane];
    *target = s.accumulate ? *target + sum : sum;
}

cod_status narrow_sum_partials(cod_device *device, cudaStream_t stream, const narrow_sum &sum)
{
    const unsigned blocks = static_cast<unsigned>(cuda_divide_up(sum.partial_count, WARP_LANES));
    return cuda_launch_chained(device, stream, sum_kernel, blocks, CUDA_THREADS, CUDA_THREADS * sizeof(float), sum);
}

/**
 * @file
 * Gradients of PReLU's slopes, summed where a product is stored: from the sums of its blocks to those of the launch, in
 * an order that depends on the launch alone.
 *
 * The blocks that sum for the same slopes are a *series*, cut into groups of SLOPE_GROUP blocks. The last block of a
 * group to finish adds up the group's sums; the last group to finish adds up those of the groups. A single block would
 * read them for longer than the product takes.
 */
#ifndef COD_CUDA_SLOPES_CUH
#define COD_CUDA_SLOPES_CUH

#include "cuda/sums.cuh"

enum { SLOPE_GROUP = 64 };

struct cuda_slopes {
    float *dslope;     /**< [1] or [channels]; NULL = not computed */
    int lists;         /**< slopes of a series: 1 = one for all channels, else those of a block's channels */
    unsigned *tickets; /**< of each series: of its groups, and of itself; zero between runs */
    float *partials;   /**< of each series: [block][lists], then [group][lists] */
};

/** A block's place: its series, and its number among the series' blocks. */
struct slope_place {
    int series, number, blocks;
};

static __host__ __device__ __forceinline__ int slope_groups(int blocks)
{
    return (blocks + SLOPE_GROUP - 1) / SLOPE_GROUP;
}

/** How many tickets and floats that many series of equal length need. */
static inline int64_t slope_tickets(int series, int blocks)
{
    return static_cast<int64_t>(series) * (slope_groups(blocks) + 1);
}

static inline int64_t slope_floats(const cuda_slopes &slopes, int series, int blocks)
{
    return static_cast<int64_t>(series) * (blocks + slope_groups(blocks)) * slopes.lists;
}

/** Where the block writes its sums, [lists]. */
static __device__ __forceinline__ float *slope_partials(const cuda_slopes &slopes, const slope_place &at)
{
    return slopes.partials + ((int64_t)at.series * (at.blocks + slope_groups(at.blocks)) + at.number) * slopes.lists;
}

/**
 * to[list] = the sum of from[row][list] over the rows, for `count` of the lists, by all threads of the block, which are
 * no fewer.
 */
static __device__ __forceinline__ void sum_rows(const float *from, int rows, int lists, int count, float *to)
{
    float *shared = shared_memory<float>();
    const int parts = parts_of(lists), part = (int)threadIdx.x / lists, list = (int)threadIdx.x % lists;
    float sum = 0;
    if (part < parts)
#pragma unroll 8
        for (int row = part; row < rows; row += parts)
            sum += from[(int64_t)row * lists + list];
    shared[threadIdx.x] = sum;
    block_sync();
    if (part == 0 && list < count) {
        for (int other = 1; other < parts; other++)
            sum += shared[other * lists + list];
        to[list] = sum;
    }
}

/** All threads of a block come here when its sums are written. `channel`: its first; `count`: its slopes. */
static __device__ __forceinline__ void slopes_finish(const cuda_slopes &slopes, const slope_place &at, int channel,
                                                     int count)
{
    const int groups = slope_groups(at.blocks), group = at.number / SLOPE_GROUP, first = group * SLOPE_GROUP;
    const int blocks = at.blocks - first < SLOPE_GROUP ? at.blocks - first : SLOPE_GROUP, lists = slopes.lists;
    float *partials = slope_partials(slopes, {at.series, 0, at.blocks}), *sums = partials + (int64_t)at.blocks * lists;
    unsigned *tickets = slopes.tickets + at.series * (groups + 1);
    if (!block_is_last_of(tickets + group, (unsigned)blocks))
        return;
    sum_rows(partials + (int64_t)first * lists, blocks, lists, lists, sums + group * lists);
    if (block_is_last_of(tickets + groups, (unsigned)groups))
        sum_rows(sums, groups, lists, count, slopes.dslope + (lists > 1 ? channel : 0));
}

#endif

/**
 * @file
 * Sums over pixels, in an order that depends on the launch alone: of a thread, of a block, and of a grid, which the
 * block that comes last finishes.
 */
#ifndef COD_CUDA_SUMS_CUH
#define COD_CUDA_SUMS_CUH

#include "cuda/walk.cuh"

/** Memory of a plan with sums. Zeroed when it is made; the ticket is zero again after each run. */
struct cuda_sums {
    unsigned *ticket;
    float *totals;   /**< [lists] */
    float *partials; /**< [block][lists] */
    int lists;
};

/** Gives a plan its memory for `lists` sums of at most `blocks` blocks. */
static inline cod_status cuda_sums_create(cod_plan *plan, int64_t lists, int64_t blocks, cuda_sums *out)
{
    enum { TICKET_FLOATS = 32 }; /* a line of its own */
    COD_TRY(cuda_plan_memory(plan, static_cast<size_t>(TICKET_FLOATS + lists * (1 + blocks)) * sizeof(float)));
    float *memory = static_cast<float *>(plan->memory);
    out->ticket = static_cast<unsigned *>(plan->memory);
    out->totals = memory + TICKET_FLOATS;
    out->partials = out->totals + lists;
    out->lists = static_cast<int>(lists);
    return COD_OK;
}

/** Shared memory that block_columns() and what follows it need. */
static inline size_t cuda_sums_shared(const cuda_walk &walk, int kinds)
{
    const size_t rows = static_cast<size_t>(walk.rows * walk.width * cuda_lanes_width(walk.lanes) * kinds);
    return (rows > CUDA_THREADS * 2 ? rows : CUDA_THREADS * 2) * sizeof(float);
}

/**
 * Adds the sums of the block's threads over its rows. The result lies in shared memory, [KINDS][span] with span the
 * channels of the block; all threads see it.
 */
template <int KINDS, int WIDTH>
static __device__ __forceinline__ const float *block_columns(const float (&sums)[KINDS][WIDTH], const cuda_walk &walk)
{
    float *shared = shared_memory<float>();
    const int row = (int)threadIdx.x / walk.width, column = (int)threadIdx.x % walk.width;
    const int span = walk.width * WIDTH, all = KINDS * span;
    block_sync(); /* shared memory may be in use */
    if (row < walk.rows) {
#pragma unroll
        for (int kind = 0; kind < KINDS; kind++)
#pragma unroll
            for (int lane = 0; lane < WIDTH; lane++)
                shared[row * all + kind * span + column * WIDTH + lane] = sums[kind][lane];
    }
    block_sync();
    for (int i = (int)threadIdx.x; i < all; i += (int)blockDim.x) {
        float sum = 0;
        for (int r = 0; r < walk.rows; r++)
            sum += shared[r * all + i];
        shared[i] = sum;
    }
    block_sync();
    return shared;
}

/** The block's sums by channel, of block_columns(), become its partial sums [KINDS][channels]. */
template <int KINDS, int WIDTH>
static __device__ __forceinline__ void write_columns(const cuda_sums &sums, const cuda_walk &walk, const float *shared)
{
    const int span = walk.width * WIDTH, first = grid_tile() * span;
    float *out = sums.partials + (int64_t)blockIdx.x * sums.lists;
    for (int i = (int)threadIdx.x; i < KINDS * span; i += (int)blockDim.x) {
        const int kind = i / span, channel = first + i - kind * span;
        if (channel < walk.channels)
            out[kind * walk.channels + channel] = shared[i];
    }
}

/** The sum of a value over the block, in every thread. */
static __device__ __forceinline__ float block_sum(float value)
{
    float *shared = shared_memory<float>();
    const float sum = warp_sum(value);
    block_sync(); /* shared memory may be in use */
    if (threadIdx.x % WARP_LANES == 0)
        shared[threadIdx.x / WARP_LANES] = sum;
    block_sync();
    float total = 0;
    for (unsigned warp = 0; warp < blockDim.x / WARP_LANES; warp++)
        total += shared[warp];
    block_sync();
    return total;
}

/**
 * Whether this block is the last of `blocks` to come here; if so, it sees what the others wrote before. All threads
 * call it.
 */
static __device__ __forceinline__ bool block_is_last_of(unsigned *ticket, unsigned blocks)
{
    unsigned *shared = shared_memory<unsigned>();
    block_sync();
    if (threadIdx.x == 0) {
        shared[0] = ticket_take(ticket) == blocks - 1;
        if (shared[0])
            *ticket = 0; /* for the next run */
    }
    block_sync();
    const bool last = shared[0] != 0;
    block_sync();
    return last;
}

/** The same of all blocks of the grid. */
static __device__ __forceinline__ bool block_is_last(unsigned *ticket)
{
    return block_is_last_of(ticket, gridDim.x * gridDim.y * gridDim.z);
}

/**
 * The slopes' gradient, of each channel or of all, from its sums by channel; by the last block, all of whose threads
 * call it.
 */
static __device__ __forceinline__ void dslopes_put(const float *totals, int channels, float *dslope, bool by_channel,
                                                   bool accumulate)
{
    float sum = 0;
    for (int i = (int)threadIdx.x; i < channels; i += (int)blockDim.x) {
        if (by_channel)
            dslope[i] = accumulate ? dslope[i] + totals[i] : totals[i];
        sum += totals[i];
    }
    if (by_channel)
        return;
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        dslope[0] = accumulate ? dslope[0] + sum : sum;
}

/** How many threads share the work on one of `lists` sums. */
static __device__ __forceinline__ int parts_of(int lists)
{
    const int parts = (int)blockDim.x / lists;
    return parts < 1 ? 1 : parts < WARP_LANES ? parts : WARP_LANES;
}

/**
 * sums.totals[list] = sum over blocks of their partial sums; by the block that is last, whose threads then all see
 * them.
 */
static __device__ __forceinline__ void grid_totals(const cuda_sums &sums, unsigned blocks)
{
    float *shared = shared_memory<float>();
    const int parts = parts_of(sums.lists), wide = parts > 1 ? sums.lists : (int)blockDim.x;
    const int part = (int)threadIdx.x / wide;
    for (int first = 0; first < sums.lists; first += wide) {
        const int list = first + (int)threadIdx.x % wide;
        const float *from = sums.partials + (int64_t)part * sums.lists + list;
        const int64_t step = (int64_t)parts * sums.lists;
        float sum = 0;
        if (part < parts && list < sums.lists)
#pragma unroll 8
            for (unsigned block = (unsigned)part; block < blocks; block += (unsigned)parts, from += step)
                sum += *from;
        shared[threadIdx.x] = sum; /* where several threads share a sum, this loop runs once */
        block_sync();
        if (part == 0 && list < sums.lists) {
            for (int other = 1; other < parts; other++)
                sum += shared[other * wide + (int)threadIdx.x];
            sums.totals[list] = sum;
        }
    }
    block_sync();
}

#endif

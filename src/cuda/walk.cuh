/**
 * @file
 * How the threads of a grid go over pixels: each has some channels, the same all the time, and every so many-th pixel
 * of its block's share. So vectors by channel are read once, and sums over pixels are kept in registers.
 */
#ifndef COD_CUDA_WALK_CUH
#define COD_CUDA_WALK_CUH

#include "cuda/launches.cuh"
#include "cuda/vectors.cuh"

/** A *column* is what one access holds (lanes_width<> channels). Threads of a block lie in rows of `width` columns. */
struct cuda_walk {
    cuda_lanes lanes;
    int64_t pixels, share;  /**< of all blocks; of one block, which has them one after the other */
    int channels, columns;  /**< of a pixel */
    int width, rows;        /**< of a block; threads past width·rows have nothing to do */
    unsigned blocks, tiles; /**< of the grid, by pixels and by channels (cuda_walk_grid()) */
};

/** What an op allows. */
struct cuda_walk_rule {
    bool by_channel = false; /**< it treats channels differently, so a dense view is not just a row of elements */
    bool mixed = false;      /**< its kernel has LANES_MIXED */
    bool sums = false;       /**< over pixels: few blocks, and columns in many rows */
};

enum { CUDA_WALK_VIEWS = 4 };

/**
 * Chooses accesses and grid for views of one shape; absent ones are passed over. Where channels do not matter and all
 * views are dense, the views become rows of elements with as many channels as an access holds.
 */
cuda_walk cuda_walk_of(const cod_device *device, cuda_view *const (&views)[CUDA_WALK_VIEWS], cuda_walk_rule rule);

/** The widest access for views whose pixels keep their shape; `channels` of each are a multiple of it. */
cuda_lanes cuda_lanes_of(const cuda_view *const *views, size_t count, bool mixed);

static inline int cuda_lanes_width(cuda_lanes lanes)
{
    return lanes == LANES_ANY ? 1 : lanes == LANES_F32 ? 4 : 8;
}

static inline dim3 cuda_walk_grid(const cuda_walk &walk)
{
    return cuda_tile_grid(walk.blocks, walk.tiles);
}

/** A kernel that goes over this walk. */
template <typename W>
static inline cuda_plan_kernel<W> cuda_walk_kernel(void (*kernel)(W), const cuda_walk &walk, size_t shared_bytes)
{
    return {kernel, cuda_walk_grid(walk), shared_bytes};
}

/** The instance of a kernel template for these accesses; CUDA_MIXED_KERNEL() also for LANES_MIXED. */
#define CUDA_LANES_KERNEL(kernel, lanes)                                                                               \
    ((lanes) == LANES_F32 ? kernel<LANES_F32> : (lanes) == LANES_BF16 ? kernel<LANES_BF16> : kernel<LANES_ANY>)
#define CUDA_MIXED_KERNEL(kernel, lanes)                                                                               \
    ((lanes) == LANES_MIXED ? kernel<LANES_MIXED> : CUDA_LANES_KERNEL(kernel, lanes))

/** The pixels first, first + walk.rows, … below `end`, and the first of the channels of this thread. */
struct walk_part {
    int64_t first, end;
    int channel;
};

/** `block` stands for blockIdx.x. */
template <cuda_lanes L> static __device__ __forceinline__ walk_part walk_begin(const cuda_walk &walk, unsigned block)
{
    walk_part part;
    const int row = (int)threadIdx.x / walk.width, column = grid_tile() * walk.width + (int)threadIdx.x % walk.width;
    part.first = block * walk.share + row;
    part.end = (block + 1) * walk.share < walk.pixels ? (block + 1) * walk.share : walk.pixels;
    if (row >= walk.rows || column >= walk.columns)
        part.end = part.first;
    part.channel = column * lanes_width<L>;
    return part;
}

/**
 * Goes over a thread's pixels, IN_FLIGHT at a time: all of them are read, by `read(pixel)`, before the first is used,
 * by `use(pixel, what was read)`. When the last ones are read, the next launch may start: what is left is to store.
 */
template <int IN_FLIGHT, typename R, typename U>
static __device__ __forceinline__ void walk_pixels(const cuda_walk &walk, const walk_part &part, R read, U use)
{
    const int step = walk.rows;
    for (int64_t first = part.first; first < part.end; first += IN_FLIGHT * step) {
        decltype(read(first)) held[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (first + u * step >= part.end)
                break;
            held[u] = read(first + u * step);
        }
        if (first + IN_FLIGHT * step >= part.end)
            chain_release();
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (first + u * step >= part.end)
                break;
            use(first + u * step, held[u]);
        }
    }
}

/** value / by, with the remainder; short where 32 bits hold the value. */
static __device__ __forceinline__ int64_t split(int64_t value, int by, int *rest)
{
    if ((uint64_t)value <= 0xFFFFFFFFu) {
        const uint32_t quotient = (uint32_t)value / (uint32_t)by;
        *rest = (int)((uint32_t)value - quotient * (uint32_t)by);
        return quotient;
    }
    *rest = (int)(value % by);
    return value / by;
}

#endif

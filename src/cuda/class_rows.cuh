/**
 * @file
 * Rows of K classes. A row belongs to a group of threads: as many lanes of a warp as it has classes, or the whole
 * block.
 */
#ifndef COD_CUDA_CLASS_ROWS_CUH
#define COD_CUDA_CLASS_ROWS_CUH

#include "cuda/sums.cuh"

/** Bytes of shared memory that a kernel over rows needs. */
enum { CLASS_ROWS_SHARED = CUDA_THREADS * sizeof(float) };

/** How rows are shared out. */
struct class_rows {
    int64_t count;
    int classes, group; /**< group: threads that have a row together */
};

static inline class_rows class_rows_of(const cuda_view &logits)
{
    enum { WIDEST_ROW_OF_A_WARP = 128 };
    class_rows rows = {logits.pixels, logits.channels, logits.channels > WIDEST_ROW_OF_A_WARP ? CUDA_THREADS : 1};
    while (rows.group < WARP_LANES && rows.group < rows.classes)
        rows.group *= 2;
    return rows;
}

static inline unsigned class_rows_blocks(const cod_device *device, const class_rows &rows)
{
    enum { BLOCKS_A_PROCESSOR = 4 };
    const int64_t needed = cuda_divide_up(rows.count, CUDA_THREADS / rows.group),
                  most = static_cast<int64_t>(device->multiprocessors) * BLOCKS_A_PROCESSOR;
    return static_cast<unsigned>(needed < most ? needed : most);
}

/** The thread's row and its place in the group. */
struct row_place {
    int64_t row;
    int lane, group;
    bool valid;
};

/** The thread's row of those that the block has from `first` on. */
static __device__ __forceinline__ row_place row_place_of(const class_rows &rows, int64_t first)
{
    row_place at;
    at.group = rows.group;
    at.lane = (int)threadIdx.x % rows.group;
    at.row = first + (int)threadIdx.x / rows.group;
    at.valid = at.row < rows.count;
    return at;
}

/** The sum over a group, in all its threads. All threads of the block call it. */
static __device__ __forceinline__ float group_sum(float value, int group)
{
    if (group > WARP_LANES)
        return block_sum(value);
    for (int mask = group / 2; mask > 0; mask /= 2)
        value += shuffle_xor(value, (unsigned)mask);
    return value;
}

static __device__ __forceinline__ float group_max(float value, int group)
{
    for (int mask = (group < WARP_LANES ? group : WARP_LANES) / 2; mask > 0; mask /= 2)
        value = fmaxf(value, shuffle_xor(value, (unsigned)mask));
    if (group <= WARP_LANES)
        return value;
    float *shared = shared_memory<float>();
    block_sync();
    if (threadIdx.x % WARP_LANES == 0)
        shared[threadIdx.x / WARP_LANES] = value;
    block_sync();
    for (unsigned warp = 0; warp < blockDim.x / WARP_LANES; warp++)
        value = fmaxf(value, shared[warp]);
    block_sync();
    return value;
}

/** log softmax(logits / T)[k] = (logits[k] - largest) / T - log_sum */
struct normaliser {
    float largest, log_sum, temperature;
};

static __device__ __forceinline__ normaliser normaliser_of(const cuda_view &logits, const row_place &at, int classes,
                                                           float temperature)
{
    float largest = -INFINITY, sum = 0;
    for (int k = at.lane; k < classes && at.valid; k += at.group)
        largest = fmaxf(largest, view_load(logits, at.row, k));
    largest = group_max(largest, at.group);
    for (int k = at.lane; k < classes && at.valid; k += at.group)
        sum += expf((view_load(logits, at.row, k) - largest) / temperature);
    return {largest, logf(group_sum(sum, at.group)), temperature};
}

static __device__ __forceinline__ float log_softmax(const normaliser &by, float logit)
{
    return (logit - by.largest) / by.temperature - by.log_sum;
}

#endif

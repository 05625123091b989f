#include "cuda/sums.cuh"

/** A window's size, step and padding; that of a global average is the whole picture. */
struct pool_window {
    int h, w, stride_h, stride_w, pad_h, pad_w;
};

struct pool_work {
    cuda_walk walk; /**< of global averages: a block has one picture */
    cuda_view x, y; /**< the larger and the smaller picture: gradients have the same roles */
    cuda_view index;
    pool_window window;
    bool max, accumulate;
};

template <int WIDTH>
static __device__ __forceinline__ void load_index(const cuda_view &index, int64_t pixel, int channel, int (&out)[WIDTH])
{
    if constexpr (WIDTH == 1) {
        out[0] = reinterpret_cast<const int *>(index.data)[pixel * index.stride + channel];
    } else {
        uint32_t words[WIDTH];
#pragma unroll
        for (int i = 0; i < WIDTH; i += 4)
            read16(words + i, index.data + (pixel * index.stride + channel + i) * 4);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            out[i] = (int)words[i];
    }
}

template <int WIDTH>
static __device__ __forceinline__ void store_index(const cuda_view &index, int64_t pixel, int channel,
                                                   const int (&values)[WIDTH])
{
    if constexpr (WIDTH == 1) {
        reinterpret_cast<int *>(index.data)[pixel * index.stride + channel] = values[0];
    } else {
        uint32_t words[WIDTH];
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            words[i] = (uint32_t)values[i];
#pragma unroll
        for (int i = 0; i < WIDTH; i += 4)
            write16(index.data + (pixel * index.stride + channel + i) * 4, words + i);
    }
}

/** Takes position `k` of the window into account; NaN counts as the largest, so that it is seen. */
template <int WIDTH>
static __device__ __forceinline__ void take(const pool_work &work, int k, const float (&value)[WIDTH],
                                            float (&result)[WIDTH], int (&best)[WIDTH])
{
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
        const bool larger = best[i] < 0 || value[i] > result[i] || (value[i] != value[i] && result[i] == result[i]);
        if (!work.max) {
            result[i] += value[i];
        } else if (larger) {
            result[i] = value[i];
            best[i] = k;
        }
    }
}

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) pool_kernel(pool_work work)
{
    chain_wait();
    constexpr int width = lanes_width<L>;
    const cuda_view &x = work.x, &y = work.y;
    const pool_window window = work.window;
    int column, q, p;
    const int64_t pixel = split(grid_first(), y.channels / width, &column);
    if (pixel >= y.pixels)
        return;
    const int64_t image = split(split(pixel, y.w, &q), y.h, &p);
    float result[width] = {};
    int best[width];
#pragma unroll
    for (int i = 0; i < width; i++)
        best[i] = -1;
    for (int i = 0; i < window.h; i++) {
        const int row = p * window.stride_h - window.pad_h + i;
        if (row < 0 || row >= x.h)
            continue;
        for (int j = 0; j < window.w; j++) {
            const int at = q * window.stride_w - window.pad_w + j;
            if (at < 0 || at >= x.w)
                continue;
            float value[width];
            lanes_load<L>(x, (image * x.h + row) * x.w + at, column * width, value);
            take(work, i * window.w + j, value, result, best);
        }
    }
#pragma unroll
    for (int i = 0; i < width; i++)
        result[i] = work.max ? result[i] : result[i] / (float)(window.h * window.w);
    lanes_store<L>(y, pixel, column * width, result);
    if (work.max && work.index.data != NULL)
        store_index(work.index, pixel, column * width, best);
}

/** Global averages: block (n, t) has picture n, and the channels of tile t. */
template <cuda_lanes L>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) global_average_kernel(pool_work work)
{
    chain_wait();
    enum { IN_FLIGHT = 4 };
    constexpr int width = lanes_width<L>;
    const int step = work.walk.rows, span = work.walk.width * width;
    const walk_part part = walk_begin<L>(work.walk, blockIdx.x);
    float sums[1][width] = {};
#pragma unroll IN_FLIGHT
    for (int64_t pixel = part.first; pixel < part.end; pixel += step) {
        float value[width];
        lanes_load<L>(work.x, pixel, part.channel, value);
#pragma unroll
        for (int i = 0; i < width; i++)
            sums[0][i] += value[i];
    }
    chain_release();
    const float *shared = block_columns(sums, work.walk);
    for (int i = (int)threadIdx.x; i < span; i += (int)blockDim.x)
        if (grid_tile() * span + i < work.y.channels)
            view_store(work.y, blockIdx.x, grid_tile() * span + i, shared[i] / (float)work.walk.share);
}

/** The first window along an axis that reaches position `at`, counted from the padding's begin. */
static __device__ __forceinline__ int first_window(int at, int size, int stride)
{
    return at < size ? 0 : (at - size) / stride + 1;
}

template <cuda_lanes L>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) pool_backward_kernel(pool_work work)
{
    chain_wait();
    constexpr int width = lanes_width<L>;
    const cuda_view &x = work.x, &y = work.y;
    const pool_window window = work.window;
    int column, w, h;
    const int64_t pixel = split(grid_first(), x.channels / width, &column);
    if (pixel >= x.pixels)
        return;
    const int64_t image = split(split(pixel, x.w, &w), x.h, &h);
    h += window.pad_h;
    w += window.pad_w;
    float sum[width] = {};
    for (int p = first_window(h, window.h, window.stride_h); p <= h / window.stride_h && p < y.h; p++)
        for (int q = first_window(w, window.w, window.stride_w); q <= w / window.stride_w && q < y.w; q++) {
            const int64_t from = (image * y.h + p) * y.w + q;
            const int k = (h - p * window.stride_h) * window.w + w - q * window.stride_w;
            float dy[width];
            int best[width];
            lanes_load<L>(y, from, column * width, dy);
            if (work.max)
                load_index(work.index, from, column * width, best);
#pragma unroll
            for (int i = 0; i < width; i++)
                sum[i] += work.max && best[i] != k ? 0 : dy[i];
        }
#pragma unroll
    for (int i = 0; i < width; i++)
        sum[i] = work.max ? sum[i] : sum[i] / (float)(window.h * window.w);
    lanes_put<L>(x, pixel, column * width, sum, work.accumulate);
}

static pool_work work_of(const cod_plan *plan, const cod_view *x, const cod_view *y, const cod_view *index)
{
    const cod_op_attr *attr = &plan->ops[0].attr;
    pool_work work = {};
    work.x = cuda_view_of(x);
    work.y = cuda_view_of(y);
    work.max = attr->pool == COD_POOL_MAX;
    if (work.max)
        work.index = cuda_view_of(index);
    work.window = {attr->kernel_h, attr->kernel_w, attr->stride_h, attr->stride_w, attr->pad_h, attr->pad_w};
    if (attr->pool == COD_POOL_GLOBAL_AVERAGE)
        work.window = {work.x.h, work.x.w, 1, 1, 0, 0};
    work.accumulate = plan->ops[0].accumulate;
    const cuda_view *const views[] = {&work.x, &work.y, &work.index};
    work.walk.lanes = cuda_lanes_of(views, 3, false);
    return work;
}

/** Where a thread has one access of a view. */
static unsigned access_blocks(const pool_work &work, const cuda_view &view)
{
    return cuda_item_blocks(view.count / cuda_lanes_width(work.walk.lanes));
}

cod_status cuda_make_pool(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    pool_work work = work_of(plan, &op->inputs[0], &op->outputs[0], &op->outputs[1]);
    if (op->attr.pool != COD_POOL_GLOBAL_AVERAGE)
        return cuda_plan_launches(plan, work,
                                  {{CUDA_LANES_KERNEL(pool_kernel, work.walk.lanes), access_blocks(work, work.y), 0}});
    cuda_view absent = {};
    work.walk = cuda_walk_of(plan->device, {&work.x, &absent, &absent, &absent}, {.by_channel = true, .sums = true});
    work.walk.share = static_cast<int64_t>(work.x.h) * work.x.w;
    work.walk.blocks = static_cast<unsigned>(work.y.pixels);
    return cuda_plan_launches(plan, work,
                              {cuda_walk_kernel(CUDA_LANES_KERNEL(global_average_kernel, work.walk.lanes), work.walk,
                                                cuda_sums_shared(work.walk, 1))});
}

cod_status cuda_make_pool_backward(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    const pool_work work = work_of(plan, &op->outputs[0], &op->inputs[0], &op->inputs[1]);
    return cuda_plan_launches(
        plan, work, {{CUDA_LANES_KERNEL(pool_backward_kernel, work.walk.lanes), access_blocks(work, work.x), 0}});
}

#include "cuda/walk.cuh"

/* RESIZE, and its gradient as a sum over the outputs that each input has a part in. */

enum { MOST_TAPS = 4 };

struct resize_work {
    cuda_view small, large;
    cod_resize_mode mode;
    int factor, taps; /**< of an axis */
    bool accumulate;
};

/** The inputs first, first + 1, … along one axis that make one output; those outside stand for the border's. */
struct axis_taps {
    int first;
    float weight[MOST_TAPS];
};

/** Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 15, with a = -0.75. */
static __device__ __forceinline__ float keys_near(float d)
{
    return ((-0.75f + 2) * d - (-0.75f + 3)) * d * d + 1;
}

static __device__ __forceinline__ float keys_far(float d)
{
    return ((d - 5) * d + 8) * d * -0.75f + 4 * 0.75f;
}

/**
 * Of output `at`, whose centre lies at (at + 1/2) / factor - 1/2: in whole numbers, so that large pictures lose no
 * digits.
 */
static __device__ __forceinline__ axis_taps taps_of(const resize_work &work, int at)
{
    axis_taps taps = {at / work.factor, {1, 0, 0, 0}};
    if (work.mode == COD_RESIZE_NEAREST)
        return taps;
    int past = 2 * (at - taps.first * work.factor) + 1 - work.factor;
    if (past < 0) {
        taps.first--;
        past += 2 * work.factor;
    }
    const float t = (float)past / (float)(2 * work.factor);
    if (work.mode == COD_RESIZE_BILINEAR)
        return {taps.first, {1 - t, t, 0, 0}};
    return {taps.first - 1, {keys_far(1 + t), keys_near(t), keys_near(1 - t), keys_far(2 - t)}};
}

static __device__ __forceinline__ int inside(int at, int size)
{
    return at < 0 ? 0 : at < size ? at : size - 1;
}

template <cuda_lanes L> __global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) resize_kernel(resize_work work)
{
    chain_wait();
    constexpr int width = lanes_width<L>;
    int column, x, y;
    const int64_t pixel = split(grid_first(), work.large.channels / width, &column);
    if (pixel >= work.large.pixels)
        return;
    const int64_t image = split(split(pixel, work.large.w, &x), work.large.h, &y);
    const axis_taps rows = taps_of(work, y), columns = taps_of(work, x);
    float sum[width] = {};
#pragma unroll
    for (int i = 0; i < MOST_TAPS; i++) {
        if (i >= work.taps)
            break;
        const int64_t line = (image * work.small.h + inside(rows.first + i, work.small.h)) * work.small.w;
#pragma unroll
        for (int j = 0; j < MOST_TAPS; j++) {
            if (j >= work.taps)
                break;
            float value[width];
            lanes_load<L>(work.small, line + inside(columns.first + j, work.small.w), column * width, value);
#pragma unroll
            for (int k = 0; k < width; k++)
                sum[k] += rows.weight[i] * columns.weight[j] * value[k];
        }
    }
    lanes_store<L>(work.large, pixel, column * width, sum);
}

/** The part that input `at` of `size` has in output `output`. */
static __device__ __forceinline__ float weight_in(const resize_work &work, int size, int at, int output)
{
    const axis_taps taps = taps_of(work, output);
    float weight = 0;
#pragma unroll
    for (int i = 0; i < MOST_TAPS; i++)
        weight += i < work.taps && inside(taps.first + i, size) == at ? taps.weight[i] : 0;
    return weight;
}

template <cuda_lanes L>
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) resize_backward_kernel(resize_work work)
{
    chain_wait();
    constexpr int width = lanes_width<L>;
    int column, x, y;
    const int64_t pixel = split(grid_first(), work.small.channels / width, &column);
    if (pixel >= work.small.pixels)
        return;
    const int64_t image = split(split(pixel, work.small.w, &x), work.small.h, &y);
    const int reach = work.taps / 2; /* inputs on either side whose outputs this one may have a part in */
    const int top = inside((y - reach) * work.factor, work.large.h),
              left = inside((x - reach) * work.factor, work.large.w);
    float sum[width] = {};
    for (int row = top; row < (y + reach + 1) * work.factor && row < work.large.h; row++) {
        const float by_row = weight_in(work, work.small.h, y, row);
        if (by_row == 0)
            continue;
        const int64_t line = (image * work.large.h + row) * work.large.w;
        for (int at = left; at < (x + reach + 1) * work.factor && at < work.large.w; at++) {
            const float weight = by_row * weight_in(work, work.small.w, x, at);
            if (weight == 0)
                continue;
            float value[width];
            lanes_load<L>(work.large, line + at, column * width, value);
#pragma unroll
            for (int k = 0; k < width; k++)
                sum[k] += weight * value[k];
        }
    }
    lanes_put<L>(work.small, pixel, column * width, sum, work.accumulate);
}

static cod_status make_resize(cod_plan *plan, const cod_view *small, const cod_view *large, bool backward)
{
    resize_work work = {};
    work.small = cuda_view_of(small);
    work.large = cuda_view_of(large);
    work.mode = plan->ops[0].attr.resize;
    work.factor = plan->ops[0].attr.factor;
    work.taps = work.mode == COD_RESIZE_NEAREST ? 1 : work.mode == COD_RESIZE_BILINEAR ? 2 : MOST_TAPS;
    work.accumulate = plan->ops[0].accumulate;
    const cuda_view *const views[] = {&work.small, &work.large};
    const cuda_lanes lanes = cuda_lanes_of(views, 2, !backward);
    const int64_t count = backward ? work.small.count : work.large.count;
    return cuda_plan_launches(
        plan, work,
        {{backward ? CUDA_LANES_KERNEL(resize_backward_kernel, lanes) : CUDA_MIXED_KERNEL(resize_kernel, lanes),
          cuda_item_blocks(count / cuda_lanes_width(lanes)), 0}});
}

cod_status cuda_make_resize(cod_plan *plan)
{
    return make_resize(plan, &plan->ops[0].inputs[0], &plan->ops[0].outputs[0], false);
}

cod_status cuda_make_resize_backward(cod_plan *plan)
{
    return make_resize(plan, &plan->ops[0].outputs[0], &plan->ops[0].inputs[0], true);
}

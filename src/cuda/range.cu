extern "C" {
#include "core/int8_range.h"
}
#include "cuda/walk.cuh"

#include <cmath>

/*
 * Ranges of convolutions on 8-bit integers: how often each magnitude occurs in their inputs, and what core/int8_range.c
 * chooses by that.
 */

/* C++ wants them to be numbers. */
static constexpr int magnitudes = COD_MAGNITUDES, infinite = COD_MAGNITUDE_INFINITE, steps = COD_RANGE_STEPS;

struct counts_work {
    cuda_view x;
    uint32_t *counts; /**< [magnitudes] */
};

__global__ void __launch_bounds__(CUDA_THREADS) counts_clear_kernel(counts_work work)
{
    chain_wait();
    work.counts[grid_first()] = 0;
}

/** Most zeros are behind ReLU; they would all meet in one place, and nothing depends on them. */
__global__ void __launch_bounds__(CUDA_THREADS) counts_kernel(counts_work work)
{
    chain_wait();
    for (int64_t item = grid_first(); item < work.x.count; item += grid_step()) {
        int channel;
        const int64_t pixel = split(item, work.x.channels, &channel);
        const int magnitude = bf16_from_f32(fabsf(view_load(work.x, pixel, channel)));
        if (magnitude > 0)
            atomic_add(&work.counts[magnitude < infinite ? magnitude : infinite], 1u);
    }
}

cod_status cuda_make_magnitudes(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    const counts_work work = {cuda_view_of(&op->inputs[0]),
                              reinterpret_cast<uint32_t *>(cuda_view_of(&op->outputs[0]).data)};
    const cuda_plan_kernel<counts_work> count = {counts_kernel, cuda_blocks(plan->device, work.x.count), 0};
    if (op->accumulate)
        return cuda_plan_launches(plan, work, {count});
    return cuda_plan_launches(plan, work,
                              {{counts_clear_kernel, static_cast<unsigned>(magnitudes) / CUDA_THREADS, 0}, count});
}

struct ranges_work {
    const uint32_t *counts; /**< [block][magnitudes] */
    float *ranges;          /**< [block] */
};

/** Of a block that chooses a range. */
struct ranges_shared {
    double errors[steps];          /**< [step - 1] */
    uint32_t counts[CUDA_THREADS]; /**< of as many magnitudes */
    int last[CUDA_THREADS];        /**< the largest magnitude that a thread has met */
};

/** The block's largest magnitude of one that has a count; 0 = there is none. */
static __device__ int last_magnitude(const uint32_t *counts, ranges_shared *shared)
{
    int last = 0;
    for (int m = (int)threadIdx.x; m < magnitudes; m += CUDA_THREADS)
        last = counts[m] > 0 ? m : last;
    shared->last[threadIdx.x] = last;
    block_sync();
    for (int t = 0; t < CUDA_THREADS; t++)
        last = shared->last[t] > last ? shared->last[t] : last;
    return last;
}

/** A thread for each range that is tried adds up its errors in the order of magnitudes, as the host does. */
__global__ void __launch_bounds__(CUDA_THREADS) ranges_kernel(ranges_work work)
{
    chain_wait();
    ranges_shared *shared = shared_memory<ranges_shared>();
    const uint32_t *counts = work.counts + (int64_t)blockIdx.x * magnitudes;
    const int last = last_magnitude(counts, shared), step = (int)threadIdx.x + 1;
    const double largest = (double)f32_from_bf16((uint16_t)last), range = largest * step / steps;
    const double within = range / 127, rounding = exact_product(within, within) / 12;
    double sum = 0;
    for (int first = 0; first <= last && last < infinite; first += CUDA_THREADS) {
        block_sync();
        shared->counts[threadIdx.x] = counts[first + (int)threadIdx.x];
        block_sync();
        for (int i = 0; i < CUDA_THREADS && step <= steps; i++) {
            if (shared->counts[i] == 0)
                continue;
            const double value = (double)f32_from_bf16((uint16_t)(first + i)), beyond = exact_sum(value, -range);
            const double square = exact_product(value, value);
            const double error = beyond > 0 ? exact_product(beyond, beyond) : rounding < square ? rounding : square;
            sum = exact_sum(sum, exact_product((double)shared->counts[i], error));
        }
    }
    if (step <= steps)
        shared->errors[step - 1] = sum;
    block_sync();
    if (threadIdx.x > 0)
        return;
    double least = shared->errors[0];
    for (int i = 1; i < steps; i++)
        least = shared->errors[i] < least ? shared->errors[i] : least;
    int chosen = steps;
    while (shared->errors[chosen - 1] > exact_product(COD_RANGE_SLACK, least))
        chosen--;
    const float finite = last > 0 ? (float)(largest * chosen / steps) : 1;
    work.ranges[blockIdx.x] = last < infinite ? finite : NAN;
}

cod_status cuda_make_ranges(cod_plan *plan)
{
    const cod_view *counts = &plan->ops->inputs[0];
    const ranges_work work = {reinterpret_cast<const uint32_t *>(cuda_view_of(counts).data),
                              cuda_floats_of(&plan->ops->outputs[0])};
    return cuda_plan_launches(plan, work,
                              {{ranges_kernel, static_cast<unsigned>(counts->shape.h), sizeof(ranges_shared)}});
}

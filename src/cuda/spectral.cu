#include "cuda/sums.cuh"

/*
 * Spectral normalisation: the weight as a matrix of O rows and KH·KW·I columns. Each kernel leaves sums in the plan's
 * memory that all blocks of the next one read, so that nothing is added in an order that may change.
 */

enum { STRIPS = CUDA_THREADS / WARP_LANES, PARTS_MOST = 64 };

struct spectral_work {
    const float *w, *u;           /**< backward: w is dy */
    const float *y_in, *sigma_in; /**< backward */
    float *y, *sigma, *next_u, *v;
    float *transposed,
        *product; /**< [columns] Wᵀu and [rows] W v, not yet normalised; backward: `product` has parts of sum(dy·y) */
    int64_t count;
    int rows, columns, parts; /**< parts: of `product`, backward */
    bool accumulate;
};

/** 1 / |vector|, in every thread of the block; lengths below 1e-12 count as 1e-12. */
static __device__ __forceinline__ float inverse_length(const float *vector, int count)
{
    float sum = 0;
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        sum += vector[i] * vector[i];
    return 1 / fmaxf(sqrtf(block_sum(sum)), 1e-12f);
}

/** Wᵀu: a lane has a column, and each warp every STRIPS-th row of it. */
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) spectral_transposed_kernel(spectral_work work)
{
    float *shared = shared_memory<float>();
    const int lane = (int)threadIdx.x % WARP_LANES, strip = (int)threadIdx.x / WARP_LANES;
    const int column = (int)blockIdx.x * WARP_LANES + lane;
    chain_wait();
    float sum = 0;
    for (int row = strip; row < work.rows && column < work.columns; row += STRIPS)
        sum += work.u[row] * work.w[(int64_t)row * work.columns + column];
    shared[threadIdx.x] = sum;
    block_sync();
    if (strip > 0 || column >= work.columns)
        return;
    for (int other = 1; other < STRIPS; other++)
        sum += shared[other * WARP_LANES + lane];
    work.transposed[column] = sum;
}

/** W v: a block has a row. The first one writes v. */
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) spectral_product_kernel(spectral_work work)
{
    chain_wait();
    const float factor = inverse_length(work.transposed, work.columns);
    const float *row = work.w + (int64_t)blockIdx.x * work.columns;
    float sum = 0;
    for (int k = (int)threadIdx.x; k < work.columns; k += (int)blockDim.x) {
        const float v = work.transposed[k] * factor;
        sum += row[k] * v;
        if (blockIdx.x == 0)
            work.v[k] = v;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        work.product[blockIdx.x] = sum;
}

/** y = w / sigma. The first block writes sigma and u'. */
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) spectral_divide_kernel(spectral_work work)
{
    chain_wait();
    const float factor = inverse_length(work.product, work.rows);
    for (int64_t i = grid_first(); i < work.count; i += grid_step())
        work.y[i] = work.w[i] * factor;
    if (blockIdx.x > 0)
        return;
    for (int o = (int)threadIdx.x; o < work.rows; o += (int)blockDim.x)
        work.next_u[o] = work.product[o] * factor;
    if (threadIdx.x == 0)
        work.sigma[0] = 1 / factor;
}

/** Parts of sum(dy·y). */
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) spectral_along_kernel(spectral_work work)
{
    chain_wait();
    float sum = 0;
    for (int64_t i = grid_first(); i < work.count; i += grid_step())
        sum += work.w[i] * work.y_in[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        work.product[blockIdx.x] = sum;
}

/** dw = (dy - sum(dy·y)·u' vᵀ) / sigma: a block has a row. */
__global__ void __launch_bounds__(CUDA_THREADS, CUDA_BLOCKS) spectral_backward_kernel(spectral_work work)
{
    chain_wait();
    const float along = block_sum((int)threadIdx.x < work.parts ? work.product[threadIdx.x] : 0);
    const float factor = 1 / work.sigma_in[0], back = along * work.u[blockIdx.x] * factor;
    const int64_t first = (int64_t)blockIdx.x * work.columns;
    for (int k = (int)threadIdx.x; k < work.columns; k += (int)blockDim.x) {
        const float dw = work.w[first + k] * factor - back * work.v[k];
        work.y[first + k] = work.accumulate ? work.y[first + k] + dw : dw;
    }
}

enum { BLOCK_SUM_SHARED = CUDA_THREADS * sizeof(float) };

static spectral_work work_of(const cod_op *op)
{
    const cod_shape w = op->inputs[0].shape;
    spectral_work work = {};
    work.w = cuda_floats_of(&op->inputs[0]);
    work.y = cuda_floats_of(&op->outputs[0]);
    work.rows = static_cast<int>(w.n);
    work.columns = static_cast<int>(w.h * w.w * w.c);
    work.count = cod_shape_count(w);
    return work;
}

cod_status cuda_make_spectral_norm(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    spectral_work work = work_of(op);
    COD_TRY(cuda_plan_memory(plan, static_cast<size_t>(work.columns + work.rows) * sizeof(float)));
    work.transposed = static_cast<float *>(plan->memory);
    work.product = work.transposed + work.columns;
    work.u = cuda_floats_of(&op->inputs[1]);
    work.sigma = cuda_floats_of(&op->outputs[1]);
    work.next_u = cuda_floats_of(&op->outputs[2]);
    work.v = cuda_floats_of(&op->outputs[3]);
    return cuda_plan_launches(plan, work,
                              {{spectral_transposed_kernel,
                                static_cast<unsigned>(cuda_divide_up(work.columns, WARP_LANES)), BLOCK_SUM_SHARED},
                               {spectral_product_kernel, static_cast<unsigned>(work.rows), BLOCK_SUM_SHARED},
                               {spectral_divide_kernel, cuda_blocks(plan->device, work.count), BLOCK_SUM_SHARED}});
}

cod_status cuda_make_spectral_norm_backward(cod_plan *plan)
{
    const cod_op *op = plan->ops;
    const unsigned most = PARTS_MOST, needed = cuda_blocks(plan->device, cod_shape_count(op->inputs[0].shape)),
                   parts = needed < most ? needed : most;
    spectral_work work = work_of(op);
    COD_TRY(cuda_plan_memory(plan, PARTS_MOST * sizeof(float)));
    work.product = static_cast<float *>(plan->memory);
    work.parts = static_cast<int>(parts);
    work.y_in = cuda_floats_of(&op->inputs[1]);
    work.sigma_in = cuda_floats_of(&op->inputs[2]);
    work.u = cuda_floats_of(&op->inputs[3]);
    work.v = cuda_floats_of(&op->inputs[4]);
    work.accumulate = op->accumulate;
    return cuda_plan_launches(plan, work,
                              {{spectral_along_kernel, parts, BLOCK_SUM_SHARED},
                               {spectral_backward_kernel, static_cast<unsigned>(work.rows), BLOCK_SUM_SHARED}});
}

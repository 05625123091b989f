#include "cuda/conv_library.cuh"

#include "cuda/rounded.cuh"

/* A block is a warp's width of channels and BIAS_ROWS rows, each of which takes every so many pixels. */
enum { BIAS_ROWS = CUDA_THREADS / WARP_LANES, BIAS_PIXELS = 16 };

static __device__ __forceinline__ void put_bias(const library_bias &bias, int64_t channel, float sum)
{
    bias.db[channel] = bias.accumulate ? bias.db[channel] + sum : sum;
}

/** Partial sums; of a single block in x, db itself. */
__global__ void bias_partials_kernel(library_bias bias)
{
    chain_wait();
    float *shared = shared_memory<float>();
    const int row = (int)threadIdx.x / WARP_LANES, lane = (int)threadIdx.x % WARP_LANES;
    const int channel = grid_tile() * WARP_LANES + lane;
    const int64_t step = (int64_t)gridDim.x * BIAS_ROWS;
    float sum = 0;
    for (int64_t pixel = (int64_t)blockIdx.x * BIAS_ROWS + row; channel < bias.dy.channels && pixel < bias.dy.pixels;
         pixel += step)
        sum += view_load(bias.dy, pixel, channel);
    shared[threadIdx.x] = sum;
    block_sync();
    if (row > 0 || channel >= bias.dy.channels)
        return;
    for (int other = 1; other < BIAS_ROWS; other++)
        sum += shared[other * WARP_LANES + lane];
    if (gridDim.x > 1)
        bias.partials[(int64_t)blockIdx.x * bias.dy.channels + channel] = sum;
    else
        put_bias(bias, channel, sum);
}

__global__ void bias_sum_kernel(library_bias bias)
{
    chain_wait();
    for (int64_t channel = grid_first(); channel < bias.dy.channels; channel += grid_step()) {
        float sum = 0;
        for (int64_t block = 0; block < bias.blocks; block++)
            sum += bias.partials[block * bias.dy.channels + channel];
        put_bias(bias, channel, sum);
    }
}

int64_t library_bias_blocks(const cod_device *device, int64_t pixels)
{
    const int64_t wanted = (pixels + BIAS_ROWS * BIAS_PIXELS - 1) / (BIAS_ROWS * BIAS_PIXELS);
    const int64_t most = 2 * (int64_t)device->multiprocessors;
    return wanted < most ? wanted : most;
}

cod_status library_bias_run(cod_device *device, const library_bias &bias, cudaStream_t stream)
{
    if (bias.db == nullptr)
        return COD_OK;
    const unsigned groups = static_cast<unsigned>(cuda_divide_up(bias.dy.channels, WARP_LANES));
    COD_TRY(cuda_launch_chained(device, stream, bias_partials_kernel,
                                cuda_tile_grid(static_cast<unsigned>(bias.blocks), groups), CUDA_THREADS,
                                CUDA_THREADS * sizeof(float), bias));
    if (bias.blocks == 1)
        return COD_OK;
    return cuda_launch_chained(device, stream, bias_sum_kernel, groups, WARP_LANES, 0, bias);
}

static size_t rounded_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void describe_gradient(const cod_plan *plan, library_bias *out)
{
    const cod_op *op = plan->ops;
    const bool weights = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS || op->kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
    if (!weights || op->outputs[1].buffer == nullptr)
        return;
    out->dy = cuda_view_of(&op->inputs[1]);
    out->db = cuda_floats_of(&op->outputs[1]);
    out->accumulate = op->accumulate;
    out->blocks = library_bias_blocks(plan->device, out->dy.pixels);
}

cod_status library_parts_create(cod_plan *plan, size_t workspace_bytes, const cod_view *weights, const cod_view *bias,
                                library_parts *out)
{
    const size_t partials_at = rounded_up(workspace_bytes);
    if (!out->library_sums)
        describe_gradient(plan, &out->gradient);
    const size_t partials = static_cast<size_t>(out->gradient.blocks * out->gradient.dy.channels) * sizeof(float);
    COD_TRY(cuda_plan_memory(plan, partials_at + partials));
    unsigned char *memory = static_cast<unsigned char *>(plan->memory);
    out->workspace = workspace_bytes > 0 ? memory : nullptr;
    out->gradient.partials = reinterpret_cast<float *>(memory + partials_at);
    COD_TRY(cuda_rounded_take(plan, weights, &out->weights));
    return cuda_rounded_take(plan, bias, &out->bias);
}

#include "cuda/conv_library.cuh"

__global__ void round_kernel(cuda_view from, uint16_t *to)
{
    for (int64_t i = grid_first(); i < from.count; i += grid_step()) {
        const int64_t pixel = i / from.channels;
        to[i] = bf16_from_f32(view_load(from, pixel, (int)(i - pixel * from.channels)));
    }
}

cod_status library_round(const cod_device *device, cudaStream_t stream, const cuda_view &from, uint16_t *to)
{
    return cuda_launch(stream, round_kernel, cuda_blocks(device, from.count), CUDA_THREADS, 0, from, to);
}

/* A block is a warp's width of channels and BIAS_ROWS rows, each of which takes every so many pixels. */
enum { BIAS_ROWS = CUDA_THREADS / WARP_LANES, BIAS_PIXELS = 16 };

__global__ void bias_partials_kernel(library_bias bias)
{
    chain_wait();
    float *shared = shared_memory<float>();
    const int row = (int)threadIdx.x / WARP_LANES, lane = (int)threadIdx.x % WARP_LANES;
    const int channel = (int)blockIdx.y * WARP_LANES + lane;
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
    bias.partials[(int64_t)blockIdx.x * bias.dy.channels + channel] = sum;
}

__global__ void bias_sum_kernel(library_bias bias)
{
    chain_wait();
    for (int64_t channel = grid_first(); channel < bias.dy.channels; channel += grid_step()) {
        float sum = 0;
        for (int64_t block = 0; block < bias.blocks; block++)
            sum += bias.partials[block * bias.dy.channels + channel];
        bias.db[channel] = bias.accumulate ? bias.db[channel] + sum : sum;
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
    const unsigned groups = static_cast<unsigned>((bias.dy.channels + WARP_LANES - 1) / WARP_LANES);
    COD_TRY(cuda_launch_chained(device, stream, bias_partials_kernel, dim3(static_cast<unsigned>(bias.blocks), groups),
                                CUDA_THREADS, CUDA_THREADS * sizeof(float), bias));
    return cuda_launch_chained(device, stream, bias_sum_kernel, groups, WARP_LANES, 0, bias);
}

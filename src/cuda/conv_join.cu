/* Partial sums of weight gradients, added in the order of their splits: the same bits in every run. */
#include "cuda/conv_device.cuh"

/** A row of blocks for each layer; a thread adds WIDTH weights that lie side by side, or one element of db. */
template <int WIDTH>
__global__ void __launch_bounds__(CUDA_THREADS) join_kernel(const conv_join s, unsigned weights, unsigned count)
{
    chain_wait();
    const conv_layer layer = s.layers[blockIdx.y];
    const float *partials = s.partials + (int64_t)blockIdx.y * s.splits * s.partial_count;
    const conv_filter &f = s.filter;
    const unsigned cells = (unsigned)(f.factor * f.factor), channels = (unsigned)f.outputs / cells,
                   taps = (unsigned)(f.kernel_h * f.kernel_w), per_tap = (unsigned)f.inputs / WIDTH,
                   kernel_w = (unsigned)f.kernel_w;
    for (unsigned number = (unsigned)grid_first(); number < count; number += (unsigned)grid_step()) {
        if (number >= weights) {
            const unsigned o = number - weights;
            if (layer.db == NULL)
                continue;
            const float *from = partials + (int64_t)f.outputs * s.columns + o % cells * channels + o / cells;
            float sum = 0;
            for (int split = 0; split < s.splits; split++)
                sum += from[split * s.partial_count];
            layer.db[o] = s.accumulate ? layer.db[o] + sum : sum;
            continue;
        }
        const unsigned position = number / per_tap, o = position / taps, k = position - o * taps,
                       i = (number - position * per_tap) * WIDTH, row = o % cells * channels + o / cells;
        const unsigned column = s.folded ? k / kernel_w * (unsigned)s.tap_columns + k % kernel_w * (unsigned)f.inputs
                                         : k * (unsigned)s.tap_columns;
        const float *from = partials + (int64_t)row * s.columns + column + i;
        float *dw = layer.dw + (int64_t)position * f.stride + i, sums[WIDTH] = {};
#pragma unroll 4
        for (int split = 0; split < s.splits; split++) {
            float added[WIDTH];
            load_floats<WIDTH>(from + split * s.partial_count, added);
            for (int e = 0; e < WIDTH; e++)
                sums[e] += added[e];
        }
        if (number + (unsigned)grid_step() >= count)
            chain_release();
        if (s.accumulate) {
            float before[WIDTH];
            load_floats<WIDTH>(dw, before);
            for (int e = 0; e < WIDTH; e++)
                sums[e] = before[e] + sums[e];
        }
        store_floats<WIDTH>(dw, sums);
    }
}

cod_status conv_join_partials(cod_device *device, const conv_join &join, int layers, bool bias, cudaStream_t stream)
{
    const conv_filter &f = join.filter;
    const int width = join.wide ? 4 : 1;
    const int64_t weights = (int64_t)f.outputs * f.kernel_h * f.kernel_w * f.inputs / width;
    const int64_t count = weights + (bias ? f.outputs : 0);
    const unsigned most = cuda_blocks(device, count * layers),
                   needed = static_cast<unsigned>(cuda_divide_up(count, CUDA_THREADS)),
                   each = (most + static_cast<unsigned>(layers) - 1) / static_cast<unsigned>(layers);
    const dim3 blocks(each < needed ? each : needed, static_cast<unsigned>(layers));
    return cuda_launch_chained(device, stream, join.wide ? join_kernel<4> : join_kernel<1>, blocks, CUDA_THREADS, 0,
                               join, static_cast<unsigned>(weights), static_cast<unsigned>(count));
}

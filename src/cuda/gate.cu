#include "cuda/gate.cuh"

#include "cuda/conv_device.cuh"
#include "cuda/conv_plan.cuh"

enum { BITS = 8, LEADING_BITS = 128 };

/** Eight channels of a row; those past the last are 0. */
static __device__ __forceinline__ void load_row8(const conv_image &image, int64_t row, int channel, float (&values)[8])
{
    const int64_t at = row * image.stride + channel;
    if (image.wide && channel < image.channels) {
        load8(image, at, values);
        return;
    }
    for (int i = 0; i < 8; i++)
        values[i] = channel + i < image.channels ? element_load(image, at + i) : 0;
}

__global__ void __launch_bounds__(CUDA_THREADS) gate_mask_kernel(const cuda_gate gate)
{
    chain_wait();
    const int64_t bytes = gate.leading / BITS;
    for (int64_t item = grid_first(); item < gate.rows * bytes; item += grid_step()) {
        const int64_t row = item / bytes;
        float y[8];
        load_row8(gate.y, row, (int)(item - row * bytes) * BITS, y);
        unsigned byte = 0;
        for (int i = 0; i < 8; i++)
            byte |= y[i] > 0 ? 1u << i : 0;
        if (item + grid_step() >= gate.rows * bytes)
            chain_release();
        gate.bits[item] = (unsigned char)byte;
    }
}

__global__ void __launch_bounds__(CUDA_THREADS) gate_apply_kernel(const cuda_gate gate)
{
    chain_wait();
    const int groups = (gate.target.channels + 7) / 8;
    for (int64_t item = grid_first(); item < gate.rows * groups; item += grid_step()) {
        const int64_t row = item / groups;
        const int channel = (int)(item - row * groups) * 8;
        const int64_t at = row * gate.target.stride + channel;
        float y[8], values[8];
        load_row8(gate.y, row, channel, y);
        load_row8(gate.target, row, channel, values);
        for (int i = 0; i < 8; i++)
            values[i] = activation_gate(y[i], values[i], gate.leak);
        if (item + grid_step() >= gate.rows * groups)
            chain_release();
        if (gate.target.wide) {
            store8(gate.target, at, values);
            continue;
        }
        for (int i = 0; i < 8 && channel + i < gate.target.channels; i++)
            element_store(gate.target, at + i, values[i]);
    }
}

cuda_gate cuda_gate_of(const cod_view *y, const cod_view *target, float leak)
{
    cuda_gate gate = {};
    gate.y = conv_image_of(y, 1);
    gate.target = conv_image_of(target, 1);
    gate.rows = target->shape.n;
    gate.leak = leak;
    gate.leading = cuda_divide_up(target->shape.c, static_cast<int64_t>(LEADING_BITS)) * LEADING_BITS;
    return gate;
}

size_t cuda_gate_bytes(const cuda_gate &gate)
{
    return static_cast<size_t>(gate.rows * gate.leading / BITS);
}

cod_status cuda_gate_mask(cod_device *device, const cuda_gate &gate, cudaStream_t stream)
{
    const int64_t items = gate.rows * gate.leading / BITS;
    return cuda_launch_chained(device, stream, gate_mask_kernel, cuda_blocks(device, items), CUDA_THREADS, 0, gate);
}

cod_status cuda_gate_apply(cod_device *device, const cuda_gate &gate, cudaStream_t stream)
{
    const int64_t items = gate.rows * cuda_divide_up(gate.target.channels, 8);
    return cuda_launch_chained(device, stream, gate_apply_kernel, cuda_blocks(device, items), CUDA_THREADS, 0, gate);
}

/*
 * Kernels that tools/kernel_resources.py must find fault with, and one that it must not: test_resources.py compiles
 * them.
 */

/** Keeps COUNT values, each of which the others need. */
template <int COUNT> static __device__ __forceinline__ void mix(float *x, int n)
{
    float v[COUNT];
    for (int i = 0; i < COUNT; i++)
        v[i] = x[i * n + threadIdx.x];
    for (int k = 0; k < n; k++) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            v[i] = v[i] * v[(i + 7) % COUNT] + v[(i * 5 + 1) % COUNT];
    }
    for (int i = 0; i < COUNT; i++)
        x[i * n + threadIdx.x] = v[i];
}

/** 96 values in 32 registers. */
__global__ void __launch_bounds__(256, 8) spilling_kernel(float *x, int n)
{
    mix<96>(x, n);
}

/** Its array has no place in registers, because only the data say which element is meant. */
__global__ void __launch_bounds__(256) indexed_kernel(float *x, int n)
{
    float v[16];
    for (int i = 0; i < 16; i++)
        v[i] = x[i];
    for (int i = 0; i < n; i++)
        v[(int)x[i] & 15] += 1;
    for (int i = 0; i < 16; i++)
        x[i] = v[i];
}

/** More than 64 registers a thread, and nothing says that its blocks are small enough for that. */
__global__ void unbounded_kernel(float *x, int n)
{
    mix<48>(x, n);
}

__global__ void __launch_bounds__(256) static_kernel(float *x)
{
    __shared__ float values[1024];
    values[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = values[255 - threadIdx.x];
}

__global__ void __launch_bounds__(256) sound_kernel(float *x)
{
    extern __shared__ float shared[];
    shared[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = shared[255 - threadIdx.x];
}

/**
 * @file
 * Views as kernels see them: elements of any type as f32, one by one. For what is not worth a kernel of its own for
 * each type; consecutive threads should touch consecutive channels.
 */
#ifndef COD_CUDA_VIEW_CUH
#define COD_CUDA_VIEW_CUH

#include "cuda/cuda_internal.h"
#include "cuda/warp.cuh"

/** `data` NULL = no tensor. Elements are numbered in NHWC order, as if the view were dense. */
struct cuda_view {
    unsigned char *data;
    int64_t pixels, stride; /**< N·H·W; elements from one pixel to the next */
    int64_t count;          /**< pixels·channels */
    int channels, h, w;
    cod_dtype dtype;
};

/** A view of the backend's buffers. */
static inline cuda_view cuda_view_of(const cod_view *view)
{
    cuda_view out = {};
    if (view->buffer == nullptr)
        return out;
    out.data = static_cast<unsigned char *>(reinterpret_cast<const cuda_buffer *>(view->buffer)->memory) + view->offset;
    out.pixels = view->shape.n * view->shape.h * view->shape.w;
    out.stride = view->pixel_stride;
    out.count = cod_shape_count(view->shape);
    out.channels = static_cast<int>(view->shape.c);
    out.h = static_cast<int>(view->shape.h);
    out.w = static_cast<int>(view->shape.w);
    out.dtype = view->dtype;
    return out;
}

/** A f32 vector, such as a parameter; NULL where the view is absent. */
static inline float *cuda_floats_of(const cod_view *view)
{
    return reinterpret_cast<float *>(cuda_view_of(view).data);
}

static __device__ __forceinline__ float view_load(const cuda_view &view, int64_t pixel, int channel)
{
    const int64_t place = pixel * view.stride + channel;
    if (view.dtype == COD_BF16)
        return f32_from_bf16(reinterpret_cast<const uint16_t *>(view.data)[place]);
    return reinterpret_cast<const float *>(view.data)[place];
}

static __device__ __forceinline__ void view_store(const cuda_view &view, int64_t pixel, int channel, float value)
{
    const int64_t place = pixel * view.stride + channel;
    if (view.dtype == COD_BF16)
        reinterpret_cast<uint16_t *>(view.data)[place] = bf16_from_f32(value);
    else
        reinterpret_cast<float *>(view.data)[place] = value;
}

/** Stores the value, or its sum with what is there. */
static __device__ __forceinline__ void view_put(const cuda_view &view, int64_t pixel, int channel, float value,
                                                bool accumulate)
{
    view_store(view, pixel, channel, accumulate ? view_load(view, pixel, channel) + value : value);
}

/** The number of this thread in its grid, and how many there are: elements first, first + step, … are its own. */
static __device__ __forceinline__ int64_t grid_first()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ int64_t grid_step()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/** Of a block; and how many blocks of a kernel shall fit on a multiprocessor: that leaves a thread 128 registers. */
enum { CUDA_THREADS = 256, CUDA_BLOCKS = 2 };

/**
 * A grid of blocks in x for each of the tiles, which lie in y and, because that has 65535 at most, in z: the last ones
 * may be past `tiles`.
 */
static inline dim3 cuda_tile_grid(unsigned blocks, int64_t tiles)
{
    const int64_t most = 65535, layers = cuda_divide_up(tiles, most);
    return dim3(blocks, static_cast<unsigned>(cuda_divide_up(tiles, layers)), static_cast<unsigned>(layers));
}

/** The block's tile in such a grid. */
static __device__ __forceinline__ int grid_tile()
{
    return (int)(blockIdx.z * gridDim.y + blockIdx.y);
}

/** Blocks of CUDA_THREADS where each thread has one item, or none. */
static inline unsigned cuda_item_blocks(int64_t items)
{
    return static_cast<unsigned>(cuda_divide_up(items, CUDA_THREADS));
}

/** Blocks of CUDA_THREADS for `count` elements: enough to fill the GPU a few times, no more. */
static inline unsigned cuda_blocks(const cod_device *device, int64_t count)
{
    const int64_t needed = cuda_divide_up(count, CUDA_THREADS), most = (int64_t)device->multiprocessors * 32;
    return static_cast<unsigned>(needed < 1 ? 1 : needed < most ? needed : most);
}

#endif

/**
 * @file
 * Results whose pixels are shuffled as they are stored (conv3.cuh): a pixel of the tile is factor² neighbours of the
 * picture, which has outputs / factor² channels. Columns are numbered neighbour by neighbour, so that what a warp
 * stores of a pixel lies together.
 */
#ifndef COD_CUDA_CONV3_SHUFFLE_CUH
#define COD_CUDA_CONV3_SHUFFLE_CUH

#include "cuda/conv3_store.cuh"
#include "cuda/conv_device.cuh"

/** Vectors of the store: bias, slope, and where a column's channel lies, in elements from the pixel's first one. */
enum { SHUFFLED_BIAS, SHUFFLED_SLOPE, SHUFFLED_PLACE };

/** Elements of the picture that lie before a tile's first pixel. */
static __device__ __forceinline__ int64_t shuffled_first(const conv3_work &work, const conv3_tile &tile)
{
    return ((int64_t)tile.n * work.h + tile.y) * work.w * work.outputs + tile.x * work.store.across;
}

/** Puts the vectors of the block's columns into shared memory. */
template <int COLUMNS> static __device__ __forceinline__ void shuffled_vectors_share(const conv3_work &work)
{
    const conv3_store &store = work.store;
    float *vectors = reinterpret_cast<float *>(shared_memory<unsigned char>() + work.places.store_vectors);
    const int r = store.factor, channels = work.outputs / (r * r);
    for (int i = (int)threadIdx.x; i < COLUMNS; i += (int)blockDim.x) {
        const int column = (int)blockIdx.y * COLUMNS + i, cell = column / channels, channel = column - cell * channels;
        const int place = cell / r * work.w * store.across + cell % r * channels + channel;
        vectors[SHUFFLED_BIAS * COLUMNS + i] =
            store.bias != NULL ? store.bias[conv_output_of(column, work.outputs, r)] : 0;
        vectors[SHUFFLED_SLOPE * COLUMNS + i] =
            store.activation.kind == COD_ACT_NONE ? 1 : activation_slope(store.activation, channel);
        vectors[SHUFFLED_PLACE * COLUMNS + i] = f32_from_word((uint32_t)place);
    }
}

/** `column`: the lane's first one of the block's; `first`: of shuffled_first(). */
template <int COLUMNS, int MT>
static __device__ __forceinline__ void store_shuffled(const conv3_work &work, const conv3_pixels<MT> &pixels,
                                                      float (&y)[2 * MT][4], int64_t first, int column)
{
    const conv3_store &store = work.store;
    float bias[4], slope[4], place[4];
    store_vector(work, SHUFFLED_BIAS, COLUMNS, column, bias);
    store_vector(work, SHUFFLED_SLOPE, COLUMNS, column, slope);
    store_vector(work, SHUFFLED_PLACE, COLUMNS, column, place);
    const int64_t lane = first + (int)word_from_f32(place[0]);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        if (pixels.at[i] < 0)
            continue;
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[i][e] += bias[e];
        if (store.target != NULL)
            store4(store.target, lane + pixels.at[i], y[i]);
        if (store.activated == NULL)
            continue;
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[i][e] = finish(COD_ACT_PRELU, y[i][e], slope[e]); /* as all of the family, from their slopes */
        store4(store.activated, lane + pixels.at[i], y[i]);
    }
}

#endif

/**
 * @file
 * What a group of warps does with a tile's sums of products: results, and sums over pixels (conv3.cuh).
 *
 * A lane has, of each pair of fragments, four neighbouring channels of MT·2 pixels.
 */
#ifndef COD_CUDA_CONV3_STORE_CUH
#define COD_CUDA_CONV3_STORE_CUH

#include "cuda/conv3_load.cuh"

struct __align__(8) words2
{
    uint32_t words[2];
};

/** Four channels of each of a lane's MT·2 pixels, as they are stored. */
template <int MT> struct conv3_read {
    words2 of[2 * MT];
};

/**
 * Where a lane's pixels lie: elements from the tile's first pixel to their channel 0, -1 where there is no such pixel.
 */
template <int MT> struct conv3_pixels {
    int at[2 * MT];
};

/** @param across  elements from a pixel to the next one of its row */
template <int MT>
static __device__ __forceinline__ conv3_pixels<MT> pixels_of(const conv3_work &work, const conv3_tile &tile, int row,
                                                             int across)
{
    conv3_pixels<MT> pixels;
    const int *places = reinterpret_cast<const int *>(shared_memory<unsigned char>() + work.places.pixels);
    const int lane = (int)threadIdx.x % WARP_LANES;
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        const int place = places[row + i * 8 + lane / 4], r = place >> 16, c = place & 0xFFFF;
        const bool in = (place >= 0) & (tile.y + r < work.h) & (tile.x + c < work.w);
        pixels.at[i] = in ? r * work.w * work.outputs + c * across : -1;
    }
    return pixels;
}

/** How many pixels a warp has: lanes of the same remainder by four have the same ones. */
template <int MT> static __device__ __forceinline__ float pixels_count(const conv3_pixels<MT> &pixels)
{
    float count = 0;
#pragma unroll
    for (int i = 0; i < 2 * MT; i++)
        count += pixels.at[i] >= 0 ? 1 : 0;
    for (unsigned mask = 4; mask < WARP_LANES; mask *= 2)
        count += shuffle_xor(count, mask);
    return count;
}

/** The sum over the lanes of the same channels, in all of them. */
static __device__ __forceinline__ void lanes_sum(float (&values)[4])
{
#pragma unroll
    for (unsigned mask = 4; mask < WARP_LANES; mask *= 2)
#pragma unroll
        for (int e = 0; e < 4; e++)
            values[e] += shuffle_xor(values[e], mask);
}

/** The same where each lane needs one of the four sums, that of channel lanes_share(). */
static __device__ __forceinline__ float lanes_sum_one(float (&values)[4])
{
    const bool high = (threadIdx.x & 16) != 0, odd = (threadIdx.x & 8) != 0;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float give = high ? values[e] : values[e + 2], keep = high ? values[e + 2] : values[e];
        values[e] = keep + shuffle_xor(give, 16);
    }
    const float give = odd ? values[0] : values[1], keep = odd ? values[1] : values[0];
    const float sum = keep + shuffle_xor(give, 8);
    return sum + shuffle_xor(sum, 4);
}

/** Which of a lane's four channels it has after lanes_sum_one(). */
static __device__ __forceinline__ int lanes_share()
{
    return (threadIdx.x & 16 ? 2 : 0) + (threadIdx.x & 8 ? 1 : 0);
}

static __device__ __forceinline__ void open4(const words2 &from, float (&out)[4])
{
#pragma unroll
    for (int e = 0; e < 4; e++)
        out[e] = half_of(from.words[e / 2], e % 2);
}

static __device__ __forceinline__ void store4(unsigned char *to, int64_t at, const float (&values)[4])
{
    const words2 words = {{bf16_pair(values[0], values[1]), bf16_pair(values[2], values[3])}};
    *reinterpret_cast<words2 *>(to + at * 2) = words;
}

/** Four channels of one of the store's vectors. */
static __device__ __forceinline__ void store_vector(const conv3_work &work, int vector, int columns, int column,
                                                    float (&out)[4])
{
    uint32_t words[4];
    read16(words, shared_memory<unsigned char>() + work.places.store_vectors + (vector * columns + column) * 4);
#pragma unroll
    for (int e = 0; e < 4; e++)
        out[e] = f32_from_word(words[e]);
}

/**
 * Puts the vectors of what is stored into shared memory: the bias; or mean, scale, shift behind the mean, and slope.
 */
template <int STORE, int COLUMNS> static __device__ __forceinline__ void store_vectors_share(const conv3_work &work)
{
    const conv3_store &store = work.store;
    float *vectors = reinterpret_cast<float *>(shared_memory<unsigned char>() + work.places.store_vectors);
    for (int i = (int)threadIdx.x; i < COLUMNS; i += (int)blockDim.x) {
        const int c = (int)blockIdx.y * COLUMNS + i;
        if constexpr (STORE == CONV3_REDUCE) {
            vectors[i] = store.mean[c];
            vectors[COLUMNS + i] = store.gamma[c] * store.inv_std[c];
            vectors[2 * COLUMNS + i] = store.beta[c];
            vectors[3 * COLUMNS + i] =
                store.activation.kind == COD_ACT_NONE ? 1 : activation_slope(store.activation, c);
        } else {
            vectors[i] = store.bias != NULL ? store.bias[c] : 0;
        }
    }
}

/** Starts reading a lane's part of a tensor. `first`: elements before the tile and the lane's channels. */
template <int MT>
static __device__ __forceinline__ conv3_read<MT> read_pixels(const unsigned char *tensor,
                                                             const conv3_pixels<MT> &pixels, int64_t first)
{
    conv3_read<MT> read = {};
#pragma unroll
    for (int i = 0; i < 2 * MT; i++)
        if (pixels.at[i] >= 0)
            read.of[i] = *reinterpret_cast<const words2 *>(tensor + (first + pixels.at[i]) * 2);
    return read;
}

/** Adds what the results are added to, if anything. */
template <int MT>
static __device__ __forceinline__ void add_before(const conv3_work &work, const conv3_pixels<MT> &pixels, int64_t first,
                                                  float (&y)[2 * MT][4])
{
    if (work.store.before == NULL)
        return;
    const conv3_read<MT> read = read_pixels(work.store.before, pixels, first);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        float before[4];
        open4(read.of[i], before);
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[i][e] += before[e];
    }
}

/**
 * Stores results, and joins their mean and squared distances with those of the warp's tiles before (see
 * finish_moments()).
 */
template <int COLUMNS, int MT>
static __device__ __forceinline__ void store_statistics(const conv3_work &work, const conv3_pixels<MT> &pixels,
                                                        float (&y)[2 * MT][4], int64_t first, int column, float *sums,
                                                        float seen, float count)
{
    float bias[4], mean[4] = {}, squares[4] = {};
    store_vector(work, 0, COLUMNS, column, bias);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            y[i][e] += bias[e];
            mean[e] += pixels.at[i] >= 0 ? y[i][e] : 0;
        }
    if (count == 0) /* of the whole warp */
        return;
    lanes_sum(mean);
#pragma unroll
    for (int e = 0; e < 4; e++)
        mean[e] /= count;
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        if (pixels.at[i] < 0)
            continue;
#pragma unroll
        for (int e = 0; e < 4; e++)
            squares[e] += (y[i][e] - mean[e]) * (y[i][e] - mean[e]);
        store4(work.store.target, first + pixels.at[i], y[i]);
    }
    const float distances = lanes_sum_one(squares);
    const int share = lanes_share();
    if ((threadIdx.x & 4) == 0) {
        const float own = share == 0 ? mean[0] : share == 1 ? mean[1] : share == 2 ? mean[2] : mean[3];
        float *at = sums + column + share;
        const float apart = own - at[0], part = count / (seen + count);
        at[0] += apart * part;
        at[COLUMNS] += distances + apart * apart * seen * part;
    }
}

/** Turns a gradient dy into g, adds up g, g·d and the slope's gradient, and stores what is asked for. */
template <int COLUMNS, int MT>
static __device__ __forceinline__ void store_reduce(const conv3_work &work, const conv3_pixels<MT> &pixels,
                                                    float (&dy)[2 * MT][4], const conv3_read<MT> &read, int64_t first,
                                                    int column, float *sums)
{
    float mean[4], scale[4], shift[4], slope[4], of_g[4] = {}, of_gd[4] = {}, of_slope[4] = {};
    store_vector(work, 0, COLUMNS, column, mean);
    store_vector(work, 1, COLUMNS, column, scale);
    store_vector(work, 2, COLUMNS, column, shift);
    store_vector(work, 3, COLUMNS, column, slope);
    add_before(work, pixels, first, dy);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        if (pixels.at[i] < 0)
            continue;
        float x[4];
        open4(read.of[i], x);
        if (work.store.target != NULL)
            store4(work.store.target, first + pixels.at[i], dy[i]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float d = x[e] - mean[e], z = d * scale[e] + shift[e], all = dy[i][e],
                        g = z > 0 ? all : slope[e] * all;
            of_slope[e] += z > 0 ? 0 : all * z;
            of_g[e] += g;
            of_gd[e] += g * d;
            dy[i][e] = g;
        }
        if (work.store.g != NULL)
            store4(work.store.g, first + pixels.at[i], dy[i]);
    }
    const float g = lanes_sum_one(of_g), gd = lanes_sum_one(of_gd);
    const float dslope = work.store.dslope != NULL ? lanes_sum_one(of_slope) : 0;
    if ((threadIdx.x & 4) == 0) {
        float *at = sums + column + lanes_share();
        at[0] += g;
        at[COLUMNS] += gd;
        at[2 * COLUMNS] += dslope;
    }
}

template <int COLUMNS, int MT>
static __device__ __forceinline__ void store_plain(const conv3_work &work, const conv3_pixels<MT> &pixels,
                                                   float (&y)[2 * MT][4], int64_t first, int column)
{
    float bias[4];
    store_vector(work, 0, COLUMNS, column, bias);
    add_before(work, pixels, first, y);
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) {
        if (pixels.at[i] < 0)
            continue;
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[i][e] += bias[e];
        store4(work.store.target, first + pixels.at[i], y[i]);
    }
}

#endif

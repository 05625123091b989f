/**
 * @file
 * How a group of warps loads a tile with its halo, transforms it and keeps it (conv3.cuh).
 */
#ifndef COD_CUDA_CONV3_LOAD_CUH
#define COD_CUDA_CONV3_LOAD_CUH

#include "cuda/conv3.cuh"
#include "cuda/vectors.cuh"

/** Reads that a thread has under way at a time, of each tensor. */
enum { CONV3_BATCH = 6 };

/** A tile's image and its first pixel. */
struct conv3_tile {
    int n, y, x;
};

/** A pixel of the halo, counted from its first row and column. */
struct conv3_halo {
    int row, column;
};

struct conv3_batch {
    bytes16 first[CONV3_BATCH], second[CONV3_BATCH];
};

static __device__ __forceinline__ conv3_tile tile_at(const conv3_work &work, int number)
{
    const int line = number / work.tiles_across, n = line / work.tiles_down;
    return {n, (line - n * work.tiles_down) * work.tile_h, (number - line * work.tiles_across) * work.tile_w};
}

/** Elements of a tensor with `channels` channels that lie before a tile's first pixel. */
static __device__ __forceinline__ int64_t tile_first(const conv3_work &work, const conv3_tile &tile, int channels)
{
    return (((int64_t)tile.n * work.h + tile.y) * work.w + tile.x) * channels;
}

/**
 * A thread loads eight channels, the same all the time, of every so many-th pixel; threads that are left over load
 * none.
 */
static __device__ __forceinline__ conv3_halo halo_begin(const conv3_work &work, int thread, int threads)
{
    const int pieces = work.channels / 8, pixel = thread / pieces, halo_w = work.tile_w + 2;
    return {pixel < threads / pieces ? pixel / halo_w : work.tile_h + 2, pixel % halo_w};
}

static __device__ __forceinline__ void halo_advance(const conv3_work &work, conv3_halo &at)
{
    at.row += work.step_rows;
    at.column += work.step_columns;
    if (at.column >= work.tile_w + 2) {
        at.column -= work.tile_w + 2;
        at.row++;
    }
}

static __device__ __forceinline__ bool halo_inside(const conv3_work &work, const conv3_tile &tile, conv3_halo at)
{
    return (at.row < work.tile_h + 2) & ((unsigned)(tile.y + at.row - 1) < (unsigned)work.h) &
           ((unsigned)(tile.x + at.column - 1) < (unsigned)work.w);
}

/** Bytes from a tile's first pixel to the thread's channels of a pixel of the halo. */
static __device__ __forceinline__ int halo_offset(const conv3_work &work, conv3_halo at, int piece)
{
    return (((at.row - 1) * work.w + at.column - 1) * work.channels + piece * 8) * 2;
}

/** Starts reading the thread's next pixels; those outside the image are zeros. */
static __device__ __forceinline__ conv3_batch batch_fetch(const conv3_work &work, const conv3_tile &tile, int piece,
                                                          conv3_halo &at)
{
    conv3_batch batch = {};
    const int64_t first = tile_first(work, tile, work.channels) * 2;
    const bool two = work.load.second != NULL;
#pragma unroll
    for (int u = 0; u < CONV3_BATCH; u++) {
        if (halo_inside(work, tile, at)) {
            const int64_t place = first + halo_offset(work, at, piece);
            batch.first[u] = *reinterpret_cast<const bytes16 *>(work.load.first + place);
            if (two)
                batch.second[u] = *reinterpret_cast<const bytes16 *>(work.load.second + place);
        }
        halo_advance(work, at);
    }
    return batch;
}

/** Asks L2 for a tile of a tensor, which has `channels` channels; the group's threads share its lines. */
static __device__ __forceinline__ void tile_prefetch(const conv3_work &work, const conv3_tile &tile,
                                                     const unsigned char *tensor, int channels, int thread, int threads)
{
    const int down = work.h - tile.y < work.tile_h ? work.h - tile.y : work.tile_h;
    const int across = work.w - tile.x < work.tile_w ? work.w - tile.x : work.tile_w;
    const int lines = (across * channels * 2 + LINE_BYTES - 1) / LINE_BYTES;
    const unsigned char *first = tensor + tile_first(work, tile, channels) * 2;
    for (int i = thread; i < down * lines; i += threads) {
        const int row = i / lines;
        prefetch_line(first + row * work.w * channels * 2 + (i - row * lines) * LINE_BYTES);
    }
}

/** The vectors of a thread's eight channels: what a tile's elements are transformed with. */
struct conv3_lanes {
    float scale[8], shift[8], slope[8], second[8];
};

static __device__ __forceinline__ void lane_vector(const conv3_work &work, int vector, int piece, float (&out)[8])
{
    const unsigned char *from =
        shared_memory<unsigned char>() + work.places.load_vectors + (vector * work.channels + piece * 8) * 4;
    uint32_t words[8];
    read16(words, from);
    read16(words + 4, from + 16);
#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] = f32_from_word(words[i]);
}

static __device__ __forceinline__ conv3_lanes lanes_at(const conv3_work &work, int piece)
{
    conv3_lanes lanes = {};
    if (work.load.kind != CONV3_AS_IS) {
        lane_vector(work, 0, piece, lanes.scale);
        lane_vector(work, 1, piece, lanes.shift);
        lane_vector(work, 2, piece, lanes.slope);
        lane_vector(work, 3, piece, lanes.second);
    }
    return lanes;
}

static __device__ __forceinline__ float half_of(uint32_t word, int which)
{
    return f32_from_word(which == 0 ? word << 16 : word & 0xFFFF0000u);
}

static __device__ __forceinline__ bytes16 transformed(const conv3_work &work, const conv3_lanes &by,
                                                      const bytes16 &first, const bytes16 &second)
{
    if (work.load.kind == CONV3_AS_IS)
        return first;
    bytes16 out;
    const bool two = work.load.second != NULL;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float values[2];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int lane = 2 * i + k;
            float value = half_of(first.words[i], k) * by.scale[lane] + by.shift[lane];
            value = value > 0 ? value : by.slope[lane] * value;
            if (two)
                value += half_of(second.words[i], k) * by.second[lane];
            values[k] = value;
        }
        out.words[i] = bf16_pair(values[0], values[1]);
    }
    return out;
}

/** Transforms the pixels of a batch, puts them into the group's tile and writes those that are the tile's own. */
static __device__ __forceinline__ void batch_put(const conv3_work &work, const conv3_tile &tile, int piece,
                                                 const conv3_lanes &by, unsigned char *shared, conv3_halo &at,
                                                 const conv3_batch &batch)
{
    const int64_t first = tile_first(work, tile, work.channels) * 2;
    unsigned char *kept = blockIdx.y == 0 ? work.load.kept : NULL; /* others load the same tile for other columns */
#pragma unroll
    for (int u = 0; u < CONV3_BATCH; u++) {
        if (at.row >= work.tile_h + 2)
            return;
        bytes16 value = {{0, 0, 0, 0}};
        if (halo_inside(work, tile, at)) {
            value = transformed(work, by, batch.first[u], batch.second[u]);
            const bool own =
                ((unsigned)(at.row - 1) < (unsigned)work.tile_h) & ((unsigned)(at.column - 1) < (unsigned)work.tile_w);
            if (kept != NULL && own)
                *reinterpret_cast<bytes16 *>(kept + first + halo_offset(work, at, piece)) = value;
        }
        *reinterpret_cast<bytes16 *>(shared + (at.row * (work.tile_w + 2) + at.column) * work.pitch + piece * 16) =
            value;
        halo_advance(work, at);
    }
}

/**
 * Loads a tile whose first batch has been fetched, up to `ahead`. Nobody in the group may still read the one before.
 */
static __device__ __forceinline__ void tile_load(const conv3_work &work, const conv3_tile &tile, int piece,
                                                 conv3_halo begin, conv3_halo ahead, conv3_batch batch,
                                                 unsigned char *shared)
{
    const conv3_lanes by = lanes_at(work, piece);
    conv3_halo at = begin;
    for (;;) {
        batch_put(work, tile, piece, by, shared, at, batch);
        if (at.row >= work.tile_h + 2)
            return;
        batch = batch_fetch(work, tile, piece, ahead);
    }
}

/**
 * Puts the vectors of what is loaded into shared memory. A normalisation is x·scale + shift; its gradient
 * gamma·inv_std·(g - sums[0]/M - x^·sums[1]/M) becomes g·scale + shift + x·second.
 */
static __device__ __forceinline__ void load_vectors_share(const conv3_work &work)
{
    const conv3_load &load = work.load;
    float *vectors = reinterpret_cast<float *>(shared_memory<unsigned char>() + work.places.load_vectors);
    if (load.kind == CONV3_AS_IS)
        return;
    for (int c = (int)threadIdx.x; c < work.channels; c += (int)blockDim.x) {
        const float inv_std = load.inv_std[c], mean = load.mean[c], scale = load.gamma[c] * inv_std;
        float shift, slope = 1, second = 1;
        if (load.kind == CONV3_NORMALISE) {
            shift = load.beta[c] - mean * scale;
            if (load.activation.kind != COD_ACT_NONE)
                slope = activation_slope(load.activation, c);
        } else {
            const float mean_g = load.sums[c] / load.pixels;
            const float mean_gd = inv_std * load.sums[work.channels + c] / load.pixels;
            shift = scale * (mean * mean_gd - mean_g);
            second = -scale * mean_gd;
        }
        vectors[c] = scale;
        vectors[work.channels + c] = shift;
        vectors[2 * work.channels + c] = slope;
        vectors[3 * work.channels + c] = second;
    }
}

#endif

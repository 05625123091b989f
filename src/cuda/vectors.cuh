/**
 * @file
 * Several channels of a pixel at a time, as f32: 16-byte accesses where a view allows them, single elements elsewhere.
 *
 * A kernel that is a template over `cuda_lanes` has one text for all of them. The host chooses (walk.cuh).
 */
#ifndef COD_CUDA_VECTORS_CUH
#define COD_CUDA_VECTORS_CUH

#include "cuda/view.cuh"

/** What one access of every view of an op holds. */
enum cuda_lanes {
    LANES_ANY,   /**< one element of the view's own type, wherever it lies */
    LANES_F32,   /**< 4 of f32 */
    LANES_BF16,  /**< 8 of bf16 */
    LANES_MIXED, /**< 8 of the view's own type */
    LANES_COUNT
};

template <cuda_lanes L> constexpr int lanes_width = L == LANES_ANY ? 1 : L == LANES_F32 ? 4 : 8;

/** What was read and not yet converted, so that many reads can be under way before the first is used. */
template <cuda_lanes L> struct lanes_raw {
    uint32_t words[L == LANES_ANY ? 1 : L == LANES_MIXED ? 8 : 4];
};

static __device__ __forceinline__ void read16(uint32_t *words, const unsigned char *from)
{
    const bytes16 read = *reinterpret_cast<const bytes16 *>(from);
#pragma unroll
    for (int i = 0; i < 4; i++)
        words[i] = read.words[i];
}

static __device__ __forceinline__ void write16(unsigned char *to, const uint32_t *words)
{
    bytes16 written;
#pragma unroll
    for (int i = 0; i < 4; i++)
        written.words[i] = words[i];
    *reinterpret_cast<bytes16 *>(to) = written;
}

/** Channels `channel`, … of a pixel. */
template <cuda_lanes L>
static __device__ __forceinline__ lanes_raw<L> lanes_fetch(const cuda_view &view, int64_t pixel, int channel)
{
    lanes_raw<L> raw;
    const int64_t place = pixel * view.stride + channel;
    if constexpr (L == LANES_ANY) {
        raw.words[0] = word_from_f32(view_load(view, pixel, channel));
    } else if constexpr (L == LANES_MIXED) {
        read16(raw.words, view.data + place * (view.dtype == COD_BF16 ? 2 : 4));
        if (view.dtype != COD_BF16)
            read16(raw.words + 4, view.data + place * 4 + 16);
    } else {
        read16(raw.words, view.data + place * (L == LANES_BF16 ? 2 : 4));
    }
    return raw;
}

template <cuda_lanes L>
static __device__ __forceinline__ void lanes_open(const cuda_view &view, const lanes_raw<L> &raw,
                                                  float (&out)[lanes_width<L>])
{
    if (L == LANES_BF16 || (L == LANES_MIXED && view.dtype == COD_BF16)) {
#pragma unroll
        for (int i = 0; i < lanes_width<L>; i++)
            out[i] = f32_from_word(i % 2 == 0 ? raw.words[i / 2] << 16 : raw.words[i / 2] & 0xFFFF0000u);
    } else {
#pragma unroll
        for (int i = 0; i < lanes_width<L>; i++)
            if constexpr (L != LANES_BF16)
                out[i] = f32_from_word(raw.words[i]);
    }
}

template <cuda_lanes L>
static __device__ __forceinline__ void lanes_load(const cuda_view &view, int64_t pixel, int channel,
                                                  float (&out)[lanes_width<L>])
{
    lanes_open<L>(view, lanes_fetch<L>(view, pixel, channel), out);
}

template <cuda_lanes L>
static __device__ __forceinline__ void lanes_store(const cuda_view &view, int64_t pixel, int channel,
                                                   const float (&values)[lanes_width<L>])
{
    const int64_t place = pixel * view.stride + channel;
    if constexpr (L == LANES_ANY) {
        view_store(view, pixel, channel, values[0]);
    } else {
        uint32_t words[lanes_width<L>];
        if (L == LANES_BF16 || (L == LANES_MIXED && view.dtype == COD_BF16)) {
#pragma unroll
            for (int i = 0; i < lanes_width<L> / 2; i++)
                words[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
            write16(view.data + place * 2, words);
        } else {
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i++)
                words[i] = word_from_f32(values[i]);
#pragma unroll
            for (int i = 0; i < lanes_width<L>; i += 4)
                write16(view.data + (place + i) * 4, words + i);
        }
    }
}

/**
 * Stores the values, or their sums with what was there, `before`: read ahead of it, as a read waits for all earlier
 * stores.
 */
template <cuda_lanes L>
static __device__ __forceinline__ void lanes_put_on(const cuda_view &view, int64_t pixel, int channel,
                                                    float (&values)[lanes_width<L>], const lanes_raw<L> &before,
                                                    bool accumulate)
{
    if (accumulate) {
        float sum[lanes_width<L>];
        lanes_open<L>(view, before, sum);
#pragma unroll
        for (int i = 0; i < lanes_width<L>; i++)
            values[i] += sum[i];
    }
    lanes_store<L>(view, pixel, channel, values);
}

/** What a gradient reads of a pixel: x, dy, and where it adds to dx what is there. */
template <cuda_lanes L> struct gradient_raw {
    lanes_raw<L> x, dy, before;
};

template <cuda_lanes L>
static __device__ __forceinline__ gradient_raw<L> gradient_fetch(const cuda_view &x, const cuda_view &dy,
                                                                 const cuda_view &dx, int64_t pixel, int channel,
                                                                 bool accumulate)
{
    gradient_raw<L> raw;
    raw.x = lanes_fetch<L>(x, pixel, channel);
    raw.dy = lanes_fetch<L>(dy, pixel, channel);
    if (accumulate)
        raw.before = lanes_fetch<L>(dx, pixel, channel);
    return raw;
}

/** Stores the values, or their sums with what is there. */
template <cuda_lanes L>
static __device__ __forceinline__ void lanes_put(const cuda_view &view, int64_t pixel, int channel,
                                                 float (&values)[lanes_width<L>], bool accumulate)
{
    lanes_raw<L> before;
    if (accumulate)
        before = lanes_fetch<L>(view, pixel, channel);
    lanes_put_on<L>(view, pixel, channel, values, before, accumulate);
}

#endif

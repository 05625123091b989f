/**
 * @file What the kernels of convolutions share: walking over taps and channels, places of pixels, and the way from sums
 * to the target.
 */
#ifndef COD_CUDA_CONV_DEVICE_CUH
#define COD_CUDA_CONV_DEVICE_CUH

#include "cuda/conv.cuh"

struct __align__(8) floats2
{
    float x, y;
};

struct __align__(16) floats4
{
    float v[4];
};

/* Eight channels of an image. */

static __device__ __forceinline__ float element_load(const conv_image &image, int64_t at)
{
    if (image.dtype == COD_BF16)
        return f32_from_bf16(reinterpret_cast<const uint16_t *>(image.data)[at]);
    return reinterpret_cast<const float *>(image.data)[at];
}

static __device__ __forceinline__ void element_store(const conv_image &image, int64_t at, float value)
{
    if (image.dtype == COD_BF16)
        reinterpret_cast<uint16_t *>(image.data)[at] = bf16_from_f32(value);
    else
        reinterpret_cast<float *>(image.data)[at] = value;
}

/** Of a wide image. */
static __device__ __forceinline__ void load8(const conv_image &image, int64_t at, float (&values)[8])
{
    if (image.dtype == COD_BF16) {
        const bytes16 loaded = *reinterpret_cast<const bytes16 *>(image.data + at * 2);
        for (int i = 0; i < 4; i++) {
            values[2 * i] = f32_from_bf16((uint16_t)loaded.words[i]);
            values[2 * i + 1] = f32_from_bf16((uint16_t)(loaded.words[i] >> 16));
        }
        return;
    }
    for (int half = 0; half < 2; half++) {
        const floats4 loaded = reinterpret_cast<const floats4 *>(image.data + at * 4)[half];
        for (int i = 0; i < 4; i++)
            values[4 * half + i] = loaded.v[i];
    }
}

static __device__ __forceinline__ void store8(const conv_image &image, int64_t at, const float (&values)[8])
{
    if (image.dtype == COD_BF16) {
        bytes16 stored;
        for (int i = 0; i < 4; i++)
            stored.words[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
        *reinterpret_cast<bytes16 *>(image.data + at * 2) = stored;
        return;
    }
    for (int half = 0; half < 2; half++) {
        floats4 stored;
        for (int i = 0; i < 4; i++)
            stored.v[i] = values[4 * half + i];
        reinterpret_cast<floats4 *>(image.data + at * 4)[half] = stored;
    }
}

/** WIDTH floats, 1 or 4; four at a 16-byte boundary. */
template <int WIDTH> static __device__ __forceinline__ void load_floats(const float *from, float (&values)[WIDTH])
{
    if constexpr (WIDTH == 4) {
        const floats4 loaded = *reinterpret_cast<const floats4 *>(from);
        for (int i = 0; i < 4; i++)
            values[i] = loaded.v[i];
    } else {
        values[0] = *from;
    }
}

template <int WIDTH> static __device__ __forceinline__ void store_floats(float *to, const float (&values)[WIDTH])
{
    if constexpr (WIDTH == 4)
        *reinterpret_cast<floats4 *>(to) = {{values[0], values[1], values[2], values[3]}};
    else
        *to = values[0];
}

/* Places. */

/** A step of a walk over the depth of a product: taps of the kernel, cells of a pixel, groups of a cell's channels. */
struct conv_place {
    int tap_h, tap_w, cell, group;
};

/** The walk's steps: groups move fastest. */
static __device__ __forceinline__ void place_advance(conv_place &place, int steps, int groups, int cells, int taps_w)
{
    place.group += steps;
    while (place.group >= groups) {
        place.group -= groups;
        if (++place.cell < cells)
            continue;
        place.cell = 0;
        if (++place.tap_w < taps_w)
            continue;
        place.tap_w = 0;
        place.tap_h++;
    }
}

/** Elements from an image's first to cell 0 of the pixel; also where the pixel lies outside. */
static __device__ __forceinline__ int64_t pixel_offset(const conv_image &image, int n, int h, int w)
{
    return (((int64_t)n * image.h + h) * image.w * image.factor + w) * image.factor * image.stride;
}

/** Elements from cell 0 of a pixel to `cell` of the pixel dh rows below and dw columns to the right. */
static __device__ __forceinline__ int64_t cell_offset(const conv_image &image, int dh, int dw, int cell)
{
    if (image.factor == 1)
        return ((int64_t)dh * image.w + dw) * image.stride;
    const int r = image.factor;
    return ((int64_t)(dh * r + cell / r) * image.w * r + dw * r + cell % r) * image.stride;
}

/** Where in the source tap 0 of a target's pixel lies, maybe outside; far outside where there is no such pixel. */
struct __align__(16) conv_row
{
    uint64_t address;
    int h, w;
};

enum { CONV_OUTSIDE = -(1 << 30) };

static __device__ __forceinline__ conv_row row_at(const conv_image &image, int n, int h, int w, int element_bytes)
{
    return {(uint64_t)(uintptr_t)image.data + (uint64_t)(pixel_offset(image, n, h, w) * element_bytes), h, w};
}

/** Whether the pixel that lies dh below and dw to the right of the row's is one of the image. No branch. */
static __device__ __forceinline__ bool row_meets(const conv_image &image, const conv_row &row, int dh, int dw)
{
    return ((unsigned)(row.h + dh) < (unsigned)image.h) & ((unsigned)(row.w + dw) < (unsigned)image.w);
}

/** Places of a block's rows, and the pixels of the target's tensor that they give: cell 0, -1 where there is none. */
template <int ROWS, int THREADS, int ELEMENT_BYTES>
static __device__ __forceinline__ void place_rows(const conv_product &p, const conv_axis &h, const conv_axis &w,
                                                  unsigned first, conv_row *rows, int *targets)
{
    const unsigned pixels = (unsigned)p.images * (unsigned)h.outputs * (unsigned)w.outputs;
    const conv_image &to = p.store.target;
    for (unsigned i = threadIdx.x; i < ROWS; i += THREADS) {
        const unsigned pixel = first + i, line = pixel / (unsigned)w.outputs;
        const int column = (int)(pixel - line * (unsigned)w.outputs), n = (int)(line / (unsigned)h.outputs),
                  line_of_image = (int)line - n * h.outputs;
        conv_row row = {0, CONV_OUTSIDE, CONV_OUTSIDE};
        targets[i] = -1;
        if (pixel < pixels) {
            row = row_at(p.source, n, line_of_image * h.step + h.origin, column * w.step + w.origin, ELEMENT_BYTES);
            targets[i] = ((n * to.h + line_of_image * h.target_step + h.target_origin) * to.w * to.factor +
                          column * w.target_step + w.target_origin) *
                         to.factor;
        }
        rows[i] = row;
    }
}

/** A pixel of a gradient's depth: its address in dy, 0 where there is none, and tap 0 in x. */
struct __align__(16) conv_pixel
{
    conv_row x;
    uint64_t y;
};

/** The operands of the layer of this block. */
static __device__ __forceinline__ conv_gradient gradient_of_layer(const conv_gradient &group)
{
    const conv_layer layer = group.layers[blockIdx.z];
    conv_gradient g = group;
    g.x.data = layer.x;
    g.dy.data = layer.dy;
    g.bias = layer.db != NULL;
    g.partials += (int64_t)blockIdx.z * gridDim.y * g.partial_count;
    return g;
}

static __device__ __forceinline__ conv_pixel pixel_at(const conv_gradient &g, unsigned number, int element_bytes)
{
    const unsigned line = number / (unsigned)g.w.outputs, n = line / (unsigned)g.h.outputs;
    if (n >= (unsigned)g.images)
        return {{0, CONV_OUTSIDE, CONV_OUTSIDE}, 0};
    const conv_axis h = conv_axis_of(g.h, 0), w = conv_axis_of(g.w, 0);
    const int row = (int)(line - n * (unsigned)g.h.outputs), column = (int)(number - line * (unsigned)g.w.outputs);
    return {row_at(g.x, (int)n, row * h.step + h.origin, column * w.step + w.origin, element_bytes),
            row_at(g.dy, (int)n, row, column, element_bytes).address};
}

/* From sums to the target. */

/** By column of a block's tile. */
template <int COLUMNS> struct conv_vectors {
    float factor[COLUMNS], bias[COLUMNS], slope[COLUMNS];
};

template <int COLUMNS, int THREADS>
static __device__ __forceinline__ void place_vectors(const conv_store &s, int first, conv_vectors<COLUMNS> *vectors)
{
    for (int i = (int)threadIdx.x; i < COLUMNS; i += THREADS) {
        const int column = first + i;
        const bool in = column < s.columns;
        const cod_activation kind = s.activation.kind;
        vectors->factor[i] = in && s.factors != NULL ? s.factors[column] : 1;
        vectors->bias[i] = in && s.bias != NULL ? s.bias[conv_output_of(column, s.columns, s.target.factor)] : 0;
        vectors->slope[i] = in && kind != COD_ACT_NONE ? activation_slope(s.activation, column % s.target.channels) : 1;
    }
}

static __device__ __forceinline__ float finish(cod_activation kind, float x, float slope)
{
    if (kind == COD_ACT_SIGMOID)
        return 1 / (1 + expf(-x));
    if (kind == COD_ACT_TANH)
        return tanhf(x);
    return x > 0 ? x : x <= 0 && slope == 0 ? 0 : slope * x; /* ReLU of minus infinity is 0; NaN stays NaN */
}

/** The gradient of what went into an activation, from that of what came out; adds to the slope's. */
static __device__ __forceinline__ float pass_gate(float x, float gradient, float slope, float *dslope)
{
    if (x > 0)
        return gradient;
    *dslope += gradient * x;
    return activation_gate(x, gradient, slope);
}

/**
 * Eight columns of one pixel that need not be channels of one cell. `slope` and `dslope` are of these columns, here and
 * below.
 */
static __device__ __forceinline__ void store_columns(const conv_store &s, int pixel, int column,
                                                     const float (&values)[8], const float *slope, float (&dslope)[8])
{
    const conv_image &to = s.target;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (column + i >= s.columns)
            continue;
        const int cell = to.factor == 1 ? 0 : (column + i) / to.channels, channel = column + i - cell * to.channels;
        const int64_t at = pixel + (int64_t)(cell / to.factor) * to.w * to.factor + cell % to.factor;
        const float added = s.added.data != NULL ? element_load(s.added, at * s.added.stride + channel) : 0;
        float value = values[i] + added;
        if (s.gate.data != NULL)
            value = pass_gate(element_load(s.gate, at * s.gate.stride + channel), value, slope[i], &dslope[i]);
        element_store(to, at * to.stride + channel, value);
        if (s.activated.data != NULL)
            element_store(s.activated, at * s.activated.stride + channel, finish(s.activation.kind, value, slope[i]));
    }
}

/** Eight channels of one cell. */
static __device__ __forceinline__ void store_wide(const conv_store &s, int pixel, int column, float (&values)[8],
                                                  const float *slope, float (&dslope)[8])
{
    const conv_image &to = s.target;
    const int cell = to.factor == 1 ? 0 : column / to.channels, channel = column - cell * to.channels;
    const int64_t at = pixel + (int64_t)(cell / to.factor) * to.w * to.factor + cell % to.factor;
    if (s.added.data != NULL) {
        float added[8];
        load8(s.added, at * s.added.stride + channel, added);
        for (int i = 0; i < 8; i++)
            values[i] += added[i];
    }
    if (s.gate.data != NULL) {
        float x[8];
        load8(s.gate, at * s.gate.stride + channel, x);
        for (int i = 0; i < 8; i++)
            values[i] = pass_gate(x[i], values[i], slope[i], &dslope[i]);
    }
    store8(to, at * to.stride + channel, values);
    if (s.activated.data != NULL) {
        for (int i = 0; i < 8; i++)
            values[i] = finish(s.activation.kind, values[i], slope[i]);
        store8(s.activated, at * s.activated.stride + channel, values);
    }
}

/** Floats between the rows of a tile of sums in shared memory, so that four rows lie in different banks. */
constexpr int CONV_GAP = 8;

/** Whether eight channels of the image can be written at once, or there is none. */
static __device__ __forceinline__ bool is_wide(const conv_image &image)
{
    return image.data == NULL || image.wide;
}

/**
 * Writes a tile of sums {ROWS, COLUMNS}, which lies in shared memory, to the target. `dslope`: of the thread's columns,
 * which are those from 8·(threadIdx.x mod COLUMNS / 8) on.
 */
template <int ROWS, int COLUMNS, int THREADS>
static __device__ __forceinline__ void store_tile(const conv_store &s, const float *tile, const int *targets,
                                                  const conv_vectors<COLUMNS> *vectors, int first, float (&dslope)[8])
{
    static_assert(THREADS % (COLUMNS / 8) == 0, "a thread keeps its columns");
    const bool wide = s.target.wide && is_wide(s.added) && is_wide(s.gate) && is_wide(s.activated);
    const bool raw = s.activated.data != NULL || s.gate.data != NULL;
    for (int item = (int)threadIdx.x; item < ROWS * COLUMNS / 8; item += THREADS) {
        const int row = item / (COLUMNS / 8), at = item % (COLUMNS / 8) * 8, pixel = targets[row];
        if (pixel < 0 || first + at >= s.columns)
            continue;
        float values[8];
        for (int half = 0; half < 2; half++) {
            const floats4 sums = *reinterpret_cast<const floats4 *>(tile + row * (COLUMNS + CONV_GAP) + at + half * 4);
            for (int i = 0; i < 4; i++)
                values[half * 4 + i] = sums.v[i];
        }
        const float *slope = vectors->slope + at;
        for (int i = 0; i < 8; i++)
            values[i] = values[i] * vectors->factor[at + i] + vectors->bias[at + i];
        for (int i = 0; i < 8 && !raw; i++)
            values[i] = finish(s.activation.kind, values[i], slope[i]);
        if (wide)
            store_wide(s, pixel, first + at, values, slope, dslope);
        else
            store_columns(s, pixel, first + at, values, slope, dslope);
    }
}

#endif

/*
 * From a narrow tensor to a wide one. The rows of the product are 16 channels of the target, its columns eight pixels,
 * its depth a row of the kernel: F taps times the source's channels, which lie beside each other in memory. A warp has
 * a slice of 16 channels and a strip of columns, and walks down its rows. Its weights, of all rows of the kernel, stay
 * in registers. So do the sums of the F rows of the target that are open at a time, so that a row of the source is read
 * once for all rows of the kernel.
 *
 * A fragment needs pairs of neighbouring elements, which begin at odd elements where the number of channels is odd. The
 * block therefore has its part of the source twice in shared memory, once shifted by one element. A warp that reads its
 * part waits for no other.
 *
 * Row g of a product is channel 2g of the slice, row g + 8 is channel 2g + 1: so a lane has two neighbouring channels
 * of a pixel, and a warp writes 32 bytes of a pixel at a time.
 */
#include "cuda/conv_device.cuh"
#include "cuda/narrow.cuh"

enum { THREADS = NARROW_MOST_SLICES * WARP_LANES }; /**< at most */

int narrow_spread_words(int columns, int channels, int depth)
{
    /* The two copies of a row lie 16 banks apart. */
    const int words = ((columns - 1) * channels + 16 * depth) / 2 + 1;
    return (words + 15) / 32 * 32 + 16;
}

size_t narrow_spread_shared(int kernel, int rows, int line_words)
{
    const size_t lines = static_cast<size_t>(rows + kernel - 1) * static_cast<size_t>(line_words) * 2 * 4,
                 sums = THREADS * sizeof(float); /* of slopes, in the place of the lines */
    return lines > sums ? lines : sums;
}

/** Copies the unit's part of the source, and F / 2 pixels around it, to shared memory. Zeros outside the picture. */
template <int F, int COLUMNS>
static __device__ __forceinline__ void fill_lines(const narrow_spread &p, const narrow_unit &unit, uint16_t *lines)
{
    const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES,
              warps = (int)blockDim.x / WARP_LANES;
    const int channels = p.narrow.channels, halves = p.line_words * 2;
    for (int e = lane; e < halves; e += WARP_LANES) {
        const int pixel = e / channels, column = unit.column - F / 2 + pixel;
        const bool in = pixel < COLUMNS + F - 1 && (unsigned)column < (unsigned)p.narrow.w;
        const int at = column * (int)p.narrow.stride + e - pixel * channels;
#pragma unroll 4
        for (int line = warp; line < unit.rows + F - 1; line += warps) {
            const int row = unit.row - F / 2 + line;
            const bool there = in && (unsigned)row < (unsigned)p.narrow.h;
            const uint16_t value =
                there ? bf16_from_f32(element_load(p.narrow, narrow_row(p.narrow, unit.image, row) + at)) : 0;
            uint16_t *out = lines + line * 2 * halves + e;
            out[0] = value;
            if (e > 0)
                out[halves - 1] = value;
        }
    }
}

/**
 * Of a lane: where its first pixel's elements lie in a line, which of them its fragments have, and what it stores with.
 */
struct spread_part {
    int word, pixel, channel; /**< pixel: its first in a row of the target */
    uint32_t mask[2];         /**< of the last step of the depth */
    float bias[2], slope[2];
};

template <int F, int KS> static __device__ __forceinline__ spread_part part_of(const narrow_spread &p)
{
    const int lane = (int)threadIdx.x % WARP_LANES, channels = p.narrow.channels, first = lane / 4 * channels;
    const cuda_activation &activation = p.store.activation;
    spread_part part;
    part.word = first / 2 + (first % 2 != 0 ? p.line_words : 0) + lane % 4;
    part.pixel = lane % 4 * 2;
    part.channel = (int)threadIdx.x / WARP_LANES * NARROW_SLICE + lane / 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int k = (KS - 1) * 16 + half * 8 + lane % 4 * 2, channel = part.channel + half;
        part.mask[half] = (k < F * channels ? 0xFFFFu : 0) | (k + 1 < F * channels ? 0xFFFF0000u : 0);
        part.bias[half] = p.store.bias != NULL ? p.store.bias[channel] : 0;
        part.slope[half] = activation.kind != COD_ACT_NONE ? activation_slope(activation, channel) : 1;
    }
    return part;
}

/**
 * Adds the products of a line, of which a lane reads from `words` on, to the rows `line` - r of the unit that there
 * are.
 */
template <int F, int KS, int NT>
static __device__ __forceinline__ void multiply_line(float (&sums)[F][NT][4], const mma_rows (&weights)[F][KS],
                                                     const spread_part &part, int line, int turn, int rows,
                                                     const uint32_t *words, int channels)
{
    mma_columns b[NT][KS];
#pragma unroll
    for (int i = 0; i < NT * KS; i++) {
        const int n = i / KS, step = i % KS;
        const uint32_t *first = words + n * 4 * channels + step * 8;
        b[n][step] = step == KS - 1 ? mma_columns_of(first[0] & part.mask[0], first[4] & part.mask[1])
                                    : mma_columns_of(first[0], first[4]);
    }
    if (line >= F - 1 && line < rows) { /* all of them: no question for each */
#pragma unroll
        for (int i = 0; i < F * KS * NT; i++) {
            const int r = i / NT % F, step = i / NT / F, n = i % NT;
            mma_bf16(sums[(turn - r + F) % F][n], weights[r][step], b[n][step]);
        }
        return;
    }
#pragma unroll
    for (int r = 0; r < F; r++) {
        if ((unsigned)(line - r) >= (unsigned)rows)
            continue;
#pragma unroll
        for (int i = 0; i < KS * NT; i++)
            mma_bf16(sums[(turn - r + F) % F][i % NT], weights[r][i / NT], b[i % NT][i / NT]);
    }
}

/** Two neighbouring channels of an image. */
static __device__ __forceinline__ void load_pair(const conv_image &image, int64_t at, float (&pair)[2])
{
    if (image.dtype == COD_BF16) {
        const uint32_t word = *reinterpret_cast<const uint32_t *>(image.data + at * 2);
        pair[0] = f32_from_bf16((uint16_t)word);
        pair[1] = f32_from_bf16((uint16_t)(word >> 16));
    } else {
        const floats2 loaded = *reinterpret_cast<const floats2 *>(image.data + at * 4);
        pair[0] = loaded.x;
        pair[1] = loaded.y;
    }
}

static __device__ __forceinline__ void store_pair(const conv_image &image, int64_t at, const float (&pair)[2])
{
    if (image.dtype == COD_BF16)
        *reinterpret_cast<uint32_t *>(image.data + at * 2) = bf16_pair(pair[0], pair[1]);
    else
        *reinterpret_cast<floats2 *>(image.data + at * 4) = {pair[0], pair[1]};
}

static __device__ __forceinline__ void activate_pair(const spread_part &part, float (&pair)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++)
        pair[half] = pair[half] > 0 ? pair[half] : part.slope[half] * pair[half];
}

/**
 * Stores a row and clears its sums. `at`: the lane's first pixel in the target; `left`: pixels from there on in the
 * row.
 */
template <int NT>
static __device__ __forceinline__ void store_row(float (&sums)[NT][4], const narrow_store &s, const spread_part &part,
                                                 int at, int left, float (&dslope)[2])
{
#pragma unroll
    for (int i = 0; i < NT * 2; i++) {
        const int n = i / 2, e = i % 2, pixel = n * 8 + e;
        float pair[2] = {sums[n][e] + part.bias[0], sums[n][e + 2] + part.bias[1]};
        sums[n][e] = sums[n][e + 2] = 0;
        if (pixel >= left)
            continue;
        if (s.gate.data != NULL) {
            float x[2];
            load_pair(s.gate, (int64_t)(at + pixel) * s.gate.stride + part.channel, x);
#pragma unroll
            for (int half = 0; half < 2; half++)
                pair[half] = pass_gate(x[half], pair[half], part.slope[half], &dslope[half]);
        } else if (s.activated.data == NULL) {
            activate_pair(part, pair);
        }
        if (s.added.data != NULL) {
            const int64_t from = (int64_t)(at + pixel) * s.added.stride + part.channel;
            pair[0] += element_load(s.added, from);
            pair[1] += element_load(s.added, from + 1);
        }
        store_pair(s.target, (int64_t)(at + pixel) * s.target.stride + part.channel, pair);
        if (s.activated.data != NULL) {
            activate_pair(part, pair);
            store_pair(s.activated, (int64_t)(at + pixel) * s.activated.stride + part.channel, pair);
        }
    }
}

/** The block's part of the slopes' gradient, of its lanes' sums for their channels. */
static __device__ __forceinline__ void sum_slopes(const cuda_slopes &slopes, int channel, const float (&dslope)[2])
{
    const slope_place at = {0, (int)blockIdx.x, (int)gridDim.x};
    float *out = slope_partials(slopes, at);
    if (slopes.lists == 1) {
        const float sum = block_sum(dslope[0] + dslope[1]);
        if (threadIdx.x == 0)
            *out = sum;
    } else {
#pragma unroll
        for (int half = 0; half < 2; half++) { /* four lanes have the same channels */
            float sum = dslope[half] + shuffle_xor(dslope[half], 1);
            sum += shuffle_xor(sum, 2);
            if (threadIdx.x % 4 == 0)
                out[channel + half] = sum;
        }
    }
    slopes_finish(slopes, at, 0, slopes.lists);
}

/** Walks down a unit whose lines lie in shared memory. */
template <int F, int KS, int NT>
static __device__ __forceinline__ void spread_unit(float (&sums)[F][NT][4], const mma_rows (&weights)[F][KS],
                                                   const narrow_spread &p, const spread_part &part,
                                                   const narrow_unit &unit, const uint32_t *lines, float (&dslope)[2])
{
    const conv_image &to = p.store.target;
    const int column = unit.column + part.pixel, above = unit.row - F / 2, channels = p.narrow.channels;
    const int first_pixel = (unit.image * to.h + unit.row - (F - 1)) * to.w + column;
    const uint32_t *words = lines + part.word;
    for (int first = 0; first < unit.rows + F - 1; first += F) {
#pragma unroll
        for (int turn = 0; turn < F; turn++) {
            const int line = first + turn;
            if (line >= unit.rows + F - 1)
                break;
            if ((unsigned)(above + line) < (unsigned)p.narrow.h)
                multiply_line<F, KS, NT>(sums, weights, part, line, turn, unit.rows, words, channels);
            if (line >= F - 1)
                store_row<NT>(sums[(turn + 1) % F], p.store, part, first_pixel + line * to.w, to.w - column, dslope);
            words += 2 * p.line_words;
        }
    }
}

/**
 * Threads of a block at most, as the compiler is told. The kernel of 9x9 and three channels would have 170 registers,
 * with which two blocks of four warps share a multiprocessor: more threads than there ever are leave it 168, for three.
 */
template <int F, int KS> constexpr int spread_threads = F *KS == 18 ? 12 * WARP_LANES : THREADS;

template <int F, int KS, int NT>
__global__ void __launch_bounds__(spread_threads<F, KS>) spread_kernel(const narrow_spread p)
{
    uint32_t *lines = shared_memory<uint32_t>();
    const int lane = (int)threadIdx.x % WARP_LANES, slice = (int)threadIdx.x / WARP_LANES;
    mma_rows weights[F][KS];
#pragma unroll
    for (int i = 0; i < F * KS; i++) {
        const bytes16 fragment = load16_ahead(&p.packed[(slice * F * KS + i) * WARP_LANES + lane]);
        weights[i / KS][i % KS] = mma_rows_of(fragment.words);
    }
    chain_wait();
    const spread_part part = part_of<F, KS>(p);
    float sums[F][NT][4] = {}; /* zeros again after each unit */
    float dslope[2] = {};
    const int units = (int)narrow_units(p.cut);
    for (int number = (int)blockIdx.x; number < units; number += (int)gridDim.x) {
        const narrow_unit unit = narrow_unit_at(p.cut, number);
        block_sync(); /* the lines may be in use */
        fill_lines<F, 8 * NT>(p, unit, reinterpret_cast<uint16_t *>(lines));
        block_sync();
        spread_unit<F, KS, NT>(sums, weights, p, part, unit, lines, dslope);
    }
    chain_release();
    if (p.store.slopes.dslope != NULL)
        sum_slopes(p.store.slopes, part.channel, dslope);
}

/** The kernel with `depth` steps for F · channels elements; NT as registers allow. */
narrow_kernel<narrow_spread> narrow_spread_kernel(int kernel, int channels)
{
    const int depth = (kernel * channels + 15) / 16;
    switch (kernel * 10 + depth) {
    case 31:
        return {spread_kernel<3, 1, 2>, 16, 1};
    case 51:
        return {spread_kernel<5, 1, 2>, 16, 1};
    case 52:
        return {spread_kernel<5, 2, 2>, 16, 2};
    case 71:
        return {spread_kernel<7, 1, 2>, 16, 1};
    case 72:
        return {spread_kernel<7, 2, 1>, 8, 2};
    case 91:
        return {spread_kernel<9, 1, 1>, 8, 1};
    case 92:
        return {spread_kernel<9, 2, 1>, 8, 2};
    case 93:
        return {spread_kernel<9, 3, 1>, 8, 3};
    case 111:
        return {spread_kernel<11, 1, 1>, 8, 1};
    case 112:
        return {spread_kernel<11, 2, 1>, 8, 2};
    case 113:
        return {spread_kernel<11, 3, 1>, 8, 3};
    default:
        return {};
    }
}

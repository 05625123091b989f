/*
 * Weight gradients between a wide and a narrow tensor. The rows of the product are 16 channels of `wide`, its columns
 * the F columns of the kernel times the channels of a group of `narrow`, its depth 16 pixels beside each other. A warp
 * has a slice of 16 channels, and one such product for each row of the kernel. It walks down a strip of 16 columns:
 * with line j of `narrow` it multiplies the rows j - r of `wide`, whose fragments of the last rows it keeps in
 * registers. So it reads each line of both once, for all rows of the kernel.
 *
 * A warp copies its part of `wide`, 512 bytes a row, to a ring of its own in shared memory. The block copies its part
 * of `narrow` when a unit begins: each channel in a plane of its own, and twice, the second time shifted by one pixel,
 * so that a fragment's pairs of pixels are whole words for each column of the kernel.
 *
 * A block keeps its sums from unit to unit and writes them when it ends; narrow_sum_partials() adds those of all blocks
 * in their order.
 */
#include "cuda/conv_device.cuh"
#include "cuda/narrow.cuh"

enum {
    COLUMNS = 16, /**< pixels of a strip */
    PLANE = 23,   /**< words of a copy of a plane's line: six such lie in banks that hardly meet */
    LINE = 2 * NARROW_GROUP * PLANE,
    RING = 8, /**< rows of `wide` in shared memory, in pieces of 16 bytes */
    ROW = 2 * COLUMNS,
    THREADS = NARROW_MOST_SLICES * WARP_LANES /**< at most */
};

size_t narrow_gradient_shared(int depth, int rows, int slices)
{
    return static_cast<size_t>(slices) * RING * ROW * 16 + static_cast<size_t>(rows + depth - 1) * LINE * 4;
}

/**
 * Copies the unit's part of the group's channels. Line j is row `first` + j; its first pixel lies F / 2 left of the
 * strip.
 */
template <int F>
static __device__ __forceinline__ void fill_planes(const narrow_gradient &p, const narrow_unit &unit, int group,
                                                   int first, int lines, uint16_t *planes)
{
    constexpr int PIXELS = COLUMNS + F - 1;
    const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES,
              warps = (int)blockDim.x / WARP_LANES;
    for (int e = lane; e < PIXELS * NARROW_GROUP; e += WARP_LANES) {
        const int pixel = e / NARROW_GROUP, channel = e - pixel * NARROW_GROUP;
        const int column = unit.column - F / 2 + pixel, from = group * NARROW_GROUP + channel;
        const bool in = (unsigned)column < (unsigned)p.narrow.w && from < p.narrow.channels;
        const int64_t at = (int64_t)column * p.narrow.stride + from;
#pragma unroll 4
        for (int line = warp; line < lines; line += warps) {
            const bool there = in && (unsigned)(first + line) < (unsigned)p.narrow.h;
            const uint16_t value =
                there ? bf16_from_f32(element_load(p.narrow, narrow_row(p.narrow, unit.image, first + line) + at)) : 0;
            uint16_t *out = planes + (line * LINE + channel * 2 * PLANE) * 2 + pixel;
            out[0] = value;
            if (pixel > 0)
                out[2 * PLANE - 1] = value;
        }
    }
}

/** A lane's part of the copies of `wide`: its pixel's 16 bytes in a row, and where they go in a row of the ring. */
struct wide_copy {
    const uint16_t *from; /**< in the unit's first row */
    bool in;
    unsigned char *ring;
};

static __device__ __forceinline__ wide_copy copy_of(const narrow_gradient &p, const narrow_unit &unit,
                                                    unsigned char *ring)
{
    const int lane = (int)threadIdx.x % WARP_LANES, slice = (int)threadIdx.x / WARP_LANES;
    const int pixel = lane / 2, half = lane % 2, column = unit.column + pixel;
    const bool in = column < p.wide.w;
    const uint16_t *from = reinterpret_cast<const uint16_t *>(p.wide.data) + narrow_row(p.wide, unit.image, unit.row) +
                           (in ? column : 0) * p.wide.stride + slice * NARROW_SLICE + half * 8;
    return {from, in, ring + (pixel * 2 + (half ^ pixel / 4 % 2)) * 16};
}

static __device__ __forceinline__ void start_row(const narrow_gradient &p, const narrow_unit &unit,
                                                 const wide_copy &copy, int row)
{
    if (row < unit.rows)
        copy16_start(copy.ring + row % RING * ROW * 16, copy.from + (int64_t)row * p.wide.w * p.wide.stride,
                     copy.in ? 16 : 0);
    copy_commit();
}

/**
 * What a warp has in registers: a product for each row of the kernel, the last rows of `wide`, and sums of pixels for
 * db.
 */
template <int R, int NT> struct gradient_state {
    float sums[R][NT][4], ones[4];
    mma_rows rows[R];
};

/** Adds the products of line j, whose place in the unit is `line`, with the rows line - r that there are. */
template <int R, int NT>
static __device__ __forceinline__ void multiply_line(gradient_state<R, NT> &state, const int (&words)[NT],
                                                     const uint32_t *planes, int line, int turn, int rows,
                                                     bool count_narrow)
{
    mma_columns b[NT];
#pragma unroll
    for (int n = 0; n < NT; n++)
        b[n] = mma_columns_of(planes[line * LINE + words[n]], planes[line * LINE + words[n] + 4]);
    if (count_narrow) {
        const uint32_t one[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
        mma_bf16(state.ones, mma_rows_of(one), b[0]);
    }
    if (line >= R - 1 && line < rows) { /* all of them: no question for each */
#pragma unroll
        for (int i = 0; i < R * NT; i++)
            mma_bf16(state.sums[i / NT][i % NT], state.rows[(turn - i / NT + R) % R], b[i % NT]);
        return;
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        if ((unsigned)(line - r) >= (unsigned)rows)
            continue;
#pragma unroll
        for (int n = 0; n < NT; n++)
            mma_bf16(state.sums[r][n], state.rows[(turn - r + R) % R], b[n]);
    }
}

/** Walks down a unit whose part of `narrow` lies in shared memory and whose first rows of `wide` are on their way. */
template <int F, int R, int NT>
static __device__ __forceinline__ void
add_unit(gradient_state<R, NT> &state, const narrow_gradient &p, const narrow_unit &unit, const wide_copy &copy,
         int first, const int (&words)[NT], const unsigned char *fragments, const uint32_t *planes, narrow_bias bias)
{
    for (int begin = 0; begin < unit.rows + R - 1; begin += R) {
#pragma unroll
        for (int turn = 0; turn < R; turn++) {
            const int line = begin + turn;
            if (line >= unit.rows + R - 1)
                break;
            copy_wait<RING - 2>();
            warp_sync();
            start_row(p, unit, copy, line + RING - 1);
            if (line < unit.rows) {
                uint32_t rows[4];
                load_matrix4_transposed(rows, fragments + line % RING * ROW * 16);
                state.rows[turn] = mma_rows_of(rows);
                if (bias == NARROW_BIAS_OF_WIDE)
                    mma_bf16(state.ones, state.rows[turn], mma_columns_of(0x3F803F80u, 0x3F803F80u));
            }
            if ((unsigned)(first + line) >= (unsigned)p.narrow.h)
                continue;
            const bool own = (unsigned)(line - F / 2) < (unsigned)unit.rows;
            multiply_line<R, NT>(state, words, planes, line, turn, unit.rows, bias == NARROW_BIAS_OF_NARROW && own);
        }
    }
}

/** Writes the sums; `part`: of the kernel's rows. */
template <int F, int R, int NT>
static __device__ __forceinline__ void store_partials(const gradient_state<R, NT> &state, const narrow_gradient &p,
                                                      int group, int part, narrow_bias bias)
{
    constexpr int USED = NARROW_GROUP * F;
    const int lane = (int)threadIdx.x % WARP_LANES, channels = p.wide.channels;
    const int channel = (int)threadIdx.x / WARP_LANES * NARROW_SLICE + lane / 4;
    float *out = p.partials + (int64_t)blockIdx.x * p.partial_count,
          *sums = out + group * F * USED * channels + channel;
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (part * R + r >= F)
            continue;
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int column = n * 8 + lane % 4 * 2 + e;
                if (column >= USED)
                    continue;
                float *at = sums + ((part * R + r) * USED + column) * channels;
                at[0] = state.sums[r][n][e];
                at[8] = state.sums[r][n][e + 2];
            }
        }
    }
    out += p.bias_at;
    if (bias == NARROW_BIAS_OF_WIDE && lane % 4 == 0) {
        out[channel] = state.ones[0];
        out[channel + 8] = state.ones[2];
    }
    if (bias == NARROW_BIAS_OF_NARROW && lane < 2) {
        out[group * NARROW_GROUP + lane * 2] = state.ones[0];
        if (lane == 0)
            out[group * NARROW_GROUP + 1] = state.ones[1];
    }
}

/** Words of a line where the lane's fragments begin, for columns of the kernel in turned order. */
template <int F, int NT> static __device__ __forceinline__ void place_words(int (&words)[NT])
{
    const int lane = (int)threadIdx.x % WARP_LANES;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int wanted = n * 8 + lane / 4, column = wanted < NARROW_GROUP * F ? wanted : NARROW_GROUP * F - 1;
        const int s = (column / NARROW_GROUP + F / 2) % F;
        words[n] = (column % NARROW_GROUP * 2 + s % 2) * PLANE + s / 2 + lane % 4;
    }
}

/**
 * Sums of pixels are made once for each channel: by one warp, or by the warp that has the channel, in one block of the
 * grid in y.
 */
static __device__ __forceinline__ narrow_bias bias_of(const narrow_gradient &p, int group, int part)
{
    if (part > 0)
        return NARROW_NO_BIAS;
    const bool mine = p.bias == NARROW_BIAS_OF_WIDE ? group == 0 : threadIdx.x < WARP_LANES;
    return mine ? p.bias : NARROW_NO_BIAS;
}

template <int F, int R> __global__ void __launch_bounds__(THREADS) gradient_kernel(const narrow_gradient p)
{
    chain_wait();
    constexpr int NT = (NARROW_GROUP * F + 7) / 8;
    const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES,
              warps = (int)blockDim.x / WARP_LANES;
    const int group = (int)blockIdx.y / p.parts, part = (int)blockIdx.y - group * p.parts;
    unsigned char *ring = shared_memory<unsigned char>() + warp * RING * ROW * 16;
    uint32_t *planes = reinterpret_cast<uint32_t *>(shared_memory<unsigned char>() + warps * RING * ROW * 16);
    const int pixel = lane / 16 * 8 + lane % 8, half = lane / 8 % 2;
    const unsigned char *fragments = ring + (pixel * 2 + (half ^ pixel / 4 % 2)) * 16;
    const narrow_bias bias = bias_of(p, group, part);
    int words[NT];
    place_words<F, NT>(words);
    gradient_state<R, NT> state = {};
    const int units = (int)narrow_units(p.cut);
    for (int number = (int)blockIdx.x; number < units; number += (int)gridDim.x) {
        const narrow_unit unit = narrow_unit_at(p.cut, number);
        const int first = unit.row + part * R - F / 2;
        const wide_copy copy = copy_of(p, unit, ring);
        block_sync(); /* planes and ring may be in use */
        for (int row = 0; row < RING - 1; row++)
            start_row(p, unit, copy, row);
        fill_planes<F>(p, unit, group, first, unit.rows + R - 1, reinterpret_cast<uint16_t *>(planes));
        block_sync();
        add_unit<F, R, NT>(state, p, unit, copy, first, words, fragments, planes, bias);
    }
    chain_release();
    store_partials<F, R, NT>(state, p, group, part, bias);
}

narrow_kernel<narrow_gradient> narrow_gradient_kernel(int kernel)
{
    switch (kernel) {
    case 3:
        return {gradient_kernel<3, 3>, COLUMNS, 3};
    case 5:
        return {gradient_kernel<5, 5>, COLUMNS, 5};
    case 7:
        return {gradient_kernel<7, 7>, COLUMNS, 7};
    case 9:
        return {gradient_kernel<9, 9>, COLUMNS, 9};
    case 11: /* registers hold the sums of six rows of the kernel */
        return {gradient_kernel<11, 6>, COLUMNS, 6};
    default:
        return {};
    }
}

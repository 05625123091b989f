/*
 * From a wide tensor to a narrow one. A block has a strip of columns and walks down its rows. For a row of the source
 * it multiplies each pixel with the kernel's rows at once: a column of the product is a row r of the kernel and a
 * channel, its depth are the F columns of the kernel times the source's channels. The products of row r belong to the
 * target's row that lies r - F / 2 above. So F rows of the target are open at a time; they live in the accumulators,
 * open row o in the columns of place -o mod F. Instead of the accumulators, the rows of the weights move from step to
 * step. Each step closes one row.
 *
 * The warps of a block: each has a span of 48 columns and a slice of 16 channels of the source. The sums of all slices
 * meet in shared memory when a row is closed.
 *
 * Row i of matrix t, which is eight pixels by eight channels, is pixel t + 6·i of the span. So the kernel's column s
 * needs matrix t + s where column 0 needs matrix t: a warp loads a row's F + 5 matrices once, and has them for all
 * columns of the kernel. (Were rows of a matrix neighbours, each column of the kernel would need matrices of its own.)
 * In shared memory pixel q lies at slot {q mod 6}{q / 6}, so that the rows of a matrix are neighbours there; slots are
 * an odd number of pieces apart.
 */
#include "cuda/conv_device.cuh"
#include "cuda/narrow.cuh"

enum {
    MATRICES = 6,         /**< of a span */
    SPAN = 8 * MATRICES,  /**< columns */
    TILES = MATRICES / 2, /**< matrix products of a span */
    STAGES = 3,           /**< rows of the source in shared memory */
    LOADS = 4,            /**< copies of a thread for a row */
    THREADS = 256,        /**< at most */
    PIECE = 8             /**< channels of a copy */
};

/** Where things lie in shared memory, in bytes; slots are counted for each of the six. */
struct gather_sizes {
    int slots, pitch, stage, weight_pitch, weights, closed;
};

static __host__ __device__ __forceinline__ gather_sizes sizes_of(int kernel, int slices, int spans)
{
    const int channels = slices * NARROW_SLICE, columns = (NARROW_GROUP * kernel + 7) / 8 * 8;
    gather_sizes sizes;
    sizes.slots = 8 * spans + (kernel - 2) / MATRICES + 1;
    sizes.pitch = (channels + PIECE) * 2;
    sizes.stage = MATRICES * sizes.slots * sizes.pitch;
    sizes.weight_pitch = (kernel * channels + PIECE) * 2;
    sizes.weights = columns * sizes.weight_pitch;
    sizes.closed = slices * spans * SPAN * NARROW_GROUP * 4;
    return sizes;
}

size_t narrow_gather_shared(int kernel, int slices, int spans)
{
    const gather_sizes sizes = sizes_of(kernel, slices, spans);
    return static_cast<size_t>(sizes.weights + STAGES * sizes.stage + 2 * sizes.closed);
}

/**
 * What a thread copies of a row: a piece of every `step`-th pixel, from column `column` on, to these places of a stage;
 * -1 = none.
 */
struct row_copies {
    int column, step, piece, target[LOADS];
};

template <int F>
static __device__ __forceinline__ row_copies copies_of(const narrow_gather &p, const gather_sizes &sizes, int column)
{
    const int pieces = 2 * p.slices, first = (int)threadIdx.x / pieces;
    row_copies copies;
    copies.column = column - F / 2 + first;
    copies.step = NARROW_SLICE * p.spans;
    copies.piece = (int)threadIdx.x % pieces * PIECE;
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
        const int q = first + k * copies.step;
        copies.target[k] = q < SPAN * p.spans + F - 1
                               ? (q % MATRICES * sizes.slots + q / MATRICES) * sizes.pitch + copies.piece * 2
                               : -1;
    }
    return copies;
}

/** Starts copying a row of the source; of one outside the picture nothing is needed. */
static __device__ __forceinline__ void start_row(const narrow_gather &p, const row_copies &copies, int image, int row,
                                                 unsigned char *stage)
{
    if ((unsigned)row >= (unsigned)p.wide.h)
        return;
    const uint16_t *from = reinterpret_cast<const uint16_t *>(p.wide.data) + narrow_row(p.wide, image, row);
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
        const int column = copies.column + k * copies.step;
        const bool in = (unsigned)column < (unsigned)p.wide.w;
        if (copies.target[k] >= 0)
            copy16_start(stage + copies.target[k], from + (in ? column * (int)p.wide.stride + copies.piece : 0),
                         in ? 16 : 0);
    }
}

/** Starts copying the group's weights, without padding in `packed`. */
template <int F>
static __device__ __forceinline__ void start_weights(const narrow_gather &p, const gather_sizes &sizes,
                                                     unsigned char *weights)
{
    constexpr int COLUMNS = (NARROW_GROUP * F + 7) / 8 * 8;
    const int pieces = F * p.slices * 2;
    const uint16_t *packed = p.packed + (int64_t)blockIdx.y * COLUMNS * pieces * PIECE;
    for (int i = (int)threadIdx.x; i < COLUMNS * pieces; i += (int)blockDim.x) {
        const int column = i / pieces;
        copy16_ahead_start(weights + column * sizes.weight_pitch + (i - column * pieces) * 16,
                           packed + (int64_t)i * PIECE, 16);
    }
}

/**
 * The part of a warp: where its lane reads pairs of matrices in a stage (`wrapped`: 5 and 6, 11 and 12, …), and
 * weights.
 */
struct warp_part {
    int span, slice, pair, wrapped, weights;
};

static __device__ __forceinline__ warp_part part_of(const narrow_gather &p, const gather_sizes &sizes)
{
    const int warp = (int)threadIdx.x / WARP_LANES, lane = (int)threadIdx.x % WARP_LANES;
    const int span = warp / p.slices, slice = warp - span * p.slices, second = lane / 8 % 2;
    const int first = (8 * span + lane % 8) * sizes.pitch + (slice * 2 + lane / 16) * 16;
    return {span, slice, first + second * sizes.slots * sizes.pitch,
            first + second * (1 - (MATRICES - 1) * sizes.slots) * sizes.pitch, (slice * 2 + lane / 8 % 2) * 16};
}

/** The fragment of matrices t and t + 1. */
static __device__ __forceinline__ void load_pair(uint32_t (&pair)[4], const gather_sizes &sizes, const warp_part &part,
                                                 int t, const unsigned char *stage)
{
    const int slot = t % MATRICES * sizes.slots + t / MATRICES;
    load_matrix4(pair, stage + (t % MATRICES == MATRICES - 1 ? part.wrapped : part.pair) + slot * sizes.pitch);
}

/**
 * Adds the products of a row with columns FIRST, FIRST + 2, … of the kernel, whose pairs are the same ones. `rows`: of
 * the weights.
 */
template <int F, int NT, int FIRST>
static __device__ __forceinline__ void
multiply_columns(float (&sums)[TILES][NT][4], const narrow_gather &p, const gather_sizes &sizes, const warp_part &part,
                 const unsigned char *stage, const unsigned char *const (&rows)[(NT + 1) / 2])
{
    constexpr int COUNT = (F - FIRST + 1) / 2;
    uint32_t pairs[TILES + COUNT - 1][4];
#pragma unroll
    for (int j = 0; j < TILES + COUNT - 1; j++)
        load_pair(pairs[j], sizes, part, FIRST + 2 * j, stage);
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        uint32_t b[(NT + 1) / 2][4];
#pragma unroll
        for (int j = 0; j < (NT + 1) / 2; j++)
            load_matrix4(b[j], rows[j] + (FIRST + 2 * k) * p.slices * NARROW_SLICE * 2);
        mma_columns columns[NT];
#pragma unroll
        for (int n = 0; n < NT; n++)
            columns[n] = mma_columns_of(b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const mma_rows pair = mma_rows_of(pairs[i + k]);
#pragma unroll
            for (int n = 0; n < NT; n++)
                mma_bf16(sums[i][n], pair, columns[n]);
        }
    }
}

/** Adds the products of a row of the source. `turn`: the step modulo F. */
template <int F, int NT>
static __device__ __forceinline__ void multiply_row(float (&sums)[TILES][NT][4], const narrow_gather &p,
                                                    const gather_sizes &sizes, const warp_part &part, int turn,
                                                    const unsigned char *stage, const unsigned char *weights)
{
    const int lane = (int)threadIdx.x % WARP_LANES;
    const unsigned char *rows[(NT + 1) / 2];
#pragma unroll
    for (int j = 0; j < (NT + 1) / 2; j++) {
        const int column = j * 16 + lane / 16 * 8 + lane % 8, last = NT * 8 - 1;
        int place = turn + column / NARROW_GROUP;
        place -= place >= F ? F : 0;
        const int row = place * NARROW_GROUP + column % NARROW_GROUP;
        rows[j] = weights + part.weights +
                  (column < NARROW_GROUP * F ? row
                   : column < last           ? column
                                             : last) *
                      sizes.weight_pitch;
    }
    multiply_columns<F, NT, 0>(sums, p, sizes, part, stage, rows);
    multiply_columns<F, NT, 1>(sums, p, sizes, part, stage, rows);
}

/**
 * Writes the sums of the row that step `turn` modulo F closes to `closed`, which begins with the warp's part; clears
 * them.
 */
template <int F, int NT>
static __device__ __forceinline__ void close_row(float (&sums)[TILES][NT][4], int turn, float *closed)
{
    const int lane = (int)threadIdx.x % WARP_LANES, place = F - 1 - turn;
    float *out = closed + lane / 4 * MATRICES * NARROW_GROUP;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int column = n * 8 + lane % 4 * 2 + e;
            if (column / NARROW_GROUP != place)
                continue;
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                out[2 * i * NARROW_GROUP + column % NARROW_GROUP] = sums[i][n][e];
                out[(2 * i + 1) * NARROW_GROUP + column % NARROW_GROUP] = sums[i][n][e + 2];
                sums[i][n][e] = sums[i][n][e + 2] = 0;
            }
        }
    }
}

/** Adds the slices' sums of a closed row and stores it; row < 0: it belongs to no row of the unit. */
static __device__ __forceinline__ void hand_over(const narrow_gather &p, const narrow_unit &unit, int row,
                                                 const float *closed)
{
    if (row < 0)
        return;
    const conv_image &to = p.store.target;
    const int count = p.spans * SPAN * NARROW_GROUP, first = (int)blockIdx.y * NARROW_GROUP;
    const int64_t line = ((int64_t)unit.image * to.h + unit.row + row) * to.w;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
        const int column = unit.column + i / NARROW_GROUP, channel = first + i % NARROW_GROUP;
        if (column >= to.w || channel >= to.channels)
            continue;
        float sum = p.store.bias != NULL ? p.store.bias[channel] : 0;
#pragma unroll 4
        for (int slice = 0; slice < p.slices; slice++)
            sum += closed[slice * count + i];
        float value = activate(p.store.activation, sum, channel);
        if (p.store.added.data != NULL)
            value += element_load(p.store.added, (line + column) * p.store.added.stride + channel);
        element_store(to, (line + column) * to.stride + channel, value);
    }
}

template <int F> __global__ void __launch_bounds__(THREADS, F > 9 ? 1 : 2) gather_kernel(const narrow_gather p)
{
    constexpr int NT = (NARROW_GROUP * F + 7) / 8;
    const gather_sizes sizes = sizes_of(F, p.slices, p.spans);
    unsigned char *weights = shared_memory<unsigned char>(), *ring = weights + sizes.weights;
    float *closed = reinterpret_cast<float *>(ring + STAGES * sizes.stage);
    const narrow_unit unit = narrow_unit_at(p.cut, (int)blockIdx.x);
    const row_copies copies = copies_of<F>(p, sizes, unit.column);
    const warp_part part = part_of(p, sizes);
    const int first = unit.row - F / 2, steps = unit.rows + F - 1, row_floats = p.spans * SPAN * NARROW_GROUP;
    start_weights<F>(p, sizes, weights);
    chain_wait();
    for (int t = 0; t < STAGES - 1; t++) {
        if (t < steps)
            start_row(p, copies, unit.image, first + t, ring + t * sizes.stage);
        copy_commit();
    }
    float sums[TILES][NT][4] = {};
    for (int t = 0, turn = 0, now = 0; t < steps;
         t++, turn = turn == F - 1 ? 0 : turn + 1, now = now == STAGES - 1 ? 0 : now + 1) {
        copy_wait<STAGES - 2>();
        block_sync();
        if (t + STAGES - 1 < steps)
            start_row(p, copies, unit.image, first + t + STAGES - 1,
                      ring + (now == 0 ? STAGES - 1 : now - 1) * sizes.stage);
        copy_commit();
        hand_over(p, unit, t - F, closed + (t + 1) % 2 * p.slices * row_floats);
        if ((unsigned)(first + t) < (unsigned)p.wide.h)
            multiply_row<F, NT>(sums, p, sizes, part, turn, ring + now * sizes.stage, weights);
        close_row<F, NT>(sums, turn,
                         closed + (t % 2 * p.slices + part.slice) * row_floats + part.span * SPAN * NARROW_GROUP);
    }
    chain_release();
    block_sync();
    hand_over(p, unit, steps - F, closed + (steps - 1) % 2 * p.slices * row_floats);
}

narrow_kernel<narrow_gather> narrow_gather_kernel(int kernel)
{
    switch (kernel) {
    case 3:
        return {gather_kernel<3>, SPAN, 0};
    case 5:
        return {gather_kernel<5>, SPAN, 0};
    case 7:
        return {gather_kernel<7>, SPAN, 0};
    case 9:
        return {gather_kernel<9>, SPAN, 0};
    case 11:
        return {gather_kernel<11>, SPAN, 0};
    default:
        return {};
    }
}

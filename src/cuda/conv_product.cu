/*
 * Products on tensor cores. A block gives a tile of ROWS pixels x COLUMNS channels. It goes through the depth in
 * chunks; a stage of shared memory holds one chunk of the rows and of the columns, 128 bytes each; STAGES of them are
 * in flight, more where tiles are small.
 *
 * Piece p of row r of a stage lies at piece p ^ (r mod 8): eight rows of one piece, as ldmatrix reads them, then lie in
 * all banks, as do eight pieces of one row, as copies write them.
 */
#include "cuda/conv_device.cuh"

#include <cstdint>

/** Sums of products of bf16 are f32, of s8 s32. */
template <typename T> struct sum_of {
    typedef float type;
};
template <> struct sum_of<int8_t> {
    typedef int32_t type;
};

/** Adds the products of all rows with all columns, of which two fragments lie in four words. */
template <int MT, int NT>
static __device__ __forceinline__ void multiply(float (&sums)[MT][NT][4], const uint32_t (&a)[MT][4],
                                                const uint32_t (&b)[NT / 2][4])
{
    mma_columns columns[NT];
#pragma unroll
    for (int j = 0; j < NT; j++)
        columns[j] = mma_columns_of(b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
#pragma unroll
    for (int i = 0; i < MT; i++) {
        const mma_rows rows = mma_rows_of(a[i]);
#pragma unroll
        for (int j = 0; j < NT; j++)
            mma_bf16(sums[i][j], rows, columns[j]);
    }
}

template <int MT, int NT>
static __device__ __forceinline__ void multiply(int32_t (&sums)[MT][NT][4], const uint32_t (&a)[MT][4],
                                                const uint32_t (&b)[NT / 2][4])
{
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int j = 0; j < NT; j++) {
            const uint32_t two[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
            mma_s8(sums[i][j], a[i], two);
        }
    }
}

/** A thread copies one piece of every STEP-th row of a chunk; `target`: where that of its first row lies in a stage. */
struct depth_walk {
    conv_place at;
    int piece, first, target;
};

static __device__ __forceinline__ depth_walk walk_begin(const conv_product &p, const conv_axis &w)
{
    depth_walk walk = {};
    walk.piece = (int)threadIdx.x % CONV_PIECES;
    walk.first = (int)threadIdx.x / CONV_PIECES;
    walk.target = walk.first * CONV_CHUNK + (walk.piece ^ (walk.first % 8)) * CONV_PIECE;
    place_advance(walk.at, walk.piece, p.groups, p.source.factor * p.source.factor, w.taps);
    return walk;
}

/** Starts copies of the walk's chunk of the rows; zeros where a tap meets no pixel, and past the last tap. */
template <typename T, int ROWS, int THREADS>
static __device__ __forceinline__ void load_rows(const conv_product &p, const conv_axis &h, const conv_axis &w,
                                                 const depth_walk &walk, const conv_row *rows, unsigned char *stage)
{
    constexpr int STEP = THREADS / CONV_PIECES;
    static_assert(STEP % 8 == 0, "a thread's rows have their piece at one place");
    const int dw = w.direction * walk.at.tap_w;
    const int tap_h = h.direction * walk.at.tap_h, dh = walk.at.tap_h < h.taps ? tap_h : CONV_OUTSIDE;
    const uint64_t offset = (uint64_t)(cell_offset(p.source, tap_h, dw, walk.at.cell) * (int)sizeof(T) +
                                       walk.at.group * CONV_PIECE),
                   nowhere = (uint64_t)(uintptr_t)p.source.data;
#pragma unroll
    for (int k = 0; k < (ROWS + STEP - 1) / STEP; k++) {
        if (ROWS % STEP != 0 && walk.first + k * STEP >= ROWS)
            break;
        const conv_row row = rows[walk.first + k * STEP];
        const bool in = row_meets(p.source, row, dh, dw);
        const uint64_t from = in ? row.address + offset : nowhere;
        copy16_start(stage + walk.target + k * STEP * CONV_CHUNK, reinterpret_cast<const void *>((uintptr_t)from),
                     in ? CONV_PIECE : 0);
    }
}

/** Starts copies of a chunk of packed weights, which no kernel of the chain writes. */
template <int COLUMNS, int THREADS>
static __device__ __forceinline__ void load_columns(const unsigned char *packed, const depth_walk &walk,
                                                    unsigned char *stage)
{
    constexpr int STEP = THREADS / CONV_PIECES;
    packed += walk.first * CONV_CHUNK + walk.piece * CONV_PIECE;
#pragma unroll
    for (int k = 0; k < (COLUMNS + STEP - 1) / STEP; k++) {
        if (COLUMNS % STEP != 0 && walk.first + k * STEP >= COLUMNS)
            break;
        copy16_ahead_start(stage + walk.target + k * STEP * CONV_CHUNK, packed + k * STEP * CONV_CHUNK, CONV_PIECE);
    }
}

/** Adds a stage's products. `rows` and `columns` of the stage are those of this lane in the warp's part. */
template <typename S, int MT, int NT>
static __device__ __forceinline__ void multiply_chunk(S (&sums)[MT][NT][4], const unsigned char *rows,
                                                      const unsigned char *columns)
{
    const int lane = (int)threadIdx.x % WARP_LANES;
#pragma unroll
    for (int step = 0; step < CONV_PIECES / 2; step++) {
        uint32_t a[MT][4], b[NT / 2][4];
#pragma unroll
        for (int j = 0; j < NT / 2; j++)
            load_matrix4(b[j], columns + j * 16 * CONV_CHUNK + ((step * 2 + lane / 8 % 2) ^ (lane % 8)) * CONV_PIECE);
#pragma unroll
        for (int i = 0; i < MT; i++)
            load_matrix4(a[i], rows + i * 16 * CONV_CHUNK + ((step * 2 + lane / 16) ^ (lane % 8)) * CONV_PIECE);
        multiply<MT, NT>(sums, a, b);
    }
}

/** Writes a warp's sums to a tile in shared memory that begins with the warp's part. */
template <typename S, int MT, int NT, int COLUMNS>
static __device__ __forceinline__ void keep_sums(const S (&sums)[MT][NT][4], float *tile)
{
    const int lane = (int)threadIdx.x % WARP_LANES;
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int j = 0; j < NT; j++) {
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<floats2 *>(tile + (i * 16 + half * 8 + lane / 4) * (COLUMNS + CONV_GAP) + j * 8 +
                                             lane % 4 * 2) = {(float)sums[i][j][half * 2],
                                                              (float)sums[i][j][half * 2 + 1]};
        }
    }
}

/**
 * The block's part of the slopes' gradient, of its threads' sums for their columns, which store_tile() gave. The tile
 * is not needed any more.
 */
template <int COLUMNS, int THREADS>
static __device__ __forceinline__ void sum_slopes(const conv_product &p, const float (&dslope)[8])
{
    constexpr int ROWS = THREADS * 8 / COLUMNS;
    const cuda_slopes &slopes = p.store.slopes;
    const int tiles = p.column_tiles, block = (int)blockIdx.x, tile = block % tiles;
    const slope_place at = slopes.lists > 1 ? slope_place{tile, block / tiles, (int)gridDim.x / tiles}
                                            : slope_place{0, block, (int)gridDim.x};
    float *out = slope_partials(slopes, at);
    if (slopes.lists == 1) {
        float sum = 0;
        for (int i = 0; i < 8; i++)
            sum += dslope[i];
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            *out = sum;
    } else {
        float *shared = shared_memory<float>();
        block_sync();
        store_floats<4>(shared + threadIdx.x * 8, {dslope[0], dslope[1], dslope[2], dslope[3]});
        store_floats<4>(shared + threadIdx.x * 8 + 4, {dslope[4], dslope[5], dslope[6], dslope[7]});
        block_sync();
        for (int c = (int)threadIdx.x; c < COLUMNS; c += THREADS) {
            float sum = 0;
            for (int row = 0; row < ROWS; row++)
                sum += shared[row * COLUMNS + c];
            out[c] = sum;
        }
    }
    const int first = tile * COLUMNS, left = p.store.columns - first;
    slopes_finish(slopes, at, first, slopes.lists == 1 ? 1 : left < COLUMNS ? left : COLUMNS);
}

/** What a block has in shared memory; its tile of sums takes the place of the stages. */
template <int ROWS, int COLUMNS, int STAGES> struct product_memory {
    __align__(128) unsigned char stages[STAGES][(ROWS + COLUMNS) * CONV_CHUNK];
    conv_row rows[ROWS];
    int targets[ROWS];
    conv_vectors<COLUMNS> vectors;
};

/** WARPS_M x WARPS_N warps share a tile. */
template <typename T, int ROWS, int COLUMNS, int WARPS_M, int WARPS_N, int STAGES, int BLOCKS>
__global__ void __launch_bounds__(WARPS_M *WARPS_N *WARP_LANES, BLOCKS) product_kernel(const conv_product p)
{
    constexpr int THREADS = WARPS_M * WARPS_N * WARP_LANES, MT = ROWS / WARPS_M / 16, NT = COLUMNS / WARPS_N / 8;
    typedef typename sum_of<T>::type sum;
    product_memory<ROWS, COLUMNS, STAGES> *memory = shared_memory<product_memory<ROWS, COLUMNS, STAGES>>();
    const int phases_w = conv_phases(p.w), phase = (int)blockIdx.y;
    const conv_axis h = conv_axis_of(p.h, phase / phases_w), w = conv_axis_of(p.w, phase % phases_w);
    const unsigned row_tile = blockIdx.x / (unsigned)p.column_tiles,
                   column_tile = blockIdx.x % (unsigned)p.column_tiles;
    if ((uint64_t)row_tile * ROWS >= (uint64_t)p.images * (unsigned)h.outputs * (unsigned)w.outputs) {
        chain_wait();
        return;
    }
    const int cells = p.source.factor * p.source.factor, pieces = h.taps * w.taps * cells * p.groups;
    const int chunks = (pieces + CONV_PIECES - 1) / CONV_PIECES, most = conv_most_taps(p.h) * conv_most_taps(p.w);
    const int most_chunks = (most * cells * p.groups + CONV_PIECES - 1) / CONV_PIECES;
    const unsigned char *packed =
        p.packed + phase * p.phase_bytes + (int64_t)column_tile * most_chunks * COLUMNS * CONV_CHUNK;
    depth_walk walk = {};
    if (chunks > 0)
        walk = walk_begin(p, w);
    for (int next = 0; next < STAGES - 1 && next < chunks; next++)
        load_columns<COLUMNS, THREADS>(packed + (int64_t)next * COLUMNS * CONV_CHUNK, walk,
                                       memory->stages[next] + ROWS * CONV_CHUNK);
    place_rows<ROWS, THREADS, (int)sizeof(T)>(p, h, w, row_tile * ROWS, memory->rows, memory->targets);
    chain_wait();
    if (chunks == 0 && p.store.added.data == p.store.target.data)
        return; /* nothing is added to what is there */
    place_vectors<COLUMNS, THREADS>(p.store, (int)column_tile * COLUMNS, &memory->vectors);
    block_sync();

    const int warp = (int)threadIdx.x / WARP_LANES, lane = (int)threadIdx.x % WARP_LANES;
    const int warp_row = warp % WARPS_M * MT * 16, warp_column = warp / WARPS_M * NT * 8;
    const int my_row = warp_row + lane % 16, my_column = ROWS + warp_column + lane / 16 * 8 + lane % 8;
    sum sums[MT][NT][4] = {};
    for (int chunk = 1 - STAGES; chunk < chunks; chunk++) {
        if (chunk >= 0) {
            copy_wait<STAGES - 2>();
            block_sync();
        }
        const int next = chunk + STAGES - 1;
        if (next < chunks) {
            unsigned char *stage = memory->stages[next % STAGES];
            load_rows<T, ROWS, THREADS>(p, h, w, walk, memory->rows, stage);
            if (chunk >= 0) /* those of the first stages are under way */
                load_columns<COLUMNS, THREADS>(packed + (int64_t)next * COLUMNS * CONV_CHUNK, walk,
                                               stage + ROWS * CONV_CHUNK);
            place_advance(walk.at, CONV_PIECES, p.groups, cells, w.taps);
        }
        copy_commit();
        if (chunk < 0)
            continue;
        const unsigned char *stage = memory->stages[chunk % STAGES];
        multiply_chunk<sum, MT, NT>(sums, stage + my_row * CONV_CHUNK, stage + my_column * CONV_CHUNK);
    }
    chain_release();
    block_sync();
    float *tile = reinterpret_cast<float *>(memory->stages);
    keep_sums<sum, MT, NT, COLUMNS>(sums, tile + warp_row * (COLUMNS + CONV_GAP) + warp_column);
    block_sync();
    float dslope[8] = {};
    store_tile<ROWS, COLUMNS, THREADS>(p.store, tile, memory->targets, &memory->vectors, (int)column_tile * COLUMNS,
                                       dslope);
    if (p.store.slopes.dslope != NULL)
        sum_slopes<COLUMNS, THREADS>(p, dslope);
}

/** A tile, the warps that share it, its stages, and how many blocks a multiprocessor is to have room for. */
template <typename T, int ROWS, int COLUMNS, int WARPS_M, int WARPS_N, int STAGES, int BLOCKS>
static conv_product_kernel kernel_of(float speed)
{
    constexpr int THREADS = WARPS_M * WARPS_N * WARP_LANES;
    static_assert(ROWS * (COLUMNS + CONV_GAP) * 4 <= STAGES * (ROWS + COLUMNS) * CONV_CHUNK, "a tile fits the stages");
    static_assert(THREADS * 8 * 4 <= STAGES * (ROWS + COLUMNS) * CONV_CHUNK, "so do the threads' sums of slopes");
    return {ROWS,
            COLUMNS,
            CONV_CHUNK,
            WARPS_M * WARPS_N * WARP_LANES,
            sizeof(product_memory<ROWS, COLUMNS, STAGES>),
            speed,
            product_kernel<T, ROWS, COLUMNS, WARPS_M, WARPS_N, STAGES, BLOCKS>};
}

const conv_product_kernel *conv_product_kernels(cod_dtype dtype)
{
    /*
     * Speeds follow from the fragments that a warp loads for each of its products, and from how often a row is read.
     * The last of each list fits in 64 KB of shared memory, which is all that a T4 gives a block.
     */
    static const conv_product_kernel in_bf16[] = {
        kernel_of<uint16_t, 128, 128, 2, 4, 3, 2>(1),   kernel_of<uint16_t, 128, 64, 2, 2, 3, 3>(0.9f),
        kernel_of<uint16_t, 64, 64, 2, 2, 4, 3>(0.75f), kernel_of<uint16_t, 32, 32, 2, 2, 6, 4>(0.4f),
        kernel_of<uint16_t, 128, 16, 4, 1, 3, 3>(0.3f), {},
    };
    static const conv_product_kernel in_s8[] = {
        kernel_of<int8_t, 128, 64, 2, 2, 3, 3>(0.9f),
        kernel_of<int8_t, 64, 64, 2, 2, 4, 3>(0.75f),
        kernel_of<int8_t, 128, 16, 4, 1, 3, 3>(0.3f),
        {},
    };
    static const conv_product_kernel in_f32[] = {conv_product_in_f32(), {}};
    return dtype == COD_F32 ? in_f32 : dtype == COD_S8 ? in_s8 : in_bf16;
}

/**
 * @file
 * The kernel of conv3.cuh, for any shape of tile, with products by warps (mma.sync) or by warpgroups (wgmma).
 */
#ifndef COD_CUDA_CONV3_KERNEL_CUH
#define COD_CUDA_CONV3_KERNEL_CUH

#include "cuda/conv3_finish.cuh"
#include "cuda/conv3_shuffle.cuh"
#include "cuda/wgmma.cuh"

/** Starts copying the weights of the block's columns, which no kernel of a chain writes. */
template <int COLUMNS> static __device__ __forceinline__ void weights_fetch(const conv3_work &work)
{
    unsigned char *shared = shared_memory<unsigned char>();
    const int bytes = COLUMNS * work.weight_pitch;
    const unsigned char *from = work.packed + (int64_t)blockIdx.y * bytes;
    for (int at = (int)threadIdx.x * 16; at < bytes; at += (int)blockDim.x * 16)
        copy16_ahead_start(shared + at, from + at, 16);
    copy_commit();
}

/** Where the rows of a tile lie in it, and zeros for all sums. */
template <int STORE, int ROWS, int COLUMNS>
static __device__ __forceinline__ void block_begin(const conv3_work &work, int warps)
{
    unsigned char *shared = shared_memory<unsigned char>();
    int *pixels = reinterpret_cast<int *>(shared + work.places.pixels);
    float *sums = reinterpret_cast<float *>(shared + work.places.sums);
    for (int i = (int)threadIdx.x; i < ROWS; i += (int)blockDim.x) {
        const int row = i / work.tile_w;
        pixels[i] = row < work.tile_h ? row << 16 | (i - row * work.tile_w) : -1;
    }
    for (int i = (int)threadIdx.x; i < warps * conv3_sums_of(STORE) * COLUMNS; i += (int)blockDim.x)
        sums[i] = 0;
}

/** Bytes from a tile to the first tap of a lane's pixels. What gives no result reads any pixel. */
template <int MT> static __device__ __forceinline__ void operands_of(const conv3_work &work, int row, int (&places)[MT])
{
    const int *pixels = reinterpret_cast<const int *>(shared_memory<unsigned char>() + work.places.pixels);
    const int lane = (int)threadIdx.x % WARP_LANES;
#pragma unroll
    for (int i = 0; i < MT; i++) {
        const int pixel = pixels[row + i * 16 + lane % 16], at = pixel < 0 ? 0 : pixel;
        places[i] = ((at >> 16) * (work.tile_w + 2) + (at & 0xFFFF)) * work.pitch + lane / 16 * 16;
    }
}

/**
 * Adds the products of a warp's MT·16 pixels with NT·8 columns. `a`: bytes from the tile to the lane's pixels; `b`: its
 * columns.
 */
template <int CHANNELS, int MT, int NT>
static __device__ __forceinline__ void multiply_tile(const conv3_work &work, float (&sums)[MT][NT][4],
                                                     const unsigned char *tile, const int (&a)[MT],
                                                     const unsigned char *b)
{
    const int channels = CHANNELS > 0 ? CHANNELS : work.channels;
    const int pitch = CHANNELS > 0 ? CHANNELS * 2 + 16 : work.pitch;
    const int weight_pitch = CHANNELS > 0 ? CHANNELS * 18 + 16 : work.weight_pitch;
#pragma unroll(CHANNELS > 0 ? 3 : 1)
    for (int tap = 0; tap < 9; tap++) {
        const unsigned char *from = tile + (tap / 3 * (work.tile_w + 2) + tap % 3) * pitch;
#pragma unroll(CHANNELS > 0 ? CHANNELS / 16 : 1)
        for (int step = 0; step < channels / 16; step++) {
            uint32_t fragment_b[NT / 2][4];
#pragma unroll
            for (int j = 0; j < NT / 2; j++)
                load_matrix4(fragment_b[j], b + j * 16 * weight_pitch + (tap * channels + step * 16) * 2);
#if WARP_OLDER /* prepares them once; where there is nothing to prepare, the array would cost sm_80 registers */
            mma_columns columns[NT];
#pragma unroll
            for (int j = 0; j < NT; j++)
                columns[j] = mma_columns_of(fragment_b[j / 2][j % 2 * 2], fragment_b[j / 2][j % 2 * 2 + 1]);
#endif
#pragma unroll
            for (int i = 0; i < MT; i++) {
                uint32_t fragment_a[4];
                load_matrix4(fragment_a, from + a[i] + step * 32);
                const mma_rows rows = mma_rows_of(fragment_a);
#pragma unroll
                for (int j = 0; j < NT; j++)
#if WARP_OLDER
                    mma_bf16(sums[i][j], rows, columns[j]);
#else
                    mma_bf16(sums[i][j], rows,
                             mma_columns_of(fragment_b[j / 2][j % 2 * 2], fragment_b[j / 2][j % 2 * 2 + 1]));
#endif
            }
        }
    }
}

/** Bytes of 16 rows of B, eight channels of all columns after eight others: steps of multiply_wgmma(). */
template <int COLUMNS> constexpr int wgmma_step_bytes = 16 * COLUMNS * 2;

/** A lane's pixels of step `step` of the products: channels step % (CHANNELS / 16) · 16 … of a tap. */
template <int CHANNELS, int MT>
static __device__ __forceinline__ void load_step(const conv3_work &work, const unsigned char *tile, const int (&a)[MT],
                                                 int step, uint32_t (&rows)[MT][4])
{
    const int tap = step / (CHANNELS / 16), pitch = CHANNELS * 2 + 16;
    const unsigned char *from = tile + (tap / 3 * (work.tile_w + 2) + tap % 3) * pitch + step % (CHANNELS / 16) * 32;
#pragma unroll
    for (int i = 0; i < MT; i++)
        load_matrix4(rows[i], from + a[i]);
}

/**
 * The same as multiply_tile(), for a warpgroup and all columns. While products of one step are under way, the next
 * step's pixels are loaded.
 */
template <int CHANNELS, int MT, int NT>
static __device__ __forceinline__ void multiply_wgmma(const conv3_work &work, float (&sums)[MT][NT][4],
                                                      const unsigned char *tile, const int (&a)[MT])
{
    constexpr int STEPS = 9 * CHANNELS / 16, COLUMNS = NT * 8;
    const uint64_t weights = wgmma_matrix(shared_memory<unsigned char>(), wgmma_step_bytes<COLUMNS> / 2, 128);
    uint32_t rows[2][MT][4];
    load_step<CHANNELS>(work, tile, a, 0, rows[0]);
#pragma unroll
    for (int i = 0; i < MT; i++)
        wgmma_hold(sums[i]);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < MT; i++)
            wgmma_bf16(sums[i], rows[step % 2][i], weights + step * (wgmma_step_bytes<COLUMNS> / 16));
        wgmma_commit();
        if (step + 1 < STEPS) {
            wgmma_wait<1>(); /* the step before has read its pixels */
            load_step<CHANNELS>(work, tile, a, step + 1, rows[(step + 1) % 2]);
        }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < MT; i++)
        wgmma_hold(sums[i]);
}

/** A lane's pixels and channels of a tile's sums, out of the fragments of columns `pair`·16 … */
template <int MT, int NT>
static __device__ __forceinline__ void take_sums(const float (&sums)[MT][NT][4], int pair, float (&y)[2 * MT][4])
{
#pragma unroll
    for (int i = 0; i < 2 * MT; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[i][e] = sums[i / 2][2 * pair + e / 2][i % 2 * 2 + e % 2];
}

/**
 * Multiplies a tile and stores what comes of it. `slot`: of the warp's sums; `seen`: the warp's pixels of earlier
 * tiles.
 */
template <int STORE, bool WGMMA, int MT, int NT, int COLUMNS, int CHANNELS>
static __device__ __forceinline__ void tile_compute(const conv3_work &work, const conv3_tile &tile,
                                                    const unsigned char *loaded, int row, int column, int slot,
                                                    float &seen)
{
    unsigned char *shared = shared_memory<unsigned char>();
    const int lane = (int)threadIdx.x % WARP_LANES;
    [[maybe_unused]] const unsigned char *b =
        shared + (column + lane / 16 * 8 + lane % 8) * work.weight_pitch + lane / 8 % 2 * 16;
    float *slots = reinterpret_cast<float *>(shared + work.places.sums) + slot * CONV3_SUMS * COLUMNS;
    const int own = column + lane % 4 * 4;
    const int64_t first = STORE == CONV3_SHUFFLE ? shuffled_first(work, tile)
                                                 : tile_first(work, tile, work.outputs) + blockIdx.y * COLUMNS + own;
    const int across = STORE == CONV3_SHUFFLE ? work.store.across : work.outputs;
    constexpr bool EARLY = STORE == CONV3_REDUCE && CHANNELS > 0 && NT < 8; /* registers are left for it */
    conv3_read<MT> x = {};
    float sums[MT][NT][4] = {}, count = 0;
    int a[MT];
    operands_of(work, row, a);
    if constexpr (EARLY) /* comes while products are made */
        x = read_pixels(work.store.x, pixels_of<MT>(work, tile, row, across), first);
    if constexpr (WGMMA)
        multiply_wgmma<CHANNELS>(work, sums, loaded, a);
    else
        multiply_tile<CHANNELS>(work, sums, loaded, a, b);
    const conv3_pixels<MT> pixels =
        pixels_of<MT>(work, tile, row, across); /* not before: the products need the registers */
    if constexpr (STORE == CONV3_STATISTICS)
        count = pixels_count(pixels);
#pragma unroll
    for (int pair = 0; pair < NT / 2; pair++) {
        float y[2 * MT][4];
        take_sums(sums, pair, y);
        const conv3_read<MT> now =
            STORE == CONV3_REDUCE && !EARLY ? read_pixels(work.store.x, pixels, first + pair * 16) : x;
        if (EARLY && pair + 1 < NT / 2)
            x = read_pixels(work.store.x, pixels, first + (pair + 1) * 16);
        if constexpr (STORE == CONV3_STATISTICS)
            store_statistics<COLUMNS>(work, pixels, y, first + pair * 16, own + pair * 16, slots, seen, count);
        else if constexpr (STORE == CONV3_REDUCE)
            store_reduce<COLUMNS>(work, pixels, y, now, first + pair * 16, own + pair * 16, slots);
        else if constexpr (STORE == CONV3_SHUFFLE)
            store_shuffled<COLUMNS>(work, pixels, y, first, own + pair * 16);
        else
            store_plain<COLUMNS>(work, pixels, y, first + pair * 16, own + pair * 16);
    }
    seen += count;
}

/**
 * Asks L2 for what a gradient reads of a tile that the forward pass made: it was written long ago, and memory is slower
 * than this kernel. The gradients that it reads come from the launches before, so they are in L2. Blocks of the same
 * tiles and other columns leave it to the first ones. Products in fp16 leave no registers for it.
 */
template <int STORE>
static __device__ __forceinline__ void tile_ahead(const conv3_work &work, int number, int thread, int threads)
{
#if !WARP_OLDER
    if (number >= work.tiles || blockIdx.y > 0)
        return;
    const conv3_tile tile = tile_at(work, number);
    if (STORE != CONV3_STATISTICS && work.load.kind == CONV3_NORMALISE_BACKWARD) /* statistics are of forward passes */
        tile_prefetch(work, tile, work.load.second, work.channels, thread, threads);
    if (STORE == CONV3_REDUCE)
        tile_prefetch(work, tile, work.store.x, work.outputs, thread, threads);
#endif
}

/** WARPS_M x WARPS_N warps of MT·16 pixels x NT·8 columns each are a group. CHANNELS: 0 = those of the work. */
template <int STORE, bool WGMMA, int MT, int NT, int WARPS_M, int WARPS_N, int CHANNELS>
static __device__ __forceinline__ void run_tiles(const conv3_work &work)
{
    constexpr int THREADS = WARPS_M * WARPS_N * WARP_LANES, COLUMNS = WARPS_N * NT * 8, ROWS = WARPS_M * MT * 16;
    unsigned char *shared = shared_memory<unsigned char>();
    const int groups = (int)blockDim.x / THREADS, group = (int)threadIdx.x / THREADS,
              thread = (int)threadIdx.x % THREADS;
    const int warp = thread / WARP_LANES, lane = thread % WARP_LANES;
    const int row = warp % WARPS_M * MT * 16, column = warp / WARPS_M * NT * 8;
    const int slot = group * WARPS_M + warp % WARPS_M, piece = thread % (work.channels / 8);
    const int step = (int)gridDim.x * groups;
    unsigned char *loaded = shared + work.places.tiles + group * work.places.tile_bytes;
    weights_fetch<COLUMNS>(work);
    block_begin<STORE, ROWS, COLUMNS>(work, groups * WARPS_M);
    int number = group * (int)gridDim.x + (int)blockIdx.x;
    tile_ahead<STORE>(work, number, thread, THREADS); /* while the launch before this one ends */
    chain_wait();
    const conv3_halo begin = halo_begin(work, thread, THREADS);
    conv3_halo ahead = begin;
    conv3_batch batch = {};
    if (number < work.tiles)
        batch = batch_fetch(work, tile_at(work, number), piece, ahead);
    load_vectors_share(work);
    if constexpr (STORE == CONV3_SHUFFLE)
        shuffled_vectors_share<COLUMNS>(work);
    else
        store_vectors_share<STORE, COLUMNS>(work);
    block_sync();
    if (number < work.tiles)
        tile_load(work, tile_at(work, number), piece, begin, ahead, batch, loaded);
    copy_wait<0>();
    if constexpr (WGMMA)
        wgmma_writes_fence(); /* of the weights */
    block_sync();
    float seen = 0;
    while (number < work.tiles) {
        tile_ahead<STORE>(work, number + step, thread, THREADS);
        tile_compute<STORE, WGMMA, MT, NT, COLUMNS, CHANNELS>(work, tile_at(work, number), loaded, row, column, slot,
                                                              seen);
        number += step;
        if (number >= work.tiles)
            break;
        const conv3_tile next = tile_at(work, number);
        ahead = begin;
        batch = batch_fetch(work, next, piece, ahead);
        part_sync((unsigned)group, THREADS);
        tile_load(work, next, piece, begin, ahead, batch, loaded);
        part_sync((unsigned)group, THREADS);
    }
    chain_release();
    if (STORE == CONV3_STATISTICS && column == 0 && lane == 0)
        reinterpret_cast<float *>(shared + work.places.counts)[slot] = seen;
    finish_block<STORE, COLUMNS>(work, groups * WARPS_M);
}

template <int STORE, int MT, int NT, int WARPS_M, int WARPS_N, int MOST_GROUPS, int CHANNELS>
__global__ void __launch_bounds__(WARPS_M *WARPS_N *WARP_LANES *MOST_GROUPS, 1) conv3_run_kernel(const conv3_work work)
{
    run_tiles<STORE, false, MT, NT, WARPS_M, WARPS_N, CHANNELS>(work);
}

template <int MT, int NT, int WARPS_M, int WARPS_N, int MOST_GROUPS, int CHANNELS>
static conv3_kernel conv3_kernel_of(float speed)
{
    return {WARPS_M * MT * 16,
            WARPS_N * NT * 8,
            CHANNELS,
            WARPS_M * WARPS_N * WARP_LANES,
            WARPS_M,
            {MOST_GROUPS, MOST_GROUPS, MOST_GROUPS},
            speed,
            false,
            {conv3_run_kernel<CONV3_STORE, MT, NT, WARPS_M, WARPS_N, MOST_GROUPS, CHANNELS>,
             conv3_run_kernel<CONV3_STATISTICS, MT, NT, WARPS_M, WARPS_N, MOST_GROUPS, CHANNELS>,
             conv3_run_kernel<CONV3_REDUCE, MT, NT, WARPS_M, WARPS_N, MOST_GROUPS, CHANNELS>}};
}

#endif

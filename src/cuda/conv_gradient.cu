/*
 * Weight gradients on tensor cores. A block gives partial sums of a tile of ROWS channels of dy x COLUMNS channels of x
 * at one or more taps, over its split's pixels. A stage of shared memory holds CONV_PIXELS pixels of both; as pixels
 * are the depth of the product, both are read transposed. Partial sums of all splits are added in their order by
 * conv_join_partials().
 */
#include "cuda/conv_device.cuh"

enum { CONV_PIXELS = 64, CONV_RING = 2 };

/** Pieces of a row of PIECES lie so that eight rows of one piece are in as many banks as there can be. */
template <int PIECES> static __device__ __forceinline__ int turned(int piece, int row)
{
    return PIECES >= 8 ? piece ^ (row % 8) : piece ^ (row / (8 / PIECES) % PIECES);
}

/**
 * What a thread copies of every STEP-th pixel: one piece of dy's channels, or of x's at a tap. `offset`: bytes from the
 * pixel, or from tap 0; `target`: where in a stage the piece of its first pixel lies. Where there is no such channel,
 * dh leads outside.
 */
struct channel_walk {
    int first, target, dh, dw;
    uint64_t offset;
};

template <int PIECES> static __device__ __forceinline__ channel_walk walk_begin()
{
    const int piece = (int)threadIdx.x % PIECES, first = (int)threadIdx.x / PIECES;
    return {first, (first * PIECES + turned<PIECES>(piece, first)) * CONV_PIECE, 0, 0, 0};
}

template <int ROWS> static __device__ __forceinline__ channel_walk walk_rows(const conv_gradient &g, int first_row)
{
    channel_walk walk = walk_begin<ROWS / 8>();
    const int row = first_row + (int)threadIdx.x % (ROWS / 8) * 8, cell = row / g.dy.channels;
    walk.dh = row < g.rows ? 0 : CONV_OUTSIDE;
    walk.offset = (uint64_t)((cell_offset(g.dy, 0, 0, cell) + row - cell * g.dy.channels) * 2);
    return walk;
}

template <int COLUMNS>
static __device__ __forceinline__ channel_walk walk_columns(const conv_gradient &g, int first_column)
{
    channel_walk walk = walk_begin<COLUMNS / 8>();
    const int group = first_column / 8 + (int)threadIdx.x % (COLUMNS / 8), tap = group / g.groups;
    const int taps_w = conv_axis_of(g.w, 0).taps, dh = tap / taps_w;
    walk.dh = group * 8 < g.columns ? dh : CONV_OUTSIDE;
    walk.dw = tap % taps_w;
    walk.offset = (uint64_t)((cell_offset(g.x, dh, walk.dw, 0) + (group - tap * g.groups) * 8) * 2);
    return walk;
}

/** Starts copies of a chunk's pixels of dy or x. */
template <int CHANNELS, int THREADS, bool IS_DY>
static __device__ __forceinline__ void load_pixels(const conv_image &image, const channel_walk &walk,
                                                   const conv_pixel *pixels, unsigned char *stage)
{
    constexpr int PIECES = CHANNELS / 8, STEP = THREADS / PIECES;
    static_assert(CONV_PIXELS % STEP == 0 && STEP % 8 == 0, "a thread's pixels have their piece at one place");
    const uint64_t nowhere = (uint64_t)(uintptr_t)image.data;
#pragma unroll
    for (int k = 0; k < CONV_PIXELS / STEP; k++) {
        const conv_pixel *pixel = &pixels[walk.first + k * STEP];
        uint64_t from;
        bool in;
        if (IS_DY) {
            from = pixel->y;
            in = (from != 0) & (walk.dh == 0);
        } else {
            const conv_row row = pixel->x;
            from = row.address;
            in = row_meets(image, row, walk.dh, walk.dw);
        }
        from = in ? from + walk.offset : nowhere;
        copy16_start(stage + walk.target + k * STEP * PIECES * CONV_PIECE,
                     reinterpret_cast<const void *>((uintptr_t)from), in ? CONV_PIECE : 0);
    }
}

/** Adds a stage's products, and sums of fragment `ones_of` of dy alone (-1 = of none): products with ones. */
template <int ROWS, int COLUMNS, int MT, int NT>
static __device__ __forceinline__ void multiply_pixels(float (&sums)[MT][NT][4], float (&ones)[4], int ones_of,
                                                       const unsigned char *stage, int warp_row, int warp_column)
{
    const int lane = (int)threadIdx.x % WARP_LANES;
    const unsigned char *stage_x = stage + CONV_PIXELS * ROWS * 2;
#pragma unroll 2
    for (int step = 0; step < CONV_PIXELS / 16; step++) {
        uint32_t a[MT][4], b[NT / 2][4];
        const int pixel_a = step * 16 + lane / 16 * 8 + lane % 8, pixel_b = step * 16 + lane % 16;
#pragma unroll
        for (int i = 0; i < MT; i++)
            load_matrix4_transposed(
                a[i], stage + (pixel_a * (ROWS / 8) + turned<ROWS / 8>(warp_row / 8 + i * 2 + lane / 8 % 2, pixel_a)) *
                                  CONV_PIECE);
#pragma unroll
        for (int j = 0; j < NT / 2; j++)
            load_matrix4_transposed(b[j],
                                    stage_x + (pixel_b * (COLUMNS / 8) +
                                               turned<COLUMNS / 8>(warp_column / 8 + j * 2 + lane / 16, pixel_b)) *
                                                  CONV_PIECE);
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
            if (i == ones_of)
                mma_bf16(ones, rows, mma_columns_of(0x3F803F80u, 0x3F803F80u));
        }
    }
}

template <int MT, int NT>
static __device__ __forceinline__ void store_partials(const conv_gradient &g, const float (&sums)[MT][NT][4],
                                                      const float (&ones)[4], int ones_of, int first_row,
                                                      int first_column)
{
    const int lane = (int)threadIdx.x % WARP_LANES;
    float *partial = g.partials + blockIdx.y * g.partial_count;
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + i * 16 + half * 8 + lane / 4;
            if (row >= g.rows)
                continue;
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const int column = first_column + j * 8 + lane % 4 * 2;
                if (column < g.columns)
                    *reinterpret_cast<floats2 *>(partial + (int64_t)row * g.columns +
                                                 column) = {sums[i][j][half * 2], sums[i][j][half * 2 + 1]};
            }
            if (i == ones_of && lane % 4 == 0)
                partial[(int64_t)g.rows * g.columns + row] = ones[half * 2];
        }
    }
}

template <int ROWS, int COLUMNS, int STAGES> struct gradient_memory {
    __align__(128) unsigned char stages[STAGES][CONV_PIXELS * (ROWS + COLUMNS) * 2];
    conv_pixel pixels[CONV_RING][CONV_PIXELS];
};

/** WARPS_M x WARPS_N warps share a tile. The ring of pixels is written one chunk before copies read it. */
template <int ROWS, int COLUMNS, int WARPS_M, int WARPS_N, int STAGES, int BLOCKS>
__global__ void __launch_bounds__(WARPS_M *WARPS_N *WARP_LANES, BLOCKS) gradient_kernel(const conv_gradient group)
{
    constexpr int THREADS = WARPS_M * WARPS_N * WARP_LANES, MT = ROWS / WARPS_M / 16, NT = COLUMNS / WARPS_N / 8;
    static_assert(MT <= WARPS_N, "a warp for each fragment of db");
    chain_wait();
    const conv_gradient g = gradient_of_layer(group);
    gradient_memory<ROWS, COLUMNS, STAGES> *memory = shared_memory<gradient_memory<ROWS, COLUMNS, STAGES>>();
    const int row_tile = (int)(blockIdx.x / (unsigned)g.column_tiles),
              column_tile = (int)(blockIdx.x % (unsigned)g.column_tiles);
    const int first = (int)blockIdx.y * g.split_chunks, left = g.chunks - first,
              chunks = left < g.split_chunks ? left : g.split_chunks;
    const int warp = (int)threadIdx.x / WARP_LANES;
    const int warp_row = warp % WARPS_M * MT * 16, warp_column = warp / WARPS_M * NT * 8;
    const channel_walk rows = walk_rows<ROWS>(g, row_tile * ROWS),
                       columns = walk_columns<COLUMNS>(g, column_tile * COLUMNS);
    /* Its warps share the fragments of db among them. */
    const int ones_of = g.bias && column_tile == 0 ? warp / WARPS_M : -1;
    float sums[MT][NT][4] = {}, ones[4] = {};
    for (int chunk = -STAGES; chunk < chunks; chunk++) {
        if (chunk >= 0)
            copy_wait<STAGES - 2>();
        block_sync();
        const int next = chunk + STAGES - 1;
        if (next >= 0 && next < chunks) {
            unsigned char *stage = memory->stages[next % STAGES];
            const conv_pixel *pixels = memory->pixels[next % CONV_RING];
            load_pixels<ROWS, THREADS, true>(g.dy, rows, pixels, stage);
            load_pixels<COLUMNS, THREADS, false>(g.x, columns, pixels, stage + CONV_PIXELS * ROWS * 2);
        }
        copy_commit();
        for (int i = (int)threadIdx.x; i < CONV_PIXELS; i += THREADS)
            memory->pixels[(next + 1) % CONV_RING][i] =
                pixel_at(g, (unsigned)(first + next + 1) * CONV_PIXELS + (unsigned)i, 2);
        if (chunk >= 0)
            multiply_pixels<ROWS, COLUMNS, MT, NT>(sums, ones, ones_of, memory->stages[chunk % STAGES], warp_row,
                                                   warp_column);
    }
    chain_release();
    store_partials<MT, NT>(g, sums, ones, ones_of, row_tile * ROWS + warp_row, column_tile * COLUMNS + warp_column);
}

template <int ROWS, int COLUMNS, int WARPS_M, int WARPS_N, int STAGES, int BLOCKS>
static conv_gradient_kernel kernel_of(float speed)
{
    return {ROWS,
            COLUMNS,
            CONV_PIXELS,
            WARPS_M * WARPS_N * WARP_LANES,
            sizeof(gradient_memory<ROWS, COLUMNS, STAGES>),
            speed,
            gradient_kernel<ROWS, COLUMNS, WARPS_M, WARPS_N, STAGES, BLOCKS>};
}

const conv_gradient_kernel *conv_gradient_kernels(cod_dtype dtype)
{
    /* The last fits in 64 KB of shared memory, which is all that a T4 gives a block. */
    static const conv_gradient_kernel in_bf16[] = {
        kernel_of<128, 128, 2, 4, 3, 2>(1),
        kernel_of<64, 64, 2, 2, 4, 3>(0.75f),
        kernel_of<16, 128, 1, 4, 3, 3>(0.3f),
        {},
    };
    static const conv_gradient_kernel in_f32[] = {conv_gradient_in_f32(), {}};
    return dtype == COD_F32 ? in_f32 : in_bf16;
}

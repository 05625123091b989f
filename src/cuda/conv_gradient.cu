/*
 * Weight gradients on tensor cores. A block gives partial sums of a tile of ROWS channels of dy x COLUMNS channels of x at one or more
 * taps, over its split's pixels. A stage of shared memory holds CONV_PIXELS pixels of both; as pixels are the depth of the product,
 * both are read transposed. Partial sums of all splits are added in their order by conv_sum_partials().
 */
#include "cuda/conv_device.cuh"

enum { CONV_PIXELS = 64, CONV_RING = 2 };

/** Where a pixel of dy lies, and where in x tap 0 of it does. A pixel that does not exist has y -1 and lies far outside x. */
struct conv_pixel {
    int64_t y, x;
    int h, w;
};

static __device__ __forceinline__ conv_pixel pixel_at(const conv_gradient &g, unsigned number)
{
    const unsigned line = number / (unsigned)g.w.outputs, n = line / (unsigned)g.h.outputs;
    if (n >= (unsigned)g.images)
        return {-1, 0, CONV_OUTSIDE, CONV_OUTSIDE};
    const conv_axis h = conv_axis_of(g.h, 0), w = conv_axis_of(g.w, 0);
    const int row = (int)(line - n * (unsigned)g.h.outputs), column = (int)(number - line * (unsigned)g.w.outputs);
    conv_pixel pixel;
    pixel.y = pixel_offset(g.dy, (int)n, row, column);
    pixel.h = row * h.step + h.origin;
    pixel.w = column * w.step + w.origin;
    pixel.x = pixel_offset(g.x, (int)n, pixel.h, pixel.w);
    return pixel;
}

/** Pieces of a row of PIECES lie so that eight rows of one piece are in as many banks as there can be. */
template <int PIECES> static __device__ __forceinline__ int turned(int piece, int row)
{
    return PIECES >= 8 ? piece ^ (row % 8) : piece ^ (row / (8 / PIECES) % PIECES);
}

/** A thread's piece of all pixels: channels of dy, or of x at a tap. */
struct channel_walk {
    int piece, first, dh, dw;
    int64_t offset;
    bool exists;
};

template <int ROWS> static __device__ __forceinline__ channel_walk walk_rows(const conv_gradient &g, int first_row)
{
    channel_walk walk = {};
    walk.piece = (int)threadIdx.x % (ROWS / 8);
    walk.first = (int)threadIdx.x / (ROWS / 8);
    const int row = first_row + walk.piece * 8, cell = row / g.dy.channels;
    walk.exists = row < g.rows;
    walk.offset = cell_offset(g.dy, 0, 0, cell) + row - cell * g.dy.channels;
    return walk;
}

template <int COLUMNS>
static __device__ __forceinline__ channel_walk walk_columns(const conv_gradient &g, int first_column)
{
    channel_walk walk = {};
    walk.piece = (int)threadIdx.x % (COLUMNS / 8);
    walk.first = (int)threadIdx.x / (COLUMNS / 8);
    const int group = first_column / 8 + walk.piece, tap = group / g.groups;
    const conv_axis w = conv_axis_of(g.w, 0);
    walk.exists = group * 8 < g.columns;
    walk.dh = tap / w.taps;
    walk.dw = tap % w.taps;
    walk.offset = cell_offset(g.x, walk.dh, walk.dw, 0) + (group - tap * g.groups) * 8;
    return walk;
}

template <int ROWS, int THREADS>
static __device__ __forceinline__ void load_dy(const conv_gradient &g, const channel_walk &walk,
                                               const conv_pixel *pixels, unsigned char *stage)
{
    constexpr int PIECES = ROWS / 8, STEP = THREADS / PIECES;
#pragma unroll
    for (int k = 0; k < (CONV_PIXELS + STEP - 1) / STEP; k++) {
        const int i = walk.first + k * STEP;
        if (CONV_PIXELS % STEP != 0 && i >= CONV_PIXELS)
            break;
        const int64_t at = pixels[i].y;
        const bool in = walk.exists && at >= 0;
        copy16_start(stage + (i * PIECES + turned<PIECES>(walk.piece, i)) * CONV_PIECE,
                     g.dy.data + (in ? (at + walk.offset) * 2 : 0), in ? CONV_PIECE : 0);
    }
}

template <int COLUMNS, int THREADS>
static __device__ __forceinline__ void load_x(const conv_gradient &g, const channel_walk &walk,
                                              const conv_pixel *pixels, unsigned char *stage)
{
    constexpr int PIECES = COLUMNS / 8, STEP = THREADS / PIECES;
#pragma unroll
    for (int k = 0; k < (CONV_PIXELS + STEP - 1) / STEP; k++) {
        const int i = walk.first + k * STEP;
        if (CONV_PIXELS % STEP != 0 && i >= CONV_PIXELS)
            break;
        const conv_pixel pixel = pixels[i];
        const bool in = walk.exists && (unsigned)(pixel.h + walk.dh) < (unsigned)g.x.h &&
                        (unsigned)(pixel.w + walk.dw) < (unsigned)g.x.w;
        copy16_start(stage + (i * PIECES + turned<PIECES>(walk.piece, i)) * CONV_PIECE,
                     g.x.data + (in ? (pixel.x + walk.offset) * 2 : 0), in ? CONV_PIECE : 0);
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
#pragma unroll
        for (int i = 0; i < MT; i++) {
#pragma unroll
            for (int j = 0; j < NT; j++) {
                const uint32_t two[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                mma_bf16(sums[i][j], a[i], two);
            }
            const uint32_t one[2] = {0x3F803F80u, 0x3F803F80u};
            if (i == ones_of)
                mma_bf16(ones, a[i], one);
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
__global__ void __launch_bounds__(WARPS_M *WARPS_N *WARP_LANES, BLOCKS) gradient_kernel(const conv_gradient g)
{
    constexpr int THREADS = WARPS_M * WARPS_N * WARP_LANES, MT = ROWS / WARPS_M / 16, NT = COLUMNS / WARPS_N / 8;
    static_assert(MT <= WARPS_N, "a warp for each fragment of db");
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
            load_dy<ROWS, THREADS>(g, rows, pixels, stage);
            load_x<COLUMNS, THREADS>(g, columns, pixels, stage + CONV_PIXELS * ROWS * 2);
        }
        copy_commit();
        for (int i = (int)threadIdx.x; i < CONV_PIXELS; i += THREADS)
            memory->pixels[(next + 1) % CONV_RING][i] =
                pixel_at(g, (unsigned)(first + next + 1) * CONV_PIXELS + (unsigned)i);
        if (chunk >= 0)
            multiply_pixels<ROWS, COLUMNS, MT, NT>(sums, ones, ones_of, memory->stages[chunk % STAGES], warp_row,
                                                   warp_column);
    }
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
    static const conv_gradient_kernel in_bf16[] = {
        kernel_of<128, 128, 2, 4, 3, 2>(1),
        kernel_of<64, 64, 2, 2, 4, 3>(0.75f),
        kernel_of<16, 128, 1, 4, 4, 3>(0.3f),
        {},
    };
    static const conv_gradient_kernel in_f32[] = {conv_gradient_in_f32(), {}};
    return dtype == COD_F32 ? in_f32 : in_bf16;
}

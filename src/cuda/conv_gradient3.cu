/*
 * A block gives partial sums of CHANNELS channels of dy x CHANNELS channels of x at all nine taps, over its split's
 * tiles of pixels. A stage of shared memory holds one tile of dy and of x, and of x the pixels around it; STAGES of
 * them are in flight. Each warp has eight channels of x and all of dy: of both it loads a fragment once for 32 pixels,
 * dy's for nine taps and x's for all channels of dy.
 *
 * Pixels lie CHANNELS + 8 elements apart, so that eight of them, as ldmatrix reads them, are in all banks. Groups of
 * eight pixels lie in one row of a tile; a tap shifts them all.
 */
#include "cuda/conv_device.cuh"
#include "cuda/conv_gradient3.cuh"

enum { TAPS = 9, SIDE = 3, GROUP = 8, STEP_PIXELS = 32 };

template <int WARPS> constexpr int pitch_bytes = (WARPS * 8 + 8) * 2;

/**
 * Starts copies of a tile whose first pixel is (h, w) of an image; pixels outside become zeros. `from`: the thread's
 * channels of the first picture, 0 where there are none; `picture`: bytes from there to this one; `nowhere`: memory
 * that can be read.
 */
template <int WARPS>
static __device__ __forceinline__ void load_tile(const conv_image &image, const gradient3_walk &walk, uint64_t from,
                                                 int64_t picture, const float *nowhere, int h, int w,
                                                 unsigned char *target)
{
    const int first = (int)threadIdx.x / WARPS;
    int row = first / walk.columns, column = first % walk.columns;
    const int64_t row_bytes = (int64_t)image.w * image.factor * image.factor * image.stride * 2;
    const int pixel_bytes = image.factor * (int)image.stride * 2;
#pragma unroll 1 /* copies are under way all the same; registers are scarce */
    while (row < walk.rows) {
        const bool meets =
            (from != 0) & ((unsigned)(h + row) < (unsigned)image.h) & ((unsigned)(w + column) < (unsigned)image.w);
        const uint64_t at = from + (uint64_t)(picture + (h + row) * row_bytes + (int64_t)(w + column) * pixel_bytes);
        copy16_start(target, meets ? reinterpret_cast<const void *>((uintptr_t)at) : nowhere, meets ? CONV_PIECE : 0);
        target += STEP_PIXELS * pitch_bytes<WARPS>;
        row += walk.step_rows;
        column += walk.step_columns;
        if (column >= walk.columns) {
            column -= walk.columns;
            row++;
        }
    }
}

/**
 * What a thread copies: its channels of picture 0, 0 where there are none, and where those of its first pixel lie in a
 * stage.
 */
struct thread_pieces {
    uint64_t x, y;
    int target;
};

template <int WARPS>
static __device__ __forceinline__ thread_pieces pieces_of(const conv_gradient3 &g, const conv_layer &layer,
                                                          int first_row, int first_column)
{
    const int piece = (int)threadIdx.x % WARPS * 8, row = first_row + piece, column = first_column + piece,
              cell = row / g.dy.channels;
    const uint64_t x = (uint64_t)(uintptr_t)layer.x + (uint64_t)(column * 2),
                   y = (uint64_t)(uintptr_t)layer.dy +
                       (uint64_t)((cell_offset(g.dy, 0, 0, cell) + row - cell * g.dy.channels) * 2);
    return {column < g.x.channels ? x : 0, row < g.rows ? y : 0,
            (int)threadIdx.x / WARPS * pitch_bytes<WARPS> + piece * 2};
}

/** Starts copies of tile `number` of all pictures. */
template <int WARPS>
static __device__ __forceinline__ void load_stage(const conv_gradient3 &g, const thread_pieces &pieces, int number,
                                                  unsigned char *stage)
{
    const int of_picture = g.tiles_h * g.tiles_w, n = number / of_picture, tile = number - n * of_picture;
    const int h = tile / g.tiles_w * g.tile.rows, w = tile % g.tiles_w * g.tile.columns;
    unsigned char *target = stage + pieces.target;
    load_tile<WARPS>(g.x, g.walk_x, pieces.x, pixel_offset(g.x, n, 0, 0) * 2, g.partials, h - g.pad_h, w - g.pad_w,
                     target);
    target += g.walk_x.rows * g.walk_x.columns * pitch_bytes<WARPS>;
    load_tile<WARPS>(g.dy, g.walk_y, pieces.y, pixel_offset(g.dy, n, 0, 0) * 2, g.partials, h, w, target);
}

/** Adds a stage's products, and sums of the fragment `ones_of` of dy alone (-1 = of none): products with ones. */
template <int MT, int WARPS>
static __device__ __forceinline__ void multiply_stage(const conv_gradient3 &g, float (&sums)[TAPS][MT][4],
                                                      float (&ones)[4], int ones_of, const unsigned char *stage)
{
    constexpr int PITCH = pitch_bytes<WARPS>;
    const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES;
    const int wide = g.walk_x.columns, groups = g.tile.columns / GROUP, lane_group = lane / GROUP;
    const int step_rows = STEP_PIXELS / GROUP / groups, step_groups = STEP_PIXELS / GROUP % groups;
    int row = lane_group / groups, group = lane_group % groups;
    const unsigned char *x = stage + lane % GROUP * PITCH + warp * CONV_PIECE,
                        *y = stage + (g.walk_x.rows * wide + lane / 16 * 8 + lane % 8) * PITCH +
                             lane / 8 % 2 * CONV_PIECE;
#pragma unroll 1
    for (int pixel = 0; pixel < g.tile.rows * g.tile.columns; pixel += STEP_PIXELS) {
        mma_rows a[2][MT];
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int i = 0; i < MT; i++) {
                uint32_t rows[4];
                load_matrix4_transposed(rows, y + (pixel + half * 16) * PITCH + i * 2 * CONV_PIECE);
                a[half][i] = mma_rows_of(rows);
                if (i == ones_of)
                    mma_bf16(ones, a[half][i], mma_columns_of(0x3F803F80u, 0x3F803F80u));
            }
        }
#pragma unroll
        for (int tap = 0; tap < TAPS; tap++) {
            uint32_t b[4];
            load_matrix4_transposed(b, x + ((row + tap / SIDE) * wide + group * GROUP + tap % SIDE) * PITCH);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const mma_columns columns = mma_columns_of(b[half * 2], b[half * 2 + 1]);
#pragma unroll
                for (int i = 0; i < MT; i++)
                    mma_bf16(sums[tap][i], a[half][i], columns);
            }
        }
        row += step_rows;
        group += step_groups;
        if (group >= groups) {
            group -= groups;
            row++;
        }
    }
}

template <int MT, int WARPS>
static __device__ __forceinline__ void store_sums(const conv_gradient3 &g, const float (&sums)[TAPS][MT][4],
                                                  const float (&ones)[4], int ones_of, int first_row, int first_column)
{
    const int lane = (int)threadIdx.x % WARP_LANES, warp = (int)threadIdx.x / WARP_LANES;
    const int channel = first_column + warp * 8 + lane % 4 * 2, columns = TAPS * g.x.channels;
    float *partial = g.partials + (blockIdx.z * (int64_t)gridDim.y + blockIdx.y) * g.partial_count;
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + i * 16 + half * 8 + lane / 4;
            if (row >= g.rows)
                continue;
            float *to = partial + (int64_t)row * columns + channel;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++)
                if (channel < g.x.channels)
                    *reinterpret_cast<floats2 *>(to + tap * g.x.channels) = {sums[tap][i][half * 2],
                                                                             sums[tap][i][half * 2 + 1]};
            if (i == ones_of && lane % 4 == 0)
                partial[(int64_t)g.rows * columns + row] = ones[half * 2];
        }
    }
}

/** A warp for each eight channels; MT fragments are as many channels. Tiles of a split lie `splits` apart. */
template <int MT, int WARPS, int STAGES, int BLOCKS>
__global__ void __launch_bounds__(WARPS *WARP_LANES, BLOCKS) gradient3_kernel_of(const conv_gradient3 g)
{
    static_assert(MT * 16 == WARPS * 8, "a block has as many channels of x as of dy");
    chain_wait();
    const conv_layer layer = g.layers[blockIdx.z];
    unsigned char *memory = shared_memory<unsigned char>();
    const int first_row = (int)blockIdx.x / g.column_tiles * MT * 16,
              first_column = (int)blockIdx.x % g.column_tiles * WARPS * 8;
    const int warp = (int)threadIdx.x / WARP_LANES, ones_of = layer.db != NULL && first_column == 0 ? warp : -1;
    const thread_pieces pieces = pieces_of<WARPS>(g, layer, first_row, first_column);
    const int first = (int)blockIdx.y, splits = (int)gridDim.y;
    float sums[TAPS][MT][4] = {}, ones[4] = {};
    for (int number = first - (STAGES - 1) * splits, stage = 1; number < g.tiles; number += splits) {
        if (number >= first) {
            copy_wait<STAGES - 2>();
            block_sync();
        }
        const int next = number + (STAGES - 1) * splits, before = stage == 0 ? STAGES - 1 : stage - 1;
        if (next < g.tiles)
            load_stage<WARPS>(g, pieces, next, memory + before * g.stage_bytes);
        copy_commit();
        if (number >= first)
            multiply_stage<MT, WARPS>(g, sums, ones, ones_of, memory + stage * g.stage_bytes);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    chain_release();
    store_sums<MT, WARPS>(g, sums, ones, ones_of, first_row, first_column);
}

template <int MT, int WARPS, int STAGES, int BLOCKS> static gradient3_kernel kernel_of(float speed)
{
    return {MT * 16, STAGES, WARPS * WARP_LANES, BLOCKS, speed, gradient3_kernel_of<MT, WARPS, STAGES, BLOCKS>};
}

const gradient3_kernel *gradient3_kernels()
{
    /*
     * Speeds follow from the fragments that a warp loads for each of its products, and from the warps that share a
     * multiprocessor. Two stages where memory holds no three. Two blocks of 48 channels would leave a thread too few
     * registers.
     */
    static const gradient3_kernel kernels[] = {
        kernel_of<4, 8, 3, 1>(1),    kernel_of<4, 8, 2, 1>(0.9f), kernel_of<3, 6, 3, 1>(0.7f),
        kernel_of<2, 4, 3, 3>(0.7f), kernel_of<1, 2, 3, 5>(0.4f), {},
    };
    return kernels;
}

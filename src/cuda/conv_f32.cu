/*
 * Products and gradients in f32, without tensor cores, which would round their operands: for views that are f32 on both
 * sides. A block of 256 threads gives a tile of 64 x 64, a thread 4 x 4 of it. The next slice of the depth is read into
 * registers while the one in shared memory is multiplied.
 */
#include "cuda/conv_device.cuh"

constexpr int TILE = 64, DEPTH = 16, THREADS = 256, PITCH = TILE + 4, PER_THREAD = TILE * DEPTH / THREADS;

/** Two slices of both factors, depth by depth. */
struct f32_slices {
    __align__(16) float a[2][DEPTH][PITCH], b[2][DEPTH][PITCH];
};

static __device__ __forceinline__ void multiply_slice(float (&sums)[4][4], float (&row_sums)[4],
                                                      const f32_slices *slices, int slice)
{
    const int m = (int)threadIdx.x / 16 * 4, n = (int)threadIdx.x % 16 * 4;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        const floats4 a = *reinterpret_cast<const floats4 *>(&slices->a[slice][k][m]),
                      b = *reinterpret_cast<const floats4 *>(&slices->b[slice][k][n]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            row_sums[i] += a.v[i];
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[i][j] += a.v[i] * b.v[j];
        }
    }
}

static __device__ __forceinline__ float f32_at(uint64_t address)
{
    return *reinterpret_cast<const float *>((uintptr_t)address);
}

struct f32_product_memory {
    f32_slices slices;
    __align__(16) float tile[TILE * (TILE + CONV_GAP)];
    conv_row rows[TILE];
    int targets[TILE];
    conv_vectors<TILE> vectors;
};

/** Reads one step of the depth of a quarter of the rows. */
static __device__ __forceinline__ void read_rows(const conv_product &p, const conv_axis &h, const conv_axis &w,
                                                 const conv_place &at, const conv_row *rows,
                                                 float (&values)[PER_THREAD])
{
    const int dw = w.direction * at.tap_w;
    const int tap_h = h.direction * at.tap_h, dh = at.tap_h < h.taps ? tap_h : CONV_OUTSIDE;
    const uint64_t offset = (uint64_t)((cell_offset(p.source, tap_h, dw, at.cell) + at.group) * 4);
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) {
        const conv_row row = rows[threadIdx.x / DEPTH + i * (THREADS / DEPTH)];
        values[i] = row_meets(p.source, row, dh, dw) ? f32_at(row.address + offset) : 0;
    }
}

__global__ void __launch_bounds__(THREADS, 2) product_f32_kernel(const conv_product p)
{
    f32_product_memory *memory = shared_memory<f32_product_memory>();
    chain_wait();
    const int phases_w = conv_phases(p.w), phase = (int)blockIdx.y, tid = (int)threadIdx.x;
    const conv_axis h = conv_axis_of(p.h, phase / phases_w), w = conv_axis_of(p.w, phase % phases_w);
    const unsigned row_tile = blockIdx.x / (unsigned)p.column_tiles;
    const int column = (int)(blockIdx.x % (unsigned)p.column_tiles) * TILE;
    if ((uint64_t)row_tile * TILE >= (uint64_t)p.images * (unsigned)h.outputs * (unsigned)w.outputs)
        return;
    const int cells = p.source.factor * p.source.factor, depth = h.taps * w.taps * cells * p.groups;
    place_rows<TILE, THREADS, 4>(p, h, w, row_tile * TILE, memory->rows, memory->targets);
    place_vectors<TILE, THREADS>(p.store, column, &memory->vectors);
    block_sync();
    const floats4 *weights = reinterpret_cast<const floats4 *>(
        p.packed + phase * p.phase_bytes + ((int64_t)(tid / 16) * p.column_tiles * TILE + column + tid % 16 * 4) * 4);
    conv_place at = {};
    if (depth > 0)
        place_advance(at, tid % DEPTH, p.groups, cells, w.taps);
    float values[PER_THREAD] = {}, sums[4][4] = {}, unused[4] = {};
    for (int first = -DEPTH, slice = 1; first < depth; first += DEPTH, slice ^= 1) {
        floats4 loaded = {};
        const bool more = first + DEPTH < depth;
        if (more) {
            read_rows(p, h, w, at, memory->rows, values);
            place_advance(at, DEPTH, p.groups, cells, w.taps);
            loaded = *weights;
            weights += (int64_t)DEPTH * p.column_tiles * TILE / 4;
        }
        if (first >= 0)
            multiply_slice(sums, unused, &memory->slices, slice);
        if (more) {
#pragma unroll
            for (int i = 0; i < PER_THREAD; i++)
                memory->slices.a[slice ^ 1][tid % DEPTH][tid / DEPTH + i * (THREADS / DEPTH)] = values[i];
            *reinterpret_cast<floats4 *>(&memory->slices.b[slice ^ 1][tid / 16][tid % 16 * 4]) = loaded;
        }
        block_sync();
    }
    chain_release();
#pragma unroll
    for (int i = 0; i < 4; i++)
        *reinterpret_cast<floats4 *>(memory->tile + (tid / 16 * 4 + i) * (TILE + CONV_GAP) +
                                     tid % 16 * 4) = {{sums[i][0], sums[i][1], sums[i][2], sums[i][3]}};
    block_sync();
    float unsummed[8] = {}; /* no plan in f32 has slopes to sum */
    store_tile<TILE, TILE, THREADS>(p.store, memory->tile, memory->targets, &memory->vectors, column, unsummed);
}

struct f32_gradient_memory {
    f32_slices slices;
    conv_pixel pixels[2][DEPTH];
};

/** A thread's row and column of the factors: bytes from dy's pixel, and from tap 0 in x. */
struct f32_walk {
    uint64_t y, x;
    int dh, dw;
    bool row;
};

static __device__ __forceinline__ f32_walk walk_of(const conv_gradient &g, int row, int column)
{
    const int cell = row / g.dy.channels, tap = column / g.groups, dh = tap / g.w.kernel, dw = tap % g.w.kernel;
    return {(uint64_t)((cell_offset(g.dy, 0, 0, cell) + row - cell * g.dy.channels) * 4),
            (uint64_t)((cell_offset(g.x, dh, dw, 0) + column - tap * g.groups) * 4),
            column < g.columns ? dh : CONV_OUTSIDE, dw, row < g.rows};
}

static __device__ __forceinline__ void read_pixels(const conv_gradient &g, const f32_walk &walk,
                                                   const conv_pixel *pixels, float (&dy)[PER_THREAD],
                                                   float (&x)[PER_THREAD])
{
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) {
        const conv_pixel pixel = pixels[threadIdx.x / TILE + i * (THREADS / TILE)];
        dy[i] = walk.row && pixel.y != 0 ? f32_at(pixel.y + walk.y) : 0;
        x[i] = row_meets(g.x, pixel.x, walk.dh, walk.dw) ? f32_at(pixel.x.address + walk.x) : 0;
    }
}

__global__ void __launch_bounds__(THREADS, 2) gradient_f32_kernel(const conv_gradient group)
{
    chain_wait();
    const conv_gradient g = gradient_of_layer(group);
    f32_gradient_memory *memory = shared_memory<f32_gradient_memory>();
    const int tid = (int)threadIdx.x, row = (int)(blockIdx.x / (unsigned)g.column_tiles) * TILE,
              column = (int)(blockIdx.x % (unsigned)g.column_tiles) * TILE;
    const int first = (int)blockIdx.y * g.split_chunks, left = g.chunks - first,
              chunks = left < g.split_chunks ? left : g.split_chunks;
    const f32_walk walk = walk_of(g, row + tid % TILE, column + tid % TILE);
    float dy[PER_THREAD] = {}, x[PER_THREAD] = {}, sums[4][4] = {}, row_sums[4] = {};
    for (int chunk = -2; chunk < chunks; chunk++) {
        const bool more = chunk >= -1 && chunk + 1 < chunks;
        if (more)
            read_pixels(g, walk, memory->pixels[(chunk + 1) % 2], dy, x);
        if (tid < DEPTH)
            memory->pixels[chunk & 1][tid] = pixel_at(g, (unsigned)((first + chunk + 2) * DEPTH + tid), 4);
        if (chunk >= 0)
            multiply_slice(sums, row_sums, &memory->slices, chunk % 2);
        if (more) {
#pragma unroll
            for (int i = 0; i < PER_THREAD; i++) {
                memory->slices.a[(chunk + 1) % 2][tid / TILE + i * (THREADS / TILE)][tid % TILE] = dy[i];
                memory->slices.b[(chunk + 1) % 2][tid / TILE + i * (THREADS / TILE)][tid % TILE] = x[i];
            }
        }
        block_sync();
    }
    chain_release();
    float *partial = g.partials + blockIdx.y * g.partial_count;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int m = row + tid / 16 * 4 + i;
        if (m >= g.rows)
            continue;
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (column + tid % 16 * 4 + j < g.columns)
                partial[(int64_t)m * g.columns + column + tid % 16 * 4 + j] = sums[i][j];
        if (g.bias && column == 0 && tid % 16 == 0)
            partial[(int64_t)g.rows * g.columns + m] = row_sums[i];
    }
}

conv_product_kernel conv_product_in_f32()
{
    return {TILE, TILE, DEPTH * 4, THREADS, sizeof(f32_product_memory), 1, product_f32_kernel};
}

conv_gradient_kernel conv_gradient_in_f32()
{
    return {TILE, TILE, DEPTH, THREADS, sizeof(f32_gradient_memory), 1, gradient_f32_kernel};
}

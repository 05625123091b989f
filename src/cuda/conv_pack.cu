/* Around the products of convolutions: images copied into whole pieces, and weights packed. */
#include "cuda/conv_device.cuh"
#include "cuda/pack.cuh"

#include <cfloat>

/** Sixteen bytes of bf16 or s8 from 8 or 16 values. */
static __device__ __forceinline__ bytes16 piece_of(const float (&values)[8])
{
    bytes16 piece;
    for (int i = 0; i < 4; i++)
        piece.words[i] = bf16_pair(values[2 * i], values[2 * i + 1]);
    return piece;
}

/** To the nearest integer of -127 … 127, ties to even; NaN counts as 0. In the low eight bits. */
static __device__ __forceinline__ uint32_t rounded_to_s8(float scaled)
{
    const float value = scaled != scaled ? 0 : rintf(fminf(fmaxf(scaled, -127), 127));
    return (uint32_t)(int32_t)value & 0xFFu;
}

static __device__ __forceinline__ bytes16 piece_of(const float (&values)[16])
{
    bytes16 piece;
    for (int i = 0; i < 4; i++) {
        piece.words[i] = 0;
        for (int k = 0; k < 4; k++)
            piece.words[i] |= rounded_to_s8(values[4 * i + k]) << 8 * k;
    }
    return piece;
}

/* Copies of images. */

/** One channel of a pixel of the copy. */
static __device__ __forceinline__ float staged_value(const conv_staging &s, int n, int row, int column, int channel)
{
    const int cells = s.from.factor * s.from.factor, all = s.from.channels * cells;
    int w = column;
    if (s.folded.taps > 0) {
        const int tap = channel / all;
        channel -= tap * all;
        w = column * s.folded.step + s.folded.origin + s.folded.direction * tap;
        if (tap >= s.folded.taps || (unsigned)w >= (unsigned)s.from.w)
            return 0;
    } else if (channel >= all) {
        return 0;
    }
    const int cell = cells == 1 ? 0 : channel / s.from.channels;
    return element_load(s.from, pixel_offset(s.from, n, row, w) + cell_offset(s.from, 0, 0, cell) + channel -
                                    cell * s.from.channels);
}

template <int CHANNELS> __global__ void stage_kernel(conv_staging s)
{
    chain_wait();
    const int groups = (int)(s.to.stride / CHANNELS);
    const float factor = CHANNELS == 16 ? 127 / *s.int8_range : 1;
    const bool whole = s.folded.taps == 0 && s.from.factor == 1 && s.from.wide;
    for (int64_t piece = grid_first(); piece < s.pieces; piece += grid_step()) {
        const int64_t pixel = piece / groups, line = pixel / s.to.w, n = line / s.to.h;
        const int first = (int)(piece - pixel * groups) * CHANNELS, column = (int)(pixel - line * s.to.w),
                  row = (int)(line - n * s.to.h);
        float values[CHANNELS];
#pragma unroll
        for (int part = 0; part < CHANNELS / 8; part++) {
            float eight[8] = {};
            const int channel = first + part * 8;
            if (whole && channel < s.from.channels)
                load8(s.from, pixel_offset(s.from, (int)n, row, column) + channel, eight);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                if (!whole)
                    eight[i] = staged_value(s, (int)n, row, column, channel + i);
                values[part * 8 + i] = CHANNELS == 16 ? eight[i] * factor : eight[i];
            }
        }
        reinterpret_cast<bytes16 *>(s.to.data)[piece] = piece_of(values);
    }
}

cod_status conv_stage(cod_device *device, const conv_staging &staging, cudaStream_t stream)
{
    if (staging.from.data == nullptr)
        return COD_OK;
    const unsigned blocks = cuda_blocks(device, staging.pieces);
    if (staging.to.dtype == COD_S8)
        return cuda_launch_chained(device, stream, stage_kernel<16>, blocks, CUDA_THREADS, 0, staging);
    return cuda_launch_chained(device, stream, stage_kernel<8>, blocks, CUDA_THREADS, 0, staging);
}

/* Weights. */

/** What an element of a product's second factor is; zero in what only fills. `channel`: of the source, all cells. */
static __device__ __forceinline__ float packed_value(const conv_filter &f, const conv_side &side_w, const conv_axis &h,
                                                     const conv_axis &w, int column, const conv_place &at, int channel)
{
    const int sources = f.backward ? f.outputs : f.inputs;
    int k_w = w.kernel_first + w.kernel_step * at.tap_w;
    if (side_w.folded) {
        k_w = channel / sources;
        channel -= k_w * sources;
    }
    const int k_h = h.kernel_first + h.kernel_step * at.tap_h;
    if (column >= (f.backward ? f.inputs : f.outputs) || channel >= sources || k_w >= f.kernel_w || at.tap_h >= h.taps)
        return 0;
    const int o = conv_output_of(f.backward ? channel : column, f.outputs, f.factor), i = f.backward ? column : channel;
    return f.w[(((int64_t)o * f.kernel_h + k_h) * f.kernel_w + k_w) * f.stride + i];
}

/** The first of a piece's channels, all cells of the source counted. */
static __device__ __forceinline__ int channel_of(const conv_product &p, const conv_place &at, int per_group)
{
    return at.cell * p.source.channels + at.group * per_group;
}

template <int CHANNELS> __global__ void __launch_bounds__(CUDA_THREADS) pack_kernel(const cuda_pack_list list)
{
    const pack_place<conv_packing> place = pack_place_of<conv_packing>(list);
    const conv_packing &packing = *place.how;
    const int64_t number = place.item;
    if (number >= packing.count)
        return;
    const conv_product &p = packing.product;
    const int columns = packing.tile_columns, phases_w = conv_phases(p.w), cells = p.source.factor * p.source.factor;
    const int64_t phase_pieces = p.phase_bytes / CONV_PIECE,
                  chunks = phase_pieces / p.column_tiles / columns / CONV_PIECES;
    const int phase = (int)(number / phase_pieces);
    const int64_t in_phase = number - phase * phase_pieces, line = in_phase / CONV_PIECES, chunk = line / columns;
    const int column = (int)(chunk / chunks) * columns + (int)(line % columns);
    const int piece = (int)(chunk % chunks) * CONV_PIECES + (int)(in_phase % CONV_PIECES);
    const conv_axis h = conv_axis_of(p.h, phase / phases_w), w = conv_axis_of(p.w, phase % phases_w);
    const int tap = piece / (cells * p.groups), rest = piece - tap * cells * p.groups;
    float values[CHANNELS] = {};
    if (h.taps * w.taps > 0) {
        const conv_place at = {tap / w.taps, tap % w.taps, rest / p.groups, rest % p.groups};
        const int channel = channel_of(p, at, CHANNELS);
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
            values[i] = packed_value(packing.filter, p.w, h, w, column, at, channel + i);
    }
    if (CHANNELS == 16 && column < p.store.columns) {
#pragma unroll
        for (int i = 0; i < CHANNELS; i++)
            values[i] *= packing.scales[column];
    }
    reinterpret_cast<bytes16 *>(const_cast<unsigned char *>(p.packed))[number] = piece_of(values);
}

/** Depth and columns are both filled up to whole tiles. */
__global__ void __launch_bounds__(CUDA_THREADS) pack_f32_kernel(const cuda_pack_list list)
{
    const pack_place<conv_packing> place = pack_place_of<conv_packing>(list);
    const conv_packing &packing = *place.how;
    const int64_t number = place.item;
    if (number >= packing.count)
        return;
    const conv_product &p = packing.product;
    const int phases_w = conv_phases(p.w), cells = p.source.factor * p.source.factor,
              all = p.column_tiles * packing.tile_columns;
    const int64_t phase_count = p.phase_bytes / 4;
    const int phase = (int)(number / phase_count), step = (int)((number - phase * phase_count) / all);
    const conv_axis h = conv_axis_of(p.h, phase / phases_w), w = conv_axis_of(p.w, phase % phases_w);
    const int tap = step / (cells * p.groups), rest = step - tap * cells * p.groups;
    float value = 0;
    if (h.taps * w.taps > 0) {
        const conv_place at = {tap / w.taps, tap % w.taps, rest / p.groups, rest % p.groups};
        value = packed_value(packing.filter, p.w, h, w, (int)(number % all), at, channel_of(p, at, 1));
    }
    reinterpret_cast<float *>(const_cast<unsigned char *>(p.packed))[number] = value;
}

/** A warp for each output channel. A weight that is not finite makes the factor infinite, and the sum, 0, NaN. */
__global__ void __launch_bounds__(WARP_LANES) scales_kernel(const cuda_pack_list list)
{
    const pack_place<conv_packing> place = pack_place_of<conv_packing>(list);
    const conv_packing &packing = *place.how;
    const conv_filter &f = packing.filter;
    const int column = place.block, o = conv_output_of(column, f.outputs, f.factor);
    const int64_t positions = (int64_t)f.kernel_h * f.kernel_w, count = positions * f.inputs;
    float largest = 0;
    for (int64_t k = threadIdx.x; k < count; k += WARP_LANES) {
        const float size = fabsf(f.w[(o * positions + k / f.inputs) * f.stride + k % f.inputs]);
        largest = fmaxf(largest, size <= FLT_MAX ? size : INFINITY);
    }
    largest = warp_max(largest);
    const float factor = *packing.int8_range / 127 * (largest / 127);
    if (threadIdx.x == 0) {
        packing.scales[column] = factor < 1e-30f ? 0 : 127 / largest;
        packing.factors[column] = factor;
    }
}

cuda_packing conv_packing_of(const conv_packing *how, const conv_packing &packing, cod_dtype dtype)
{
    const unsigned blocks = cuda_item_blocks(packing.count);
    if (dtype == COD_S8)
        return {how, pack_kernel<16>, blocks, scales_kernel, static_cast<unsigned>(packing.filter.outputs)};
    return {how, dtype == COD_BF16 ? pack_kernel<8> : pack_f32_kernel, blocks, nullptr, 0};
}

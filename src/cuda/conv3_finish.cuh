/**
 * @file
 * From the sums of a block's warps to those of the whole launch (conv3.cuh). Everything is added in an order that
 * depends on the launch alone.
 */
#ifndef COD_CUDA_CONV3_FINISH_CUH
#define COD_CUDA_CONV3_FINISH_CUH

#include "cuda/conv3_store.cuh"
#include "cuda/sums.cuh"

/** Threads that share the sum of one quad of channels, at most. */
enum { CONV3_MOST_PARTS = 32 };

/** Writes the block's partial sums, of `warps` warps along the pixels. */
template <int STORE, int COLUMNS>
static __device__ __forceinline__ void write_partials(const conv3_work &work, int warps)
{
    const unsigned char *shared = shared_memory<unsigned char>();
    const float *sums = reinterpret_cast<const float *>(shared + work.places.sums);
    const float *counts = reinterpret_cast<const float *>(shared + work.places.counts);
    float *out = work.partials + (int64_t)blockIdx.x * work.lists + blockIdx.y * COLUMNS;
    for (int i = (int)threadIdx.x; i < COLUMNS; i += (int)blockDim.x) {
        float total[CONV3_SUMS] = {}, seen = 0;
        for (int warp = 0; warp < warps; warp++) {
            const float *from = sums + warp * CONV3_SUMS * COLUMNS + i, count = counts[warp];
            if (STORE == CONV3_STATISTICS && count > 0) {
                const float apart = from[0] - total[0], part = count / (seen + count);
                total[0] += apart * part;
                total[1] += from[COLUMNS] + apart * apart * seen * part;
                seen += count;
            } else if (STORE == CONV3_REDUCE) {
#pragma unroll
                for (int kind = 0; kind < CONV3_SUMS; kind++)
                    total[kind] += from[kind * COLUMNS];
            }
        }
        out[i] = total[0];
        out[work.outputs + i] = total[1];
        out[2 * work.outputs + i] = STORE == CONV3_STATISTICS ? seen : total[2];
    }
}

static __device__ __forceinline__ void read_quad(const float *from, float (&out)[4])
{
    uint32_t words[4];
    read16(words, reinterpret_cast<const unsigned char *>(from));
#pragma unroll
    for (int e = 0; e < 4; e++)
        out[e] = f32_from_word(words[e]);
}

/** How the last block's threads share `lists` sums over the blocks: by quads of them and by blocks. */
struct conv3_share {
    int quads, parts, quad, part;
};

static __device__ __forceinline__ conv3_share share_of(int lists)
{
    const int quads = lists / 4, most = (int)blockDim.x / quads,
              parts = most < CONV3_MOST_PARTS ? most : CONV3_MOST_PARTS;
    return {quads, parts, (int)threadIdx.x % quads, (int)threadIdx.x / quads};
}

/**
 * The last block's part of statistics: joins those of the blocks, with distances from the first block's mean (see
 * norm.cu).
 */
static __device__ __forceinline__ void finish_statistics(const conv3_work &work)
{
    float *shared = shared_memory<float>();
    const int outputs = work.outputs;
    const conv3_share by = share_of(outputs);
    float distance[4] = {}, squares[4] = {}, origin[4];
    read_quad(work.partials + by.quad * 4, origin);
    if (by.part < by.parts)
#pragma unroll 4
        for (int block = by.part; block < (int)gridDim.x; block += by.parts) {
            const float *from = work.partials + (int64_t)block * work.lists + by.quad * 4;
            float mean[4], apart[4], count[4];
            read_quad(from, mean);
            read_quad(from + outputs, apart);
            read_quad(from + 2 * outputs, count);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float d = mean[e] - origin[e], weighted = count[e] * d;
                distance[e] += weighted;
                squares[e] += apart[e] + weighted * d;
            }
        }
    if (by.part < by.parts)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            shared[2 * by.part * outputs + by.quad * 4 + e] = distance[e];
            shared[(2 * by.part + 1) * outputs + by.quad * 4 + e] = squares[e];
        }
    block_sync();
    const float count = (float)work.images * (float)work.h * (float)work.w;
    for (int c = (int)threadIdx.x; c < outputs; c += (int)blockDim.x) {
        float far = 0, all = 0;
        for (int part = 0; part < by.parts; part++) {
            far += shared[2 * part * outputs + c];
            all += shared[(2 * part + 1) * outputs + c];
        }
        const float off = far / count, variance = fmaxf((all - far * off) / count, 0);
        statistics_put(work.store.statistics, c, work.partials[c] + off, variance, count);
    }
}

static __device__ __forceinline__ void put_sum(float *to, float value, bool accumulate)
{
    *to = accumulate ? *to + value : value;
}

/** The last block's part of a normalisation's gradient. */
static __device__ __forceinline__ void finish_reduction(const conv3_work &work)
{
    const conv3_store &store = work.store;
    const int outputs = work.outputs, lists = (store.dslope != NULL ? 3 : 2) * outputs;
    const conv3_share by = share_of(lists);
    float *shared = shared_memory<float>(), *totals = shared + blockDim.x * 4, sums[4] = {};
    if (by.part < by.parts) {
#pragma unroll 8
        for (int block = by.part; block < (int)gridDim.x; block += by.parts) {
            float from[4];
            read_quad(work.partials + (int64_t)block * work.lists + by.quad * 4, from);
#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[e] += from[e];
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            shared[by.part * lists + by.quad * 4 + e] = sums[e];
    }
    block_sync();
    for (int i = (int)threadIdx.x; i < lists; i += (int)blockDim.x) {
        float total = 0;
        for (int part = 0; part < by.parts; part++)
            total += shared[part * lists + i];
        totals[i] = total;
    }
    block_sync();
    for (int c = (int)threadIdx.x; c < outputs; c += (int)blockDim.x) {
        const float dgamma = totals[outputs + c] * store.inv_std[c];
        store.sums[c] = totals[c];
        store.sums[outputs + c] = dgamma;
        put_sum(&store.dbeta[c], totals[c], store.accumulate);
        put_sum(&store.dgamma[c], dgamma, store.accumulate);
        if (store.dslope_by_channel)
            put_sum(&store.dslope[c], totals[2 * outputs + c], store.accumulate);
    }
    if (threadIdx.x == 0 && store.dslope != NULL && !store.dslope_by_channel) {
        float slope = 0;
        for (int c = 0; c < outputs; c++)
            slope += totals[2 * outputs + c];
        put_sum(store.dslope, slope, store.accumulate);
    }
}

/** All threads of the block come here when its last tile is stored. */
template <int STORE, int COLUMNS> static __device__ __forceinline__ void finish_block(const conv3_work &work, int warps)
{
    if constexpr (conv3_sums_of(STORE) > 0) {
        block_sync();
        write_partials<STORE, COLUMNS>(work, warps);
        if (!block_is_last(work.ticket))
            return;
        if constexpr (STORE == CONV3_STATISTICS)
            finish_statistics(work);
        else
            finish_reduction(work);
    }
}

#endif

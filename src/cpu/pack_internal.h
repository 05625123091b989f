/**
 * @file
 * Weights in the blocked layouts that products read, rounded to their type.
 *
 * A *pack* keeps one such copy of some weights. An OPTIMISER plan that writes these weights renews the packs that were
 * used since it last did, while what it wrote is still in the cache; see cpu_plans_prepare_updated().
 */
#ifndef COD_CPU_PACK_INTERNAL_H
#define COD_CPU_PACK_INTERNAL_H

#include "core/backend.h"

/**
 * Where a layout has its elements: weight (o, y, x, i) is element o_at[o] + i_at[i] + y·h_stride + x·w_stride. What
 * lies between these elements is padding, and zero.
 */
typedef struct cpu_packing {
    cod_shape shape; /**< n = O outputs, h and w of the kernel, c = I inputs */
    cod_dtype dtype; /**< F32 or BF16 */
    int64_t h_stride, w_stride;
    int64_t *o_at, *i_at; /**< [O], [I]; behind the struct, in one block with it */
} cpu_packing;

/** @param[out] out  new, its tables unset; cod_aligned_free() */
COD_MUST_CHECK cod_status cpu_packing_create(cod_shape shape, cod_dtype dtype, cpu_packing **out);

/** f32 weights with strides: weight (o, y, x, i) is data[o·o_stride + y·h_stride + x·w_stride + i·i_stride]. */
typedef struct cpu_weights {
    const float *data;
    int64_t o_stride, h_stride, w_stride, i_stride; /**< of O and I, one is 1 */
} cpu_weights;

/** OHWI of this shape. */
cpu_weights cpu_weights_of(const float *data, cod_shape shape);
/** w[o][y][x][i] as w[i][KH-1-y][KW-1-x][o]: what a convolution of dy that gives dx multiplies by. */
cpu_weights cpu_weights_flipped(const float *data, cod_shape shape);

typedef struct cpu_pack cpu_pack;

/**
 * @param      packing  taken, also on failure
 * @param      weights  of the packing's shape; their data is borrowed
 * @param      bytes    of the layout, padding included
 * @param[out] out      new, known to the device, nothing packed yet; cpu_pack_destroy()
 */
COD_MUST_CHECK cod_status cpu_pack_create(cod_device *device, cpu_packing *packing, const cpu_weights *weights,
                                          size_t bytes, cpu_pack **out);
/** NULL is fine. */
void cpu_pack_destroy(cpu_pack *pack);
void *cpu_pack_memory(const cpu_pack *pack);
/** Packs all weights, on the device's threads. */
void cpu_pack_renew(cpu_pack *pack);
/** Notes that it is used, and says whether it holds what the last OPTIMISER plan wrote. */
bool cpu_pack_is_current(cpu_pack *pack);

/** Weights of some packs that an update can renew as it writes them. */
typedef struct cpu_packed_weights {
    cpu_pack *first, *end; /**< in the device's list */
    int64_t at, count;     /**< elements, from the beginning of the updated ones on */
    int64_t bands, band;   /**< the weights are so many bands of so many elements, the last one may be shorter */
} cpu_packed_weights;

/**
 * The next weights, from element `from` on, of packs that an update of params[count] is to renew. Packs of other
 * weights that it passes are noted as no longer current.
 *
 * @param[in,out] packed  {0} before the first call
 * @return false: there are none
 */
bool cpu_packs_next(const cod_device *device, const float *params, int64_t count, cpu_packed_weights *packed);
/** Packs a band, which has just been written; from several threads at once, a band each. */
void cpu_packs_renew_band(const cpu_packed_weights *packed, int64_t band);
/** All bands are packed. */
void cpu_packs_renewed(const cpu_packed_weights *packed);

#endif

/**
 * @file
 * The decoded pictures of a node, in a block.
 */
#ifndef COD_DATA_STORE_INTERNAL_H
#define COD_DATA_STORE_INTERNAL_H

#include "data/block_internal.h"
#include "data/source_internal.h"

/** One source in the store. */
typedef struct cod_stored {
    int32_t low_width, low_height;
    uint64_t broken; /**< whether it cannot be used; the reason, a string, lies at `offset` */
    uint64_t offset; /**< of the low-resolution pixels, followed by the high-resolution ones; 0 = not held */
} cod_stored;

typedef struct cod_store {
    cod_block block;
    const unsigned char *base; /**< the block's */
    const cod_stored *pictures;
    size_t pixel_bytes; /**< held */
} cod_store;

/** Chooses sources that will never be read: they are not decoded and take no memory. */
typedef struct cod_store_choice {
    /**
     * Sets left_out[i] of such sources. @param pictures [sources], with the sizes and `broken` as the headers give them
     */
    void (*leave_out)(const void *context, const cod_stored *pictures, bool *left_out);
    const void *context;
    uint64_t key; /**< hash of everything else that the choice depends on */
} cod_store_choice;

/**
 * Finds the store of these sources or builds it, decoding with one thread per processor that this process may use.
 *
 * @param limit_bytes  of pixels; pictures that do not fit are left out, and then count as broken only if their header
 *                     is damaged
 * @param choice       which sources are left out in any case
 * @param report       whether to warn that the pictures do not fit into /dev/shm
 * @param[out] store   end with cod_store_close(); zeroed on failure
 */
COD_MUST_CHECK cod_status cod_store_open(cod_store *store, const cod_source_list *sources, size_t limit_bytes,
                                         const cod_store_choice *choice, bool report);
void cod_store_close(cod_store *store);

#endif

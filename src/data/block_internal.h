/**
 * @file
 * Memory that one process of a node fills and all read: a shared file, or private memory if sharing is not possible.
 */
#ifndef COD_DATA_BLOCK_INTERNAL_H
#define COD_DATA_BLOCK_INTERNAL_H

#include "data/shared_file_internal.h"

/** Zeroed = none. */
typedef struct cod_block {
    unsigned char *base; /**< at a 64-byte boundary */
    size_t bytes;
    bool is_shared;
    cod_shared_file shared;
} cod_block;

/**
 * Finds the node's block for a key, and waits while another process fills it.
 *
 * @param report  whether to warn if processes cannot share
 * @return whether the block exists and is filled; if not, this process must reserve, fill and complete it
 */
bool cod_block_open(cod_block *block, uint64_t key, bool report);
COD_MUST_CHECK cod_status cod_block_reserve(cod_block *block, size_t bytes, bool report);
COD_MUST_CHECK cod_status cod_block_complete(cod_block *block);
/** Releases the memory, also of a block that was never completed. */
void cod_block_close(cod_block *block);

#endif

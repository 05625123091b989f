/**
 * @file
 * f32 as 8-bit integers in blocks that share a scale, about a quarter of the bytes: the INT8 payload of
 * core/chunk_format.h, and the coding of gradients inside a group.
 */
#ifndef COD_CORE_INT8_BLOCKS_H
#define COD_CORE_INT8_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COD_INT8_BLOCK_LOG2 = 8 /**< of what we code: 256 values, 3.97x with bf16 scales */ };

typedef struct cod_int8_blocks {
    unsigned log2;    /**< of a block's values */
    bool bf16_scales; /**< 2-byte scales, else 4 */
} cod_int8_blocks;

uint64_t cod_int8_blocks_bytes(const cod_int8_blocks *blocks, uint64_t count);

/** Rounds to the nearest multiple of the block's scale; a block with NaN or infinity becomes all NaN. */
void cod_int8_blocks_pack(const cod_int8_blocks *blocks, const float *values, size_t count, unsigned char *out);
void cod_int8_blocks_unpack(const cod_int8_blocks *blocks, const unsigned char *in, size_t count, float *values);

#endif

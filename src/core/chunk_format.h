/**
 * @file
 * The bytes of an encoded chunk: how weights travel between groups, through windows, files and checkpoints.
 *
 * A chunk stands alone: it names its coding, the values that it holds, its lengths and a checksum. All numbers are
 * little-endian, at the offsets below, whatever the machine; nothing is read through a C struct. A shard is chunks back
 * to back, without padding.
 *
 * The checksum is XXH3-64 of everything behind it (the rest of the header and the payload), with a seed made of run,
 * publisher, version, range and, for a delta, the fingerprint (core/fingerprint.h) of the reference's values. None of
 * these is stored in the chunk, so that an old chunk, a chunk of another publisher or a delta against values that the
 * receiver does not hold fails the check.
 *
 * A *plain* chunk is an uncompressed chunk on its way to or from a device (ops QUANTISE and DEQUANTISE of
 * core/backend.h). Its header is stored apart from its payload. In place of the checksum, a header from QUANTISE has
 * the fingerprint of the decoded values, and a header for DEQUANTISE has the byte at which the payload begins.
 *
 * Payload before compression, for `count` values:
 *   F32   count f32
 *   BF16  count bfloat16
 *   INT8  scale of each block of 2^parameter values (the last may be shorter), f32 or bfloat16, then count signed
 *   bytes;
 *         value = byte * scale of its block
 *   STEP  step f32; u32 number of escaped values; a code of b = 2^parameter = 2, 4 or 8 bits a value, the first in the
 *         lowest bits of a byte; then an i16 for each escaped value, whose code is 2^b - 1.
 *         n = code - (2^(b-1) - 1), or the i16; value = n * step, for a DELTA that + the reference's value, each
 *         operation rounded to f32
 *
 * How encoders choose a step; every device must do this alike, because the ranks of a group must find the same step. A
 * chunk is a delta if the sum of squares of its change is less than that of its values. step =
 * sqrt(12·w/count)·10^(-dB/20) with w the sum of the values' squares, so that the uniform rounding error has the
 * requested signal-to-noise ratio; but step is at least the largest change / COD_CHUNK_STEP_MOST. Squares are summed in
 * f32 by COD_CHUNK_STEP_LANES within a block (value i in lane i modulo lanes), and the lanes of block after block in
 * f64. n is the change / step, rounded to nearest, halves away from zero, by product with f32(1/step). Codes have 2 or
 * 4 bits where at most one in COD_CHUNK_STEP_FEW values is escaped, else 8. A chunk whose step is not in
 * COD_CHUNK_LEAST_STEP … FLT_MAX, or whose payload would be beyond cod_chunk_step_bound(), is INT8 with blocks of
 * COD_INT8_BLOCK_LOG2 and bfloat16 scales.
 */
#ifndef COD_CORE_CHUNK_FORMAT_H
#define COD_CORE_CHUNK_FORMAT_H

#include <stdint.h>

enum {
    COD_CHUNK_AT_CHECKSUM = 0,      /**< u64 */
    COD_CHUNK_AT_MAGIC = 8,         /**< u32 COD_CHUNK_MAGIC */
    COD_CHUNK_AT_CODING = 12,       /**< u8 cod_chunk_coding */
    COD_CHUNK_AT_FLAGS = 13,        /**< u8 cod_chunk_flag */
    COD_CHUNK_AT_PARAMETER = 14,    /**< u8, INT8: log2 of a block's values; STEP: log2 of a code's bits; else 0 */
    COD_CHUNK_AT_ZERO = 15,         /**< u8 0 */
    COD_CHUNK_AT_COUNT = 16,        /**< u32 values */
    COD_CHUNK_AT_STORED_BYTES = 20, /**< u32 bytes of payload that follow the header */
    COD_CHUNK_AT_FIRST = 24,        /**< u64 index of the first value in the checkpoint */
    COD_CHUNK_HEADER_BYTES = 32,
};

/** "CDC1" read as little-endian. */
#define COD_CHUNK_MAGIC UINT32_C(0x31434443)

typedef enum cod_chunk_coding {
    COD_CHUNK_F32 = 0,
    COD_CHUNK_BF16 = 1,
    COD_CHUNK_INT8 = 2,
    COD_CHUNK_STEP = 3,
} cod_chunk_coding;

typedef enum cod_chunk_flag {
    COD_CHUNK_LZ4 = 1,         /**< the payload is one LZ4 block */
    COD_CHUNK_BF16_SCALES = 2, /**< INT8: scales are bfloat16, else f32 */
    COD_CHUNK_ZSTD = 4,        /**< the payload is a zstd frame */
    COD_CHUNK_DELTA = 8,       /**< STEP: against values that the receiver holds */
} cod_chunk_flag;

enum {
    COD_CHUNK_STEP_PREFIX_BYTES = 8, /**< of STEP, before the codes */
    COD_CHUNK_STEP_BLOCK = 1024,     /**< values whose squares are summed in f32 first, by COD_CHUNK_STEP_LANES */
    COD_CHUNK_STEP_LANES = 4,
    COD_CHUNK_STEP_FEW = 64, /**< one in so many values may be escaped by codes of 2 or 4 bits */
    COD_CHUNK_STEP_MOST = INT16_MAX
};

/** With smaller steps the squares of weights underflow: such chunks are coded as INT8. */
#define COD_CHUNK_LEAST_STEP 1e-15

/** Longest STEP payload that an encoder makes. A chunk that would need more is coded as INT8. */
static inline uint64_t cod_chunk_step_bound(uint64_t count)
{
    return 16 + count + count / 4;
}

/** The largest step that codes of 2^parameter bits hold; the code after it says that the step is escaped. */
static inline int cod_chunk_largest_step(unsigned parameter)
{
    return (1 << ((1 << parameter) - 1)) - 1;
}

/** Bytes of the codes of `count` values. */
static inline uint64_t cod_chunk_code_bytes(unsigned parameter, uint64_t count)
{
    return (count * (UINT64_C(1) << parameter) + 7) / 8;
}

static inline void cod_store_u16(unsigned char *at, uint16_t value)
{
    at[0] = (unsigned char)value;
    at[1] = (unsigned char)(value >> 8);
}

static inline void cod_store_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static inline void cod_store_u64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static inline uint16_t cod_load_u16(const unsigned char *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t cod_load_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t cod_load_u64(const unsigned char *at)
{
    return (uint64_t)cod_load_u32(at) | (uint64_t)cod_load_u32(at + 4) << 32;
}

#endif

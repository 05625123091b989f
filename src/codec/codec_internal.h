/**
 * @file
 * What the files of the codec share: how a chunk's payload is laid out, and the compressors behind it.
 */
#ifndef COD_CODEC_CODEC_INTERNAL_H
#define COD_CODEC_CODEC_INTERNAL_H

#include "codec/codec.h"
#include "core/int8_blocks.h"

/** How one chunk is coded: a chunk to encode, or a header just read. */
typedef struct coding {
    cod_chunk_coding kind;
    bool bf16_scales, delta;
    unsigned parameter; /**< INT8: log2 of its blocks; STEP: log2 of the bits of a code */
} coding;

/** Working memory for one chunk of up to `chunk_values` values, cut from one allocation. */
typedef struct codec_scratch {
    unsigned char *payload; /**< [codec_payload_room()] before compression */
    unsigned char *codes;   /**< [chunk_values] */
    int16_t *steps;         /**< [chunk_values] */
} codec_scratch;

/** A value takes 4 bytes as f32, and 5 at most as int8 (blocks of one value, each with a scale). */
static inline size_t codec_payload_room(uint32_t chunk_values)
{
    return 5 * (size_t)chunk_values + 16;
}

codec_scratch codec_scratch_of(const cod_codec *codec);

/** Payload bytes of a coding whose length depends on the count alone, which is every coding but STEP. */
uint64_t codec_fixed_bytes(const coding *how, uint64_t count);
void codec_pack(const coding *how, const float *values, size_t count, unsigned char *out);
void codec_unpack(const coding *how, const unsigned char *in, size_t count, float *values);

/* STEP: see step.c. */

/**
 * Turns values into multiples of a step, in scratch->steps, ready for codec_step_write().
 *
 * @param reference  [count] what the receiver holds, or NULL
 * @param how        STEP, with `delta` if the reference makes it shorter; another kind if no step fits
 * @return the step
 */
float codec_step_quantise(const float *values, const float *reference, size_t count, const cod_codec_options *options,
                          const codec_scratch *scratch, coding *how);
/** Writes scratch->steps to scratch->payload, sets how->parameter and returns the payload's length. */
uint64_t codec_step_write(const codec_scratch *scratch, size_t count, float step, coding *how);
/** Computes the values that a reader decodes from scratch->steps; `values` may be `reference`. */
void codec_step_apply(const codec_scratch *scratch, size_t count, float step, const float *reference, float *values);
/** Reads an untrusted payload into scratch->steps. @return what is wrong with it, or NULL */
const char *codec_step_read(const coding *how, const unsigned char *payload, uint64_t bytes, size_t count,
                            const codec_scratch *scratch, float *step);

/* Compression: see entropy.c. */

/** Memory of the libraries; NULL where the options need none. */
typedef struct codec_compressor codec_compressor;
COD_MUST_CHECK cod_status codec_compressor_create(codec_compressor **out);
void codec_compressor_destroy(codec_compressor *compressor);
/** Bytes written to `out`, at most `room`; 0 when it does not fit. */
uint64_t codec_compress(codec_compressor *compressor, cod_codec_entropy entropy, const unsigned char *in,
                        uint64_t bytes, unsigned char *out, uint64_t room);
/** Bytes written to `out`, at most `room`; 0 when `in`, untrusted, is damaged or does not fit. */
uint64_t codec_decompress(codec_compressor *compressor, cod_codec_entropy entropy, const unsigned char *in,
                          uint64_t bytes, unsigned char *out, uint64_t room);

#endif

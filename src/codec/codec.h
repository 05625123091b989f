/**
 * @file
 * The exchange codec: turns a range of f32 weights into independent, checked chunks (core/chunk_format.h) and back.
 *
 * Encoding and decoding go a few chunks a call, so that a training loop can spread them over its steps. Decoding trusts
 * nothing: every length is checked before it is used, and values that are not finite are refused.
 *
 * A range may be coded against a *reference*, which is values that the receiver holds bit for bit: chunks are then
 * deltas where that is shorter. A delta is always the difference between the true values and the values that receivers
 * decoded last. The error of one version is therefore part of the next delta, and errors never add up (error feedback).
 */
#ifndef COD_CODEC_CODEC_H
#define COD_CODEC_CODEC_H

#include "core/chunk_format.h"
#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    COD_CODEC_MIN_CHUNK = 256,
    COD_CODEC_MAX_CHUNK = 1 << 20, /**< values; bounds the scratch of a decoder */
    COD_CODEC_MIN_DB = 6,          /**< of STEP; above the highest, bf16 is the better choice */
    COD_CODEC_MAX_DB = 48,
};

/** Entropy coder of a chunk's payload, used where it makes the payload shorter. */
typedef enum cod_codec_entropy {
    COD_CODEC_PLAIN,
    COD_CODEC_LZ4,
    COD_CODEC_ZSTD,
    COD_CODEC_ENTROPIES
} cod_codec_entropy;

typedef struct cod_codec_options {
    cod_chunk_coding coding;
    cod_codec_entropy entropy;
    bool bf16_scales;      /**< int8: 2-byte scales, else 4 */
    uint32_t chunk_values; /**< values in a chunk, COD_CODEC_MIN_CHUNK … COD_CODEC_MAX_CHUNK */
    double quality_db; /**< STEP: signal-to-noise ratio of the weights in dB, COD_CODEC_MIN_DB … COD_CODEC_MAX_DB */
    float rounding;    /**< STEP: a change of q steps is coded as trunc(q ± rounding); above 0, at most 0.5 */
} cod_codec_options;

/** Part of a checkpoint: values first … first+count-1. Values from index `exact_from` on are always coded as f32. */
typedef struct cod_codec_range {
    uint64_t first, count, exact_from;
} cod_codec_range;

/** The run, publisher and version that a chunk must belong to; the key and the range seed the checksum. */
typedef struct cod_codec_key {
    uint64_t run, publisher, version;
} cod_codec_key;

/** Largest number of bytes that encoding `range` can take. */
uint64_t cod_codec_bound(const cod_codec_options *options, const cod_codec_range *range);

/** Chunks that `range` is cut into. */
uint64_t cod_codec_chunk_count(const cod_codec_options *options, const cod_codec_range *range);

/** An encoding or decoding under way, a few chunks a call; in the caller's storage. */
typedef struct cod_codec {
    cod_codec_options options;
    cod_codec_range range;
    cod_codec_key key;
    uint64_t done;                          /**< values of the range encoded or decoded */
    uint64_t bytes;                         /**< bytes written or read */
    unsigned char *scratch;                 /**< for one chunk */
    const unsigned char *payload;           /**< of the chunk encoded last, before it was shortened */
    uint64_t payload_values, payload_bytes; /**< likewise */
    unsigned char *trial;                   /**< of cod_codec_try_coders() */
    struct codec_compressor *compressor;
} cod_codec;

/**
 * Makes a codec for `options`, with scratch for one chunk. Of the later calls only the first one allocates, inside
 * zstd.
 * @return COD_ERR_ARGUMENT for a chunk length or quality out of range
 */
COD_MUST_CHECK cod_status cod_codec_init(cod_codec *codec, const cod_codec_options *options);
void cod_codec_clear(cod_codec *codec);

/** Begins another range, from its first chunk. */
void cod_codec_begin(cod_codec *codec, const cod_codec_range *range, const cod_codec_key *key);

static inline bool cod_codec_finished(const cod_codec *codec)
{
    return codec->done == codec->range.count;
}

/**
 * Encodes up to `max_chunks` more chunks.
 *
 * @param values      [range.count] the whole range's values
 * @param reference   [range.count] what receivers hold, or NULL
 * @param[out] out    [capacity] bytes, at least cod_codec_bound(); codec->bytes of them are filled so far
 * @param[out] decoded [range.count] what a reader will decode, filled as far as codec->done; may be NULL, or
 *   `reference`
 * @return COD_ERR_NUMERIC when a value is not finite: the range cannot be published
 */
COD_MUST_CHECK cod_status cod_codec_encode(cod_codec *codec, const float *values, const float *reference,
                                           uint64_t max_chunks, unsigned char *out, uint64_t capacity, float *decoded);

/**
 * Decodes up to `max_chunks` more chunks of the range; any coding is accepted, whatever the options say.
 *
 * @param data        [bytes] the whole shard, untrusted
 * @param reference   [range.count] values that the chunks may be deltas against, or NULL; they must have the
 *                    publisher's bits
 * @param[out] values [range.count]; filled as far as codec->done, and after a failure not to be used
 * @return COD_ERR_FORMAT with the reason when a chunk is damaged, cut off, not of this key, range and reference, or
 *         followed by more bytes than the range needs; COD_ERR_NUMERIC when a value is not finite
 */
COD_MUST_CHECK cod_status cod_codec_decode(cod_codec *codec, const unsigned char *data, uint64_t bytes,
                                           const float *reference, uint64_t max_chunks, float *values);

/** Bytes and time of one chunk with each entropy coder. */
typedef struct cod_codec_trial {
    uint64_t values_bytes;                /**< as f32 */
    double seconds[COD_CODEC_ENTROPIES];  /**< processor time to shorten and lengthen its payload */
    uint64_t stored[COD_CODEC_ENTROPIES]; /**< bytes */
} cod_codec_trial;

/** Tries all coders on the chunk that was encoded last. Only the first call allocates. */
COD_MUST_CHECK cod_status cod_codec_try_coders(cod_codec *codec, cod_codec_trial *out);

/* A chunk whose payload is made, or read, on a device: plain chunks (core/chunk_format.h), one a call. */

enum { COD_CODEC_PLAIN_ALIGNMENT = 16 /**< bytes: payloads of plain chunks begin at multiples of it */ };

/** Room for a plain payload of this many bytes, with the padding after it. */
static inline uint64_t cod_codec_plain_bytes(uint64_t bytes)
{
    return (bytes + COD_CODEC_PLAIN_ALIGNMENT - 1) / COD_CODEC_PLAIN_ALIGNMENT * COD_CODEC_PLAIN_ALIGNMENT;
}

/** Room for one payload of a plain chunk: the distance between the beginnings of two payloads. */
static inline uint64_t cod_codec_plain_room(const cod_codec_options *options)
{
    return cod_codec_plain_bytes(4 * (uint64_t)options->chunk_values + 16);
}

/**
 * Writes the headers of the range's plain chunks for op QUANTISE; each says how its chunk is to be coded.
 *
 * @param[out] heads [cod_codec_chunk_count()][COD_CHUNK_HEADER_BYTES]
 */
void cod_codec_plan(const cod_codec_options *options, const cod_codec_range *range, unsigned char *heads);

/**
 * Shortens the range's next chunk and seals it with its checksum.
 *
 * @param head         [COD_CHUNK_HEADER_BYTES] as op QUANTISE made it
 * @param payload      [cod_codec_plain_room()] likewise, as long as the header says; borrowed until the next call of the codec
 * @param reference    fingerprint of the chunk's reference; not read unless the chunk is a delta
 * @param[out] out     [capacity] as of cod_codec_encode()
 * @return COD_ERR_NUMERIC when a value is not finite: the range cannot be published
 */
COD_MUST_CHECK cod_status cod_codec_seal(cod_codec *codec, const unsigned char *head, const unsigned char *payload,
                                         uint64_t reference, unsigned char *out, uint64_t capacity);

/**
 * Checks the range's next chunk and makes it plain, for op DEQUANTISE. Only the op finds values that are not finite.
 * Any coding is accepted; if the op lacks it, the chunk is converted to f32.
 *
 * @param data          [bytes] as of cod_codec_decode()
 * @param reference     fingerprint of the values that the chunk may be a delta against; NULL = there are none
 * @param[out] head     [COD_CHUNK_HEADER_BYTES] with 0 in the place of the checksum
 * @param[out] payload  [cod_codec_plain_room()] at a 4-byte boundary
 * @return as cod_codec_decode()
 */
COD_MUST_CHECK cod_status cod_codec_open(cod_codec *codec, const unsigned char *data, uint64_t bytes,
                                         const uint64_t *reference, unsigned char *head, unsigned char *payload);

/**
 * Codes and decodes up to `max_chunks` more chunks without making bytes: gives the values that a reader will decode.
 */
COD_MUST_CHECK cod_status cod_codec_round_trip(cod_codec *codec, const float *values, const float *reference,
                                               uint64_t max_chunks, float *decoded);

/** The libraries behind it and their versions, such as "LZ4 1.9.4, zstd 1.5.4". */
void cod_codec_library(char *text, size_t bytes);

#endif

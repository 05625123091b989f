#include "distill/codec.h"

#include "core/hash.h"
#include "core/memory.h"
#include "core/tensor.h"

#include <float.h>
#include <lz4.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Payloads are little-endian arrays; on the machines we build for that is the machine's own order, and copying is enough. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "swap the payload's bytes on a big-endian machine");
_Static_assert(sizeof(float) == 4, "payloads are IEEE single precision");

/** How one chunk is coded; of ours or of a header just read. */
typedef struct coding {
    cod_chunk_coding kind;
    bool bf16_scales;
    unsigned block_log2;
} coding;

/** One chunk's place in its checkpoint. */
typedef struct piece {
    uint64_t first;
    uint32_t count;
} piece;

static uint64_t block_count(const coding *how, uint64_t count)
{
    return (count + (UINT64_C(1) << how->block_log2) - 1) >> how->block_log2;
}

static uint64_t raw_bytes(const coding *how, uint64_t count)
{
    switch (how->kind) {
    case COD_CHUNK_F32:
        return 4 * count;
    case COD_CHUNK_BF16:
        return 2 * count;
    case COD_CHUNK_INT8:
        return count + block_count(how, count) * (how->bf16_scales ? 2 : 4);
    }
    return 0;
}

/** The chunk that starts `done` values into the range; none spans exact_from. */
static piece piece_at(const cod_codec_options *options, const cod_codec_range *range, uint64_t done)
{
    const uint64_t first = range->first + done, end = range->first + range->count;
    uint64_t count = end - first;
    if (first < range->exact_from && range->exact_from < end)
        count = range->exact_from - first;
    return (piece){first, (uint32_t)(count < options->chunk_values ? count : options->chunk_values)};
}

static coding coding_of(const cod_codec_options *options, const cod_codec_range *range, uint64_t first)
{
    if (first >= range->exact_from || options->coding == COD_CHUNK_F32)
        return (coding){.kind = COD_CHUNK_F32};
    if (options->coding == COD_CHUNK_BF16)
        return (coding){.kind = COD_CHUNK_BF16};
    return (coding){.kind = COD_CHUNK_INT8, .bf16_scales = options->bf16_scales, .block_log2 = COD_CODEC_BLOCK_LOG2};
}

uint64_t cod_codec_bound(const cod_codec_options *options, const cod_codec_range *range)
{
    uint64_t bytes = 0;
    for (uint64_t done = 0; done < range->count;) {
        const piece part = piece_at(options, range, done);
        const coding how = coding_of(options, range, part.first);
        bytes += COD_CHUNK_HEADER_BYTES + raw_bytes(&how, part.count);
        done += part.count;
    }
    return bytes;
}

uint64_t cod_codec_chunk_count(const cod_codec_options *options, const cod_codec_range *range)
{
    uint64_t chunks = 0;
    for (uint64_t done = 0; done < range->count; chunks++)
        done += piece_at(options, range, done).count;
    return chunks;
}

cod_status cod_codec_init(cod_codec *codec, const cod_codec_options *options)
{
    COD_REQUIRE(options->chunk_values >= COD_CODEC_MIN_CHUNK && options->chunk_values <= COD_CODEC_MAX_CHUNK,
                "a chunk holds %d to %d values, not %u", COD_CODEC_MIN_CHUNK, COD_CODEC_MAX_CHUNK,
                options->chunk_values);
    *codec = (cod_codec){.options = *options};
    /* f32 is the longest payload that a header can name, int8 blocks of one value with their scales apart. */
    void *scratch = NULL;
    COD_TRY(cod_aligned_alloc(&scratch, (size_t)options->chunk_values * 5));
    codec->scratch = scratch;
    return COD_OK;
}

void cod_codec_clear(cod_codec *codec)
{
    cod_aligned_free(codec->scratch);
    *codec = (cod_codec){0};
}

void cod_codec_begin(cod_codec *codec, const cod_codec_range *range, const cod_codec_key *key)
{
    codec->range = *range;
    codec->key = *key;
    codec->done = 0;
    codec->bytes = 0;
}

static uint64_t seed_of(const cod_codec_key *key, const piece *part)
{
    unsigned char name[40];
    cod_store_u64(name, key->run);
    cod_store_u64(name + 8, key->publisher);
    cod_store_u64(name + 16, key->version);
    cod_store_u64(name + 24, part->first);
    cod_store_u64(name + 32, part->count);
    return cod_hash(name, sizeof name, 0);
}

/** No branch per value: an exponent of all ones anywhere sets the top bit. */
static bool all_finite(const float *values, size_t count)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits &= 0x7F800000u;
        worst = bits > worst ? bits : worst;
    }
    return worst != 0x7F800000u;
}

/** Rounded away from zero, so that no quotient exceeds 127. */
static uint16_t bf16_scale(float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return (uint16_t)((bits + 0xFFFFu) >> 16);
}

/** The scale of a block whose largest magnitude is `largest`; 127 times it stays finite, and tiny blocks become zero. */
static float block_scale(float largest, bool bf16)
{
    float scale = largest / 127.0f;
    if (scale < FLT_MIN)
        return 0;
    if (bf16)
        scale = cod_f32_from_bf16(bf16_scale(scale));
    while (!isfinite(127.0f * scale))
        scale = bf16 ? cod_f32_from_bf16((uint16_t)(bf16_scale(scale) - 1)) : nextafterf(scale, 0);
    return scale;
}

static void pack_int8(const coding *how, const float *values, size_t count, unsigned char *out)
{
    const size_t block = (size_t)1 << how->block_log2, scale_bytes = how->bf16_scales ? 2 : 4;
    signed char *bytes = (signed char *)out + block_count(how, count) * scale_bytes;
    for (size_t at = 0; at < count; at += block, out += scale_bytes) {
        const size_t n = count - at < block ? count - at : block;
        float largest = 0;
        for (size_t i = 0; i < n; i++) {
            const float magnitude = fabsf(values[at + i]);
            largest = magnitude > largest ? magnitude : largest;
        }
        const float scale = block_scale(largest, how->bf16_scales), inverse = scale > 0 ? 1 / scale : 0;
        if (how->bf16_scales)
            cod_store_u16(out, bf16_scale(scale));
        else
            memcpy(out, &scale, sizeof scale);
        for (size_t i = 0; i < n; i++) {
            const float quotient = values[at + i] * inverse;
            const float clipped = quotient > 127.0f ? 127.0f : quotient < -127.0f ? -127.0f : quotient;
            bytes[at + i] = (signed char)(int)(clipped + (clipped < 0 ? -0.5f : 0.5f));
        }
    }
}

static void unpack_int8(const coding *how, const unsigned char *in, size_t count, float *values)
{
    const size_t block = (size_t)1 << how->block_log2, scale_bytes = how->bf16_scales ? 2 : 4;
    const signed char *bytes = (const signed char *)in + block_count(how, count) * scale_bytes;
    for (size_t at = 0; at < count; at += block, in += scale_bytes) {
        const size_t n = count - at < block ? count - at : block;
        float scale;
        if (how->bf16_scales)
            scale = cod_f32_from_bf16(cod_load_u16(in));
        else
            memcpy(&scale, in, sizeof scale);
        for (size_t i = 0; i < n; i++)
            values[at + i] = (float)bytes[at + i] * scale;
    }
}

static void pack(const coding *how, const float *values, size_t count, unsigned char *out)
{
    switch (how->kind) {
    case COD_CHUNK_F32:
        memcpy(out, values, 4 * count);
        break;
    case COD_CHUNK_BF16:
        for (size_t i = 0; i < count; i++) {
            const uint16_t rounded = cod_bf16_from_f32(values[i]);
            /* The largest floats would round to infinity, which readers refuse. */
            cod_store_u16(out + 2 * i, (rounded & 0x7FFFu) == 0x7F80u ? (uint16_t)(rounded - 1) : rounded);
        }
        break;
    case COD_CHUNK_INT8:
        pack_int8(how, values, count, out);
        break;
    }
}

static void unpack(const coding *how, const unsigned char *in, size_t count, float *values)
{
    switch (how->kind) {
    case COD_CHUNK_F32:
        memcpy(values, in, 4 * count);
        break;
    case COD_CHUNK_BF16:
        for (size_t i = 0; i < count; i++)
            values[i] = cod_f32_from_bf16(cod_load_u16(in + 2 * i));
        break;
    case COD_CHUNK_INT8:
        unpack_int8(how, in, count, values);
        break;
    }
}

static cod_status check_finite(const float *values, const piece *part)
{
    if (all_finite(values, part->count))
        return COD_OK;
    return cod_fail(COD_ERR_NUMERIC, "the chunk of values %llu to %llu holds NaN or infinity",
                    (unsigned long long)part->first, (unsigned long long)(part->first + part->count - 1));
}

/** Writes one chunk and returns its length; `out` has room for the payload before LZ4. */
static uint64_t write_chunk(const cod_codec *codec, const coding *how, const piece *part, const float *values,
                            unsigned char *out)
{
    unsigned char *payload = out + COD_CHUNK_HEADER_BYTES;
    const uint64_t raw = raw_bytes(how, part->count);
    uint64_t stored = raw;
    unsigned flags = how->bf16_scales ? COD_CHUNK_BF16_SCALES : 0;
    if (codec->options.lz4) {
        pack(how, values, part->count, codec->scratch);
        const int packed = LZ4_compress_default((const char *)codec->scratch, (char *)payload, (int)raw, (int)raw - 1);
        if (packed > 0) {
            stored = (uint64_t)packed;
            flags |= COD_CHUNK_LZ4;
        } else {
            memcpy(payload, codec->scratch, raw);
        }
    } else {
        pack(how, values, part->count, payload);
    }
    cod_store_u32(out + COD_CHUNK_AT_MAGIC, COD_CHUNK_MAGIC);
    out[COD_CHUNK_AT_CODING] = (unsigned char)how->kind;
    out[COD_CHUNK_AT_FLAGS] = (unsigned char)flags;
    out[COD_CHUNK_AT_BLOCK_LOG2] = (unsigned char)how->block_log2;
    out[COD_CHUNK_AT_ZERO] = 0;
    cod_store_u32(out + COD_CHUNK_AT_COUNT, part->count);
    cod_store_u32(out + COD_CHUNK_AT_STORED_BYTES, (uint32_t)stored);
    cod_store_u64(out + COD_CHUNK_AT_FIRST, part->first);
    const uint64_t bytes = COD_CHUNK_HEADER_BYTES + stored;
    cod_store_u64(out + COD_CHUNK_AT_CHECKSUM,
                  cod_hash(out + COD_CHUNK_AT_MAGIC, bytes - COD_CHUNK_AT_MAGIC, seed_of(&codec->key, part)));
    return bytes;
}

cod_status cod_codec_encode(cod_codec *codec, const float *values, uint64_t max_chunks, unsigned char *out,
                            uint64_t capacity, float *decoded)
{
    for (; max_chunks > 0 && !cod_codec_finished(codec); max_chunks--) {
        const piece part = piece_at(&codec->options, &codec->range, codec->done);
        const coding how = coding_of(&codec->options, &codec->range, part.first);
        const float *from = values + codec->done;
        COD_REQUIRE(capacity - codec->bytes >= COD_CHUNK_HEADER_BYTES + raw_bytes(&how, part.count),
                    "%llu bytes are too few for the encoded range", (unsigned long long)capacity);
        COD_TRY(check_finite(from, &part));
        unsigned char *chunk = out + codec->bytes;
        codec->bytes += write_chunk(codec, &how, &part, from, chunk);
        if (decoded != NULL) {
            const bool lz4 = (chunk[COD_CHUNK_AT_FLAGS] & COD_CHUNK_LZ4) != 0;
            unpack(&how, lz4 ? codec->scratch : chunk + COD_CHUNK_HEADER_BYTES, part.count, decoded + codec->done);
        }
        codec->done += part.count;
    }
    return COD_OK;
}

cod_status cod_codec_round_trip(cod_codec *codec, const float *values, uint64_t max_chunks, float *decoded)
{
    for (; max_chunks > 0 && !cod_codec_finished(codec); max_chunks--) {
        const piece part = piece_at(&codec->options, &codec->range, codec->done);
        const coding how = coding_of(&codec->options, &codec->range, part.first);
        COD_TRY(check_finite(values + codec->done, &part));
        pack(&how, values + codec->done, part.count, codec->scratch);
        unpack(&how, codec->scratch, part.count, decoded + codec->done);
        codec->done += part.count;
    }
    return COD_OK;
}

/** Says which chunk the reason just recorded is about. */
static void name_chunk(const piece *part)
{
    (void)cod_fail_prefix(COD_ERR_FORMAT, "chunk of values %llu to %llu", (unsigned long long)part->first,
                          (unsigned long long)(part->first + part->count - 1));
}

#define REJECT(part, ...) ((void)cod_fail(COD_ERR_FORMAT, __VA_ARGS__), name_chunk(part), COD_ERR_FORMAT)

/** Reads the header at `in`, of which `bytes` are there, and checks all that it says against what must be. */
static cod_status read_header(const cod_codec *codec, const piece *part, const unsigned char *in, uint64_t bytes,
                              coding *how, uint64_t *stored, bool *lz4)
{
    if (bytes < COD_CHUNK_HEADER_BYTES)
        return REJECT(part, "cut off in its header");
    if (cod_load_u32(in + COD_CHUNK_AT_MAGIC) != COD_CHUNK_MAGIC)
        return REJECT(part, "not a chunk of this format");
    *stored = cod_load_u32(in + COD_CHUNK_AT_STORED_BYTES);
    if (*stored > bytes - COD_CHUNK_HEADER_BYTES)
        return REJECT(part, "cut off in its payload");
    const uint64_t checksum = cod_hash(in + COD_CHUNK_AT_MAGIC, COD_CHUNK_HEADER_BYTES + *stored - COD_CHUNK_AT_MAGIC,
                                       seed_of(&codec->key, part));
    if (cod_load_u64(in + COD_CHUNK_AT_CHECKSUM) != checksum)
        return REJECT(part, "wrong checksum: damaged, or of another version");

    /* A chunk that is intact may still come from a faulty or newer program: what follows guards every later use. */
    const unsigned flags = in[COD_CHUNK_AT_FLAGS], kind = in[COD_CHUNK_AT_CODING], log2 = in[COD_CHUNK_AT_BLOCK_LOG2];
    const bool int8 = kind == COD_CHUNK_INT8;
    if (kind > COD_CHUNK_INT8 || (flags & ~(unsigned)(COD_CHUNK_LZ4 | COD_CHUNK_BF16_SCALES)) != 0 ||
        in[COD_CHUNK_AT_ZERO] != 0 || (int8 ? log2 > 20 : log2 != 0 || (flags & COD_CHUNK_BF16_SCALES) != 0))
        return REJECT(part, "unknown coding %u, flags %u, block %u", kind, flags, log2);
    if (cod_load_u64(in + COD_CHUNK_AT_FIRST) != part->first || cod_load_u32(in + COD_CHUNK_AT_COUNT) != part->count)
        return REJECT(part, "holds other values");
    *lz4 = (flags & COD_CHUNK_LZ4) != 0;
    *how = (coding){(cod_chunk_coding)kind, (flags & COD_CHUNK_BF16_SCALES) != 0, log2};
    const uint64_t raw = raw_bytes(how, part->count);
    if (*lz4 ? *stored >= raw : *stored != raw)
        return REJECT(part, "%llu bytes stored where %llu are needed", (unsigned long long)*stored,
                      (unsigned long long)raw);
    return COD_OK;
}

cod_status cod_codec_decode(cod_codec *codec, const unsigned char *data, uint64_t bytes, uint64_t max_chunks,
                            float *values)
{
    for (; max_chunks > 0 && !cod_codec_finished(codec); max_chunks--) {
        const piece part = piece_at(&codec->options, &codec->range, codec->done);
        const unsigned char *in = data + codec->bytes;
        coding how;
        uint64_t stored = 0;
        bool lz4 = false;
        COD_TRY(read_header(codec, &part, in, bytes - codec->bytes, &how, &stored, &lz4));
        const unsigned char *payload = in + COD_CHUNK_HEADER_BYTES;
        if (lz4) {
            const int raw = (int)raw_bytes(&how, part.count);
            if (LZ4_decompress_safe((const char *)payload, (char *)codec->scratch, (int)stored, raw) != raw)
                return REJECT(&part, "LZ4 data is damaged");
            payload = codec->scratch;
        }
        unpack(&how, payload, part.count, values + codec->done);
        COD_TRY(check_finite(values + codec->done, &part));
        codec->done += part.count;
        codec->bytes += COD_CHUNK_HEADER_BYTES + stored;
    }
    if (cod_codec_finished(codec) && codec->bytes != bytes)
        return cod_fail(COD_ERR_FORMAT, "%llu bytes follow the shard's last chunk",
                        (unsigned long long)(bytes - codec->bytes));
    return COD_OK;
}

void cod_codec_library(char *text, size_t bytes)
{
    snprintf(text, bytes, "LZ4 %s", LZ4_versionString());
}

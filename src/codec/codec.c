#include "codec/codec_internal.h"

#include "core/fingerprint.h"
#include "core/hash.h"
#include "core/memory.h"

#include <string.h>

/** One chunk's place in its checkpoint. */
typedef struct piece {
    uint64_t first;
    uint32_t count;
} piece;

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
    if (first >= range->exact_from)
        return (coding){.kind = COD_CHUNK_F32};
    if (options->coding == COD_CHUNK_INT8)
        return (coding){.kind = COD_CHUNK_INT8, .bf16_scales = options->bf16_scales, .parameter = COD_INT8_BLOCK_LOG2};
    return (coding){.kind = options->coding};
}

static uint64_t chunk_bound(const coding *how, uint64_t count)
{
    return COD_CHUNK_HEADER_BYTES +
           (how->kind == COD_CHUNK_STEP ? cod_chunk_step_bound(count) : codec_fixed_bytes(how, count));
}

uint64_t cod_codec_bound(const cod_codec_options *options, const cod_codec_range *range)
{
    uint64_t bytes = 0;
    for (uint64_t done = 0; done < range->count;) {
        const piece part = piece_at(options, range, done);
        const coding how = coding_of(options, range, part.first);
        bytes += chunk_bound(&how, part.count);
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
    COD_REQUIRE(options->coding != COD_CHUNK_STEP ||
                    (options->quality_db >= COD_CODEC_MIN_DB && options->quality_db <= COD_CODEC_MAX_DB),
                "steps are chosen for %d to %d dB, not %g", COD_CODEC_MIN_DB, COD_CODEC_MAX_DB, options->quality_db);
    COD_REQUIRE(options->coding != COD_CHUNK_STEP || (options->rounding > 0 && options->rounding <= 0.5f),
                "steps are rounded by more than 0 and at most 0.5, not %g", (double)options->rounding);
    *codec = (cod_codec){.options = *options};
    void *scratch = NULL;
    COD_TRY(cod_aligned_alloc(&scratch, codec_payload_room(options->chunk_values) + 3 * (size_t)options->chunk_values));
    codec->scratch = scratch;
    return codec_compressor_create(&codec->compressor);
}

void cod_codec_clear(cod_codec *codec)
{
    cod_aligned_free(codec->scratch);
    cod_aligned_free(codec->trial);
    codec_compressor_destroy(codec->compressor);
    *codec = (cod_codec){0};
}

codec_scratch codec_scratch_of(const cod_codec *codec)
{
    const size_t room = codec_payload_room(codec->options.chunk_values), count = codec->options.chunk_values;
    /* The steps first, which are of two bytes. */
    return (codec_scratch){.steps = (int16_t *)(void *)codec->scratch,
                           .payload = codec->scratch + 2 * count,
                           .codes = codec->scratch + 2 * count + room};
}

void cod_codec_begin(cod_codec *codec, const cod_codec_range *range, const cod_codec_key *key)
{
    codec->range = *range;
    codec->key = *key;
    codec->done = 0;
    codec->bytes = 0;
}

/** `reference`: the fingerprint of what a delta is against, NULL for none: made with other bits, it never passes. */
static uint64_t seed_of(const cod_codec_key *key, const piece *part, const uint64_t *reference)
{
    unsigned char name[48];
    cod_store_u64(name, key->run);
    cod_store_u64(name + 8, key->publisher);
    cod_store_u64(name + 16, key->version);
    cod_store_u64(name + 24, part->first);
    cod_store_u64(name + 32, part->count);
    if (reference == NULL)
        return cod_hash(name, 40, 0);
    cod_store_u64(name + 40, *reference);
    return cod_hash(name, sizeof name, 0);
}

/** No branch per value. */
static bool all_finite(const float *values, size_t count)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return found == 0;
}

static cod_status fail_not_finite(const piece *part)
{
    return cod_fail(COD_ERR_NUMERIC, "the chunk of values %llu to %llu holds NaN or infinity",
                    (unsigned long long)part->first, (unsigned long long)(part->first + part->count - 1));
}

static cod_status check_finite(const float *values, const piece *part)
{
    return all_finite(values, part->count) ? COD_OK : fail_not_finite(part);
}

/** Decides how a chunk is coded; of STEP the steps are in scratch then. */
static cod_status choose_coding(const cod_codec *codec, const piece *part, const float *values, const float *reference,
                                coding *how, float *step)
{
    const codec_scratch scratch = codec_scratch_of(codec);
    *how = coding_of(&codec->options, &codec->range, part->first);
    *step = 0;
    if (how->kind == COD_CHUNK_STEP)
        *step = codec_step_quantise(values, reference, part->count, &codec->options, &scratch, how);
    /* Values of which there is a step are finite: their squares were summed. */
    return how->kind == COD_CHUNK_STEP ? COD_OK : check_finite(values, part);
}

static void write_head(unsigned char *head, const coding *how, unsigned flags, const piece *part, uint64_t stored)
{
    cod_store_u64(head + COD_CHUNK_AT_CHECKSUM, 0);
    cod_store_u32(head + COD_CHUNK_AT_MAGIC, COD_CHUNK_MAGIC);
    head[COD_CHUNK_AT_CODING] = (unsigned char)how->kind;
    head[COD_CHUNK_AT_FLAGS] =
        (unsigned char)(flags | (how->bf16_scales ? COD_CHUNK_BF16_SCALES : 0) | (how->delta ? COD_CHUNK_DELTA : 0));
    head[COD_CHUNK_AT_PARAMETER] = (unsigned char)how->parameter;
    head[COD_CHUNK_AT_ZERO] = 0;
    cod_store_u32(head + COD_CHUNK_AT_COUNT, part->count);
    cod_store_u32(head + COD_CHUNK_AT_STORED_BYTES, (uint32_t)stored);
    cod_store_u64(head + COD_CHUNK_AT_FIRST, part->first);
}

/** Makes a chunk's payload in scratch and returns its length. */
static uint64_t make_payload(const cod_codec *codec, coding *how, const piece *part, const float *values, float step)
{
    const codec_scratch scratch = codec_scratch_of(codec);
    if (how->kind == COD_CHUNK_STEP)
        return codec_step_write(&scratch, part->count, step, how);
    codec_pack(how, values, part->count, scratch.payload);
    return codec_fixed_bytes(how, part->count);
}

/** Writes the chunk whose payload is given, and moves to the next one; `out` has room for chunk_bound(). */
static void write_chunk(cod_codec *codec, const coding *how, const piece *part, const unsigned char *payload,
                        uint64_t raw, const uint64_t *reference, unsigned char *out)
{
    unsigned flags = 0;
    uint64_t stored = 0;
    codec->payload = payload;
    codec->payload_values = part->count;
    codec->payload_bytes = raw;
    if (codec->options.entropy != COD_CODEC_PLAIN)
        stored = codec_compress(codec->compressor, codec->options.entropy, payload, raw, out + COD_CHUNK_HEADER_BYTES,
                                raw - 1);
    if (stored > 0) {
        flags = codec->options.entropy == COD_CODEC_LZ4 ? COD_CHUNK_LZ4 : COD_CHUNK_ZSTD;
    } else {
        memcpy(out + COD_CHUNK_HEADER_BYTES, payload, raw);
        stored = raw;
    }
    write_head(out, how, flags, part, stored);
    const uint64_t bytes = COD_CHUNK_HEADER_BYTES + stored;
    cod_store_u64(out + COD_CHUNK_AT_CHECKSUM, cod_hash(out + COD_CHUNK_AT_MAGIC, bytes - COD_CHUNK_AT_MAGIC,
                                                        seed_of(&codec->key, part, how->delta ? reference : NULL)));
    codec->bytes += bytes;
    codec->done += part->count;
}

static const float *at_or_null(const float *values, uint64_t at)
{
    return values != NULL ? values + at : NULL;
}

cod_status cod_codec_encode(cod_codec *codec, const float *values, const float *reference, uint64_t max_chunks,
                            unsigned char *out, uint64_t capacity, float *decoded)
{
    const codec_scratch scratch = codec_scratch_of(codec);
    for (; max_chunks > 0 && !cod_codec_finished(codec); max_chunks--) {
        const piece part = piece_at(&codec->options, &codec->range, codec->done);
        const coding planned = coding_of(&codec->options, &codec->range, part.first);
        const float *from = values + codec->done, *held = at_or_null(reference, codec->done);
        float step;
        COD_REQUIRE(capacity - codec->bytes >= chunk_bound(&planned, part.count),
                    "%llu bytes are too few for the encoded range", (unsigned long long)capacity);
        coding how;
        COD_TRY(choose_coding(codec, &part, from, held, &how, &step));
        const uint64_t print = how.delta ? cod_fingerprint(held, part.count) : COD_FINGERPRINT_NONE;
        const uint64_t raw = make_payload(codec, &how, &part, from, step);
        if (decoded != NULL && how.kind == COD_CHUNK_STEP)
            codec_step_apply(&scratch, part.count, step, how.delta ? held : NULL, decoded + codec->done);
        else if (decoded != NULL)
            codec_unpack(&how, scratch.payload, part.count, decoded + codec->done);
        write_chunk(codec, &how, &part, scratch.payload, raw, &print, out + codec->bytes);
    }
    return COD_OK;
}

void cod_codec_plan(const cod_codec_options *options, const cod_codec_range *range, unsigned char *heads)
{
    for (uint64_t done = 0; done < range->count; heads += COD_CHUNK_HEADER_BYTES) {
        const piece part = piece_at(options, range, done);
        const coding how = coding_of(options, range, part.first);
        write_head(heads, &how, 0, &part, 0);
        done += part.count;
    }
}

cod_status cod_codec_seal(cod_codec *codec, const unsigned char *head, const unsigned char *payload, uint64_t reference,
                          unsigned char *out, uint64_t capacity)
{
    const piece part = piece_at(&codec->options, &codec->range, codec->done);
    const coding planned = coding_of(&codec->options, &codec->range, part.first);
    const coding how = {.kind = (cod_chunk_coding)head[COD_CHUNK_AT_CODING],
                        .bf16_scales = (head[COD_CHUNK_AT_FLAGS] & COD_CHUNK_BF16_SCALES) != 0,
                        .delta = (head[COD_CHUNK_AT_FLAGS] & COD_CHUNK_DELTA) != 0,
                        .parameter = head[COD_CHUNK_AT_PARAMETER]};
    const uint64_t raw = cod_load_u32(head + COD_CHUNK_AT_STORED_BYTES);
    if (cod_load_u64(head + COD_CHUNK_AT_CHECKSUM) == COD_FINGERPRINT_NONE)
        return fail_not_finite(&part);
    COD_REQUIRE(capacity - codec->bytes >= chunk_bound(&planned, part.count),
                "%llu bytes are too few for the encoded range", (unsigned long long)capacity);
    COD_REQUIRE(cod_load_u64(head + COD_CHUNK_AT_FIRST) == part.first &&
                    cod_load_u32(head + COD_CHUNK_AT_COUNT) == part.count &&
                    COD_CHUNK_HEADER_BYTES + raw <= chunk_bound(&planned, part.count),
                "the chunk was made for other values, or by another backend's coding");
    write_chunk(codec, &how, &part, payload, raw, &reference, out + codec->bytes);
    return COD_OK;
}

cod_status cod_codec_round_trip(cod_codec *codec, const float *values, const float *reference, uint64_t max_chunks,
                                float *decoded)
{
    const codec_scratch scratch = codec_scratch_of(codec);
    for (; max_chunks > 0 && !cod_codec_finished(codec); max_chunks--) {
        const piece part = piece_at(&codec->options, &codec->range, codec->done);
        const float *from = values + codec->done, *held = at_or_null(reference, codec->done);
        float step;
        coding how;
        COD_TRY(choose_coding(codec, &part, from, held, &how, &step));
        if (how.kind == COD_CHUNK_STEP) {
            codec_step_apply(&scratch, part.count, step, how.delta ? held : NULL, decoded + codec->done);
        } else {
            codec_pack(&how, from, part.count, scratch.payload);
            codec_unpack(&how, scratch.payload, part.count, decoded + codec->done);
        }
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

/** A chunk: the content of its header, and its payload. */
typedef struct chunk {
    coding how;
    uint64_t stored;
    bool compressed;
    cod_codec_entropy entropy;
} chunk;

static bool is_known(const coding *how, unsigned flags, unsigned zero)
{
    const unsigned all = COD_CHUNK_LZ4 | COD_CHUNK_BF16_SCALES | COD_CHUNK_ZSTD | COD_CHUNK_DELTA;
    if (how->kind > COD_CHUNK_STEP || (flags & ~all) != 0 || zero != 0 ||
        ((flags & COD_CHUNK_LZ4) != 0 && (flags & COD_CHUNK_ZSTD) != 0))
        return false;
    if (how->kind == COD_CHUNK_STEP)
        return how->parameter >= 1 && how->parameter <= 3 && !how->bf16_scales;
    if (how->kind == COD_CHUNK_INT8)
        return how->parameter <= 20 && !how->delta;
    return how->parameter == 0 && !how->bf16_scales && !how->delta;
}

/** The reference of a delta: its values, or only their fingerprint. Both NULL = there is none. */
typedef struct held {
    const float *values;
    const uint64_t *print;
} held;

/** Reads the header at `in`, of which `bytes` are there, and checks all that it says against what must be. */
static cod_status read_header(const cod_codec *codec, const piece *part, const unsigned char *in, uint64_t bytes,
                              held reference, chunk *out)
{
    if (bytes < COD_CHUNK_HEADER_BYTES)
        return REJECT(part, "cut off in its header");
    if (cod_load_u32(in + COD_CHUNK_AT_MAGIC) != COD_CHUNK_MAGIC)
        return REJECT(part, "not a chunk of this format");
    const unsigned flags = in[COD_CHUNK_AT_FLAGS], kind = in[COD_CHUNK_AT_CODING];
    const bool delta = (flags & COD_CHUNK_DELTA) != 0;
    if (delta && reference.values == NULL && reference.print == NULL)
        return REJECT(part, "a delta without what it is against");
    const uint64_t stored = cod_load_u32(in + COD_CHUNK_AT_STORED_BYTES);
    if (stored > bytes - COD_CHUNK_HEADER_BYTES)
        return REJECT(part, "cut off in its payload");
    uint64_t print = COD_FINGERPRINT_NONE;
    if (delta)
        print = reference.print != NULL ? *reference.print : cod_fingerprint(reference.values, part->count);
    const uint64_t checksum = cod_hash(in + COD_CHUNK_AT_MAGIC, COD_CHUNK_HEADER_BYTES + stored - COD_CHUNK_AT_MAGIC,
                                       seed_of(&codec->key, part, delta ? &print : NULL));
    if (cod_load_u64(in + COD_CHUNK_AT_CHECKSUM) != checksum)
        return REJECT(part, "wrong checksum: damaged, or of another version");

    /* A chunk that is intact may still come from a faulty or newer program: what follows guards every later use. */
    *out = (chunk){.how = {.kind = (cod_chunk_coding)kind,
                           .bf16_scales = (flags & COD_CHUNK_BF16_SCALES) != 0,
                           .delta = delta,
                           .parameter = in[COD_CHUNK_AT_PARAMETER]},
                   .stored = stored,
                   .compressed = (flags & (COD_CHUNK_LZ4 | COD_CHUNK_ZSTD)) != 0,
                   .entropy = (flags & COD_CHUNK_LZ4) != 0 ? COD_CODEC_LZ4 : COD_CODEC_ZSTD};
    if (!is_known(&out->how, flags, in[COD_CHUNK_AT_ZERO]))
        return REJECT(part, "unknown coding %u, flags %u, parameter %u", kind, flags, out->how.parameter);
    if (cod_load_u64(in + COD_CHUNK_AT_FIRST) != part->first || cod_load_u32(in + COD_CHUNK_AT_COUNT) != part->count)
        return REJECT(part, "holds other values");
    return COD_OK;
}

/**
 * Lengthens one checked chunk's payload, untrusted like all of it, and checks its length; the steps of STEP are in
 * scratch then.
 *
 * @param[in,out] payload  moves to scratch where it was shortened
 */
static cod_status lengthen(const cod_codec *codec, const piece *part, const chunk *c, const unsigned char **payload,
                           uint64_t *raw, float *step)
{
    const codec_scratch scratch = codec_scratch_of(codec);
    const uint64_t room = codec_payload_room(codec->options.chunk_values);
    const uint64_t fixed = codec_fixed_bytes(&c->how, part->count);
    *raw = c->stored;
    if (c->compressed) {
        *raw = codec_decompress(codec->compressor, c->entropy, *payload, c->stored, scratch.payload,
                                c->how.kind == COD_CHUNK_STEP ? room : fixed);
        if (*raw == 0)
            return REJECT(part, "its compressed payload is damaged");
        *payload = scratch.payload;
    }
    if (c->how.kind == COD_CHUNK_STEP) {
        const char *wrong = codec_step_read(&c->how, *payload, *raw, part->count, &scratch, step);
        return wrong != NULL ? REJECT(part, "%s", wrong) : COD_OK;
    }
    if (*raw != fixed)
        return REJECT(part, "%llu bytes where %llu are needed", (unsigned long long)*raw, (unsigned long long)fixed);
    return COD_OK;
}

static cod_status read_payload(const cod_codec *codec, const piece *part, const chunk *c, const unsigned char *payload,
                               const float *reference, float *values)
{
    const codec_scratch scratch = codec_scratch_of(codec);
    uint64_t raw;
    float step;
    COD_TRY(lengthen(codec, part, c, &payload, &raw, &step));
    if (c->how.kind == COD_CHUNK_STEP)
        codec_step_apply(&scratch, part->count, step, c->how.delta ? reference : NULL, values);
    else
        codec_unpack(&c->how, payload, part->count, values);
    return check_finite(values, part);
}

/** After a chunk: fails where more bytes follow than the range needs. */
static cod_status check_end(const cod_codec *codec, uint64_t bytes)
{
    if (cod_codec_finished(codec) && codec->bytes != bytes)
        return cod_fail(COD_ERR_FORMAT, "%llu bytes follow the shard's last chunk",
                        (unsigned long long)(bytes - codec->bytes));
    return COD_OK;
}

cod_status cod_codec_decode(cod_codec *codec, const unsigned char *data, uint64_t bytes, const float *reference,
                            uint64_t max_chunks, float *values)
{
    for (; max_chunks > 0 && !cod_codec_finished(codec); max_chunks--) {
        const piece part = piece_at(&codec->options, &codec->range, codec->done);
        const unsigned char *in = data + codec->bytes;
        const held known = {.values = at_or_null(reference, codec->done)};
        chunk c;
        COD_TRY(read_header(codec, &part, in, bytes - codec->bytes, known, &c));
        COD_TRY(read_payload(codec, &part, &c, in + COD_CHUNK_HEADER_BYTES, known.values, values + codec->done));
        codec->done += part.count;
        codec->bytes += COD_CHUNK_HEADER_BYTES + c.stored;
    }
    return check_end(codec, bytes);
}

cod_status cod_codec_open(cod_codec *codec, const unsigned char *data, uint64_t bytes, const uint64_t *reference,
                          unsigned char *head, unsigned char *payload)
{
    const piece part = piece_at(&codec->options, &codec->range, codec->done);
    const unsigned char *in = data + codec->bytes, *from = in + COD_CHUNK_HEADER_BYTES;
    uint64_t raw;
    float step;
    chunk c;
    if (cod_codec_finished(codec))
        return check_end(codec, bytes);
    COD_TRY(read_header(codec, &part, in, bytes - codec->bytes, (held){.print = reference}, &c));
    COD_TRY(lengthen(codec, &part, &c, &from, &raw, &step));
    if (c.how.kind == COD_CHUNK_INT8 && c.how.parameter != COD_INT8_BLOCK_LOG2) {
        codec_unpack(&c.how, from, part.count, (float *)(void *)payload);
        c.how = (coding){.kind = COD_CHUNK_F32};
        raw = codec_fixed_bytes(&c.how, part.count);
    } else {
        COD_REQUIRE(raw <= cod_codec_plain_room(&codec->options), "a payload of %llu bytes has no room",
                    (unsigned long long)raw);
        memcpy(payload, from, raw);
    }
    write_head(head, &c.how, 0, &part, raw);
    codec->done += part.count;
    codec->bytes += COD_CHUNK_HEADER_BYTES + c.stored;
    return check_end(codec, bytes);
}

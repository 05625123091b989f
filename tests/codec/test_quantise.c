/*
 * Ops QUANTISE and DEQUANTISE of `ref` against the codec: with cod_codec_seal() and cod_codec_open() they give its
 * bytes and values.
 */
#include "support/test.h"

#include "codec/codec.h"
#include "core/fingerprint.h"
#include "ref/ref.h"
#include "support/chunks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 200, CHUNKS = 64 };

static const cod_codec_key KEY = {.run = 0x1234567890ABCDEF, .publisher = 3, .version = 17};

/** A case through the codec, and room for what the ops make of it. */
typedef struct trip {
    cod_test_chunk_case c;
    cod_test_chunks ops;
    cod_codec codec;
    cod_codec_range range;
    unsigned char *bytes, *sealed; /**< [capacity] the codec's, and through the ops */
    uint64_t capacity, length;
    unsigned char *plan, *heads, *payloads;
    float *decoded, *y;
    uint64_t prints[CHUNKS], held[CHUNKS]; /**< held: of the reference's chunks */
} trip;

static cod_test_device device;

static uint64_t first_of(const unsigned char *head)
{
    return cod_load_u64(head + COD_CHUNK_AT_FIRST);
}

static uint32_t count_of(const unsigned char *head)
{
    return cod_load_u32(head + COD_CHUNK_AT_COUNT);
}

static void trip_open(trip *t, uint64_t seed, cod_codec_entropy entropy)
{
    *t = (trip){0};
    cod_test_chunk_case_init(&t->c, seed);
    const cod_codec_options options = {t->c.coding,       entropy,         t->c.bf16_scales,
                                       t->c.chunk_values, t->c.quality_db, t->c.rounding};
    t->range = (cod_codec_range){.count = t->c.count, .exact_from = t->c.exact_from};
    assert_ok(cod_codec_init(&t->codec, &options));
    assert_ok(cod_test_chunks_init(&t->ops, device, &t->c, seed % 5 == 0));
    assert_true(t->ops.chunks <= CHUNKS && t->ops.chunks == cod_codec_chunk_count(&options, &t->range));
    t->capacity = cod_codec_bound(&options, &t->range);
    t->bytes = malloc(t->capacity + 1);
    t->sealed = malloc(t->capacity + 1);
    t->plan = calloc(t->ops.chunks, COD_CHUNK_HEADER_BYTES);
    t->heads = calloc(t->ops.chunks, COD_CHUNK_HEADER_BYTES);
    t->payloads = calloc(t->ops.chunks, t->ops.room);
    t->decoded = calloc(t->c.count, sizeof(float));
    t->y = calloc(t->c.count, sizeof(float));
    cod_codec_plan(&options, &t->range, t->plan);
    for (size_t k = 0; k < t->ops.chunks && t->c.reference != NULL; k++) {
        const unsigned char *head = t->plan + k * COD_CHUNK_HEADER_BYTES;
        t->held[k] = cod_fingerprint(t->c.reference + first_of(head), count_of(head));
    }
}

static void trip_close(trip *t)
{
    cod_test_chunks_clear(&t->ops);
    cod_test_chunk_case_clear(&t->c);
    cod_codec_clear(&t->codec);
    void *const owned[] = {t->bytes, t->sealed, t->plan, t->heads, t->payloads, t->decoded, t->y};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

static void encode(trip *t)
{
    cod_codec_begin(&t->codec, &t->range, &KEY);
    assert_ok(cod_codec_encode(&t->codec, t->c.values, t->c.reference, UINT64_MAX, t->bytes, t->capacity, t->decoded));
    t->length = t->codec.bytes;
}

static cod_status seal(trip *t)
{
    cod_codec_begin(&t->codec, &t->range, &KEY);
    for (size_t k = 0; k < t->ops.chunks; k++)
        COD_TRY(cod_codec_seal(&t->codec, t->heads + k * COD_CHUNK_HEADER_BYTES, t->payloads + k * t->ops.room,
                               t->held[k], t->sealed, t->capacity));
    return COD_OK;
}

static cod_status open_all(trip *t, const unsigned char *bytes, uint64_t length)
{
    cod_codec_begin(&t->codec, &t->range, &KEY);
    for (size_t k = 0; k < t->ops.chunks; k++)
        COD_TRY(cod_codec_open(&t->codec, bytes, length, t->c.reference != NULL ? &t->held[k] : NULL,
                               t->heads + k * COD_CHUNK_HEADER_BYTES, t->payloads + k * t->ops.room));
    return COD_OK;
}

static void expect_values(const trip *t, uint64_t seed, const char *op)
{
    for (size_t i = 0; i < t->c.count; i++)
        if (memcmp(&t->y[i], &t->decoded[i], sizeof(float)) != 0)
            fail_msg("seed %llu: %s gives %g for value %zu, where the codec has %g", (unsigned long long)seed, op,
                     (double)t->y[i], i, (double)t->decoded[i]);
}

static void expect_print(const trip *t, uint64_t seed, size_t k, uint64_t print)
{
    const unsigned char *head = t->plan + k * COD_CHUNK_HEADER_BYTES;
    if (print != cod_fingerprint(t->decoded + first_of(head), count_of(head)))
        fail_msg("seed %llu: chunk %zu has another fingerprint than its values", (unsigned long long)seed, k);
}

TEST(ops_make_the_codecs_bytes_and_values)
{
    size_t seen[2][4][4] = {{{0}}}; /* deltas or not, codings, parameters modulo 4 */
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        trip t;
        trip_open(&t, seed, (cod_codec_entropy)(seed % COD_CODEC_ENTROPIES));
        encode(&t);
        assert_ok(cod_test_chunks_quantise(&t.ops, &t.c, t.plan, t.heads, t.payloads, t.y));
        expect_values(&t, seed, "quantise");
        for (size_t k = 0; k < t.ops.chunks; k++) {
            const unsigned char *head = t.heads + k * COD_CHUNK_HEADER_BYTES;
            expect_print(&t, seed, k, cod_load_u64(head + COD_CHUNK_AT_CHECKSUM));
            seen[(head[COD_CHUNK_AT_FLAGS] & COD_CHUNK_DELTA) != 0][head[COD_CHUNK_AT_CODING]]
                [head[COD_CHUNK_AT_PARAMETER] % 4]++;
        }
        assert_ok(seal(&t));
        assert_int_equal(t.codec.bytes, t.length);
        assert_memory_equal(t.sealed, t.bytes, t.length);

        assert_ok(open_all(&t, t.bytes, t.length));
        memset(t.y, 0xFF, t.c.count * sizeof(float));
        assert_ok(cod_test_chunks_dequantise(&t.ops, &t.c, t.heads, t.payloads, t.y, t.prints));
        expect_values(&t, seed, "dequantise");
        for (size_t k = 0; k < t.ops.chunks; k++)
            expect_print(&t, seed, k, t.prints[k]);
        trip_close(&t);
    }
    /* The cases are of use only where every coding comes about. */
    assert_true(seen[0][COD_CHUNK_F32][0] > 0 && seen[0][COD_CHUNK_BF16][0] > 0 && seen[0][COD_CHUNK_INT8][0] > 0);
    for (int delta = 0; delta < 2; delta++)
        for (int parameter = 1; parameter <= 3; parameter++)
            if (delta == 1 || parameter > 1) /* a key at 20 dB and more has codes of 4 bits at least */
                assert_true(seen[delta][COD_CHUNK_STEP][parameter] > 0);
}

/** A value that is not finite is found in every coding, and what another one would be against never passes. */
TEST(what_cannot_be_published_is_refused)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint64_t seed = 0; seed < 24; seed++) {
        trip t;
        trip_open(&t, seed, COD_CODEC_PLAIN);
        t.c.values[seed * 31 % t.c.count] = bad[seed % 3];
        assert_ok(cod_test_chunks_quantise(&t.ops, &t.c, t.plan, t.heads, t.payloads, t.y));
        assert_fails(COD_ERR_NUMERIC, "holds NaN or infinity", seal(&t));
        trip_close(&t);
    }
}

TEST(what_is_damaged_is_not_opened)
{
    size_t deltas = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        trip t;
        trip_open(&t, seed, (cod_codec_entropy)(seed % COD_CODEC_ENTROPIES));
        encode(&t);
        assert_ok(open_all(&t, t.bytes, t.length));
        for (uint64_t i = 0; i < 64; i++) {
            const uint64_t at = i < 32 ? i : i * 2654435761u % t.length;
            t.bytes[at] ^= 0x10;
            assert_int_equal(open_all(&t, t.bytes, t.length), COD_ERR_FORMAT);
            t.bytes[at] ^= 0x10;
            assert_int_equal(open_all(&t, t.bytes, at), COD_ERR_FORMAT);
        }
        assert_fails(COD_ERR_FORMAT, "follow the shard's last chunk", open_all(&t, t.bytes, t.length + 1));
        if ((t.heads[COD_CHUNK_AT_FLAGS] & COD_CHUNK_DELTA) != 0) {
            deltas++;
            t.held[0]++;
            assert_fails(COD_ERR_FORMAT, "wrong checksum", open_all(&t, t.bytes, t.length));
            free(t.c.reference);
            t.c.reference = NULL;
            assert_fails(COD_ERR_FORMAT, "a delta without what it is against", open_all(&t, t.bytes, t.length));
        }
        trip_close(&t);
    }
    assert_true(deltas > 3);
}

int main(void)
{
    const cod_device_options options = {0};
    device.backend = &cod_ref_backend;
    if (device.backend->open(&options, &device.device) != COD_OK)
        return 1;
    const int failed = cod_test_run();
    device.backend->close(device.device);
    return failed;
}

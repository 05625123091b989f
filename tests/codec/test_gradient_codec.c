#include "support/test.h"

#include "codec/gradient_codec.h"
#include "core/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 7, RUN = 99, MOST = 5000 };

static const cod_gradient_coding codings[] = {COD_GRADIENT_NONE, COD_GRADIENT_INT8, COD_GRADIENT_TOPK,
                                              COD_GRADIENT_ONEBIT};
static const size_t counts[] = {0, 1, 7, 255, 256, 257, MOST};

/** A codec, and room for a message that nobody may write past. */
typedef struct trip {
    cod_gradient_codec codec;
    unsigned char *message;
    float values[MOST + 1], decoded[MOST + 1], received[MOST + 1];
} trip;

static void trip_open(trip *t, cod_gradient_coding coding, double fraction, size_t count)
{
    cod_rng rng = cod_rng_open(11, 0, 0, 0, COD_RNG_TEST, (uint32_t)count);
    memset(t, 0, sizeof *t);
    assert_ok(cod_gradient_codec_init(&t->codec, coding, fraction, count, RUN));
    assert_int_equal(t->codec.bytes, cod_gradient_codec_bytes(coding, fraction, count));
    t->message = malloc((size_t)t->codec.bytes + 1);
    assert_non_null(t->message);
    t->message[t->codec.bytes] = 0xA5;
    for (size_t i = 0; i < count; i++)
        t->values[i] = (float)cod_rng_normal(&rng);
}

static void trip_run(trip *t)
{
    const size_t bytes = t->codec.count * sizeof(float);
    memset(t->decoded, 0x7f, sizeof t->decoded);
    memset(t->received, 0x7f, sizeof t->received);
    assert_ok(cod_gradient_codec_encode(&t->codec, t->values, VERSION, t->message, t->decoded));
    assert_int_equal(t->message[t->codec.bytes], 0xA5);
    assert_ok(cod_gradient_codec_decode(&t->codec, t->message, VERSION, t->received));
    assert_memory_equal(t->decoded, t->received, bytes);
}

static void trip_close(trip *t)
{
    cod_gradient_codec_clear(&t->codec);
    free(t->message);
}

TEST(the_receiver_has_what_the_sender_thinks)
{
    static trip t;
    for (size_t c = 0; c < 4; c++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
            trip_open(&t, codings[c], 0.1, counts[n]);
            trip_run(&t);
            if (codings[c] == COD_GRADIENT_NONE)
                assert_memory_equal(t.values, t.received, counts[n] * sizeof(float));
            trip_close(&t);
        }
}

TEST(messages_are_as_short_as_promised)
{
    const size_t count = 256 * 64 * 10;
    const double f32 = 4.0 * (double)count;
    assert_true(f32 / (double)cod_gradient_codec_bytes(COD_GRADIENT_NONE, 0, count) == 1);
    assert_true(f32 / (double)cod_gradient_codec_bytes(COD_GRADIENT_INT8, 0, count) > 3.9);
    assert_true(f32 / (double)cod_gradient_codec_bytes(COD_GRADIENT_TOPK, 0.01, count) > 49.9);
    assert_true(f32 / (double)cod_gradient_codec_bytes(COD_GRADIENT_ONEBIT, 0, count) > 25.5);
    assert_int_equal(cod_gradient_codec_bytes(COD_GRADIENT_TOPK, 1e-6, 10), 8);
    assert_int_equal(cod_gradient_codec_bytes(COD_GRADIENT_TOPK, 1, 10), 80);
}

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/** Against sorting; among equal magnitudes the first. */
TEST(topk_sends_the_largest)
{
    static trip t;
    static float sorted[MOST];
    for (int ties = 0; ties < 2; ties++)
        for (size_t n = 1; n < sizeof counts / sizeof counts[0]; n++)
            for (int f = 1; f <= 4; f++) {
                const size_t count = counts[n];
                trip_open(&t, COD_GRADIENT_TOPK, 0.25 * f, count);
                for (size_t i = 0; i < count; i++) {
                    t.values[i] = ties ? roundf(t.values[i]) : t.values[i];
                    sorted[i] = fabsf(t.values[i]);
                }
                qsort(sorted, count, sizeof sorted[0], descending);
                trip_run(&t);
                const float least = sorted[t.codec.kept - 1];
                size_t sent = 0;
                bool passed_over = false; /* an equal one, before */
                for (size_t i = 0; i < count; i++) {
                    const float magnitude = fabsf(t.values[i]);
                    const bool came = magnitude > 0 && t.received[i] == t.values[i];
                    assert_true(magnitude <= least || came);
                    assert_true(t.received[i] == 0 || (came && magnitude >= least));
                    assert_false(magnitude == least && came && passed_over);
                    passed_over = passed_over || (magnitude == least && !came);
                    sent += came;
                }
                assert_true(sent == t.codec.kept || least == 0);
                trip_close(&t);
            }
}

/** Means of either side are the best two values for a block: no other pair has a smaller square error. */
TEST(onebit_keeps_sign_and_mean)
{
    static trip t;
    trip_open(&t, COD_GRADIENT_ONEBIT, 0, 300);
    trip_run(&t);
    for (size_t first = 0; first < 300; first += 256) {
        const size_t end = first + 256 < 300 ? first + 256 : 300;
        for (int side = 0; side < 2; side++) {
            double sum = 0, count = 0;
            for (size_t i = first; i < end; i++)
                if ((t.values[i] >= 0) == side)
                    sum += (double)t.values[i], count++;
            for (size_t i = first; i < end; i++)
                if ((t.values[i] >= 0) == side)
                    assert_float_equal(t.received[i], (float)(sum / count), 1e-6F);
        }
    }
    trip_close(&t);
}

/** With error feedback the sum of all that was sent comes near the sum of all that was to be sent, at every place. */
TEST(what_is_lost_comes_later)
{
    enum { COUNT = 300, ROUNDS = 400 };
    static trip t;
    for (size_t c = 1; c < 4; c++) {
        static float residual[COUNT];
        static double wanted[COUNT], got[COUNT];
        memset(residual, 0, sizeof residual);
        memset(wanted, 0, sizeof wanted);
        memset(got, 0, sizeof got);
        trip_open(&t, codings[c], 0.1, COUNT);
        cod_rng rng = cod_rng_open(12, 0, 0, 0, COD_RNG_TEST, 0);
        for (int round = 0; round < ROUNDS; round++) {
            for (size_t i = 0; i < COUNT; i++) {
                const float gradient = (float)(0.2 * cod_rng_normal(&rng) + 0.1 * (double)(i % 3));
                wanted[i] += (double)gradient;
                residual[i] += gradient;
                t.values[i] = residual[i];
            }
            trip_run(&t);
            for (size_t i = 0; i < COUNT; i++) {
                got[i] += (double)t.received[i];
                residual[i] -= t.received[i];
            }
        }
        for (size_t i = 0; i < COUNT; i++)
            assert_true(fabs(wanted[i] - got[i]) < 10 && fabs(wanted[i] - got[i] - (double)residual[i]) < 1e-2);
        trip_close(&t);
    }
}

TEST(what_is_not_finite_is_refused)
{
    static trip t;
    for (size_t c = 1; c < 4; c++) {
        trip_open(&t, codings[c], 0.1, 300);
        t.values[299] = NAN;
        assert_int_equal(cod_gradient_codec_encode(&t.codec, t.values, VERSION, t.message, t.decoded), COD_ERR_NUMERIC);
        t.values[299] = -INFINITY;
        assert_int_equal(cod_gradient_codec_encode(&t.codec, t.values, VERSION, t.message, NULL), COD_ERR_NUMERIC);
        trip_close(&t);
    }
}

/** Any bytes are refused or give finite values; none lie outside. */
TEST(damaged_messages_do_no_harm)
{
    static trip t;
    for (size_t c = 1; c < 4; c++) {
        trip_open(&t, codings[c], 0.1, 300);
        trip_run(&t);
        cod_rng rng = cod_rng_open(13, 0, 0, 0, COD_RNG_TEST, (uint32_t)c);
        int refused = 0;
        for (int i = 0; i < 2000; i++) {
            const size_t at = (size_t)(cod_rng_uniform(&rng) * (double)t.codec.bytes);
            const unsigned char before = t.message[at];
            t.message[at] = (unsigned char)(256 * cod_rng_uniform(&rng));
            const cod_status status = cod_gradient_codec_decode(&t.codec, t.message, VERSION, t.received);
            assert_true(status == COD_OK || status == COD_ERR_FORMAT || status == COD_ERR_NUMERIC);
            refused += status != COD_OK;
            for (size_t k = 0; k < 300 && status == COD_OK; k++)
                assert_true(isfinite(t.received[k]));
            t.message[at] = before;
        }
        assert_true(codings[c] == COD_GRADIENT_ONEBIT || refused > 100);
        trip_close(&t);
    }
}

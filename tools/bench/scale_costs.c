/* What the exchange takes of a step here, a weight: codec, copies and merges themselves, on weights made up. */
#include "tools/bench/scale.h"

#include "codec/codec.h"
#include "core/fingerprint.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "distill/weights_merger.h"
#include "tools/bench/training.h"

#include <string.h>

enum {
    WEIGHTS = 1 << 23, /* that are merged: past what caches hold */
    CODED = 1 << 20,
    NOISE_VALUES = 65521,
    REPEATS = 5,
    OTHER_BYTES = 1 << 23 /* past what the caches of a core hold */
};

/** How far weights move between publications, of their size: as in training (docs/exchange-measurements.md). */
static const float movement = 0.03f;

typedef struct trial {
    cod_codec codec;
    float *values, *held, *decoded, *noise;
    unsigned char *bytes;
    uint64_t capacity, version, published, print;
    size_t copied;
    unsigned char *other;
} trial;

static cod_status make(trial *t, const cod_exchange_options *exchange)
{
    const cod_codec_options options = {.coding = COD_CHUNK_STEP,
                                       .entropy = (cod_codec_entropy)exchange->entropy,
                                       .bf16_scales = exchange->scales == 1,
                                       .chunk_values = (uint32_t)exchange->chunk_values,
                                       .quality_db = exchange->quality_db,
                                       .rounding = (float)exchange->rounding};
    const cod_codec_range range = {.count = CODED, .exact_from = UINT64_MAX};
    float **const arrays[] = {&t->values, &t->held, &t->decoded};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        COD_TRY(cod_aligned_alloc((void **)arrays[i], WEIGHTS * sizeof(float)));
    COD_TRY(cod_aligned_alloc((void **)&t->noise, NOISE_VALUES * sizeof(float)));
    t->capacity = cod_codec_bound(&options, &range);
    COD_TRY(cod_aligned_alloc((void **)&t->bytes, t->capacity));
    COD_TRY(cod_aligned_alloc((void **)&t->other, OTHER_BYTES));
    memset(t->other, 0, OTHER_BYTES);
    cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_TEST, 0);
    for (size_t i = 0; i < NOISE_VALUES; i++)
        t->noise[i] = (float)cod_rng_normal(&rng);
    for (size_t i = 0; i < WEIGHTS; i++)
        t->values[i] = t->held[i] = t->decoded[i] = t->noise[i % NOISE_VALUES];
    return cod_codec_init(&t->codec, &options);
}

static void clear(trial *t)
{
    cod_codec_clear(&t->codec);
    cod_aligned_free(t->values);
    cod_aligned_free(t->held);
    cod_aligned_free(t->decoded);
    cod_aligned_free(t->noise);
    cod_aligned_free(t->bytes);
    cod_aligned_free(t->other);
}

/** Processor seconds of each part of one publication. */
typedef struct times {
    double copy, encode, mirror, decode;
} times;

/** What a step before left in the caches is no longer there. */
static void drive_out(trial *t)
{
    for (size_t i = 0; i < OTHER_BYTES; i += 64)
        t->other[i]++;
}

/** A chunk. */
typedef cod_status (*coding)(trial *t, const float *reference);

static cod_status copy_some(trial *t, const float *reference)
{
    (void)reference;
    const size_t first = t->copied, count = t->codec.options.chunk_values;
    memcpy(t->decoded + first, t->values + first, (first + count < CODED ? count : CODED - first) * sizeof(float));
    t->copied += count;
    return COD_OK;
}

static cod_status encode_some(trial *t, const float *reference)
{
    const uint64_t before = t->codec.done;
    COD_TRY(cod_codec_encode(&t->codec, t->values, reference, 1, t->bytes, t->capacity, t->decoded));
    t->print += cod_fingerprint(t->decoded + before, t->codec.done - before); /* as the publisher tells its group */
    return COD_OK;
}

static cod_status mirror_some(trial *t, const float *reference)
{
    return cod_codec_round_trip(&t->codec, t->values, reference, 1, t->decoded);
}

static cod_status decode_some(trial *t, const float *reference)
{
    return cod_codec_decode(&t->codec, t->bytes, t->published, reference, 1, t->decoded);
}

/**
 * All weights that are coded, a chunk in a step, as of models of up to some hundred thousand weights.
 *
 * @param[out] seconds  of this thread
 */
static cod_status code_all(trial *t, coding some, const float *reference, double *seconds)
{
    const cod_codec_range range = {.count = CODED, .exact_from = UINT64_MAX};
    const cod_codec_key name = {.run = 1, .version = t->version};
    const uint64_t chunks = CODED / t->codec.options.chunk_values + 1;
    cod_codec_begin(&t->codec, &range, &name);
    t->copied = 0;
    *seconds = 0;
    for (uint64_t done = 0; done < chunks; done++) {
        drive_out(t);
        const double begin = cod_clock_thread_s();
        COD_TRY(some(t, reference));
        *seconds += cod_clock_thread_s() - begin;
    }
    return COD_OK;
}

/** Publishes what the weights are now, a key or a delta against `held`, and reads it. */
static cod_status publish(trial *t, bool key, times *out, double *ratio)
{
    const float *reference = key ? NULL : t->held;
    t->version++;
    COD_TRY(code_all(t, copy_some, reference, &out->copy));
    COD_TRY(code_all(t, encode_some, reference, &out->encode));
    t->published = t->codec.bytes;
    COD_TRY(code_all(t, mirror_some, reference, &out->mirror));
    COD_TRY(code_all(t, decode_some, reference, &out->decode));
    *ratio = 4.0 * CODED / (double)t->published;
    memcpy(t->held, t->decoded, CODED * sizeof(float));
    for (size_t i = 0; i < CODED; i++)
        t->values[i] += movement * t->noise[(i + 7919 * t->version) % NOISE_VALUES];
    return COD_OK;
}

/** Seconds a weight; the first publication is a key, and warms up. */
static cod_status measure_coding(trial *t, cod_scale_costs *out)
{
    double all[4][REPEATS];
    times taken;
    COD_TRY(publish(t, true, &taken, &out->key_ratio));
    for (int i = 0; i < REPEATS; i++) {
        COD_TRY(publish(t, false, &taken, &out->ratio));
        all[0][i] = taken.copy;
        all[1][i] = taken.encode;
        all[2][i] = taken.mirror;
        all[3][i] = taken.decode;
    }
    double *const costs[] = {&out->copy, &out->encode, &out->mirror, &out->decode};
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
        *costs[i] = cod_median(all[i], REPEATS) / CODED;
    return COD_OK;
}

static cod_status time_merges(cod_bench_training *training, cod_weights_merger *merger, trial *t, double *out)
{
    const cod_layout layout = cod_weights_layout_of(&training->session.weights, COD_ALL_SETS);
    const size_t count = layout.trainable + layout.state;
    COD_REQUIRE(count <= WEIGHTS, "a model of %zu weights is too large here", count);
    cod_buffer peer = {.bytes = count * sizeof(float), .host = t->decoded},
               own = {.bytes = count * sizeof(float), .host = t->held};
    double all[REPEATS];
    for (int i = 0; i <= REPEATS; i++) {
        drive_out(t);
        const double begin = cod_clock_thread_s();
        COD_TRY(
            cod_weights_merger_apply(merger, &(cod_merge){.peer = &peer, .own = &own, .alpha = 0.5, .share = 0.5}, 1));
        COD_TRY(cod_bench_training_finish(training));
        all[i > 0 ? i - 1 : 0] = cod_clock_thread_s() - begin; /* the first makes its plans */
    }
    *out = cod_median(all, REPEATS) / (double)count;
    return COD_OK;
}

static cod_status measure_merges(trial *t, double *out)
{
    char width[] = "width=896", height[] = "height=896", channels[] = "channels=1";
    char *settings[] = {width, height, channels};
    const cod_bench_training_options options = {.model = "logistic",
                                                .device = "cpu",
                                                .backend = "cpu",
                                                .batch = 1,
                                                .patch = 8,
                                                .precision = COD_PRECISION_F32,
                                                .threads = 1,
                                                .no_autotune = true,
                                                .settings = settings,
                                                .setting_count = sizeof settings / sizeof settings[0]};
    cod_bench_training training = {0};
    cod_weights_merger *merger = NULL;
    cod_status status = cod_bench_training_open(&options, &training);
    COD_THEN(status, cod_weights_merger_create(&training.session.weights, COD_ALL_SETS, NULL, 0, &merger));
    COD_THEN(status, time_merges(&training, merger, t, out));
    cod_weights_merger_destroy(merger);
    cod_bench_training_close(&training);
    return status;
}

cod_status cod_bench_scale_costs(const cod_exchange_options *exchange, cod_scale_costs *out)
{
    trial t = {0};
    cod_status status = make(&t, exchange);
    COD_THEN(status, measure_coding(&t, out));
    COD_THEN(status, measure_merges(&t, &out->merge));
    clear(&t);
    return status;
}

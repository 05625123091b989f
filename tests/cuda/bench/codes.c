/*
 * What groups exchange, coded on the device: op QUANTISE of a key and of a delta, DEQUANTISE, and the copy of the
 * weights that neither needs.
 */
#include "bench/bench.h"

#include "core/queue.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "support/chunks.h"

#include <stdio.h>
#include <stdlib.h>

enum { RUNS = 10, ROUNDS = 5, CHUNK_VALUES = 16384, QUALITY_DB = 43 };

typedef struct timed {
    cod_test_device on;
    cod_plan *plan; /**< NULL = the copy */
    cod_buffer *from, *to;
} timed;

static cod_status queue(const timed *what)
{
    for (int i = 0; i < RUNS; i++)
        COD_TRY(what->plan != NULL
                    ? what->on.backend->plan_run(what->plan, NULL)
                    : what->on.backend->copy(what->on.device, NULL, what->to, 0, what->from, 0, what->to->bytes));
    return COD_OK;
}

/** @param[out] us  of one: the median of some rounds after one that does not count */
static cod_status time_it(const timed *what, double *us)
{
    double times[ROUNDS + 1];
    for (int r = 0; r <= ROUNDS; r++) {
        const double begin = cod_clock_s();
        COD_TRY(queue(what));
        COD_TRY(cod_queue_finish(what->on.backend, what->on.device, NULL));
        times[r] = 1e6 * (cod_clock_s() - begin) / RUNS;
    }
    *us = cod_median(times + 1, ROUNDS);
    return COD_OK;
}

/** Weights, and as reference what they were: 2 % of their size ago. */
static cod_status make_case(size_t count, bool delta, cod_test_chunk_case *c)
{
    cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_TEST, 0);
    *c = (cod_test_chunk_case){.count = count,
                               .exact_from = UINT64_MAX,
                               .chunk_values = CHUNK_VALUES,
                               .coding = COD_CHUNK_STEP,
                               .quality_db = QUALITY_DB,
                               .rounding = 0.5f};
    c->values = malloc(count * sizeof *c->values);
    c->reference = malloc(count * sizeof *c->reference);
    COD_REQUIRE_MEMORY(c->values);
    COD_REQUIRE_MEMORY(c->reference);
    for (size_t i = 0; i < count; i++) {
        c->values[i] = (float)(0.05 * cod_rng_normal(&rng));
        c->reference[i] = c->values[i] + (float)(0.001 * cod_rng_normal(&rng));
    }
    if (!delta) {
        free(c->reference);
        c->reference = NULL;
    }
    return COD_OK;
}

/** @param[out] us  of QUANTISE and DEQUANTISE @param[out] coded  bytes that the host then gets */
static cod_status time_ops(cod_test_device on, size_t count, bool delta, double us[2], double *coded)
{
    cod_test_chunk_case c = {0};
    cod_test_chunks t = {0};
    unsigned char *plan = NULL, *heads = NULL, *payloads = NULL;
    float *y = NULL;
    uint64_t *prints = NULL;
    cod_status status = make_case(count, delta, &c);
    COD_THEN(status, cod_test_chunks_init(&t, on, &c, false));
    if (status == COD_OK) {
        plan = calloc(t.chunks, COD_CHUNK_HEADER_BYTES);
        heads = calloc(t.chunks, COD_CHUNK_HEADER_BYTES);
        payloads = calloc(t.chunks, t.room);
        y = calloc(count, sizeof *y);
        prints = calloc(t.chunks, sizeof *prints);
        status = plan && heads && payloads && y && prints ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    }
    if (status == COD_OK) {
        cod_test_chunk_plan(&c, plan);
        status = cod_test_chunks_quantise(&t, &c, plan, heads, payloads, y);
    }
    COD_THEN(status, time_it(&(timed){.on = on, .plan = t.quantise}, &us[0]));
    /* Puts payloads where DEQUANTISE finds them. */
    COD_THEN(status, cod_test_chunks_dequantise(&t, &c, heads, payloads, y, prints));
    COD_THEN(status, time_it(&(timed){.on = on, .plan = t.dequantise}, &us[1]));
    *coded = 0;
    for (size_t k = 0; k < t.chunks && status == COD_OK; k++)
        *coded += COD_CHUNK_HEADER_BYTES + cod_load_u32(heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_STORED_BYTES);
    void *const owned[] = {plan, heads, payloads, y, prints};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    cod_test_chunks_clear(&t);
    cod_test_chunk_case_clear(&c);
    return status;
}

/** The copy of so many bytes to pinned memory. */
static cod_status time_copy(cod_test_device on, size_t bytes, double *us)
{
    cod_buffer *from = NULL, *to = NULL;
    cod_status status = on.backend->buffer_create(on.device, bytes, &from);
    COD_THEN(status, on.backend->host_buffer_create(on.device, bytes, &to));
    COD_THEN(status, time_it(&(timed){.on = on, .from = from, .to = to}, us));
    if (from != NULL)
        on.backend->buffer_destroy(on.device, from);
    if (to != NULL)
        on.backend->host_buffer_destroy(on.device, to);
    return status;
}

static cod_status measure(cod_test_device on, size_t count)
{
    double key[2], delta[2], coded[2], copies[3];
    COD_TRY(time_ops(on, count, false, key, &coded[0]));
    COD_TRY(time_ops(on, count, true, delta, &coded[1]));
    COD_TRY(time_copy(on, (size_t)coded[0], &copies[0]));
    COD_TRY(time_copy(on, (size_t)coded[1], &copies[1]));
    COD_TRY(time_copy(on, count * sizeof(float), &copies[2]));
    printf("{\"weights\": %zu, \"key_us\": %.3f, \"read_key_us\": %.3f, \"delta_us\": %.3f, \"read_delta_us\": %.3f, "
           "\"copy_key_us\": %.3f, \"copy_delta_us\": %.3f, \"copy_f32_us\": %.3f, \"key_bytes\": %.0f, "
           "\"delta_bytes\": %.0f}\n",
           count, key[0], key[1], delta[0], delta[1], copies[0], copies[1], copies[2], coded[0], coded[1]);
    return COD_OK;
}

cod_status bench_codes(const cod_backend *backend, size_t weights)
{
    cod_test_device on = {.backend = backend};
    COD_TRY(backend->open(NULL, &on.device));
    const cod_status status = measure(on, weights);
    backend->close(on.device);
    return status;
}

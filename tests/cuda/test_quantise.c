/* Ops QUANTISE and DEQUANTISE against `ref`, to the bit; tests/codec/test_quantise.c holds `ref` against the codec. */
#include "support/test.h"

#include "core/fingerprint.h"
#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "pair.h"
#include "support/chunks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 24 };
#else
enum { SEEDS = 120 };
#endif

/** What an op gave. */
typedef struct result {
    unsigned char *heads, *payloads;
    float *y;
    uint64_t *prints;
} result;

static void result_init(result *r, const cod_test_chunks *t)
{
    r->heads = calloc(t->chunks, COD_CHUNK_HEADER_BYTES);
    r->payloads = calloc(t->chunks, t->room);
    r->y = calloc(t->values, sizeof(float));
    r->prints = calloc(t->chunks, sizeof(uint64_t));
}

static void result_clear(const result *r)
{
    free(r->heads);
    free(r->payloads);
    free(r->y);
    free(r->prints);
}

static void expect_equal_chunks(const cod_test_chunks *t, const result *cuda, const result *ref, uint64_t seed)
{
    assert_memory_equal(cuda->heads, ref->heads, t->chunks * COD_CHUNK_HEADER_BYTES);
    for (size_t k = 0; k < t->chunks; k++) {
        const uint32_t bytes = cod_load_u32(ref->heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_STORED_BYTES);
        if (memcmp(cuda->payloads + k * t->room, ref->payloads + k * t->room, bytes) != 0)
            fail_msg("seed %" PRIu64 ": the payload of chunk %zu differs", seed, k);
    }
}

/** Compares bits; values that are not finite say nothing, whatever their bits. */
static void expect_equal_values(const cod_test_chunks *t, const result *cuda, const result *ref, uint64_t seed)
{
    for (size_t i = 0; i < t->values; i++)
        if (memcmp(&cuda->y[i], &ref->y[i], sizeof(float)) != 0 && (isfinite(cuda->y[i]) || isfinite(ref->y[i])))
            fail_msg("seed %" PRIu64 ": value %zu is %g, not %g", seed, i, (double)cuda->y[i], (double)ref->y[i]);
}

static void run_case(uint64_t seed, const float *bad)
{
    cod_test_chunk_case c;
    cod_test_chunks ref, cuda;
    result from_ref, from_cuda;
    cod_test_chunk_case_init(&c, seed);
    if (bad != NULL)
        c.values[seed * 31 % c.count] = *bad;
    cod_emulated_set_seed(seed);
    assert_ok(cod_test_chunks_init(&ref, test_ref, &c, false));
    assert_ok(cod_test_chunks_init(&cuda, test_cuda, &c, seed % 3 == 0));
    result_init(&from_ref, &ref);
    result_init(&from_cuda, &cuda);
    unsigned char *plan = calloc(ref.chunks, COD_CHUNK_HEADER_BYTES);
    cod_test_chunk_plan(&c, plan);
    assert_ok(cod_test_chunks_quantise(&ref, &c, plan, from_ref.heads, from_ref.payloads, from_ref.y));
    assert_ok(cod_test_chunks_quantise(&cuda, &c, plan, from_cuda.heads, from_cuda.payloads, from_cuda.y));
    expect_equal_values(&ref, &from_cuda, &from_ref, seed);
    if (bad == NULL) {
        expect_equal_chunks(&ref, &from_cuda, &from_ref, seed);
        memset(from_cuda.y, 0xFF, c.count * sizeof(float));
        assert_ok(cod_test_chunks_dequantise(&ref, &c, from_ref.heads, from_ref.payloads, from_ref.y, from_ref.prints));
        assert_ok(
            cod_test_chunks_dequantise(&cuda, &c, from_ref.heads, from_ref.payloads, from_cuda.y, from_cuda.prints));
        expect_equal_values(&ref, &from_cuda, &from_ref, seed);
        assert_memory_equal(from_cuda.prints, from_ref.prints, ref.chunks * sizeof(uint64_t));
    }
    size_t refused = 0;
    for (size_t k = 0; k < ref.chunks; k++)
        refused +=
            cod_load_u64(from_cuda.heads + k * COD_CHUNK_HEADER_BYTES + COD_CHUNK_AT_CHECKSUM) == COD_FINGERPRINT_NONE;
    assert_int_equal(refused, bad != NULL);
    free(plan);
    result_clear(&from_ref);
    result_clear(&from_cuda);
    cod_test_chunks_clear(&ref);
    cod_test_chunks_clear(&cuda);
    cod_test_chunk_case_clear(&c);
}

TEST(chunks_have_the_bits_of_ref)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        run_case(seed, NULL);
}

TEST(chunks_that_are_not_finite_say_so)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (uint64_t seed = 0; seed < 12; seed++)
        run_case(seed, &bad[seed % 3]);
}

TEST(the_emulated_gpu_saw_no_fault)
{
    cod_test_assert_none(cod_emulated_faults, "in the cases before");
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)

/**
 * @file
 * Ops QUANTISE and DEQUANTISE in tests: random values with what chunks they become, and running the ops on any backend.
 */
#ifndef COD_TESTS_SUPPORT_CHUNKS_H
#define COD_TESTS_SUPPORT_CHUNKS_H

#include "core/chunk_format.h"
#include "support/ops.h"

/** Values and how they are cut and coded; of the host. End with cod_test_chunk_case_clear(). */
typedef struct cod_test_chunk_case {
    size_t count;        /**< of values */
    uint64_t exact_from; /**< values from here on are of coding F32 */
    uint32_t chunk_values;
    cod_chunk_coding coding;
    bool bf16_scales;
    double quality_db;
    float rounding;
    float *values;    /**< [count] */
    float *reference; /**< [count], or NULL */
} cod_test_chunk_case;

/**
 * Everything follows from the seed: lengths, codings, near, far and no references, zeros, tiny and huge values,
 * outliers.
 */
void cod_test_chunk_case_init(cod_test_chunk_case *c, uint64_t seed);
void cod_test_chunk_case_clear(cod_test_chunk_case *c);

/** Writes the headers of the case's chunks as op QUANTISE takes them. @param heads  NULL = only count them */
size_t cod_test_chunk_plan(const cod_test_chunk_case *c, unsigned char *heads);

/** Both ops on a backend, with memory of their own. */
typedef struct cod_test_chunks {
    cod_test_device on;
    size_t values, chunks, room; /**< room: of a payload */
    cod_buffer *x, *reference, *y, *plan, *heads, *payloads, *prints;
    cod_plan *quantise, *dequantise;
} cod_test_chunks;

/** @param in_place  y and `reference` are one view */
COD_MUST_CHECK cod_status cod_test_chunks_init(cod_test_chunks *t, cod_test_device on, const cod_test_chunk_case *c,
                                               bool in_place);
void cod_test_chunks_clear(cod_test_chunks *t);

/** Runs QUANTISE. @param[out] heads, payloads, y  [chunks][32], [chunks][room], [values] */
COD_MUST_CHECK cod_status cod_test_chunks_quantise(cod_test_chunks *t, const cod_test_chunk_case *c,
                                                   const unsigned char *plan, unsigned char *heads,
                                                   unsigned char *payloads, float *y);
/** Runs DEQUANTISE. @param[out] prints  [chunks] */
COD_MUST_CHECK cod_status cod_test_chunks_dequantise(cod_test_chunks *t, const cod_test_chunk_case *c,
                                                     const unsigned char *heads, const unsigned char *payloads,
                                                     float *y, uint64_t *prints);

#endif

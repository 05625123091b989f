/**
 * @file
 * Tests that every backend passes against `ref`; what a backend has of its own, such as shapes that its kernels cut up
 * in some way, is tested beside the backend. All functions fail the test where something is amiss.
 */
#ifndef COD_TESTS_SUPPORT_PARITY_H
#define COD_TESTS_SUPPORT_PARITY_H

#include "support/ops.h"

/** A backend under test. */
typedef struct cod_parity {
    const cod_test_device *ref, *tested;
    cod_tolerance (*tolerance_of)(cod_op_kind kind, cod_dtype dtype);
    /** Whether the backend lacks the kind. */
    bool (*is_missing)(cod_op_kind kind);
    /** Called before each op: chooses what is left to chance. NULL = nothing is. */
    void (*seed)(uint64_t seed);
    /** How many faults beside wrong numbers there were since the last call, and the first one. NULL = not asked. */
    size_t (*faults)(char *first, size_t bytes);
} cod_parity;

/**
 * Tolerances that suit backends that add in f32.
 *
 * f32: `ref` sums in double, the backend in f32, so the error grows with the square root of the terms (a few hundred
 * here); sums of terms of both signs cancel, hence `scaled`. bf16: one rounding to 8 bits where results are stored, on
 * either side. Normalisation's gradients divide by the deviation, and a fused activation may fall on the other side of
 * its kink only where its input is within an error of zero, where both sides agree but for the slope's term in f32.
 */
cod_tolerance cod_parity_tolerance(cod_op_kind kind, cod_dtype dtype);

/** One op with random values. */
void cod_parity_op(const cod_parity *p, const cod_op *op, cod_dtype dtype, uint64_t seed);
/** Random ops of each kind that the backend has, but convolutions; the seeds are 0 … count - 1. */
void cod_parity_kinds(const cod_parity *p, cod_dtype dtype, uint64_t count);

/** Logits so large that e^x overflows, and labels that they deny, to within these parts of the result. */
void cod_parity_large_logits(const cod_parity *p, double relative, double absolute);
/** A NaN in the prediction is seen in the value and in that element's gradient. */
void cod_parity_losses_show_nan(cod_test_device on);
/** What a convolution of 8-bit integers gives where inputs, weights or its range are extreme (core/backend.h). */
void cod_parity_extreme_integers(cod_test_device on);

/** Runs an op on these values, {first input, …}, NULL = random ones, and reads its first `count` outputs. */
void cod_test_run_values(cod_test_device on, const cod_op *op, const double *const values[COD_OP_MAX_INPUTS],
                         double *const *outputs, size_t count);

#endif

/**
 * @file
 * Sequences of ops around a 3x3 convolution, with tensors of their own, for tests of fused plans.
 */
#ifndef COD_TESTS_CUDA_SEQUENCE_H
#define COD_TESTS_CUDA_SEQUENCE_H

#include "support/ops.h"

enum { SEQUENCE_TENSORS = 32 };

/** What a tensor is filled with. */
typedef enum sequence_fill {
    FILL_PICTURE,
    FILL_WEIGHTS,
    FILL_SCALE, /**< gamma, inv_std */
    FILL_SHIFT, /**< beta, mean, bias */
    FILL_SLOPE,
    FILL_SUMS,      /**< of a normalisation's gradient over all pixels */
    FILL_STATISTICS /**< an output that is compared with a tolerance */
} sequence_fill;

/** A sequence: CONV2D or, `backward`, its data gradient, from a picture of this shape to `outputs` channels. */
typedef struct sequence_case {
    cod_shape from;
    int64_t outputs;
    bool backward, applies, reduces; /**< with the op before the convolution, with the one behind it */
    cod_activation apply, reduce;    /**< their activations; of CONV2D the first alone, of its gradient the second */
    bool by_channel;                 /**< a slope for each channel */
    bool bias, residual;             /**< CONV2D */
    bool accumulate, in_place, both; /**< the gradient; both: dy and g are two tensors, where not in place */
    double bias_level;               /**< added to each bias */
} sequence_case;

typedef struct sequence {
    cod_test_device on;
    cod_op ops[3];
    size_t count;
    struct {
        cod_view view;
        sequence_fill fill;
        const char *name;
        bool output;
    } tensors[SEQUENCE_TENSORS];
    size_t tensor_count;
} sequence;

/**
 * Makes the ops and their tensors. Tensors are filled as the seed says: `exact` with small integers, such that sums
 * have no rounding and results are exact in bf16; else with normal values. End it with sequence_clear().
 */
COD_MUST_CHECK cod_status sequence_init(sequence *s, cod_test_device on, const sequence_case *which, bool exact,
                                        uint64_t seed);
void sequence_clear(sequence *s);

/** Runs the ops as one plan, or one after another. */
COD_MUST_CHECK cod_status sequence_run_fused(sequence *s);
COD_MUST_CHECK cod_status sequence_run_apart(sequence *s);

/** New array (free() it) of a tensor's values. */
COD_MUST_CHECK cod_status sequence_read(sequence *s, size_t tensor, double **out);

/** The number of the tensor of this name. */
size_t sequence_tensor(const sequence *s, const char *name);

/** Compares all outputs: statistics with a tolerance of their own. */
COD_MUST_CHECK cod_status sequence_compare(sequence *actual, sequence *expected, cod_tolerance tolerance,
                                           cod_tolerance statistics);

#endif

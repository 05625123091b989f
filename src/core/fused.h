/**
 * @file
 * Which consecutive ops form one of the sequences of plan_create_fused(), as one function for compilers and backends.
 *
 * A backend's op_fuses() starts from this sequence and shortens it to the shapes, types and strides for which the
 * backend has kernels.
 */
#ifndef COD_CORE_FUSED_H
#define COD_CORE_FUSED_H

#include "core/backend.h"

/** Ops of the longest sequence around a convolution; the lists of weight gradients are longer. */
enum { COD_FUSED_AROUND = 3 };

typedef struct cod_fused {
    size_t count; /**< ops of the sequence; 1 = the first alone */
    /** NORM_APPLY or NORM_BACKWARD_APPLY; NULL = none, here and below; into the caller's array */
    const cod_op *before;
    const cod_op *product; /**< CONV2D, CONV2D_BACKWARD_DATA, LINEAR_BACKWARD_DATA, or the first of several
                              CONV2D_BACKWARD_WEIGHTS */
    const cod_op *after;   /**< NORM_STATISTICS, NORM_BACKWARD_REDUCE, ACTIVATION or ACTIVATION_BACKWARD */
} cod_fused;

/**
 * The longest documented sequence at the beginning of the ops. It looks at kinds, attributes, shapes, types, strides
 * and at which views are equal or overlap, and reads no buffer.
 */
cod_fused cod_fused_sequence(const cod_op *ops, size_t count);

#endif

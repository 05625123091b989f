/**
 * @file
 * What compiling makes and running uses.
 */
#ifndef COD_NN_COMPILE_INTERNAL_H
#define COD_NN_COMPILE_INTERNAL_H

#include "nn/ir_internal.h"

/** Instructions that run without interruption. */
typedef struct segment {
    size_t first, end; /**< instructions */
    int bucket;        /**< signalled after them, or -1 */
} segment;

struct cod_program {
    const char *name;
    cod_executable *executable;
    ir_program ir;
    cod_op *ops;      /**< [instr] */
    cod_plan **plans; /**< [instr] */
    segment *segments;
    size_t segment_count;
    cod_bucket *buckets;
    size_t bucket_count;
    cod_passing *taken, *handed; /**< [ir.taken_count], [ir.handed_count] */
    uint64_t prepared_version, prepared_state_version;
    bool prepared;
    bool moves_state, folds_state; /**< has NORM_TRAIN, FOLD_NORM */
    void *zeros;                   /**< in bands: the longest row of a tensor */
};

struct cod_executable {
    cod_weights *weights;
    ir_context context;
    cod_compile_options options;
    cod_buffer *arena, *io;
    cod_program *programs;
    size_t program_count;
    cod_arena memory;
};

#endif

/**
 * @file
 * Data that compilation makes and runs use.
 */
#ifndef COD_NN_COMPILE_INTERNAL_H
#define COD_NN_COMPILE_INTERNAL_H

#include "core/queue.h"
#include "nn/ir_internal.h"

/** A run of instructions during which the host has nothing to do. */
typedef struct segment {
    size_t first, end;   /**< instructions */
    int bucket;          /**< bucket that may be signalled after them, or -1 */
    bool awaits;         /**< it begins with the first instruction that reads the awaited input */
    cod_event *complete; /**< event of the bucket; NULL if the backend has no events */
} segment;

/** Segments that ran without interruption, recorded. */
struct cod_recorded {
    const cod_program *program;
    size_t first, end;   /**< segments */
    cod_sets changed[2]; /**< sets whose values and states have changed: their preparation is recorded first */
    cod_replay replay;
};

struct cod_program {
    const char *name;
    cod_executable *executable;
    ir_program ir;
    cod_op *ops; /**< [instr] */
    /** [instr] a fused group's plan is at its first instruction; NULL = in another instruction's plan */
    cod_plan **plans;
    cod_plan **stale;   /**< [instr] room for a list of plans to prepare */
    const char **names; /**< [instr] description of the plan, for traces and benches */
    size_t *entries;    /**< [entry_count] indices of instructions that have a plan */
    size_t entry_count;
    segment *segments;
    size_t segment_count;
    cod_recordings recordings;
    size_t awaited_by;  /**< the first instruction that reads the awaited input; SIZE_MAX = none */
    cod_event *awaited; /**< event for the next run; NULL = none */
    cod_bucket *buckets;
    size_t bucket_count;
    cod_passing *taken, *handed; /**< [ir.taken_count], [ir.handed_count] */
    cod_sets (*depends)
        [2];        /**< [instr] sets whose parameters, and whose states (or values folded with them), the plan reads */
    cod_sets moved; /**< sets whose states the program moves */
    bool observes;  /**< the program writes the executable's ranges */
    cod_weights_set prepared[COD_GRAPH_MAX_SETS]; /**< versions for which the plans are prepared; 0 = not prepared */
    /** Sets whose values and states have changed; the next recording begins with their preparation. */
    cod_sets unprepared[2];
    cod_buffer *zeros; /**< in bands: zeros, as large as the largest tensor */
};

struct cod_executable {
    cod_weights *weights;
    ir_context context;
    cod_compile_options options;
    cod_buffer *arena, *io;
    cod_scalars *scalars;
    bool own_scalars;
    cod_program *programs;
    size_t program_count;
    cod_arena memory;
};

/** Assigns memory to the ranges on 8-bit integers, side by side; nodes that share weights share a range. */
void compile_assign_ranges(ir_context *context);
/** Uploads a table of ranges. @param[in] ranges [node count]; may be NULL if there are none */
COD_MUST_CHECK cod_status compile_write_ranges(cod_executable *executable, const float *ranges);
/** Notes that ranges on 8-bit integers have changed, so that plans that packed weights with them are prepared again. */
void compile_ranges_changed(cod_executable *executable);
/** Assigns memory to the constants of AFFINE nodes. */
void compile_assign_constants(ir_context *context);
/** Uploads these constants. */
COD_MUST_CHECK cod_status compile_write_constants(cod_executable *executable);
/** View of a tensor after memory is planned. */
cod_view compile_view(const cod_executable *executable, const ir_program *ir, int tensor);
/** Makes the program's plans, one for each group of instructions. */
COD_MUST_CHECK cod_status compile_plans(cod_program *program);

#endif

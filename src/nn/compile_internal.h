/**
 * @file
 * What compiling makes and running uses.
 */
#ifndef COD_NN_COMPILE_INTERNAL_H
#define COD_NN_COMPILE_INTERNAL_H

#include "nn/ir_internal.h"

/** Instructions within which the host never has anything to do. */
typedef struct segment {
    size_t first, end;   /**< instructions */
    int bucket;          /**< that may be signalled after them, or -1 */
    bool awaits;         /**< begins with the first instruction that reads the awaited input */
    cod_event *complete; /**< of the bucket; NULL where the backend has no events */
} segment;

/** Segments that ran without interruption, recorded. */
struct cod_recorded {
    const cod_program *program;
    size_t first, end;        /**< segments */
    cod_sets changed[2];      /**< sets: what depends on their values and states is prepared before them */
    cod_recording *recording; /**< NULL = not yet, or the backend makes none */
};

struct cod_program {
    const char *name;
    cod_executable *executable;
    ir_program ir;
    cod_op *ops;      /**< [instr] */
    cod_plan **plans; /**< [instr] of the first instruction of a fused group, for all of it; NULL = another's does it */
    cod_plan **stale; /**< [instr] room for the plans that are to be prepared */
    const char **names; /**< [instr] of what the plan does, for traces and benches */
    size_t *entries;    /**< [entry_count] instructions that have a plan */
    size_t entry_count;
    segment *segments;
    size_t segment_count;
    cod_recordings recordings;
    size_t awaited_by;  /**< the first instruction that reads the awaited input; SIZE_MAX = none */
    cod_event *awaited; /**< of the next run; NULL = none */
    cod_bucket *buckets;
    size_t bucket_count;
    cod_passing *taken, *handed; /**< [ir.taken_count], [ir.handed_count] */
    cod_sets (*depends)[2]; /**< [instr] sets of which its plan reads parameters; states, or what is folded with them */
    cod_sets moved;         /**< the sets whose states it moves */
    bool observes;          /**< writes the executable's ranges */
    cod_weights_set prepared[COD_GRAPH_MAX_SETS]; /**< the versions that plans are prepared for; 0 = not yet */
    /** Sets whose values and states have changed, and whose preparation the next recording begins with. */
    cod_sets unprepared[2];
    cod_buffer *zeros; /**< in bands: as large as any tensor */
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

/** Gives ranges on 8-bit integers their places, side by side; nodes that share weights have one. */
void compile_assign_ranges(ir_context *context);
/** Uploads a table of them. @param[in] ranges  [node count]; may be NULL where there are none */
COD_MUST_CHECK cod_status compile_write_ranges(cod_executable *executable, const float *ranges);
/** Ranges on 8-bit integers are others now: plans that packed weights by them are to be prepared again. */
void compile_ranges_changed(cod_executable *executable);
/** Gives the constants of AFFINE nodes their places. */
void compile_assign_constants(ir_context *context);
/** Uploads them. */
COD_MUST_CHECK cod_status compile_write_constants(cod_executable *executable);
/** Where a tensor lies once memory is planned. */
cod_view compile_view(const cod_executable *executable, const ir_program *ir, int tensor);
/** Makes the program's plans, one for each group of instructions. */
COD_MUST_CHECK cod_status compile_plans(cod_program *program);

#endif

/**
 * @file
 * One stage of a pipeline: it runs a step's mini-batches forward and backward and exchanges values with its neighbours.
 *
 * The schedule is 1F1B with a flush (Narayanan et al. 2019, "PipeDream"; 2021, "Memory-efficient pipeline-parallel DNN
 * training", PipeDream-Flush): stage s of p first runs p - s - 1 mini-batches forward, then one forward and one
 * backward in turn, then the rest backward. So at most p - s mini-batches are between forward and backward, and all are
 * complete before the step's update: training gives the same result as without a pipeline (Huang et al. 2019, "GPipe").
 */
#ifndef COD_STRATEGIES_PIPELINE_H
#define COD_STRATEGIES_PIPELINE_H

#include "core/slots.h"
#include "nn/readback.h"
#include "strategies/channel.h"
#include "train/strategy.h"

/** Memory of a mini-batch from its forward to its backward pass. */
typedef struct cod_pipeline_slot {
    cod_executable *executable;
    cod_program *first,
        *later; /**< programs of the step's first mini-batch, and of the others, which add to its gradients */
} cod_pipeline_slot;

typedef struct cod_pipeline {
    int stage, stages;
    cod_pipeline_slot *slots; /**< the first slot uses the context's executable */
    size_t slot_count;
    bool reads_input, reads_target; /**< whether the stage reads the data's input, and its target */
    cod_slots data;                 /**< slots for data on its way to the executables */
    cod_readback *losses;           /**< on the last stage: losses of the step's mini-batches */
    cod_channel values_in, values_out, gradients_in, gradients_out;
    uint64_t steps;
    double computed_s, elapsed_s; /**< seconds in passes; seconds in cod_pipeline_run() as a whole */
} cod_pipeline;

/**
 * Largest number of mini-batches between forward and backward in stage `stage` of `stages`, with `batches` in a step.
 */
size_t cod_pipeline_in_flight(int stage, int stages, int64_t batches);

/**
 * Local.
 *
 * @param before, after  world ranks of the neighbours; -1 = none. End with cod_pipeline_clear(), also on failure.
 */
COD_MUST_CHECK cod_status cod_pipeline_init(cod_pipeline *pipeline, const cod_train_context *context, int stage,
                                            int before, int after);
void cod_pipeline_clear(cod_pipeline *pipeline);

/**
 * Runs a step's passes. All stages call it.
 *
 * @param ready  called as buckets of the last mini-batch are complete
 * @param[out] task_loss  mean over the mini-batches, of the last stage; 0 elsewhere
 */
COD_MUST_CHECK cod_status cod_pipeline_run(cod_pipeline *pipeline, cod_train_context *context, cod_bucket_ready ready,
                                           void *ready_context, double *task_loss);

/** Waits until all messages have been sent. */
COD_MUST_CHECK cod_status cod_pipeline_flush(cod_pipeline *pipeline);

/** Bytes that a program takes from the stage before (or passes to the next): of values, or of gradients. */
size_t cod_passing_bytes(const cod_passing *passing, size_t count, bool gradients);

#endif

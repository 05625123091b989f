/**
 * @file
 * Optimisers over flat buffers: one pass over a parameter set, with clipping and the moving average (EMA) of the weights.
 */
#ifndef COD_NN_OPTIMISER_H
#define COD_NN_OPTIMISER_H

#include "nn/compile.h"

/** Of each cod_optimiser_kind, NULL at their end. */
extern const char *const cod_optimiser_names[];

typedef struct cod_optimiser_options {
    cod_optimiser_kind kind;
    double momentum;     /**< SGD */
    bool nesterov;       /**< SGD */
    double beta1, beta2; /**< Adam */
    double epsilon;      /**< Adam */
    double weight_decay;
    double clip_norm; /**< largest Euclidean norm of the gradient; 0 = no clipping */
    double ema_decay; /**< 0 = no moving average */
    /** Of the set's trainable values only part_count from part_first on are updated and have moments, perhaps none; else all are. */
    bool only_part;
    size_t part_first, part_count; /**< elements; part_first from the start of the flat buffer */
    /** Where the moving average lies, borrowed; the set's [trainable + state], or [trainable] to leave states out. NULL = its own. */
    cod_buffer *average;
    /**
     * Set: gradients are those of the part alone, and this makes the sum of their squares that of all parts, to clip by; NULL: they
     * are those of the set.
     */
    cod_status (*sum_squares)(void *context, double *squares);
    void *sum_context;
    cod_scalars *scalars; /**< where rates and decays are kept, borrowed; NULL = some of its own */
} cod_optimiser_options;

typedef struct cod_optimiser cod_optimiser;

/**
 * For the trainable parameters of set `set` (index); the EMA, where wanted, starts as a copy at the first step. A part clips by
 * the norm of all gradients of the set (see sum_squares); where it is empty there is no EMA.
 */
COD_MUST_CHECK cod_status cod_optimiser_create(cod_weights *weights, int set, const cod_optimiser_options *options,
                                               cod_optimiser **out);
void cod_optimiser_destroy(cod_optimiser *optimiser);

/** Device memory that cod_optimiser_create() takes for an f32 set of this range; bytes. An average that the caller gives is not counted. */
void cod_optimiser_memory(const cod_set_range *range, const cod_optimiser_options *options, size_t *moments,
                          size_t *average);

/** Sets the scalars of the next step, so that they travel with others that are set now; cod_optimiser_step() does it by itself. */
void cod_optimiser_set_rate(cod_optimiser *optimiser, double rate, int64_t step);
/** Queues the update of the weights from their gradients; `step` counts from 1 (Adam's bias correction). Raises the set's version. */
COD_MUST_CHECK cod_status cod_optimiser_step(cod_optimiser *optimiser, double rate, int64_t step);

/**
 * Runs a program of the set's gradients, of which nobody hears, and the update behind it: as cod_program_run() and
 * cod_optimiser_step(), but where the backend records, both are one recording, unless the host acts between them. The
 * optimiser keeps such recordings: it is to be destroyed before the program.
 */
COD_MUST_CHECK cod_status cod_optimiser_run(cod_optimiser *optimiser, cod_program *program, double rate, int64_t step);

/**
 * A named state buffer ("momentum" or "adam_m", "adam_v", "ema"), for checkpoints; false past the last. Moments are those of
 * the part; the EMA covers the set's values and states whatever the part, and is none that leaves states out.
 */
bool cod_optimiser_state(cod_optimiser *optimiser, size_t index, const char **name, cod_buffer **buffer, size_t *bytes);
/** Index of the set. */
int cod_optimiser_set(const cod_optimiser *optimiser);
/** The EMA buffer: the set's [trainable + state], or NULL. */
cod_buffer *cod_optimiser_ema(cod_optimiser *optimiser);
/** Says that the states were loaded from a checkpoint: the EMA is not started again. */
void cod_optimiser_mark_restored(cod_optimiser *optimiser);

#endif

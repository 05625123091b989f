/**
 * @file
 * Optimisers over flat buffers: one pass over a parameter set, with clipping and the moving average (EMA) of the
 * weights.
 */
#ifndef COD_NN_OPTIMISER_H
#define COD_NN_OPTIMISER_H

#include "nn/compile.h"

/** Names of the cod_optimiser_kind values, NULL-terminated. */
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
    /**
     * If set, only part_count of the set's trainable values from part_first on, perhaps none, are updated and have
     * moments.
     */
    bool only_part;
    size_t part_first, part_count; /**< elements; part_first from the start of the flat buffer */
    /**
     * Memory of the moving average, borrowed; the set's [trainable + state], or [trainable] to leave states out. NULL =
     * the optimiser makes it.
     */
    cod_buffer *average;
    /**
     * If set, gradients are those of the part alone, and this function sums the squares over all parts, for clipping.
     * NULL = gradients are those of the whole set.
     */
    cod_status (*sum_squares)(void *context, double *squares);
    void *sum_context;
    cod_scalars *scalars; /**< memory of rates and decays, borrowed; NULL = the optimiser makes its own */
} cod_optimiser_options;

typedef struct cod_optimiser cod_optimiser;

/**
 * Makes an optimiser for the trainable parameters of set `set` (index). The EMA, if requested, starts as a copy at the
 * first step. A part clips by the norm of all gradients of the set (see sum_squares); an empty part has no EMA.
 */
COD_MUST_CHECK cod_status cod_optimiser_create(cod_weights *weights, int set, const cod_optimiser_options *options,
                                               cod_optimiser **out);
void cod_optimiser_destroy(cod_optimiser *optimiser);

/**
 * Device memory that cod_optimiser_create() takes for an f32 set of this range; bytes. An average that the caller gives
 * is not counted.
 */
void cod_optimiser_memory(const cod_set_range *range, const cod_optimiser_options *options, size_t *moments,
                          size_t *average);

/**
 * Sets the scalars of the next step early, so that they travel together with others; cod_optimiser_step() also sets
 * them.
 */
void cod_optimiser_set_rate(cod_optimiser *optimiser, double rate, int64_t step);
/**
 * Queues the update of the weights from their gradients; `step` counts from 1 (Adam's bias correction). Raises the
 * set's version.
 */
COD_MUST_CHECK cod_status cod_optimiser_step(cod_optimiser *optimiser, double rate, int64_t step);

/**
 * Runs a program of the set's gradients, without bucket signals, and then the update, as cod_program_run() and
 * cod_optimiser_step(). If the backend records, both are one recording, unless the host acts between them. The
 * optimiser keeps these recordings, so destroy it before the program.
 */
COD_MUST_CHECK cod_status cod_optimiser_run(cod_optimiser *optimiser, cod_program *program, double rate, int64_t step);

/**
 * A named state buffer ("momentum" or "adam_m", "adam_v", "ema"), for checkpoints; false past the last. Moments cover
 * the part; the EMA covers all values and states of the set, and is not listed if it leaves states out.
 */
bool cod_optimiser_state(cod_optimiser *optimiser, size_t index, const char **name, cod_buffer **buffer, size_t *bytes);
/** The EMA buffer: the set's [trainable + state], or NULL. */
cod_buffer *cod_optimiser_ema(cod_optimiser *optimiser);
/** Notes that the states were loaded from a checkpoint, so that the EMA does not start again. */
void cod_optimiser_mark_restored(cod_optimiser *optimiser);

#endif

/**
 * @file
 * A recipe made ready to run on one device: graph, weights, compiled programs, optimisers. The trainer, `codistill
 * plan`, the timing of layers and the benches all use this set-up.
 */
#ifndef COD_TRAIN_SESSION_H
#define COD_TRAIN_SESSION_H

#include "train/recipe.h"

typedef struct cod_strategy cod_strategy; /**< train/strategy.h */

/** The part of a network that a rank computes and updates, if ranks divide it. Zeroed = all of it. */
typedef struct cod_division {
    cod_stage stage; /**< only these nodes of the graph are computed */
    int stages;      /**< neighbouring ranks of the group that hold the network together; 0 = each holds all of it */
    /**
     * This rank updates only `count` trainable values from `first` on, perhaps none. Without gather(), each rank then
     * saves the optimiser's moments of its part, and the group's first rank has the whole moving average, if any, when
     * save() returns.
     */
    bool only_part;
    size_t first, count;
    cod_buffer *average; /**< memory of the moving average, see cod_optimiser_options */
    cod_status (*sum_squares)(void *context, double *squares); /**< as in cod_optimiser_options */
    void *sum_context;
} cod_division;

/** Zeroed = not built. */
typedef struct cod_train_session {
    const cod_run_config *config;
    int group; /**< whose networks */
    const cod_backend *backend;
    cod_device *device; /**< borrowed */
    cod_dtype activation;
    cod_shape sample; /**< shape of a mini-batch's input; N is the rank's batch */
    /**
     * [groups, classes] log of each group's class shares over all groups' (prior.h); NULL = the shares are equal, or
     * there is no correction.
     */
    const float *priors;
    bool averages; /**< gradients are averaged over ranks: programs signal them in buckets of train.bucket_kb */

    float loss_factor; /**< 1 / mini-batches in a step: factor of every loss's gradient */
    cod_recipe recipe;
    /** [program_count] the recipe's programs, in order, and those that the strategy adds */
    cod_program_spec *programs;
    size_t program_count;
    cod_weights weights;
    cod_division division;
    cod_scalars *scalars;      /**< rates, loss weights, decays: copied to the device once a step */
    cod_compile_memory memory; /**< memory that the programs need; zeros until it is known */
    /** bytes that the device had allocated after compilation; 0 = not compiled or not counted */
    size_t compiled_bytes;
    cod_executable *executable;                    /**< NULL before compilation */
    cod_optimiser *optimisers[COD_GRAPH_MAX_SETS]; /**< [set]; NULL for sets that are not trained */
    cod_view input, truth;                         /**< the mini-batch on the device */
} cod_train_session;

/**
 * Builds the recipe and zeroed weights. The caller sets the members from `config` to `averages` before.
 *
 * @param strategy  may add losses and programs; NULL = none
 */
COD_MUST_CHECK cod_status cod_train_session_build(cod_train_session *session, cod_strategy *strategy);
/**
 * Adds a program, for a strategy's add_losses(). If a step has several mini-batches, a second program, NAME_accumulate,
 * is made from it.
 */
COD_MUST_CHECK cod_status cod_train_session_add(cod_train_session *session, const cod_program_spec *program);
/** Initial values of all sets, some from the files that the recipe names. */
COD_MUST_CHECK cod_status cod_train_session_fill(cod_train_session *session, uint64_t seed);
/** Compiles and makes optimisers; constants are filled. */
COD_MUST_CHECK cod_status cod_train_session_compile(cod_train_session *session, const cod_division *division);
/** To be called also after a failure. */
void cod_train_session_clear(cod_train_session *session);

/**
 * Compiles the session's programs for other weights, or a part of the graph.
 *
 * @param weights  of the session's graph; borrowed
 * @param stage    all zero = the whole graph
 */
COD_MUST_CHECK cod_status cod_train_session_compile_apart(const cod_train_session *session, cod_weights *weights,
                                                          cod_stage stage, cod_executable **out);

/** The program of this name for mini-batch `batch` of a step, from 0; NULL = there is none. */
cod_program *cod_train_program(cod_executable *executable, const char *name, int64_t batch);
/** Options of a set's optimiser on this rank. */
cod_optimiser_options cod_train_session_optimiser(const cod_train_session *session, int set);
/** Learning rate of a set at step 0, 1, …. */
double cod_train_session_rate(const cod_train_session *session, int set, int64_t step);

#endif

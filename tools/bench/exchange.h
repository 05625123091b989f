/**
 * @file
 * What the exchange costs and how fast it is, over known weights in place of training: for `codistill bench exchange`.
 */
#ifndef COD_TOOLS_BENCH_EXCHANGE_H
#define COD_TOOLS_BENCH_EXCHANGE_H

#include "comm/comm.h"
#include "exchange/exchange.h"

typedef struct cod_bench_exchange_options {
    cod_exchange_options exchange;
    int64_t weights, publications; /**< the last publication ends the run and is not used */
    int groups;                    /**< of the job's ranks, all of one size */
    double step_ms;                /**< of computing, in place of a training step */
    bool one_clock;                /**< ranks may lie on several hosts that have one clock */
    bool sleep;                    /**< steps sleep in place of computing: other programs do not make them longer */
} cod_bench_exchange_options;

/** Medians over ranks; of one rank, where it says so. NaN = nothing was taken over. */
typedef struct cod_bench_exchange_result {
    double alone_ms, alone_p99_ms; /**< a step that only computes, beside a progress thread that has nothing to do */
    double step_ms, step_p99_ms;   /**< a step with the exchange */
    double exchange_ms;            /**< of a step, spent inside the exchange */
    double progress_ms;            /**< of processor time, by the progress thread, a step */
    double processors;             /**< processor time of the rank over wall time */
    double use_ms, use_p99_ms;     /**< from publication to use by another group */
    double staleness_steps;        /**< own step at the use minus the peer's at the publication */
    double published_bytes;        /**< by all ranks, a step */
    double ratio;                  /**< f32 bytes over published ones */
    double bandwidth;              /**< bytes of f32 weights brought from publication to use, a second */
    double published, taken, lost, rejected; /**< by all ranks */
} cod_bench_exchange_result;

/**
 * Collective on all ranks, which lie on one host, or on several with one clock: times are compared.
 *
 * @return COD_ERR_ARGUMENT when ranks do not divide into groups
 */
COD_MUST_CHECK cod_status cod_bench_exchange_run(cod_comm *comm, const cod_bench_exchange_options *options,
                                                 cod_bench_exchange_result *out);

/** Sets one option of the exchange from "option=value". @return COD_ERR_ARGUMENT for what is none */
COD_MUST_CHECK cod_status cod_bench_exchange_set(cod_exchange_options *exchange, const char *text, cod_arena *arena);

#endif

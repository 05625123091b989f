/**
 * @file
 * How the ranks of a group agree: numbers of each rank are part of a reduction that is made each step, and two steps
 * later all ranks make the same decisions from their sums.
 *
 * The exchange passes in the state of this rank's publication and pulls, and then the sums, and tells its publisher and
 * its puller what was agreed. The agreement knows neither of them: here a pull is a place and a peer is a number.
 *
 * A pull is in the same phase on all ranks; they enter each phase at the same step:
 *   idle       until the sums hold a version that the first rank proposed; the exchange says whether it is begun. Left
 *              out between deltas that were proposed together
 *   pulling    until all ranks have their shards, or one lost its own
 *   gathering  until all ranks have all shards, or one refused them; left out where ranks share what they pull
 */
#ifndef COD_EXCHANGE_AGREEMENT_INTERNAL_H
#define COD_EXCHANGE_AGREEMENT_INTERNAL_H

#include "exchange/reports_internal.h"
#include "exchange/setup_internal.h"

typedef enum exchange_phase { EXCHANGE_IDLE, EXCHANGE_PULLING, EXCHANGE_GATHERING } exchange_phase;

/** What to do with a pull at this step. */
typedef enum exchange_decision {
    EXCHANGE_GO_ON,
    EXCHANGE_BEGIN,     /**< begin the proposed pull, if it is still useful: exchange_agreement_begin() */
    EXCHANGE_GATHER,    /**< all ranks have their shards */
    EXCHANGE_TAKE_OVER, /**< all ranks have all shards */
    EXCHANGE_GIVE_UP
} exchange_decision;

typedef struct exchange_agreed_pull {
    exchange_phase phase;
    int64_t since;              /**< the step of it */
    exchange_proposal proposal; /**< the first rank's, until it is heard */
} exchange_agreed_pull;

typedef struct exchange_agreement {
    const exchange_setup *setup;
    exchange_agreed_pull *pulls; /**< [pull_count] */
    int pull_count;
    uint64_t now_ms; /**< latest wall clock of the group's first rank; 0 = unknown */
    bool unlike;     /**< ranks of the group have published different weights, and a warning has said so */
} exchange_agreement;

/** Starts with all pulls idle. @param setup borrowed. Call exchange_agreement_clear() also after a failure */
COD_MUST_CHECK cod_status exchange_agreement_init(exchange_agreement *agreement, const exchange_setup *setup,
                                                  int pull_count);
void exchange_agreement_clear(exchange_agreement *agreement);

/** Count of numbers of a rank. */
size_t exchange_agreement_count(const exchange_agreement *agreement);
/**
 * This rank's numbers.
 *
 * @param pulls     [pull_count]
 * @param[out] out  [exchange_agreement_count()] to be summed over the group
 */
void exchange_agreement_tell(const exchange_agreement *agreement, const exchange_publication *publication,
                             const exchange_standing *pulls, double *out);
/**
 * Takes the sums that take effect at `step`. If ranks have published different weights, a warning names them once; the
 * call is then collective on the group.
 *
 * @param print     this rank's
 * @param in        [exchange_agreement_count()]
 * @param[out] out  of the group's publication
 */
COD_MUST_CHECK cod_status exchange_agreement_hear(exchange_agreement *agreement, int64_t step, uint64_t print,
                                                  const double *in, exchange_publications *out);
/**
 * Decides, once a step, what to do with the pull at `place`. Its phase changes accordingly, except that a pull begins
 * only by exchange_agreement_begin().
 *
 * @param[out] proposal  set at EXCHANGE_BEGIN
 * @param[out] outcome   set where a phase ended
 */
exchange_decision exchange_agreement_decide(exchange_agreement *agreement, int place, int64_t step, const double *in,
                                            exchange_proposal *proposal, exchange_outcome *outcome);
/**
 * Notes that the pull of a version begins at this step: a proposed version, or a delta that follows a version taken
 * over.
 */
void exchange_agreement_begin(exchange_agreement *agreement, int place, int64_t step);

#endif

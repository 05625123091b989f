/**
 * @file
 * What the ranks of a group agree on: numbers of each rank ride in the trainer's per-step reduction, and two steps
 * later all ranks decide alike by their sums.
 *
 * The exchange calls it: it tells how this rank's publication and pulls stand, hears the sums, and then does with its
 * publisher and its puller what was agreed on. The agreement knows neither of them: a pull is a place here, and a peer
 * a number.
 *
 * A pull is in one phase on all ranks, which they enter at the same step:
 *   idle       until the sums hold a version that the first rank proposed; the exchange says whether it is begun. Left
 *              out between deltas that were proposed together
 *   pulling    until all ranks have their shards, or one lost its own
 *   gathering  until all ranks have all shards, or one refused them; left out where ranks share what they pull
 */
#ifndef COD_DISTILL_EXCHANGE_AGREEMENT_INTERNAL_H
#define COD_DISTILL_EXCHANGE_AGREEMENT_INTERNAL_H

#include "distill/exchange_reports_internal.h"
#include "distill/exchange_setup_internal.h"

typedef enum exchange_phase { EXCHANGE_IDLE, EXCHANGE_PULLING, EXCHANGE_GATHERING } exchange_phase;

/** What is done with a pull at this step. */
typedef enum exchange_decision {
    EXCHANGE_GO_ON,
    EXCHANGE_BEGIN,     /**< what was proposed, if it is of use: exchange_agreement_begin() */
    EXCHANGE_GATHER,    /**< all have their shards */
    EXCHANGE_TAKE_OVER, /**< all have everything */
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
    uint64_t now_ms; /**< wall clock of the group's first rank, as last told; 0 = not known */
    bool unlike;     /**< ranks of the group have published different weights: said once */
} exchange_agreement;

/** All pulls are idle. @param setup  borrowed. exchange_agreement_clear() also after a failure */
COD_MUST_CHECK cod_status exchange_agreement_init(exchange_agreement *agreement, const exchange_setup *setup,
                                                  int pull_count);
void exchange_agreement_clear(exchange_agreement *agreement);

/** Numbers of a rank. */
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
 * Hears the sums that act at `step`. Ranks that published different weights are named, once: then it is collective on
 * the group.
 *
 * @param print     this rank's
 * @param in        [exchange_agreement_count()]
 * @param[out] out  of the group's publication
 */
COD_MUST_CHECK cod_status exchange_agreement_hear(exchange_agreement *agreement, int64_t step, uint64_t print,
                                                  const double *in, exchange_publications *out);
/**
 * What these sums mean for the pull at `place`, once a step. The phase follows, but for one that begins.
 *
 * @param[out] proposal  set at EXCHANGE_BEGIN
 * @param[out] outcome   set where a phase ended
 */
exchange_decision exchange_agreement_decide(exchange_agreement *agreement, int place, int64_t step, const double *in,
                                            exchange_proposal *proposal, exchange_outcome *outcome);
/** The pull of a version begins at this step: of one that was proposed, or of a delta behind one that was taken over. */
void exchange_agreement_begin(exchange_agreement *agreement, int place, int64_t step);

#endif

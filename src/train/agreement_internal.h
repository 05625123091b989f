/**
 * @file
 * What the ranks of a group agree on about each step: their losses, whether to stop, and the strategy's flags. A step's
 * numbers are summed over the group in the background, and read when some more steps are done.
 */
#ifndef COD_TRAIN_AGREEMENT_INTERNAL_H
#define COD_TRAIN_AGREEMENT_INTERNAL_H

#include "comm/group.h"

/** About one step. */
typedef struct trainer_agreement {
    double *losses; /**< of this rank, then of the group */
    double *stop;   /**< above zero if this rank, then one of the group, was asked to stop */
    double *flags;  /**< the strategy's */
    cod_request *request;
    double world_stop; /**< above zero if a rank of any group was asked to stop */
    cod_request *world_request;
} trainer_agreement;

typedef struct trainer_agreements {
    cod_group *group, *world;   /**< borrowed */
    int64_t together_every;     /**< steps from one agreement of all groups to the next; 0 = each group stops alone */
    int64_t delay;              /**< steps between telling and acting */
    size_t count;               /**< numbers of each agreement, which lie behind `losses` */
    trainer_agreement *pending; /**< [delay] */
} trainer_agreements;

/**
 * The caller sets the first three members before.
 *
 * @param within  steps that ranks may be apart without waiting for each other; 0 = 1
 */
COD_MUST_CHECK cod_status trainer_agreements_init(trainer_agreements *agreements, int64_t within, size_t losses,
                                                  size_t flags);
void trainer_agreements_clear(trainer_agreements *agreements);

/** Begins the agreement on a step. @return zeros, to be filled in before trainer_agreement_start() */
trainer_agreement *trainer_agreement_begin(trainer_agreements *agreements, int64_t step);
/** Tells the group about a step; done in the background. */
COD_MUST_CHECK cod_status trainer_agreement_start(trainer_agreements *agreements, int64_t step);
/** Waits for the group's sums about a step. @param[out] agreement  valid until that of step + delay begins */
COD_MUST_CHECK cod_status trainer_agreement_wait(trainer_agreements *agreements, int64_t step,
                                                 trainer_agreement **agreement);
/** After trainer_agreement_wait(): sets *stop when the run is to stop. */
COD_MUST_CHECK cod_status trainer_agreement_read_stop(trainer_agreements *agreements, trainer_agreement *agreement,
                                                      bool *stop);

#endif

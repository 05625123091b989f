/**
 * @file
 * A group's last word: what the summary needs of it. It is a part, closing-G, of the group's last checkpoint and goes with
 * it, so that groups which are jobs of their own find each other's, whichever ends last.
 */
#ifndef COD_TRAIN_CLOSING_INTERNAL_H
#define COD_TRAIN_CLOSING_INTERNAL_H

#include "train/trainer_internal.h"

typedef struct closing {
    cod_task_quality held_out, test; /**< on all held-out and all test data */
    double baseline;                 /**< on the held-out data; NaN without any, and but from a job's first group */
    double totals[TRAINER_TOTALS];   /**< of all the group's ranks and processes */
    double elapsed_s;                /**< of its last process */
    double resumed_from;
    double parameters, fingerprint_high, fingerprint_low;
    bool diverged;                  /**< by the recipe's guards: the group has no model */
    char device[COD_DEVICE_REASON]; /**< that its first rank computed on */
} closing;

/** Writes this group's; its leader. */
COD_MUST_CHECK cod_status closing_write(const trainer *t, const closing *c);
/** Reads a group's, of as many steps as this run has. @return COD_ERR_IO when it is not there (yet) */
COD_MUST_CHECK cod_status closing_read(const trainer *t, int group, closing *out);

#endif

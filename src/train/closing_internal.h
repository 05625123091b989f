/**
 * @file
 * The results of a group that the summary needs. They are a part, closing-G, of the group's last checkpoint, so that
 * groups that are separate jobs find each other's results, whichever ends last.
 */
#ifndef COD_TRAIN_CLOSING_INTERNAL_H
#define COD_TRAIN_CLOSING_INTERNAL_H

#include "train/trainer_internal.h"

typedef struct closing {
    cod_task_results results; /**< on all validation data */
    cod_task_quality test;    /**< on all test data */
    double baseline; /**< on the validation data; NaN if there are none, and in all groups of a job but the first */
    double totals[TRAINER_TOTALS]; /**< over all ranks and processes of the group */
    double elapsed_s;              /**< of its last process */
    double resumed_from;
    double steps;        /**< at which it ended: train.steps, or less where it ended early */
    double without_best; /**< evaluations without a new best until then */
    double parameters, fingerprint_high, fingerprint_low;
    bool diverged;                  /**< the recipe's guards found that the group has no usable model */
    char device[COD_DEVICE_REASON]; /**< device of its first rank */
} closing;

/** Writes this group's results; called by its leader. */
COD_MUST_CHECK cod_status closing_write(const trainer *t, const closing *c);
/**
 * Reads a group's results, at the end of all steps or where it ended early.
 *
 * @return COD_ERR_IO if they are not there (yet)
 */
COD_MUST_CHECK cod_status closing_read(const trainer *t, int group, closing *out);

#endif

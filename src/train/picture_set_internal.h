/**
 * @file
 * One of data.val_sets where the task is super-resolution.
 */
#ifndef COD_TRAIN_PICTURE_SET_INTERNAL_H
#define COD_TRAIN_PICTURE_SET_INTERNAL_H

#include "data/dataset.h"
#include "train/task.h"

/** Zeroed = not open. */
typedef struct picture_set {
    cod_dataset *data;
    size_t *pictures; /**< those of the data set that are evaluated, as many as the task's set has */
} picture_set;

/** Opens the set behind the last of the task, and enters its name and size there. To be closed also after a failure. */
COD_MUST_CHECK cod_status picture_set_open(picture_set *set, cod_train_task *task, const cod_run_config *config,
                                           int scale, bool report);
void picture_set_close(picture_set *set);

#endif

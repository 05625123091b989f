/**
 * @file
 * The kinds of tasks.
 */
#ifndef COD_TRAIN_TASK_INTERNAL_H
#define COD_TRAIN_TASK_INTERNAL_H

#include "train/task.h"

extern const cod_train_task_kind cod_task_super_resolution, cod_task_classification;

#endif

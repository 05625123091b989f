/**
 * @file
 * summary.json, which the last group to end writes.
 */
#ifndef COD_TRAIN_SUMMARY_INTERNAL_H
#define COD_TRAIN_SUMMARY_INTERNAL_H

#include "train/closing_internal.h"

/** Description of final.safetensors. */
typedef struct final_model {
    char is[64];
    cod_task_results results;
    cod_task_quality test;
} final_model;

/** @param all  of each group */
COD_MUST_CHECK cod_status trainer_write_summary(trainer *t, const closing *all, const final_model *final);

#endif

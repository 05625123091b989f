/**
 * @file
 * A classifier's predictions of each validation or test example, kept during training, so that groups and runs can be
 * compared example by example: OUTPUT/NAME/predictions/step-XXXXXXXXX/SPLIT-GROUP.safetensors, SPLIT `val` or `test`.
 */
#ifndef COD_TRAIN_PREDICTIONS_H
#define COD_TRAIN_PREDICTIONS_H

#include "data/placement.h"
#include "infer/classifier.h"

/** Predictions; the examples and their order are the same for all groups and seeds. Zeroed = none. */
typedef struct cod_predictions {
    size_t count;
    float *predicted, *confidence, *truth; /**< [count] predicted class, its probability, true class */
} cod_predictions;

/** Writes the predictions of group `group` at `step`, atomically. `folder` is the run's. */
COD_MUST_CHECK cod_status cod_predictions_write(const char *folder, cod_split split, int group, int64_t step,
                                                const cod_classification *result);

/** @param[out] out  new; cod_predictions_clear(). @return COD_ERR_IO when they are not there */
COD_MUST_CHECK cod_status cod_predictions_read(const char *folder, cod_split split, int group, int64_t step,
                                               cod_predictions *out);
void cod_predictions_clear(cod_predictions *predictions);

/**
 * Steps at which all of groups 0 … `groups` - 1 were evaluated on `split`, in rising order; none if no predictions were
 * kept.
 * @param[out] steps  in `arena`
 */
COD_MUST_CHECK cod_status cod_predictions_steps(const char *folder, cod_split split, int groups, cod_arena *arena,
                                                cod_int_list *steps);

#endif

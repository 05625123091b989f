/**
 * @file
 * What a classifier says of each held-out or test example, kept while it trains, so that groups and runs can be compared
 * example by example: OUTPUT/NAME/predictions/step-XXXXXXXXX/SPLIT-GROUP.safetensors, SPLIT `val` or `test`.
 */
#ifndef COD_TRAIN_PREDICTIONS_H
#define COD_TRAIN_PREDICTIONS_H

#include "data/placement.h"
#include "infer/classifier.h"

/** Of the same examples in the same order for all groups and seeds. Zeroed = none. */
typedef struct cod_predictions {
    size_t count;
    float *predicted, *confidence, *truth; /**< [count] class, the probability given to it, the example's class */
} cod_predictions;

/** Writes what an evaluation of group `group` at `step` found; atomic. `folder` is the run's. */
COD_MUST_CHECK cod_status cod_predictions_write(const char *folder, cod_split split, int group, int64_t step,
                                                const cod_classification *result);

/** @param[out] out  new; cod_predictions_clear(). @return COD_ERR_IO when they are not there */
COD_MUST_CHECK cod_status cod_predictions_read(const char *folder, cod_split split, int group, int64_t step,
                                               cod_predictions *out);
void cod_predictions_clear(cod_predictions *predictions);

/**
 * Steps at which all of groups 0 … `groups` - 1 were evaluated on `split`, in rising order; none where nothing was kept.
 * @param[out] steps  in `arena`
 */
COD_MUST_CHECK cod_status cod_predictions_steps(const char *folder, cod_split split, int groups, cod_arena *arena,
                                                cod_int_list *steps);

#endif

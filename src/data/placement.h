/**
 * @file
 * What part of a data set is whose: the splits, and this group's place among the groups.
 */
#ifndef COD_DATA_PLACEMENT_H
#define COD_DATA_PLACEMENT_H

#include "data/options.h"

typedef enum cod_split {
    COD_SPLIT_TRAIN, /**< what this group trains on */
    COD_SPLIT_VAL,   /**< what no group trains on; the same on every rank and for every seed */
    COD_SPLIT_TEST,  /**< the data set's own test examples, where it has such: nothing is chosen by them */
    COD_SPLITS,
} cod_split;

/** What a data set must know beside its options. */
typedef struct cod_dataset_place {
    int scale;     /**< super-resolution: high side = scale * low side */
    uint64_t seed; /**< decides which group holds what */
    int group, groups;
    bool all;    /**< one that trains alone on what all `groups` would hold together */
    bool report; /**< log a warning for each file left out, 100 at most; one rank is enough */
} cod_dataset_place;

#endif

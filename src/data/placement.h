/**
 * @file
 * The splits of a data set, and this group's place among the groups that divide it.
 */
#ifndef COD_DATA_PLACEMENT_H
#define COD_DATA_PLACEMENT_H

#include "data/options.h"

typedef enum cod_split {
    COD_SPLIT_TRAIN, /**< what this group trains on */
    COD_SPLIT_VAL,   /**< what no group trains on; the same on every rank and for every seed */
    COD_SPLIT_TEST,  /**< the data set's own test examples, if it has any; no choice depends on them */
    COD_SPLITS,
} cod_split;

/** What a data set must know beside its options. */
typedef struct cod_dataset_place {
    int scale;     /**< super-resolution: high side = scale * low side */
    uint64_t seed; /**< decides which group holds what */
    int group, groups;
    bool all;             /**< one group that trains alone on the data that all `groups` would hold together */
    bool report;          /**< warn of the files left out; one rank should do this */
    const char *left_out; /**< file that lists these where they are many (cod_faults_report()); NULL = none; borrowed */
    const char *option;   /**< pictures: what the folders are called in messages; NULL = data.path and data.val_path */
} cod_dataset_place;

#endif

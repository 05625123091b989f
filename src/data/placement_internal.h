/**
 * @file
 * Which of the training items a group keeps, and which items are held out from training.
 */
#ifndef COD_DATA_PLACEMENT_INTERNAL_H
#define COD_DATA_PLACEMENT_INTERNAL_H

#include "data/placement.h"

/** How many of `count` items val_count or val_fraction hold out; may be `count` and more. */
size_t cod_held_out_count(const cod_data_options *options, size_t count);

/** Whether item `index` of `count` is one of `held_out` that are evenly spread. */
static inline bool cod_is_held_out(size_t index, size_t held_out, size_t count)
{
    /* True if a multiple of 1/held_out, shifted by half, falls on the item. */
    return (2 * (index + 1) * held_out + count) / (2 * count) > (2 * index * held_out + count) / (2 * count);
}

/**
 * Numbers the items label by label, in a random order within each label that is always the same. A selection that is
 * evenly spread over these numbers then has every label's share. MNIST's own order would not give this, because it is
 * periodic in the classes.
 *
 * @param[out] number  [count] a permutation of 0 … count-1
 */
COD_MUST_CHECK cod_status cod_labels_deal(const uint32_t *labels, size_t count, uint32_t *number);

/**
 * Decides which training items the group at `place` keeps. Without items_per_group every group keeps all (shared), or
 * each item belongs to exactly one group: of each label equal parts (disjoint), or parts by a Dirichlet distribution
 * (Hsu et al. 2019, "Measuring the Effects of Non-Identical Data Distribution").
 *
 * @param labels     [count] classes, or folders of pictures
 * @param[out] ours  [count]
 * @return COD_ERR_ARGUMENT when there is too little for each group
 */
COD_MUST_CHECK cod_status cod_placement_keep(const cod_data_options *options, const cod_dataset_place *place,
                                             const uint32_t *labels, size_t count, bool *ours);

/**
 * Counts what each group keeps of each class.
 *
 * @param labels       [count] below `classes`
 * @param[out] counts  [place->groups, classes]
 */
COD_MUST_CHECK cod_status cod_placement_count(const cod_data_options *options, const cod_dataset_place *place,
                                              const uint32_t *labels, size_t count, size_t classes, size_t *counts);

#endif

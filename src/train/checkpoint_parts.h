/**
 * @file
 * Arrays of a checkpoint that are equal on all ranks of a group: each rank saves a part of each array, and the ranks
 * exchange the parts on resuming: after all have read theirs, by cod_group_complete().
 */
#ifndef COD_TRAIN_CHECKPOINT_PARTS_H
#define COD_TRAIN_CHECKPOINT_PARTS_H

#include "comm/group.h"
#include "train/checkpoint.h"

/** Adds this rank's part of an array; `data` is borrowed until the checkpoint is written. */
COD_MUST_CHECK cod_status cod_checkpoint_add_part(cod_checkpoint *checkpoint, cod_group *group, const char *name,
                                                  const void *data, size_t bytes);

/**
 * Copies this rank's part to its place in `data`, or the whole array if the checkpoint has all of it, as checkpoints of
 * earlier versions do. Local; COD_ERR_FORMAT as cod_checkpoint_read().
 *
 * @param[out] data  [bytes]
 */
COD_MUST_CHECK cod_status cod_checkpoint_read_part(const cod_st_file *file, cod_group *group, const char *name,
                                                   void *data, size_t bytes);

#endif

/**
 * @file
 * The identity of the data that a run trains on and is judged by (data/identity.h), kept in its checkpoints and its
 * folder. A resumed run must have the same, because otherwise items that it was trained on may be held out.
 */
#ifndef COD_TRAIN_DATA_IDENTITY_INTERNAL_H
#define COD_TRAIN_DATA_IDENTITY_INTERNAL_H

#include "data/identity.h"
#include "io/json.h"
#include "train/checkpoint.h"
#include "train/task.h"

enum { TRAINER_DATA_DIFFERENCE = COD_DATA_CHANGE_BYTES + 64 };

typedef struct trainer_data_identity {
    char *list;        /**< cod_data_list_files(); NULL = not this rank's work */
    char files[17];    /**< key of the list */
    char held_out[17]; /**< key of what is held out */
    char path[4096];   /**< data.G.tsv in the run's folder, which holds the list */
} trainer_data_identity;

/** Lists the data of a group. @param folder  of the run */
COD_MUST_CHECK cod_status trainer_data_identify(trainer_data_identity *data, const cod_data_options *options,
                                                const cod_train_task *task, const char *folder, int group);
void trainer_data_clear(trainer_data_identity *data);
/** Writes data.G.tsv. */
COD_MUST_CHECK cod_status trainer_data_write(const trainer_data_identity *data);
/** Adds the keys to a checkpoint. */
COD_MUST_CHECK cod_status trainer_data_save(const trainer_data_identity *data, cod_checkpoint *checkpoint);
/**
 * Says in what the data differ from those of a checkpoint: "" = in nothing, or the checkpoint is of a version that did
 * not note them.
 */
void trainer_data_compare(const trainer_data_identity *data, const cod_st_file *checkpoint,
                          char difference[TRAINER_DATA_DIFFERENCE]);
/** Adds the keys to summary.json. */
void trainer_data_summarise(const trainer_data_identity *data, cod_json *json);

#endif

/**
 * @file
 * Checkpoints of a run: OUTPUT/NAME/checkpoints/step-XXXXXXXXX/group-G.safetensors, rank-R.safetensors if a strategy
 * keeps state on each rank, and closing-G.safetensors when a group has ended. Every file is written under another name,
 * flushed and renamed, so a step is complete or absent; each file has a checksum of its content.
 */
#ifndef COD_TRAIN_CHECKPOINT_H
#define COD_TRAIN_CHECKPOINT_H

#include "core/option.h"
#include "io/safetensors.h"

/** Content of a checkpoint file: arrays and texts. Zeroed = empty; memory of the arrays is borrowed. */
typedef struct cod_checkpoint {
    cod_arena arena;
    cod_st_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    cod_st_text *texts;
    size_t text_count, text_capacity;
} cod_checkpoint;

/** Adds an array of `bytes` bytes as u8; `data` is borrowed until the checkpoint is written. */
COD_MUST_CHECK cod_status cod_checkpoint_add_bytes(cod_checkpoint *checkpoint, const char *name, const void *data,
                                                   size_t bytes);
COD_MUST_CHECK cod_status cod_checkpoint_add_f32(cod_checkpoint *checkpoint, const char *name, const float *data,
                                                 size_t count);
COD_MUST_CHECK cod_status cod_checkpoint_add_number(cod_checkpoint *checkpoint, const char *key, double value);
COD_MUST_CHECK cod_status cod_checkpoint_add_text(cod_checkpoint *checkpoint, const char *key, const char *value);
void cod_checkpoint_clear(cod_checkpoint *checkpoint);

/** Writes the arrays as STEP's file "PART.safetensors" below `folder` (…/checkpoints). */
COD_MUST_CHECK cod_status cod_checkpoint_write(const cod_checkpoint *checkpoint, const char *folder, int64_t step,
                                               const char *part);

/**
 * Opens a step's part and checks its bytes; COD_ERR_IO or COD_ERR_FORMAT when it is absent or damaged. cod_st_close()
 * ends it.
 */
COD_MUST_CHECK cod_status cod_checkpoint_open(const char *folder, int64_t step, const char *part, cod_st_file **file);

/** Copies an array out; COD_ERR_FORMAT when it is absent or of another size. */
COD_MUST_CHECK cod_status cod_checkpoint_read(const cod_st_file *file, const char *name, void *data, size_t bytes);
/** A number among the texts; COD_ERR_FORMAT when absent. */
COD_MUST_CHECK cod_status cod_checkpoint_number(const cod_st_file *file, const char *key, double *value);

/** A whole number among the texts, from `least` to 2^53; COD_ERR_FORMAT if it is absent or out of range. */
COD_MUST_CHECK cod_status cod_checkpoint_whole(const cod_st_file *file, const char *key, int64_t least, int64_t *value);

/**
 * The newest step before `before` for which all of `parts` exist and are sound; a warning names each damaged file on
 * the way, and what is in the place of a step's folder and cannot be read. Older steps are not read.
 *
 * @param[out] step     -1 = there is none
 * @param[out] damaged  number of newer steps of which all parts were once saved, but cannot be used; may be NULL
 */
COD_MUST_CHECK cod_status cod_checkpoint_newest(const char *folder, const char *const *parts, size_t part_count,
                                                int64_t before, int64_t *step, size_t *damaged);

/**
 * Steps below `folder` for which all of `parts` exist and are sound, newest first; a warning names each damaged file.
 * Reads all of them.
 * @param[out] steps  in `arena`
 */
COD_MUST_CHECK cod_status cod_checkpoint_list(const char *folder, const char *const *parts, size_t part_count,
                                              cod_arena *arena, cod_int_list *steps);

/**
 * Removes this part's files of all steps before the newest `keep` that have all of `parts`; folders that become empty
 * go too.
 */
COD_MUST_CHECK cod_status cod_checkpoint_prune(const char *folder, const char *part, const char *const *parts,
                                               size_t part_count, int64_t keep);

/**
 * Removes a part's files (NULL = every part's) of the steps after `step`, for a run that resumes from `step`. What is
 * in the place of such a step's folder but is no folder, or one that cannot be read, is renamed.
 */
COD_MUST_CHECK cod_status cod_checkpoint_discard(const char *folder, const char *part, int64_t step);

/**
 * Removes incomplete files of a killed run below `folder`, which may be absent: those of one part (NULL = every
 * part's), which no process may be writing.
 */
COD_MUST_CHECK cod_status cod_checkpoint_clean(const char *folder, const char *part);

#endif

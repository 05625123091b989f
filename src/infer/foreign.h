/**
 * @file
 * Networks in files that others wrote. PyTorch's wrappers (DataParallel, torch.compile(), AveragedModel, FSDP),
 * training frameworks (BasicSR, Lightning, mmagic) and dictionaries in dictionaries put prefixes before the names of
 * tensors, and several networks may lie in one file. Here each network is found whose architecture is known, below
 * whatever prefix.
 */
#ifndef COD_INFER_FOREIGN_H
#define COD_INFER_FOREIGN_H

#include "core/memory.h"
#include "io/safetensors.h"
#include "nn/model.h"

/** Tensors of one network. */
typedef struct cod_foreign_network {
    const char *prefix;         /**< of their names, without its last dot: "state_dict.generator"; "" = none */
    const cod_model_kind *kind; /**< NULL = not known */
    cod_st_tensor *tensors;     /**< [count], without the prefix, as BasicSR names them, in the file's order */
    size_t count;
} cod_foreign_network;

/**
 * Whether a tensor belongs to no network: counters of training (n_averaged, step_counter), states of optimisers,
 * schedulers and callbacks. BatchNorm's num_batches_tracked stays with its network.
 *
 * @param tensor  its name begins with the keys of the dictionaries that hold it, joined by dots
 */
bool cod_foreign_is_bookkeeping(const cod_st_tensor *tensor);

/**
 * Finds all networks whose architecture is known by their tensors.
 *
 * @param      tensors   [count] under whole names, as for cod_foreign_is_bookkeeping()
 * @param      arena     keeps the result; names and data of `tensors` are borrowed
 * @param[out] networks  [found]
 */
COD_MUST_CHECK cod_status cod_foreign_find(const cod_st_tensor *tensors, size_t count, cod_arena *arena,
                                           cod_foreign_network **networks, size_t *found);

/** Place of a key among those under which weights are saved, the first to be taken first: params_ema, params, … */
size_t cod_foreign_rank(const char *key);

/**
 * Chooses the only network, or the only one below the first key that cod_foreign_rank() has.
 *
 * @return COD_ERR_ARGUMENT, listing them, where several have an equal claim
 */
COD_MUST_CHECK cod_status cod_foreign_choose(const cod_foreign_network *networks, size_t found,
                                             const cod_foreign_network **chosen);

/**
 * Takes all tensors for one network of an unknown architecture: drops the wrappers' prefixes that all names share.
 *
 * @param arena  as in cod_foreign_find()
 */
COD_MUST_CHECK cod_status cod_foreign_unwrap(const cod_st_tensor *tensors, size_t count, cod_arena *arena,
                                             cod_foreign_network *network);

#endif

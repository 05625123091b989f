/**
 * @file
 * From what a user names to a model's file: a file, the folder of a training run, or a model that comes with the
 * program, "sr-x4" or "sr-x4-perceptual".
 */
#ifndef COD_INFER_NAMED_MODEL_H
#define COD_INFER_NAMED_MODEL_H

#include "core/memory.h"

#include <stdbool.h>

/** The names of the models that come with the program; the first is taken where none is named. */
#define COD_NAMED_MODELS "sr-x4", "sr-x4-perceptual"
extern const char *const cod_named_models[]; /**< NULL-terminated */

/**
 * The file of the model that a user names.
 *
 * A model that comes with the program is looked for in the folder that the environment variable COD_MODELS names, or
 * else in share/models or share/codistill/models of a folder above this program: the former in a source tree, the
 * latter where it was installed. Of a training run's folder it is final.safetensors.
 *
 * @param      named  NULL = sr-x4; what is neither such a name nor a run's folder is returned as it is
 * @param[out] path   `named` itself, or in `arena`
 * @return COD_ERR_ARGUMENT, with where it was looked for and what to do, when that model is not there, when the run has
 *         no final model yet, or when `named` is a word that is no file
 */
COD_MUST_CHECK cod_status cod_named_model_find(cod_arena *arena, const char *named, const char **path);

/** Whether cod_named_model_find() knows this name or folder. */
bool cod_named_model_is(const char *named);

#endif

/**
 * @file
 * The models that come with the program: "sr-x4", for commands that are given no model, and "sr-x4-perceptual".
 */
#ifndef COD_TOOLS_SHIPPED_MODEL_H
#define COD_TOOLS_SHIPPED_MODEL_H

#include "core/memory.h"

/**
 * The file of the model that a user names.
 *
 * A model that comes with the program is looked for in the folder that the environment variable COD_MODELS names, or
 * else in share/models or share/codistill/models of a folder above this program: the former in a source tree, the
 * latter where it was installed.
 *
 * @param      named  a name above, or NULL for the first; anything else is returned as it is
 * @param[out] path   `named` itself, or in `arena`
 * @return COD_ERR_ARGUMENT, with where it was looked for and what to do, when that model is not there
 */
COD_MUST_CHECK cod_status cod_shipped_model_find(cod_arena *arena, const char *named, const char **path);

#endif

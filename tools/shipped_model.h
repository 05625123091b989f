/**
 * @file
 * The model that comes with the program, "sr-x4": for commands that are given no model, or its name.
 */
#ifndef COD_TOOLS_SHIPPED_MODEL_H
#define COD_TOOLS_SHIPPED_MODEL_H

#include "core/memory.h"

/**
 * The file of the model that a user names.
 *
 * The model that comes with the program is looked for in the folder that the environment variable COD_MODELS names, or
 * else in share/models or share/codistill/models of a folder above this program: the former in a source tree, the
 * latter where it was installed.
 *
 * @param      named  "sr-x4" or NULL: the model that comes with the program; anything else is returned as it is
 * @param[out] path   `named` itself, or in `arena`
 * @return COD_ERR_ARGUMENT, with where it was looked for and what to do, when that model is not there
 */
COD_MUST_CHECK cod_status cod_shipped_model_find(cod_arena *arena, const char *named, const char **path);

#endif

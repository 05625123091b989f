/**
 * @file
 * The model that comes with the program, for commands that are given none.
 */
#ifndef COD_TOOLS_SHIPPED_MODEL_H
#define COD_TOOLS_SHIPPED_MODEL_H

#include "core/memory.h"

/** Its file's name. */
#define COD_SHIPPED_MODEL "sr-x4.safetensors"

/**
 * Finds it in the folder that the environment variable COD_MODELS names, or else in share/models or share/codistill/models of a folder
 * above this program: the former in a source tree, the latter where it was installed.
 *
 * @param[out] path  in `arena`
 * @return COD_ERR_ARGUMENT, with where it was looked for and what to do, when it is not there
 */
COD_MUST_CHECK cod_status cod_shipped_model_find(cod_arena *arena, const char **path);

#endif

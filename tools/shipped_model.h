/**
 * @file
 * The models that come with the program: one for commands that are given none, and others by name.
 */
#ifndef COD_TOOLS_SHIPPED_MODEL_H
#define COD_TOOLS_SHIPPED_MODEL_H

#include "core/memory.h"

/**
 * The file of the model that a user names. Two come with the program: "sr-x4", which is taken where none is named, and "sr-x4-gan".
 *
 * A model that comes with the program is looked for in the folder that the environment variable COD_MODELS names, or else in share/models or
 * share/codistill/models of a folder above this program: the former in a source tree, the latter where it was installed.
 *
 * @param      named  one of the two, or anything else, which is returned as it is; NULL = "sr-x4"
 * @param[out] path   `named` itself, or in `arena`
 * @return COD_ERR_ARGUMENT, with where it was looked for and what to do, when a model that comes with the program is not there
 */
COD_MUST_CHECK cod_status cod_shipped_model_find(cod_arena *arena, const char *named, const char **path);

#endif

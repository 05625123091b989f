/**
 * @file
 * `codistill eval` of a classifier.
 */
#ifndef COD_TOOLS_EVAL_CLASSES_H
#define COD_TOOLS_EVAL_CLASSES_H

#include "infer/model_file.h"
#include "infer/session.h"

/**
 * Evaluates a classifier on data of its kind.
 *
 * @param saved      its file, whose path is `model`
 * @param json       JSON instead of a table
 * @param[out] text  new; free()
 */
COD_MUST_CHECK cod_status cod_eval_classes(cod_saved_model *saved, const char *model, const char *data,
                                           const cod_session_options *options, bool json, char **text);

#endif

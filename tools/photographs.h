/**
 * @file
 * Photographs without truth on a page: parts of them as a run's final model, or the arms of a comparison, enlarge them.
 */
#ifndef COD_TOOLS_PHOTOGRAPHS_H
#define COD_TOOLS_PHOTOGRAPHS_H

#include "core/status.h"

#include <stdbool.h>

/**
 * Writes FOLDER/photographs.json, which the page shows from then on, and the PNG files that it names. Pictures that
 * cannot be read are named and left out.
 *
 * @param folder  of a run that has finished, or of a comparison; @param is_run  which
 * @param low     folder of photographs
 * @return COD_ERR_ARGUMENT when there is no picture or no model
 */
COD_MUST_CHECK cod_status cod_photographs_write(const char *folder, bool is_run, const char *low);

#endif

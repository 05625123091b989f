/**
 * @file
 * Calibrating an int8 upscaler on pictures in files.
 */
#ifndef COD_INFER_CALIBRATE_H
#define COD_INFER_CALIBRATE_H

#include "data/files.h"
#include "infer/upscaler.h"

/**
 * Takes new ranges from up to four of the pictures, evenly spread over the list. Pictures that cannot be read are
 * skipped with a warning.
 *
 * @param[in] reduce  whether pictures are first reduced by the upscaler's scale, as high-resolution pictures must be
 * @return COD_ERR_ARGUMENT when none could be used, or the precision is not int8
 */
COD_MUST_CHECK cod_status cod_calibrate_files(cod_upscaler *upscaler, const cod_file_list *files, bool reduce);

/** The same on all pictures below a folder, or on one file. */
COD_MUST_CHECK cod_status cod_calibrate_folder(cod_upscaler *upscaler, const char *folder, bool reduce);

#endif

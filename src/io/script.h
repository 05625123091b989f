/**
 * @file
 * Finds files of the source tree in which this program was built, or of the folders in which it was installed.
 */
#ifndef COD_IO_SCRIPT_H
#define COD_IO_SCRIPT_H

#include "core/status.h"

#include <stdbool.h>

enum { COD_SCRIPT_PATH = 8192 };

/**
 * Looks for `file`, such as "share/models/sr-x4.safetensors", in each folder above this program, the nearest first.
 *
 * @param      mode  of access(): R_OK, X_OK
 * @param[out] path  of the file, where there is one
 * @param[out] self  of this program
 */
bool cod_file_find_above(const char *file, int mode, char path[COD_SCRIPT_PATH], char self[4096]);

/**
 * Finds `script`, such as "tools/netlab.sh", in a folder above this program.
 *
 * @param[out] self  of this program
 * @return COD_ERR_UNSUPPORTED when it is in none
 */
COD_MUST_CHECK cod_status cod_script_find(const char *script, char path[COD_SCRIPT_PATH], char self[4096]);

#endif

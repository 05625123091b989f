/**
 * @file
 * Scripts of the source tree that this program was built in.
 */
#ifndef COD_TOOLS_SCRIPT_H
#define COD_TOOLS_SCRIPT_H

#include "core/status.h"

enum { COD_SCRIPT_PATH = 8192 };

/**
 * Finds `script`, such as "tools/netlab.sh", in a folder above this program.
 *
 * @param[out] self  of this program
 * @return COD_ERR_UNSUPPORTED when it is in none
 */
COD_MUST_CHECK cod_status cod_script_find(const char *script, char path[COD_SCRIPT_PATH], char self[4096]);

#endif

/**
 * @file
 * Names of tensors as networks had them before, and as they are called now.
 */
#ifndef COD_INFER_FOREIGN_NAMES_INTERNAL_H
#define COD_INFER_FOREIGN_NAMES_INTERNAL_H

#include "core/memory.h"

/** A way in which a file names its tensors. */
typedef enum cod_naming {
    COD_NAMING_PLAIN,       /**< as they are called now */
    COD_NAMING_ESRGAN,      /**< xinntao/ESRGAN's RRDBNet_arch.py: RRDB_trunk.0.RDB1.conv1.weight */
    COD_NAMING_ESRGAN_FIRST /**< its first release: model.1.sub.0.RDB1.conv1.0.weight */
} cod_naming;

/** What a file with a tensor of this name uses; most names say COD_NAMING_PLAIN. */
cod_naming cod_naming_of(const char *name);

/** BasicSR's name for it; another name stays as it is. NULL = memory is short. */
const char *cod_name_translate(cod_naming naming, const char *name, cod_arena *arena);

#endif

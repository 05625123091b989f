/** What the reader and the writer of safetensors share. */
#ifndef COD_IO_SAFETENSORS_INTERNAL_H
#define COD_IO_SAFETENSORS_INTERNAL_H

#include "io/safetensors.h"

#define COD_ST_METADATA_KEY "__metadata__"

/** Finds the dtype of a name such as "F32". */
bool cod_st_dtype_find(const char *name, cod_st_dtype *dtype);

/** Bytes of a tensor's data, from its dtype and shape; fails where they are out of range. */
COD_MUST_CHECK cod_status cod_st_data_bytes(const cod_st_tensor *tensor, size_t *bytes);

#endif

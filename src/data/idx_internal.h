/**
 * @file
 * IDX files of unsigned bytes, as MNIST is shipped in (LeCun et al., yann.lecun.com/exdb/mnist), plain or compressed by
 * gzip.
 */
#ifndef COD_DATA_IDX_INTERNAL_H
#define COD_DATA_IDX_INTERNAL_H

#include "core/status.h"

#include <stdint.h>

enum { COD_IDX_MAX_RANK = 3 };

typedef struct cod_idx {
    int64_t sides[COD_IDX_MAX_RANK];
    size_t bytes; /**< of all values: the product of the sides */
} cod_idx;

/**
 * Reads the header.
 *
 * @param rank  dimensions that the file must have
 * @return COD_ERR_IO when it cannot be read; COD_ERR_FORMAT, with the place in the file, if it is not an IDX file of
 *         that rank, or is too short for its header even if compressed
 */
COD_MUST_CHECK cod_status cod_idx_probe(const char *path, int rank, cod_idx *out);

/**
 * Reads the values, whose number cod_idx_probe() returned, and checks gzip's checksum.
 *
 * @param[out] values  [header->bytes]
 * @return also COD_ERR_FORMAT when the file is damaged, ends early or goes on after its values
 */
COD_MUST_CHECK cod_status cod_idx_read(const char *path, int rank, const cod_idx *header, uint8_t *values);

#endif

#include "train/checkpoint_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Parts begin at multiples of so many bytes: no value is cut. */
enum { UNIT_BYTES = 64 };

static cod_group_part part_of(cod_group *group, int rank, size_t bytes)
{
    const size_t ranks = (size_t)cod_group_size(group), units = (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
    const size_t first = units * (size_t)rank / ranks * UNIT_BYTES,
                 end = units * ((size_t)rank + 1) / ranks * UNIT_BYTES;
    const size_t last = end < bytes ? end : bytes;
    return (cod_group_part){.root = rank, .offset = first, .bytes = last > first ? last - first : 0};
}

cod_status cod_checkpoint_add_part(cod_checkpoint *checkpoint, cod_group *group, const char *name, const void *data,
                                   size_t bytes)
{
    const cod_group_part part = part_of(group, cod_group_rank(group), bytes);
    return cod_checkpoint_add_bytes(checkpoint, name, (const char *)data + part.offset, part.bytes);
}

cod_status cod_checkpoint_read_part(const cod_st_file *file, cod_group *group, const char *name, void *data,
                                    size_t bytes)
{
    const cod_group_part part = part_of(group, cod_group_rank(group), bytes);
    const cod_st_tensor *tensor = cod_st_tensor_find(file, name);
    if (tensor != NULL && tensor->bytes == bytes)
        return cod_checkpoint_read(file, name, data, bytes);
    return cod_checkpoint_read(file, name, (char *)data + part.offset, part.bytes);
}

cod_status cod_checkpoint_complete(cod_group *group, void *data, size_t bytes)
{
    const size_t ranks = (size_t)cod_group_size(group);
    cod_request *request = NULL;
    if (ranks == 1)
        return COD_OK;
    cod_group_part *parts = calloc(ranks, sizeof *parts);
    COD_REQUIRE_MEMORY(parts);
    for (size_t r = 0; r < ranks; r++)
        parts[r] = part_of(group, (int)r, bytes);
    const cod_status status = cod_group_share_start(group, data, parts, ranks, &request);
    free(parts);
    COD_TRY(status);
    return cod_request_wait(&request, INFINITY);
}

#include "train/checkpoint_parts.h"

cod_status cod_checkpoint_add_part(cod_checkpoint *checkpoint, cod_group *group, const char *name, const void *data,
                                   size_t bytes)
{
    const cod_group_part part = cod_group_part_of(group, cod_group_rank(group), bytes);
    return cod_checkpoint_add_bytes(checkpoint, name, (const char *)data + part.offset, part.bytes);
}

cod_status cod_checkpoint_read_part(const cod_st_file *file, cod_group *group, const char *name, void *data,
                                    size_t bytes)
{
    const cod_group_part part = cod_group_part_of(group, cod_group_rank(group), bytes);
    const cod_st_tensor *tensor = cod_st_tensor_find(file, name);
    if (tensor != NULL && tensor->bytes == bytes)
        return cod_checkpoint_read(file, name, data, bytes);
    return cod_checkpoint_read(file, name, (char *)data + part.offset, part.bytes);
}

/* A group of one rank: what its ranks do together. */
#include "alone/alone_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static cod_status number_ranks(cod_group *group, const int *sizes, size_t count)
{
    int64_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += sizes[i];
    COD_REQUIRE(size < INT_MAX, "%zu groups have too many ranks", count);
    group->first = calloc(count + 1, sizeof *group->first);
    group->ranks = calloc((size_t)size, sizeof *group->ranks);
    COD_REQUIRE_MEMORY(group->first);
    COD_REQUIRE_MEMORY(group->ranks);
    for (size_t i = 0; i < count; i++)
        group->first[i + 1] = group->first[i] + sizes[i];
    for (int r = 0; r < size; r++)
        group->ranks[r] = r;
    return COD_OK;
}

cod_status cod_group_create_part(cod_comm *comm, const int *sizes, size_t count, size_t index, cod_group **out)
{
    COD_REQUIRE(count <= INT_MAX && index < count && sizes[index] == 1, "one rank is not group %zu of %zu groups",
                index, count);
    cod_group *group = calloc(1, sizeof *group);
    COD_REQUIRE_MEMORY(group);
    *group = (cod_group){.comm = comm, .index = (int)index, .count = (int)count};
    const cod_status status = number_ranks(group, sizes, count);
    if (status != COD_OK) {
        cod_group_destroy(group);
        return status;
    }
    *out = group;
    return COD_OK;
}

void cod_group_destroy(cod_group *group)
{
    if (group == NULL)
        return;
    free(group->first);
    free(group->ranks);
    free(group);
}

int cod_group_index(const cod_group *group)
{
    return group->index;
}

int cod_group_count(const cod_group *group)
{
    return group->count;
}

int cod_group_rank(const cod_group *group)
{
    (void)group;
    return 0;
}

int cod_group_size(const cod_group *group)
{
    (void)group;
    return 1;
}

cod_group_members cod_group_members_of(const cod_group *group, int index)
{
    return (cod_group_members){.size = group->first[index + 1] - group->first[index],
                               .world_ranks = group->ranks + group->first[index]};
}

int cod_group_node_of(const cod_group *group, int rank)
{
    (void)group;
    (void)rank;
    return 0;
}

cod_status cod_group_agree(cod_group *group, cod_status status, int *failed_rank)
{
    (void)group;
    if (failed_rank != NULL)
        *failed_rank = status == COD_OK ? -1 : 0;
    return status;
}

cod_status cod_group_reduce(cod_group *group, double *values, size_t count, cod_reduce_kind kind)
{
    (void)group;
    (void)values;
    (void)count;
    (void)kind;
    return COD_OK;
}

cod_status cod_group_broadcast(cod_group *group, void *data, size_t bytes, int root)
{
    (void)group;
    (void)data;
    (void)bytes;
    (void)root;
    return COD_OK;
}

cod_status cod_group_gather(cod_group *group, const void *data, size_t bytes, void *out)
{
    (void)group;
    memcpy(out, data, bytes);
    return COD_OK;
}

cod_status cod_group_barrier(cod_group *group)
{
    (void)group;
    return COD_OK;
}

cod_status cod_group_share_start(cod_group *group, void *buffer, const cod_group_part *parts, size_t count,
                                 cod_request **request)
{
    (void)group;
    (void)buffer;
    (void)parts;
    (void)count;
    *request = NULL;
    return COD_OK;
}

cod_status cod_group_share_by_node_start(cod_group *group, void *buffer, const cod_group_part *parts, size_t count,
                                         cod_request **request)
{
    return cod_group_share_start(group, buffer, parts, count, request);
}

/** A rank alone shares no memory. */
cod_status cod_group_memory_create(cod_group *group, size_t bytes, cod_group_memory **out)
{
    (void)group;
    (void)bytes;
    *out = NULL;
    return COD_OK;
}

void cod_group_memory_destroy(cod_group_memory *memory)
{
    (void)memory;
}

cod_group_memory *cod_group_memory_keep(cod_group_memory *memory)
{
    return memory;
}

void *cod_group_memory_data(const cod_group_memory *memory)
{
    (void)memory;
    return NULL;
}

cod_group_holders cod_group_holders_of(const cod_group *group, int rank)
{
    (void)group;
    return (cod_group_holders){.first = rank, .count = 1};
}

cod_group_part cod_group_part_of(const cod_group *group, int rank, size_t bytes)
{
    (void)group;
    return (cod_group_part){.root = rank, .bytes = bytes};
}

cod_status cod_group_complete(cod_group *group, void *data, size_t bytes)
{
    (void)group;
    (void)data;
    (void)bytes;
    return COD_OK;
}

#include "strategies/between.h"

#include <math.h>
#include <stdlib.h>

cod_status cod_between_init(cod_between *between, cod_comm *comm, cod_group *group)
{
    const int groups = cod_group_count(group);
    *between = (cod_between){.group = group, .parts = cod_group_size(group)};
    for (int g = 0; g < groups; g++) {
        const int size = cod_group_members_of(group, g).size;
        between->parts = size < between->parts ? size : between->parts;
    }
    between->weight = (float)((double)cod_group_size(group) * groups / cod_comm_size(comm));
    return groups > 1 ? cod_group_create_across(group, &between->across) : COD_OK;
}

void cod_between_clear(cod_between *between)
{
    cod_group_destroy(between->across);
    *between = (cod_between){0};
}

/** Values before the part of rank `place`. */
static size_t part_first(const cod_between *between, size_t count, int place)
{
    return count / (size_t)between->parts * (size_t)place +
           (count % (size_t)between->parts) * (size_t)place / (size_t)between->parts;
}

bool cod_between_part(const cod_between *between, size_t count, size_t *first, size_t *part_count)
{
    const int place = cod_group_rank(between->group);
    if (place < between->parts)
        cod_between_part_of(between, count, place, first, part_count);
    return place < between->parts;
}

void cod_between_part_of(const cod_between *between, size_t count, int place, size_t *first, size_t *part_count)
{
    *first = part_first(between, count, place);
    *part_count = part_first(between, count, place + 1) - *first;
}

cod_status cod_between_share(cod_between *between, float *values, size_t count)
{
    const int parts = between->parts;
    if (cod_group_size(between->group) == 1)
        return COD_OK;
    cod_group_part *all = calloc((size_t)parts, sizeof *all);
    COD_REQUIRE_MEMORY(all);
    for (int p = 0; p < parts; p++) {
        const size_t first = part_first(between, count, p), end = part_first(between, count, p + 1);
        all[p] = (cod_group_part){.root = p, .offset = first * sizeof *values, .bytes = (end - first) * sizeof *values};
    }
    cod_request *request = NULL;
    const cod_status status = cod_group_share_start(between->group, values, all, (size_t)parts, &request);
    free(all);
    COD_TRY(status);
    return cod_request_wait(&request, INFINITY);
}

cod_status cod_between_start(cod_between *between, float *values, size_t count, cod_reduction **reduction)
{
    size_t first, part;
    *reduction = NULL;
    if (between->across == NULL || !cod_between_part(between, count, &first, &part) || part == 0)
        return COD_OK;
    cod_collective *collective = cod_group_collective(between->across);
    cod_buffer buffer = {.host = values + first, .bytes = part * sizeof *values};
    if (between->weight != 1)
        for (size_t i = first; i < first + part; i++)
            values[i] *= between->weight;
    return collective->ops->average_start(collective, &buffer, 0, part, NULL, reduction);
}

cod_status cod_between_wait(cod_between *between, float *values, size_t count, cod_reduction *reduction)
{
    if (between->across == NULL)
        return COD_OK;
    if (reduction != NULL)
        COD_TRY(cod_group_collective(between->across)->ops->wait(reduction, NULL));
    return cod_between_share(between, values, count);
}

cod_status cod_between_average(cod_between *between, float *values, size_t count)
{
    cod_reduction *reduction;
    COD_TRY(cod_between_start(between, values, count, &reduction));
    return cod_between_wait(between, values, count, reduction);
}

double cod_between_sent_bytes(size_t count, size_t groups)
{
    return groups > 1 ? 2.0 * sizeof(float) * (double)count * (double)(groups - 1) / (double)groups : 0;
}

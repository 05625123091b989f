#include "ordered_average.h"

#include <stdlib.h>

static bool is_first_of_node(const int *node_of, int rank)
{
    int first = 0;
    while (node_of[first] != node_of[rank])
        first++;
    return first == rank;
}

/** @param all  [size][count] */
static float ordered_sum(const ordered_average *ordered, const float *all, size_t count, size_t i)
{
    const int size = ordered->collective.size;
    float sum = 0;
    for (int first = 0; first < size; first++) {
        if (!is_first_of_node(ordered->node_of, first))
            continue;
        float node = all[(size_t)first * count + i];
        for (int r = first + 1; r < size; r++)
            if (ordered->node_of[r] == ordered->node_of[first])
                node += all[(size_t)r * count + i];
        sum = first == 0 ? node : sum + node;
    }
    return sum;
}

static cod_status average_start(cod_collective *collective, cod_buffer *buffer, size_t offset, size_t count,
                                cod_event *ready, cod_reduction **out)
{
    ordered_average *ordered = (ordered_average *)collective;
    float *values = (float *)((char *)buffer->host + offset);
    float *all = calloc((size_t)collective->size * count + 1, sizeof *all);
    (void)ready;
    *out = NULL;
    COD_REQUIRE_MEMORY(all);
    const cod_status status = cod_group_gather(ordered->group, values, count * sizeof *all, all);
    for (size_t i = 0; i < count && status == COD_OK; i++)
        values[i] = ordered_sum(ordered, all, count, i) * (1.0F / (float)collective->size);
    free(all);
    return status;
}

static cod_status average_test(cod_reduction *reduction, bool *done)
{
    (void)reduction;
    *done = true;
    return COD_OK;
}

static cod_status average_wait(cod_reduction *reduction, cod_queue *queue)
{
    (void)reduction;
    (void)queue;
    return COD_OK;
}

cod_collective *ordered_average_init(ordered_average *ordered, cod_group *group, const int *node_of)
{
    static const cod_collective_ops ops = {.average_start = average_start, .test = average_test, .wait = average_wait};
    *ordered = (ordered_average){
        .collective = {&ops, cod_group_rank(group), cod_group_size(group)}, .group = group, .node_of = node_of};
    return &ordered->collective;
}

/* How the ranks of a job are divided into groups, and how a group ends. */
#include "comm/group_internal.h"

#include <limits.h>
#include <stdlib.h>

/**
 * `ranks` is the order of world ranks, `first` cuts it into groups; both are taken. Collective on all ranks of the job,
 * which begin at `job`.
 */
static cod_status create(cod_comm *comm, int *ranks, int *first, int count, int job, cod_group **out)
{
    cod_group *group = calloc(1, sizeof *group);
    if (group == NULL) {
        free(ranks);
        free(first);
        return cod_fail(COD_ERR_MEMORY, "out of memory for a group");
    }
    group->comm = comm;
    group->count = count;
    group->ranks = ranks;
    group->first = first;
    group->job = job;
    int place = 0;
    while (ranks[place] != job + comm->rank)
        place++;
    while (first[group->index + 1] <= place)
        group->index++;
    comm_lock(comm);
    const cod_status status = COD_MPI(MPI_Comm_split(MPI_COMM_WORLD, group->index, place, &group->mpi));
    if (status == COD_OK)
        MPI_Comm_set_errhandler(group->mpi, MPI_ERRORS_RETURN);
    comm_unlock(comm);
    group->collective = (cod_collective){.ops = &group_average_ops,
                                         .rank = place - first[group->index],
                                         .size = first[group->index + 1] - first[group->index]};
    *out = group;
    return status;
}

/** What create() takes: memory for `size` ranks and the beginnings of `count` groups, which are zeroed. */
static cod_status new_ranks(int size, int count, int **ranks, int **first)
{
    *ranks = malloc((size_t)size * sizeof **ranks);
    *first = calloc((size_t)count + 1, sizeof **first);
    if (*ranks != NULL && *first != NULL)
        return COD_OK;
    free(*ranks);
    free(*first);
    return cod_fail(COD_ERR_MEMORY, "out of memory for %d groups", count);
}

/** Groups of contiguous ranks, `size` in all, of which the job has those from `job` on. */
static cod_status create_contiguous(cod_comm *comm, const int *sizes, size_t count, int size, int job, cod_group **out)
{
    int *ranks, *first;
    COD_TRY(new_ranks(size, (int)count, &ranks, &first));
    for (size_t i = 0; i < count; i++)
        first[i + 1] = first[i] + sizes[i];
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    return create(comm, ranks, first, (int)count, job, out);
}

/** Ranks of `count` groups in all; 0 where a group has none, or they are too many to count. */
static int sum_of(const int *sizes, size_t count)
{
    int sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] <= 0 || sizes[i] > INT_MAX - sum)
            return 0;
        sum += sizes[i];
    }
    return sum;
}

cod_status cod_group_create(cod_comm *comm, const int *sizes, size_t count, cod_group **out)
{
    COD_REQUIRE(sum_of(sizes, count) == comm->size, "%zu groups do not divide %d ranks as asked", count, comm->size);
    return create_contiguous(comm, sizes, count, comm->size, 0, out);
}

cod_status cod_group_create_part(cod_comm *comm, const int *sizes, size_t count, size_t index, cod_group **out)
{
    const int size = sum_of(sizes, count);
    COD_REQUIRE(size > 0 && index < count && sizes[index] == comm->size,
                "%d ranks are not group %zu of %zu groups as asked", comm->size, index, count);
    return create_contiguous(comm, sizes, count, size, sum_of(sizes, index), out);
}

cod_status cod_group_create_by_node(cod_comm *comm, cod_group **out)
{
    const int nodes = cod_comm_node_count(comm);
    int *ranks, *first;
    COD_TRY(new_ranks(comm->size, nodes, &ranks, &first));
    int used = 0;
    for (int node = 0; node < nodes; node++) {
        for (int r = 0; r < comm->size; r++)
            if (cod_comm_node_of(comm, r) == node)
                ranks[used++] = r;
        first[node + 1] = used;
    }
    return create(comm, ranks, first, nodes, 0, out);
}

cod_status cod_group_create_across(const cod_group *group, cod_group **out)
{
    int places = 0, used = 0;
    COD_REQUIRE(group->first[group->count] == group->comm->size, "groups of other jobs cannot be met");
    for (int g = 0; g < group->count; g++)
        places = cod_group_members_of(group, g).size > places ? cod_group_members_of(group, g).size : places;
    int *ranks, *first;
    COD_TRY(new_ranks(group->comm->size, places, &ranks, &first));
    for (int place = 0; place < places; place++) {
        for (int g = 0; g < group->count; g++)
            if (place < cod_group_members_of(group, g).size)
                ranks[used++] = cod_group_world_rank(group, g, place);
        first[place + 1] = used;
    }
    COD_TRY(create(group->comm, ranks, first, places, 0, out));
    (*out)->across = true;
    return COD_OK;
}

cod_status cod_group_create_interleaved(const cod_group *group, int stride, cod_group **out)
{
    const int count = group->count * stride;
    int used = 0;
    COD_REQUIRE(group->first[group->count] == group->comm->size, "groups of other jobs cannot be split");
    for (int g = 0; g < group->count; g++)
        COD_REQUIRE(stride > 0 && cod_group_members_of(group, g).size % stride == 0,
                    "the %d ranks of group %d cannot be dealt out to %d", cod_group_members_of(group, g).size, g,
                    stride);
    int *ranks, *first;
    COD_TRY(new_ranks(group->comm->size, count, &ranks, &first));
    for (int part = 0; part < count; part++) {
        const int g = part / stride, size = cod_group_members_of(group, g).size;
        for (int place = part % stride; place < size; place += stride)
            ranks[used++] = cod_group_world_rank(group, g, place);
        first[part + 1] = used;
    }
    return create(group->comm, ranks, first, count, 0, out);
}

void cod_group_destroy(cod_group *group)
{
    if (group == NULL)
        return;
    /* Freeing a communicator may wait for its other ranks, so a barrier that can be given up goes first. */
    cod_request *barrier = NULL;
    cod_status status = comm_barrier_start(group->comm, group->mpi, &barrier);
    COD_THEN(status, life_wait_at_end(group->comm, &barrier));
    direct_leave(group->direct);
    direct_destroy(group, status == COD_OK);
    levels_destroy(group, status == COD_OK);
    if (status == COD_OK) {
        comm_lock(group->comm);
        MPI_Comm_free(&group->mpi);
        comm_unlock(group->comm);
    }
    cod_staging_destroy(group->staging);
    free(group->first);
    free(group->ranks);
    free(group);
}

/* Which ranks share a host. */
#include "comm/comm_internal.h"

#include <stdlib.h>
#include <string.h>

cod_status comm_find_nodes(cod_comm *comm)
{
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    COD_TRY(COD_MPI(MPI_Get_processor_name(name, &length)));
    comm->node_of = calloc((size_t)comm->size, sizeof *comm->node_of);
    comm->names = calloc((size_t)comm->size, sizeof *comm->names);
    COD_REQUIRE_MEMORY(comm->node_of);
    COD_REQUIRE_MEMORY(comm->names);
    char(*all)[MPI_MAX_PROCESSOR_NAME] = calloc((size_t)comm->size, sizeof *all);
    COD_REQUIRE_MEMORY(all);
    cod_status status = COD_MPI(MPI_Allgather(name, sizeof name, MPI_CHAR, all, sizeof name, MPI_CHAR, MPI_COMM_WORLD));
    for (int r = 0; r < comm->size && status == COD_OK; r++) {
        int node = 0;
        while (node < comm->node_count && strcmp(comm->names[node], all[r]) != 0)
            node++;
        if (node == comm->node_count)
            memcpy(comm->names[comm->node_count++], all[r], sizeof *all);
        comm->node_of[r] = node;
    }
    free(all);
    for (int r = 0; r < comm->size; r++) {
        comm->node_size += comm->node_of[r] == comm->node_of[comm->rank];
        comm->node_rank += r < comm->rank && comm->node_of[r] == comm->node_of[comm->rank];
    }
    return status;
}

int cod_comm_node_count(const cod_comm *comm)
{
    return comm->node_count;
}
int cod_comm_node_of(const cod_comm *comm, int world_rank)
{
    return comm->node_of[world_rank];
}
const char *cod_comm_node_name(const cod_comm *comm, int node)
{
    return comm->names[node];
}
int cod_comm_node_rank(const cod_comm *comm)
{
    return comm->node_rank;
}
int cod_comm_node_size(const cod_comm *comm)
{
    return comm->node_size;
}

/*
 * The job and its requests, where the job is this process alone. What one rank says to itself is done when it is said,
 * so there are no requests: all are NULL, which is done.
 */
#include "alone/alone_internal.h"

#include <stdlib.h>
#include <unistd.h>

cod_status cod_comm_init(const cod_comm_options *options, cod_comm **out)
{
    (void)options;
    cod_comm *comm = calloc(1, sizeof *comm);
    COD_REQUIRE_MEMORY(comm);
    comm->world = (cod_group){.comm = comm, .count = 1};
    if (gethostname(comm->node, sizeof comm->node - 1) != 0)
        comm->node[0] = '\0';
    *out = comm;
    return COD_OK;
}

cod_status cod_comm_finalize(cod_comm *comm)
{
    free(comm);
    return COD_OK;
}

int cod_comm_rank(const cod_comm *comm)
{
    (void)comm;
    return 0;
}

int cod_comm_size(const cod_comm *comm)
{
    (void)comm;
    return 1;
}

cod_group *cod_comm_world(cod_comm *comm)
{
    return &comm->world;
}

const char *cod_comm_node_name(const cod_comm *comm, int node)
{
    (void)node;
    return comm->node;
}

cod_status cod_comm_wait_for_ranks(cod_comm *comm, cod_request **request, double silence_s)
{
    (void)comm;
    (void)request;
    (void)silence_s;
    return COD_OK;
}

cod_status cod_request_test(cod_request **request, bool *done)
{
    (void)request;
    *done = true;
    return COD_OK;
}

void cod_request_abandon(cod_request **request, void (*release)(void *context), void *context)
{
    (void)request;
    if (release != NULL)
        release(context);
}

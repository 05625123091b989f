/*
 * Averages by messages that begin and end in a device's memory. On each level every rank has its share of a range: it
 * receives the values of that share from all ranks of the level, adds them up, and after the last level the average
 * goes back the same way.
 *
 * Ranks use point-to-point messages, and the device does the additions, because not all MPIs that take a device's
 * memory can also reduce it: Open MPI ends with a segmentation fault in MPI_Ireduce() and MPI_Iallreduce() of such
 * memory (issue 9845 of open-mpi/ompi).
 *
 * The progress thread polls events and sends messages, and so does a thread that starts an average or waits for one.
 * Only that thread queues additions, because one thread at a time may use a device. It waits during the backward pass,
 * and averages complete ranges meanwhile. No queue waits for messages, and no message for a queue: the host polls both,
 * so work that it queues after wait() is in order.
 *
 * In each stage averages keep the order in which they were started, which is the same on all ranks, so the stage alone
 * identifies a message.
 */
#include "comm/direct_internal.h"

#include <stdio.h>
#include <stdlib.h>

/** Sets out on the next way: shares go to whom they belong to, or from there to all. Under the lock. */
static cod_status set_out(group_direct *g, direct_average *a)
{
    const bool back = a->way >= g->level_count;
    const int l = back ? 2 * g->level_count - 1 - a->way : a->way;
    const direct_level *v = &g->levels[l];
    const direct_division *d = &a->divisions[l];
    const direct_values own = direct_share(d, v->rank);
    MPI_Request *request = a->requests;
    size_t sent = 0;
    for (int i = 1; i < v->size; i++) {
        const int to = (v->rank + i) % v->size, from = (v->rank + v->size - i) % v->size;
        const direct_values out = back ? own : direct_share(d, to), in = back ? direct_share(d, from) : own;
        if (in.count > 0) {
            float *target = back ? a->values + in.first : d->others_address + direct_place(d, v, from);
            COD_TRY(COD_MPI(MPI_Irecv(target, (int)in.count, MPI_FLOAT, from, a->way, v->mpi, request++)));
        }
        if (out.count > 0)
            COD_TRY(
                COD_MPI(MPI_Isend(a->values + out.first, (int)out.count, MPI_FLOAT, to, a->way, v->mpi, request++)));
        sent += out.count * sizeof(float);
    }
    group_count_sent(g->group, sent);
    a->request_count = (int)(request - a->requests);
    a->way++;
    return COD_OK;
}

/** Queues the additions of what came, and after the last level the division. Under the lock. */
static cod_status add_up(group_direct *g, direct_average *a)
{
    const direct_division *d = &a->divisions[a->way - 1];
    for (int i = 0; i < d->sum_count; i++)
        COD_TRY(g->backend->plan_run(d->sums[i], g->summing));
    if (a->way == g->level_count && a->scale != NULL)
        COD_TRY(g->backend->plan_run(a->scale, g->summing));
    return g->backend->event_record(a->event, g->summing);
}

/** Goes on to the next state, or leaves `state` as it is where it has to wait. Under the lock. */
static cod_status go_on(group_direct *g, direct_average *a, const direct_average *before, bool uses_device)
{
    bool reached = false;
    int through = 0;
    switch (a->state) {
    case DIRECT_COMING:
        COD_TRY(g->backend->event_query(a->event, &reached));
        a->state = reached ? DIRECT_READY : DIRECT_COMING;
        return COD_OK;
    case DIRECT_READY:
        if (before != NULL && before->way <= a->way)
            return COD_OK;
        COD_TRY(set_out(g, a));
        a->state = DIRECT_MOVING;
        return COD_OK;
    case DIRECT_MOVING:
        COD_TRY(COD_MPI(MPI_Testall(a->request_count, a->requests, &through, MPI_STATUSES_IGNORE)));
        if (through != 0)
            a->state = a->way <= g->level_count      ? DIRECT_ARRIVED
                       : a->way < 2 * g->level_count ? DIRECT_READY
                                                     : DIRECT_ENDED;
        return COD_OK;
    case DIRECT_ARRIVED:
        if (!uses_device)
            return COD_OK;
        COD_TRY(add_up(g, a));
        a->state = DIRECT_COMING;
        return COD_OK;
    case DIRECT_ENDED:
        break;
    }
    return COD_OK;
}

/** Remembers a failure for those whose averages it ends: the thread that meets it may be the progress thread. */
static cod_status note(group_direct *g, cod_status status)
{
    if (status != COD_OK && g->failed == COD_OK) {
        g->failed = status;
        snprintf(g->reason, sizeof g->reason, "%s", cod_error_message());
    }
    return status;
}

/** Moves all averages on as far as they go. Under the lock. @param uses_device  the caller may queue work */
static cod_status advance(group_direct *g, bool uses_device)
{
    const direct_average *before = NULL;
    if (g->failed != COD_OK)
        return cod_fail(g->failed, "averaging in the group failed: %s", g->reason);
    for (direct_average **at = &g->first; *at != NULL;) {
        direct_average *a = *at;
        for (direct_state was = DIRECT_ENDED; was != a->state;) {
            was = a->state;
            COD_TRY(note(g, go_on(g, a, before, uses_device)));
        }
        if (a->state == DIRECT_ENDED) {
            *at = a->behind;
        } else {
            before = a;
            at = &a->behind;
        }
    }
    return COD_OK;
}

void direct_progress(cod_comm *comm)
{
    for (group_direct *g = comm->directs; g != NULL; g = g->next) {
        if (g->all != NULL) /* MPI may take hold of the memory in any of its functions, in this thread, too */
            (void)g->backend->buffer_address(g->device, g->all->buffer);
        if (g->first != NULL && g->failed == COD_OK)
            (void)advance(g, false);
    }
}

/** Under the lock. */
static cod_status begin(group_direct *g, direct_average *a, cod_event *ready)
{
    direct_average **last = &g->first;
    if (ready != NULL) {
        COD_TRY(g->backend->queue_wait(g->coming, ready));
        COD_TRY(g->backend->event_record(a->event, g->coming));
    }
    while (*last != NULL)
        last = &(*last)->behind;
    a->state = ready != NULL ? DIRECT_COMING : DIRECT_READY;
    a->way = 0;
    a->behind = NULL;
    a->under_way = true;
    *last = a;
    atomic_fetch_add(&g->group->comm->urgent, 1);
    return advance(g, true);
}

static cod_status average_start(cod_collective *collective, cod_buffer *buffer, size_t offset, size_t count,
                                cod_event *ready, cod_reduction **out)
{
    group_direct *g = (group_direct *)collective;
    direct_average *a;
    *out = NULL;
    COD_REQUIRE(buffer->host == NULL, "averages between devices take memory of a device, not of the host");
    COD_REQUIRE(offset % sizeof(float) == 0 && offset <= buffer->bytes &&
                    count <= (buffer->bytes - offset) / sizeof(float),
                "a range of %zu values at byte %zu lies outside its buffer", count, offset);
    COD_TRY(direct_average_find(g, buffer, offset, count, &a));
    COD_REQUIRE(!a->under_way, "a range of %zu values at byte %zu is being averaged already", count, offset);
    comm_lock(g->group->comm);
    const cod_status status = begin(g, a, ready);
    comm_unlock(g->group->comm);
    *out = (cod_reduction *)a;
    return status;
}

static cod_status average_test(cod_reduction *reduction, bool *done)
{
    direct_average *a = (direct_average *)reduction;
    cod_comm *comm = a->direct->group->comm;
    comm_lock(comm);
    const cod_status status = advance(a->direct, true);
    *done = a->state == DIRECT_ENDED;
    comm_unlock(comm);
    return status;
}

static cod_status average_wait(cod_reduction *reduction, cod_queue *queue)
{
    direct_average *a = (direct_average *)reduction;
    cod_status status = COD_OK;
    (void)queue; /* the host has seen the last message, so all that is queued later comes after it */
    if (a == NULL)
        return COD_OK;
    bool done = false;
    for (unsigned looks = 0; status == COD_OK && !done;) {
        status = average_test(reduction, &done);
        if (status == COD_OK && !done)
            cod_comm_pause(&looks);
    }
    atomic_fetch_sub(&a->direct->group->comm->urgent, 1);
    a->under_way = false;
    return status;
}

static const cod_collective_ops direct_ops = {
    .average_start = average_start, .test = average_test, .wait = average_wait};

/** A rank's position among the nodes of its group. */
typedef struct place {
    int first;  /**< the lowest rank of its node */
    int within; /**< how many lower ranks are on its node */
} place;

static place place_among(const cod_group *group, const int *node_of, int rank)
{
    const int job = group->job, index = group->index, node = node_of[cod_group_world_rank(group, index, rank) - job];
    place p = {rank, 0};
    for (int r = rank - 1; r >= 0; r--)
        if (node_of[cod_group_world_rank(group, index, r) - job] == node) {
            p.first = r;
            p.within++;
        }
    return p;
}

/** Whether all nodes have as many ranks of the group; and how many nodes there are. */
static bool count_equal_nodes(const cod_group *group, const int *node_of, int *nodes)
{
    const int size = cod_group_size(group);
    int with_most = 0, most = 0;
    *nodes = 0;
    for (int r = 0; r < size; r++) {
        const int within = place_among(group, node_of, r).within;
        *nodes += within == 0;
        with_most = within > most ? 1 : with_most + (within == most);
        most = within > most ? within : most;
    }
    return with_most == *nodes;
}

/** Under the lock. */
static cod_status split_level(group_direct *g, int color, int key)
{
    direct_level *v = &g->levels[g->level_count];
    COD_TRY(COD_MPI(MPI_Comm_split(g->group->mpi, color, key, &v->mpi)));
    MPI_Comm_set_errhandler(v->mpi, MPI_ERRORS_RETURN);
    g->level_count++;
    COD_TRY(COD_MPI(MPI_Comm_rank(v->mpi, &v->rank)));
    return COD_MPI(MPI_Comm_size(v->mpi, &v->size));
}

/** Collective on the group. */
static cod_status make_levels(group_direct *g, const int *node_of, int nodes)
{
    const int rank = cod_group_rank(g->group);
    const place here = place_among(g->group, node_of, rank);
    const bool flat = nodes == 1 || nodes == cod_group_size(g->group);
    comm_lock(g->group->comm);
    cod_status status = split_level(g, flat ? 0 : here.first, rank);
    if (!flat)
        COD_THEN(status, split_level(g, here.within, here.first));
    comm_unlock(g->group->comm);
    return status;
}

/** Collective on the group: what may fail on one rank alone is agreed on before anything that all must do. */
static cod_status connect(group_direct *g, const int *node_of)
{
    const cod_backend *backend = g->backend;
    int nodes = 0;
    cod_status status = COD_OK;
    if (backend->buffer_address == NULL)
        status = cod_fail(COD_ERR_UNSUPPORTED, "backend '%s' gives MPI no addresses", backend->name);
    else if (!count_equal_nodes(g->group, node_of, &nodes))
        status = cod_fail(COD_ERR_UNSUPPORTED, "its nodes have unlike numbers of its ranks");
    COD_THEN(status, backend->queue_create(g->device, &g->coming));
    COD_THEN(status, backend->queue_create(g->device, &g->summing));
    COD_TRY(cod_group_agree(g->group, status, NULL));
    return cod_group_agree(g->group, make_levels(g, node_of, nodes), NULL);
}

cod_status cod_group_average_direct(cod_group *group, const cod_backend *backend, cod_device *device,
                                    const int *node_of, cod_collective **out)
{
    cod_comm *comm = group->comm;
    COD_REQUIRE(group->direct == NULL, "the group averages its devices' memory already");
    group_direct *g = calloc(1, sizeof *g);
    COD_TRY(cod_group_agree(
        group, g != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory for averages between devices"), NULL));
    g->collective = (cod_collective){.ops = &direct_ops, .rank = cod_group_rank(group), .size = cod_group_size(group)};
    g->group = group;
    g->backend = backend;
    g->device = device;
    group->direct = g;
    const cod_status status = connect(g, node_of != NULL ? node_of : comm->node_of);
    if (status != COD_OK) {
        direct_leave(g);
        direct_destroy(group, true);
        return status;
    }
    comm_lock(comm);
    g->next = comm->directs;
    comm->directs = g;
    comm_unlock(comm);
    *out = &g->collective;
    return COD_OK;
}

void direct_leave(group_direct *g)
{
    if (g == NULL || g->backend == NULL)
        return;
    cod_comm *comm = g->group->comm;
    comm_lock(comm);
    if (g->first != NULL)
        (void)note(g, cod_fail(COD_ERR_INTERRUPTED, "averages of a device's memory were given up"));
    group_direct **at = &comm->directs;
    while (*at != NULL && *at != g)
        at = &(*at)->next;
    if (*at != NULL)
        *at = g->next;
    comm_unlock(comm);
    if (g->coming != NULL)
        g->backend->queue_destroy(g->coming);
    if (g->summing != NULL)
        g->backend->queue_destroy(g->summing);
    while (g->all != NULL) {
        direct_average *a = g->all;
        g->all = a->next;
        if (a->under_way)
            atomic_fetch_sub(&comm->urgent, 1);
        direct_average_free(g, a);
    }
    g->backend = NULL;
}

void direct_destroy(cod_group *group, bool all_are_here)
{
    group_direct *g = group->direct;
    if (g == NULL)
        return;
    comm_lock(group->comm);
    for (int l = 0; l < g->level_count && all_are_here; l++)
        MPI_Comm_free(&g->levels[l].mpi);
    comm_unlock(group->comm);
    group->direct = NULL;
    free(g);
}

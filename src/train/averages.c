/*
 * Chooses how gradients are averaged inside a group: directly between devices if NCCL or MPI can, otherwise through the
 * host's memory.
 */
#include "train/trainer_internal.h"

#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Whether two ranks of the group compute on one device. Collective on the group. */
static cod_status share_a_device(const trainer *t, bool *shared)
{
    const int size = cod_group_size(t->group);
    const uint64_t own = trainer_device_identity(t);
    uint64_t *all = calloc((size_t)size, sizeof *all);
    *shared = false;
    cod_status status = all != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    status = cod_group_agree(t->group, status, NULL);
    COD_THEN(status, cod_group_gather(t->group, &own, sizeof own, all));
    for (int a = 0; a < size && status == COD_OK; a++)
        for (int b = 0; b < a; b++)
            *shared = *shared || (all[a] == all[b] && cod_group_node_of(t->group, a) == cod_group_node_of(t->group, b));
    free(all);
    return status;
}

/** Makes the collective of the group's devices. Collective on the group, which agrees on the outcome. */
static cod_status connect_devices(trainer *t)
{
    const cod_backend *backend = t->session.backend;
    cod_device *device = t->session.device;
    const int rank = cod_group_rank(t->group);
    unsigned char name[COD_COLLECTIVE_NAME_BYTES] = {0};
    bool shared = false;
    const cod_status able =
        backend->collective_create != NULL
            ? COD_OK
            : cod_fail(COD_ERR_UNSUPPORTED, "backend '%s' has no averages of its own", backend->name);
    COD_TRY(cod_group_agree(t->group, able, NULL));
    COD_TRY(share_a_device(t, &shared));
    if (shared)
        return cod_fail(COD_ERR_UNSUPPORTED, "several of its ranks compute on one GPU, and NCCL wants one for each");
    /* Every rank asks: one that lacks the library would leave the others waiting in collective_create(). */
    COD_TRY(cod_group_agree(t->group, backend->collective_name(device, rank == 0 ? name : NULL), NULL));
    COD_TRY(cod_group_broadcast(t->group, name, sizeof name, 0));
    cod_status status = backend->collective_create(device, name, rank, cod_group_size(t->group), &t->between_devices);
    status = cod_group_agree(t->group, status, NULL);
    if (status != COD_OK && t->between_devices != NULL) {
        backend->collective_destroy(device, t->between_devices);
        t->between_devices = NULL;
    }
    if (status == COD_OK)
        t->context.collective = t->between_devices;
    return status;
}

/** Lets MPI reach the memory of the group's devices. Collective on the group, which agrees on the outcome. */
static cod_status connect_memory(trainer *t)
{
    cod_train_session *session = &t->session;
    COD_TRY(cod_group_agree(t->group, cod_comm_takes_devices(t->request->comm), NULL));
    return cod_group_average_direct(t->group, session->backend, session->device, NULL, &t->context.collective);
}

/**
 * `why` grows by the reason of a failure, which ends nothing: another way is left.
 *
 * @return whether it is a failure to warn of
 */
static bool add_reason(cod_status status, char *why, size_t bytes)
{
    const size_t length = strlen(why);
    snprintf(why + length, bytes - length, "%s%s", length > 0 ? "; " : "", cod_error_message());
    return status != COD_ERR_UNSUPPORTED;
}

/** Takes the first way that can be. Collective on the group. */
static cod_status choose(trainer *t)
{
    const cod_train_options *train = &t->config->train;
    const int group = cod_group_index(t->group);
    char why[1024] = "";
    bool failed = false;
    if (!train->deterministic) {
        const cod_status status = connect_devices(t);
        if (status == COD_OK) {
            if (t->leader)
                cod_log_info("group %d: gradients are averaged by NCCL, between its GPUs", group);
            return COD_OK;
        }
        failed = add_reason(status, why, sizeof why);
    }
    const cod_status status = connect_memory(t);
    if (status != COD_OK)
        failed = add_reason(status, why, sizeof why) || failed;
    const char *way = status == COD_OK ? "between its GPUs" : "through the host's memory";
    if (t->leader && failed)
        cod_log_warn("group %d: gradients are averaged by MPI, %s, as a better way failed (%s)", group, way, why);
    else if (t->leader)
        cod_log_info("group %d: gradients are averaged by MPI, %s%s%s%s", group, way, why[0] != '\0' ? " (" : "", why,
                     why[0] != '\0' ? ")" : "");
    return COD_OK;
}

cod_status trainer_choose_averages(trainer *t)
{
    const cod_train_options *train = &t->config->train;
    const int group = cod_group_index(t->group);
    if (cod_group_size(t->group) == 1 || !t->config->strategy->averages ||
        train->allreduce_codec != COD_ALLREDUCE_EXACT)
        return COD_OK;
    if (train->allreduce == COD_ALLREDUCE_AUTO)
        return t->session.backend->memory != NULL ? choose(t) : COD_OK;
    if (train->allreduce != COD_ALLREDUCE_NCCL && train->allreduce != COD_ALLREDUCE_DIRECT)
        return COD_OK;
    const bool by_nccl = train->allreduce == COD_ALLREDUCE_NCCL;
    const cod_status status = by_nccl ? connect_devices(t) : connect_memory(t);
    if (status != COD_OK)
        return cod_fail_prefix(status, "train.allreduce=%s: group %d", by_nccl ? "nccl" : "direct", group);
    if (t->leader)
        cod_log_info("group %d: gradients are averaged by %s, between its GPUs", group, by_nccl ? "NCCL" : "MPI");
    return COD_OK;
}

/* How gradients are averaged inside a group: between the devices themselves where they can, else by MPI. */
#include "train/trainer_internal.h"

#include "core/log.h"

#include <stdlib.h>

/** Whether two ranks of the group compute on one device. Collective on the group. */
static cod_status share_a_device(const trainer *t, bool *shared)
{
    const cod_comm *comm = t->request->comm;
    const int size = cod_group_size(t->group), group = cod_group_index(t->group);
    const uint64_t own = trainer_device_identity(t);
    uint64_t *all = calloc((size_t)size, sizeof *all);
    cod_status status = COD_OK;
    *shared = false;
    if (all == NULL)
        status = cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_TRY_GOTO(status, cleanup, cod_group_agree(t->group, status, NULL));
    COD_TRY_GOTO(status, cleanup, cod_group_gather(t->group, &own, sizeof own, all));
    for (int a = 0; a < size; a++)
        for (int b = 0; b < a; b++)
            *shared =
                *shared || (all[a] == all[b] && cod_comm_node_of(comm, cod_group_world_rank(t->group, group, a)) ==
                                                    cod_comm_node_of(comm, cod_group_world_rank(t->group, group, b)));
cleanup:
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
    return status;
}

cod_status trainer_choose_averages(trainer *t)
{
    const cod_train_options *train = &t->config->train;
    const int group = cod_group_index(t->group);
    const bool demanded = train->allreduce == COD_ALLREDUCE_NCCL, on_device = t->session.backend->memory != NULL;
    if (cod_group_size(t->group) == 1 || !t->config->strategy->averages ||
        train->allreduce_codec != COD_ALLREDUCE_EXACT)
        return COD_OK;
    if (!demanded && (train->allreduce != COD_ALLREDUCE_AUTO || !on_device || train->deterministic))
        return COD_OK;
    const cod_status status = connect_devices(t);
    if (status == COD_OK) {
        t->context.collective = t->between_devices;
        if (t->leader)
            cod_log_info("group %d: gradients are averaged by NCCL, between its GPUs", group);
        return COD_OK;
    }
    if (demanded)
        return cod_fail_prefix(status, "train.allreduce=nccl: group %d", group);
    /* Whichever rank failed, all are here. */
    if (t->leader && status == COD_ERR_UNSUPPORTED)
        cod_log_info("group %d: gradients are averaged by MPI, through the host's memory (%s)", group,
                     cod_error_message());
    else if (t->leader)
        cod_log_warn("group %d: gradients are averaged by MPI, through the host's memory, as NCCL failed (%s)", group,
                     cod_error_message());
    return COD_OK;
}

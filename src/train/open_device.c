/* Opens a rank's device, and finds out which other ranks compute on it. */
#include "train/trainer_internal.h"

#include "core/hash.h"
#include "core/log.h"
#include "nn/precision.h"
#include "train/memory_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cod_device_choice choice_of(const trainer *t, int world_rank)
{
    return cod_run_config_device(t->config, cod_run_config_group_of_rank(t->config, world_rank));
}

/** This rank's place on its node among the ranks that want a GPU; where it wants none, among all. */
static int place_on_node(const trainer *t)
{
    const cod_comm *comm = t->request->comm;
    const int rank = cod_comm_rank(comm), node = cod_comm_node_of(comm, rank);
    const cod_device_choice own = choice_of(t, rank);
    int place = 0;
    if (cod_device_is_cpu(&own))
        return cod_comm_node_rank(comm);
    for (int r = 0; r < rank; r++) {
        const cod_device_choice choice = choice_of(t, r);
        place += cod_comm_node_of(comm, r) == node && !cod_device_is_cpu(&choice);
    }
    return place;
}

static cod_status open_as(trainer *t, const cod_device_choice *choice, char reason[COD_DEVICE_REASON])
{
    const int wanted = (int)t->config->cluster.threads, fastest = t->binding.threads;
    const cod_device_options options = {.threads = wanted > 0 ? wanted : fastest,
                                        .ordinal = place_on_node(t),
                                        .no_autotune = !t->config->train.autotune};
    return cod_device_open(choice, &options, &t->session.backend, &t->session.device, reason);
}

/**
 * Ranks of a group compute on devices of one kind: where `auto` found a GPU for some of them alone, all take the
 * processor.
 */
static cod_status agree_on_kind(trainer *t, const cod_device_choice *chosen, char reason[COD_DEVICE_REASON])
{
    cod_device_choice choice = *chosen;
    const bool open = choice.device == COD_DEVICE_AUTO && !cod_device_is_cpu(&choice);
    cod_train_session *session = &t->session;
    double lacking = session->backend->memory == NULL;
    const bool own = lacking == 0;
    if (!open || strcmp(choice.backend, COD_BACKEND_AUTO) != 0)
        return COD_OK;
    COD_TRY(cod_group_reduce(t->group, &lacking, 1, COD_REDUCE_SUM));
    if (lacking == 0 || !own)
        return COD_OK;
    session->backend->close(session->device);
    session->device = NULL;
    choice.host_only = "another rank of the group has no GPU that it can use";
    return open_as(t, &choice, reason);
}

uint64_t trainer_device_identity(const trainer *t)
{
    const char *text = t->session.backend->describe(t->session.device), *behind = strchr(text, '(');
    /* The number in front of it is this process's own: others may see the same GPUs in another order. */
    const char *identity = behind != NULL ? behind : text;
    return cod_hash(identity, strlen(identity), 0);
}

/** Logs once for each device how many ranks compute on it. Collective on all ranks. */
static cod_status tell_sharing(const trainer *t)
{
    const cod_comm *comm = t->request->comm;
    const cod_train_session *session = &t->session;
    const int ranks = cod_comm_size(comm), rank = cod_comm_rank(comm);
    const char *text = session->backend->describe(session->device);
    const uint64_t own = session->backend->memory != NULL ? trainer_device_identity(t) : 0;
    uint64_t *all = calloc((size_t)ranks, sizeof *all);
    COD_REQUIRE_MEMORY(all);
    const cod_status status = cod_group_gather(cod_comm_world(t->request->comm), &own, sizeof own, all);
    int sharing = 0, before = 0;
    for (int r = 0; status == COD_OK && r < ranks; r++) {
        const bool same = all[r] == own && cod_comm_node_of(comm, r) == cod_comm_node_of(comm, rank);
        sharing += same;
        before += same && r < rank;
    }
    free(all);
    if (own != 0 && sharing > 1 && before == 0)
        cod_log_info("%d ranks of %s compute on one device (%s): they take turns, unless NVIDIA's MPS runs "
                     "(nvidia-cuda-mps-control -d)",
                     sharing, cod_comm_node_name(comm, cod_comm_node_of(comm, rank)), text);
    return status;
}

cod_status trainer_open_device(trainer *t)
{
    cod_group *world = cod_comm_world(t->request->comm);
    cod_train_session *session = &t->session;
    const cod_device_choice choice = cod_run_config_device(t->config, cod_group_index(t->group));
    const int wanted = (int)t->config->cluster.threads, fastest = t->binding.threads;
    char *reason = t->device_reason;
    if (wanted > fastest && t->leader)
        cod_log_warn("cluster.threads: %d threads of a rank share %d core%s; at most %d can pay", wanted, fastest,
                     fastest == 1 ? "" : "s", fastest);
    COD_TRY(cod_group_agree(world, open_as(t, &choice, reason), NULL));
    COD_TRY(cod_group_agree(world, agree_on_kind(t, &choice, reason), NULL));
    COD_TRY(tell_sharing(t));
    return cod_group_agree(world,
                           cod_precision_dtype((cod_precision)t->config->train.precision, session->backend,
                                               session->device, &session->activation),
                           NULL);
}

void trainer_tell_memory(const trainer *t)
{
    char text[COD_MEMORY_PLAN_TEXT];
    cod_memory_plan plan;
    if (!t->leader || !cod_memory_plan_read(&t->session, &plan))
        return;
    cod_memory_plan_format(&plan, text);
    cod_log_info("group %d: memory of the device for a rank, MB: %s", cod_group_index(t->group), text);
}

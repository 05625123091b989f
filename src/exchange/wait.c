/* Exchanges that wait for each other's versions: in deterministic mode, and where an earlier run is repeated. */
#include "exchange/exchange_internal.h"

#include "core/log.h"
#include "core/trace.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/**
 * How long a group waits for another. One group may evaluate for minutes while another does not, and groups of a
 * replayed run may have been far apart.
 */
static double patience_s(const exchange_setup *setup)
{
    enum { TIMES = 60 };
    return TIMES * setup->options.pull_timeout_s;
}
/** A wait for another group, on the stack. */
typedef struct wait_of_group {
    double since, told;
} wait_of_group;

/** How long a wait asks again at once, and how long it pauses from then on. */
#define EAGER_S 1e-3
enum { PAUSE_US = 100 };

static wait_of_group wait_begin(void)
{
    const double now = cod_clock_s();
    return (wait_of_group){.since = now, .told = now};
}

/**
 * Whether the wait has taken longer than patience_s(). Until then it logs every pull_timeout_s that this group
 * waits for `group` to do `what` with the version: "publish", "take".
 */
static bool wait_is_over(const exchange_setup *setup, wait_of_group *waiting, int group, const char *what,
                         uint64_t version)
{
    const double now = cod_clock_s();
    if (now - waiting->told > setup->options.pull_timeout_s) {
        waiting->told = now;
        cod_log_info("group %d has waited %.3g s for group %d to %s version %llu; after %.3g s it gives up",
                     setup->mine, now - waiting->since, group, what, (unsigned long long)version, patience_s(setup));
    }
    /* Who asks without a pause may keep the file transport's thread from its mutex for minutes. */
    if (now - waiting->since > EAGER_S)
        usleep(PAUSE_US);
    return now - waiting->since > patience_s(setup);
}

cod_status exchange_wait_for_readers(const exchange_setup *setup, int fragment)
{
    const int groups = setup->groups, mine = setup->mine;
    cod_transport *transport = setup->transports[fragment];
    const uint64_t oldest = transport->ops->oldest(transport);
    wait_of_group waiting = wait_begin();
    for (int i = 1; i < groups; i++) {
        const int reader = (mine + groups - i) % groups;
        uint64_t taken = 0;
        if (!cod_exchange_reads(&setup->options, groups, reader, mine))
            continue;
        const cod_slot_identity identity = exchange_identity(setup, reader, fragment, 0);
        while (taken < oldest) {
            COD_TRY(transport->ops->acknowledged(transport, &identity, exchange_world_rank(setup, reader, 0),
                                                 (uint32_t)mine, &taken));
            if (wait_is_over(setup, &waiting, reader, "take", oldest))
                return cod_fail(COD_ERR_PEER,
                                "group %d did not take version %llu within %.0f s, for which this group waits", reader,
                                (unsigned long long)oldest, patience_s(setup));
            sched_yield();
        }
    }
    return COD_OK;
}

/** Deterministic, replay: takes one version of a peer, waiting for it. `step`: of the agreement that it stands for. */
static cod_status take(cod_exchange *e, held_peer *peer, uint64_t version, int64_t step)
{
    exchange_pull *pull = exchange_pull_of(&e->puller, peer);
    wait_of_group waiting = wait_begin();
    COD_TRY(exchange_puller_start(&e->puller, peer, version, EXCHANGE_ANY_LIFE));
    while (!pull->standing.done) {
        COD_TRY(exchange_puller_move_some(&e->puller, pull, UINT64_MAX));
        if (pull->standing.lost || wait_is_over(&e->setup, &waiting, peer->group, "publish", version))
            return cod_fail(COD_ERR_PEER, "version %llu of group %d, for which this group waits, %s",
                            (unsigned long long)version, peer->group,
                            pull->standing.lost ? "was lost" : "did not come in time");
        sched_yield();
    }
    double bytes = (double)pull->standing.bytes;
    COD_TRY(cod_group_reduce(e->setup.group, &bytes, 1, COD_REDUCE_SUM));
    peer->counters.bytes += (uint64_t)bytes;
    COD_TRY(exchange_puller_gather(&e->puller, pull));
    COD_TRY(cod_comm_wait_for_ranks(e->setup.comm, &pull->gathering, patience_s(&e->setup)));
    while (!pull->standing.done) {
        COD_TRY(exchange_puller_move_gather(&e->puller, pull));
        if (pull->standing.lost)
            return cod_fail(COD_ERR_PEER, "version %llu of group %d, for which this group waits, was lost",
                            (unsigned long long)version, peer->group);
        sched_yield();
    }
    if (e->setup.shared != NULL && exchange_sends_shards(&e->setup))
        COD_TRY(cod_group_barrier(e->setup.group)); /* other ranks of the node receive parts of it, too */
    exchange_puller_take_over(&e->puller, pull, step);
    return COD_OK;
}

cod_status exchange_take_all(cod_exchange *e, int64_t step)
{
    const int fragment = exchange_fragment_now(&e->publisher);
    cod_transport *transport = e->setup.transports[fragment];
    for (int i = fragment; i < e->puller.peer_count; i += e->setup.fragments) {
        COD_TRY(take(e, &e->puller.peers[i], e->publisher.version, step));
        COD_TRY(transport->ops->acknowledge(transport, (uint32_t)e->puller.peers[i].group, e->publisher.version));
    }
    return COD_OK;
}

/*
 * Replaying: a reader acknowledges what comes before the version that it needs next, and the publisher waits for that.
 */

static cod_status acknowledge_until_next(cod_exchange *e, int group, int fragment)
{
    uint64_t version = UINT64_MAX / 2; /* none any more */
    for (size_t i = e->next_event; i < e->event_count; i++) {
        if (e->events[i].group == group && exchange_fragment_of(&e->setup, e->events[i].version) == fragment) {
            version = e->events[i].version - 1;
            break;
        }
    }
    return e->setup.transports[fragment]->ops->acknowledge(e->setup.transports[fragment], (uint32_t)group, version);
}

cod_status cod_exchange_replay(cod_exchange *e, const cod_exchange_event *events, size_t count)
{
    e->events = malloc((count + 1) * sizeof *events);
    COD_REQUIRE_MEMORY(e->events);
    memcpy(e->events, events, count * sizeof *events);
    e->event_count = count;
    e->setup.waits = true;
    for (int i = 0; i < e->puller.peer_count; i++)
        COD_TRY(acknowledge_until_next(e, e->puller.peers[i].group, e->puller.peers[i].fragment));
    return COD_OK;
}

bool exchange_replays_publication(const cod_exchange *e, int64_t step)
{
    for (size_t i = e->next_event; i < e->event_count && e->events[i].step <= step; i++)
        if (e->events[i].group < 0 && e->events[i].step == step)
            return true;
    return false;
}

cod_status exchange_replay_step(cod_exchange *e, int64_t step)
{
    while (e->next_event < e->event_count && e->events[e->next_event].step <= step) {
        const cod_exchange_event event = e->events[e->next_event++];
        held_peer *peer = NULL;
        for (int i = 0; i < e->puller.peer_count; i++)
            if (e->puller.peers[i].group == event.group &&
                e->puller.peers[i].fragment == exchange_fragment_of(&e->setup, event.version))
                peer = &e->puller.peers[i];
        if (event.group < 0)
            continue;
        COD_REQUIRE(peer != NULL && event.step == step && event.version > peer->version,
                    "the record of step %lld, group %d, version %llu is not of this configuration",
                    (long long)event.step, event.group, (unsigned long long)event.version);
        COD_TRY(take(e, peer, event.version, step - 1));
        COD_TRY(acknowledge_until_next(e, event.group, peer->fragment));
    }
    return COD_OK;
}

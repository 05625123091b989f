/* The trace of a rank, and its clock beside that of the first rank, so that traces can be merged. */
#include "train/trainer_internal.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum { ROUNDS = 32, EVENTS_MOST = 2000000 };

static double wall_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/**
 * Nobody leaves a barrier before everybody has entered it. So this rank's clock is ahead by at most what it showed when
 * the rank left, less what the first rank's showed when that entered, and by at least the same the other way round. The
 * narrowest bounds of several barriers enclose it, to about the time of a message.
 */
static cod_status measure_clock(const trainer *t, cod_trace_process *process)
{
    cod_group *world = cod_comm_world(t->context.comm);
    const bool is_first = cod_group_rank(world) == 0;
    double entered[ROUNDS], left[ROUNDS], first[2 * ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        entered[i] = wall_clock_s();
        COD_TRY(cod_group_barrier(world));
        left[i] = wall_clock_s();
        first[i] = is_first ? entered[i] : 0;
        first[ROUNDS + i] = is_first ? left[i] : 0;
    }
    COD_TRY(cod_group_reduce(world, first, (size_t)2 * ROUNDS, COD_REDUCE_SUM));
    double least = -INFINITY, most = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        least = fmax(least, entered[i] - first[ROUNDS + i]);
        most = fmin(most, left[i] - first[i]);
    }
    process->clock_ahead_s = is_first ? 0 : (least + most) / 2;
    process->clock_spread_s = is_first ? 0 : fmax(0, (most - least) / 2);
    return COD_OK;
}

cod_status trainer_describe_process(const trainer *t, cod_trace_process *process)
{
    const cod_comm *comm = t->context.comm;
    const int apart = trainer_rank(t) - cod_comm_rank(comm); /* where other groups are jobs of their own */
    *process = (cod_trace_process){.rank = trainer_rank(t),
                                   .group = cod_group_index(t->group),
                                   .host = cod_comm_node_name(comm, cod_comm_node_of(comm, cod_comm_rank(comm))),
                                   .clock_of = apart};
    return t->config->log.trace[0] != '\0' ? measure_clock(t, process) : COD_OK;
}

cod_status trainer_open_trace(trainer *t, const cod_trace_process *process)
{
    char path[4096], name[320];
    if (t->config->log.trace[0] == '\0')
        return COD_OK;
    snprintf(path, sizeof path, "%s/%d.%s", t->folder, process->rank, t->config->log.trace);
    snprintf(name, sizeof name, "group %d on %s", process->group, process->host);
    COD_TRY(cod_trace_file_open(path, process->rank, name, EVENTS_MOST, &t->trace));
    cod_trace_file_describe(t->trace, process);
    cod_trace_set_sink(cod_trace_file_sink, t->trace);
    return COD_OK;
}

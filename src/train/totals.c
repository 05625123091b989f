/* Totals of a run over all its processes. */
#include "train/trainer_internal.h"

#include "core/statistics.h"
#include "core/whole.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const names[TRAINER_TOTALS] = {
    [TOTAL_WALL_S] = "wall_s",
    [TOTAL_CORE_S] = "core_s",
    [TOTAL_INTERGROUP_BYTES] = "intergroup_bytes",
    [TOTAL_INTRAGROUP_BYTES] = "intragroup_bytes",
    [TOTAL_PULLED_BYTES] = "pulled_bytes",
    [TOTAL_PUBLISHED_BYTES] = "published_bytes",
    [TOTAL_PULLS] = "pulls",
    [TOTAL_PUBLICATIONS] = "publications",
    [TOTAL_REJECTED] = "rejected",
    [TOTAL_SWITCHES] = "teacher_switches",
    [TOTAL_MERGES] = "merges",
    [TOTAL_MEMORY_BYTES] = "memory_bytes",
    [TOTAL_PUSHES] = "pushes",
    [TOTAL_PUSH_STALENESS] = "push_staleness",
    [TOTAL_PUSH_STALENESS_MAX] = "push_staleness_max",
    [TOTAL_STEP_MS] = "step_ms",
    [TOTAL_TEACHER_MS] = "teacher_ms",
    [TOTAL_EXCHANGE_MS] = "exchange_ms",
    [TOTAL_EXCHANGE_SHARE] = "exchange_share",
    [TOTAL_STEPS_S] = "steps_s",
    [TOTAL_TEACHER_S] = "teacher_s",
    [TOTAL_WAIT_S] = "wait_s",
    [TOTAL_EXCHANGE_S] = "exchange_s",
};

double trainer_median_ms(const trainer *t, size_t last)
{
    const size_t kept = t->step_count < STEP_TIMES ? t->step_count : STEP_TIMES, count = kept < last ? kept : last;
    double sorted[STEP_TIMES];
    for (size_t i = 0; i < count; i++)
        sorted[i] = t->step_ms[(t->step_count - count + i) % STEP_TIMES];
    return cod_median(sorted, count);
}

double trainer_exchange_share(const trainer *t, const cod_strategy_stats *stats)
{
    return t->step_count > 0 ? 1e-3 * stats->exchange_ms * (double)t->step_count / t->steps_s : NAN;
}

void trainer_read_stats(const trainer *t, cod_strategy_stats *out)
{
    const double *earlier = t->earlier;
    *out = (cod_strategy_stats){.distill_loss = NAN, .teacher_step = -1};
    if (t->strategy->ops->stats != NULL)
        t->strategy->ops->stats(t->strategy, out);
    out->pulled_bytes += (uint64_t)earlier[TOTAL_PULLED_BYTES];
    out->published_bytes += (uint64_t)earlier[TOTAL_PUBLISHED_BYTES];
    out->pulls += (uint64_t)earlier[TOTAL_PULLS];
    out->publications += (uint64_t)earlier[TOTAL_PUBLICATIONS];
    out->rejected += (uint64_t)earlier[TOTAL_REJECTED];
    out->teacher_switches += (uint64_t)earlier[TOTAL_SWITCHES];
    out->merges += (uint64_t)earlier[TOTAL_MERGES];
    out->pushes += (uint64_t)earlier[TOTAL_PUSHES];
    out->push_staleness += (uint64_t)earlier[TOTAL_PUSH_STALENESS];
    if (out->push_staleness_max < (uint64_t)earlier[TOTAL_PUSH_STALENESS_MAX])
        out->push_staleness_max = (uint64_t)earlier[TOTAL_PUSH_STALENESS_MAX];
}

/**
 * This process's memory, of pages that processes share its part: so sums over processes count those once. 0 = not
 * known.
 */
static double memory_bytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    double kibibytes = 0;
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Pss: %lf kB", &kibibytes) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return 1024 * kibibytes;
}

void trainer_read_totals(const trainer *t, double out[TRAINER_TOTALS])
{
    const double *earlier = t->earlier, elapsed_s = cod_clock_s() - t->start_s;
    const bool stepped = t->step_count > 0;
    cod_comm_counters counters;
    cod_strategy_stats stats;
    cod_comm_read_counters(t->context.comm, &counters);
    trainer_read_stats(t, &stats);
    out[TOTAL_WALL_S] = earlier[TOTAL_WALL_S] + elapsed_s;
    out[TOTAL_CORE_S] = earlier[TOTAL_CORE_S] + elapsed_s;
    /* comm counts bytes that come by MPI, with headers; only the puller counts bytes that come through files. */
    const double pulled = fmax((double)counters.pulled_bytes, (double)stats.pulled_bytes - earlier[TOTAL_PULLED_BYTES]);
    out[TOTAL_INTERGROUP_BYTES] = earlier[TOTAL_INTERGROUP_BYTES] + pulled;
    const bool alone = cod_group_count(t->group) == 1; /* then messages, too, are between ranks of the group */
    const uint64_t inside = counters.group_bytes + (alone ? counters.message_bytes + counters.across_bytes : 0);
    out[TOTAL_INTRAGROUP_BYTES] = earlier[TOTAL_INTRAGROUP_BYTES] + (double)inside;
    out[TOTAL_PULLED_BYTES] = (double)stats.pulled_bytes;
    out[TOTAL_PUBLISHED_BYTES] = (double)stats.published_bytes;
    out[TOTAL_PULLS] = (double)stats.pulls;
    out[TOTAL_PUBLICATIONS] = (double)stats.publications;
    out[TOTAL_REJECTED] = (double)stats.rejected;
    out[TOTAL_SWITCHES] = (double)stats.teacher_switches;
    out[TOTAL_MERGES] = (double)stats.merges;
    out[TOTAL_MEMORY_BYTES] = earlier[TOTAL_MEMORY_BYTES];
    out[TOTAL_PUSHES] = (double)stats.pushes;
    out[TOTAL_PUSH_STALENESS] = (double)stats.push_staleness;
    out[TOTAL_PUSH_STALENESS_MAX] = (double)stats.push_staleness_max;
    out[TOTAL_STEP_MS] = stepped ? trainer_median_ms(t, SIZE_MAX) : earlier[TOTAL_STEP_MS];
    out[TOTAL_TEACHER_MS] = stepped ? stats.teacher_ms : earlier[TOTAL_TEACHER_MS];
    out[TOTAL_EXCHANGE_SHARE] = stepped ? trainer_exchange_share(t, &stats) : earlier[TOTAL_EXCHANGE_SHARE];
    out[TOTAL_EXCHANGE_MS] = stepped ? stats.exchange_ms : earlier[TOTAL_EXCHANGE_MS];
    out[TOTAL_STEPS_S] = earlier[TOTAL_STEPS_S] + t->steps_s;
    out[TOTAL_TEACHER_S] = earlier[TOTAL_TEACHER_S] + stats.teacher_s;
    out[TOTAL_WAIT_S] = earlier[TOTAL_WAIT_S] + stats.waited_s + t->agreeing_s;
    out[TOTAL_EXCHANGE_S] = earlier[TOTAL_EXCHANGE_S] + 1e-3 * stats.exchange_ms * (double)t->step_count;
}

cod_status trainer_sum_totals(trainer *t, double out[TRAINER_TOTALS])
{
    trainer_read_totals(t, out);
    if (t->step_count > 0)
        out[TOTAL_MEMORY_BYTES] = memory_bytes();
    for (int i = 0; i < TRAINER_TOTALS && !t->leader; i++)
        if (i != TOTAL_CORE_S && i != TOTAL_INTERGROUP_BYTES && i != TOTAL_INTRAGROUP_BYTES && i != TOTAL_MEMORY_BYTES)
            out[i] = 0;
    return cod_group_reduce(t->group, out, TRAINER_TOTALS, COD_REDUCE_SUM);
}

static void key_of(int index, char key[40])
{
    snprintf(key, 40, "total.%s", names[index]);
}

cod_status trainer_save_totals(cod_checkpoint *checkpoint, const double totals[TRAINER_TOTALS])
{
    for (int i = 0; i < TRAINER_TOTALS; i++) {
        char key[40];
        key_of(i, key);
        COD_TRY(cod_checkpoint_add_number(checkpoint, key, totals[i]));
    }
    return COD_OK;
}

cod_status trainer_load_totals(const cod_st_file *file, double totals[TRAINER_TOTALS])
{
    for (int i = 0; i < TRAINER_TOTALS; i++) {
        char key[40];
        key_of(i, key);
        /* Older checkpoints have none. */
        if (cod_st_metadata(file, key) == NULL)
            continue;
        COD_TRY(cod_checkpoint_number(file, key, &totals[i]));
        const bool counted = i >= TOTAL_PULLED_BYTES && i <= TOTAL_PUSH_STALENESS_MAX;
        if (counted && !cod_is_whole(totals[i], 0, 0x1p63)) /* sums of bytes may pass what a double holds exactly */
            return cod_fail(COD_ERR_FORMAT, "the checkpoint's '%s' is %g, no count", key, totals[i]);
    }
    return COD_OK;
}

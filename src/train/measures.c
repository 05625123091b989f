/* Times of steps, and totals of a run over all its processes. */
#include "train/measures_internal.h"

#include "core/statistics.h"
#include "core/trace.h"
#include "core/whole.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#define COUNT(member) offsetof(cod_strategy_stats, member)
static const struct {
    const char *key;
    size_t count; /**< where cod_strategy_stats has it as a count, uint64_t; 0 = it has not */
} kinds[TRAINER_TOTALS] = {
    [TOTAL_WALL_S] = {"wall_s", 0},
    [TOTAL_CORE_S] = {"core_s", 0},
    [TOTAL_INTERGROUP_BYTES] = {"intergroup_bytes", 0},
    [TOTAL_INTRAGROUP_BYTES] = {"intragroup_bytes", 0},
    [TOTAL_PULLED_BYTES] = {"pulled_bytes", COUNT(pulled_bytes)},
    [TOTAL_PUBLISHED_BYTES] = {"published_bytes", COUNT(published_bytes)},
    [TOTAL_PULLS] = {"pulls", COUNT(pulls)},
    [TOTAL_PUBLICATIONS] = {"publications", COUNT(publications)},
    [TOTAL_REJECTED] = {"rejected", COUNT(rejected)},
    [TOTAL_SWITCHES] = {"teacher_switches", COUNT(teacher_switches)},
    [TOTAL_MERGES] = {"merges", COUNT(merges)},
    [TOTAL_MEMORY_BYTES] = {"memory_bytes", 0},
    [TOTAL_PUSHES] = {"pushes", COUNT(pushes)},
    [TOTAL_PUSH_STALENESS] = {"push_staleness", COUNT(push_staleness)},
    [TOTAL_PUSH_STALENESS_MAX] = {"push_staleness_max", COUNT(push_staleness_max)},
    [TOTAL_STEP_MS] = {"step_ms", 0},
    [TOTAL_TEACHER_MS] = {"teacher_ms", 0},
    [TOTAL_EXCHANGE_MS] = {"exchange_ms", 0},
    [TOTAL_EXCHANGE_SHARE] = {"exchange_share", 0},
    [TOTAL_STEPS_S] = {"steps_s", 0},
    [TOTAL_TEACHER_S] = {"teacher_s", 0},
    [TOTAL_WAIT_S] = {"wait_s", 0},
    [TOTAL_EXCHANGE_S] = {"exchange_s", 0},
};

void trainer_measures_add_step(trainer_measures *measures, double begin_s, double processor_s)
{
    const double step_s = cod_clock_s() - begin_s;
    measures->steps_s += step_s;
    measures->processor_s += cod_clock_process_s() - processor_s;
    measures->step_ms[measures->step_count++ % STEP_TIMES] = (float)(1e3 * step_s);
}

double trainer_measures_elapsed_s(const trainer_measures *measures)
{
    return cod_clock_s() - measures->start_s;
}

double trainer_measures_median_ms(const trainer_measures *measures, size_t last)
{
    const size_t steps = measures->step_count, kept = steps < STEP_TIMES ? steps : STEP_TIMES;
    const size_t count = kept < last ? kept : last;
    double sorted[STEP_TIMES];
    for (size_t i = 0; i < count; i++)
        sorted[i] = measures->step_ms[(steps - count + i) % STEP_TIMES];
    return cod_median(sorted, count);
}

/** Seconds of the exchange in all steps of this process. */
static double exchange_s(const trainer_measures *measures, const cod_strategy_stats *stats)
{
    return 1e-3 * stats->exchange_ms * (double)measures->step_count;
}

double trainer_measures_exchange_share(const trainer_measures *measures, const cod_strategy_stats *stats)
{
    return measures->step_count > 0 ? exchange_s(measures, stats) / measures->steps_s : NAN;
}

static uint64_t *count_of(cod_strategy_stats *stats, int total)
{
    return (uint64_t *)((char *)stats + kinds[total].count);
}

void trainer_measures_read_stats(const trainer_measures *measures, cod_strategy *strategy, cod_strategy_stats *out)
{
    *out = (cod_strategy_stats){.distill_loss = NAN, .teacher_step = -1};
    if (strategy->ops->stats != NULL)
        strategy->ops->stats(strategy, out);
    for (int i = 0; i < TRAINER_TOTALS; i++) {
        if (kinds[i].count == 0)
            continue;
        uint64_t *const count = count_of(out, i), earlier = (uint64_t)measures->earlier[i];
        if (i != TOTAL_PUSH_STALENESS_MAX)
            *count += earlier;
        else if (*count < earlier)
            *count = earlier;
    }
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

void trainer_measures_read_totals(const trainer_measures *measures, const cod_train_context *context,
                                  const cod_strategy_stats *stats, double out[TRAINER_TOTALS])
{
    const double *earlier = measures->earlier, elapsed_s = trainer_measures_elapsed_s(measures);
    cod_strategy_stats counts = *stats;
    cod_comm_counters counters;
    cod_comm_read_counters(context->comm, &counters);
    for (int i = 0; i < TRAINER_TOTALS; i++)
        out[i] = kinds[i].count > 0 ? (double)*count_of(&counts, i) : earlier[i];
    out[TOTAL_WALL_S] += elapsed_s;
    out[TOTAL_CORE_S] += elapsed_s;
    /* comm counts bytes that come by MPI, with headers; only the puller counts bytes that come through files. */
    out[TOTAL_INTERGROUP_BYTES] +=
        fmax((double)counters.pulled_bytes, (double)stats->pulled_bytes - earlier[TOTAL_PULLED_BYTES]);
    const bool alone = cod_group_count(context->group) == 1; /* then messages, too, are between ranks of the group */
    const uint64_t inside = counters.group_bytes + (alone ? counters.message_bytes + counters.across_bytes : 0);
    out[TOTAL_INTRAGROUP_BYTES] += (double)inside;
    out[TOTAL_STEPS_S] += measures->steps_s;
    out[TOTAL_TEACHER_S] += stats->teacher_s;
    out[TOTAL_WAIT_S] = earlier[TOTAL_WAIT_S] + stats->waited_s + measures->agreeing_s;
    out[TOTAL_EXCHANGE_S] += exchange_s(measures, stats);
    if (measures->step_count == 0)
        return;
    out[TOTAL_STEP_MS] = trainer_measures_median_ms(measures, SIZE_MAX);
    out[TOTAL_TEACHER_MS] = stats->teacher_ms;
    out[TOTAL_EXCHANGE_SHARE] = trainer_measures_exchange_share(measures, stats);
    out[TOTAL_EXCHANGE_MS] = stats->exchange_ms;
}

double trainer_measures_group_total(const trainer_measures *measures, const double totals[TRAINER_TOTALS], int which,
                                    int ranks)
{
    const double earlier = measures->earlier[which];
    return earlier + (totals[which] - earlier) * ranks;
}

cod_status trainer_measures_sum(const trainer_measures *measures, const cod_train_context *context,
                                cod_strategy *strategy, double out[TRAINER_TOTALS])
{
    cod_strategy_stats stats;
    trainer_measures_read_stats(measures, strategy, &stats);
    trainer_measures_read_totals(measures, context, &stats, out);
    if (measures->step_count > 0)
        out[TOTAL_MEMORY_BYTES] = memory_bytes();
    for (int i = 0; i < TRAINER_TOTALS && cod_group_rank(context->group) != 0; i++)
        if (i != TOTAL_CORE_S && i != TOTAL_INTERGROUP_BYTES && i != TOTAL_INTRAGROUP_BYTES && i != TOTAL_MEMORY_BYTES)
            out[i] = 0;
    return cod_group_reduce(context->group, out, TRAINER_TOTALS, COD_REDUCE_SUM);
}

static void key_of(int index, char key[40])
{
    snprintf(key, 40, "total.%s", kinds[index].key);
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

/*
 * Plans whose implementation was chosen by timing are timed again now and then while they run in earnest, so that a
 * choice that was made by a wrong time is found out. The running program keeps its plan, and thereby its results; the
 * choice is marked as doubtful in the file, and made anew by a later start.
 */
#include "cpu/tune_internal.h"

#include "core/log.h"
#include "core/trace.h"

#include <math.h>

/**
 * Runs before the first one that is timed, timed ones in a row before a judgement, and how many of the later runs pass
 * for each that is timed: two looks at the clock in a hundred runs.
 */
enum { FIRST = 2, WINDOW = 5, PERIOD = 100 };
static const double too_long = 2, least_excess_s = 100e-6;

void cpu_watch_start(cod_plan *plan, cpu_tuned *tuned)
{
    if (tuned != NULL && tuned->expected_s > 0 && !tuned->is_doubted)
        plan->watch = (cpu_watch){.tuned = tuned, .least_s = INFINITY};
}

/**
 * How much longer the other plans take than expected, all together; at least 1. What slows all of them down, such as
 * another process on the same core, says nothing about a choice.
 */
static double others_factor(const cod_device *device, const cpu_watch *watch)
{
    const double expected_s = device->watched_expected_s - watch->expected_s;
    const double seconds = device->watched_s - watch->counted_s;
    return expected_s > 0 ? fmax(1, seconds / expected_s) : 1;
}

/** Counts the window's time among those of the device's plans, in place of the one before. */
static void count_window(cod_device *device, cpu_watch *watch)
{
    device->watched_expected_s += watch->tuned->expected_s - watch->expected_s;
    device->watched_s += watch->least_s - watch->counted_s;
    watch->expected_s = watch->tuned->expected_s;
    watch->counted_s = watch->least_s;
}

static void judge(cod_plan *plan)
{
    cpu_watch *watch = &plan->watch;
    cpu_tuned *tuned = watch->tuned;
    const double allowed = too_long * others_factor(plan->device, watch);
    if (watch->counted_s > allowed * tuned->expected_s && watch->counted_s > tuned->expected_s + least_excess_s &&
        !tuned->is_doubted) {
        tuned->is_doubted = true;
        cpu_tuned_doubt(tuned, watch->counted_s);
        cod_log_info(
            "cpu: %s '%s' by '%s' takes %.3g ms, but %.3g ms were expected: the choice is made again at a later "
            "start",
            cod_op_kind_name(plan->op.kind), plan->op.name != NULL ? plan->op.name : "", tuned->name,
            1e3 * watch->counted_s, 1e3 * tuned->expected_s);
    }
    watch->least_s = INFINITY;
}

/** The run after the last one of a window judges, when the step's other plans have ended theirs. */
cod_status cpu_watch_run(cod_plan *plan)
{
    cpu_watch *watch = &plan->watch;
    const int64_t run = watch->runs++;
    const bool is_timed = run >= FIRST && (run < FIRST + WINDOW || run % PERIOD == 0);
    if (watch->timed == WINDOW) {
        judge(plan);
        watch->timed = 0;
    }
    if (!is_timed)
        return plan->run(plan);
    const double begin = cod_clock_s();
    COD_TRY(plan->run(plan));
    watch->least_s = fmin(watch->least_s, cod_clock_s() - begin);
    if (++watch->timed == WINDOW)
        count_window(plan->device, watch);
    return COD_OK;
}

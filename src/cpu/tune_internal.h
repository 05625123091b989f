/**
 * @file
 * How a convolution gets the fastest of its implementations: timed once, and remembered.
 */
#ifndef COD_CPU_TUNE_INTERNAL_H
#define COD_CPU_TUNE_INTERNAL_H

#include "cpu/bench.h"
#include "cpu/cpu_internal.h"

/** A choice that was timed, in this process or an earlier one. */
struct cpu_tuned {
    cpu_tuned *next;
    uint64_t key;
    char name[17];
    double expected_s; /**< of a run; 0 = not known */
    bool is_doubtful;  /**< it is to be made again when the machine is quiet */
    bool is_doubted;   /**< a plan of this process has taken much longer than expected */
};

/** What timing says. */
typedef struct cpu_verdict {
    size_t chosen;                        /**< the rule's choice, unless there is evidence for another one */
    int rounds, agreed;                   /**< in how many rounds `chosen` was faster than the rule's choice */
    double seconds[COD_CPU_MOST_CHOICES]; /**< of each candidate, the least of its runs, with preparation */
    double expected_s;                    /**< of a run on the whole batch by the chosen one */
    double noise;                         /**< by what share of the least time runs took longer, on average */
} cpu_verdict;

enum { CPU_TRIAL_ROUNDS = 5 };

/** A candidate in a trial. */
typedef struct cpu_contender {
    cod_plan *plan;             /**< NULL = out of it, because it takes several times as long as another one */
    double prepare_s;           /**< the share of its preparation in the trial's part of the batch */
    double s[CPU_TRIAL_ROUNDS]; /**< of each round, while it is in, with preparation */
    double least_s;
} cpu_contender;

/** @param[in,out] verdict  in: `rounds`; the rest is judged by the contenders' times */
void cpu_trial_judge(const cpu_contender *all, size_t count, size_t rule, cpu_verdict *verdict);

/** What share of an op's work a trial does. */
double cpu_trial_share(const cod_op *op, int threads);

/**
 * Times the candidates in turns, on a part of the op's pictures: all where they are few or small. What a candidate does
 * once for all pictures after an update of the weights counts as that part of them. Another one than `rule` is chosen
 * only if it is at least 5 % faster, and faster in all rounds but one.
 */
COD_MUST_CHECK cod_status cpu_trial(cod_device *device, const cod_op *op, const cpu_candidate *const *candidates,
                                    size_t count, size_t rule, cpu_verdict *verdict);

/** Frees the memory that trials of the device had. */
void cpu_trial_forget(cod_device *device);

/** Whether runs took such unlike times that the choice is to be made again. */
static inline bool cpu_is_doubtful(const cpu_verdict *verdict)
{
    return verdict->noise > 0.25;
}

/** Times the candidates and notes the choice. */
COD_MUST_CHECK cod_status cpu_tune_anew(cod_device *device, const cod_op *op, const cpu_candidate *const *candidates,
                                        size_t count, size_t rule, cpu_verdict *verdict);

/** What the choice is noted by. @param[out] text  [bytes] the same in words */
uint64_t cpu_tune_key(const cod_device *device, const cod_op *op, const cpu_candidate *const *candidates, size_t count,
                      char *text, size_t bytes);

/** What was noted for a key, in this process or an earlier one; NULL = nothing, or what is to be timed again. */
cpu_tuned *cpu_tuned_find(cod_device *device, uint64_t key);
/** The same, also where it is to be timed again. */
cpu_tuned *cpu_tuned_last(cod_device *device, uint64_t key);
/** @param text  what stands behind it in the file, for people */
void cpu_tuned_note(cod_device *device, uint64_t key, const char *name, double expected_s, bool is_doubtful,
                    const char *text);
/** Marks a choice as doubtful in the file, where runs take `seconds`. */
void cpu_tuned_doubt(const cpu_tuned *tuned, double seconds);

/** From now on, runs of the plan by cpu_watch_run() are timed now and then. @param tuned  NULL = not */
void cpu_watch_start(cod_plan *plan, cpu_tuned *tuned);
/** Runs the plan; for one that is watched. */
COD_MUST_CHECK cod_status cpu_watch_run(cod_plan *plan);

#endif

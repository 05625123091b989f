/**
 * @file
 * Measures a run: the times of this process's steps, and totals over all processes of the run.
 */
#ifndef COD_TRAIN_MEASURES_INTERNAL_H
#define COD_TRAIN_MEASURES_INTERNAL_H

#include "train/strategy.h"

enum { STEP_TIMES = 4096 };

/** Totals of a run over all its processes, kept in checkpoints. */
enum {
    TOTAL_WALL_S,
    TOTAL_CORE_S,
    TOTAL_INTERGROUP_BYTES,
    TOTAL_INTRAGROUP_BYTES,
    TOTAL_PULLED_BYTES,
    TOTAL_PUBLISHED_BYTES,
    TOTAL_PULLS,
    TOTAL_PUBLICATIONS,
    TOTAL_REJECTED,
    TOTAL_SWITCHES,
    TOTAL_MERGES,
    TOTAL_MEMORY_BYTES, /**< current memory of the group's ranks together; shared memory counts once */
    TOTAL_PUSHES,
    TOTAL_PUSH_STALENESS,
    TOTAL_PUSH_STALENESS_MAX,
    TOTAL_STEP_MS, /**< this and the next: medians of the last process that made steps */
    TOTAL_TEACHER_MS,
    TOTAL_EXCHANGE_MS,
    TOTAL_EXCHANGE_SHARE,
    TOTAL_STEPS_S, /**< from here: seconds of the first rank in its steps and their parts, over all processes */
    TOTAL_TEACHER_S,
    TOTAL_WAIT_S,
    TOTAL_EXCHANGE_S,
    TRAINER_TOTALS,
};

/** Zeroed = nothing measured yet. */
typedef struct trainer_measures {
    double start_s;            /**< when this process's steps began; 0 = not yet */
    float step_ms[STEP_TIMES]; /**< times of this process's last steps, in a ring, for the median */
    size_t step_count;
    double steps_s;                 /**< seconds of all steps of this process */
    double processor_s;             /**< processor seconds in these steps */
    double agreeing_s;              /**< seconds of waiting for other ranks to agree on a step */
    double earlier[TRAINER_TOTALS]; /**< on the leader: totals of the group in earlier processes */
} trainer_measures;

/** Adds a step. @param begin_s, processor_s  the clock and the process's processor time at its beginning */
void trainer_measures_add_step(trainer_measures *measures, double begin_s, double processor_s);
/** Seconds since this process's steps began. */
double trainer_measures_elapsed_s(const trainer_measures *measures);
/** Median of the last `last` steps of this process (at most STEP_TIMES), ms; NaN before the first. */
double trainer_measures_median_ms(const trainer_measures *measures, size_t last);
/** Share of this process's step time that went into the strategy's exchange. */
double trainer_measures_exchange_share(const trainer_measures *measures, const cod_strategy_stats *stats);

/** The strategy's figures; on the leader those of earlier processes are added. */
void trainer_measures_read_stats(const trainer_measures *measures, cod_strategy *strategy, cod_strategy_stats *out);
/**
 * Totals of this rank; on the leader those of the group in earlier processes are added. Memory is that of earlier
 * processes, because measuring it takes milliseconds, too much for a line of metrics.
 *
 * @param stats  as trainer_measures_read_stats() gives them
 */
void trainer_measures_read_totals(const trainer_measures *measures, const cod_train_context *context,
                                  const cod_strategy_stats *stats, double out[TRAINER_TOTALS]);
/** Of totals of the leader: the group's, estimated, because its ranks move about the same number of bytes. */
double trainer_measures_group_total(const trainer_measures *measures, const double totals[TRAINER_TOTALS], int which,
                                    int ranks);
/**
 * The group's totals: bytes and core seconds of all its ranks, everything else of its leader. Collective on the group.
 */
COD_MUST_CHECK cod_status trainer_measures_sum(const trainer_measures *measures, const cod_train_context *context,
                                               cod_strategy *strategy, double out[TRAINER_TOTALS]);
COD_MUST_CHECK cod_status trainer_save_totals(cod_checkpoint *checkpoint, const double totals[TRAINER_TOTALS]);
COD_MUST_CHECK cod_status trainer_load_totals(const cod_st_file *file, double totals[TRAINER_TOTALS]);

#endif

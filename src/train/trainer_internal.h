/**
 * @file
 * State of one rank's run, which set-up makes and the step loop uses.
 */
#ifndef COD_TRAIN_TRAINER_INTERNAL_H
#define COD_TRAIN_TRAINER_INTERNAL_H

#include "comm/binding.h"
#include "data/loader.h"
#include "io/file.h"
#include "io/trace_file.h"
#include "nn/readback.h"
#include "train/batches.h"
#include "train/coded_allreduce.h"
#include "train/guards.h"
#include "train/task.h"
#include "train/train.h"
#include "train/watchdog_internal.h"

enum { STEP_TIMES = 4096 };

/** A loss or a figure of the recipe. */
typedef struct trainer_loss {
    const char *name;
    cod_value value;
    bool is_figure;               /**< a figure, which is the first element of an output */
    const cod_sub_step *sub_step; /**< sub-step that computes it */
    cod_view view;                /**< on the device */
    double computed;              /**< value in the current step, if the strategy computes in place of the trainer */
    double sum;                   /**< sum of the group's values, agreed since the last line of metrics */
    int64_t steps;                /**< number of steps in the sum */
} trainer_loss;

/** What the ranks of a group agree on about one step. */
typedef struct agreement {
    bool pending;
    /** [agreement_count] losses of loss_delay steps before, ranks asked to stop, the strategy's flags */
    double *values;
    cod_request *request;
    double world_stop; /**< if groups are in step: above zero if a rank of any group was asked to stop */
    cod_request *world_request;
} agreement;

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

typedef struct trainer {
    const cod_train_request *request;
    cod_run_config *config;
    const char *folder, *checkpoints;
    char part[32], closing_part[32]; /**< "group-G", "closing-G" */
    cod_file_lock *lock,
        *group_lock; /**< locks of the folder, and of a group that is a separate job; on the first rank */
    cod_trace_file *trace;
    trainer_watchdog *watchdog;
    cod_group *group;
    cod_collective *between_devices; /**< collective of the group's devices; NULL = MPI averages gradients */
    cod_coded_allreduce *coded;      /**< NULL = gradients travel uncoded */
    cod_binding binding;
    bool leader; /**< first rank of its group */
    cod_train_task *task;
    cod_train_session session;
    cod_train_context context;
    cod_strategy *strategy;
    cod_metrics *metrics;
    trainer_loss *losses; /**< [loss_count] */
    size_t loss_count;
    cod_guards guards;
    cod_readback *readback; /**< [loss][mini-batch] values of the steps whose losses are not read yet */
    int64_t loss_delay; /**< steps after which losses are reported; 1 on a device: the trainer need not wait for it */
    cod_batches batches;
    cod_program *running; /**< program that is running, for its buckets */
    int running_set;      /**< set that it trains */

    cod_model eval_model;                        /**< on the leader: only the recipe's model */
    cod_weights eval_weights;                    /**< its weights or their moving average, for evaluating and saving */
    cod_task_quality best_quality, last_quality; /**< last: since the last line of metrics, otherwise unknown */

    int64_t agreement_delay;   /**< steps between sending flags and acting on them */
    agreement *agreements;     /**< [agreement_delay] */
    size_t agreement_count;    /**< values of each */
    float step_ms[STEP_TIMES]; /**< times of this process's last steps, in a ring, for the median */
    size_t step_count;
    double steps_s;                 /**< seconds of all steps of this process */
    double processor_s;             /**< processor seconds in these steps */
    double agreeing_s;              /**< seconds of waiting for other ranks to agree on a step */
    double earlier[TRAINER_TOTALS]; /**< on the leader: totals of the group in earlier processes */
    bool finished_before;           /**< the run had finished before; nothing is left to do */
    bool others_diverged;           /**< at the end, this group's model is usable but some other group's is not */
    double start_s, last_report_s;
    int64_t first_step; /**< first step of this process: 0, or the step resumed from */
} trainer;

#define STRATEGY(trainer, hook, ...)                                                                                   \
    ((trainer)->strategy->ops->hook != NULL ? (trainer)->strategy->ops->hook((trainer)->strategy, __VA_ARGS__) : COD_OK)

/** A hook of one of the smaller contracts, which a strategy may leave out. */
#define STRATEGY_PART(trainer, part, hook, ...)                                                                        \
    ((trainer)->strategy->ops->part != NULL && (trainer)->strategy->ops->part->hook != NULL                            \
         ? (trainer)->strategy->ops->part->hook((trainer)->strategy, __VA_ARGS__)                                      \
         : COD_OK)

/** place.c: this rank's number in the run, counted as in one job of all groups even if groups are separate jobs. */
int trainer_rank(const trainer *t);
/** Number of servers, the first ranks of the group, which do not train. */
int trainer_servers(const trainer *t);
/** Whether this rank trains; other ranks are servers. */
bool trainer_trains(const trainer *t);
/** Number of ranks that hold one network together, and number of networks that the group trains. */
int trainer_stages(const trainer *t);
int trainer_replicas(const trainer *t);
/** Number of ranks of the run. */
int trainer_ranks(const trainer *t);
void trainer_closing_part(int group, char part[32]);
/** Number of steps from one agreement of all groups on whether to stop to the next; 0 = each group stops by itself. */
int64_t trainer_in_step_every(const trainer *t);
/** Whether groups wait for each other anyway; they then also stop, and resume, at the same step. */
bool trainer_in_step(const trainer *t);
/** Whether the strategy runs a step's passes in place of the trainer; the loss is then known at their end. */
bool trainer_leaves_computing(const trainer *t);
/** Brings weights of which each rank updates a part to the leader; see gather(). Collective on the group. */
COD_MUST_CHECK cod_status trainer_gather(trainer *t, float *const *moments);

/** Queues all sub-steps of context->step, with their updates. */
COD_MUST_CHECK cod_status trainer_run_sub_steps(trainer *t);
/**
 * This rank's losses of a step: means over its mini-batches; 0 if a sub-step was not due. @param[out] losses
 * [loss_count]
 */
COD_MUST_CHECK cod_status trainer_get_losses(trainer *t, int64_t step, double *losses);

/**
 * Sets everything up for the first step, and resumes if there is a checkpoint to resume from. Collective on all ranks.
 */
COD_MUST_CHECK cod_status trainer_set_up(trainer *t);
void trainer_clear(trainer *t);
/** Opens the rank's device and chooses the type of activations. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_open_device(trainer *t);
/** Logs the device memory of a rank of the group; called by the leader. */
void trainer_tell_memory(const trainer *t);

/**
 * Creates the run's folder, locks it for this job and removes incomplete files of a killed job. Collective on all
 * ranks.
 */
COD_MUST_CHECK cod_status trainer_open_folder(trainer *t);
/** A number that is equal if two ranks of a node compute on the same device. */
uint64_t trainer_device_identity(const trainer *t);
/**
 * Makes the context's collective average gradients between the group's devices, if they can. Collective on the group.
 */
COD_MUST_CHECK cod_status trainer_choose_averages(trainer *t);
/** Sets the run's nonce if the configuration has none: the folder's, or a new one. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_agree_nonce(trainer *t);
/** Writes config.yaml to the folder and removes the summary of an earlier run. Called by the first rank of all. */
COD_MUST_CHECK cod_status trainer_claim_folder(trainer *t);
/** Whether all steps are done and the summary was written. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_look_whether_finished(trainer *t);

enum { TRAINER_STATES_MAX = 3 /**< of an optimiser */ };

/** saved_state.c: whether each rank writes a part of checkpoints of its own. */
bool trainer_keeps_state(const trainer *t);
/** The values of each set, in arrays of their own. @return COD_ERR_NUMERIC where one is no number */
COD_MUST_CHECK cod_status trainer_save_values(trainer *t, cod_checkpoint *checkpoint);
COD_MUST_CHECK cod_status trainer_load_values(trainer *t, const cod_st_file *file);
/** The optimisers' states of the group, or this rank's own. @param moments  those that were gathered; NULL = none */
COD_MUST_CHECK cod_status trainer_save_states(const trainer *t, bool own, float *const *moments,
                                              cod_checkpoint *checkpoint);
COD_MUST_CHECK cod_status trainer_load_states(const trainer *t, bool own, const cod_st_file *file);
/**
 * Room for the moments of all ranks, on the one that saves them.
 *
 * @param[out] moments  in `arena`; others stay as they are
 */
COD_MUST_CHECK cod_status trainer_make_room(const trainer *t, cod_arena *arena, float *moments[TRAINER_STATES_MAX]);
/**
 * The rank's own normalisation statistics, where it has any; loaded in place of the first rank's. Older checkpoints
 * have only those.
 */
COD_MUST_CHECK cod_status trainer_save_statistics(trainer *t, cod_checkpoint *checkpoint);
COD_MUST_CHECK cod_status trainer_load_statistics(trainer *t, const cod_st_file *file);
/** What coded averages have rounded off, where there are any. */
COD_MUST_CHECK cod_status trainer_save_residual(trainer *t, cod_checkpoint *checkpoint);
COD_MUST_CHECK cod_status trainer_load_residual(trainer *t, const cod_st_file *file);

COD_MUST_CHECK cod_status trainer_save_checkpoint(trainer *t);
/** Loads the newest usable checkpoint, if the configuration asks for it. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_resume(trainer *t);

/**
 * Copies the model's weights (or their moving average), which must be finite, to eval_weights; called by the leader.
 */
COD_MUST_CHECK cod_status trainer_refresh_eval(trainer *t);
/** Evaluates eval_weights on at most `limit` items (0 = all), of which `shown` go to samples/; called by the leader. */
COD_MUST_CHECK cod_status trainer_evaluate(trainer *t, cod_split split, int64_t limit, int64_t shown,
                                           cod_task_quality *mean);
/** Evaluates the group's own model in the same way, and keeps its predictions if the configuration asks for them. */
COD_MUST_CHECK cod_status trainer_evaluate_own(trainer *t, cod_split split, int64_t limit, int64_t shown,
                                               cod_task_quality *mean);
/**
 * Evaluates the model on at most `limit` validation items and keeps the best model; the quality is unknown if there are
 * no items. Called by the leader.
 */
COD_MUST_CHECK cod_status trainer_validate(trainer *t, int64_t limit, cod_task_quality *mean);
/** Writes eval_weights as a model file; called by the leader. */
COD_MUST_CHECK cod_status trainer_save_model(trainer *t, const char *path);
/**
 * Writes the model's architecture and the name of the evaluated array into a group's checkpoint, so that the file can
 * also be read as a model (infer/model_file.h).
 */
COD_MUST_CHECK cod_status trainer_save_identity(const trainer *t, cod_checkpoint *checkpoint);

/** Median of the last `last` steps of this process (at most STEP_TIMES), ms; NaN before the first. */
double trainer_median_ms(const trainer *t, size_t last);

/** Share of this process's step time that went into the strategy's exchange. */
double trainer_exchange_share(const trainer *t, const cod_strategy_stats *stats);

/** Writes and reports a line of metrics, if this rank does that, and starts the means of the next line. */
COD_MUST_CHECK cod_status trainer_log_line(trainer *t);
/** Reports progress for a terminal while no line of metrics is due. */
void trainer_report_between(trainer *t);
/**
 * For cod_guards_look(): the mean, since the last line of metrics, of the loss or the figure of this name; `context` is
 * a trainer.
 */
double trainer_mean_by_name(const void *context, const char *name);

/** The strategy's figures; on the leader those of earlier processes are added. */
void trainer_read_stats(const trainer *t, cod_strategy_stats *out);
/**
 * Totals of this rank; on the leader those of the group in earlier processes are added. Memory is that of earlier
 * processes, because measuring it takes milliseconds, too much for a line of metrics.
 */
void trainer_read_totals(const trainer *t, double out[TRAINER_TOTALS]);
/**
 * The group's totals: bytes and core seconds of all its ranks, everything else of its leader. Collective on the group.
 */
COD_MUST_CHECK cod_status trainer_sum_totals(trainer *t, double out[TRAINER_TOTALS]);
COD_MUST_CHECK cod_status trainer_save_totals(cod_checkpoint *checkpoint, const double totals[TRAINER_TOTALS]);
COD_MUST_CHECK cod_status trainer_load_totals(const cod_st_file *file, double totals[TRAINER_TOTALS]);

/**
 * Writes the group's model and, if this is the last group to end, final.safetensors and summary.json. Collective on all
 * ranks.
 */
COD_MUST_CHECK cod_status trainer_finish(trainer *t);

/**
 * Fails because of NaN or infinity in step `step`; the message names the first tensor of each set and the last
 * checkpoint before that step.
 */
COD_MUST_CHECK cod_status trainer_report_not_finite(trainer *t, const char *what, int64_t step);

#endif

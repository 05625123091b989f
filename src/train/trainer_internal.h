/**
 * @file
 * One rank's run: what set-up makes and the step loop uses.
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
    bool is_figure;               /**< no loss: the first element of an output */
    const cod_sub_step *sub_step; /**< that computes it */
    cod_view view;                /**< on the device */
    double computed;              /**< by a strategy that computes in the trainer's place: of the step under way */
    double sum;                   /**< of the group's, agreed since the last line of metrics */
    int64_t steps;                /**< that the sum is of */
} trainer_loss;

/** What ranks of a group tell each other about one step. */
typedef struct agreement {
    bool pending;
    double
        *values; /**< [agreement_count] losses of loss_delay steps before, ranks asked to stop, the strategy's flags */
    cod_request *request;
    double world_stop; /**< where groups are in step: above zero when a rank of any group is asked to stop */
    cod_request *world_request;
} agreement;

/** What a run sums over all its processes, as checkpoints keep it. */
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
    TOTAL_MEMORY_BYTES, /**< now; the group's ranks together, what they share counted once */
    TOTAL_PUSHES,
    TOTAL_PUSH_STALENESS,
    TOTAL_PUSH_STALENESS_MAX,
    TOTAL_STEP_MS, /**< this and the next: of the last process that made steps */
    TOTAL_TEACHER_MS,
    TOTAL_EXCHANGE_MS,
    TOTAL_EXCHANGE_SHARE,
    TOTAL_STEPS_S, /**< this and the next: seconds of the first rank in its steps, and in parts of them, over all processes */
    TOTAL_TEACHER_S,
    TOTAL_WAIT_S,
    TOTAL_EXCHANGE_S,
    TRAINER_TOTALS,
};

typedef struct trainer {
    const cod_train_request *request;
    cod_run_config *config;
    const char *folder, *checkpoints;
    char part[32], closing_part[32];  /**< "group-G", "closing-G" */
    cod_file_lock *lock, *group_lock; /**< of the folder, and of a group that is a job of its own; first rank */
    cod_trace_file *trace;
    trainer_watchdog *watchdog;
    cod_group *group;
    cod_collective *between_devices; /**< of the group's devices; NULL = gradients are averaged by MPI */
    cod_coded_allreduce *coded;      /**< NULL = gradients travel as they are */
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
    cod_readback *readback; /**< [loss][mini-batch] of the steps whose losses are on their way */
    int64_t loss_delay; /**< steps after which losses are told: 1 on a device that the trainer then need not wait for */
    cod_batches batches;
    cod_program *running; /**< for its buckets */
    int running_set;      /**< that it trains */

    cod_model eval_model;                        /**< leader: the recipe's model alone */
    cod_weights eval_weights;                    /**< its weights or their average, as evaluated and saved */
    cod_task_quality best_quality, last_quality; /**< last: since the last line of metrics, else not known */

    int64_t agreement_delay;   /**< steps between sending flags and acting on them */
    agreement *agreements;     /**< [agreement_delay] */
    size_t agreement_count;    /**< values of each */
    float step_ms[STEP_TIMES]; /**< of the last steps done by this process, in a ring, for the median */
    size_t step_count;
    double steps_s;                 /**< that they took together */
    double processor_s;             /**< that the process computed in them; not that of earlier processes */
    double agreeing_s;              /**< of it for what other ranks say of a step */
    double earlier[TRAINER_TOTALS]; /**< leader: of the group in the processes before this one */
    bool finished_before;           /**< nothing is left to do */
    bool others_diverged;           /**< at the end this group's model is a good one, but not every group's */
    double start_s, last_report_s;
    int64_t first_step; /**< of this process: 0, or the step resumed from */
} trainer;

#define STRATEGY(trainer, hook, ...)                                                                                   \
    ((trainer)->strategy->ops->hook != NULL ? (trainer)->strategy->ops->hook((trainer)->strategy, __VA_ARGS__) : COD_OK)

/** A hook of one of the smaller contracts, which a strategy may leave out. */
#define STRATEGY_PART(trainer, part, hook, ...)                                                                        \
    ((trainer)->strategy->ops->part != NULL && (trainer)->strategy->ops->part->hook != NULL                            \
         ? (trainer)->strategy->ops->part->hook((trainer)->strategy, __VA_ARGS__)                                      \
         : COD_OK)

/** place.c: this rank's number in the run: that in a job of all groups, also where they are jobs of their own. */
int trainer_rank(const trainer *t);
/** Ranks of the group that serve and do not train, the first. */
int trainer_servers(const trainer *t);
/** Whether this rank trains; the others serve. */
bool trainer_trains(const trainer *t);
/** Ranks that hold a network together, and networks of the group that train. */
int trainer_stages(const trainer *t);
int trainer_replicas(const trainer *t);
/** The run's ranks. */
int trainer_ranks(const trainer *t);
void trainer_closing_part(int group, char part[32]);
/** Steps from one word of all groups on whether to stop to the next; 0 = each group stops by itself. */
int64_t trainer_in_step_every(const trainer *t);
/** Whether groups wait for each other anyway: then they also stop, and resume, at one step. */
bool trainer_in_step(const trainer *t);
/** Whether the strategy does a step's passes in place of the trainer; it then has the loss at their end. */
bool trainer_leaves_computing(const trainer *t);
/** Makes the leader hold what ranks update a part each of; see gather(). Collective on the group. */
COD_MUST_CHECK cod_status trainer_gather(trainer *t, float *const *moments);

/** Queues all sub-steps of context->step, with their updates. */
COD_MUST_CHECK cod_status trainer_run_sub_steps(trainer *t);
/** This rank's losses of a step: means of its mini-batches, 0 where a sub-step was not due. @param[out] losses  [loss_count] */
COD_MUST_CHECK cod_status trainer_get_losses(trainer *t, int64_t step, double *losses);

/** Makes everything up to the first step, resumed where there is something to resume. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_set_up(trainer *t);
void trainer_clear(trainer *t);
/** Opens the rank's device and chooses the type of activations. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_open_device(trainer *t);
/** Logs what a rank of the group holds in its device's memory; leader. */
void trainer_tell_memory(const trainer *t);

/** Creates the run's folder, claims it for this job and removes what a killed one left half written. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_open_folder(trainer *t);
/** Equal where two ranks of a node compute on one device. */
uint64_t trainer_device_identity(const trainer *t);
/** Where the group's devices can average gradients themselves, the context's collective does that. Collective on the group. */
COD_MUST_CHECK cod_status trainer_choose_averages(trainer *t);
/** Fills in the run's nonce where the configuration gives none: its folder's, or a new one. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_agree_nonce(trainer *t);
/** The folder now says what this run is, in config.yaml, and a summary is not of it until it is finished. First rank of all. */
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
/** Room for the moments of all ranks, on the one that saves them. @param[out] moments  in `arena`; others stay as they are */
COD_MUST_CHECK cod_status trainer_make_room(const trainer *t, cod_arena *arena, float *moments[TRAINER_STATES_MAX]);
/** The rank's own normalisation statistics, where it has any; loaded in place of the first rank's. Older checkpoints have only those. */
COD_MUST_CHECK cod_status trainer_save_statistics(trainer *t, cod_checkpoint *checkpoint);
COD_MUST_CHECK cod_status trainer_load_statistics(trainer *t, const cod_st_file *file);
/** What coded averages have rounded off, where there are any. */
COD_MUST_CHECK cod_status trainer_save_residual(trainer *t, cod_checkpoint *checkpoint);
COD_MUST_CHECK cod_status trainer_load_residual(trainer *t, const cod_st_file *file);

COD_MUST_CHECK cod_status trainer_save_checkpoint(trainer *t);
/** Loads the newest usable checkpoint, if the configuration wants that. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_resume(trainer *t);

/** Copies the model's weights (or their moving average), which must be finite, to where they are evaluated and saved from; leader. */
COD_MUST_CHECK cod_status trainer_refresh_eval(trainer *t);
/** Quality of what eval_weights hold, on at most `limit` items (0 = all), of which `shown` go to samples/; leader. */
COD_MUST_CHECK cod_status trainer_evaluate(trainer *t, cod_split split, int64_t limit, int64_t shown,
                                           cod_task_quality *mean);
/** The same of the group's own model: keeps its predictions where the configuration wants them. */
COD_MUST_CHECK cod_status trainer_evaluate_own(trainer *t, cod_split split, int64_t limit, int64_t shown,
                                               cod_task_quality *mean);
/** Quality of the model on held-out items, at most `limit`, not known without any; keeps the best model; leader. */
COD_MUST_CHECK cod_status trainer_validate(trainer *t, int64_t limit, cod_task_quality *mean);
/** Writes what eval_weights hold as a model file; leader. */
COD_MUST_CHECK cod_status trainer_save_model(trainer *t, const char *path);
/** Says in a group's checkpoint what its model is, and which array is what the run evaluates: the file is a model, too (infer/model_file.h). */
COD_MUST_CHECK cod_status trainer_save_identity(const trainer *t, cod_checkpoint *checkpoint);

/** Median of the last `last` steps of this process (at most STEP_TIMES), ms; NaN before the first. */
double trainer_median_ms(const trainer *t, size_t last);

/** Part of this process's steps that went into the strategy's exchange. */
double trainer_exchange_share(const trainer *t, const cod_strategy_stats *stats);

/** Writes and reports a line of metrics, as far as this rank does that, and starts the next one's mean loss. */
COD_MUST_CHECK cod_status trainer_log_line(trainer *t);
/** Reports to those who watch a terminal, while no line of metrics is due. */
void trainer_report_between(trainer *t);
/** For cod_guards_look(): the mean, since the last line of metrics, of the loss or the figure of this name; `context` is a trainer. */
double trainer_mean_by_name(const void *context, const char *name);

/** The strategy's figures; on the leader those of the processes before this one are added. */
void trainer_read_stats(const trainer *t, cod_strategy_stats *out);
/**
 * Totals of this rank; on the leader those of the group in earlier processes are added. Memory is that of earlier processes: to look
 * takes milliseconds, which a line of metrics is not to cost.
 */
void trainer_read_totals(const trainer *t, double out[TRAINER_TOTALS]);
/** The group's: bytes and core seconds of all its ranks, all else of its leader. Collective on the group. */
COD_MUST_CHECK cod_status trainer_sum_totals(trainer *t, double out[TRAINER_TOTALS]);
COD_MUST_CHECK cod_status trainer_save_totals(cod_checkpoint *checkpoint, const double totals[TRAINER_TOTALS]);
COD_MUST_CHECK cod_status trainer_load_totals(const cod_st_file *file, double totals[TRAINER_TOTALS]);

/** The group's model, and with the last group to end final.safetensors and summary.json. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_finish(trainer *t);

/** The failure of step `step` (NaN, infinity), naming the first tensor of each set and the last checkpoint from before it. */
COD_MUST_CHECK cod_status trainer_report_not_finite(trainer *t, const char *what, int64_t step);

#endif

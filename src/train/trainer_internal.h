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
#include "train/agreement_internal.h"
#include "train/batches.h"
#include "train/coded_allreduce.h"
#include "train/data_identity_internal.h"
#include "train/evaluator_internal.h"
#include "train/guards.h"
#include "train/losses_internal.h"
#include "train/measures_internal.h"
#include "train/train.h"
#include "train/watchdog_internal.h"

enum { TRAINER_PART = 32 /**< bytes of the name of a part of a checkpoint */ };

typedef struct trainer {
    const cod_train_request *request;
    cod_run_config *config;
    const char *folder, *checkpoints;
    char part[TRAINER_PART], rank_part[TRAINER_PART], closing_part[TRAINER_PART]; /**< of this rank's checkpoints */
    cod_file_lock *lock,
        *group_lock; /**< locks of the folder, and of a group that is a separate job; on the first rank. Leaders of
                          other groups only observe the folder's */
    cod_trace_file *trace;
    trainer_watchdog *watchdog;
    cod_group *group;
    cod_collective *between_devices; /**< collective of the group's devices; NULL = MPI averages gradients */
    cod_coded_allreduce *coded;      /**< NULL = gradients travel uncoded */
    cod_binding binding;
    char device_reason[COD_DEVICE_REASON]; /**< why it computes there; "" = it was told to */
    bool leader;                           /**< first rank of its group */
    cod_train_task *task;
    trainer_data_identity data; /**< on the leader */
    cod_train_session session;
    cod_train_context context;
    cod_strategy *strategy;
    cod_metrics *metrics;
    trainer_losses losses;
    cod_guards guards;
    cod_batches batches;
    cod_program *running; /**< program that is running, for its buckets */
    int running_set;      /**< set that it trains */

    trainer_agreements agreements;
    trainer_measures measures;
    double last_report_s;        /**< when progress was last reported */
    trainer_evaluator evaluator; /**< on the leader */
    int64_t without_best;        /**< evaluations since the last new best; on the leader */
    int64_t ended_at;     /**< step at which the resumed checkpoint's run ended early, or was to; 0 = it did not */
    bool resumed;         /**< the group has loaded a checkpoint */
    bool others_resumed;  /**< this group or another one has */
    bool finished_before; /**< the run had finished before; nothing is left to do */
    bool others_diverged; /**< at the end, this group's model is usable but some other group's is not */
    int64_t first_step;   /**< first step of this process: 0, or the step resumed from */
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
/** Names of the parts of a checkpoint: "group-1", "rank-3", "closing-1". @param rank  as trainer_rank() counts */
void trainer_group_part(int group, char part[TRAINER_PART]);
void trainer_rank_part(int rank, char part[TRAINER_PART]);
void trainer_closing_part(int group, char part[TRAINER_PART]);
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
 * Sets everything up for the first step, and resumes if there is a checkpoint to resume from. Collective on all ranks.
 */
COD_MUST_CHECK cod_status trainer_set_up(trainer *t);
void trainer_clear(trainer *t);
/** Opens the rank's device and chooses the type of activations. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_open_device(trainer *t);
/** Logs what is trained, by the job's first rank. */
void trainer_tell_run(const trainer *t);
/** Logs on which data and device, by the group's leader. */
void trainer_tell_group(const trainer *t);
/** Logs the device memory of a rank of the group; called by the leader. */
void trainer_tell_memory(const trainer *t);

/**
 * Creates the run's folder, locks it for this job and removes incomplete files of a killed job. Collective on all
 * ranks.
 */
COD_MUST_CHECK cod_status trainer_open_folder(trainer *t);
/**
 * COD_ERR_IO where the folder is this job's no more, because somebody has removed or replaced its locks. Leaders call
 * it before they write anything that a run of the same folder would take for its own.
 */
COD_MUST_CHECK cod_status trainer_check_owner(const trainer *t);
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

/**
 * trace.c: describes this rank for its trace, with its clock beside that of the first rank of all, if the run is
 * traced. Collective on all ranks.
 */
COD_MUST_CHECK cod_status trainer_describe_process(const trainer *t, cod_trace_process *process);
/** Opens this rank's trace, if the run is traced. */
COD_MUST_CHECK cod_status trainer_open_trace(trainer *t, const cod_trace_process *process);

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

/**
 * early_end.c: to be called after an evaluation. Where eval.patience is used up, the last step comes at once, or, where
 * groups wait for each other, with one more step, in which they meet. Collective on the group, or on all ranks where
 * groups wait for each other.
 */
COD_MUST_CHECK cod_status trainer_end_early(trainer *t);
/** The same for a run that has resumed and had ended early. Collective likewise. */
COD_MUST_CHECK cod_status trainer_restore_early_end(trainer *t);
/** Whether the last step is an earlier one than the configuration's. */
bool trainer_ends_early(const trainer *t);

COD_MUST_CHECK cod_status trainer_save_checkpoint(trainer *t);
/** Loads the newest usable checkpoint, if the configuration asks for it. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_resume(trainer *t);
/** Logs from where the group goes on. */
void trainer_tell_resume(const trainer *t);

/** Writes and reports a line of metrics, if this rank does that, and starts the means of the next line. */
COD_MUST_CHECK cod_status trainer_log_line(trainer *t);
/** Reports progress for a terminal while no line of metrics is due. */
void trainer_report_between(trainer *t);
/**
 * Writes the group's model and, if this is the last group to end, final.safetensors and summary.json. Collective on all
 * ranks, of which those that have stopped call trainer_meet_stopped().
 *
 * @param[in,out] ending  COD_TRAIN_STOPPED if another group has stopped before its end; the run has no summary then
 */
COD_MUST_CHECK cod_status trainer_finish(trainer *t, cod_train_ending *ending);
/** For a group that has saved and stopped: waits for the others, as long as they show progress. See above. */
COD_MUST_CHECK cod_status trainer_meet_stopped(trainer *t);

#endif

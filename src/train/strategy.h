/**
 * @file
 * The strategy contract: how ranks co-operate on what a recipe computes (recipe.h). The trainer calls these hooks in the order below
 * and knows no strategy by name.
 *
 * All ranks of a group call the hooks in the same order. A hook that fails on one rank alone ends the whole job: the
 * program aborts it (cod_comm_abort()).
 */
#ifndef COD_TRAIN_STRATEGY_H
#define COD_TRAIN_STRATEGY_H

#include "comm/group.h"
#include "core/collective.h"
#include "data/loader.h"
#include "io/json.h"
#include "train/batches.h"
#include "train/checkpoint.h"
#include "train/session.h"

typedef struct cod_metrics cod_metrics;

/** What a strategy did with a peer's model: with steps, all that the replay of an asynchronous run needs. */
typedef struct cod_train_event {
    const char *kind; /**< "publish", "switch": it became the teacher, "merge": weights moved towards it */
    int peer;         /**< its group; the own where it published */
    uint64_t version;
    int64_t peer_step; /**< updates the peer had done */
    double alpha;      /**< of a merge, else NaN */
} cod_train_event;

/** A run being set up or running, as strategies see it. All members are borrowed. */
typedef struct cod_train_context {
    const cod_run_config *config;
    cod_train_session *session; /**< the group's recipe, its weights and programs */
    cod_comm *comm;
    cod_group *group;           /**< of this rank */
    cod_collective *collective; /**< averaging gradients inside the group */
    cod_loader *loader;         /**< of mini-batches, where the rank trains; NULL before the first step */
    cod_metrics *metrics;       /**< of the first rank of a group, else NULL */
    cod_mini_batch mini_batch;  /**< the host's copy of what is on the device, until the next is loaded */
    int64_t step;               /**< steps done before this one */
    int64_t steps;
} cod_train_context;

/** Logs an event of the update just done to exchange.GROUP.jsonl; for after_step(), on every rank of the group. */
COD_MUST_CHECK cod_status cod_train_tell(const cod_train_context *context, const cod_train_event *event);

/** What a log line, metrics and summary.json say about co-operation; strategies without peers leave it zeroed. */
typedef struct cod_strategy_stats {
    double distill_loss; /**< NaN = none this step */
    double distill_weight;
    int64_t teacher_step;                   /**< -1 = no teacher */
    int64_t staleness_steps;                /**< of a teacher; negative = its group is ahead */
    uint64_t pulled_bytes, published_bytes; /**< this rank's, since this process started, as all the next */
    uint64_t pulls, publications, rejected, teacher_switches, merges;
    double teacher_ms;           /**< median of the teacher's forward */
    double exchange_ms;          /**< mean a step of the host's work for the exchange */
    double exchange_processor_s; /**< that the training thread computed for the exchange; codistill alone tells it */
    double teacher_s;            /**< all teachers' forwards together */
    double waited_s;             /**< for gradients to be averaged over the group, once backward was done */
    const char *entropy;         /**< coder of what this rank publishes; NULL = nothing */
    uint64_t pushes;             /**< gradients that a server has applied, each an update; 0 = it is none */
    /** Updates by others between a worker's getting the weights and its gradients' being applied: summed over pushes, and most. */
    uint64_t push_staleness, push_staleness_max;
} cod_strategy_stats;

/** What a group knows of a peer that it reads. Counts and bytes are the group's, over all processes of the run. */
typedef struct cod_peer_stats {
    int group;
    uint64_t version;                /**< held; 0 = none yet */
    int64_t step, staleness_steps;   /**< of that: the peer's when it published it, and own steps since then */
    double age_s;                    /**< since it published that, by the clocks of both; NaN = not known */
    uint64_t pulled, rejected, lost; /**< versions */
    uint64_t pulled_bytes;
    double bytes_per_s; /**< of pulls, on the group's first rank; NaN before the first */
    double weight;      /**< as a teacher, when it last was one */
    /** Task loss of the teacher, and of the student, on the mini-batch where it last was measured; NaN = never. */
    double teacher_loss, student_loss;
} cod_peer_stats;

/** Of strategies that add losses toward other models' predictions to the sub-step that the recipe marks for it. */
typedef struct cod_strategy_teaching {
    /** Adds losses to the graph and programs to the session; nothing is compiled yet. Local. */
    cod_status (*add_losses)(cod_strategy *strategy, cod_train_session *session);
    /** @param[in,out] program  that the marked sub-step runs in this step: the recipe's, or one that was added */
    cod_status (*choose)(cod_strategy *strategy, cod_train_context *context, const char **program);
    /** A mini-batch of the marked sub-step is on the device, its program has not run. */
    cod_status (*before_batch)(cod_strategy *strategy, cod_train_context *context);
} cod_strategy_teaching;

/** Of strategies that hold their group's ranks, which go on alone, to the same decisions about other groups. */
typedef struct cod_strategy_peers {
    /**
     * Flags ride in the step's reduction of losses: `out` [strategy->flag_count] of step t, zeroed before, comes back summed over the group as
     * `in` when step t + 2 begins (t + 1 + agree_within where that is set), at the same step on every rank. Flags under way when a
     * run is killed are lost: what matters after a resume belongs in save().
     */
    void (*flags_out)(cod_strategy *strategy, double *out);
    cod_status (*flags_in)(cod_strategy *strategy, cod_train_context *context, const double *in);
    /** On the group's first rank alone: the model was validated after context->step steps. @param figure  the task's first one */
    cod_status (*validated)(cod_strategy *strategy, cod_train_context *context, double figure);
    /** The i-th peer's. @return false past the last */
    bool (*stats)(cod_strategy *strategy, int index, cod_peer_stats *out);
} cod_strategy_peers;

/** Of strategies that divide a network, its weights or its update over ranks. They take recipes that train one set. */
typedef struct cod_strategy_division {
    /**
     * Weights have their initial values, nothing is compiled: may put them where it wants them (cod_weights_place()), and says what
     * this rank computes and updates. Collective over the world. @param[out] division  zeroed before
     */
    cod_status (*place)(cod_strategy *strategy, cod_train_context *context, cod_division *division);
    /**
     * Does a step's forward and backward passes over all mini-batches of context->loader; NULL = the trainer does.
     * @param[out] task_loss  mean; 0 on ranks that do not compute it
     */
    cod_status (*compute)(cod_strategy *strategy, cod_train_context *context, double *task_loss);
    /** Updates the weights, as often as it likes in a step, in place of the trainer. NULL = the trainer runs the optimiser. */
    cod_status (*update)(cod_strategy *strategy, cod_train_context *context);
    /**
     * Makes the group's first rank hold all weights, where ranks update a part each, and their moving average. Collective on the
     * group; before evaluating and saving. NULL = it does anyway.
     *
     * @param[out] moments  NULL = not wanted; else of each state of the optimiser, in its order, [trainable] where it is a moment, on
     *                      the first rank; NULLs on others
     */
    cod_status (*gather)(cod_strategy *strategy, cod_train_context *context, float *const *moments);
} cod_strategy_division;

typedef struct cod_strategy_ops {
    /** Everything is compiled and the initial (not yet resumed) weights are in place. Collective over the world. */
    cod_status (*start)(cod_strategy *strategy, cod_train_context *context);
    /** A step begins, before its first program. */
    cod_status (*before_step)(cod_strategy *strategy, cod_train_context *context);
    /** A bucket of a set's gradients, of the last mini-batch, is complete once `complete` is reached; NULL = it is. Borrowed for the call. */
    cod_status (*gradient_ready)(cod_strategy *strategy, cod_train_context *context, int set, cod_bucket bucket,
                                 cod_event *complete);
    /** The set's gradients must be final when it returns. */
    cod_status (*before_update)(cod_strategy *strategy, cod_train_context *context, int set);
    /** The set is updated. */
    cod_status (*after_update)(cod_strategy *strategy, cod_train_context *context, int set);
    /** All sub-steps are done; may edit weights. context->step is still the step just done. */
    cod_status (*after_step)(cod_strategy *strategy, cod_train_context *context);
    /**
     * State beside weights and optimisers, of this rank, or its part of what is equal on the group's ranks (train/checkpoint_parts.h).
     * Arrays must live until the checkpoint is written.
     */
    cod_status (*save)(cod_strategy *strategy, cod_checkpoint *checkpoint);
    /** Reads that back. Collective on the group: all its ranks have opened what they saved. */
    cod_status (*load)(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file);
    /** The last step is done; peers may still read. Bounded in time. */
    cod_status (*finish)(cod_strategy *strategy, cod_train_context *context);
    void (*stats)(cod_strategy *strategy, cod_strategy_stats *out);
    void (*destroy)(cod_strategy *strategy);

    /** NULL where the strategy does no such thing. */
    const cod_strategy_teaching *teaching;
    const cod_strategy_peers *peers;
    const cod_strategy_division *division;
} cod_strategy_ops;

/** Implementations put this first in their own struct. Hooks that are NULL do nothing. */
struct cod_strategy {
    const cod_strategy_ops *ops;
    /** Set by start() where groups wait for each other, to every how many steps: they then stop, and resume, at one step. */
    int64_t in_step_every;
    size_t flag_count;    /**< Set by start(): numbers of flags_out() */
    int64_t agree_within; /**< Set by start(): ranks may be so many steps apart without waiting for each other; 0 = 1 */
};

/** What groups that wait for each other send, and what a rank holds for it. */
typedef struct cod_strategy_plan {
    char what[96];         /**< such as "weights averaged"; "" = nothing is told */
    bool in_group;         /**< it is what ranks of a group do in place of an all-reduce */
    int64_t every_steps;   /**< from one meeting of the groups to the next */
    double sent_bytes;     /**< by a group (in_group: by a rank) at each, and as many received */
    double received_bytes; /**< where it is not as many; else 0 */
    double memory_bytes;   /**< of a rank that trains */
    double host_bytes;     /**< of a rank whose device has memory of its own: the host's, for what goes between both */
    size_t part;           /**< trainable values that a rank updates, where ranks update a part each; 0 = all */
    bool once_a_node; /**< moments are kept once a node; in the host's memory also weights and their moving average */
    double server_bytes; /**< of a rank that serves, in the place of memory_bytes */
} cod_strategy_plan;

/** One stage of a network that ranks hold together. */
typedef struct cod_strategy_stage {
    const char *first, *last; /**< its layers */
    size_t parameters;
    double share;        /**< of the work */
    bool timed;          /**< work is time, not operations */
    double memory_bytes; /**< activations of all mini-batches under way, and messages */
    double sent_bytes;   /**< to other stages in a step */
} cod_strategy_stage;

typedef struct cod_strategy_kind {
    const char *name, *help;
    bool one_group;   /**< all ranks train as one group, whatever the config's groups */
    bool single_rank; /**< needs a world of one rank */
    bool keeps_state; /**< save() and load() are of use: ranks write a part of their own */
    bool averages;    /**< gradients by the context's collective, if at all: train.allreduce_codec is of use */
    /**
     * Between gradients and update it does nothing but average them over the group. In a group of one rank the update
     * is therefore queued together with the program of its gradients: gradient_ready() is not called, and
     * before_update() is called behind the update.
     */
    bool only_averages;
    bool one_set; /**< takes only recipes that train one network */
    /** Ranks of the group, the first, that hold the weights and update them; the others only train. NULL = all do both. */
    int (*servers)(const cod_run_config *run);
    /** Ranks that hold the network together, as place() will have it. NULL = 1. */
    int (*stages)(const cod_run_config *run);
    /** [table_count] sections that it reads by cod_run_config_section(); several strategies may read one. */
    const cod_option_table *const *tables;
    size_t table_count;
    /** Checks options that concern each other; adds problems to run->config. May be NULL. */
    void (*check)(const cod_run_config *run);
    /** What `codistill plan` tells of models of `values` weights and statistics, `state` of them statistics. NULL = nothing to tell. */
    void (*plan)(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out);
    /**
     * How `ranks` ranks would hold a network together. NULL = they never do.
     * @param session  compiled, of a run not begun
     * @param[out] stages  new; free()
     */
    cod_status (*plan_stages)(cod_train_session *session, int ranks, cod_strategy_stage **stages, size_t *count);
    /** Whether a group can be a job of its own, beside others that are; COD_ERR_ARGUMENT says what to set. NULL = it cannot. */
    cod_status (*check_apart)(const cod_run_config *run);
    /** @param run  borrowed until destroy(); where the strategy finds its sections */
    cod_status (*create)(const cod_run_config *run, cod_strategy **out);
} cod_strategy_kind;

/** Registers a strategy; called by `tools` before a configuration is read. Borrowed for ever. */
void cod_strategy_register(const cod_strategy_kind *kind);
const cod_strategy_kind *cod_strategy_find(const char *name);
/** The i-th registered kind, NULL past the last. */
const cod_strategy_kind *cod_strategy_at(size_t index);

/** `single` and `allreduce`. */
void cod_strategies_register_basic(void);

#endif

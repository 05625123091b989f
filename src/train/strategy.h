/**
 * @file
 * The strategy contract: how ranks co-operate on what a recipe computes (recipe.h). The trainer calls these hooks in
 * the order below and knows no strategy by name.
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

/**
 * What a strategy did with a peer's model. These events and their steps are all that the replay of an asynchronous run
 * needs.
 */
typedef struct cod_train_event {
    const char *kind; /**< "publish", "switch": it became the teacher, "merge": weights moved towards it */
    int peer;         /**< the peer's group; this group if it published */
    uint64_t version;
    int64_t peer_step; /**< updates the peer had done */
    double alpha;      /**< strength of a merge, else NaN */
} cod_train_event;

/** A run being set up or running, as strategies see it. All members are borrowed. */
typedef struct cod_train_context {
    const cod_run_config *config;
    cod_train_session *session; /**< the group's recipe, its weights and programs */
    cod_comm *comm;
    cod_group *group;           /**< of this rank */
    cod_collective *collective; /**< averaging gradients inside the group */
    cod_loader *loader;         /**< loader of mini-batches, if the rank trains; NULL before the first step */
    cod_metrics *metrics;       /**< on the first rank of a group; else NULL */
    cod_mini_batch mini_batch;  /**< the host's copy of the mini-batch on the device, until the next is loaded */
    int64_t step;               /**< number of steps done before this one */
    int64_t steps;
} cod_train_context;

/** Logs an event of the update just done to exchange.GROUP.jsonl; for after_step(), on every rank of the group. */
COD_MUST_CHECK cod_status cod_train_tell(const cod_train_context *context, const cod_train_event *event);

/** Figures about co-operation for log lines, metrics and summary.json. Strategies without peers leave it zeroed. */
typedef struct cod_strategy_stats {
    double distill_loss; /**< NaN = none this step */
    double distill_weight;
    int64_t teacher_step;                   /**< -1 = no teacher */
    int64_t staleness_steps;                /**< staleness of a teacher; negative = its group is ahead */
    uint64_t pulled_bytes, published_bytes; /**< of this rank since this process started, like all figures below */
    uint64_t pulls, publications, rejected, teacher_switches, merges;
    double teacher_ms;  /**< median of the teacher's forward */
    double exchange_ms; /**< mean host time for the exchange in a step */
    /** processor seconds of the training thread for the exchange; only codistill sets it */
    double exchange_processor_s;
    double teacher_s;    /**< all teachers' forwards together */
    double waited_s;     /**< seconds of waiting for averages of gradients after the backward pass */
    const char *entropy; /**< entropy coder of this rank's publications; NULL = it publishes nothing */
    uint64_t pushes;     /**< gradients that a server has applied, each as an update; 0 on ranks that are no servers */
    /**
     * Updates by others from the time a worker gets the weights until its gradients are applied: sum over pushes, and
     * largest.
     */
    uint64_t push_staleness, push_staleness_max;
} cod_strategy_stats;

/**
 * A group's figures of a peer that it reads. Counts and bytes are those of the whole group, over all processes of the
 * run.
 */
typedef struct cod_peer_stats {
    int group;
    uint64_t version; /**< version held; 0 = none yet */
    int64_t step,
        staleness_steps; /**< the peer's step when it published that version, and this group's step minus that */
    double age_s;        /**< seconds since it published that version, by the clocks of both; NaN = unknown */
    uint64_t pulled, rejected, lost; /**< versions */
    uint64_t pulled_bytes;
    double bytes_per_s; /**< of pulls, on the group's first rank; NaN before the first */
    double weight;      /**< weight when it was last its turn; 0 = it is too old, or burn-in is not over */
    /** Task losses of the teacher and of the student on the mini-batch of the last measurement; NaN = never. */
    double teacher_loss, student_loss;
} cod_peer_stats;

/** Hooks of strategies that add losses toward other models' predictions to the sub-step that the recipe marks. */
typedef struct cod_strategy_teaching {
    /** Adds losses to the graph and programs to the session; nothing is compiled yet. Local. */
    cod_status (*add_losses)(cod_strategy *strategy, cod_train_session *session);
    /**
     * @param[in,out] program  name of the program that the marked sub-step runs in this step: the recipe's, or an added
     *                         one
     */
    cod_status (*choose)(cod_strategy *strategy, cod_train_context *context, const char **program);
    /** Called when a mini-batch of the marked sub-step is on the device, before its program runs. */
    cod_status (*before_batch)(cod_strategy *strategy, cod_train_context *context);
} cod_strategy_teaching;

/** Hooks of strategies whose ranks of a group must make the same decisions about other groups. */
typedef struct cod_strategy_peers {
    /**
     * Flags are part of the step's reduction of losses: `out` [strategy->flag_count] of step t, zeroed before the call,
     * returns summed over the group as `in` when step t + 2 begins (t + 1 + agree_within if that is set), at the same
     * step on every rank. Flags in progress are lost when a run is killed; state needed after a resume belongs in
     * save().
     */
    void (*flags_out)(cod_strategy *strategy, double *out);
    cod_status (*flags_in)(cod_strategy *strategy, cod_train_context *context, const double *in);
    /**
     * Called on the group's first rank when the model was validated after context->step steps. @param figure the task's
     * first one
     */
    cod_status (*validated)(cod_strategy *strategy, cod_train_context *context, double figure);
    /** The i-th peer's. @return false past the last */
    bool (*stats)(cod_strategy *strategy, int index, cod_peer_stats *out);
} cod_strategy_peers;

/**
 * Hooks of strategies that divide a network, its weights or its update over ranks. They support only recipes that train
 * one set.
 */
typedef struct cod_strategy_division {
    /**
     * Called when weights have their initial values and nothing is compiled. May place the weights elsewhere
     * (cod_weights_place()), and sets the part that this rank computes and updates. Collective over the world.
     * @param[out] division zeroed before
     */
    cod_status (*place)(cod_strategy *strategy, cod_train_context *context, cod_division *division);
    /**
     * Runs a step's forward and backward passes over all mini-batches of context->loader. NULL = the trainer runs them.
     * @param[out] task_loss  mean; 0 on ranks that do not compute it
     */
    cod_status (*compute)(cod_strategy *strategy, cod_train_context *context, double *task_loss);
    /**
     * Updates the weights in place of the trainer, any number of times in a step. NULL = the trainer runs the
     * optimiser.
     */
    cod_status (*update)(cod_strategy *strategy, cod_train_context *context);
    /**
     * Brings all weights and their moving average to the group's first rank, if each rank updates a part. Collective on
     * the group; called before evaluating and saving. NULL = the first rank has them anyway.
     *
     * @param[out] moments  NULL = not needed; else on the first rank, for each state of the optimiser in order,
     *                      [trainable] if it is a moment; NULLs on other ranks
     */
    cod_status (*gather)(cod_strategy *strategy, cod_train_context *context, float *const *moments);
} cod_strategy_division;

typedef struct cod_strategy_ops {
    /**
     * Called when everything is compiled and the initial (not yet resumed) weights are in place. Collective over the
     * world.
     */
    cod_status (*start)(cod_strategy *strategy, cod_train_context *context);
    /** Called at the beginning of a step, before its first program. */
    cod_status (*before_step)(cod_strategy *strategy, cod_train_context *context);
    /**
     * Called for each bucket of a set's gradients, in the last mini-batch. The bucket is complete when `complete` is
     * reached; NULL = it is complete. Borrowed for the call.
     */
    cod_status (*gradient_ready)(cod_strategy *strategy, cod_train_context *context, int set, cod_bucket bucket,
                                 cod_event *complete);
    /** The set's gradients must be final when it returns. */
    cod_status (*before_update)(cod_strategy *strategy, cod_train_context *context, int set);
    /** Called after the set was updated. */
    cod_status (*after_update)(cod_strategy *strategy, cod_train_context *context, int set);
    /** Called after all sub-steps; may change weights. context->step is still the step just done. */
    cod_status (*after_step)(cod_strategy *strategy, cod_train_context *context);
    /**
     * Saves state other than weights and optimisers: this rank's, or its part of arrays that are equal on the group's
     * ranks (train/checkpoint_parts.h). Arrays must live until the checkpoint is written.
     */
    cod_status (*save)(cod_strategy *strategy, cod_checkpoint *checkpoint);
    /** Restores that state. Collective on the group: all its ranks have opened their files. */
    cod_status (*load)(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file);
    /** Called after the last step, while peers may still read. Must return in bounded time. */
    cod_status (*finish)(cod_strategy *strategy, cod_train_context *context);
    void (*stats)(cod_strategy *strategy, cod_strategy_stats *out);
    void (*destroy)(cod_strategy *strategy);

    /** NULL if the strategy has no such hooks. */
    const cod_strategy_teaching *teaching;
    const cod_strategy_peers *peers;
    const cod_strategy_division *division;
} cod_strategy_ops;

/** Implementations put this first in their own struct. Hooks that are NULL do nothing. */
struct cod_strategy {
    const cod_strategy_ops *ops;
    /**
     * Set by start() if groups wait for each other: the number of steps between two such waits. The groups then stop,
     * and resume, at the same step.
     */
    int64_t in_step_every;
    size_t flag_count;    /**< Set by start(): count of numbers of flags_out() */
    int64_t agree_within; /**< Set by start(): steps that ranks may be apart without waiting for each other; 0 = 1 */
};

/** For `codistill plan`: what groups that wait for each other send, and what a rank holds for this. */
typedef struct cod_strategy_plan {
    char what[96];         /**< such as "weights averaged"; "" = nothing is shown */
    bool in_group;         /**< the ranks of a group do this in place of an allreduce */
    int64_t every_steps;   /**< steps from one meeting of the groups to the next */
    double sent_bytes;     /**< bytes sent by a group (in_group: by a rank) at each meeting; as many are received */
    double received_bytes; /**< bytes received if the number differs; else 0 */
    double memory_bytes;   /**< of a rank that trains */
    double host_bytes;     /**< of a rank whose device has its own memory: host memory for transfers */
    size_t part;           /**< trainable values that a rank updates, if each rank updates a part; 0 = all */
    bool once_a_node; /**< moments are kept once on each node; in host memory also weights and their moving average */
    double server_bytes; /**< memory of a server, in place of memory_bytes */
} cod_strategy_plan;

/** One stage of a network that ranks hold together. */
typedef struct cod_strategy_stage {
    const char *first, *last; /**< its layers */
    size_t parameters;
    double share;        /**< of the work */
    bool timed;          /**< the work was timed, not counted in operations */
    double memory_bytes; /**< activations of all mini-batches in progress, and messages */
    double sent_bytes;   /**< to other stages in a step */
} cod_strategy_stage;

typedef struct cod_strategy_kind {
    const char *name, *help;
    bool one_group;   /**< all ranks train as one group, whatever groups the configuration has */
    bool single_rank; /**< needs a world of one rank */
    bool keeps_state; /**< it uses save() and load(): each rank writes a part of the checkpoint */
    bool averages; /**< it averages only with the context's collective, so that train.allreduce_codec has an effect */
    /**
     * Between gradients and update, the strategy only averages gradients over the group. In a group of one rank the
     * update is therefore queued together with the program of its gradients: gradient_ready() is not called, and
     * before_update() is called after the update.
     */
    bool only_averages;
    bool one_set; /**< supports only recipes that train one network */
    /**
     * Number of servers, the first ranks of the group, which hold and update the weights; the others only train. NULL =
     * all ranks do both.
     */
    int (*servers)(const cod_run_config *run);
    /** Number of ranks that will hold the network together, as place() divides it. NULL = 1. */
    int (*stages)(const cod_run_config *run);
    /** [table_count] sections that it reads by cod_run_config_section(); several strategies may read one. */
    const cod_option_table *const *tables;
    size_t table_count;
    /** Checks conditions between several options; adds problems to run->config. May be NULL. */
    void (*check)(const cod_run_config *run);
    /**
     * Fills in what `codistill plan` shows for models of `values` weights and statistics, of which `state` are
     * statistics. NULL = nothing to show.
     */
    void (*plan)(const cod_run_config *run, size_t values, size_t state, cod_strategy_plan *out);
    /**
     * Computes how `ranks` ranks would divide a network. NULL = they never do.
     * @param session  compiled; the run has not started
     * @param[out] stages  new; free()
     */
    cod_status (*plan_stages)(cod_train_session *session, int ranks, cod_strategy_stage **stages, size_t *count);
    /**
     * Checks that each group can be a separate job; COD_ERR_ARGUMENT says what to set. NULL = groups cannot be separate
     * jobs.
     */
    cod_status (*check_apart)(const cod_run_config *run);
    /** @param run  borrowed until destroy(); contains the strategy's sections */
    cod_status (*create)(const cod_run_config *run, cod_strategy **out);
} cod_strategy_kind;

/**
 * Registers a strategy; called by `tools` before a configuration is read. The struct is borrowed for the life of the
 * process.
 */
void cod_strategy_register(const cod_strategy_kind *kind);
const cod_strategy_kind *cod_strategy_find(const char *name);
/** The i-th registered kind, NULL past the last. */
const cod_strategy_kind *cod_strategy_at(size_t index);

/** `single` and `allreduce`. */
void cod_strategies_register_basic(void);

#endif

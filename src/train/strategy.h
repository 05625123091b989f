/**
 * @file
 * The strategy contract: how ranks co-operate. The trainer calls these hooks in the order below and knows no strategy by name.
 *
 * All ranks of a group call the hooks in the same order; a hook that fails on one rank ends the run on all of its group.
 */
#ifndef COD_TRAIN_STRATEGY_H
#define COD_TRAIN_STRATEGY_H

#include "comm/group.h"
#include "core/collective.h"
#include "data/loader.h"
#include "io/json.h"
#include "nn/compile.h"
#include "nn/model.h"
#include "nn/optimiser.h"
#include "train/checkpoint.h"
#include "train/config.h"

typedef struct cod_metrics cod_metrics;

enum { COD_TRAIN_MAX_PROGRAMS = 8, COD_STRATEGY_FLAGS = 12 };

/** The names of the programs that the trainer itself adds: task loss alone, overwriting or adding to the gradients. */
#define COD_PROGRAM_PLAIN      "plain"
#define COD_PROGRAM_ACCUMULATE "_accumulate" /**< added to a program's name for the later mini-batches of a step */

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
    cod_comm *comm;
    cod_group *group;           /**< of this rank */
    cod_collective *collective; /**< averaging gradients inside the group */
    const cod_backend *backend;
    cod_device *device;
    cod_dtype activation;
    int64_t batch;      /**< of this rank, of one mini-batch */
    cod_shape sample;   /**< of a mini-batch's input */
    cod_loader *loader; /**< of mini-batches, where the rank trains; NULL before the first step */

    cod_model *model;
    cod_value target, task_loss;
    cod_weights *weights;
    cod_optimiser *optimiser;
    cod_executable *executable; /**< NULL during build */

    /** Programs to compile; build() may add. A second one "NAME_accumulate" is made of each where needed. */
    cod_program_spec programs[COD_TRAIN_MAX_PROGRAMS];
    size_t program_count;
    float loss_factor; /**< 1 / mini-batches a step: every loss's gradient is multiplied with it */

    /** [groups, classes] log of each group's class shares over all groups' (prior.h); NULL = equal, or not corrected for. */
    const float *priors;

    /** Set by place(), with `part`, where this rank computes some of the graph's nodes only. */
    cod_stage stage;
    int stages; /**< ranks, next to each other in the group, that hold the network together; 0 = each holds all of it */

    cod_view input, truth; /**< the mini-batch on the device, when before_batch() and later hooks run */
    int64_t step;          /**< updates done before this one */
    int64_t steps;
    double rate; /**< of this step */

    /** Set by start(): the first ranks of the group that hold the weights and update them; the others only train. 0 = all do both. */
    int servers;
    bool updates_itself;  /**< Set by start(): the strategy runs the optimiser, as often as it likes in a step */
    int64_t agree_within; /**< Set by start(): ranks may be so many steps apart without waiting for each other; 0 = 1 */

    /**
     * Set by build() or place(): of the trainable values this rank updates `count` from `first` on, perhaps none. Without gather()
     * each rank then saves the optimiser's moments of its own part, and the group's first rank has the whole moving average, if
     * any, when save() returns.
     */
    struct {
        bool only;
        size_t first, count;
    } part;
    cod_buffer *average; /**< Set by place(): where the moving average lies, see cod_optimiser_options */

    /** Set by start() where groups wait for each other, to every how many steps: they then stop, and resume, at one step. */
    int64_t in_step_every;

    cod_metrics *metrics; /**< of the first rank of a group, else NULL */
} cod_train_context;

/**
 * Compiles the context's programs for its batch, each also as one that adds to gradients where a step has several mini-batches.
 *
 * @param weights  the context's, or others of its graph; borrowed
 * @param stage    all zero = the whole graph
 */
COD_MUST_CHECK cod_status cod_train_compile(const cod_train_context *context, cod_weights *weights, cod_stage stage,
                                            cod_executable **out);

/** Logs an event of the update just done to exchange.GROUP.jsonl; for after_update(), on every rank of the group. */
COD_MUST_CHECK cod_status cod_train_tell(const cod_train_context *context, const cod_train_event *event);

typedef struct cod_strategy cod_strategy;

/** What a log line, metrics and summary.json say about co-operation; strategies without peers leave it zeroed. */
typedef struct cod_strategy_stats {
    double distill_loss; /**< NaN = none this step */
    double distill_weight;
    int64_t teacher_step;                   /**< -1 = no teacher */
    int64_t staleness_steps;                /**< of a teacher; negative = its group is ahead */
    uint64_t pulled_bytes, published_bytes; /**< this rank's, since this process started, as all the next */
    uint64_t pulls, publications, rejected, teacher_switches, merges;
    double teacher_ms;   /**< median of the teacher's forward */
    double exchange_ms;  /**< mean a step of the host's work for the exchange */
    double teacher_s;    /**< all teachers' forwards together */
    double waited_s;     /**< for gradients to be averaged over the group, once backward was done */
    const char *entropy; /**< coder of what this rank publishes; NULL = nothing */
    uint64_t pushes;     /**< gradients that a server has applied, each an update; 0 = it is none */
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

typedef struct cod_strategy_ops {
    /** Adds losses to the model's graph, and programs. Nothing is compiled yet. */
    cod_status (*build)(cod_strategy *strategy, cod_train_context *context);
    /**
     * Weights have their initial values, nothing is compiled: may put them, and the moving average, where it wants them, or
     * divide the graph's nodes over ranks. Collective over the world.
     */
    cod_status (*place)(cod_strategy *strategy, cod_train_context *context);
    /** Everything is compiled and the initial (not yet resumed) weights are in place. Collective over the world. */
    cod_status (*start)(cod_strategy *strategy, cod_train_context *context);
    /** Chooses the step's program by its name. */
    cod_status (*before_step)(cod_strategy *strategy, cod_train_context *context, const char **program);
    /** The mini-batch is on the device, its program has not run. */
    cod_status (*before_batch)(cod_strategy *strategy, cod_train_context *context);
    /**
     * Does a step's forward and backward passes over all mini-batches of context->loader, in place of before_step() to
     * gradient_ready(); NULL = the trainer does. @param[out] task_loss  mean; 0 on ranks that do not compute it
     */
    cod_status (*compute)(cod_strategy *strategy, cod_train_context *context, double *task_loss);
    /** Bucket `index` of the last mini-batch is complete. */
    cod_status (*gradient_ready)(cod_strategy *strategy, cod_train_context *context, cod_bucket bucket);
    /** Gradients must be final when it returns. */
    cod_status (*before_update)(cod_strategy *strategy, cod_train_context *context);
    /** Weights are updated; may edit them (raising their version). context->step is still the step just done. */
    cod_status (*after_update)(cod_strategy *strategy, cod_train_context *context);
    /**
     * Rides in the step's loss reduction: `out` of step t, summed over the group, comes back as `in` after step t + 2
     * (t + 1 + agree_within where that is set), at the same step on every rank.
     */
    void (*flags_out)(cod_strategy *strategy, double out[COD_STRATEGY_FLAGS]);
    cod_status (*flags_in)(cod_strategy *strategy, cod_train_context *context, const double in[COD_STRATEGY_FLAGS]);
    /** On the group's first rank alone: the model was validated after context->step steps. @param figure  the task's first one */
    cod_status (*validated)(cod_strategy *strategy, cod_train_context *context, double figure);
    /**
     * Makes the group's first rank hold all weights, where ranks update a part each, and their moving average. Collective on the
     * group; before evaluating and saving. NULL = it does anyway.
     *
     * @param[out] moments  NULL = not wanted; else of each state of the optimiser, in its order, [trainable] where it is a moment, on
     *                      the first rank; NULLs on others
     */
    cod_status (*gather)(cod_strategy *strategy, cod_train_context *context, float *const *moments);
    /** State beside weights and optimiser, of this rank. Arrays must live until the checkpoint is written. */
    cod_status (*save)(cod_strategy *strategy, cod_checkpoint *checkpoint);
    cod_status (*load)(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file);
    /** The last step is done; peers may still read. Bounded in time. */
    cod_status (*finish)(cod_strategy *strategy, cod_train_context *context);
    void (*stats)(cod_strategy *strategy, cod_strategy_stats *out);
    /** The i-th peer's. @return false past the last */
    bool (*peer_stats)(cod_strategy *strategy, int index, cod_peer_stats *out);
    void (*destroy)(cod_strategy *strategy);
} cod_strategy_ops;

/** Implementations put this first in their own struct. Hooks that are NULL do nothing. */
struct cod_strategy {
    const cod_strategy_ops *ops;
};

/** What groups that wait for each other send, and what a rank holds for it. */
typedef struct cod_strategy_plan {
    char what[96];         /**< such as "weights averaged"; "" = nothing is told */
    bool in_group;         /**< it is what ranks of a group do in place of an all-reduce */
    int64_t every_steps;   /**< from one meeting of the groups to the next */
    double sent_bytes;     /**< by a group (in_group: by a rank) at each, and as many received */
    double received_bytes; /**< where it is not as many; else 0 */
    double memory_bytes;   /**< of a rank */
    bool once_a_node;      /**< weights, moments and moving average are kept once a node */
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
    /** Ranks that serve and do not train, as start() will set them in the context. NULL = none. */
    int (*servers)(const cod_run_config *run);
    /** Ranks that hold the network together, as start() will set them in the context. NULL = 1. */
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
     * @param context  of a run not begun: without comm, group and optimiser
     * @param[out] stages  new; free()
     */
    cod_status (*plan_stages)(cod_train_context *context, int ranks, cod_strategy_stage **stages, size_t *count);
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

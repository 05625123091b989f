/**
 * @file
 * The recipe contract: what a training step computes. A recipe builds networks and losses into one graph, a parameter set for each
 * network, and lists the step's sub-steps in their order. How ranks co-operate on the step is the strategy's (strategy.h): neither
 * knows the other by name, and the trainer knows none of them.
 */
#ifndef COD_TRAIN_RECIPE_H
#define COD_TRAIN_RECIPE_H

#include "data/sharpen.h"
#include "nn/compile.h"
#include "nn/model.h"
#include "nn/optimiser.h"
#include "nn/schedule.h"
#include "train/config.h"

enum {
    COD_RECIPE_MAX_STEPS = 16,
    COD_RECIPE_MAX_CONSTANTS = 8,
    COD_RECIPE_MAX_GUARDS = 8,
    COD_RECIPE_MAX_FEATURES = 8
};

/** Inputs of the graph that each mini-batch fills. */
#define COD_INPUT_DATA  "input"
#define COD_INPUT_TRUTH "target"

/** A parameter set of the graph. The first one is the model's: strategies publish, merge and distil it, and name its rate. */
typedef struct cod_recipe_set {
    const char *name;
    bool travels; /**< between groups, which average, publish and merge it; false = each group keeps its own */
    bool trained; /**< has an optimiser */
    /** Safetensors file that holds what its parameters start at, by their names, perhaps beside others; NULL = as the graph says. */
    const char *file;
    cod_optimiser_options optimiser;
    cod_schedule schedule;
    const char *rate_option; /**< the option that sets its rate, for messages; NULL = train.rate */
} cod_recipe_set;

/** A program that a step runs, and the set that is updated after it. */
typedef struct cod_sub_step {
    cod_program_spec program; /**< `trains` NULL: nothing is updated. Later ones of a step may be given its outputs */
    const char *losses[COD_PROGRAM_MAX_LOSSES]; /**< names of program.losses in metrics and messages, all different */
    int64_t every;                              /**< runs in steps s with s % every == 0, counted from 0; 0 = in each */
    int64_t first, end;                         /**< and only in steps first ≤ s < end; end 0 = to the last */
    /** Outputs of the program whose first elements go into metrics under these names, all different, as means over ranks. */
    cod_value figures[COD_PROGRAM_MAX_OUTPUTS];
    const char *figure_names[COD_PROGRAM_MAX_OUTPUTS];
    bool distils; /**< a strategy may add losses to it; at most one of the sub-steps */
} cod_sub_step;

/** An input that is filled once. */
typedef struct cod_recipe_constant {
    const char *input;
    float value;
} cod_recipe_constant;

/** How a guard's value is made of losses or figures. */
typedef enum cod_guard_relation {
    COD_GUARD_ALONE,      /**< figure */
    COD_GUARD_DIFFERENCE, /**< figure - other */
    COD_GUARD_RATIO       /**< figure / other */
} cod_guard_relation;

/** A band that a loss, a figure, or two of them are expected to stay in: training that goes wrong is told (guards.h). */
typedef struct cod_recipe_guard {
    const char *name;   /**< one word; metrics have it as "guard.NAME" */
    const char *figure; /**< a loss or a figure, by its name */
    const char *other;  /**< likewise; NULL = the relation is COD_GUARD_ALONE */
    cod_guard_relation relation;
    double least, most; /**< the band; -INFINITY and INFINITY leave it open */
    const char *advice; /**< for the warning: what a value outside means, and what to do */
    bool spoils;        /**< a model from outside the band is neither saved nor kept as the best nor exported */
} cod_recipe_guard;

/** What a frozen network of the recipe makes of the model's output, and how the recipe compares it with what that makes of the truth. */
typedef struct cod_recipe_feature {
    cod_value made;
    cod_loss_kind loss;
    double weight;
} cod_recipe_feature;

typedef struct cod_recipe_kind cod_recipe_kind;

/** A recipe as it was built for a configuration. */
typedef struct cod_recipe {
    const cod_recipe_kind *kind;
    cod_model model;  /**< the one that is evaluated, distilled and exported, of set 0; its graph holds all networks */
    cod_value target; /**< the input COD_INPUT_TRUTH */
    int64_t task_channel; /**< of it, the first that the task loss compares with */
    cod_value task_loss;  /**< among the losses of the sub-step that trains the model: how far it is from the truth */
    /**
     * Between the model's output itself and the truth, where the task loss is between other things: what peers' models are held against. A
     * loss of the sub-step that distils, or among its program's outputs. 0 = the task loss is that.
     */
    cod_value compared_loss;
    cod_recipe_set sets[COD_GRAPH_MAX_SETS]; /**< [cod_graph_set_count()] by the graph's index */
    /** What they do not train is frozen; program.batch_statistics says which frozen sets normalise by the batch. */
    cod_sub_step steps[COD_RECIPE_MAX_STEPS];
    size_t step_count;
    cod_recipe_constant constants[COD_RECIPE_MAX_CONSTANTS];
    size_t constant_count;
    cod_recipe_guard guards[COD_RECIPE_MAX_GUARDS];
    size_t guard_count;
    cod_recipe_feature features[COD_RECIPE_MAX_FEATURES]; /**< for strategies that compare predictions there */
    size_t feature_count;                                 /**< 0 = no network is frozen for that */
} cod_recipe;

/** What a recipe is built for. All members are borrowed. */
typedef struct cod_recipe_setting {
    const cod_run_config *config;
    int group;           /**< whose networks */
    const float *priors; /**< [groups, classes] as cod_train_session has them */
    float loss_factor;   /**< 1 / mini-batches a step: to be cod_loss_spec.weight, or a factor of it, of every loss */
} cod_recipe_setting;

struct cod_recipe_kind {
    const char *name, *help;
    /** [table_count] sections that it reads by cod_run_config_section(). */
    const cod_option_table *const *tables;
    size_t table_count;
    /** Checks options that concern each other; adds problems to run->config. NULL = there are none. */
    void (*check)(const cod_run_config *run);
    /** Likewise for files that a run which trains has to find. NULL = there are none. */
    void (*check_files)(const cod_run_config *run);
    /** What super-resolution's samples have for a target. NULL = as data.gt_usm says. */
    cod_truth (*truth)(const cod_run_config *run);
    /** Fills `recipe`, zeroed but for its kind. Texts are literals or live as long as the configuration. */
    cod_status (*build)(const cod_recipe_setting *setting, cod_recipe *recipe);
    /**
     * Adds what the frozen network makes of other pictures of the output's shape to the recipe's graph, where recipe->feature_count is above
     * 0. @param[out] features  [feature_count] to be compared with recipe->features. NULL = it never is
     */
    cod_status (*add_features)(const cod_recipe_setting *setting, const cod_recipe *recipe, cod_value pictures,
                               cod_value *features);
};

/**
 * Builds the configuration's recipe and checks what it made.
 *
 * @param[out] recipe  new, also on failure; cod_recipe_clear()
 */
COD_MUST_CHECK cod_status cod_recipe_build(const cod_recipe_setting *setting, cod_recipe *recipe);
void cod_recipe_clear(cod_recipe *recipe);

/** Sets that travel between groups. */
cod_sets cod_recipe_travelling(const cod_recipe *recipe);
/**
 * Whether a sub-step may normalise by running statistics of a trained set that it does not train: these then bear on gradients, and
 * are each rank's own. After cod_graph_layout().
 */
bool cod_recipe_reads_statistics(const cod_recipe *recipe);
/** The sub-step that a strategy may add losses to; NULL = none. */
const cod_sub_step *cod_recipe_distilling(const cod_recipe *recipe);
/** The loss that tells how good the model's output is: compared_loss, or the task loss. */
cod_value cod_recipe_compared_loss(const cod_recipe *recipe);
/** Whether a sub-step is among those of step `step`. */
bool cod_sub_step_is_due(const cod_sub_step *sub_step, int64_t step);
/** In how many of the steps 0 … `steps` - 1 a sub-step runs. */
int64_t cod_sub_step_times_due(const cod_sub_step *sub_step, int64_t steps);
/** Updates that a set has had before sub-step `index` of step `step`: optimisers count them. */
int64_t cod_recipe_updates(const cod_recipe *recipe, int set, int64_t step, size_t index);

/** The optimiser and the schedule of section `train`, which most sets have. */
cod_optimiser_options cod_recipe_optimiser(const cod_run_config *config);
cod_schedule cod_recipe_schedule(const cod_run_config *config);

/** What super-resolution's samples have for a target in this run. */
cod_truth cod_recipe_truth(const cod_run_config *run);

/** Registers a recipe; called by `tools` before a configuration is read. Borrowed for ever. */
void cod_recipe_register(const cod_recipe_kind *kind);
const cod_recipe_kind *cod_recipe_find(const char *name);
/** The i-th registered kind, NULL past the last. */
const cod_recipe_kind *cod_recipe_at(size_t index);

/** `supervised`: one network, one loss. */
void cod_recipe_register_supervised(void);

#endif

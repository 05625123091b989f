/**
 * @file
 * The recipe contract: what a training step computes. A recipe builds networks and losses into one graph, a parameter
 * set for each network, and lists the step's sub-steps in their order. The strategy (strategy.h) decides how ranks
 * co-operate on the step. Neither knows the other by name, and the trainer knows neither by name.
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

/** A parameter set of the graph. The first set is the model's: strategies publish, merge and distil it. */
typedef struct cod_recipe_set {
    const char *name;
    bool travels; /**< groups average, publish and merge it; false = each group keeps its own */
    bool trained; /**< has an optimiser */
    /**
     * Safetensors file with the initial values of its parameters under their names; it may hold other tensors, too.
     * NULL = the graph's initial values.
     */
    const char *file;
    cod_optimiser_options optimiser;
    cod_schedule schedule;
    const char *rate_option; /**< option that sets its learning rate, for messages; NULL = train.rate */
} cod_recipe_set;

/** A program that a step runs, and the set that is updated after it. */
typedef struct cod_sub_step {
    /** if `trains` is NULL, no set is updated. Later sub-steps of the step may read its outputs */
    cod_program_spec program;
    const char *losses[COD_PROGRAM_MAX_LOSSES]; /**< names of program.losses in metrics and messages, all different */
    int64_t every;      /**< runs in steps s with s % every == 0, counted from 0; 0 = in each step */
    int64_t first, end; /**< and only in steps first ≤ s < end; end 0 = to the last step */
    /**
     * Outputs of the program whose first elements go into metrics under these names, all different, as means over
     * ranks.
     */
    cod_value figures[COD_PROGRAM_MAX_OUTPUTS];
    const char *figure_names[COD_PROGRAM_MAX_OUTPUTS];
    bool distils; /**< a strategy may add losses to it; at most one of the sub-steps */
} cod_sub_step;

/** An input that is filled once. */
typedef struct cod_recipe_constant {
    const char *input;
    float value;
} cod_recipe_constant;

/** How a guard's value is computed from losses or figures. */
typedef enum cod_guard_relation {
    COD_GUARD_ALONE,      /**< figure */
    COD_GUARD_DIFFERENCE, /**< figure - other */
    COD_GUARD_RATIO       /**< figure / other */
} cod_guard_relation;

/**
 * A band in which a loss, a figure, or a relation of two of them is expected to stay. A value outside it causes a
 * warning (guards.h).
 */
typedef struct cod_recipe_guard {
    const char *name;   /**< one word; metrics have it as "guard.NAME" */
    const char *figure; /**< a loss or a figure, by its name */
    const char *other;  /**< likewise; NULL = the relation is COD_GUARD_ALONE */
    cod_guard_relation relation;
    double least, most; /**< the band; -INFINITY and INFINITY leave it open */
    const char *advice; /**< for the warning: what a value outside means, and what to do */
    bool spoils; /**< a model whose value is outside the band is neither saved nor kept as the best nor exported */
} cod_recipe_guard;

/**
 * Features of the model's output in a frozen network of the recipe, and how the recipe compares them with the features
 * of the truth.
 */
typedef struct cod_recipe_feature {
    cod_value made;
    cod_loss_kind loss;
    double weight;
} cod_recipe_feature;

typedef struct cod_recipe_kind cod_recipe_kind;

/** A recipe as it was built for a configuration. */
typedef struct cod_recipe {
    const cod_recipe_kind *kind;
    cod_model model;  /**< the model that is evaluated, distilled and exported; set 0; its graph holds all networks */
    cod_value target; /**< the input COD_INPUT_TRUTH */
    int64_t task_channel; /**< first channel of the target that the task loss compares with */
    cod_value task_loss;  /**< the distance to the truth, among the losses of the sub-step that trains the model */
    /**
     * Loss between the model's output and the truth, by which the models of peers are compared, if the task loss
     * compares features. It is a loss of the sub-step that distils, or among its program's outputs. 0 = the task loss.
     */
    cod_value compared_loss;
    cod_recipe_set sets[COD_GRAPH_MAX_SETS]; /**< [cod_graph_set_count()] by the graph's index */
    /**
     * The sub-steps. A set that a sub-step does not train is frozen in it; program.batch_statistics says which frozen
     * sets normalise by the batch.
     */
    cod_sub_step steps[COD_RECIPE_MAX_STEPS];
    size_t step_count;
    cod_recipe_constant constants[COD_RECIPE_MAX_CONSTANTS];
    size_t constant_count;
    cod_recipe_guard guards[COD_RECIPE_MAX_GUARDS];
    size_t guard_count;
    cod_recipe_feature features[COD_RECIPE_MAX_FEATURES]; /**< for strategies that compare features of predictions */
    size_t feature_count;                                 /**< 0 = the recipe has no frozen network */
} cod_recipe;

/** What a recipe is built for. All members are borrowed. */
typedef struct cod_recipe_setting {
    const cod_run_config *config;
    int group;           /**< index of the group */
    const float *priors; /**< [groups, classes] as cod_train_session has them */
    float loss_factor;   /**< 1 / mini-batches in a step; every loss must have it as a factor of cod_loss_spec.weight */
} cod_recipe_setting;

struct cod_recipe_kind {
    const char *name, *help;
    /** [table_count] sections that it reads by cod_run_config_section(). */
    const cod_option_table *const *tables;
    size_t table_count;
    /** Checks conditions between several options; adds problems to run->config. NULL = no checks. */
    void (*check)(const cod_run_config *run);
    /** Checks that the files needed for training exist, in the same way. NULL = no checks. */
    void (*check_files)(const cod_run_config *run);
    /** The target of super-resolution's samples. NULL = data.gt_usm decides. */
    cod_truth (*truth)(const cod_run_config *run);
    /** Fills `recipe`, zeroed but for its kind. Texts are literals or live as long as the configuration. */
    cod_status (*build)(const cod_recipe_setting *setting, cod_recipe *recipe);
    /**
     * Adds the frozen network's features of other pictures, of the output's shape, to the recipe's graph; called if
     * recipe->feature_count is above 0. @param[out] features [feature_count] to be compared with recipe->features. NULL
     * = the recipe never has features
     */
    cod_status (*add_features)(const cod_recipe_setting *setting, const cod_recipe *recipe, cod_value pictures,
                               cod_value *features);
};

/**
 * Builds the configuration's recipe and checks the result.
 *
 * @param[out] recipe  new, also on failure; cod_recipe_clear()
 */
COD_MUST_CHECK cod_status cod_recipe_build(const cod_recipe_setting *setting, cod_recipe *recipe);
void cod_recipe_clear(cod_recipe *recipe);

/** Sets that travel between groups. */
cod_sets cod_recipe_travelling(const cod_recipe *recipe);
/**
 * Whether a sub-step may normalise by the running statistics of a trained set that it does not train. These statistics
 * then affect gradients, and differ between ranks. After cod_graph_layout().
 */
bool cod_recipe_reads_statistics(const cod_recipe *recipe);
/** The sub-step that a strategy may add losses to; NULL = none. */
const cod_sub_step *cod_recipe_distilling(const cod_recipe *recipe);
/** The loss that measures the model's output: compared_loss, or the task loss. */
cod_value cod_recipe_compared_loss(const cod_recipe *recipe);
/** Whether a sub-step is among those of step `step`. */
bool cod_sub_step_is_due(const cod_sub_step *sub_step, int64_t step);
/** Number of the steps 0 … `steps` - 1 in which a sub-step runs. */
int64_t cod_sub_step_times_due(const cod_sub_step *sub_step, int64_t steps);
/** Updates that a set has had before sub-step `index` of step `step`: optimisers count them. */
int64_t cod_recipe_updates(const cod_recipe *recipe, int set, int64_t step, size_t index);

/** The optimiser and the schedule of section `train`, which most sets use. */
cod_optimiser_options cod_recipe_optimiser(const cod_run_config *config);
cod_schedule cod_recipe_schedule(const cod_run_config *config);

/** The target of super-resolution's samples in this run. */
cod_truth cod_recipe_truth(const cod_run_config *run);

/**
 * Registers a recipe; called by `tools` before a configuration is read. The struct is borrowed for the life of the
 * process.
 */
void cod_recipe_register(const cod_recipe_kind *kind);
const cod_recipe_kind *cod_recipe_find(const char *name);
/** The i-th registered kind, NULL past the last. */
const cod_recipe_kind *cod_recipe_at(size_t index);

/** `supervised`: one network, one loss. */
void cod_recipe_register_supervised(void);

#endif

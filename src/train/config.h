/**
 * @file
 * The configuration of a run: one YAML file and overrides, all sections, checked as a whole.
 */
#ifndef COD_TRAIN_CONFIG_H
#define COD_TRAIN_CONFIG_H

#include "comm/comm.h"
#include "config/config.h"
#include "core/device.h"
#include "data/degrade_options.h"
#include "nn/model.h"
#include "train/options.h"

struct cod_strategy_kind;
struct cod_recipe_kind;
struct cod_train_task_kind;

/** The model of a group, its device, and its number of ranks. */
typedef struct cod_group_config {
    int ranks;
    int device;                 /**< cod_device_kind */
    const char *device_setting; /**< option that sets the device, for messages */
    cod_model_options model;
    const cod_model_kind *kind;
    const void *architecture; /**< the chosen model's options, as configured until cod_run_config_fit() */
    void *configured;
} cod_group_config;

typedef struct cod_run_config {
    cod_config *config;
    cod_root_options root;
    cod_comm_options cluster;
    cod_data_options data;
    cod_degrade_options degradation;
    cod_train_options train;
    cod_eval_options eval;
    cod_checkpoint_options checkpoint;
    cod_log_options log;
    cod_compare_options compare;
    cod_config_table *sections; /**< [section_count] sections of all recipes and strategies, with this run's values */
    size_t section_count;
    const struct cod_recipe_kind *recipe;
    const struct cod_strategy_kind *strategy;
    const struct cod_train_task_kind
        *task;                /**< the task, with the figures that this run computes; see cod_train_task_of() */
    double max_time_s;        /**< 0 = none */
    cod_group_config whole;   /**< section `model`: for runs with one group, and for groups that do not name a model */
    cod_group_config *groups; /**< [group_count] the configured groups */
    size_t group_count;       /**< 0 = one group a node */
    int only_group; /**< index of this job's group if other groups are separate jobs; -1 = this job has all groups */
} cod_run_config;

/**
 * Loads and checks everything; all problems come in one message, and nothing is created on disk.
 *
 * @param[in]  path  of the YAML file; NULL = defaults and overrides
 * @param[out] out   new; cod_run_config_clear()
 */
COD_MUST_CHECK cod_status cod_run_config_load(const char *path, const char *const *overrides, size_t count,
                                              cod_run_config *out);

/** Loads the config.yaml that a run wrote, into whose folder others may have put something else since then. */
COD_MUST_CHECK cod_status cod_run_config_load_saved(const char *path, cod_run_config *out);

/**
 * Also checks that the files exist that training needs: pictures, initial weights, and a checkpoint if the run must
 * resume.
 */
COD_MUST_CHECK cod_status cod_run_config_load_to_train(const char *path, const char *const *overrides, size_t count,
                                                       cod_run_config *out);
void cod_run_config_clear(cod_run_config *run);

/**
 * Makes the job one group of the run.
 *
 * @return COD_ERR_ARGUMENT when the configuration, or `group`, does not allow it
 */
COD_MUST_CHECK cod_status cod_run_config_choose_group(cod_run_config *run, int group);

/** Number of ranks that the configuration asks for in this job; 0 = any number (one group for each node). */
int cod_run_config_ranks(const cod_run_config *run);

/** The group of a rank of the job; -1 if the nodes decide. */
int cod_run_config_group_of_rank(const cod_run_config *run, int rank);

/**
 * Sets sizes of all groups' classifiers that are configured as 0 to the data's; `architecture` then points to another
 * struct.
 */
COD_MUST_CHECK cod_status cod_run_config_fit(cod_run_config *run, const cod_classifier_sizes *data);

/**
 * This run's values of a section of its recipe or strategy.
 *
 * @return a struct of table->struct_bytes that lives as long as the configuration; NULL where neither has such a
 *   section
 */
const void *cod_run_config_section(const cod_run_config *run, const cod_option_table *table);

/** Whether all ranks train as one group, or there is one rank, because of the strategy. */
bool cod_run_config_is_one_group(const cod_run_config *run);

/** Number of ranks that are servers and do not train; they are the first of the job. */
int cod_run_config_servers(const cod_run_config *run);

/** Number of ranks over which the strategy divides one network; 1 = each rank has the whole network. */
int cod_run_config_stages(const cod_run_config *run);

/**
 * Whether the file or folder `path` of option `key` exists. If it does not, this becomes a problem of the
 * configuration; if `path` is in the folder `data`, where the files in configs/ have their data, the message names the
 * command that brings it.
 */
bool cod_run_config_has_file(const cod_run_config *run, const char *key, const char *path);

/** Configuration of group `index` of a run. */
const cod_group_config *cod_run_config_group(const cod_run_config *run, int index);

/** Which device the ranks of group `index` compute on. */
cod_device_choice cod_run_config_device(const cod_run_config *run, int index);

/** The run's folder, OUTPUT/NAME, in the configuration's arena. */
const char *cod_run_config_folder(const cod_run_config *run);

/**
 * Every option with its value, as YAML that can be loaded; `comments`: also with its help. @param[out] text new; free()
 */
COD_MUST_CHECK cod_status cod_run_config_resolved(cod_run_config *run, bool comments, char **text);

/** Which options count when two runs are compared. */
typedef enum cod_run_config_scope {
    /** Options that affect the result: all but the sections `checkpoint`, `log` and `compare`, train.max_time and the
     * run's folder. */
    COD_COMPARE_RESULT,
    COD_COMPARE_SHARED, /**< options on which groups that are separate jobs must agree */
} cod_run_config_scope;

/**
 * Compares a run with the one whose resolved configuration is at `path`.
 *
 * @param[out] difference  such as "train.steps: 20 there, 40 here, train.ema: 0 there, 0.9 here"; "" = none
 */
COD_MUST_CHECK cod_status cod_run_config_compare(cod_run_config *run, const char *path, cod_run_config_scope scope,
                                                 char difference[256]);

/** Lists every option, for docs/config.md and `codistill config`. @param[out] text new; free() */
COD_MUST_CHECK cod_status cod_run_config_document(cod_config_style style, char **text);

#endif

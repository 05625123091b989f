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

/** What a group trains, and on how many ranks. */
typedef struct cod_group_config {
    int ranks;
    int device;                 /**< cod_device_kind */
    const char *device_setting; /**< where the configuration says it, for messages */
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
    cod_config_table *sections; /**< [section_count] those of all recipes and strategies, with this run's values */
    size_t section_count;
    const struct cod_recipe_kind *recipe;
    const struct cod_strategy_kind *strategy;
    const struct cod_train_task_kind *task; /**< with the figures that this run computes; see cod_train_task_of() */
    double max_time_s;                      /**< 0 = none */
    cod_group_config
        whole; /**< section `model`: of runs with one group, and of groups that name no model of their own */
    cod_group_config *groups; /**< [group_count] those asked for */
    size_t group_count;       /**< 0 = one group a node */
    int only_group; /**< the one that this job is, where the others are jobs of their own; -1 = all are here */
} cod_run_config;

/**
 * Loads and checks everything; all problems come in one message, and nothing is created on disk.
 *
 * @param[in]  path  of the YAML file; NULL = defaults and overrides
 * @param[out] out   new; cod_run_config_clear()
 */
COD_MUST_CHECK cod_status cod_run_config_load(const char *path, const char *const *overrides, size_t count,
                                              cod_run_config *out);

/** The same, and what it names must be there: pictures, initial weights, a checkpoint where one is asked for. */
COD_MUST_CHECK cod_status cod_run_config_load_to_train(const char *path, const char *const *overrides, size_t count,
                                                       cod_run_config *out);
void cod_run_config_clear(cod_run_config *run);

/** Makes the job one group of the run. @return COD_ERR_ARGUMENT when the configuration, or `group`, does not allow it */
COD_MUST_CHECK cod_status cod_run_config_choose_group(cod_run_config *run, int group);

/** Ranks that the configuration asks for in this job; 0 = as many as there are (one group a node). */
int cod_run_config_ranks(const cod_run_config *run);

/** The group that a rank of the job belongs to; -1 where nodes decide. */
int cod_run_config_group_of_rank(const cod_run_config *run, int rank);

/** Gives the classifiers of all groups the data's sizes where they are configured as 0; `architecture` is then another struct. */
COD_MUST_CHECK cod_status cod_run_config_fit(cod_run_config *run, const cod_classifier_sizes *data);

/**
 * This run's values of a section of its recipe or strategy.
 *
 * @return a struct of table->struct_bytes that lives as long as the configuration; NULL where neither has such a section
 */
const void *cod_run_config_section(const cod_run_config *run, const cod_option_table *table);

/** Whether the strategy makes all ranks one group, or is of one rank, whatever groups are configured. */
bool cod_run_config_is_one_group(const cod_run_config *run);

/** How many ranks, the first of the job, serve and do not train. */
int cod_run_config_servers(const cod_run_config *run);

/** Over how many ranks the strategy splits one network; 1 = it is whole on each. */
int cod_run_config_stages(const cod_run_config *run);

/**
 * Whether there is the file or folder `path` that the option `key` names. Where not, that is added to the configuration's problems, with
 * the command that brings it where `path` is in the folder `data`, which configs/ have their data in.
 */
bool cod_run_config_has_file(const cod_run_config *run, const char *key, const char *path);

/** What group `index` of a run trains. */
const cod_group_config *cod_run_config_group(const cod_run_config *run, int index);

/** Which device the ranks of group `index` compute on. */
cod_device_choice cod_run_config_device(const cod_run_config *run, int index);

/** The run's folder, OUTPUT/NAME, in the configuration's arena. */
const char *cod_run_config_folder(const cod_run_config *run);

/** Every option with its value, as YAML that loads again; `comments`: also what it is. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_run_config_resolved(cod_run_config *run, bool comments, char **text);

/** Which options count when two runs are compared. */
typedef enum cod_run_config_scope {
    COD_COMPARE_RESULT, /**< what bears on the result: not sections `checkpoint`, `log` and `compare`, train.max_time, the folder */
    COD_COMPARE_SHARED, /**< what groups that are jobs of their own must agree on to understand each other */
} cod_run_config_scope;

/**
 * Compares a run with the one whose resolved configuration is at `path`.
 *
 * @param[out] difference  such as "train.steps: 20 there, 40 here"; "" = none
 */
COD_MUST_CHECK cod_status cod_run_config_compare(cod_run_config *run, const char *path, cod_run_config_scope scope,
                                                 char difference[256]);

/** Every option there is, for docs/config.md and `codistill config`. @param[out] text  new; free() */
COD_MUST_CHECK cod_status cod_run_config_document(cod_config_style style, char **text);

#endif

/**
 * @file
 * The parts of `codistill compare`: its arms, the runs that they make, and what is read from the folders of these.
 *
 * An *arm* is one way to train the configuration: a strategy and overrides. Each arm is trained once for each seed and link
 * rate; one such training is a *run*, a process of `codistill train` with a folder of its own.
 */
#ifndef COD_TOOLS_COMPARE_H
#define COD_TOOLS_COMPARE_H

#include "io/json.h"
#include "tools/arguments.h"
#include "train/config.h"
#include "train/metrics.h"
#include "train/strategy.h"

enum { COMPARE_MAX_RUNS = 4096, COMPARE_PATH = 4096, COMPARE_MESSAGE = 1024 };

/** Rows of the report. */
typedef struct compare_arm {
    const char *name;
    const cod_strategy_kind *kind;
    const char **set; /**< [set_count] "key.path=value" */
    size_t set_count;
    const cod_config_node *node; /**< for messages; NULL = it was not in the file */
    bool own_steps;              /**< it sets train.steps, which then is not of the budget */
    /* Of its configuration: */
    int64_t steps, samples_per_step;
    int groups, ranks;
    int hosts, slots; /**< of the laboratory: groups as configured and ranks of each; slots 0 = they are unequal */
    /** Share of the bytes counted inside a group that go from one configured group to another: on this machine, between hosts. */
    double crossing, crossing_hosts;
    char note[256]; /**< why its budget is not that of the others; "" = it is */
} compare_arm;

typedef enum compare_state { COMPARE_MISSING, COMPARE_FINISHED, COMPARE_FAILED } compare_state;

typedef struct compare_run {
    size_t arm, rate;
    int64_t seed, steps; /**< steps 0 = not yet known */
    bool pilot;          /**< only measures what a step needs */
    double max_time_s;   /**< of a pilot; 0 = none */
    char name[256];
    const struct compare_run
        *same; /**< of one rank alone, which no link concerns: the run that is trained; else NULL */
    compare_state state;
    char message[COMPARE_MESSAGE]; /**< FAILED: why */
    cod_json_value *summary;       /**< FINISHED */
} compare_run;

typedef struct comparison {
    cod_config_arguments arguments;
    cod_run_config config;
    const cod_train_task_kind *task;
    char *config_text; /**< resolved */
    compare_arm *arms;
    size_t arm_count, arm_capacity, baseline;
    const int64_t *seeds;
    const char *const *rates; /**< [rate_count] "none" or a link's rate */
    size_t seed_count, rate_count;
    compare_run *runs; /**< [run_count], in the order in which they are trained: rates, seeds, arms */
    size_t run_count;
    double budget; /**< as found for the first rate: steps, samples, seconds or bytes */
} comparison;

/** compare_arms.c: reads the section, and what the command line has in its place; all problems come in one message. */
COD_MUST_CHECK cod_status compare_read(comparison *c, const char *strategies, const char *seeds);

/** compare_process.c: hands signals on from now on. */
void compare_catch_signals(void);
/** Whether a signal has asked to stop. */
bool compare_is_asked(void);
/** The configuration of a run. @param[out] config  new; cod_run_config_clear() */
COD_MUST_CHECK cod_status compare_load(const comparison *c, const compare_run *run, cod_run_config *config);
void compare_run_path(const comparison *c, const compare_run *run, const char *file, char path[COMPARE_PATH]);
/** Finds whether the run is done already. @return COD_ERR_ARGUMENT when its folder is of another configuration */
COD_MUST_CHECK cod_status compare_look_at(const comparison *c, compare_run *run);
/**
 * Trains, in a process of its own; run->state says how that ended.
 * @return COD_ERR_INTERRUPTED where it was asked to stop, or its time was up, before the last step
 */
COD_MUST_CHECK cod_status compare_train(const comparison *c, compare_run *run);
/** The failure that says how far a run is. */
cod_status compare_stopped(const comparison *c, const compare_run *run);
COD_MUST_CHECK cod_status compare_read_summary(const comparison *c, compare_run *run);

/** Whether a run's ranks lie on hosts of a laboratory. */
bool compare_is_in_laboratory(const comparison *c, const compare_run *run);

/** compare_budget.c: decides run->steps; may train a pilot for it. A run that cannot be given any is FAILED. */
COD_MUST_CHECK cod_status compare_decide_steps(comparison *c, compare_run *run);
/** For people: "1000 steps each". */
void compare_describe_budget(const comparison *c, char *text, size_t bytes);

/** compare_traffic.c: what crosses from one configured group to another where the strategy makes all ranks one group. */
void compare_describe_traffic(const cod_run_config *config, compare_arm *arm);
double compare_crossing(const comparison *c, const compare_run *run);
/** Bytes of a finished run, of all ranks. */
double compare_between_bytes(const comparison *c, const compare_run *run);
double compare_inside_bytes(const comparison *c, const compare_run *run);

/** An arm's first run that is finished; NULL = none is. */
const compare_run *compare_finished_run(const comparison *c, size_t arm);
/** A number of a finished run's summary; NaN = it is not there. */
double compare_number(const compare_run *run, const char *key);
/** The same of a group's part. */
double compare_group_number(const compare_run *run, int group, const char *key);
/** Groups that a finished run had. */
int compare_groups(const compare_run *run);
/** The mean of all groups' own; NaN when one is not known. */
double compare_mean_of_groups(const compare_run *run, const char *key);
/** Key, in summary.json, of the figure that arms are judged by: on test data where there are any, else on held-out ones. */
void compare_metric_key(const comparison *c, char key[64]);

/** compare_predictions.c: "disagreement" and "reliability" of a run, "churn" of all; nothing where no predictions are. */
COD_MUST_CHECK cod_status compare_write_disagreement(const comparison *c, const compare_run *run, cod_json *json);
COD_MUST_CHECK cod_status compare_write_reliability(const comparison *c, const compare_run *run, cod_json *json);
COD_MUST_CHECK cod_status compare_write_churn(const comparison *c, cod_json *json);

/** compare_crops.c: "crops": the same parts of held-out pictures by every arm, PNG files in FOLDER/crops. */
COD_MUST_CHECK cod_status compare_write_crops(const comparison *c, const char *folder, cod_json *json);

/** compare_json.c: FOLDER/compare.json, all that is known (docs/compare.md). */
COD_MUST_CHECK cod_status compare_write_json(const comparison *c, const char *folder);

/** compare_table.c: runs, and arms over their runs, on standard output. */
void compare_print_table(const comparison *c);

#endif

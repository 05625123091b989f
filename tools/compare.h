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

/** One of compare.tune: what all arms try. */
typedef struct compare_candidate {
    const char **set; /**< [set_count] "key.path=value" */
    size_t set_count;
    const cod_config_node *node; /**< for messages */
} compare_candidate;

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
    char note[256];                  /**< why its budget is not that of the others; "" = it is */
    struct compare_trial *trials;    /**< [candidate_count]; NULL = nothing is tuned */
    const compare_candidate *chosen; /**< what its runs train with; NULL = none is chosen, or not yet */
} compare_arm;

typedef enum compare_state { COMPARE_MISSING, COMPARE_FINISHED, COMPARE_FAILED } compare_state;
extern const char *const compare_state_names[]; /**< in compare.json */

typedef struct compare_run {
    size_t arm, rate;
    int64_t seed, steps;                /**< steps 0 = not yet known */
    bool pilot;                         /**< only measures what a step needs */
    double max_time_s;                  /**< of a pilot; 0 = none */
    const compare_candidate *candidate; /**< what a run of tuning tries; NULL = it is none */
    char name[256];
    const struct compare_run
        *same; /**< of one rank alone, which no link concerns: the run that is trained; else NULL */
    compare_state state;
    char message[COMPARE_MESSAGE]; /**< FAILED: why */
    cod_json_value *summary;       /**< FINISHED */
} compare_run;

/** A candidate trained in an arm. */
typedef struct compare_trial {
    compare_run run; /**< `same`: the trial that differs from it in nothing, since the arm sets the rest itself */
    double quality;  /**< on held-out data at the end, mean over the groups; NaN = not known */
} compare_trial;

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
    compare_candidate *candidates; /**< [candidate_count] of compare.tune */
    size_t candidate_count;
    compare_run *runs; /**< [run_count], in the order in which they are trained: rates, seeds, arms */
    size_t run_count;
    double budget; /**< as found for the first rate: steps, samples, seconds or bytes */
} comparison;

/** compare_arms.c: reads the section, and what the command line has in its place; all problems come in one message. */
COD_MUST_CHECK cod_status compare_read(comparison *c, const char *strategies, const char *seeds);
/** Who sets something: an arm, or a candidate of tuning, which leaves data, ranks and budget alone too. */
typedef enum compare_setter { COMPARE_ARM_SETS, COMPARE_CANDIDATE_SETS } compare_setter;
/** The "key.path=value" at `node`, a list or one text. @param[out] set  [count] in the configuration's arena */
COD_MUST_CHECK cod_status compare_read_set(comparison *c, const cod_config_node *node, compare_setter setter,
                                           const char ***set, size_t *count);

/** Finds out again what an arm's configuration makes of it, once something was chosen. */
COD_MUST_CHECK cod_status compare_describe_arm(comparison *c, size_t arm);

/** compare_tune.c: reads compare.tune; problems are kept for compare_read(), which has the seeds by then. */
COD_MUST_CHECK cod_status compare_read_tune(comparison *c);
/**
 * Trains each arm with each candidate and chooses by the quality on held-out data; runs of an arm that none can be
 * chosen for are FAILED.
 * @return COD_ERR_INTERRUPTED when it was asked to stop
 */
COD_MUST_CHECK cod_status compare_tune(comparison *c);
/** Whether one of the keys, which end at '=', is the other or lies below it. */
bool compare_overlap(const char *a, const char *b);
/** Whether the arm itself sets what `text`, a "key.path=value" of a candidate, sets: then the arm's counts. */
bool compare_is_own(const compare_arm *arm, const char *text);

/** compare_tuned.c: "train.rate=1e-3 train.warmup=10", what of a candidate holds in an arm. */
void compare_describe_candidate(const compare_arm *arm, const compare_candidate *candidate, char *text, size_t bytes);
/** "tuning" of all arms, "tuned" of an arm; nothing where nothing is tuned. */
void compare_write_tuning(const comparison *c, cod_json *json);
void compare_write_tuned(const comparison *c, const compare_arm *arm, cod_json *json);
/** What was tried and chosen, on standard output. */
void compare_print_tuned(const comparison *c);

/** compare_process.c: hands signals on from now on. */
void compare_catch_signals(void);
/** Whether a signal has asked to stop. */
bool compare_is_asked(void);
/** The configuration of a run. @param[out] config  new; cod_run_config_clear() */
COD_MUST_CHECK cod_status compare_load(const comparison *c, const compare_run *run, cod_run_config *config);
void compare_run_path(const comparison *c, const compare_run *run, const char *file, char path[COMPARE_PATH]);
/** How a run's folder differs from its configuration; "" = not, or there is none yet. */
COD_MUST_CHECK cod_status compare_find_difference(const comparison *c, const compare_run *run, char difference[256]);
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

/** For people: "accuracy on the held-out images". */
void compare_describe_figure(const comparison *c, bool test, char text[128]);

/** compare_json.c: FOLDER/compare.json, all that is known (docs/compare.md). */
COD_MUST_CHECK cod_status compare_write_json(const comparison *c, const char *folder);

/** compare_table.c: runs, and arms over their runs, on standard output. */
void compare_print_table(const comparison *c);

#endif

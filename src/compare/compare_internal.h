/** What the parts of a comparison share: its arms, their runs, and the results read from the runs' folders. */
#ifndef COD_COMPARE_COMPARE_INTERNAL_H
#define COD_COMPARE_COMPARE_INTERNAL_H

#include "compare/compare.h"
#include "io/json.h"
#include "train/config.h"
#include "train/metrics.h"
#include "train/strategy.h"

enum { COD_COMPARE_MAX_RUNS = 4096 };

/** A candidate of compare.tune, which all arms try. */
typedef struct cod_compare_candidate {
    const char **set; /**< [set_count] "key.path=value" */
    size_t set_count;
    const cod_config_node *node; /**< for messages */
} cod_compare_candidate;

/** An arm: a row of the report. */
typedef struct cod_compare_arm {
    const char *name;
    const cod_strategy_kind *kind;
    const char **set; /**< [set_count] "key.path=value" */
    size_t set_count;
    const cod_config_node *node; /**< for messages; NULL = the arm was not in the file */
    bool own_steps;              /**< it sets train.steps itself, and the budget does not */
    /* From its configuration: */
    int64_t steps, samples_per_step;
    int groups, ranks;
    int hosts,
        slots; /**< in the laboratory: the configured groups, and the ranks of each; slots 0 = groups are unequal */
    /**
     * Share of the bytes counted inside a group that go from one configured group to another: on this machine, and
     * between the hosts of the laboratory.
     */
    double crossing, crossing_hosts;
    char note[256];                      /**< why its budget differs from that of the other arms; "" = it does not */
    struct cod_compare_trial *trials;    /**< [candidate_count]; NULL = no tuning */
    const cod_compare_candidate *chosen; /**< the candidate that its runs use; NULL = none is chosen, or not yet */
} cod_compare_arm;

typedef enum cod_compare_state { COD_COMPARE_MISSING, COD_COMPARE_FINISHED, COD_COMPARE_FAILED } cod_compare_state;
extern const char *const cod_compare_state_names[]; /**< in compare.json */

typedef struct cod_compare_run {
    size_t arm, rate;
    int64_t seed, steps;                    /**< steps 0 = not yet known */
    bool pilot;                             /**< the run only measures what a step costs */
    double max_time_s;                      /**< of a pilot; 0 = none */
    const cod_compare_candidate *candidate; /**< the candidate that a run of tuning tries; NULL = not a run of tuning */
    char name[256];
    /** for a run of one rank, which needs no link: the run that is trained in its place; else NULL */
    const struct cod_compare_run *same;
    cod_compare_state state;
    char message[COD_COMPARE_MESSAGE]; /**< FAILED: why */
    cod_json_value *summary;           /**< FINISHED */
} cod_compare_run;

/** A candidate trained in an arm. */
typedef struct cod_compare_trial {
    cod_compare_run run; /**< `same`: an equal trial, because the arm itself sets what differs */
    double quality;      /**< on held-out data at the end, mean over the groups; NaN = not known */
} cod_compare_trial;

struct cod_comparison {
    const cod_compare_arguments *arguments;
    const cod_compare_host *host;
    cod_run_config config;
    const cod_train_task_kind *task;
    char *config_text; /**< resolved */
    cod_compare_arm *arms;
    size_t arm_count, arm_capacity, baseline;
    const int64_t *seeds;
    const char *const *rates; /**< [rate_count] "none" or a link's rate */
    size_t seed_count, rate_count;
    cod_compare_candidate *candidates; /**< [candidate_count] of compare.tune */
    size_t candidate_count;
    cod_compare_run *runs; /**< [run_count], in the order in which they are trained: rates, seeds, arms */
    size_t run_count;
    double budget;    /**< as measured for the first rate: steps, samples, seconds or bytes */
    double trained_s; /**< wall seconds of the runs that this process has trained */
    size_t trained;   /**< number of them */
};

/* The parts, each of which calls only those above it. */

/** results.c: path of a file in a run's folder; of the folder itself where `file` is "". */
void cod_compare_run_path(const cod_comparison *c, const cod_compare_run *run, const char *file,
                          char path[COD_COMPARE_PATH]);
/** An arm's first run that is finished; NULL = none is. */
const cod_compare_run *cod_compare_finished_run(const cod_comparison *c, size_t arm);
/** A number of a finished run's summary; NaN = it is not there. */
double cod_compare_number(const cod_compare_run *run, const char *key);
/** The same for one group. */
double cod_compare_group_number(const cod_compare_run *run, int group, const char *key);
/** Groups that a finished run had. */
int cod_compare_groups(const cod_compare_run *run);
/** The mean of all groups' numbers; NaN if one is unknown. */
double cod_compare_mean_of_groups(const cod_compare_run *run, const char *key);
/**
 * Key, in summary.json, of the figure that arms are judged by: on test data if there are any, otherwise on validation
 * data.
 */
void cod_compare_metric_key(const cod_comparison *c, char key[64]);
/** For people: "accuracy on the held-out images". */
void cod_compare_describe_figure(const cod_comparison *c, bool test, char text[128]);

/** Who sets an option: an arm, or a candidate of tuning, which additionally must not set data, ranks or budget. */
typedef enum cod_compare_setter { COD_COMPARE_ARM_SETS, COD_COMPARE_CANDIDATE_SETS } cod_compare_setter;
/**
 * settings.c: the "key.path=value" at `node`, a list or one text.
 *
 * @param[out] set  [count] in the configuration's arena
 */
COD_MUST_CHECK cod_status cod_compare_read_set(cod_comparison *c, const cod_config_node *node,
                                               cod_compare_setter setter, const char ***set, size_t *count);
/** Reads compare.tune; problems are kept for cod_compare_read(), which has the seeds by then. */
COD_MUST_CHECK cod_status cod_compare_read_tune(cod_comparison *c);
/** Whether one of the keys, which end at '=', equals the other or lies below it. */
bool cod_compare_overlap(const char *a, const char *b);
/** Whether the arm itself sets the key of `text`, a "key.path=value" of a candidate: the arm's value then counts. */
bool cod_compare_is_own(const cod_compare_arm *arm, const char *text);
/** The settings of a candidate that take effect in an arm, such as "train.rate=1e-3 train.warmup=10". */
void cod_compare_describe_candidate(const cod_compare_arm *arm, const cod_compare_candidate *candidate, char *text,
                                    size_t bytes);

/** run.c: shows a line about the progress. */
void cod_compare_say(const cod_comparison *c, const char *fmt, ...) COD_PRINTF(2, 3);
/** Why no run of a comparison may end early. */
extern const char cod_compare_no_patience[];
/** The configuration of a run. @param[out] config  new; cod_run_config_clear() */
COD_MUST_CHECK cod_status cod_compare_load(const cod_comparison *c, const cod_compare_run *run, cod_run_config *config);
/** How a run's folder differs from its configuration; "" = it does not, or there is no folder yet. */
COD_MUST_CHECK cod_status cod_compare_find_difference(const cod_comparison *c, const cod_compare_run *run,
                                                      char difference[256]);
/** Finds out whether the run is finished already. @return COD_ERR_ARGUMENT if its folder has another configuration */
COD_MUST_CHECK cod_status cod_compare_look_at(const cod_comparison *c, cod_compare_run *run);
/**
 * Trains a run in a separate process; run->state says how that ended.
 * @return COD_ERR_INTERRUPTED if it was asked to stop, or its time was up, before the last step
 */
COD_MUST_CHECK cod_status cod_compare_train(const cod_comparison *c, cod_compare_run *run);
/** Fails with a message that says how far a run has come. */
cod_status cod_compare_stopped(const cod_comparison *c, const cod_compare_run *run);
COD_MUST_CHECK cod_status cod_compare_read_summary(const cod_comparison *c, cod_compare_run *run);
/** Whether a run's ranks lie on hosts of a laboratory. */
bool cod_compare_is_in_laboratory(const cod_comparison *c, const cod_compare_run *run);

/** traffic.c: bytes that cross from one configured group to another if the strategy makes all ranks one group. */
void cod_compare_describe_traffic(const cod_run_config *config, cod_compare_arm *arm);
double cod_compare_crossing(const cod_comparison *c, const cod_compare_run *run);
/** Bytes of a finished run, of all ranks. */
double cod_compare_between_bytes(const cod_comparison *c, const cod_compare_run *run);
double cod_compare_inside_bytes(const cod_comparison *c, const cod_compare_run *run);

/** arms.c: reads the section and the arguments that override it; all problems come in one message. */
COD_MUST_CHECK cod_status cod_compare_read(cod_comparison *c);
/** Reads an arm's configuration again after tuning has chosen a candidate. */
COD_MUST_CHECK cod_status cod_compare_describe_arm(cod_comparison *c, size_t arm);

/**
 * budget.c: decides run->steps and may train a pilot run for that. If the steps cannot be decided, the run is FAILED.
 */
COD_MUST_CHECK cod_status cod_compare_decide_steps(cod_comparison *c, cod_compare_run *run);
/** For people: "1000 steps each". */
void cod_compare_describe_budget(const cod_comparison *c, char *text, size_t bytes);
/** Writes "asked", what the user asked for: compare.budget_value, or the arm and the steps that are measured. */
void cod_compare_write_asked(const cod_comparison *c, cod_json *json);
/** Whether an earlier comparison's "budget" was asked for in the same way; how much was measured may differ. */
bool cod_compare_is_same_budget(const cod_comparison *c, const cod_json_value *earlier);

/**
 * tune.c: trains each arm with each candidate and chooses the best one on validation data. If none can be chosen for an
 * arm, its runs are FAILED.
 * @return COD_ERR_INTERRUPTED when it was asked to stop
 */
COD_MUST_CHECK cod_status cod_compare_tune(cod_comparison *c);

/** tuned.c: writes "tuning" for all arms and "tuned" for one arm; writes nothing if there is no tuning. */
void cod_compare_write_tuning(const cod_comparison *c, cod_json *json);
void cod_compare_write_tuned(const cod_comparison *c, const cod_compare_arm *arm, cod_json *json);
/** Prints the tried and the chosen candidates. */
void cod_compare_print_tuned(const cod_comparison *c, FILE *out);

/**
 * predictions.c: writes "disagreement" and "reliability" of a run and "churn" of all runs; writes nothing if there are
 * no predictions.
 */
COD_MUST_CHECK cod_status cod_compare_write_disagreement(const cod_comparison *c, const cod_compare_run *run,
                                                         cod_json *json);
COD_MUST_CHECK cod_status cod_compare_write_reliability(const cod_comparison *c, const cod_compare_run *run,
                                                        cod_json *json);
COD_MUST_CHECK cod_status cod_compare_write_churn(const cod_comparison *c, cod_json *json);

/**
 * crops.c: writes "crops": the same parts of validation pictures as every arm makes them, as PNG files in FOLDER/crops.
 */
COD_MUST_CHECK cod_status cod_compare_write_crops(const cod_comparison *c, const char *folder, cod_json *json);

/**
 * earlier.c: compare.json as an earlier comparison left it, if some of its finished runs are none of this one's and
 * compare with them. If they do not, it gets another name.
 *
 * @param[out] out  new; cod_json_free(); NULL = nothing of it stays
 */
COD_MUST_CHECK cod_status cod_compare_read_earlier(const cod_comparison *c, const char *folder, cod_json_value **out);
/** Writes the runs of an arm that stay, and the arms that this comparison does not have; `earlier` may be NULL. */
void cod_compare_write_earlier_runs(const cod_comparison *c, size_t arm, const cod_json_value *earlier, cod_json *json);
void cod_compare_write_earlier_arms(const cod_comparison *c, const cod_json_value *earlier, cod_json *json);

/** csv.c: writes FOLDER/compare.csv, a line for each run. @param comparison  the text of compare.json */
COD_MUST_CHECK cod_status cod_compare_write_csv(const char *folder, const char *comparison);

/** json.c: writes FOLDER/compare.json (docs/compare.md) and FOLDER/compare.csv. */
COD_MUST_CHECK cod_status cod_compare_write_json(const cod_comparison *c, const char *folder);

/** table.c: prints the runs, and the arms averaged over their runs. */
void cod_compare_print_table(const cod_comparison *c, FILE *out);

#endif

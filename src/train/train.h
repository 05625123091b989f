/**
 * @file
 * Training: one call runs a configured job on this rank, from set-up to the final model and summary.
 */
#ifndef COD_TRAIN_TRAIN_H
#define COD_TRAIN_TRAIN_H

#include "data/identity.h"
#include "train/metrics.h"
#include "train/strategy.h"

#include <stdatomic.h>

/** Content of a progress line; reported by the first rank of each group. */
typedef struct cod_train_progress {
    int group, groups;
    bool between; /**< no line of metrics belongs to this report; between_s asked for it */
    int64_t steps;
    double eta_s;
    const cod_metrics_line *line;
} cod_train_progress;

typedef void (*cod_train_report)(void *context, const cod_train_progress *progress);

/** How far a run has come. */
typedef enum cod_train_stage {
    COD_TRAIN_OPENED, /**< the run's folder is this job's */
    COD_TRAIN_BEGINS, /**< it is set up, and its steps begin; does not come for a run that has finished before */
} cod_train_stage;

/** Where a rank belongs. */
typedef struct cod_train_place {
    int group, groups;
    bool leads; /**< it is its group's first rank */
} cod_train_place;

/** Called on every rank, on the thread that trains. */
typedef void (*cod_train_follow)(void *context, cod_train_stage stage, const cod_train_place *place);

typedef enum cod_train_ending {
    COD_TRAIN_FINISHED, /**< all steps are done, final.safetensors is written */
    COD_TRAIN_STOPPED,  /**< a signal or max_time came; the state is saved, and a resume goes on */
} cod_train_ending;

typedef struct cod_train_request {
    cod_run_config *config;
    cod_comm *comm;
    cod_train_report report; /**< may be NULL */
    void *report_context;
    cod_train_follow follow; /**< may be NULL */
    void *follow_context;
    /** also report when the last report is this old, for a terminal; 0 = only with lines of metrics */
    double between_s;
    const atomic_int *stop_signal; /**< nonzero: save and end; set by a signal handler or any thread; may be NULL */
    const char *version;           /**< of the program, for summary.json */
    /**
     * Ends the process and does not return. Called by a separate thread when the run was asked to end but this rank
     * waits for a file that does not answer (checkpoint.write_timeout_s), or has not done a step a few seconds later.
     * NULL = the run keeps waiting.
     *
     * @param why  a failure whose message is the calling thread's cod_error_message()
     */
    void (*give_up)(void *context, cod_status why);
    void *give_up_context;
} cod_train_request;

/**
 * Trains. Collective on all ranks of the job.
 *
 * @param[out] ending   how it ended, where the status is COD_OK; COD_TRAIN_FINISHED beside COD_ERR_INTERRUPTED: all is
 *                      written, but a rank that hangs did not come to the end
 * @return the agreed failure of this rank's group. If only one rank prints it, that is the rank that did not fail with
 *         COD_ERR_PEER
 */
COD_MUST_CHECK cod_status cod_train_run(const cod_train_request *request, cod_train_ending *ending);

/** Step of the newest sound checkpoint of a group before step `before`; -1 = none. */
int64_t cod_train_last_checkpoint(const cod_run_config *config, int group, int64_t before);

/**
 * Says what changed in a group's data since they were listed in its run's folder.
 *
 * @param path         data.G.tsv, the list
 * @param then         key that the list must have (cod_data_list_key()): otherwise it is of other data
 * @param now          cod_data_list_files() of today's data
 * @param[out] change  cod_data_list_compare(); "" where there is no list with this key
 */
void cod_train_data_change(const char *path, const char *then, const char *now, char change[COD_DATA_CHANGE_BYTES]);

/** For messages: "the last good checkpoint is of step 40", for a group (-1 = unknown) and steps before `before`. */
void cod_train_describe_checkpoint(const cod_run_config *config, int group, int64_t before, char out[80]);

#endif

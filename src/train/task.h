/**
 * @file
 * The task of a run: its data, and how to measure a model. The model's kind says which task it is; the trainer calls
 * these hooks and knows no task by name.
 */
#ifndef COD_TRAIN_TASK_H
#define COD_TRAIN_TASK_H

#include "data/placement.h"
#include "data/samples.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "train/config.h"
#include "train/strategy.h"

enum { COD_TASK_MAX_FIGURES = 16, COD_TASK_METADATA = 1 };

/** One figure of a model's quality. */
typedef struct cod_task_figure {
    const char *key;          /**< in metrics and summary.json: "psnr_y" */
    const char *label, *unit; /**< for people: "psnr", "dB"; no unit is "" */
    int digits;               /**< digits after the decimal point, for people */
    bool less_is_better;
    const char *baseline; /**< key of the trivial baseline's figure, "bicubic_psnr_y"; NULL = not measured */
} cod_task_figure;

/** Text between a figure's value and its unit: "26.31 dB", "90.2%". */
static inline const char *cod_task_figure_gap(const cod_task_figure *figure)
{
    return figure->unit[0] == '\0' || figure->unit[0] == '%' ? "" : " ";
}

/** Values of a task's figures, in its order; NaN = not known. */
typedef struct cod_task_quality {
    double values[COD_TASK_MAX_FIGURES];
} cod_task_quality;

/** A model's quality on the held-out data and on each of data.val_sets. */
typedef struct cod_task_results {
    cod_task_quality held_out, sets[COD_DATA_MAX_SETS];
} cod_task_results;

/** What to evaluate. */
typedef struct cod_task_evaluation {
    cod_split split;
    size_t set;         /**< 1, 2, …: that of data.val_sets in place of the split; 0 = the split */
    int64_t limit;      /**< items; 0 = all */
    int64_t shown;      /**< number of these whose results go to samples/, if the task has pictures */
    const char *folder; /**< of the run */
    int group;
    int64_t step;
    cod_metrics *metrics; /**< receives the samples; may be NULL */
    bool predictions;     /**< also keep the predictions of each example (predictions.h); classification only */
} cod_task_evaluation;

typedef struct cod_train_task cod_train_task;

typedef struct cod_train_task_kind {
    cod_task task;
    /** [figure_count]; the first decides which of two models is better */
    cod_task_figure figures[COD_TASK_MAX_FIGURES];
    int figure_count;
    const char *baseline;  /**< name of the trivial baseline: "bicubic" */
    const char *items;     /**< name of the data's items: "pictures" */
    cod_loss_kind loss;    /**< of train.loss: auto */
    cod_loss_kind distill; /**< of distill.loss: auto */
    double distill_weight; /**< of distill.weight: auto */
    int64_t eval_items;    /**< items to validate on during training if eval.images is 0; 0 = all */
    /**
     * Opens the data, and gives the configured models the sizes that only the data determine, such as the number of
     * classes. Local.
     */
    cod_status (*open)(cod_run_config *config, const cod_dataset_place *place, cod_train_task **out);
    /**
     * Opens data.val_sets, which only a group's first rank evaluates. Local.
     *
     * @param report  also log what is left out
     */
    cod_status (*open_sets)(cod_train_task *task, const cod_run_config *config, bool report);
    /** Prepares to evaluate a model with `weights`, which are read at each call of evaluate(); both are borrowed. */
    cod_status (*attach)(cod_train_task *task, const cod_model *model, cod_weights *weights, cod_dtype activation);
    cod_status (*evaluate)(cod_train_task *task, const cod_task_evaluation *what, cod_task_quality *mean);
    /**
     * The baseline's figures, NaN where they have no key, on the split's first `limit` items (0 = all); after attach().
     */
    cod_status (*measure_baseline)(cod_train_task *task, cod_split split, int64_t limit, cod_task_quality *mean);
    /**
     * Writes what the model file `model` makes of a few held-out items to FOLDER/crops, and "crops" (infer/closeup.h);
     * NULL = items are no pictures; after attach().
     */
    cod_status (*show)(cod_train_task *task, const char *model, const char *folder, cod_json *json);
    void (*close)(cod_train_task *task);
} cod_train_task_kind;

/** One of data.val_sets. */
typedef struct cod_task_set {
    char name[COD_DATA_SET_NAME];
    size_t size;
} cod_task_set;

/** Implementations put this first in their own struct; open() fills it, open_sets() the sets. */
struct cod_train_task {
    const cod_train_task_kind *kind;
    cod_samples samples;                     /**< what this group trains on */
    size_t sizes[COD_SPLITS];                /**< items of each split; training: this group's */
    size_t broken, unfit;                    /**< items left out: unreadable, too small */
    uint64_t held_out_key;                   /**< hash of which of the data's items are not trained on */
    cod_st_text metadata[COD_TASK_METADATA]; /**< goes into model files */
    size_t metadata_count;
    float *priors; /**< [groups, classes] as cod_train_session has them */
    cod_task_set sets[COD_DATA_MAX_SETS];
    size_t set_count; /**< 0 on ranks that are no group's first */
    size_t judge;     /**< set by which models are compared, from 1; 0 = the held-out data */
};

/** The kind of a task, with all of its figures. The kind of a run is cod_run_config.task. */
const cod_train_task_kind *cod_train_task_find(cod_task task);

/**
 * The task of a run: it has the figures of eval.metrics and eval.best, with that of eval.best first. Mistakes in these
 * options become problems of the configuration. To be called when the model is known.
 *
 * @return in the configuration's arena
 */
const cod_train_task_kind *cod_train_task_of(cod_run_config *config);

/** Compares the first figures: above zero if `a` is better than `b`. Unknown quality is the worst. */
double cod_task_compare(const cod_train_task_kind *kind, const cod_task_quality *a, const cod_task_quality *b);
/** All figures NaN. */
cod_task_quality cod_task_quality_unknown(void);
cod_task_results cod_task_results_unknown(void);
/** The quality by which models are compared: of the set in eval.best_set, or of the held-out data. */
const cod_task_quality *cod_task_judged(const cod_train_task *task, const cod_task_results *results);
/** "psnr_y.set5": key of a figure of set `set`, from 1; 0 = the held-out data, "psnr_y". */
void cod_task_set_key(const cod_train_task *task, size_t set, int figure, char key[64]);
/** Path of set `set`, from 0, whose name is entered in the task. */
const char *cod_task_begin_set(cod_train_task *task, const cod_run_config *config, size_t set);
/** Begins the message of a failure to open a set. */
cod_status cod_task_fail_set(const cod_train_task *task, size_t set, cod_status status);

/** The configured task loss of a model; `auto` is the task's own. */
cod_loss_spec cod_train_loss(const cod_run_config *config, cod_task task);

#endif

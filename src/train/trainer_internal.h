/**
 * @file
 * One rank's run: what set-up makes and the step loop uses.
 */
#ifndef COD_TRAIN_TRAINER_INTERNAL_H
#define COD_TRAIN_TRAINER_INTERNAL_H

#include "comm/binding.h"
#include "data/loader.h"
#include "infer/evaluate.h"
#include "io/file.h"
#include "io/trace_file.h"
#include "train/train.h"

enum {
    AGREEMENT_DELAY = 2, /**< steps between sending flags and acting on them */
    AGREEMENT_VALUES = 3 + COD_STRATEGY_FLAGS,
};

/** What ranks of a group tell each other about one step. */
typedef struct agreement {
    bool pending;
    double values[AGREEMENT_VALUES]; /**< task loss, ranks with a bad loss, ranks asked to stop, the strategy's */
    cod_request *request;
    double world_stop; /**< where groups are in step: above zero when a rank of any group is asked to stop */
    cod_request *world_request;
} agreement;

typedef struct trainer {
    const cod_train_request *request;
    cod_run_config *config;
    const char *folder, *checkpoints;
    char part[32]; /**< "group-G" */
    cod_file_lock *lock;
    cod_trace_file *trace;
    cod_group *group;
    cod_binding binding;
    bool leader; /**< first rank of its group */
    cod_dataset *dataset;
    cod_loader *loader;
    cod_model model;
    cod_weights weights;
    cod_train_context context;
    cod_strategy *strategy;
    cod_metrics *metrics;
    cod_program *running; /**< for its buckets */

    cod_weights eval_weights; /**< leader: the weights or their average, as evaluated and saved */
    cod_upscaler *upscaler, *bicubic;
    double best_psnr, last_psnr;

    agreement agreements[AGREEMENT_DELAY];
    float *step_ms; /**< of all steps done by this process, for the median */
    size_t step_count;
    double start_s, last_report_s;
    int64_t first_step; /**< of this process: 0, or the step resumed from */
    double task_loss_sum;
    int64_t loss_steps; /**< agreed losses since the last line */
} trainer;

#define STRATEGY(trainer, hook, ...)                                                                                   \
    ((trainer)->strategy->ops->hook != NULL ? (trainer)->strategy->ops->hook((trainer)->strategy, __VA_ARGS__) : COD_OK)

/** Makes everything up to the first step, resumed where there is something to resume. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_set_up(trainer *t);
void trainer_clear(trainer *t);

/** Whether groups wait for each other anyway: then they also stop, and resume, at one step. */
bool trainer_in_step(const trainer *t);

COD_MUST_CHECK cod_status trainer_save_checkpoint(trainer *t);
/** Loads the newest usable checkpoint, if the configuration wants that. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_resume(trainer *t);

/** Copies the weights (or their moving average) to where they are evaluated and saved from; leader. */
COD_MUST_CHECK cod_status trainer_refresh_eval(trainer *t);
/** Quality of an upscaler on one held-out picture; `sample` also writes it to samples/; leader. */
COD_MUST_CHECK cod_status trainer_evaluate_held_out(trainer *t, cod_upscaler *upscaler, size_t index, bool sample,
                                                    cod_quality *quality);
/** Mean quality on held-out pictures, at most `limit`; writes samples and the best model; leader. */
COD_MUST_CHECK cod_status trainer_validate(trainer *t, int64_t limit, cod_quality *mean);

/** Median of the last `last` steps of this process, ms; NaN before the first. */
double trainer_median_ms(const trainer *t, size_t last);

/** Final models, summary.json. Collective on all ranks. */
COD_MUST_CHECK cod_status trainer_finish(trainer *t);

/** The failure of step `step` (NaN, infinity), naming the tensor and the last checkpoint from before it. */
COD_MUST_CHECK cod_status trainer_report_not_finite(trainer *t, const char *what, int64_t step);

#endif

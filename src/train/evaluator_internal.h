/**
 * @file
 * Evaluates the group's model on held-out data, and keeps the best model. Only a group's leader evaluates.
 */
#ifndef COD_TRAIN_EVALUATOR_INTERNAL_H
#define COD_TRAIN_EVALUATOR_INTERNAL_H

#include "train/task.h"

typedef struct trainer_evaluator {
    cod_train_task *task;             /**< this and the folders: borrowed */
    const char *folder, *checkpoints; /**< of the run */
    cod_model model;                  /**< only the recipe's model; made when it is first evaluated */
    cod_weights weights;              /**< its weights or their moving average, for evaluating and saving */
    cod_task_quality baseline;        /**< the trivial baseline's on the first `baseline_count` validation items */
    size_t baseline_count;            /**< 0 = not measured */
    cod_task_quality best;
    cod_task_results last; /**< of the step that is recorded next; unknown if it was not evaluated */
    bool improved;         /**< the last validation had a new best */
} trainer_evaluator;

void trainer_evaluator_clear(trainer_evaluator *evaluator);

/**
 * Takes over the session's weights (or their moving average), which must be finite, evaluates them on at most `limit`
 * validation items (0 = all) of the held-out data and of each set, and keeps the best model. Some of the held-out ones
 * go to samples/.
 *
 * @param usable  the model may be kept as the best one
 * @param[out] results  unknown where there are no items
 */
COD_MUST_CHECK cod_status trainer_validate(trainer_evaluator *evaluator, const cod_train_context *context,
                                           int64_t limit, bool usable, cod_task_results *results);
/**
 * Measures the trivial baseline on at most `limit` validation items (0 = all), unless it was measured on them before,
 * once in a job: all groups have the same items. To be called after trainer_validate(), which does so itself.
 */
COD_MUST_CHECK cod_status trainer_measure_baseline(trainer_evaluator *evaluator, const cod_train_context *context,
                                                   int64_t limit);
/**
 * Evaluates the evaluator's weights on all items of a split.
 *
 * @param own  they are the group's own model, whose predictions are kept if the configuration asks for them
 */
COD_MUST_CHECK cod_status trainer_evaluate(const trainer_evaluator *evaluator, const cod_train_context *context,
                                           cod_split split, bool own, cod_task_quality *mean);
/** Evaluates the evaluator's weights, which are no group's own, on all held-out items and all of each set. */
COD_MUST_CHECK cod_status trainer_evaluate_all(const trainer_evaluator *evaluator, const cod_train_context *context,
                                               cod_task_results *results);
/** Writes the evaluator's weights as a model file. */
COD_MUST_CHECK cod_status trainer_save_model(const trainer_evaluator *evaluator, const char *path);
/**
 * Writes the model's architecture and the name of the evaluated array into a group's checkpoint, so that the file can
 * also be read as a model (infer/model_file.h).
 */
COD_MUST_CHECK cod_status trainer_save_identity(const trainer_evaluator *evaluator, const cod_train_session *session,
                                                cod_checkpoint *checkpoint);

#endif

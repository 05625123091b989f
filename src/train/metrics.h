/**
 * @file
 * Writes a group's numbers to the run's folder: metrics.GROUP.jsonl, exchange.GROUP.jsonl, TensorBoard events and
 * samples.
 */
#ifndef COD_TRAIN_METRICS_H
#define COD_TRAIN_METRICS_H

#include "train/task.h"

#include <stdatomic.h>

typedef struct cod_metrics_number {
    char key[64];
    double value;
} cod_metrics_number;

/**
 * One line of metrics. NaN numbers, and the step of a teacher that does not exist, are written as null. Losses are
 * means over the steps since the last line on which the group has agreed; it agrees two steps later, on a device three.
 * The last line of a run covers the remaining steps.
 */
typedef struct cod_metrics_line {
    int64_t step; /**< updates done */
    double loss;  /**< task loss plus the weighted distillation loss; further losses of a recipe are in `more` */
    double task_loss, rate, step_ms, images_per_s;
    double exchange_share; /**< of the steps' time */
    double trained_s;      /**< seconds of all steps, without evaluations and checkpoints */
    double processor_s;    /**< processor seconds of the first rank's threads in the steps of this process */
    double between_bytes,
        inside_bytes; /**< bytes received by the group so far, from other groups and inside the group */
    const cod_train_task_kind *task;
    cod_task_quality quality;       /**< on validation items; unknown unless they were evaluated at this step */
    const cod_metrics_number *more; /**< [more_count] further figures of the recipe, with their names; borrowed */
    size_t more_count;
    cod_strategy_stats strategy;
    const cod_peer_stats *peers; /**< [peer_count], borrowed */
    size_t peer_count;
} cod_metrics_line;

/**
 * Opens or continues the files of group `group` in `folder`; lines after step `from_step`, left by a run that died, are
 * dropped. @param[out] out  new; cod_metrics_close()
 */
COD_MUST_CHECK cod_status cod_metrics_open(const char *folder, int group, int64_t from_step, bool tensorboard,
                                           cod_metrics **out);
/** A run that is asked to end loses a line that cannot be written, and goes on to its checkpoint. @param stop_signal
 * borrowed; as in cod_train_request */
void cod_metrics_set_stop_signal(cod_metrics *metrics, const atomic_int *stop_signal);
/** Step of the last line in the file; -1 = none. */
int64_t cod_metrics_last_step(const cod_metrics *metrics);
COD_MUST_CHECK cod_status cod_metrics_write(cod_metrics *metrics, const cod_metrics_line *line);
/** The last line that a group's file has; NULL = none. @param[out] line  new; cod_json_free() */
COD_MUST_CHECK cod_status cod_metrics_read_last(const char *folder, int group, cod_json_value **line);
/** A line of exchange.GROUP.jsonl, which the first one creates. @param step  updates done */
COD_MUST_CHECK cod_status cod_metrics_event(cod_metrics *metrics, int64_t step, const cod_train_event *event);
/** An 8-bit RGB picture, for TensorBoard. */
COD_MUST_CHECK cod_status cod_metrics_image(cod_metrics *metrics, int64_t step, const char *tag, int width, int height,
                                            const void *png, size_t bytes);
void cod_metrics_close(cod_metrics *metrics);

#endif

/**
 * @file
 * Decides, by validation, whether a run with distillation is worse than a run without it. `distill.control` names that
 * run, usually one with strategy `single`.
 *
 * A run cannot decide this alone. Its gradients are no guide: on MNIST (MLP, two groups, weight 1) the gradient of
 * distillation turned the step toward the one that validation would take where all data were shared and distilling lost
 * (97.1 to 96.9 %, 6 of 6 runs), and away from it where each group had 500 pictures and distilling won (87.7 to 88.7
 * %).
 */
#ifndef COD_DISTILL_CONTROL_H
#define COD_DISTILL_CONTROL_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cod_control_point {
    int64_t step;
    double figure;
} cod_control_point;

/** In the caller's storage. Zeroed = no control. */
typedef struct cod_control {
    cod_control_point *points; /**< the control's evaluations, by step */
    size_t count;
    bool less_is_better;
    double noise;   /**< standard deviation of a figure about the mean of its neighbours; 0 = too few evaluations */
    int64_t behind; /**< number of evaluations in a row in which this run was behind by more than the noise */
} cod_control;

/**
 * Reads the evaluations of a finished or interrupted run.
 *
 * @param folder  of the run, with its metrics.0.jsonl
 * @param key     of the figure in its lines
 * @return COD_ERR_IO without the file, COD_ERR_FORMAT when it is damaged or has none of this figure
 */
COD_MUST_CHECK cod_status cod_control_read(const char *folder, const char *key, bool less_is_better, cod_control *out);
void cod_control_clear(cod_control *control);

/**
 * The control's figure after `step` steps, interpolated linearly between two evaluations; NaN before the first and
 * after the last.
 */
double cod_control_at(const cod_control *control, int64_t step);

/** Records this run's figure after `step` steps. @return whether it is the third in a row that is behind the control */
bool cod_control_note(cod_control *control, int64_t step, double figure);

#endif

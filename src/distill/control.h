/**
 * @file
 * Whether distilling loses to a run without it, by validation: `distill.control` names that run, usually one of `single`.
 *
 * A run cannot tell by itself. What its gradients say of the next step is no guide: on MNIST (MLP, two groups, weight 1) the gradient of
 * distillation turned the step toward the one that validation would take where all data were shared and distilling lost (97.1 to 96.9 %, 6 of 6
 * runs), and away from it where each group had 500 pictures and distilling won (87.7 to 88.7 %).
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
    cod_control_point *points; /**< its evaluations, by step */
    size_t count;
    bool less_is_better;
    double noise;   /**< standard deviation of a figure about its neighbours' mean; 0 = too few to tell */
    int64_t behind; /**< evaluations running at which this run was behind by more than the noise */
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

/** The control's figure after `step` steps, between two evaluations by a straight line; NaN before its first and past its last. */
double cod_control_at(const cod_control *control, int64_t step);

/** Takes note of this run's figure after `step` steps. @return whether it is the third one running that is behind */
bool cod_control_note(cod_control *control, int64_t step, double figure);

#endif

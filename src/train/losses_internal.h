/**
 * @file
 * The losses and figures of a recipe: their values in each step, and their means between two lines of metrics.
 */
#ifndef COD_TRAIN_LOSSES_INTERNAL_H
#define COD_TRAIN_LOSSES_INTERNAL_H

#include "nn/readback.h"
#include "train/session.h"

/** A loss or a figure of the recipe. */
typedef struct trainer_loss {
    const char *name;
    cod_value value;
    bool is_figure;               /**< a figure, which is the first element of an output */
    const cod_sub_step *sub_step; /**< sub-step that computes it */
    cod_view view;                /**< on the device */
    double computed;              /**< value in the current step, if the strategy computes in place of the trainer */
    double sum;                   /**< sum of the group's values, agreed since the last line of metrics */
    int64_t steps;                /**< number of steps in the sum */
} trainer_loss;

/** Zeroed = none. */
typedef struct trainer_losses {
    trainer_loss *items; /**< [count] */
    size_t count;
    int64_t delay;   /**< steps after which losses are read; 1 on a device: the trainer need not wait for it */
    int64_t batches; /**< mini-batches of a step */
    /** [loss][mini-batch] values of the steps whose losses are not read yet; NULL = the strategy computes them */
    cod_readback *readback;
} trainer_losses;

/** @param recipe  borrowed */
COD_MUST_CHECK cod_status trainer_losses_init(trainer_losses *losses, const cod_recipe *recipe);
/** Finds the losses on the device. @param computes  the trainer runs the steps, not the strategy */
COD_MUST_CHECK cod_status trainer_losses_connect(trainer_losses *losses, const cod_train_session *session,
                                                 bool computes);
void trainer_losses_clear(trainer_losses *losses);

/** Begins a step, in which the losses of each sub-step that is due are then put for each mini-batch. */
void trainer_losses_begin(trainer_losses *losses, int64_t step);
/** Queues what brings the losses of a program that was queued for mini-batch `batch`. */
COD_MUST_CHECK cod_status trainer_losses_put(trainer_losses *losses, int64_t step, const cod_sub_step *sub_step,
                                             int64_t batch);
COD_MUST_CHECK cod_status trainer_losses_end(trainer_losses *losses, int64_t step);
/**
 * This rank's losses of a step: means over its mini-batches; 0 if a sub-step was not due. One that is not finite is
 * NaN: no sum of infinities then makes it so.
 *
 * @param[out] values  [count]
 */
COD_MUST_CHECK cod_status trainer_losses_read(const trainer_losses *losses, int64_t step, double *values);

/**
 * Adds a step's losses to the means.
 *
 * @param sums  [count] over the `ranks` ranks that compute them
 * @return the first loss whose sum is not finite, which ends the adding; NULL = none
 */
const trainer_loss *trainer_losses_add(trainer_losses *losses, int64_t step, const double *sums, int ranks);
/** The group's mean of a loss since the last line of metrics; NaN if no step had it. */
double trainer_loss_mean(const trainer_loss *loss);
/** For cod_guards_look(): the mean of the loss or the figure of this name; `context` is a trainer_losses. */
double trainer_losses_mean_by_name(const void *context, const char *name);
/** The mean of the loss that has this value in the recipe's graph. */
double trainer_losses_mean_of(const trainer_losses *losses, cod_value value);
/** Begins the means of the next line of metrics. */
void trainer_losses_restart(trainer_losses *losses);

#endif

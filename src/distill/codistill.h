/**
 * @file
 * The `codistill` strategy: data-parallel groups that publish checkpoints, pull their peers', and use each pull twice:
 * to merge weights (delay-corrected) and to distil toward the peer's predictions.
 *
 * Distillation: loss = task + w(step)·D(teacher, student) (Anil et al. 2018, "Large scale distributed neural network
 * training through online distillation"), w zero for `burn_in` steps, then a ramp, fading with the learning rate.
 * Merge: θ += α·a·(θ̂_peer - θ̂_own), both decoded publications of the same version, so that neither delay nor coding
 * drags training back; a = 1/groups, α = sin(π/(4d+2)) for a delay of d publications, half the bound of stability.
 */
#ifndef COD_DISTILL_CODISTILL_H
#define COD_DISTILL_CODISTILL_H

#include "core/option.h"

enum {
    COD_DISTILL_LOSS_AUTO,
    COD_DISTILL_LOSS_L1,
    COD_DISTILL_LOSS_MSE,
    COD_DISTILL_LOSS_CHARBONNIER,
    COD_DISTILL_LOSS_KL,
    COD_DISTILL_LOSS_FEATURES, /**< compares features of the recipe's frozen network (cod_recipe_feature) */
};

enum { COD_DISTILL_AVERAGE_AUTO, COD_DISTILL_AVERAGE_OUTPUTS, COD_DISTILL_AVERAGE_PROBABILITIES };

enum { COD_DISTILL_INPUTS_BATCH, COD_DISTILL_INPUTS_MIXUP, COD_DISTILL_INPUTS_NO_REFERENCE };

typedef struct cod_distill_options {
    double weight; /**< NaN = the task's */
    int loss;      /**< COD_DISTILL_LOSS_… */
    double temperature;
    int64_t burn_in, ramp, every;
    double batch_fraction;
    int inputs;            /**< COD_DISTILL_INPUTS_… */
    int teacher_precision; /**< cod_precision */
    bool fade, gate;
    int64_t teachers_per_step;
    int average;         /**< COD_DISTILL_AVERAGE_… */
    const char *control; /**< folder of a run without distillation; "" = none */
    bool auto_off;
} cod_distill_options;

extern const cod_option_table cod_distill_option_table;

/** Registers `train.strategy: codistill`, with its sections `distill` and `exchange`. */
void cod_strategy_register_codistill(void);

#endif

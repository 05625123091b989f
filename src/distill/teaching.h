/**
 * @file
 * Which peers teach in a step, their predictions mixed, and how good they are.
 *
 * Teachers take turns, `teachers_per_step` at a time. Several predict the mean of their predictions, weighted by what each one's age and
 * ramp leave of its weight, and that mean weighs as much as the heaviest of them: one that fades or comes back
 * moves neither by a jump.
 */
#ifndef COD_DISTILL_TEACHING_H
#define COD_DISTILL_TEACHING_H

#include "distill/peers.h"
#include "train/prior.h"

/** In the caller's storage. */
typedef struct cod_teaching {
    const cod_distill_options *options; /**< borrowed */
    cod_peers *peers;                   /**< borrowed; grown old at each step */
    cod_peer **chosen;                  /**< [count], of this step */
    int count;
    cod_peer *measured; /**< is not run on the mini-batch for its teaching, but once to see how good it is; or NULL */
    float *prior; /**< [classes] a_g of the prediction (train/prior.h), mixed as it is; NULL = nothing to correct */
    cod_prior_input prior_input;
    struct {
        cod_peer **peers; /**< [count] */
        int count;
    } ran[COD_TEACHER_SLOTS];   /**< on the mini-batch of the last lessons */
    const cod_sub_step *lesson; /**< that the recipe marks for distilling; NULL = none */
    int64_t lesson_every;       /**< steps between two lessons: runs of it */
    int64_t delay;              /**< lessons after which losses are read: 1 on a device, which nobody then waits for */
    double student_loss;        /**< running mean, for the gate; 0 = none yet */
    int64_t off_step;           /**< from which on the weights fall to zero, over options->ramp; -1 = they do not */
} cod_teaching;

COD_MUST_CHECK cod_status cod_teaching_init(cod_teaching *teaching, const cod_distill_options *options,
                                            cod_peers *peers, const cod_train_context *context);
void cod_teaching_clear(cod_teaching *teaching);

/** A step begins: nobody teaches in it, and peers grow older. */
void cod_teaching_begin(cod_teaching *teaching);
/** Whether the sub-step that distils runs in this step. */
static inline bool cod_teaching_is_due(const cod_teaching *teaching, int64_t step)
{
    return teaching->lesson == NULL || cod_sub_step_is_due(teaching->lesson, step);
}

/**
 * Chooses the teachers of a step with a lesson, and their weights; none = teaching->count 0. The same on every rank of the
 * group. Turns and `every` count lessons.
 */
void cod_teaching_choose(cod_teaching *teaching, const cod_train_context *context);

/**
 * Predicts what lies in the context's input into the student's target input, and writes the prediction's a_g into its own. The
 * prediction is queued in the peers' branch, beside what is queued next: whoever reads it waits for that.
 *
 * @param[out] weight  of the distillation loss on this mini-batch: 0 where the gate leaves all out, or nobody teaches
 */
COD_MUST_CHECK cod_status cod_teaching_predict(cod_teaching *teaching, const cod_train_context *context,
                                               double *weight);

/** Runs the teacher that is only to be measured in this step, if there is one. */
COD_MUST_CHECK cod_status cod_teaching_measure(cod_teaching *teaching, int64_t step);

/** Where the losses of a step with a lesson are kept until they are read. */
static inline size_t cod_teaching_slot(const cod_teaching *teaching, int64_t step)
{
    return (size_t)(step / teaching->lesson_every % COD_TEACHER_SLOTS);
}

/** Remembers which teachers ran on the mini-batch of step `step`, the one under way. */
void cod_teaching_remember(cod_teaching *teaching, int64_t step);
/** Takes note of the student's task loss on the mini-batch of a step that was remembered, and of its teachers'. */
COD_MUST_CHECK cod_status cod_teaching_note(cod_teaching *teaching, int64_t step, double student_loss);

#endif

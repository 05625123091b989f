/**
 * @file
 * Chooses the peers that teach in a step, mixes their predictions, and measures how good they are.
 *
 * Teachers take turns, `teachers_per_step` at a time. Several teachers give the mean of their predictions. Each counts
 * by the weight that its age and ramp leave, and the mean has the weight of the heaviest teacher, so that a teacher
 * that fades or returns changes neither abruptly.
 */
#ifndef COD_DISTILL_TEACHING_H
#define COD_DISTILL_TEACHING_H

#include "distill/peers.h"
#include "train/prior.h"

/** In the caller's storage. */
typedef struct cod_teaching {
    const cod_distill_options *options; /**< borrowed */
    cod_peers *peers;                   /**< borrowed; their ages are updated in each step */
    cod_peer **chosen;                  /**< [count] teachers of this step */
    int count;
    cod_peer *measured; /**< a peer that does not teach in this step but runs once to be measured; or NULL */
    float *prior; /**< [classes] a_g of the prediction (train/prior.h), mixed in the same way; NULL = no correction */
    cod_prior_input prior_input;
    struct {
        cod_peer **peers; /**< [count] */
        int count;
    } ran[COD_TEACHER_SLOTS];   /**< teachers that ran on the mini-batches of the last lessons */
    const cod_sub_step *lesson; /**< the sub-step that the recipe marks for distilling; NULL = none */
    int64_t lesson_every;       /**< steps between two lessons, which are runs of that sub-step */
    int64_t delay; /**< lessons after which losses are read; 1 on a device, so that the host does not wait for it */
    double student_loss; /**< running mean, for the gate; 0 = none yet */
    int64_t off_step;    /**< step from which the weights fall to zero, over options->ramp; -1 = never */
} cod_teaching;

COD_MUST_CHECK cod_status cod_teaching_init(cod_teaching *teaching, const cod_distill_options *options,
                                            cod_peers *peers, const cod_train_context *context);
void cod_teaching_clear(cod_teaching *teaching);

/** Begins a step, without teachers, and updates the peers' ages. */
void cod_teaching_begin(cod_teaching *teaching);
/** Whether the sub-step that distils runs in this step. */
static inline bool cod_teaching_is_due(const cod_teaching *teaching, int64_t step)
{
    return teaching->lesson == NULL || cod_sub_step_is_due(teaching->lesson, step);
}

/**
 * Chooses the teachers of a step with a lesson, and their weights; none = teaching->count 0. The same on every rank of
 * the group. Turns and `every` count lessons.
 *
 * @return whether it is a lesson for which teachers are chosen, by `every`
 */
bool cod_teaching_choose(cod_teaching *teaching, const cod_train_context *context);

/**
 * Predicts the context's input into the student's target input, and writes the prediction's a_g into its own input. The
 * prediction is queued in the peers' branch and runs beside later work; readers must wait for the branch.
 *
 * @param[out] weight  weight of the distillation loss on this mini-batch; 0 if the gate leaves all teachers out or
 *                     there is none
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

/** Remembers which teachers ran on the mini-batch of the current step, `step`. */
void cod_teaching_remember(cod_teaching *teaching, int64_t step);
/** Records the student's task loss on the mini-batch of a remembered step, and those of its teachers. */
COD_MUST_CHECK cod_status cod_teaching_note(cod_teaching *teaching, int64_t step, double student_loss);

#endif

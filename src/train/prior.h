/**
 * @file
 * Correction for groups whose training examples are of unequal classes: `train.prior_correction`.
 *
 * A classifier that is trained on group g's examples says p(x|y)·p_g(y), with g's share p_g of class y: groups then disagree where
 * both are right. With p, the share among all groups' examples, and a_g = log p_g/p, logits z come to mean p(x|y)·p(y) in every group:
 * - the task loss is the cross-entropy of softmax(z + a_g), as examples come with shares p_g (Menon et al. 2021, "Long-tail
 *   learning via logit adjustment", the logit adjusted loss; Ren et al. 2020, "Balanced Meta-Softmax"; here p stands for equal shares);
 * - a teacher of group j and the student are compared at the teacher's shares, D(z_j + a_j, z + a_j): posteriors moved to other priors
 *   (Saerens et al. 2002, "Adjusting the outputs of a classifier to new a priori probabilities"), where the teacher says nothing of
 *   classes that it never saw.
 * Nothing is added where all groups' shares are equal, nor when a model is evaluated: held-out examples come with shares p.
 */
#ifndef COD_TRAIN_PRIOR_H
#define COD_TRAIN_PRIOR_H

#include "core/slots.h"
#include "train/session.h"

/** Inputs of the graph, of the logits' shape, that the two losses add: a_g of the own group and of the teacher. */
#define COD_PRIOR_INPUT         "prior"
#define COD_PRIOR_TEACHER_INPUT "teacher_prior"

/** cod_graph_loss() of the task, corrected where there are priors: only whether they are NULL matters here. */
cod_value cod_prior_task_loss(const float *priors, cod_graph *graph, const char *name, cod_value output,
                              cod_value target, cod_loss_spec spec);
/** The same for the comparison of `output` with a teacher's. */
cod_value cod_prior_distill_loss(const float *priors, cod_graph *graph, const char *name, cod_value output,
                                 cod_value teacher, cod_loss_spec spec);

size_t cod_prior_classes(const cod_train_session *session);
/** a_g of a group, [classes]; NULL = nothing to correct. */
const float *cod_prior_of(const cod_train_session *session, int group);

/** Writes `row` [classes] into each row of an input; NULL = nothing to do. For set-up: it waits for the device. */
COD_MUST_CHECK cod_status cod_prior_write(const cod_backend *backend, cod_device *device, cod_queue *queue,
                                          cod_view input, const float *row);

/** An input whose rows change between steps, for which nobody waits. Zeroed = none: nothing is written. */
typedef struct cod_prior_input {
    cod_view view;
    float *rows; /**< [N, classes] what lies there, or is on its way */
    cod_slots slots;
} cod_prior_input;

/** Rows are zeros until the first is written. `backend` and `device` are borrowed. cod_prior_input_clear() also after a failure. */
COD_MUST_CHECK cod_status cod_prior_input_init(cod_prior_input *input, const cod_backend *backend, cod_device *device,
                                               cod_view view);
void cod_prior_input_clear(cod_prior_input *input);
/** Brings `row` [classes] into each row, for programs that are queued later; does nothing where it lies there already. */
COD_MUST_CHECK cod_status cod_prior_input_write(cod_prior_input *input, const float *row);

#endif

/**
 * @file
 * Correction for groups whose training data have different shares of the classes: `train.prior_correction`.
 *
 * A classifier trained on group g's examples learns p(x|y)·p_g(y), where p_g(y) is the share of class y in group g.
 * Groups then disagree although each is right about its data. With p(y), the share among all groups' examples, and a_g
 * = log p_g/p, logits z mean p(x|y)·p(y) in every group if
 * - the task loss is the cross-entropy of softmax(z + a_g), as examples come with shares p_g (Menon et al. 2021,
 *   "Long-tail learning via logit adjustment", the logit adjusted loss; Ren et al. 2020, "Balanced Meta-Softmax"; here
 *   p stands for equal shares);
 * - a teacher of group j and the student are compared at the teacher's shares, D(z_j + a_j, z + a_j): posteriors moved
 *   to other priors (Saerens et al. 2002, "Adjusting the outputs of a classifier to new a priori probabilities"), so
 *   that the teacher does not influence classes that it never saw.
 * Nothing is added if all groups' shares are equal, or when a model is evaluated, because validation examples have
 * shares p.
 */
#ifndef COD_TRAIN_PRIOR_H
#define COD_TRAIN_PRIOR_H

#include "core/slots.h"
#include "train/session.h"

/** Inputs of the graph, of the logits' shape, that the two losses add: a_g of the own group and of the teacher. */
#define COD_PRIOR_INPUT         "prior"
#define COD_PRIOR_TEACHER_INPUT "teacher_prior"

/** cod_graph_loss() of the task, corrected if there are priors; only whether they are NULL matters here. */
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

/** An input whose rows change between steps, without waiting for the device. Zeroed = none: nothing is written. */
typedef struct cod_prior_input {
    cod_view view;
    float *rows; /**< [N, classes] values on the device, or on their way to it */
    cod_slots slots;
} cod_prior_input;

/**
 * Rows are zeros until the first is written. `backend` and `device` are borrowed. cod_prior_input_clear() also after a
 * failure.
 */
COD_MUST_CHECK cod_status cod_prior_input_init(cod_prior_input *input, const cod_backend *backend, cod_device *device,
                                               cod_view view);
void cod_prior_input_clear(cod_prior_input *input);
/** Brings `row` [classes] into each row, for programs that are queued later; does nothing if it is there already. */
COD_MUST_CHECK cod_status cod_prior_input_write(cod_prior_input *input, const float *row);

#endif

/**
 * @file
 * Inputs other than the mini-batch on which teachers and student are compared: `distill.inputs`.
 *
 * - mixup: convex mixtures of two examples of the mini-batch (Zhang et al. 2018, "mixup", equation 1 with uniform
 *   shares). They lie between the known examples and have no truth.
 * - no_reference: crops of the truth used as if they were low-resolution pictures; they are sharper than any picture
 *   that has a truth. The student sees each crop turned by F (one of the eight flips, rotations and transposes) and
 *   inverted at random. D(G(F(x)), F(T(x))) equals D(F⁻¹(G(F(x))), T(x)), so the student also learns to give the same
 *   answer in all orientations.
 *
 * The mini-batch is moved aside on the device while the other inputs are in its place. The host does not wait for the
 * device: the other inputs are made from the host's copy of the mini-batch, and an op turns predictions.
 */
#ifndef COD_DISTILL_INPUTS_H
#define COD_DISTILL_INPUTS_H

#include "core/rng.h"
#include "distill/codistill.h"
#include "train/batches.h"

/** In the caller's storage. Zeroed = none: teachers predict the mini-batch. */
typedef struct cod_distill_inputs {
    int kind; /**< COD_DISTILL_INPUTS_… */
    const cod_train_session *session;
    float *others;  /**< of the input's shape */
    int32_t *turns; /**< [N] bits of cod_turn for this mini-batch; NULL = nothing is turned */
    cod_slots slots;
    cod_buffer *memory;          /**< device memory of everything below */
    cod_view aside, turns_there; /**< the mini-batch's input; the turns */
    struct {
        cod_view straight, turned; /**< turned: where the student reads it */
        cod_plan *plan;
    } pairs[2]; /**< the input, the teachers' prediction */
} cod_distill_inputs;

/**
 * @param session     compiled; borrowed
 * @param prediction  of the teachers, the student's input; dense f32
 * @return COD_ERR_ARGUMENT if mini-batches are too small to mix, or the truth is too small to crop
 */
COD_MUST_CHECK cod_status cod_distill_inputs_init(cod_distill_inputs *inputs, int kind,
                                                  const cod_train_session *session, cod_view prediction);
void cod_distill_inputs_clear(cod_distill_inputs *inputs);

/**
 * Moves the mini-batch aside and puts other inputs, made from it with `rng`, into the session's input. @param batch the
 * mini-batch, on the host
 */
COD_MUST_CHECK cod_status cod_distill_inputs_replace(cod_distill_inputs *inputs, const cod_mini_batch *batch,
                                                     cod_rng *rng);
/** Turns the student's input and the teachers' prediction; to be called after the teachers have predicted. */
COD_MUST_CHECK cod_status cod_distill_inputs_turn(cod_distill_inputs *inputs);
/** Puts the mini-batch back. */
COD_MUST_CHECK cod_status cod_distill_inputs_restore(cod_distill_inputs *inputs);

#endif

/**
 * @file
 * Other inputs than the mini-batch for teachers and student to be compared on: `distill.inputs`.
 *
 * - mixup: convex mixtures of two examples of the mini-batch (Zhang et al. 2018, "mixup", equation 1 with uniform shares), between
 *   what is known, where predictions say more than a truth would.
 * - no_reference: crops of the truth as if they were low-resolution pictures, sharper than any that has a truth. The student sees each turned
 *   by F, one of the eight flips, rotations and transposes, and inverted at random: D(G(F(x)), F(T(x))) is D(F⁻¹(G(F(x))), T(x)), so the
 *   student is also held to answer alike.
 *
 * The mini-batch is put aside, on the device, while the others lie in its place. Nobody waits for the device: others are made of the host's
 * copy of the mini-batch, and predictions are turned by an op.
 */
#ifndef COD_DISTILL_INPUTS_H
#define COD_DISTILL_INPUTS_H

#include "core/rng.h"
#include "distill/codistill.h"
#include "train/batches.h"

/** In the caller's storage. Zeroed = none: teachers look at the mini-batch. */
typedef struct cod_distill_inputs {
    int kind; /**< COD_DISTILL_INPUTS_… */
    const cod_train_session *session;
    float *others;  /**< of the input's shape */
    int32_t *turns; /**< [N] of this mini-batch, bits of cod_turn; NULL = none are turned */
    cod_slots slots;
    cod_buffer *memory;          /**< of the device, for all that follows */
    cod_view aside, turns_there; /**< the mini-batch's input; the turns */
    struct {
        cod_view straight, turned; /**< turned: where it lies for the student */
        cod_plan *plan;
    } pairs[2]; /**< the input, the teachers' prediction */
} cod_distill_inputs;

/**
 * @param session     compiled; borrowed
 * @param prediction  of the teachers, the student's input; dense f32
 * @return COD_ERR_ARGUMENT when mini-batches are too small to mix, or the truth to be cropped
 */
COD_MUST_CHECK cod_status cod_distill_inputs_init(cod_distill_inputs *inputs, int kind,
                                                  const cod_train_session *session, cod_view prediction);
void cod_distill_inputs_clear(cod_distill_inputs *inputs);

/** Puts the mini-batch aside and others, made of it by `rng`, into the session's input. @param batch  what lies there, on the host */
COD_MUST_CHECK cod_status cod_distill_inputs_replace(cod_distill_inputs *inputs, const cod_mini_batch *batch,
                                                     cod_rng *rng);
/** When teachers have predicted: turns what the student is to see, and the prediction with it. */
COD_MUST_CHECK cod_status cod_distill_inputs_turn(cod_distill_inputs *inputs);
/** Puts the mini-batch back. */
COD_MUST_CHECK cod_status cod_distill_inputs_restore(cod_distill_inputs *inputs);

#endif

/**
 * @file
 * A teacher: a peer's decoded checkpoint, run forward on the group's own mini-batch. Its normalisation is folded and nothing
 * is kept for backward, so it costs one inference.
 */
#ifndef COD_DISTILL_TEACHER_H
#define COD_DISTILL_TEACHER_H

#include "train/strategy.h"

typedef struct cod_teacher cod_teacher;

/**
 * Makes a teacher of a peer's architecture for the context's batch shape and precision; it has no weights yet.
 *
 * @param context  set up and compiled; its device is borrowed
 * @param peer     what the peer trains; borrowed
 * @param target   where the prediction goes: the student's input of that name, f32 [N,sH,sW,3]
 * @param pictures how many of the mini-batch, from its start, are predicted
 */
COD_MUST_CHECK cod_status cod_teacher_create(cod_train_context *context, const cod_group_config *peer,
                                             const char *target, int64_t pictures, cod_teacher **out);
void cod_teacher_destroy(cod_teacher *teacher);

/** Takes over a checkpoint [trainable + state] f32; packed at the next run. */
COD_MUST_CHECK cod_status cod_teacher_load(cod_teacher *teacher, const float *values);

/**
 * Predicts the mini-batch that lies in the context's input, into the student's target input.
 *
 * @param[out] loss  the teacher's own task loss on this batch: is it any good?
 */
COD_MUST_CHECK cod_status cod_teacher_run(cod_teacher *teacher, float *loss);

#endif

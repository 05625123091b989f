/**
 * @file
 * A teacher: a peer's decoded checkpoint, run forward on the group's own mini-batch. Its normalisation is folded and nothing
 * is kept for backward, so it costs one inference.
 *
 * On 8-bit integers a checkpoint's first run is not rounded: from what its convolutions meet come the ranges (infer/int8.h) of all
 * later ones, chosen on the device. So these are a function of the weights and of one mini-batch, and a run that is resumed needs them
 * back. The host looks at them when they have come, and whichever call of the teacher finds what a layer met not finite fails with
 * COD_ERR_NUMERIC: on a device a step later.
 */
#ifndef COD_DISTILL_TEACHER_H
#define COD_DISTILL_TEACHER_H

#include "nn/precision.h"
#include "train/session.h"

typedef struct cod_teacher cod_teacher;

typedef struct cod_teacher_spec {
    const cod_group_config *peer; /**< what the peer trains; borrowed */
    const char *target;           /**< where the prediction goes: the student's input of that name, f32 [N,sH,sW,3] */
    int64_t pictures;             /**< how many of the mini-batch, from its start, are predicted */
    cod_precision precision;      /**< auto: the student's */
    cod_queue *
        queue; /**< where it predicts, borrowed; NULL = the default one. Whoever gives one orders it with what takes over weights,
                           writes the mini-batch and reads the target */
    bool mixes;        /**< its predictions may be mixed with those of other teachers */
    float temperature; /**< they are mixed as the class probabilities of logits at this temperature; 0 = as they are */
    size_t
        trainable; /**< values of its checkpoints before the states; the model's are the first of both. 0 = only the model's */
} cod_teacher_spec;

/**
 * Makes a teacher of a peer's architecture for the session's batch shape; it has no weights yet.
 *
 * @param session  compiled; its device and its mini-batch are borrowed
 * @return COD_ERR_UNSUPPORTED when the device lacks the precision
 */
COD_MUST_CHECK cod_status cod_teacher_create(const cod_train_session *session, const cod_teacher_spec *spec,
                                             cod_teacher **out);
void cod_teacher_destroy(cod_teacher *teacher);

/**
 * Takes over a part of a checkpoint, from value `first` on, or all of it: f32, of the host's memory or the device's, values that travel,
 * then states (cod_teacher_spec); packed at the next run.
 */
COD_MUST_CHECK cod_status cod_teacher_load(cod_teacher *teacher, cod_buffer *values, size_t first);

/** Copies the model's values, [cod_teacher_count()], out and in, for who cannot load them again. */
size_t cod_teacher_count(const cod_teacher *teacher);
COD_MUST_CHECK cod_status cod_teacher_save(const cod_teacher *teacher, float *values);
COD_MUST_CHECK cod_status cod_teacher_restore(cod_teacher *teacher, const float *values);

/** How many ranges a teacher has; 0 = it does not run on integers. NULL has none. */
size_t cod_teacher_range_count(const cod_teacher *teacher);
/**
 * The ranges in use, to be saved; zeros where none were observed since the last checkpoint. Waits for those that were.
 *
 * @param[out] ranges  borrowed, [cod_teacher_range_count()]
 */
COD_MUST_CHECK cod_status cod_teacher_ranges(cod_teacher *teacher, const float **ranges);
/** After cod_teacher_load(), puts saved ranges back: zeros are observed anew. */
COD_MUST_CHECK cod_status cod_teacher_set_ranges(cod_teacher *teacher, const float *ranges);

/** Steps whose losses a teacher keeps for those who read them late. */
enum { COD_TEACHER_SLOTS = 2, COD_TEACHER_NO_SLOT = COD_TEACHER_SLOTS };

/**
 * Queues the prediction of the mini-batch that lies in the session's input.
 *
 * @param slot  below COD_TEACHER_SLOTS: where its own task loss on this mini-batch goes; COD_TEACHER_NO_SLOT = nowhere
 */
COD_MUST_CHECK cod_status cod_teacher_run(cod_teacher *teacher, size_t slot);
/** Reads the task loss that the last run into a slot had: is the teacher any good? Waits for that run. NaN = there was none. */
COD_MUST_CHECK cod_status cod_teacher_loss(cod_teacher *teacher, size_t slot, double *loss);

/**
 * Puts what was predicted last into the student's target input: target = (1 - share)·target + share·prediction, of
 * outputs or, by the spec's temperature, of class probabilities, for which the target has logits.
 *
 * @param share  1 = it alone, whatever lay there; below 1 only of teachers that mix
 */
COD_MUST_CHECK cod_status cod_teacher_give(cod_teacher *teacher, float share);

#endif

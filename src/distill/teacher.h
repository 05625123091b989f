/**
 * @file
 * A teacher: a peer's decoded checkpoint, run forward on the group's own mini-batch. Its normalisation is folded and
 * nothing is kept for backward, so it costs one inference.
 *
 * A teacher on 8-bit integers runs a checkpoint in floats first. The inputs of its convolutions in that run give the
 * ranges (infer/int8.h) for all later runs; the device chooses them. The ranges are thus a function of the weights and
 * of one mini-batch, and a resumed run must restore them. The host checks the ranges when they have arrived: the next
 * call of the teacher fails with COD_ERR_NUMERIC if an input was not finite, on a device a step later.
 */
#ifndef COD_DISTILL_TEACHER_H
#define COD_DISTILL_TEACHER_H

#include "nn/precision.h"
#include "train/session.h"

typedef struct cod_teacher cod_teacher;

typedef struct cod_teacher_spec {
    const cod_group_config *peer; /**< what the peer trains; borrowed */
    const char *target;           /**< the student's input that receives the prediction, f32 [N,sH,sW,3] */
    int64_t pictures;             /**< number of pictures of the mini-batch, from its start, to predict */
    cod_precision precision;      /**< auto: the student's */
    /** Queue in which it predicts, borrowed; NULL = the default one. The caller must order it with work that loads
     * weights, writes the mini-batch and reads the target. */
    cod_queue *queue;
    bool mixes;        /**< its predictions may be mixed with those of other teachers */
    float temperature; /**< they are mixed as class probabilities of logits at this temperature; 0 = unchanged */
    /** values of its checkpoints before the states; the model's are the first of both. 0 = only the model's */
    size_t trainable;
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
 * Loads a part of a checkpoint, from value `first` on, or all of it. Values are f32, in the host's memory or the
 * device's: values that travel, then states (cod_teacher_spec). They are packed at the next run.
 */
COD_MUST_CHECK cod_status cod_teacher_load(cod_teacher *teacher, cod_buffer *values, size_t first);

/** Copies the model's values, [cod_teacher_count()], out and in, for callers that cannot load them again. */
size_t cod_teacher_count(const cod_teacher *teacher);
COD_MUST_CHECK cod_status cod_teacher_save(const cod_teacher *teacher, float *values);
COD_MUST_CHECK cod_status cod_teacher_restore(cod_teacher *teacher, const float *values);

/** How many ranges a teacher has; 0 = it does not run on integers. NULL has none. */
size_t cod_teacher_range_count(const cod_teacher *teacher);
/**
 * The ranges in use, to be saved; zeros if none were measured for the current weights. Waits for measured ranges to
 * arrive.
 *
 * @param[out] ranges  borrowed, [cod_teacher_range_count()]
 */
COD_MUST_CHECK cod_status cod_teacher_ranges(cod_teacher *teacher, const float **ranges);
/** Restores saved ranges after cod_teacher_load(). Ranges of zero are measured again. */
COD_MUST_CHECK cod_status cod_teacher_set_ranges(cod_teacher *teacher, const float *ranges);

/** Number of steps whose losses a teacher keeps, because they are read late. */
enum { COD_TEACHER_SLOTS = 2, COD_TEACHER_NO_SLOT = COD_TEACHER_SLOTS };

/**
 * Queues the prediction of the mini-batch that lies in the session's input.
 *
 * @param slot  below COD_TEACHER_SLOTS: slot for its task loss on this mini-batch; COD_TEACHER_NO_SLOT = not stored
 */
COD_MUST_CHECK cod_status cod_teacher_run(cod_teacher *teacher, size_t slot);
/** Reads the teacher's task loss from a slot. Waits for the run that wrote it. NaN = there was none. */
COD_MUST_CHECK cod_status cod_teacher_loss(cod_teacher *teacher, size_t slot, double *loss);

/**
 * Mixes the last prediction into the student's target input: target = (1 - share)·target + share·prediction, of outputs
 * or, with a temperature, of class probabilities, for which the target holds logits.
 *
 * @param share  1 = replaces the target; below 1 only for teachers that mix
 */
COD_MUST_CHECK cod_status cod_teacher_give(cod_teacher *teacher, float share);

#endif

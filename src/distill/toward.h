/**
 * @file
 * The losses between the student's and the teachers' predictions: one of outputs, or one for each layer of a recipe's
 * frozen network (`distill.loss: features`).
 */
#ifndef COD_DISTILL_TOWARD_H
#define COD_DISTILL_TOWARD_H

#include "nn/readback.h"
#include "train/session.h"

/** In the caller's storage. Zeroed = no distillation. */
typedef struct cod_toward {
    struct {
        cod_value loss;
        double weight;
    } items[COD_RECIPE_MAX_FEATURES];
    size_t count;
} cod_toward;

/** The loss that `choice`, a COD_DISTILL_LOSS_…, compares outputs with. @param task the loss that `auto` stands for */
cod_loss_kind cod_toward_kind(int choice, cod_loss_kind task);

/** Adds the loss between the model's output and `teacher`, an input of its shape, to the session's graph. */
void cod_toward_add_outputs(cod_toward *toward, const cod_train_session *session, cod_value teacher,
                            cod_loss_spec spec);
/**
 * Adds the losses between the features of both in the recipe's frozen network, as the recipe compares features of
 * output and truth.
 *
 * @param spec  `kind` and `weight` are ignored: the recipe's are used
 * @return COD_ERR_ARGUMENT where the recipe has no such network
 */
COD_MUST_CHECK cod_status cod_toward_add_features(cod_toward *toward, const cod_train_session *session,
                                                  cod_value teacher, cod_loss_spec spec);

/** Queues the copies of the losses to a slot's numbers from `first` on. */
COD_MUST_CHECK cod_status cod_toward_put(const cod_toward *toward, const cod_train_session *session,
                                         cod_readback *readback, size_t slot, size_t first);
/** Reads their weighted sum from the slot. @param[out] sum NaN = they were not written */
COD_MUST_CHECK cod_status cod_toward_get(const cod_toward *toward, cod_readback *readback, size_t slot, size_t first,
                                         double *sum);

#endif

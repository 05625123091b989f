/**
 * @file
 * The losses between the student's predictions and teachers': one of outputs, or one for each layer of a recipe's frozen network
 * (`distill.loss: features`).
 */
#ifndef COD_DISTILL_TOWARD_H
#define COD_DISTILL_TOWARD_H

#include "nn/readback.h"
#include "train/session.h"

/** In the caller's storage. Zeroed = nothing is distilled. */
typedef struct cod_toward {
    struct {
        cod_value loss;
        double weight;
    } items[COD_RECIPE_MAX_FEATURES];
    size_t count;
} cod_toward;

/** What distill.loss, a COD_DISTILL_LOSS_…, compares outputs by. @param task  what `auto` stands for */
cod_loss_kind cod_toward_kind(int choice, cod_loss_kind task);

/** Adds the loss between the model's output and `teacher`, an input of its shape, to the session's graph. */
void cod_toward_add_outputs(cod_toward *toward, const cod_train_session *session, cod_value teacher,
                            cod_loss_spec spec);
/**
 * Adds those between what the recipe's frozen network makes of both, as the recipe compares it with what that makes of the truth.
 *
 * @param spec  but for `kind` and `weight`, which are the recipe's
 * @return COD_ERR_ARGUMENT where the recipe has no such network
 */
COD_MUST_CHECK cod_status cod_toward_add_features(cod_toward *toward, const cod_train_session *session,
                                                  cod_value teacher, cod_loss_spec spec);

/** Queues what brings the losses to a slot's numbers from `first` on. */
COD_MUST_CHECK cod_status cod_toward_put(const cod_toward *toward, const cod_train_session *session,
                                         cod_readback *readback, size_t slot, size_t first);
/** Their sum, each with its weight, from there. @param[out] sum  NaN = they were not put */
COD_MUST_CHECK cod_status cod_toward_get(const cod_toward *toward, cod_readback *readback, size_t slot, size_t first,
                                         double *sum);

#endif

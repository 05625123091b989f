/**
 * @file
 * The message of a run that ends because a number became NaN or infinite.
 */
#ifndef COD_TRAIN_NOT_FINITE_INTERNAL_H
#define COD_TRAIN_NOT_FINITE_INTERNAL_H

#include "train/session.h"

/**
 * Fails because of NaN or infinity in step `step`; the message names the first tensor of each set and the last
 * checkpoint before that step.
 */
COD_MUST_CHECK cod_status trainer_report_not_finite(const cod_train_session *session, const char *what, int64_t step);

#endif

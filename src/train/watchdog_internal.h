/**
 * @file
 * A thread that sees when the trainer's own thread waits for a file that does not answer, says so, and ends the process where it was
 * asked to end: a call of the system that hangs cannot be cancelled.
 */
#ifndef COD_TRAIN_WATCHDOG_INTERNAL_H
#define COD_TRAIN_WATCHDOG_INTERNAL_H

#include "train/train.h"

typedef struct trainer_watchdog trainer_watchdog;

/** Watches the calling thread, which ends it. @param request  borrowed. @param[out] watchdog  new; trainer_watchdog_end() */
COD_MUST_CHECK cod_status trainer_watchdog_begin(const cod_train_request *request, trainer_watchdog **watchdog);
/** NULL does nothing. */
void trainer_watchdog_end(trainer_watchdog *watchdog);

/** The steps begin: train.max_time counts from here. @param step  of the checkpoint gone on from; 0 = none */
void trainer_watchdog_note_start(trainer_watchdog *watchdog, int64_t step);
/** The group's checkpoint of this step is complete. */
void trainer_watchdog_note_checkpoint(trainer_watchdog *watchdog, int64_t step);

#endif

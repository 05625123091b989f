/**
 * @file
 * A thread that notices when the training thread waits for a file that does not answer. It warns, and ends the process
 * if the run was asked to end, because a hanging system call cannot be cancelled. It also ends a run that was asked to
 * end and does not come to its first step.
 */
#ifndef COD_TRAIN_WATCHDOG_INTERNAL_H
#define COD_TRAIN_WATCHDOG_INTERNAL_H

#include "train/train.h"

typedef struct trainer_watchdog trainer_watchdog;

/**
 * Starts to watch the calling thread, which must also end the watchdog. @param request borrowed. @param[out] watchdog
 * new; trainer_watchdog_end()
 */
COD_MUST_CHECK cod_status trainer_watchdog_begin(const cod_train_request *request, trainer_watchdog **watchdog);
/** NULL does nothing. */
void trainer_watchdog_end(trainer_watchdog *watchdog);

/**
 * Notes that the steps begin; train.max_time counts from here. @param step of the checkpoint from which the run
 * resumed; 0 = none
 */
void trainer_watchdog_note_start(trainer_watchdog *watchdog, int64_t step);
/** Notes that a step is done, or that there are none to do: a run that is asked to end now comes to its checkpoint. */
void trainer_watchdog_note_step(trainer_watchdog *watchdog);
/** Notes that the group's checkpoint of this step is complete. */
void trainer_watchdog_note_checkpoint(trainer_watchdog *watchdog, int64_t step);

#endif

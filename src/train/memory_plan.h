/**
 * @file
 * The parts of a session in the memory of its device. They are shown when training starts, by `codistill plan`, and if
 * the memory does not suffice.
 */
#ifndef COD_TRAIN_MEMORY_PLAN_H
#define COD_TRAIN_MEMORY_PLAN_H

#include "train/session.h"

/** Bytes of one rank. */
typedef struct cod_memory_plan {
    size_t weights, gradients, moments, average;
    cod_compile_memory programs; /**< 0 = not known yet */
    size_t plans;  /**< packed weights, partial sums and other memory that plans keep; 0 = not known yet */
    size_t beside; /**< memory allocated since the session was compiled: teachers, the exchange's copies */
    size_t free_bytes, total_bytes; /**< of the device, including other users */
} cod_memory_plan;

/** @return false if the device's memory is the host's; there is nothing to show then */
bool cod_memory_plan_read(const cod_train_session *session, cod_memory_plan *out);

enum { COD_MEMORY_PLAN_TEXT = 512 };

/** One line in MB: "weights 6.2, gradients 6.2, …: 95.3 in all; 78000.1 of 81000.0 are free". */
void cod_memory_plan_format(const cod_memory_plan *plan, char text[COD_MEMORY_PLAN_TEXT]);

/**
 * If `status` says that the device's memory did not suffice, adds to this thread's message how much each part of the
 * session needs, how much is free, and how to need less. @return status
 */
cod_status cod_memory_plan_explain(const cod_train_session *session, cod_status status);

#endif

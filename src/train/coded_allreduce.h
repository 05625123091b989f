/**
 * @file
 * An allreduce with coded messages: gradients travel as 8-bit integers in blocks that share a scale, which takes a
 * quarter of the bytes (train.allreduce_codec: int8).
 *
 * In two phases, with error feedback on both sides (Tang et al. 2021, "1-bit Adam", arXiv:2102.02888, Algorithm 1; Tang
 * et al. 2019, "DoubleSqueeze"): every rank owns a part of each bucket. All ranks send the owner their coded values of
 * that part. The owner adds them to its own values, which stay exact, and sends the coded mean to all others. It also
 * continues with the coded mean itself, so that all ranks have the same bits. What coding lost from a value is added to
 * it in the next step.
 */
#ifndef COD_TRAIN_CODED_ALLREDUCE_H
#define COD_TRAIN_CODED_ALLREDUCE_H

#include "comm/group.h"

typedef struct cod_coded_allreduce cod_coded_allreduce;

/**
 * Makes the allreduce for a group, which must outlive it.
 *
 * @param count     values of the buffer whose ranges are to be averaged
 * @param[out] out  new; cod_coded_allreduce_destroy()
 */
COD_MUST_CHECK cod_status cod_coded_allreduce_create(cod_group *group, size_t count, cod_coded_allreduce **out);
/** No average may be in progress. NULL does nothing. */
void cod_coded_allreduce_destroy(cod_coded_allreduce *allreduce);

/**
 * Averages ranges of one buffer of `count` values, as the group's own collective does: in host memory or, after
 * cod_group_use_device(), in the device's. Ranges in progress at the same time must not overlap. NaN and infinity of
 * any rank become NaN on all, with the block that they are in.
 */
cod_collective *cod_coded_allreduce_collective(cod_coded_allreduce *allreduce);

/**
 * The error feedback: summed over the ranks, the sum of all values to be averaged minus the sum of the values that were
 * averaged. State for a checkpoint, to be read and written while nothing is in progress.
 *
 * @return [count]
 */
float *cod_coded_allreduce_residual(cod_coded_allreduce *allreduce);

/** Bytes that each of `size` ranks sends, and receives, to average `count` values; they may differ by some blocks. */
double cod_coded_allreduce_sent_bytes(size_t count, int size);
/** Bytes of memory of each rank for this. */
double cod_coded_allreduce_memory_bytes(size_t count, int size);

#endif

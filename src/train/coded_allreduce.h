/**
 * @file
 * An all-reduce whose every message is coded: gradients travel as 8-bit integers in blocks that share a scale, a quarter of
 * the bytes (train.allreduce_codec: int8).
 *
 * In two phases, with error feedback on both sides (Tang et al. 2021, "1-bit Adam", arXiv:2102.02888, Algorithm 1; Tang et al.
 * 2019, "DoubleSqueeze"): of each bucket every rank owns a part. All send it their coded values of that part; it adds them to
 * its own, which stay exact, and sends all others the coded mean, which it goes on with itself: all have the same bits. What
 * coding lost of a value is added to it in the next step.
 */
#ifndef COD_TRAIN_CODED_ALLREDUCE_H
#define COD_TRAIN_CODED_ALLREDUCE_H

#include "comm/group.h"

typedef struct cod_coded_allreduce cod_coded_allreduce;

/**
 * For a group, which outlives it.
 *
 * @param count     values of the buffer whose ranges are to be averaged
 * @param[out] out  new; cod_coded_allreduce_destroy()
 */
COD_MUST_CHECK cod_status cod_coded_allreduce_create(cod_group *group, size_t count, cod_coded_allreduce **out);
/** None of its averages may be under way. NULL does nothing. */
void cod_coded_allreduce_destroy(cod_coded_allreduce *allreduce);

/**
 * Averages ranges of one buffer of `count` values, as the group's own collective does: in host memory or, after
 * cod_group_use_device(), in the device's. Ranges that are under way at one time do not overlap. NaN and infinity of
 * any rank become NaN on all, with the block that they are in.
 */
cod_collective *cod_coded_allreduce_collective(cod_coded_allreduce *allreduce);

/**
 * What is still owed: summed over the ranks, the sum of all that was to be averaged less that of what was. State for a
 * checkpoint, to be read and written while nothing is under way.
 *
 * @return [count]
 */
float *cod_coded_allreduce_residual(cod_coded_allreduce *allreduce);

/** Bytes that each of `size` ranks sends, and receives, to average `count` values; they may differ by some blocks. */
double cod_coded_allreduce_sent_bytes(size_t count, int size);
/** What each holds for it. */
double cod_coded_allreduce_memory_bytes(size_t count, int size);

#endif

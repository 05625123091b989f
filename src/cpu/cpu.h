/**
 * @file
 * The CPU backend ("cpu"): oneDNN's convolutions on NHWC views, own kernels for everything between them.
 *
 * Activations may be f32 or bf16 (accumulated in f32); parameters, statistics and their gradients are f32. Work is done when
 * its call returns: there are no queues, events or captures. One device belongs to one host thread at a time; its plans share one
 * scratch buffer, which only plan_create() grows.
 */
#ifndef COD_CPU_CPU_H
#define COD_CPU_CPU_H

#include "core/backend.h"

extern const cod_backend cod_cpu_backend;

/**
 * Times the convolution of `op` (CONV2D or one of its gradients; its views' memory is not used) alone, in the layouts that
 * oneDNN likes best: the limit that a step is measured against.
 *
 * @param[out] ms  median of `repeats` runs, after two for warming up
 */
COD_MUST_CHECK cod_status cod_cpu_bench_convolution(cod_device *device, const cod_op *op, int repeats, double *ms);

#endif

/**
 * @file
 * Peak figures of the processor, for benches: every figure of a step is compared with these, measured in the same run.
 */
#ifndef COD_CPU_BENCH_H
#define COD_CPU_BENCH_H

#include "core/backend.h"

/**
 * Arithmetic of the device's threads together, from loops that touch registers alone: multiply-and-add of COD_F32, dot
 * products of COD_BF16 into f32 (AMX tiles where oneDNN uses them) and of COD_S8 into i32, in the widest set in use.
 *
 * @param[out] gflops  the best of several runs, in 1e9 multiplications and additions a second
 * @return COD_ERR_UNSUPPORTED where the instruction set in use has no instruction for `dtype`
 */
COD_MUST_CHECK cod_status cod_cpu_bench_peak(cod_device *device, cod_dtype dtype, double *gflops);

/** Memory bandwidth of y = a + 3·b over 256 MiB in all, counting read and written bytes once; 1e9 bytes a second. */
COD_MUST_CHECK cod_status cod_cpu_bench_bandwidth(cod_device *device, double *gbytes);

/**
 * Times the convolution of `op` (CONV2D or one of its gradients; its views' memory is not used) alone, in the layouts
 * that oneDNN prefers.
 *
 * @param[out] ms  median of `repeats` runs, after two for warming up
 */
COD_MUST_CHECK cod_status cod_cpu_bench_convolution(cod_device *device, const cod_op *op, int repeats, double *ms);

#endif

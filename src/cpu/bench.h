/**
 * @file
 * Peak figures of the processor, for benches: every figure of a step is compared with these, measured in the same run.
 */
#ifndef COD_CPU_BENCH_H
#define COD_CPU_BENCH_H

#include "core/backend.h"

enum { COD_CPU_MOST_CHOICES = 9 };

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

/** How one convolution was chosen among its implementations. */
typedef struct cod_cpu_choice {
    size_t count; /**< of implementations */
    const char *names[COD_CPU_MOST_CHOICES];
    double seconds[COD_CPU_MOST_CHOICES]; /**< the least of each one's runs, on a part of the pictures */
    size_t rule, chosen;                  /**< what the rule says, and what timing made of that */
    const char *before;                   /**< what was remembered; NULL = nothing */
    int rounds, agreed;                   /**< in how many rounds the chosen one was not slower than the rule's */
    double noise;                         /**< by what share of the least time its runs took longer, on average */
    bool is_doubtful;                     /**< too much noise: it is timed again when the machine is quiet */
} cod_cpu_choice;

/**
 * What choices of convolutions (CONV2D or one of its gradients; the views' memory is not used) are remembered by: the
 * same for those that are alike in shape, types and strides, on one machine with as many threads.
 */
uint64_t cod_cpu_bench_choice_key(const cod_device *device, const cod_op *op);

/**
 * Times the implementations of a convolution anew and remembers the choice, where there are several; where there is
 * one, `count` is 1 and nothing is timed.
 */
COD_MUST_CHECK cod_status cod_cpu_bench_tune(cod_device *device, const cod_op *op, cod_cpu_choice *choice);

#endif

/**
 * @file
 * One direction of a convolution with a stride, as phases of stride 1.
 *
 * Every stride-th position of the kernel meets every stride-th pixel of x: phase p has the pixels stride·u + p, which
 * meet the positions first_k + stride·t. For output i, position t reads pixel u = i + t - pad.
 */
#ifndef COD_CPU_AXIS_INTERNAL_H
#define COD_CPU_AXIS_INTERNAL_H

#include <stdint.h>

typedef struct cpu_axis {
    int64_t first_k, taps; /**< taps may be 0 if the kernel is smaller than the stride */
    int64_t pad;
    int64_t pixels; /**< of x */
} cpu_axis;

static inline cpu_axis cpu_axis_of(int64_t pixels, int64_t kernel, int64_t pad, int64_t stride, int64_t phase)
{
    const int64_t first_k = (phase + pad) % stride;
    return (cpu_axis){.first_k = first_k,
                      .taps = kernel > first_k ? (kernel - first_k + stride - 1) / stride : 0,
                      .pad = (phase + pad) / stride,
                      .pixels = pixels > phase ? (pixels - phase + stride - 1) / stride : 0};
}

#endif

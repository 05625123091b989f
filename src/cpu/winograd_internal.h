/**
 * @file
 * Kernels of kernels/winograd4.c.inc for Winograd's F(4x4, 3x3) of f32 images; winograd.c plans with them.
 *
 * Channels are multiples of CPU_PAD.
 */
#ifndef COD_CPU_WINOGRAD_INTERNAL_H
#define COD_CPU_WINOGRAD_INTERNAL_H

#include "cpu/kernels_internal.h"

enum { CPU_WINOGRAD4_OUTPUTS = 16, CPU_WINOGRAD4_POSITIONS = 36 };

/** The sixteen pixels of a tile: y = activation(Aᵀ m A + bias) + addend, which may be y. */
typedef struct cpu_winograd4_output {
    const float *m; /**< of 36 positions */
    int64_t position_stride, channels;
    const float *bias, *slope;             /**< NULL = none */
    cpu_rows y, addend;                    /**< data NULL = nothing is added */
    int64_t pixels[CPU_WINOGRAD4_OUTPUTS]; /**< of both, line by line; -1 = outside of the image */
} cpu_winograd4_output;

typedef struct cpu_winograd4_kernels {
    int64_t panel; /**< columns that cpu_kernels.product() computes at a time */
    /** Bᵀ d B of tiles that lie beside each other; columns are [4·tiles + 2][6] pixels, positions 36. */
    void (*strip)(const cpu_winograd_strip *p);
    /** A dy Aᵀ of a tile's [4][4] pixels, from top to bottom. */
    void (*spread)(const char *const *columns, int64_t channels, char *v, int64_t position_bytes);
    void (*output)(const cpu_winograd4_output *p);
    /** G g Gᵀ of taps[3·3][channels], mirrored in both directions where `flip`. */
    void (*weights)(const float *taps, int64_t channels, bool flip, char *u, int64_t position_bytes);
    /** taps[3·3][channels] (+)= Gᵀ u G of 36 positions. */
    void (*taps)(const float *u, int64_t position_stride, int64_t channels, float *taps, bool accumulate);
} cpu_winograd4_kernels;

extern const cpu_winograd4_kernels cpu_winograd4_generic, cpu_winograd4_avx2, cpu_winograd4_avx512;

#endif

/**
 * @file
 * The vector kernels, compiled once per instruction set from one source (kernels/body.c.inc); chosen when a device is
 * opened.
 *
 * Kernels see *rows*: pixels of C channels. Per-channel parameters are f32 vectors padded to a multiple of CPU_PAD.
 */
#ifndef COD_CPU_KERNELS_INTERNAL_H
#define COD_CPU_KERNELS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CPU_PAD = 16, CPU_LANE_BLOCK = 2 * CPU_PAD };

typedef struct cpu_rows {
    char *data;     /**< NULL = absent */
    int64_t stride; /**< elements from row to row */
    bool bf16;
} cpu_rows;

/**
 * CPU_ACT_SLOPE: v > 0 ? v : slope·v, which covers none (slope 1), ReLU (0), leaky ReLU and PReLU. CPU_ACT_NONE, which
 * is faster: for the affine kernels alone.
 */
typedef enum cpu_activation { CPU_ACT_SLOPE, CPU_ACT_SIGMOID, CPU_ACT_TANH, CPU_ACT_NONE } cpu_activation;

/** Per-channel vectors of a normalisation with activation: v = (x - mean)·scale + offset. */
typedef struct cpu_affine {
    const float *mean, *scale, *offset, *slope;
} cpu_affine;

/** One sum of a separable resampling: output = sum over first … first+count-1 of weights[k]·input[index[k]]. */
typedef struct cpu_taps {
    const int32_t *first; /**< [outputs + 1], offsets into index and weights */
    const int32_t *index;
    const float *weights;
} cpu_taps;

typedef enum cpu_loss { CPU_LOSS_L1, CPU_LOSS_MSE, CPU_LOSS_CHARBONNIER, CPU_LOSS_BCE, CPU_LOSS_HINGE } cpu_loss;

/** A loss over rows: each gradient that is present (+)= factor·derivative. */
typedef struct cpu_loss_pass {
    cpu_rows prediction, target, dprediction, dtarget;
    cpu_loss kind;
    float epsilon, factor;
    bool accumulate;
} cpu_loss_pass;

/**
 * The part of a total variation that `count` elements in a row have: vertical·|x - x above| + horizontal·|x - x left|.
 * Neighbours lie `up`, … elements away from each element, or are missing where that is 0.
 */
typedef struct cpu_variation {
    cpu_rows x, dx; /**< dx, where present, (+)= factor·derivative of the whole by these elements */
    int64_t up, down, left, right;
    float vertical, horizontal, factor;
    bool accumulate;
} cpu_variation;

typedef struct cpu_optimiser {
    float lr, beta1, beta2, correction1, root_correction2; /**< corrections: 1 - beta1^t and sqrt(1 - beta2^t) */
    float epsilon, decay, momentum, grad_scale;
    bool nesterov;
} cpu_optimiser;

typedef struct cpu_window {
    int64_t x_h, x_w, y_h, y_w, channels;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
} cpu_window;

/*
 * Convolutions with few channels on one side work on *lanes* of four bytes: an f32, or two bf16 or four integers whose
 * products are summed. CPU_LANE_BF16 and `bf16` are for the sets whose `dots_bf16` is true, CPU_LANE_S8 for those with
 * `dots_s8`. Lane strides are multiples of CPU_PAD.
 */
typedef enum cpu_lane { CPU_LANE_F32, CPU_LANE_BF16, CPU_LANE_S8 } cpu_lane;

/**
 * z[row][pixel] = start[row] + sum over lines and depth of weights[line][depth][row]·lines[line][pixel
 * block][depth][pixel of it].
 *
 * Pixels lie in blocks of CPU_LANE_BLOCK, so that memory is read in order. Of CPU_LANE_S8, lines are unsigned and
 * weights signed.
 */
typedef struct cpu_narrow_project {
    const int32_t *const *lines; /**< [line_count] */
    const int32_t *weights;
    const int32_t *start; /**< [rows] of CPU_LANE_S8; zeros for the others, which do not read it */
    float *z;
    int64_t line_count, depth, rows, pixels; /**< pixels: a multiple of CPU_LANE_BLOCK */
    int64_t z_stride;
} cpu_narrow_project;

/**
 * y[pixel][c] (+)= bias[c] + sum over lines and depth of weights[line][depth][c]·(lane `depth` of x[line], from `pixel`
 * on).
 */
typedef struct cpu_narrow_expand {
    const char *x; /**< [lines] of pixels·channels elements and zeros behind; lanes need no alignment */
    const int32_t *weights;
    const float *bias; /**< NULL = none */
    cpu_rows y;
    int64_t line_bytes, weight_stride;
    int64_t pixels, channels, outputs, lines, depth;
    bool accumulate;
} cpu_narrow_expand;

/** sums[channel][tap][c] += sum over depth of narrow[channel][depth + tap]·wide[depth][c]. */
typedef struct cpu_narrow_correlate {
    const int32_t *wide;
    const char *narrow;
    float *sums;
    int64_t depth, channels, taps, wide_stride, plane_bytes;
} cpu_narrow_correlate;

/** c[row][column] (+)= sum over depth of a[row·a_row + depth·a_depth]·b[depth][column], of lanes. */
typedef struct cpu_product {
    const int32_t *a, *b;
    float *c;
    int64_t rows, depth, columns; /**< columns: a multiple of CPU_PAD */
    int64_t a_row, a_depth, b_stride, c_stride;
    bool accumulate;
} cpu_product;

/** Bᵀ d B of Winograd tiles that lie beside each other -> 16 positions of `channels` elements, whole vectors. */
typedef struct cpu_winograd_strip {
    const char *const *columns; /**< [2·tiles + 2][4] pixels, from top to bottom */
    int64_t tiles, channels;
    char *v;
    int64_t tile_bytes, position_bytes;
} cpu_winograd_strip;

/** One lane of the transforms of two tiles of bf16, or of the first alone in f32, for each channel. */
typedef struct cpu_winograd_lanes {
    const char *const *first, *const *second; /**< their columns of pixels */
    int64_t channels;
    char *v;
    int64_t position_bytes;
} cpu_winograd_lanes;

/** The four pixels of a Winograd tile: y = activation(Aᵀ m A + bias) + addend, which may be y. */
typedef struct cpu_winograd_output {
    const float *m; /**< of 16 positions */
    int64_t position_stride, channels;
    const float *bias, *slope; /**< NULL = none */
    cpu_rows y, addend;        /**< data NULL = nothing is added */
    int64_t pixels[4];         /**< of both; -1 = outside of the image */
} cpu_winograd_output;

typedef struct cpu_kernels {
    const char *name;
    bool dots_bf16, dots_s8; /**< has an instruction for products of bf16, of 8-bit integers */

    /** sums[0][c] = Σ (x - shift), sums[1][c] = Σ (x - shift)². */
    void (*moments)(cpu_rows x, int64_t pixels, int64_t channels, const float *shift, float *sums);
    void (*affine)(cpu_rows x, cpu_rows y, int64_t pixels, int64_t channels, cpu_activation act, const cpu_affine *p);
    /** y = activation(v) + b. */
    void (*affine_add)(cpu_rows x, cpu_rows b, cpu_rows y, int64_t pixels, int64_t channels, cpu_activation act,
                       const cpu_affine *p);
    /**
     * g = dy·activation'(v): sums[0] = Σ g, sums[1] = Σ g·(x - mean), and where `slopes`, of CPU_ACT_SLOPE alone,
     * sums[2] = Σ over v <= 0 of dy·v.
     */
    void (*affine_backward_sums)(cpu_rows x, cpu_rows dy, int64_t pixels, int64_t channels, cpu_activation act,
                                 bool slopes, const cpu_affine *p, float *sums);
    /** dx (+)= scale·(g - a - (x - mean)·b). */
    void (*affine_backward)(cpu_rows x, cpu_rows dy, cpu_rows dx, int64_t pixels, int64_t channels, cpu_activation act,
                            const cpu_affine *p, const float *a, const float *b, bool accumulate);
    /** x: the input (slope) or the output (smooth). sums[c] = Σ over x <= 0 of dy·x, where sums != NULL. */
    void (*activation_backward)(cpu_rows x, cpu_rows dy, cpu_rows dx, int64_t pixels, int64_t channels,
                                cpu_activation act, const float *slope, bool accumulate, float *sums);
    /** y (+)= alpha·a + beta·b. */
    void (*add)(cpu_rows a, cpu_rows b, cpu_rows y, int64_t pixels, int64_t channels, float alpha, float beta,
                bool accumulate);
    /** y[pixels][channels] = x·factor, rounded to -127 … 127; NaN becomes 0. */
    void (*quantise)(cpu_rows x, int8_t *y, int64_t pixels, int64_t channels, float factor);
    /**
     * [pixels][channels·r²] -> r² rows of `channels`, row i·r + j of pixel p at y row (i·row_step + p·r + j); for one
     * line of pixels.
     */
    void (*shuffle)(cpu_rows x, cpu_rows y, int64_t pixels, int64_t channels, int factor, int64_t row_step);
    void (*unshuffle)(cpu_rows dy, cpu_rows dx, int64_t pixels, int64_t channels, int factor, int64_t row_step,
                      bool accumulate);
    /** One output line: sums lines of x by `vertical` into buffer[x_w·channels], then pixels by `horizontal`. */
    void (*resample)(cpu_rows x, cpu_rows y, int64_t line, int64_t x_w, int64_t y_w, int64_t channels,
                     const cpu_taps *vertical, const cpu_taps *horizontal, float *buffer, bool accumulate);
    /** One output line of one image. */
    void (*pool_max)(cpu_rows x, cpu_rows y, int32_t *index, int64_t index_stride, const cpu_window *window,
                     int64_t line);
    void (*pool_average)(cpu_rows x, cpu_rows y, const cpu_window *window, int64_t line);
    /** One line of dx of one image; index NULL = average. */
    void (*pool_backward)(cpu_rows dy, const int32_t *index, int64_t index_stride, cpu_rows dx,
                          const cpu_window *window, int64_t line, bool accumulate);
    /** Returns the sum of the elements' losses. */
    double (*loss)(const cpu_loss_pass *pass, int64_t pixels, int64_t channels);
    /** Returns the sum over `count` elements from x on. */
    double (*variation)(const cpu_variation *v, int64_t count);
    double (*dot)(const float *a, const float *b, int64_t count);
    void (*sgd)(const cpu_optimiser *o, const float *grad, float *param, float *m, int64_t count);
    void (*adam)(const cpu_optimiser *o, bool decoupled, const float *grad, float *param, float *m, float *v,
                 int64_t count);
    void (*narrow_project)(const cpu_narrow_project *p, cpu_lane lane);
    /** y[c][pixel] = sum over taps of z[c·taps + tap][pixel + tap]; whole vectors are read and written. */
    void (*narrow_shift_add)(const float *z, int64_t z_stride, int64_t taps, int64_t channels, float *y,
                             int64_t y_stride, int64_t pixels);
    void (*narrow_expand)(const cpu_narrow_expand *p, bool bf16);
    void (*narrow_correlate)(const cpu_narrow_correlate *p, bool bf16);
    /**
     * x[pixels][row_bytes] -> lanes[depth][pixels], zeros up to lane_stride pixels; all ^ `flip`, which makes signed
     * bytes unsigned.
     */
    void (*lanes_spread)(const char *x, int64_t pixel_bytes, int64_t pixels, int64_t row_bytes, int32_t flip,
                         int32_t *lanes, int64_t lane_stride);
    /** x[pixels][channels] -> lanes[pixels or pairs of them][channels], zeros up to lane_stride channels. */
    void (*lanes_pair)(const char *x, int64_t pixel_bytes, int64_t pixels, int64_t channels, bool bf16, int32_t *lanes,
                       int64_t lane_stride);
    void (*product)(const cpu_product *p, bool bf16);
    void (*winograd_strip)(const cpu_winograd_strip *p, bool bf16);
    /** Bᵀ d B, or where `gradient` A dy Aᵀ of columns of two pixels. */
    void (*winograd_lanes)(const cpu_winograd_lanes *p, bool gradient, bool bf16);
    void (*winograd_output)(const cpu_winograd_output *p);
    /** G g Gᵀ of taps[3·3][channels], mirrored in both directions where `flip`. */
    void (*winograd_weights)(const float *taps, int64_t channels, bool flip, bool bf16, char *u,
                             int64_t position_bytes);
    /** taps[3·3][channels] (+)= Gᵀ u G of 16 positions. */
    void (*winograd_taps)(const float *u, int64_t position_stride, int64_t channels, float *taps, bool accumulate);
    void (*ema)(const float *param, float *ema, float decay, int64_t count);
} cpu_kernels;

extern const cpu_kernels cpu_kernels_generic, cpu_kernels_avx2, cpu_kernels_avx512, cpu_kernels_avx512_bf16;

#endif

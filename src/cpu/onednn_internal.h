/**
 * @file
 * What the backend uses of oneDNN: convolutions of NHWC images, and products of matrices.
 *
 * Weights of convolutions are kept in the layout that oneDNN prefers ("packed"). A forward convolution whose x is s8
 * has s8 weights and multiplies its sums, bias included, with a factor for each output, which is part of it: runtime
 * factors make it 2 % slower.
 */
#ifndef COD_CPU_ONEDNN_INTERNAL_H
#define COD_CPU_ONEDNN_INTERNAL_H

#include "core/backend.h"
#include "cpu/pack_internal.h"

typedef struct cpu_onednn cpu_onednn;
typedef struct cpu_conv cpu_conv;

typedef enum cpu_conv_direction {
    CPU_CONV_FORWARD,
    CPU_CONV_BACKWARD_DATA,
    CPU_CONV_BACKWARD_WEIGHTS
} cpu_conv_direction;

typedef struct cpu_image {
    cod_shape shape;
    int64_t pixel_stride;
    cod_dtype dtype;
    bool any_layout; /**< for benches: not NHWC but the layout that oneDNN prefers */
} cpu_image;

/** x and y are the forward convolution's input and output in every direction. */
typedef struct cpu_conv_problem {
    cpu_conv_direction direction;
    cpu_image x, y;
    int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    bool bias;                 /**< FORWARD: added; BACKWARD_WEIGHTS: its gradient is computed */
    bool sum;                  /**< FORWARD only: adds to y before the activation */
    cod_activation activation; /**< FORWARD only; not PRELU */
    float leak;
    const float *factors; /**< [O] where x is s8; not kept */
    int lanes;            /**< how many threads may execute it at once */
} cpu_conv_problem;

/** Properties of a created convolution. */
typedef struct cpu_conv_info {
    size_t packed_bytes;  /**< of the weights or their gradient */
    size_t scratch_bytes; /**< for one lane */
    size_t x_bytes, y_bytes;
    bool fast; /**< not one of oneDNN's reference implementations */
    const char *implementation;
} cpu_conv_info;

/** Instruction sets, each including those before it. */
typedef enum cpu_isa {
    CPU_ISA_GENERIC,
    CPU_ISA_AVX2,
    CPU_ISA_AVX512,
    CPU_ISA_AVX512_BF16,
    CPU_ISA_AMX /**< used by oneDNN and tiles.c; others take AVX512-BF16 */
} cpu_isa;

const char *cpu_isa_name(cpu_isa isa);

/** Keeps oneDNN from using wider sets; fails once it has made code, and overrides its own ONEDNN_MAX_CPU_ISA. */
COD_MUST_CHECK cod_status cpu_onednn_limit(cpu_isa isa);
/** The widest set that oneDNN may use. */
cpu_isa cpu_onednn_isa(void);
/**
 * Whether oneDNN may use a set that sums products of 8-bit integers exactly; without one, it halves weights to keep
 * 16-bit sums in range.
 */
bool cpu_onednn_has_int8(void);

COD_MUST_CHECK cod_status cpu_onednn_create(cpu_onednn **out);
void cpu_onednn_destroy(cpu_onednn *onednn);
/** Such as "oneDNN 2.6.3". */
void cpu_onednn_describe(char *text, size_t bytes);

/** Fails with COD_ERR_UNSUPPORTED where oneDNN has no such convolution on this processor. `onednn` is borrowed. */
COD_MUST_CHECK cod_status cpu_conv_create(cpu_onednn *onednn, const cpu_conv_problem *problem, cpu_conv **out);
void cpu_conv_destroy(cpu_conv *conv);
cpu_conv_info cpu_conv_get_info(const cpu_conv *conv);

/**
 * The layout of packed weights, for cpu_pack(); not for BACKWARD_WEIGHTS, and not where x is s8.
 *
 * @param[out] out  new; cod_aligned_free()
 */
COD_MUST_CHECK cod_status cpu_conv_get_packing(const cpu_conv *conv, cpu_packing **out);
/** Where x is s8: whole numbers in f32 OHWI -> packed weights and the sums that oneDNN keeps beside them. */
COD_MUST_CHECK cod_status cpu_conv_pack_s8(cpu_conv *conv, const float *weights, void *packed);
/** packed gradient -> f32 OHWI, added to it where `accumulate`; for BACKWARD_WEIGHTS only. */
COD_MUST_CHECK cod_status cpu_conv_unpack(cpu_conv *conv, const void *packed, float *grad, bool accumulate);

/** Runs it in the calling thread's OpenMP team, or alone where the caller is in a parallel region. NULL = absent. */
COD_MUST_CHECK cod_status cpu_conv_execute(cpu_conv *conv, int lane, void *x, void *packed, float *bias, void *y,
                                           void *scratch);

/** c[rows][columns] (+)= Σ over depth of a[depth][row]·b[depth][column]; c is f32 and dense. */
typedef struct cpu_matmul_problem {
    int64_t rows, depth, columns;
    int64_t a_stride, b_stride; /**< elements from one line of depth to the next */
    cod_dtype dtype;            /**< of a and b: F32 or BF16 */
    bool accumulate;
} cpu_matmul_problem;

typedef struct cpu_matmul cpu_matmul;

/** @param[out] out  new; cpu_matmul_destroy() */
COD_MUST_CHECK cod_status cpu_matmul_create(cpu_onednn *onednn, const cpu_matmul_problem *problem, cpu_matmul **out);
/** NULL is fine. */
void cpu_matmul_destroy(cpu_matmul *matmul);
size_t cpu_matmul_scratch_bytes(const cpu_matmul *matmul);
/** Runs it in the calling thread's OpenMP team, of as many threads as when it was created. */
COD_MUST_CHECK cod_status cpu_matmul_execute(cpu_matmul *matmul, void *a, void *b, float *c, void *scratch);

#endif

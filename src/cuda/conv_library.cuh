/**
 * @file
 * What plans on libraries need in addition: weights and biases rounded to bf16, and bias gradients that no library
 * computes.
 */
#ifndef COD_CUDA_CONV_LIBRARY_CUH
#define COD_CUDA_CONV_LIBRARY_CUH

#include "cuda/view.cuh"

/** db = the sum of dy over its pixels [+ db], in an order that depends on shapes alone. */
struct library_bias {
    cuda_view dy;
    float *db; /**< NULL = not computed */
    bool accumulate;
    float *partials; /**< [blocks][channels] */
    int64_t blocks;
};

/** library_bias.blocks for a dy of that many pixels. */
int64_t library_bias_blocks(const cod_device *device, int64_t pixels);
COD_MUST_CHECK cod_status library_bias_run(cod_device *device, const library_bias &bias, cudaStream_t stream);

/** A plan's memory that the library does not own. */
struct library_parts {
    void *workspace;          /**< NULL = the library needs none */
    uint16_t *weights, *bias; /**< copies that plans_prepare() rounds; NULL = read in their own type */
    library_bias gradient;    /**< of a weight gradient's op; zeros where the library computes it */
    bool library_sums;        /**< set by the caller: the library computes the bias gradient */
};

/**
 * Gives the plan its memory, and its rounded weights (rounded.cuh).
 *
 * @param weights, bias  tensors that the library reads in bf16; NULL = none
 * @param[in,out] out    zeros on entry, except `library_sums`
 */
COD_MUST_CHECK cod_status library_parts_create(cod_plan *plan, size_t workspace_bytes, const cod_view *weights,
                                               const cod_view *bias, library_parts *out);

#endif

/**
 * @file
 * What plans on libraries need beside the library: weights and biases rounded to bf16, and the gradients of biases.
 */
#ifndef COD_CUDA_CONV_LIBRARY_CUH
#define COD_CUDA_CONV_LIBRARY_CUH

#include "cuda/view.cuh"

/** db = the sum of dy over its pixels [+ db], in an order that depends on shapes alone. */
struct library_bias {
    cuda_view dy;
    float *db; /**< NULL = none is wanted */
    bool accumulate;
    float *partials; /**< [blocks][channels] */
    int64_t blocks;
};

/** `blocks` for dy of that many pixels. */
int64_t library_bias_blocks(const cod_device *device, int64_t pixels);
COD_MUST_CHECK cod_status library_bias_run(cod_device *device, const library_bias &bias, cudaStream_t stream);

/** What a plan has beside the library's own. */
struct library_parts {
    void *workspace;          /**< NULL = the library wants none */
    uint16_t *weights, *bias; /**< rounded, which plans_prepare() does; NULL = read as they are */
    library_bias gradient;    /**< of a weight gradient's op; zeros where the library sums it */
    bool library_sums;        /**< set by the caller: the library sums the bias gradient */
};

/**
 * Gives the plan its memory, and its rounded weights (rounded.cuh).
 *
 * @param weights, bias  that the library reads in bf16; NULL = none
 * @param[in,out] out    zeros before, but for `library_sums`
 */
COD_MUST_CHECK cod_status library_parts_create(cod_plan *plan, size_t workspace_bytes, const cod_view *weights,
                                               const cod_view *bias, library_parts *out);

#endif

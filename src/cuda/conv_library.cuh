/**
 * @file
 * What plans on libraries need beside the library: weights and biases rounded to bf16, and the gradients of biases.
 */
#ifndef COD_CUDA_CONV_LIBRARY_CUH
#define COD_CUDA_CONV_LIBRARY_CUH

#include "cuda/view.cuh"

/** A dense copy in bf16 of a view in f32. */
COD_MUST_CHECK cod_status library_round(const cod_device *device, cudaStream_t stream, const cuda_view &from,
                                        uint16_t *to);

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

#endif

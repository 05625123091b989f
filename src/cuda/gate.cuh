/**
 * @file
 * ReLU's gradient behind a product of a library: by a mask that the library reads, or by a kernel of its own.
 */
#ifndef COD_CUDA_GATE_CUH
#define COD_CUDA_GATE_CUH

#include "cuda/conv.cuh"

/** target {rows, C} *= y > 0 ? 1 : leak; a leak of 0 gives 0, whatever was there, as libraries do and PyTorch does */
struct cuda_gate {
    conv_image y, target;
    int64_t rows;
    float leak;
    /**
     * [rows][leading / 8] where y > 0, bit c % 8 of byte c / 8 for channel c: the mask of CUBLASLT_EPILOGUE_DRELU,
     * which counts columns first, in bits. Bits past the last channel are 0.
     */
    unsigned char *bits;
    int64_t leading; /**< bits, a multiple of 128 */
};

/** Of a linear layer's views {N,1,1,C}, without bits. */
cuda_gate cuda_gate_of(const cod_view *y, const cod_view *target, float leak);
/** Bytes of the mask. */
size_t cuda_gate_bytes(const cuda_gate &gate);
/** Makes the mask of y. */
COD_MUST_CHECK cod_status cuda_gate_mask(cod_device *device, const cuda_gate &gate, cudaStream_t stream);
/** Multiplies the target, in place. */
COD_MUST_CHECK cod_status cuda_gate_apply(cod_device *device, const cuda_gate &gate, cudaStream_t stream);

#endif

/**
 * @file
 * Linear layers as cuBLASLt's matrix products. Only where COD_HAVE_CUBLASLT is set.
 *
 * cuBLASLt counts columns first, so our matrices [rows, C] are its matrices of C rows with the distance of our rows
 * as leading dimension: y = x wᵀ is yᵀ = w xᵀ there.
 */
#ifndef COD_CUDA_CUBLASLT_CUH
#define COD_CUDA_CUBLASLT_CUH

#include "cuda/library.cuh"
#include "cuda/tuner.cuh"

/** A matrix as cuBLASLt sees it, before it is transposed. */
struct linear_matrix {
    int64_t rows, columns, leading;
    cod_dtype dtype;
    const void *data;
    bool transposed;
};

/** d = a·b [+ d], with d's bias and ReLU, or the sums of b's columns. What an op is, without a device. */
struct linear_product {
    linear_matrix a, b, d;
    bool accumulate, relu;
    bool gated; /**< a data gradient with ReLU's gradient behind it: it multiplies d by the derivative, */
    /** by this mask of cuda_gate, whose address is set later; NULL = the library leaves that to others */
    const void *mask;
    int64_t mask_leading;
    bool packed;       /**< the weights are a dense copy in bf16, whose address is set later */
    bool rounded_bias; /**< so is the bias */
    const float *bias; /**< NULL = none */
    /** Where a weight gradient's db lies, which the library can sum in its product. NULL = none, or one to add to. */
    float *bias_gradient;
    bool sums_bias; /**< the library sums it; set later */
};

/** Fails with COD_ERR_UNSUPPORTED where cuBLASLt cannot do the op: types or activation. */
COD_MUST_CHECK cod_status linear_describe(const cod_op *op, linear_product *out);

/** cuBLASLt's descriptors of a product. */
struct linear_descriptors {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
};

/** @param bias  its address; it must be set where the product has one */
COD_MUST_CHECK cod_status linear_descriptors_create(const cublaslt_calls *calls, const linear_product *product,
                                                    const void *bias, linear_descriptors *out);
void linear_descriptors_destroy(const cublaslt_calls *calls, linear_descriptors *descriptors);

#endif

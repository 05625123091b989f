#include "cuda/library.cuh"

#ifdef COD_HAVE_CUBLASLT
#include "cuda/conv_plan.cuh"
#include "cuda/cublaslt.cuh"

#include "cuda/view.cuh"

static linear_matrix matrix_of(const cod_view *view, bool transposed)
{
    return {view->shape.c, view->shape.n, view->pixel_stride, view->dtype, cuda_view_of(view).data, transposed};
}

/** Weights in the activations' type. */
static linear_matrix weights_of(const cod_view *w, cod_dtype dtype, bool transposed)
{
    linear_matrix out = matrix_of(w, transposed);
    if (dtype != w->dtype) {
        out.leading = out.rows;
        out.dtype = dtype;
        out.data = nullptr;
    }
    return out;
}

static cod_status unfit(const char *why)
{
    return cod_fail(COD_ERR_UNSUPPORTED, "not by cuBLASLt: %s", why);
}

static cod_status describe_forward(const cod_op *op, linear_product *out)
{
    const cod_view *x = &op->inputs[0], *w = &op->inputs[1], *y = &op->outputs[0];
    if (op->attr.activation != COD_ACT_NONE && op->attr.activation != COD_ACT_RELU)
        return unfit("its activation is not ReLU");
    if (x->dtype == COD_F32 && y->dtype != COD_F32)
        return unfit("it reads f32 and writes bf16");
    out->a = weights_of(w, x->dtype, true);
    out->b = matrix_of(x, false);
    out->d = matrix_of(y, false);
    out->relu = op->attr.activation == COD_ACT_RELU;
    out->packed = x->dtype != w->dtype;
    out->bias = cuda_floats_of(&op->inputs[2]);
    out->rounded_bias = out->bias != nullptr && y->dtype == COD_BF16;
    return COD_OK;
}

cod_status linear_describe(const cod_op *op, linear_product *out)
{
    *out = {};
    out->accumulate = op->accumulate && op->kind != COD_OP_LINEAR;
    if (op->kind == COD_OP_LINEAR)
        return describe_forward(op, out);
    if (op->kind == COD_OP_LINEAR_BACKWARD_DATA) {
        const cod_view *dy = &op->inputs[0], *w = &op->inputs[1], *dx = &op->outputs[0];
        if (dy->dtype == COD_F32 && dx->dtype != COD_F32)
            return unfit("it reads f32 and writes bf16");
        out->a = weights_of(w, dy->dtype, false);
        out->b = matrix_of(dy, false);
        out->d = matrix_of(dx, false);
        out->packed = dy->dtype != w->dtype;
        out->gated = op->inputs[CONV_GATE].buffer != nullptr;
        return COD_OK;
    }
    if (op->kind != COD_OP_LINEAR_BACKWARD_WEIGHTS)
        return unfit("it is no linear layer");
    if (op->inputs[0].dtype != op->inputs[1].dtype)
        return unfit("x and dy have two types");
    out->a = matrix_of(&op->inputs[0], false);
    out->b = matrix_of(&op->inputs[1], true);
    out->d = matrix_of(&op->outputs[0], false);
    out->bias_gradient = op->accumulate ? nullptr : cuda_floats_of(&op->outputs[1]);
    return COD_OK;
}

/* Descriptors. */

static cudaDataType_t type_of(cod_dtype dtype)
{
    return dtype == COD_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cod_status create_layout(const cublaslt_calls *calls, const linear_matrix *matrix, cublasLtMatrixLayout_t *out)
{
    return COD_CUBLASLT(calls,
                        cublasLtMatrixLayoutCreate(out, type_of(matrix->dtype), static_cast<uint64_t>(matrix->rows),
                                                   static_cast<uint64_t>(matrix->columns), matrix->leading));
}

template <typename T>
static cod_status set(const cublaslt_calls *calls, cublasLtMatmulDesc_t operation,
                      cublasLtMatmulDescAttributes_t attribute, T value)
{
    return COD_CUBLASLT(calls, cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}

static cod_status set_epilogue(const cublaslt_calls *calls, const linear_product *product, const void *bias,
                               cublasLtMatmulDesc_t operation)
{
    const bool biased = product->bias != nullptr;
    if (product->mask != nullptr) {
        COD_TRY(set(calls, operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU));
        COD_TRY(set(calls, operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product->mask_leading));
        return set(calls, operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product->mask);
    }
    if (product->sums_bias) { /* in the type of d, which is f32 */
        COD_TRY(set(calls, operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB));
        return set(calls, operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product->bias_gradient);
    }
    const cublasLtEpilogue_t epilogue = biased ? product->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS
                                        : product->relu ? CUBLASLT_EPILOGUE_RELU
                                                        : CUBLASLT_EPILOGUE_DEFAULT;
    COD_TRY(set(calls, operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    if (!biased)
        return COD_OK;
    COD_TRY(
        set(calls, operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, product->rounded_bias ? CUDA_R_16BF : CUDA_R_32F));
    return set(calls, operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

static cod_status create_all(const cublaslt_calls *calls, const linear_product *product, const void *bias,
                             linear_descriptors *out)
{
    const cublasOperation_t of_a = product->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t of_b = product->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    COD_TRY(COD_CUBLASLT(calls, cublasLtMatmulDescCreate(&out->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    COD_TRY(set(calls, out->operation, CUBLASLT_MATMUL_DESC_TRANSA, of_a));
    COD_TRY(set(calls, out->operation, CUBLASLT_MATMUL_DESC_TRANSB, of_b));
    COD_TRY(set_epilogue(calls, product, bias, out->operation));
    COD_TRY(create_layout(calls, &product->a, &out->a));
    COD_TRY(create_layout(calls, &product->b, &out->b));
    return create_layout(calls, &product->d, &out->d);
}

cod_status linear_descriptors_create(const cublaslt_calls *calls, const linear_product *product, const void *bias,
                                     linear_descriptors *out)
{
    *out = {};
    const cod_status status = create_all(calls, product, bias, out);
    if (status != COD_OK)
        linear_descriptors_destroy(calls, out);
    return status;
}

void linear_descriptors_destroy(const cublaslt_calls *calls, linear_descriptors *descriptors)
{
    if (descriptors->operation != nullptr)
        calls->cublasLtMatmulDescDestroy(descriptors->operation);
    if (descriptors->a != nullptr)
        calls->cublasLtMatrixLayoutDestroy(descriptors->a);
    if (descriptors->b != nullptr)
        calls->cublasLtMatrixLayoutDestroy(descriptors->b);
    if (descriptors->d != nullptr)
        calls->cublasLtMatrixLayoutDestroy(descriptors->d);
    *descriptors = {};
}

#endif

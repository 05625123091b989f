/**
 * @file
 * NVIDIA's libraries cuDNN and cuBLASLt (NCCL: nccl.cuh), which are loaded when they are first needed: a program that
 * has this backend also starts where they are missing. COD_HAVE_CUDNN and COD_HAVE_CUBLASLT are set where the build
 * found their headers.
 */
#ifndef COD_CUDA_LIBRARY_CUH
#define COD_CUDA_LIBRARY_CUH

#include "cuda/cuda_internal.h"

/**
 * Opens the first of the names that is there, ended by NULL: as the system finds it, then in `folder`, which is beside
 * the headers of the build, where Python's wheels have it; "" = nowhere else. @param[out] why  where the result is NULL
 */
void *library_open(const char *const *names, const char *folder, char *why, size_t bytes);
/** NULL where it lacks the name; the first such is told. */
void *library_symbol(void *handle, const char *name, char *why, size_t bytes);

template <typename F> static bool library_find(void *handle, const char *name, F *function, char *why, size_t bytes)
{
    *function = reinterpret_cast<F>(library_symbol(handle, name, why, bytes));
    return *function != nullptr;
}

#ifdef COD_HAVE_CUDNN
#include <cudnn.h>
#define CUDNN_CALLS(X)                                                                                                 \
    X(cudnnGetVersion)                                                                                                 \
    X(cudnnGetErrorString)                                                                                             \
    X(cudnnCreate)                                                                                                     \
    X(cudnnDestroy)                                                                                                    \
    X(cudnnSetStream)                                                                                                  \
    X(cudnnBackendCreateDescriptor)                                                                                    \
    X(cudnnBackendDestroyDescriptor)                                                                                   \
    X(cudnnBackendSetAttribute)                                                                                        \
    X(cudnnBackendGetAttribute)                                                                                        \
    X(cudnnBackendFinalize)                                                                                            \
    X(cudnnBackendExecute)

/** cuDNN's functions under their own names; pointers are NULL where it is absent. */
struct cudnn_calls {
    char version[32];
    char absent[256]; /**< why, else empty */
#define CUDNN_POINTER(name) decltype(&::name) name;
    CUDNN_CALLS(CUDNN_POINTER)
#undef CUDNN_POINTER
};

/** Loads it at the first call. From any thread. */
const cudnn_calls *cudnn_library();

/** Of an expression that calls `calls->…`: its status. */
#define COD_CUDNN(calls, call) cudnn_status((calls), (calls)->call, #call, __FILE__, __LINE__)
cod_status cudnn_status(const cudnn_calls *calls, cudnnStatus_t status, const char *call, const char *file, int line);
#endif

#ifdef COD_HAVE_CUBLASLT
#include <cublasLt.h>
#define CUBLASLT_CALLS(X)                                                                                              \
    X(cublasLtGetVersion)                                                                                              \
    X(cublasLtGetStatusString)                                                                                         \
    X(cublasLtCreate)                                                                                                  \
    X(cublasLtDestroy)                                                                                                 \
    X(cublasLtMatmul)                                                                                                  \
    X(cublasLtMatmulDescCreate)                                                                                        \
    X(cublasLtMatmulDescDestroy)                                                                                       \
    X(cublasLtMatmulDescSetAttribute)                                                                                  \
    X(cublasLtMatrixLayoutCreate)                                                                                      \
    X(cublasLtMatrixLayoutDestroy)                                                                                     \
    X(cublasLtMatmulPreferenceCreate)                                                                                  \
    X(cublasLtMatmulPreferenceDestroy)                                                                                 \
    X(cublasLtMatmulPreferenceSetAttribute)                                                                            \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    X(cublasLtMatmulAlgoConfigGetAttribute)

struct cublaslt_calls {
    char version[32];
    char absent[256];
#define CUBLASLT_POINTER(name) decltype(&::name) name;
    CUBLASLT_CALLS(CUBLASLT_POINTER)
#undef CUBLASLT_POINTER
};

const cublaslt_calls *cublaslt_library();

#define COD_CUBLASLT(calls, call) cublaslt_status((calls), (calls)->call, #call, __FILE__, __LINE__)
cod_status cublaslt_status(const cublaslt_calls *calls, cublasStatus_t status, const char *call, const char *file,
                           int line);
#endif

/** What is loaded of both, such as "cuDNN 9.19.0, cuBLASLt 13.1.0"; loads them. */
void cuda_libraries_describe(char *text, size_t bytes);

#endif

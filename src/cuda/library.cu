#include "cuda/library.cuh"

#include <cstdio>

#include <dlfcn.h>

void *library_open(const char *const *names, const char *folder, char *why, size_t bytes)
{
    char path[1024];
    for (int k = 0; k < 2; k++) {
        for (const char *const *name = names; *name != nullptr; name++) {
            if (k == 1 && folder[0] == '\0')
                continue;
            snprintf(path, sizeof path, "%s%s%s", k == 1 ? folder : "", k == 1 ? "/" : "", *name);
            void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (handle != nullptr)
                return handle;
        }
    }
    snprintf(why, bytes, "%s was not found; LD_LIBRARY_PATH says where to look", names[0]);
    return nullptr;
}

void *library_symbol(void *handle, const char *name, char *why, size_t bytes)
{
    void *symbol = dlsym(handle, name);
    if (symbol == nullptr && why[0] == '\0')
        snprintf(why, bytes, "it lacks %s", name);
    return symbol;
}

#ifdef COD_HAVE_CUDNN
static cudnn_calls cudnn_load()
{
    static const char *const names[] = {"libcudnn.so.9", nullptr};
    cudnn_calls calls = {};
    void *handle = library_open(names, COD_CUDNN_FOLDER, calls.absent, sizeof calls.absent);
    if (handle == nullptr)
        return calls;
    bool whole = true;
#define CUDNN_FIND(name) whole &= library_find(handle, #name, &calls.name, calls.absent, sizeof calls.absent);
    CUDNN_CALLS(CUDNN_FIND)
#undef CUDNN_FIND
    if (!whole)
        return calls;
    const size_t version = calls.cudnnGetVersion();
    snprintf(calls.version, sizeof calls.version, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    if (version / 10000 != CUDNN_MAJOR)
        snprintf(calls.absent, sizeof calls.absent, "version %s was found; %d.x is needed", calls.version, CUDNN_MAJOR);
    return calls;
}

const cudnn_calls *cudnn_library()
{
    static const cudnn_calls calls = cudnn_load();
    return &calls;
}

cod_status cudnn_status(const cudnn_calls *calls, cudnnStatus_t status, const char *call, const char *file, int line)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return COD_OK;
    cod_status code = COD_ERR_BACKEND;
    if (status == CUDNN_STATUS_ALLOC_FAILED)
        code = COD_ERR_MEMORY;
    else if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000)
        code = COD_ERR_UNSUPPORTED;
    return cod_fail_at(code, file, line, "cudnn", "cuDNN: %s: %s", call, calls->cudnnGetErrorString(status));
}
#endif

#ifdef COD_HAVE_CUBLASLT
static cublaslt_calls cublaslt_load()
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", nullptr};
    enum { LEAST_MAJOR = 12, MOST_MAJOR = 13 };
    cublaslt_calls calls = {};
    void *handle = library_open(names, COD_CUBLASLT_FOLDER, calls.absent, sizeof calls.absent);
    if (handle == nullptr)
        return calls;
    bool whole = true;
#define CUBLASLT_FIND(name) whole &= library_find(handle, #name, &calls.name, calls.absent, sizeof calls.absent);
    CUBLASLT_CALLS(CUBLASLT_FIND)
#undef CUBLASLT_FIND
    if (!whole)
        return calls;
    const size_t version = calls.cublasLtGetVersion();
    const size_t major = version / 10000;
    snprintf(calls.version, sizeof calls.version, "%zu.%zu.%zu", major, version / 100 % 100, version % 100);
    if (major < LEAST_MAJOR || major > MOST_MAJOR)
        snprintf(calls.absent, sizeof calls.absent, "version %s was found; %d.x or %d.x is needed", calls.version,
                 LEAST_MAJOR, MOST_MAJOR);
    return calls;
}

const cublaslt_calls *cublaslt_library()
{
    static const cublaslt_calls calls = cublaslt_load();
    return &calls;
}

cod_status cublaslt_status(const cublaslt_calls *calls, cublasStatus_t status, const char *call, const char *file,
                           int line)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return COD_OK;
    cod_status code = COD_ERR_BACKEND;
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        code = COD_ERR_MEMORY;
    else if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
        code = COD_ERR_UNSUPPORTED;
    return cod_fail_at(code, file, line, "cublaslt", "cuBLASLt: %s: %s", call, calls->cublasLtGetStatusString(status));
}
#endif

/** "NAME VERSION", or "no NAME (why)". */
static void describe_library(char *text, size_t bytes, const char *name, const char *version, const char *absent)
{
    if (absent[0] == '\0')
        snprintf(text, bytes, "%.16s %.31s", name, version);
    else
        snprintf(text, bytes, "no %.16s (%.255s)", name, absent);
}

void cuda_libraries_describe(char *text, size_t bytes)
{
    char dnn[320], blas[320];
#ifdef COD_HAVE_CUDNN
    describe_library(dnn, sizeof dnn, "cuDNN", cudnn_library()->version, cudnn_library()->absent);
#else
    describe_library(dnn, sizeof dnn, "cuDNN", "", "built without its headers");
#endif
#ifdef COD_HAVE_CUBLASLT
    describe_library(blas, sizeof blas, "cuBLASLt", cublaslt_library()->version, cublaslt_library()->absent);
#else
    describe_library(blas, sizeof blas, "cuBLASLt", "", "built without its headers");
#endif
    snprintf(text, bytes, "%s, %s", dnn, blas);
}

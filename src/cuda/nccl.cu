#include "cuda/nccl.cuh"

#include "cuda/library.cuh"
#include "cuda/warp.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
#include "core/collective.h"
}

#ifndef COD_NCCL_FOLDER
#define COD_NCCL_FOLDER ""
#endif

static nccl_calls load()
{
    static const char *const names[] = {"libnccl.so.2", nullptr};
    nccl_calls calls = {};
    int version = 0;
    void *handle = library_open(names, COD_NCCL_FOLDER, calls.absent, sizeof calls.absent);
    if (handle == nullptr)
        return calls;
    bool whole = true;
    auto find = [&](const char *name, auto *function) {
        whole &= library_find(handle, name, function, calls.absent, sizeof calls.absent);
    };
    find("ncclGetVersion", &calls.get_version);
    find("ncclGetUniqueId", &calls.get_unique_id);
    find("ncclCommInitRank", &calls.comm_init_rank);
    find("ncclCommDestroy", &calls.comm_destroy);
    find("ncclCommAbort", &calls.comm_abort);
    find("ncclCommGetAsyncError", &calls.comm_get_async_error);
    find("ncclAllReduce", &calls.all_reduce);
    find("ncclGetErrorString", &calls.get_error_string);
    find("ncclGetLastError", &calls.get_last_error);
    if (!whole)
        return calls;
    const nccl_result result = calls.get_version(&version);
    if (result != NCCL_SUCCESS) {
        snprintf(calls.absent, sizeof calls.absent, "libnccl.so.2 cannot tell its version: %s",
                 calls.get_error_string(result));
        return calls;
    }
    snprintf(calls.version, sizeof calls.version, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return calls;
}

const nccl_calls *nccl_library()
{
    static const nccl_calls calls = load();
    return &calls;
}

static cod_status failed(const nccl_calls *calls, const nccl_comm *comm, nccl_result result, const char *doing)
{
    const char *more = calls->get_last_error(const_cast<nccl_comm *>(comm));
    return cod_fail(COD_ERR_BACKEND, "NCCL %s: cannot %s: %s%s%s", calls->version, doing,
                    calls->get_error_string(result), more != nullptr && more[0] != '\0' ? ": " : "",
                    more != nullptr ? more : "");
}

/** NCCL, or why there is none. */
static cod_status find_library(const nccl_calls **out)
{
    *out = nccl_library();
    return (*out)->absent[0] == '\0' ? COD_OK : cod_fail(COD_ERR_UNSUPPORTED, "no NCCL: %s", (*out)->absent);
}

cod_status nccl_name(cod_device *, unsigned char name[COD_COLLECTIVE_NAME_BYTES])
{
    const nccl_calls *calls;
    nccl_id id = {};
    COD_TRY(find_library(&calls));
    if (name == nullptr)
        return COD_OK;
    const nccl_result result = calls->get_unique_id(&id);
    if (result != NCCL_SUCCESS)
        return failed(calls, nullptr, result, "begin");
    static_assert(sizeof id == COD_COLLECTIVE_NAME_BYTES, "a name is an id of NCCL");
    memcpy(name, id.bytes, sizeof id);
    return COD_OK;
}

struct nccl_collective;

/** An average under way; as others see it, the cod_reduction. Kept for the next one when it is done. */
struct nccl_reduction {
    nccl_collective *collective;
    cudaEvent_t done;
    nccl_reduction *next;
};

struct nccl_collective {
    cod_collective base;
    const nccl_calls *calls;
    cod_device *device;
    nccl_comm *comm;
    cudaStream_t stream;
    nccl_reduction *idle;
};

enum { SCALE_THREADS = 256, SCALE_BLOCKS = 64 };

struct scale_work {
    float *values;
    int64_t count;
    float factor;
};

/** The sum becomes the average, by one rounding more, as averages in host memory have it. */
__global__ void __launch_bounds__(SCALE_THREADS) scale_kernel(scale_work work)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * SCALE_THREADS;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * SCALE_THREADS + threadIdx.x; i < work.count; i += step)
        work.values[i] *= work.factor;
}

static cod_status check(nccl_collective *c)
{
    nccl_result error = NCCL_SUCCESS;
    const nccl_result result = c->calls->comm_get_async_error(c->comm, &error);
    if (result == NCCL_SUCCESS && (error == NCCL_SUCCESS || error == NCCL_IN_PROGRESS))
        return COD_OK;
    return failed(c->calls, c->comm, result != NCCL_SUCCESS ? result : error, "average gradients");
}

static cod_status take_reduction(nccl_collective *c, nccl_reduction **out)
{
    nccl_reduction *r = c->idle;
    if (r != nullptr) {
        c->idle = r->next;
        *out = r;
        return COD_OK;
    }
    r = static_cast<nccl_reduction *>(calloc(1, sizeof *r));
    COD_REQUIRE_MEMORY(r);
    r->collective = c;
    const cod_status status = COD_CUDA(cudaEventCreateWithFlags(&r->done, cudaEventDisableTiming));
    if (status != COD_OK)
        free(r);
    else
        *out = r;
    return status;
}

static void give_back(nccl_reduction *r)
{
    r->next = r->collective->idle;
    r->collective->idle = r;
}

static cod_status queue_average(nccl_collective *c, float *values, size_t count, const nccl_reduction *r)
{
    const scale_work work = {values, static_cast<int64_t>(count), 1.0f / static_cast<float>(c->base.size)};
    const size_t needed = (count + SCALE_THREADS - 1) / SCALE_THREADS, most = SCALE_BLOCKS;
    const unsigned blocks = static_cast<unsigned>(needed < most ? needed : most);
    const nccl_result result = c->calls->all_reduce(values, values, count, NCCL_FLOAT32, NCCL_SUM, c->comm, c->stream);
    if (result != NCCL_SUCCESS)
        return failed(c->calls, c->comm, result, "average gradients");
    if (blocks > 0)
        COD_TRY(cuda_launch(c->stream, scale_kernel, dim3(blocks), SCALE_THREADS, 0, work));
    return COD_CUDA(cudaEventRecord(r->done, c->stream));
}

static cod_status average_start(cod_collective *collective, cod_buffer *buffer, size_t offset, size_t count,
                                cod_event *ready, cod_reduction **out)
{
    nccl_collective *c = reinterpret_cast<nccl_collective *>(collective);
    nccl_reduction *r = nullptr;
    COD_REQUIRE(buffer->host == nullptr, "NCCL averages memory of a device, not of the host");
    float *values =
        reinterpret_cast<float *>(static_cast<char *>(reinterpret_cast<cuda_buffer *>(buffer)->memory) + offset);
    cuda_use(c->device);
    COD_TRY(take_reduction(c, &r));
    cod_status status = COD_OK;
    if (ready != nullptr)
        status = COD_CUDA(cudaStreamWaitEvent(c->stream, ready->event, 0));
    COD_THEN(status, queue_average(c, values, count, r));
    if (status != COD_OK)
        give_back(r);
    else
        *out = reinterpret_cast<cod_reduction *>(r);
    return status;
}

static cod_status average_test(cod_reduction *reduction, bool *done)
{
    nccl_reduction *r = reinterpret_cast<nccl_reduction *>(reduction);
    const cudaError_t error = cudaEventQuery(r->done);
    *done = error == cudaSuccess;
    COD_TRY(check(r->collective));
    return error == cudaErrorNotReady ? COD_OK : COD_CUDA(error);
}

static cod_status average_wait(cod_reduction *reduction, cod_queue *queue)
{
    nccl_reduction *r = reinterpret_cast<nccl_reduction *>(reduction);
    if (r == nullptr)
        return COD_OK;
    cod_device *device = r->collective->device;
    cuda_chain_end(device);
    cod_status status = check(r->collective);
    COD_THEN(status, COD_CUDA(cudaStreamWaitEvent(cuda_stream(device, queue), r->done, 0)));
    give_back(r);
    return status;
}

static const cod_collective_ops ops = {.average_start = average_start, .test = average_test, .wait = average_wait};

cod_status nccl_create(cod_device *device, const unsigned char name[COD_COLLECTIVE_NAME_BYTES], int rank, int size,
                       cod_collective **out)
{
    const nccl_calls *calls;
    nccl_id id;
    COD_TRY(find_library(&calls));
    nccl_collective *c = static_cast<nccl_collective *>(calloc(1, sizeof *c));
    COD_REQUIRE_MEMORY(c);
    c->base = {&ops, rank, size};
    c->calls = calls;
    c->device = device;
    memcpy(id.bytes, name, sizeof id);
    cuda_use(device);
    cod_status status = COD_CUDA(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    if (status == COD_OK) {
        const nccl_result result = calls->comm_init_rank(&c->comm, size, id, rank);
        if (result != NCCL_SUCCESS)
            status = failed(calls, nullptr, result, "connect the group's GPUs");
    }
    if (status != COD_OK)
        nccl_destroy(device, &c->base);
    else
        *out = &c->base;
    return status;
}

void nccl_destroy(cod_device *device, cod_collective *collective)
{
    nccl_collective *c = reinterpret_cast<nccl_collective *>(collective);
    if (c == nullptr)
        return;
    if (c->comm != nullptr) {
        /* Where a rank is gone, its messages never come: what waits for them is broken off. */
        const bool sound = check(c) == COD_OK && cudaStreamSynchronize(c->stream) == cudaSuccess;
        sound ? c->calls->comm_destroy(c->comm) : c->calls->comm_abort(c->comm);
    }
    while (c->idle != nullptr) {
        nccl_reduction *r = c->idle;
        c->idle = r->next;
        cudaEventDestroy(r->done);
        free(r);
    }
    if (c->stream != nullptr)
        cudaStreamDestroy(c->stream);
    cuda_chain_end(device);
    free(c);
}

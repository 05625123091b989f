#include "cuda/scratch.cuh"

#include <cstdlib>
#include <pthread.h>

struct cuda_scratch {
    cuda_scratch *next; /**< of those of all devices */
    cod_device *device;
    const cod_buffer *shared_by;
    void *memory;
    size_t bytes, plans;
    bool stays; /**< was used */
};

/** A process may have a device open in several threads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_scratch *scratches;

static void free_memory(cuda_scratch *scratch)
{
    scratch->device->allocated -= scratch->bytes;
    cudaFree(scratch->memory);
    scratch->memory = nullptr;
    scratch->bytes = 0;
}

static cod_status grow(cuda_scratch *scratch, size_t bytes)
{
    free_memory(scratch);
    COD_TRY(cuda_memory_create(scratch->device, bytes, &scratch->memory));
    scratch->bytes = bytes;
    scratch->device->allocated += bytes;
    return COD_OK;
}

static cuda_scratch *find(const cod_device *device, const cod_buffer *shared_by, size_t bytes)
{
    cuda_scratch *scratch = scratches;
    while (scratch != nullptr &&
           (scratch->device != device || scratch->shared_by != shared_by || (scratch->stays && scratch->bytes < bytes)))
        scratch = scratch->next;
    return scratch;
}

/** With the lock. */
static cod_status join(cod_device *device, const cod_buffer *shared_by, size_t bytes, cuda_scratch **out)
{
    cuda_scratch *scratch = find(device, shared_by, bytes);
    if (scratch == nullptr) {
        scratch = static_cast<cuda_scratch *>(calloc(1, sizeof *scratch));
        COD_REQUIRE_MEMORY(scratch);
        *scratch = {scratches, device, shared_by, nullptr, 0, 0, false};
        scratches = scratch;
    }
    scratch->plans++;
    *out = scratch;
    return bytes <= scratch->bytes ? COD_OK : grow(scratch, bytes);
}

cod_status cuda_scratch_join(cod_device *device, const cod_buffer *shared_by, size_t bytes, cuda_scratch **out)
{
    pthread_mutex_lock(&lock);
    const cod_status status = join(device, shared_by, bytes, out);
    pthread_mutex_unlock(&lock);
    return status;
}

float *cuda_scratch_use(cuda_scratch *scratch)
{
    scratch->stays = true;
    return static_cast<float *>(scratch->memory);
}

/** With the lock. */
static void leave(cuda_scratch *scratch)
{
    if (--scratch->plans > 0)
        return;
    cuda_scratch **link = &scratches;
    while (*link != scratch)
        link = &(*link)->next;
    *link = scratch->next;
    free_memory(scratch);
    free(scratch);
}

void cuda_scratch_leave(cuda_scratch *scratch)
{
    if (scratch == nullptr)
        return;
    pthread_mutex_lock(&lock);
    leave(scratch);
    pthread_mutex_unlock(&lock);
}

#include "cuda/scratch.cuh"

#include <cstdlib>

struct cuda_scratch {
    cuda_scratch *next; /**< of those of the device */
    cod_device *device;
    const cod_buffer *shared_by;
    void *memory;
    size_t bytes, plans;
    bool stays; /**< was used */
};

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
    cuda_scratch *scratch = device->scratches;
    while (scratch != nullptr && (scratch->shared_by != shared_by || (scratch->stays && scratch->bytes < bytes)))
        scratch = scratch->next;
    return scratch;
}

cod_status cuda_scratch_join(cod_device *device, const cod_buffer *shared_by, size_t bytes, cuda_scratch **out)
{
    cuda_scratch *scratch = find(device, shared_by, bytes);
    if (scratch == nullptr) {
        scratch = static_cast<cuda_scratch *>(calloc(1, sizeof *scratch));
        COD_REQUIRE_MEMORY(scratch);
        *scratch = {device->scratches, device, shared_by, nullptr, 0, 0, false};
        device->scratches = scratch;
    }
    scratch->plans++;
    *out = scratch;
    return bytes <= scratch->bytes ? COD_OK : grow(scratch, bytes);
}

float *cuda_scratch_use(cuda_scratch *scratch)
{
    scratch->stays = true;
    return static_cast<float *>(scratch->memory);
}

void cuda_scratch_leave(cuda_scratch *scratch)
{
    if (scratch == nullptr || --scratch->plans > 0)
        return;
    cuda_scratch **link = &scratch->device->scratches;
    while (*link != scratch)
        link = &(*link)->next;
    *link = scratch->next;
    free_memory(scratch);
    free(scratch);
}

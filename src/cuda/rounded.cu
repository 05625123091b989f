#include "cuda/rounded.cuh"

#include "cuda/pack.cuh"
#include "cuda/vectors.cuh"

#include <cstddef>
#include <cstdlib>

struct cuda_rounded {
    cuda_rounded *next;
    rounded_work work; /**< `work.to` is followed by a copy of this, which kernels read */
    const rounded_work *on_device;
    size_t bytes;
    bool listed;      /**< in the device's list, all its life */
    int users;        /**< plans; one that reads it twice counts twice */
    uint64_t rounded; /**< the number of the preparation that wrote it last; 0 = none has */
};

/** Elements of a thread. */
enum { ROUNDED_LANES = 8 };

__global__ void __launch_bounds__(CUDA_THREADS) round_kernel(const cuda_pack_list list)
{
    const pack_place<rounded_work> at = pack_place_of<rounded_work>(list);
    const rounded_work &work = *at.how;
    const cuda_view &from = work.from;
    const int64_t first = at.item * ROUNDED_LANES, end = first + ROUNDED_LANES;
    if (work.wide && end <= from.count) {
        uint32_t values[ROUNDED_LANES], pairs[ROUNDED_LANES / 2];
        read16(values, from.data + first * 4);
        read16(values + 4, from.data + first * 4 + 16);
#pragma unroll
        for (int i = 0; i < ROUNDED_LANES / 2; i++)
            pairs[i] = bf16_pair(f32_from_word(values[2 * i]), f32_from_word(values[2 * i + 1]));
        write16(reinterpret_cast<unsigned char *>(work.to + first), pairs);
        return;
    }
    for (int64_t i = first; i < end && i < from.count; i++) {
        const int64_t pixel = i / from.channels;
        work.to[i] = bf16_from_f32(view_load(from, pixel, (int)(i - pixel * from.channels)));
    }
}

static bool is_same(const cuda_view &a, const cuda_view &b)
{
    return a.data == b.data && a.count == b.count && a.channels == b.channels && a.stride == b.stride &&
           a.dtype == b.dtype;
}

static const float *floats_of(const cuda_rounded *rounded)
{
    return reinterpret_cast<const float *>(rounded->work.from.data);
}

/** Whether an update may write the copy: where another overlaps it, a value would have two places. */
static bool may_list(const cod_device *device, const cuda_rounded *rounded)
{
    const cuda_view &from = rounded->work.from;
    int count = 0;
    for (const cuda_rounded *other = device->rounded; other != nullptr; other = other->next) {
        const float *begin = floats_of(other);
        if (other->listed && begin < floats_of(rounded) + from.count &&
            floats_of(rounded) < begin + other->work.from.count)
            return false;
        count += other->listed;
    }
    return from.dtype == COD_F32 && from.stride == from.channels && count < ROUNDED_LISTED;
}

static int by_address(const void *a, const void *b)
{
    const float *first = static_cast<const rounded_listed *>(a)->from;
    const float *second = static_cast<const rounded_listed *>(b)->from;
    return first < second ? -1 : first > second;
}

cod_status cuda_rounded_list_of(cod_device *device, const rounded_list **out)
{
    void *memory = nullptr;
    if (device->updated_copies == nullptr) {
        COD_TRY(cuda_memory_create(device, sizeof(rounded_list), &memory));
        device->updated_copies = static_cast<rounded_list *>(memory);
    }
    *out = device->updated_copies;
    return COD_OK;
}

/**
 * Writes the list anew. An update may be reading it: first all work of the default queue is done, in which updates run.
 * (Not all of the device's: cudaDeviceSynchronize() would spoil what another thread records.)
 */
static cod_status list_copies(cod_device *device)
{
    const rounded_list *list;
    COD_TRY(cuda_rounded_list_of(device, &list));
    rounded_list *now = static_cast<rounded_list *>(calloc(1, sizeof *now));
    COD_REQUIRE_MEMORY(now);
    for (const cuda_rounded *rounded = device->rounded; rounded != nullptr; rounded = rounded->next)
        if (rounded->listed)
            now->copies[now->count++] = {floats_of(rounded), floats_of(rounded) + rounded->work.from.count,
                                         rounded->work.to};
    qsort(now->copies, static_cast<size_t>(now->count), sizeof now->copies[0], by_address);
    const size_t bytes = offsetof(rounded_list, copies) + static_cast<size_t>(now->count) * sizeof now->copies[0];
    cod_status status = COD_CUDA(cudaStreamSynchronize(device->stream));
    COD_THEN(status, cuda_memory_write(device, device->updated_copies, now, bytes));
    free(now);
    return status;
}

static cod_status rounded_create(cod_device *device, const cuda_view &from, cuda_rounded **out)
{
    cuda_rounded *rounded = static_cast<cuda_rounded *>(calloc(1, sizeof *rounded));
    COD_REQUIRE_MEMORY(rounded);
    const size_t copied = cuda_divide_up(static_cast<size_t>(from.count) * sizeof(uint16_t), size_t{256}) * 256;
    void *memory = nullptr;
    rounded->bytes = copied + sizeof rounded->work;
    cod_status status = cuda_memory_take(device, rounded->bytes, &memory);
    if (status == COD_OK) {
        void *behind = static_cast<unsigned char *>(memory) + copied;
        const bool dense = from.stride == from.channels && from.dtype == COD_F32;
        rounded->work = {from, static_cast<uint16_t *>(memory),
                         dense && reinterpret_cast<uintptr_t>(from.data) % 16 == 0};
        rounded->on_device = static_cast<const rounded_work *>(behind);
        status = cuda_memory_write(device, behind, &rounded->work, sizeof rounded->work);
    }
    if (status != COD_OK) {
        cuda_memory_give(device, memory, rounded->bytes);
        free(rounded);
        return status;
    }
    *out = rounded;
    return COD_OK;
}

cod_status cuda_rounded_take(cod_plan *plan, const cod_view *view, uint16_t **copy)
{
    cod_device *device = plan->device;
    cuda_rounded **slot = plan->rounded[0] == nullptr ? &plan->rounded[0] : &plan->rounded[1];
    *copy = nullptr;
    if (view == nullptr)
        return COD_OK;
    COD_REQUIRE(*slot == nullptr, "a plan has two rounded tensors at most");
    const cuda_view from = cuda_view_of(view);
    cuda_rounded *rounded = device->rounded;
    bool fresh = false;
    while (rounded != nullptr && !is_same(rounded->work.from, from))
        rounded = rounded->next;
    if (rounded == nullptr) {
        COD_TRY(rounded_create(device, from, &rounded));
        rounded->listed = may_list(device, rounded);
        rounded->next = device->rounded;
        device->rounded = rounded;
        fresh = rounded->listed;
    }
    rounded->users++;
    *slot = rounded; /* which a failed plan releases */
    *copy = rounded->work.to;
    return fresh ? list_copies(device) : COD_OK;
}

static void let_go(cod_device *device, cuda_rounded *rounded)
{
    cuda_rounded **at = &device->rounded;
    if (--rounded->users > 0)
        return;
    while (*at != rounded)
        at = &(*at)->next;
    *at = rounded->next;
    if (rounded->listed && list_copies(device) != COD_OK)
        return; /* updates may still write it */
    cuda_memory_give(device, rounded->work.to, rounded->bytes);
    free(rounded);
}

void cuda_rounded_release(cod_plan *plan)
{
    for (cuda_rounded *&rounded : plan->rounded) {
        if (rounded != nullptr)
            let_go(plan->device, rounded);
        rounded = nullptr;
    }
}

cod_status cuda_rounded_prepare(cod_plan *const *plans, size_t count, bool updated, cudaStream_t stream)
{
    cuda_pack_list list = {};
    unsigned blocks = 0;
    if (count == 0)
        return COD_OK;
    const uint64_t now = ++plans[0]->device->preparations;
    for (size_t i = 0; i < count; i++) {
        for (cuda_rounded *rounded : plans[i]->rounded) {
            if (rounded == nullptr || rounded->rounded == now)
                continue;
            if (updated && rounded->listed && rounded->rounded > 0) /* the update wrote it */
                continue;
            rounded->rounded = now;
            list.packings[list.count] = rounded->on_device;
            list.first[list.count++] = blocks;
            blocks += cuda_item_blocks(cuda_divide_up(rounded->work.from.count, int64_t{ROUNDED_LANES}));
            if (list.count < CUDA_PACK_PLANS)
                continue;
            COD_TRY(cuda_launch(stream, round_kernel, blocks, CUDA_THREADS, 0, list));
            list.count = 0;
            blocks = 0;
        }
    }
    return list.count > 0 ? cuda_launch(stream, round_kernel, blocks, CUDA_THREADS, 0, list) : COD_OK;
}

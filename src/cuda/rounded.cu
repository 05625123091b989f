#include "cuda/rounded.cuh"

#include "cuda/pack.cuh"
#include "cuda/vectors.cuh"

#include <cstdlib>

struct cuda_rounded {
    cuda_rounded *next;
    rounded_work work; /**< `work.to` is followed by a copy of this, which kernels read */
    const rounded_work *on_device;
    size_t bytes;
    int users;        /**< plans; one that reads it twice counts twice */
    uint64_t rounded; /**< the number of the preparation that wrote it last */
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
    while (rounded != nullptr && !is_same(rounded->work.from, from))
        rounded = rounded->next;
    if (rounded == nullptr) {
        COD_TRY(rounded_create(device, from, &rounded));
        rounded->next = device->rounded;
        device->rounded = rounded;
    }
    rounded->users++;
    *slot = rounded;
    *copy = rounded->work.to;
    return COD_OK;
}

static void let_go(cod_device *device, cuda_rounded *rounded)
{
    cuda_rounded **at = &device->rounded;
    if (--rounded->users > 0)
        return;
    while (*at != rounded)
        at = &(*at)->next;
    *at = rounded->next;
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

cod_status cuda_rounded_prepare(cod_plan *const *plans, size_t count, cudaStream_t stream)
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

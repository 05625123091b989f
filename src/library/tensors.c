#include "library/tensors_internal.h"

#include "core/hash.h"
#include "core/tensor.h"
#include "exchange/merge.h"

#include <stdlib.h>
#include <string.h>

__extension__ typedef _Float16 half; /* ISO C has no such type before C23 */

enum { BLOCK_VALUES = 2048 }; /* converted at a time, in the first cache */

static cod_status count_values(const codistill_tensor *tensor, uint64_t *out)
{
    COD_REQUIRE(tensor->rank >= 0 && tensor->rank <= CODISTILL_RANK_MAX, "tensor '%s': a rank of %d is not 0 to %d",
                tensor->name, tensor->rank, CODISTILL_RANK_MAX);
    *out = 1;
    for (int i = 0; i < tensor->rank; i++) {
        COD_REQUIRE(tensor->shape[i] >= 0, "tensor '%s': its shape has %lld", tensor->name,
                    (long long)tensor->shape[i]);
        COD_REQUIRE(tensor->shape[i] == 0 || *out <= (UINT64_C(1) << 48) / (uint64_t)tensor->shape[i],
                    "tensor '%s': its shape has too many values", tensor->name);
        *out *= (uint64_t)tensor->shape[i];
    }
    return COD_OK;
}

static cod_status add(library_tensors *all, const codistill_tensor *tensor)
{
    COD_REQUIRE(tensor->name != NULL && tensor->name[0] != '\0', "tensor %zu has no name", all->count);
    COD_REQUIRE((unsigned)tensor->type <= CODISTILL_BF16, "tensor '%s': type %d is none of F32, F16, BF16",
                tensor->name, (int)tensor->type);
    for (size_t i = 0; i < all->count; i++)
        COD_REQUIRE(strcmp(all->items[i].name, tensor->name) != 0, "two tensors are called '%s'", tensor->name);
    library_tensor *item = &all->items[all->count];
    *item = (library_tensor){.type = tensor->type, .data = tensor->data};
    COD_TRY(count_values(tensor, &item->count));
    COD_REQUIRE(tensor->data != NULL || item->count == 0, "tensor '%s' has no data", tensor->name);
    item->name = strdup(tensor->name);
    COD_REQUIRE_MEMORY(item->name);
    all->count++;
    return COD_OK;
}

/** Of everything that peers must have alike; not of types, as all values travel as f32. */
static uint64_t hash_of(const codistill_tensor *tensor, uint64_t seed)
{
    const int64_t kind[] = {tensor->rank, tensor->is_state != 0};
    seed = cod_hash(tensor->name, strlen(tensor->name) + 1, seed);
    seed = cod_hash(kind, sizeof kind, seed);
    return cod_hash(tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape, seed);
}

cod_status library_tensors_init(library_tensors *all, const codistill_tensor *tensors, size_t count)
{
    *all = (library_tensors){0};
    COD_REQUIRE(tensors != NULL && count > 0, "there are no tensors to exchange");
    all->items = calloc(count, sizeof *all->items);
    COD_REQUIRE_MEMORY(all->items);
    for (size_t i = 0; i < count; i++) {
        COD_TRY(add(all, &tensors[i]));
        *(tensors[i].is_state ? &all->states : &all->weights) += all->items[i].count;
        all->hash = hash_of(&tensors[i], all->hash);
    }
    COD_REQUIRE(all->weights + all->states > 0, "the tensors have no values");
    uint64_t weight = 0, state = all->weights;
    for (size_t i = 0; i < count; i++) {
        uint64_t *next = tensors[i].is_state ? &state : &weight;
        all->items[i].first = *next;
        *next += all->items[i].count;
    }
    return COD_OK;
}

void library_tensors_clear(library_tensors *all)
{
    for (size_t i = 0; i < all->count; i++)
        free(all->items[i].name);
    free(all->items);
    *all = (library_tensors){0};
}

static void widen(codistill_type type, const void *data, uint64_t at, size_t count, float *out)
{
    const half *halves = data;
    const uint16_t *brains = data;
    if (type == CODISTILL_F32)
        memcpy(out, (const float *)data + at, count * sizeof *out);
    for (size_t i = 0; type == CODISTILL_F16 && i < count; i++)
        out[i] = (float)halves[at + i];
    for (size_t i = 0; type == CODISTILL_BF16 && i < count; i++)
        out[i] = cod_f32_from_bf16(brains[at + i]);
}

static void narrow(codistill_type type, const float *values, void *data, uint64_t at, size_t count)
{
    half *halves = data;
    uint16_t *brains = data;
    if (type == CODISTILL_F32)
        memcpy((float *)data + at, values, count * sizeof *values);
    for (size_t i = 0; type == CODISTILL_F16 && i < count; i++)
        halves[at + i] = (half)values[i];
    for (size_t i = 0; type == CODISTILL_BF16 && i < count; i++)
        brains[at + i] = cod_bf16_from_f32(values[i]);
}

/** Where a tensor and a range of the row meet. @return values of the tensor before that part; *count may be 0 */
static uint64_t meet(const library_tensor *tensor, uint64_t first, uint64_t count, uint64_t *met)
{
    const uint64_t begin = tensor->first > first ? tensor->first : first, end_tensor = tensor->first + tensor->count,
                   end_range = first + count, end = end_tensor < end_range ? end_tensor : end_range;
    *met = end > begin ? end - begin : 0;
    return begin - tensor->first;
}

void library_tensors_read(const library_tensors *all, uint64_t first, uint64_t count, float *out)
{
    for (size_t i = 0; i < all->count; i++) {
        const library_tensor *tensor = &all->items[i];
        uint64_t met;
        const uint64_t at = meet(tensor, first, count, &met);
        if (met > 0)
            widen(tensor->type, tensor->data, at, met, out + (tensor->first + at - first));
    }
}

void library_tensors_write(const library_tensors *all, uint64_t first, uint64_t count, const float *values,
                           void *const *targets)
{
    for (size_t i = 0; i < all->count; i++) {
        const library_tensor *tensor = &all->items[i];
        uint64_t met;
        const uint64_t at = meet(tensor, first, count, &met);
        if (met > 0 && targets[i] != NULL)
            narrow(tensor->type, values + (tensor->first + at - first), targets[i], at, met);
    }
}

/** Part of a tensor, in blocks where it must be converted. */
static void merge_part(const library_tensor *tensor, uint64_t at, uint64_t count, const float *peer, const float *own,
                       float factor)
{
    float block[BLOCK_VALUES];
    for (uint64_t done = 0; done < count; done += BLOCK_VALUES) {
        const size_t some = count - done < BLOCK_VALUES ? (size_t)(count - done) : BLOCK_VALUES;
        float *values = tensor->type == CODISTILL_F32 ? (float *)tensor->data + at + done : block;
        if (values == block)
            widen(tensor->type, tensor->data, at + done, some, block);
        cod_merge_floats(values, peer + done, own != NULL ? own + done : NULL, factor, some);
        if (values == block)
            narrow(tensor->type, block, tensor->data, at + done, some);
    }
}

void library_tensors_merge(const library_tensors *all, const library_merge *merge)
{
    for (size_t i = 0; i < all->count; i++) {
        const library_tensor *tensor = &all->items[i];
        const bool state = tensor->first >= all->weights;
        uint64_t met;
        const uint64_t at = meet(tensor, merge->first, merge->count, &met), from = tensor->first + at - merge->first;
        if (met > 0)
            merge_part(tensor, at, met, merge->peer + from, state || merge->own == NULL ? NULL : merge->own + from,
                       (float)(state ? merge->share : merge->alpha * merge->share));
    }
}

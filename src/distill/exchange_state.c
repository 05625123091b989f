/* Saving and restoring an exchange. */
#include "distill/exchange_internal.h"

#include "core/chunk_format.h"
#include "train/checkpoint_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What gives versions their meaning: the period, and above it fragments less one. */
static uint64_t shape_of(const cod_exchange *e)
{
    return (uint64_t)e->options.period | (uint64_t)(e->fragments - 1) << EXCHANGE_PERIOD_BITS;
}

/** Behind the shape: what the publisher says, then what is held of each fragment of each peer. */
static void pack_numbers(cod_exchange *e, bool restoring)
{
    exchange_numbers numbers = {.next = e->numbers + 1, .restoring = restoring};
    exchange_publisher_pack(&e->publisher, &numbers);
    exchange_peers_pack(e->peers, e->peer_count, &numbers);
}

static size_t number_count(const cod_exchange *e)
{
    return EXCHANGE_NUMBERS + EXCHANGE_CHAIN_NUMBERS * (size_t)e->fragments +
           EXCHANGE_PEER_NUMBERS * (size_t)e->peer_count;
}

/** What all fragments' slots hold: of one as its transport says, of several behind the bytes of each. */
static cod_status gather_slots(cod_exchange *e, void **data, size_t *bytes)
{
    if (e->fragments == 1)
        return e->transports[0]->ops->state(e->transports[0], data, bytes);
    const size_t head = (size_t)e->fragments * sizeof(uint64_t);
    *bytes = head;
    for (int f = 0; f < e->fragments; f++) {
        void *slots;
        size_t more;
        COD_TRY(e->transports[f]->ops->state(e->transports[f], &slots, &more));
        unsigned char *grown = realloc(e->slots, *bytes + more);
        COD_REQUIRE_MEMORY(grown);
        e->slots = grown;
        memcpy(grown + *bytes, slots, more);
        cod_store_u64(grown + (size_t)f * sizeof(uint64_t), more);
        *bytes += more;
    }
    *data = e->slots;
    return COD_OK;
}

static cod_status restore_slots(cod_exchange *e, const void *slots, size_t bytes)
{
    if (e->fragments == 1)
        return e->transports[0]->ops->restored(e->transports[0], slots, bytes);
    const unsigned char *head = slots, *at = head + (size_t)e->fragments * sizeof(uint64_t);
    if (bytes < (size_t)(at - head))
        return cod_fail(COD_ERR_FORMAT, "the saved slots are cut off");
    for (int f = 0; f < e->fragments; f++) {
        const uint64_t next = cod_load_u64(head + (size_t)f * sizeof(uint64_t));
        if (next > bytes - (size_t)(at - head))
            return cod_fail(COD_ERR_FORMAT, "the saved slots of fragment %d are cut off", f);
        COD_TRY(e->transports[f]->ops->restored(e->transports[f], at, (size_t)next));
        at += next;
    }
    return COD_OK;
}

static void add_array(cod_exchange *e, const char *name, int index, void *data, size_t bytes, bool of_group)
{
    cod_exchange_array *array = &e->arrays[e->array_count++];
    *array = (cod_exchange_array){.data = data, .bytes = bytes, .of_group = of_group};
    array->held_once = e->holders.count == e->size && e->size > 1 && of_group && data != e->numbers;
    snprintf(array->name, sizeof array->name, "exchange.%s.%d", name, index);
}

cod_status cod_exchange_state(cod_exchange *e, const cod_exchange_array **arrays, size_t *count)
{
    void *slots;
    size_t slot_bytes;
    float **mirrors = NULL;
    const size_t numbers = number_count(e);
    COD_TRY(exchange_finish_publication(e));
    if (e->arrays == NULL) {
        e->arrays = calloc(2 + (size_t)(e->publisher.own_count + e->peer_count), sizeof *e->arrays);
        e->numbers = calloc(numbers, sizeof *e->numbers);
        COD_REQUIRE_MEMORY(e->arrays);
        COD_REQUIRE_MEMORY(e->numbers);
    }
    if (e->on_device != NULL)
        COD_TRY(exchange_device_save(e, &mirrors));
    e->array_count = 0;
    e->numbers[0] = shape_of(e);
    pack_numbers(e, false);
    COD_TRY(gather_slots(e, &slots, &slot_bytes));
    add_array(e, "numbers", 0, e->numbers, numbers * sizeof *e->numbers, true);
    add_array(e, "slots", 0, slots, slot_bytes, false);
    for (int i = 0; i < e->publisher.own_count; i++)
        add_array(e, "own", i, mirrors != NULL ? mirrors[i] : exchange_floats(e->publisher.own[i].values),
                  e->publisher.own[i].values->bytes, true);
    for (int i = 0; i < e->peer_count; i++)
        add_array(e, "peer", i,
                  mirrors != NULL ? mirrors[e->publisher.own_count + i] : exchange_floats(e->peers[i].values),
                  e->peers[i].values->bytes, true);
    *arrays = e->arrays;
    *count = e->array_count;
    return COD_OK;
}

cod_status cod_exchange_restored(cod_exchange *e, const void *slots, size_t slot_bytes)
{
    COD_REQUIRE(e->numbers != NULL, "cod_exchange_restored() without cod_exchange_state() before");
    /* Versions are counted in periods: of another period they would all be older, or newer, than they are. */
    const uint64_t period = e->numbers[0] & ((UINT64_C(1) << EXCHANGE_PERIOD_BITS) - 1),
                   fragments = (e->numbers[0] >> EXCHANGE_PERIOD_BITS) + 1;
    if (period != (uint64_t)e->options.period)
        return cod_fail(COD_ERR_FORMAT, "the checkpoint is of a run with exchange.period %llu, not %lld: set it back",
                        (unsigned long long)period, (long long)e->options.period);
    if (fragments != (uint64_t)e->fragments)
        return cod_fail(COD_ERR_FORMAT, "the checkpoint is of a run with exchange.fragments %llu, not %d: set it back",
                        (unsigned long long)fragments, e->fragments);
    pack_numbers(e, true);
    if (e->on_device != NULL)
        COD_TRY(exchange_device_restore(e));
    return restore_slots(e, slots, slot_bytes);
}

cod_status cod_exchange_save(cod_exchange *e, cod_checkpoint *checkpoint)
{
    const cod_exchange_array *arrays;
    size_t count;
    COD_TRY(cod_exchange_state(e, &arrays, &count));
    for (size_t i = 0; i < count; i++)
        COD_TRY(arrays[i].of_group
                    ? cod_checkpoint_add_part(checkpoint, e->group, arrays[i].name, arrays[i].data, arrays[i].bytes)
                    : cod_checkpoint_add_bytes(checkpoint, arrays[i].name, arrays[i].data, arrays[i].bytes));
    return COD_OK;
}

/** All arrays as far as this rank saved them. @param[out] slots  of the file */
static cod_status read_parts(cod_exchange *e, const cod_st_file *file, const cod_exchange_array **arrays, size_t *count,
                             const cod_st_tensor **slots)
{
    *slots = cod_st_tensor_find(file, COD_EXCHANGE_SLOTS);
    if (*slots == NULL)
        return cod_fail(COD_ERR_FORMAT, "the checkpoint has no '" COD_EXCHANGE_SLOTS "'");
    COD_TRY(cod_exchange_state(e, arrays, count));
    for (size_t i = 0; i < *count; i++) {
        const cod_exchange_array *array = &(*arrays)[i];
        if (strcmp(array->name, COD_EXCHANGE_SLOTS) == 0)
            continue;
        COD_TRY(array->of_group ? cod_checkpoint_read_part(file, e->group, array->name, array->data, array->bytes)
                                : cod_checkpoint_read(file, array->name, array->data, array->bytes));
    }
    return COD_OK;
}

cod_status cod_exchange_load(cod_exchange *e, const cod_st_file *file)
{
    const cod_exchange_array *arrays;
    const cod_st_tensor *slots;
    size_t count;
    COD_TRY(cod_group_agree(e->group, read_parts(e, file, &arrays, &count, &slots), NULL));
    for (size_t i = 0; i < count; i++)
        if (arrays[i].of_group && !arrays[i].held_once)
            COD_TRY(cod_checkpoint_complete(e->group, arrays[i].data, arrays[i].bytes));
    return cod_exchange_restored(e, slots->data, slots->bytes);
}

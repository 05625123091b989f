/* Saving and restoring an exchange. */
#include "exchange/exchange_internal.h"

#include "core/chunk_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What versions are counted in: the period, and in the bits above it the number of fragments less one. */
static uint64_t shape_of(const cod_exchange *e)
{
    return (uint64_t)e->setup.options.period | (uint64_t)(e->setup.fragments - 1) << EXCHANGE_PERIOD_BITS;
}

/** Behind the shape: what the publisher says, then what is held of each fragment of each peer. */
static void pack_numbers(cod_exchange *e, bool restoring)
{
    exchange_numbers numbers = {.next = e->numbers + 1, .restoring = restoring};
    exchange_publisher_pack(&e->publisher, &numbers);
    exchange_puller_pack(&e->puller, &numbers);
}

static size_t number_count(const cod_exchange *e)
{
    return EXCHANGE_SHAPE_NUMBERS + EXCHANGE_PUBLISHER_NUMBERS + EXCHANGE_CHAIN_NUMBERS * (size_t)e->setup.fragments +
           EXCHANGE_PEER_NUMBERS * (size_t)e->puller.peer_count;
}

/** Puts what a fragment's slots hold behind the `*bytes` bytes of e->slots. */
static cod_status append_slots(cod_exchange *e, int fragment, size_t *bytes)
{
    cod_transport *transport = e->setup.transports[fragment];
    void *slots;
    size_t more;
    COD_TRY(transport->ops->state(transport, &slots, &more));
    unsigned char *grown = realloc(e->slots, *bytes + more);
    if (grown != NULL) {
        e->slots = grown;
        memcpy(grown + *bytes, slots, more);
        cod_store_u64(grown + (size_t)fragment * sizeof(uint64_t), more);
        *bytes += more;
    }
    free(slots);
    COD_REQUIRE_MEMORY(grown);
    return COD_OK;
}

/** What all fragments' slots hold, in e->slots: of one as its transport says, of several behind the bytes of each. */
static cod_status gather_slots(cod_exchange *e, size_t *bytes)
{
    free(e->slots);
    e->slots = NULL;
    if (e->setup.fragments == 1) {
        void *slots;
        COD_TRY(e->setup.transports[0]->ops->state(e->setup.transports[0], &slots, bytes));
        e->slots = slots;
        return COD_OK;
    }
    *bytes = (size_t)e->setup.fragments * sizeof(uint64_t);
    for (int f = 0; f < e->setup.fragments; f++)
        COD_TRY(append_slots(e, f, bytes));
    return COD_OK;
}

static cod_status restore_slots(cod_exchange *e, const void *slots, size_t bytes)
{
    if (e->setup.fragments == 1)
        return e->setup.transports[0]->ops->restored(e->setup.transports[0], slots, bytes);
    const unsigned char *head = slots, *at = head + (size_t)e->setup.fragments * sizeof(uint64_t);
    if (bytes < (size_t)(at - head))
        return cod_fail(COD_ERR_FORMAT, "the saved slots are cut off");
    for (int f = 0; f < e->setup.fragments; f++) {
        const uint64_t next = cod_load_u64(head + (size_t)f * sizeof(uint64_t));
        if (next > bytes - (size_t)(at - head))
            return cod_fail(COD_ERR_FORMAT, "the saved slots of fragment %d are cut off", f);
        COD_TRY(e->setup.transports[f]->ops->restored(e->setup.transports[f], at, (size_t)next));
        at += next;
    }
    return COD_OK;
}

static void add_array(cod_exchange *e, const char *name, int index, void *data, size_t bytes, bool of_group)
{
    cod_exchange_array *array = &e->arrays[e->array_count++];
    *array = (cod_exchange_array){.data = data, .bytes = bytes, .of_group = of_group};
    array->held_once = e->setup.holders.count == e->setup.size && e->setup.size > 1 && of_group && data != e->numbers;
    snprintf(array->name, sizeof array->name, "exchange.%s.%d", name, index);
}

cod_status cod_exchange_state(cod_exchange *e, const cod_exchange_array **arrays, size_t *count)
{
    size_t slot_bytes;
    const size_t numbers = number_count(e);
    const exchange_publisher *publisher = &e->publisher;
    const int own = publisher->own_count;
    *arrays = NULL;
    *count = 0;
    if (!e->setup.publishes)
        return COD_OK;
    const int held = exchange_publisher_held_count(publisher);
    COD_TRY(exchange_publisher_finish(&e->publisher));
    if (e->arrays == NULL) {
        e->arrays = calloc(2 + (size_t)(held + e->puller.peer_count), sizeof *e->arrays);
        e->numbers = calloc(numbers, sizeof *e->numbers);
        COD_REQUIRE_MEMORY(e->arrays);
        COD_REQUIRE_MEMORY(e->numbers);
    }
    COD_TRY(exchange_publisher_save(&e->publisher));
    COD_TRY(exchange_puller_save(&e->puller));
    e->array_count = 0;
    e->numbers[0] = shape_of(e);
    pack_numbers(e, false);
    COD_TRY(gather_slots(e, &slot_bytes));
    add_array(e, "numbers", 0, e->numbers, numbers * sizeof *e->numbers, true);
    add_array(e, "slots", 0, e->slots, slot_bytes, false);
    for (int i = 0; i < held; i++)
        add_array(e, i < own ? "own" : "decoded", i < own ? i : i - own, exchange_publisher_saved(publisher, i),
                  (*exchange_publisher_held(publisher, i))->bytes, true);
    for (int i = 0; i < e->puller.peer_count; i++)
        add_array(e, "peer", i, exchange_puller_saved(&e->puller, i), e->puller.peers[i].values->bytes, true);
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
    if (period != (uint64_t)e->setup.options.period)
        return cod_fail(COD_ERR_FORMAT, "the checkpoint is of a run with exchange.period %llu, not %lld: set it back",
                        (unsigned long long)period, (long long)e->setup.options.period);
    if (fragments != (uint64_t)e->setup.fragments)
        return cod_fail(COD_ERR_FORMAT, "the checkpoint is of a run with exchange.fragments %llu, not %d: set it back",
                        (unsigned long long)fragments, e->setup.fragments);
    pack_numbers(e, true);
    COD_TRY(exchange_publisher_check(&e->publisher));
    COD_TRY(exchange_puller_check(&e->puller));
    COD_TRY(exchange_publisher_restored(&e->publisher));
    COD_TRY(exchange_puller_restored(&e->puller));
    return restore_slots(e, slots, slot_bytes);
}

/** What this rank keeps of an array: its part of what all have. */
static cod_group_part part_of(const cod_exchange *e, const cod_exchange_array *array)
{
    return array->of_group ? cod_group_part_of(e->setup.group, e->setup.rank, array->bytes)
                           : (cod_group_part){.root = e->setup.rank, .bytes = array->bytes};
}

cod_status cod_exchange_save(cod_exchange *e, cod_exchange_keep *keep, void *context)
{
    const cod_exchange_array *arrays;
    size_t count;
    COD_TRY(cod_exchange_state(e, &arrays, &count));
    for (size_t i = 0; i < count; i++) {
        const cod_group_part part = part_of(e, &arrays[i]);
        COD_TRY(keep(context, arrays[i].name, (const char *)arrays[i].data + part.offset, part.bytes));
    }
    return COD_OK;
}

/**
 * Whether what was kept holds an exchange's state where this run has one; an earlier version saved one of a single
 * group.
 */
static cod_status check_saved(const cod_exchange *e, cod_exchange_find *find, const void *context)
{
    size_t bytes;
    const bool saved = find(context, COD_EXCHANGE_SLOTS, &bytes) != NULL,
               exact = find(context, "exchange.decoded.0", &bytes) != NULL;
    if (saved && e->setup.publishes && exact != exchange_keeps_exact(&e->setup.options))
        return cod_fail(COD_ERR_ARGUMENT, "the checkpoint is of a run with exchange.merge_against=%s: set it back",
                        exact ? "exact" : "decoded");
    if (saved == e->setup.publishes || e->setup.groups == 1)
        return COD_OK;
    return saved
               ? cod_fail(COD_ERR_ARGUMENT, "the checkpoint is of a run whose groups exchanged, and with "
                                            "exchange.codec=none they do not: set exchange.codec back")
               : cod_fail(COD_ERR_ARGUMENT, "the checkpoint is of a run with exchange.codec=none, whose groups did not "
                                            "exchange: set it back");
}

/** Fills this rank's part of an array, or all of it where that was saved, as earlier versions did. */
static cod_status read_array(const cod_exchange *e, cod_exchange_find *find, const void *context,
                             const cod_exchange_array *array)
{
    const cod_group_part part = part_of(e, array);
    size_t bytes;
    const void *saved = find(context, array->name, &bytes);
    if (saved == NULL)
        return cod_fail(COD_ERR_FORMAT, "the checkpoint has no '%s'", array->name);
    if (bytes != part.bytes && bytes != array->bytes)
        return cod_fail(COD_ERR_FORMAT,
                        "the checkpoint's '%s' has %zu bytes, not %zu: it is of another model or set-up", array->name,
                        bytes, part.bytes);
    memcpy((char *)array->data + (bytes == array->bytes ? 0 : part.offset), saved, bytes);
    return COD_OK;
}

/** All arrays but the slots, as far as this rank saved them. */
static cod_status read_arrays(cod_exchange *e, cod_exchange_find *find, const void *context,
                              const cod_exchange_array **arrays, size_t *count)
{
    COD_TRY(check_saved(e, find, context));
    COD_TRY(cod_exchange_state(e, arrays, count));
    for (size_t i = 0; i < *count; i++)
        if (strcmp((*arrays)[i].name, COD_EXCHANGE_SLOTS) != 0)
            COD_TRY(read_array(e, find, context, &(*arrays)[i]));
    return COD_OK;
}

cod_status cod_exchange_load(cod_exchange *e, cod_exchange_find *find, const void *context)
{
    const cod_exchange_array *arrays;
    size_t count, slot_bytes;
    COD_TRY(cod_group_agree(e->setup.group, read_arrays(e, find, context, &arrays, &count), NULL));
    if (!e->setup.publishes)
        return COD_OK;
    for (size_t i = 0; i < count; i++)
        if (arrays[i].of_group && !arrays[i].held_once)
            COD_TRY(cod_group_complete(e->setup.group, arrays[i].data, arrays[i].bytes));
    const void *slots = find(context, COD_EXCHANGE_SLOTS, &slot_bytes);
    return cod_exchange_restored(e, slots, slot_bytes);
}

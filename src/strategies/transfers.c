#include "strategies/transfers.h"

#include <math.h>
#include <stdlib.h>

enum { MESSAGE_BYTES = 1 << 28 /**< of one message: MPI counts bytes in int */ };

static cod_status make_room(cod_transfers *list)
{
    if (list->count < list->capacity)
        return COD_OK;
    const size_t capacity = 2 * list->capacity + 16;
    cod_request **items = realloc(list->items, capacity * sizeof(cod_request *));
    COD_REQUIRE_MEMORY(items);
    list->items = items;
    list->capacity = capacity;
    return COD_OK;
}

static size_t part_bytes(size_t left)
{
    return left < MESSAGE_BYTES ? left : MESSAGE_BYTES;
}

cod_status cod_transfers_send(cod_transfers *list, cod_comm *comm, int world_rank, int tag, const void *data,
                              size_t bytes)
{
    for (size_t from = 0; from < bytes; from += MESSAGE_BYTES) {
        COD_TRY(make_room(list));
        COD_TRY(cod_message_send_start(comm, world_rank, tag, (const char *)data + from, part_bytes(bytes - from),
                                       &list->items[list->count]));
        list->count++;
    }
    return COD_OK;
}

cod_status cod_transfers_receive(cod_transfers *list, cod_comm *comm, int world_rank, int tag, void *data, size_t bytes)
{
    for (size_t from = 0; from < bytes; from += MESSAGE_BYTES) {
        COD_TRY(make_room(list));
        COD_TRY(cod_message_receive_start(comm, world_rank, tag, (char *)data + from, part_bytes(bytes - from),
                                          &list->items[list->count]));
        list->count++;
    }
    return COD_OK;
}

cod_status cod_transfers_test(cod_transfers *list, bool *done)
{
    *done = true;
    for (size_t i = 0; i < list->count && *done; i++)
        COD_TRY(cod_request_test(&list->items[i], done));
    list->count = *done ? 0 : list->count;
    return COD_OK;
}

cod_status cod_transfers_wait(cod_transfers *list)
{
    for (size_t i = 0; i < list->count; i++)
        COD_TRY(cod_request_wait(&list->items[i], INFINITY));
    list->count = 0;
    return COD_OK;
}

void cod_transfers_clear(cod_transfers *list)
{
    free(list->items);
    *list = (cod_transfers){0};
}

#include "exchange/room.h"

#include "core/memory.h"
#include "io/seal.h"

#include <stdlib.h>

cod_status cod_room_create(size_t bytes, cod_room **out)
{
    COD_TRY(cod_aligned_alloc((void **)out, sizeof(cod_room) + bytes));
    atomic_init(&(*out)->users, 1);
    return COD_OK;
}

void cod_room_keep(cod_room *room)
{
    atomic_fetch_add(&room->users, 1);
}

void cod_room_release(void *room)
{
    cod_room *r = room;
    if (r != NULL && atomic_fetch_sub(&r->users, 1) == 1)
        cod_aligned_free(r);
}

cod_status cod_rooms_init(cod_rooms *rooms, int count, size_t slot_bytes)
{
    rooms->bytes = slot_bytes + COD_SEAL_BYTES;
    rooms->rooms = calloc((size_t)count + 1, sizeof(cod_room *));
    COD_REQUIRE_MEMORY(rooms->rooms);
    for (; rooms->count < count; rooms->count++)
        COD_TRY(cod_room_create(rooms->bytes, &rooms->rooms[rooms->count]));
    return COD_OK;
}

void cod_rooms_clear(cod_rooms *rooms)
{
    for (int i = 0; i < rooms->count; i++)
        cod_room_release(rooms->rooms[i]);
    free(rooms->rooms);
    *rooms = (cod_rooms){0};
}

cod_status cod_rooms_take(cod_rooms *rooms, int place, cod_room **out)
{
    cod_room **room = &rooms->rooms[place];
    if (atomic_load(&(*room)->users) > 1) {
        cod_room *other;
        COD_TRY(cod_room_create(rooms->bytes, &other));
        cod_room_release(*room);
        *room = other;
    }
    *out = *room;
    return COD_OK;
}

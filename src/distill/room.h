/**
 * @file
 * Memory that shards are pulled into: a room for each pull that a rank has at a time, whichever transport moves it.
 */
#ifndef COD_DISTILL_ROOM_H
#define COD_DISTILL_ROOM_H

#include "distill/slot.h"

#include <stdatomic.h>

/** A publisher's header, a slot's sequence word, and a slot's bytes. */
typedef struct cod_room {
    atomic_int users; /**< who has it, and writers that a pull which was given up left behind */
    unsigned char header[COD_SLOT_HEADER_BYTES];
    unsigned char word[8];
    unsigned char data[];
} cod_room;

/** @param[out] out  new, with one user; end it with cod_room_release() */
COD_MUST_CHECK cod_status cod_room_create(size_t bytes, cod_room **out);
/** One user more: something that writes to it while its owner may let it go. */
void cod_room_keep(cod_room *room);
/** One user less; the last one frees it. @param room  NULL = nothing */
void cod_room_release(void *room);

/** One room for each place; a place has one pull at a time. */
typedef struct cod_rooms {
    int count;
    size_t bytes; /**< of a room's data: a slot and a seal (io/seal.h) */
    cod_room **rooms;
} cod_rooms;

/** cod_rooms_clear() also after a failure. */
COD_MUST_CHECK cod_status cod_rooms_init(cod_rooms *rooms, int count, size_t slot_bytes);
void cod_rooms_clear(cod_rooms *rooms);

/**
 * The room for the next pull in a place. A room that something still writes to is left to that, and a new one takes its place.
 *
 * @param[out] out  borrowed until the next pull there
 */
COD_MUST_CHECK cod_status cod_rooms_take(cod_rooms *rooms, int place, cod_room **out);

#endif

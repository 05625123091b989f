/**
 * @file
 * Memory that shards are pulled into: a room for each simultaneous pull of a rank, for any transport.
 */
#ifndef COD_EXCHANGE_ROOM_H
#define COD_EXCHANGE_ROOM_H

#include "exchange/slot.h"

#include <stdatomic.h>

/** Room for a publisher's header, a slot's sequence word, and a slot's bytes. */
typedef struct cod_room {
    atomic_int users; /**< its owner, and writers left by an abandoned pull */
    unsigned char header[COD_SLOT_HEADER_BYTES];
    unsigned char word[8];
    unsigned char data[];
} cod_room;

/** @param[out] out  new, with one user; end it with cod_room_release() */
COD_MUST_CHECK cod_status cod_room_create(size_t bytes, cod_room **out);
/** Adds a user: a writer that may outlive the owner's use. */
void cod_room_keep(cod_room *room);
/** Removes a user; the last one frees the room. @param room may be NULL */
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
 * The room for the next pull in a place. If something still writes to the old room, a new room replaces it.
 *
 * @param[out] out  borrowed until the next pull there
 */
COD_MUST_CHECK cod_status cod_rooms_take(cod_rooms *rooms, int place, cod_room **out);

#endif

/* Rooms for pulls, without a transport. */
#include "support/test.h"

#include "exchange/room.h"
#include "io/seal.h"

#include <string.h>

enum { PLACES = 2, SLOT_BYTES = 100 };

TEST(pulls_of_a_place_share_its_room)
{
    cod_rooms rooms = {0};
    cod_room *first, *again, *other;
    assert_ok(cod_rooms_init(&rooms, PLACES, SLOT_BYTES));
    assert_ok(cod_rooms_take(&rooms, 0, &first));
    assert_ok(cod_rooms_take(&rooms, 0, &again));
    assert_ok(cod_rooms_take(&rooms, 1, &other));
    assert_true(again == first && other != first);
    memset(first->data, 1, SLOT_BYTES + COD_SEAL_BYTES);
    memset(other->data, 2, SLOT_BYTES + COD_SEAL_BYTES);
    assert_true(first->data[SLOT_BYTES - 1] == 1);
    cod_rooms_clear(&rooms);
}

TEST(a_room_is_left_to_who_still_writes_there)
{
    cod_rooms rooms = {0};
    cod_room *given_up, *next, *after;
    assert_ok(cod_rooms_init(&rooms, PLACES, SLOT_BYTES));
    assert_ok(cod_rooms_take(&rooms, 0, &given_up));
    cod_room_keep(given_up);
    assert_ok(cod_rooms_take(&rooms, 0, &next));
    assert_true(next != given_up);
    memset(next->data, 1, SLOT_BYTES);
    memset(given_up->data, 2, SLOT_BYTES); /* late */
    assert_true(next->data[0] == 1 && next->data[SLOT_BYTES - 1] == 1);
    assert_ok(cod_rooms_take(&rooms, 0, &after));
    assert_true(after == next);
    cod_room_keep(after);
    cod_rooms_clear(&rooms); /* what is still written to outlives them */
    memset(after->data, 2, SLOT_BYTES);
    cod_room_release(after);
    cod_room_release(given_up);
}

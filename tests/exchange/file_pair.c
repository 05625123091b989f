#include "file_pair.h"

#include "support/folder.h"
#include "support/test.h"

#include "core/trace.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const cod_slot_layout pair_layout = {.slots = SLOTS, .groups = GROUPS, .slot_bytes = BYTES};

cod_slot_identity pair_identity(uint32_t group, uint64_t run)
{
    return (cod_slot_identity){.run = run, .model = 5, .group = group, .shards = 1, .count = 100, .exact_from = 100};
}

cod_rooms *pair_rooms(uint32_t group)
{
    static cod_rooms rooms[GROUPS];
    if (rooms[group].count == 0)
        assert_ok(cod_rooms_init(&rooms[group], PULLS, BYTES));
    return &rooms[group];
}

cod_status pair_try_open(uint32_t group, uint64_t run, bool anew, const char *key_file, cod_transport **out)
{
    const cod_slot_identity who = pair_identity(group, run);
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", cod_test_at("x"));
    const cod_file_options options = {.folder = folder,
                                      .key_file = key_file,
                                      .patience_s = COD_TEST_PATIENCE_S,
                                      .anew = anew,
                                      .rooms = pair_rooms(group)};
    return cod_file_transport_create(&options, &who, &pair_layout, out);
}

cod_transport *pair_open_one(uint32_t group, uint64_t run, bool anew)
{
    cod_transport *t = NULL;
    assert_ok(pair_try_open(group, run, anew, "", &t));
    return t;
}

void pair_publish(cod_transport *t, uint64_t version)
{
    unsigned char *room;
    assert_ok(t->ops->publish_begin(t, &room));
    memset(room, (int)version, BYTES - version);
    assert_ok(t->ops->publish_end(
        t, &(cod_slot_entry){.version = version, .life = version * 10, .bytes = BYTES - version, .published_ms = 7}));
    t->ops->oldest(t);
}

cod_status pair_offer(cod_transport *t, bool *answered, uint64_t *version)
{
    const cod_slot_identity who = pair_identity(0, 1);
    const cod_slot_wanted wanted = {.at_most = UINT64_MAX, .spacing = 1};
    cod_slot_offered offered;
    const cod_status status = t->ops->offer(t, &who, 0, &wanted, answered, &offered);
    *version = offered.version;
    return status;
}

cod_status pair_offered(cod_transport *t, uint64_t *version)
{
    const double begin = cod_clock_s();
    cod_status status = COD_OK;
    for (*version = 0; status == COD_OK && *version == 0 && cod_clock_s() - begin < COD_TEST_PATIENCE_S; usleep(1000))
        status = pair_offer(t, &(bool){0}, version);
    return status;
}

cod_status pair_pulled(cod_transport *t, uint64_t version, cod_pull_state *state, cod_pulled *out)
{
    const cod_slot_identity who = pair_identity(0, 1);
    const double begin = cod_clock_s();
    cod_status status = t->ops->pull_start(t, 0, &who, 0, version);
    *state = COD_PULL_BUSY;
    while (status == COD_OK && *state == COD_PULL_BUSY && cod_clock_s() - begin < COD_TEST_PATIENCE_S)
        status = t->ops->pull_poll(t, 0, state, out);
    return status;
}

void pair_open(cod_transport **publisher, cod_transport **reader, uint64_t count)
{
    *publisher = pair_open_one(0, 1, true);
    *reader = pair_open_one(1, 1, true);
    for (uint64_t v = 1; v <= count; v++)
        pair_publish(*publisher, v);
}

void pair_close(cod_transport *publisher, cod_transport *reader)
{
    if (publisher != NULL)
        assert_ok(publisher->ops->destroy(publisher));
    assert_ok(reader->ops->destroy(reader));
}

#include "support/test.h"

#include "exchange/slot.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4096, VERSIONS = 20000 };

static const cod_slot_identity WHO = {.run = 5, .model = 6, .group = 1, .shard = 0, .shards = 2, .count = 100};
static const cod_slot_layout LAYOUT = {.slots = 3, .groups = 2, .slot_bytes = BYTES};

static cod_status fence(void *context)
{
    (void)context;
    atomic_thread_fence(memory_order_seq_cst);
    return COD_OK;
}

static void publish(cod_slot_writer *writer, uint64_t version)
{
    uint64_t oldest;
    unsigned char *room;
    const uint32_t slot = cod_slot_next(writer, &oldest);
    assert_ok(cod_slot_open(writer, slot, &room));
    for (size_t i = 0; i < BYTES; i += 8)
        memcpy(room + i, &version, 8);
    assert_ok(
        cod_slot_close(writer, slot, &(cod_slot_entry){.version = version, .life = version * 10, .bytes = BYTES}));
}

TEST(a_slow_reader_keeps_its_slot_until_it_is_reopened)
{
    unsigned char *memory = calloc(1, cod_slot_window_bytes(&LAYOUT));
    cod_slot_writer writer;
    cod_slot_header header;
    bool torn;
    assert_ok(cod_slot_writer_init(&writer, memory, &WHO, &LAYOUT, fence, NULL));
    publish(&writer, 1);
    assert_ok(cod_slot_read_header(memory, &WHO, &LAYOUT, &header, &torn));
    assert_false(torn);
    const int slot = cod_slot_find(&header, 1);
    const unsigned char *word = memory + cod_slot_sequence_at(&LAYOUT, (uint32_t)slot);
    assert_int_equal(header.entries[slot].life, 10);
    publish(&writer, 2);
    publish(&writer, 3);
    assert_int_equal(cod_slot_life(&header, 1), 10);
    assert_int_equal(cod_slot_life(&header, 2), 0);
    assert_memory_equal(word, &header.entries[slot].sequence, 8);
    publish(&writer, 4);
    assert_memory_not_equal(word, &header.entries[slot].sequence, 8);
    assert_ok(cod_slot_read_header(memory, &WHO, &LAYOUT, &header, &torn));
    assert_int_equal(cod_slot_newest(&header), 4);
    assert_int_equal(cod_slot_find(&header, 1), -1);

    cod_slot_identity other = WHO;
    other.model++;
    assert_fails(COD_ERR_FORMAT, "another run, model", cod_slot_read_header(memory, &other, &LAYOUT, &header, &torn));
    for (size_t at = 0; at < COD_SLOT_HEADER_BYTES; at++) {
        memory[at] ^= 1;
        assert_ok(cod_slot_read_header(memory, &WHO, &LAYOUT, &header, &torn));
        assert_true(torn);
        memory[at] ^= 1;
    }
    free(memory);
}

static cod_slot_header holding(const cod_slot_entry *entries, uint32_t count)
{
    cod_slot_header header = {.layout = {.slots = COD_SLOT_MAX}};
    memcpy(header.entries, entries, count * sizeof *entries);
    return header;
}

TEST(deltas_that_follow_each_other_are_offered_together)
{
    /* In the order of slots, not of versions: a key, and deltas of which one is of another life and one left out. */
    const cod_slot_entry entries[] = {
        {.version = 7, .life = 3, .reference = 6}, {.version = 4, .life = 3},
        {.version = 6, .life = 3, .reference = 5}, {.version = 5, .life = 3, .reference = 4},
        {.version = 8, .life = 9, .reference = 7}, {.version = 9, .life = 9, .reference = 8},
        {.version = 11, .life = 9, .reference = 9}};
    const cod_slot_header header = holding(entries, 7);
    const struct {
        uint64_t held, at_most, spacing, version, life;
        uint32_t following;
    } cases[] = {{0, UINT64_MAX, 1, 4, 3, 3},                               /* the key, and deltas up to another life */
                 {4, UINT64_MAX, 1, 5, 3, 2},  {7, UINT64_MAX, 1, 8, 9, 1}, /* version 10 was left out */
                 {9, UINT64_MAX, 1, 11, 9, 0}, {4, 6, 1, 5, 3, 1},          /* the newest of use is 6 */
                 {4, UINT64_MAX, 2, 5, 3, 0},  {11, UINT64_MAX, 1, 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cod_slot_wanted wanted = {
            .held = cases[i].held, .at_most = cases[i].at_most, .spacing = cases[i].spacing};
        const cod_slot_offered offered = cod_slot_offer(&header, &wanted);
        assert_int_equal(offered.version, cases[i].version);
        assert_int_equal(offered.life, cases[i].life);
        assert_int_equal(offered.following, cases[i].following);
    }
}

/** A header may say anything. */
TEST(a_delta_against_itself_is_not_followed_for_ever)
{
    const cod_slot_entry entry = {.version = 5, .reference = 5};
    const cod_slot_header header = holding(&entry, 1);
    const cod_slot_wanted wanted = {.held = 4, .at_most = UINT64_MAX, .spacing = 0};
    assert_int_equal(cod_slot_offer(&header, &wanted).version, 0);
    const cod_slot_entry key_and_entry[] = {{.version = 5}, entry};
    const cod_slot_header more = holding(key_and_entry, 2);
    assert_int_equal(cod_slot_offer(&more, &wanted).following, COD_SLOT_MAX);
}

static void *publish_all(void *context)
{
    for (uint64_t version = 1; version <= VERSIONS; version++)
        publish(context, version);
    return NULL;
}

/** A one-sided get: reads while the owner writes, which is the point. */
__attribute__((no_sanitize("thread"), noinline)) static void get(const unsigned char *memory, uint64_t at, void *to,
                                                                 size_t bytes)
{
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)to)[i] = ((const volatile uint64_t *)(const void *)(memory + at))[i];
    atomic_thread_fence(memory_order_seq_cst);
}

TEST(a_torn_read_is_never_taken)
{
    unsigned char *memory = aligned_alloc(64, (cod_slot_window_bytes(&LAYOUT) + 63) & ~(uint64_t)63);
    memset(memory, 0, cod_slot_window_bytes(&LAYOUT));
    cod_slot_writer writer;
    assert_ok(cod_slot_writer_init(&writer, memory, &WHO, &LAYOUT, fence, NULL));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, publish_all, &writer), 0);
    uint64_t taken = 0, lost = 0, torn_headers = 0, wrong = 0, newest = 0;
    while (newest < VERSIONS) {
        _Alignas(8) unsigned char bytes[COD_SLOT_HEADER_BYTES];
        static uint64_t data[BYTES / 8];
        cod_slot_header header;
        bool torn = false;
        get(memory, 0, bytes, sizeof bytes);
        wrong += cod_slot_read_header(bytes, &WHO, &LAYOUT, &header, &torn) != COD_OK;
        torn_headers += torn;
        if (torn || wrong > 0 || (newest = cod_slot_newest(&header)) == 0)
            continue;
        const uint32_t slot = (uint32_t)cod_slot_find(&header, newest);
        uint64_t word;
        get(memory, cod_slot_data_at(&LAYOUT, slot), data, BYTES);
        get(memory, cod_slot_sequence_at(&LAYOUT, slot), &word, 8);
        if (word != header.entries[slot].sequence) {
            lost++;
            continue;
        }
        taken++;
        for (size_t i = 0; i < BYTES / 8; i++)
            wrong += data[i] != newest;
    }
    pthread_join(thread, NULL);
    print_message("%llu taken, %llu lost, %llu torn headers\n", (unsigned long long)taken, (unsigned long long)lost,
                  (unsigned long long)torn_headers);
    assert_int_equal(wrong, 0);
    assert_true(taken > 0);
    free(memory);
}

/*
 * Headers of windows, which say what a peer publishes.
 *
 * An input is three bytes and a header. Byte 0: bit 1 its checksum is put right first, so that what lies behind it is
 * reached, bits 6-7 by how much a publisher's versions differ. Bytes 1 and 2: the version held, and the one after which
 * versions are wanted.
 */
#include "fuzz.h"

#include "core/chunk_format.h"
#include "core/hash.h"
#include "exchange/slot.h"

enum { SUM_RIGHT = 2, HEAD = 3 };

fuzz_kind fuzz_kinds[] = {{"headers", 0}, {"stamps", 0}, {"offers", 0}, {"deltas that follow", 0}, {NULL, 0}};

static const cod_slot_identity identity = {
    .run = 1, .model = 2, .group = 1, .shards = 1, .count = 100, .exact_from = 90};
static const cod_slot_layout layout = {.slots = 5, .groups = 3, .slot_bytes = 4096};

static void look_for_news(const uint8_t *input, const cod_slot_header *header)
{
    const uint64_t held = input[1], after = input[2];
    const cod_slot_wanted wanted = {.held = held, .after = after, .at_most = UINT64_MAX, .spacing = input[0] >> 6};
    const cod_slot_offered offered = cod_slot_offer(header, &wanted);
    fuzz_kinds[2].taken += offered.version != 0;
    fuzz_kinds[3].taken += offered.following > 0;
    FUZZ_DEMAND(offered.version == 0 ||
                (offered.version > held && offered.version > after && offered.version <= header->newest &&
                 cod_slot_find(header, offered.version) >= 0 &&
                 cod_slot_life(header, offered.version) == offered.life));
    FUZZ_DEMAND(offered.following <= layout.slots && (offered.version != 0 || offered.following == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    cod_slot_header header;
    cod_slot_stamp stamp;
    bool torn;
    if (bytes < HEAD + COD_SLOT_HEADER_BYTES)
        return 0;
    unsigned char *data = malloc(COD_SLOT_HEADER_BYTES); /* of the exact length, so that a sanitizer sees more */
    FUZZ_DEMAND(data != NULL);
    memcpy(data, input + HEAD, COD_SLOT_HEADER_BYTES);
    if ((input[0] & SUM_RIGHT) != 0)
        cod_store_u64(data, cod_hash(data + 8, COD_SLOT_HEADER_BYTES - 8, 0));
    const bool stamped = cod_slot_read_stamp(data, &stamp);
    const bool sound = fuzz_taken(cod_slot_read_header(data, &identity, &layout, &header, &torn)) && !torn;
    free(data);
    FUZZ_DEMAND(!stamped || stamp.begun_ms <= COD_SLOT_VERSION_MAX);
    fuzz_kinds[1].taken += stamped;
    if (!sound)
        return 0;
    fuzz_kinds[0].taken++;
    FUZZ_DEMAND(header.newest <= COD_SLOT_VERSION_MAX && cod_slot_newest(&header) <= header.newest);
    for (uint32_t i = 0; i < COD_SLOT_MAX; i++) {
        const cod_slot_entry *entry = &header.entries[i];
        FUZZ_DEMAND(entry->version == 0 || (i < layout.slots && entry->bytes <= layout.slot_bytes));
    }
    look_for_news(input, &header);
    return 0;
}

static cod_status no_sync(void *context)
{
    (void)context;
    return COD_OK;
}

/** Versions 4 … 7, each a delta against the one before, and the eighth begun; with a stamp, and without. */
int fuzz_write(const char *folder)
{
    static _Alignas(64) unsigned char memory[1 << 16];
    static uint8_t input[HEAD + COD_SLOT_HEADER_BYTES] = {SUM_RIGHT | 1 << 6, 3, 3};
    cod_slot_writer writer;
    int failures = cod_slot_writer_init(&writer, memory, &identity, &layout, no_sync, NULL) != COD_OK;
    for (uint64_t version = 4; version <= 8; version++) {
        uint64_t oldest;
        unsigned char *room;
        const uint32_t slot = cod_slot_next(&writer, &oldest);
        const cod_slot_entry entry = {
            .version = version, .life = 9, .bytes = 100, .reference = version == 4 ? 0 : version - 1};
        failures += cod_slot_open(&writer, slot, &room) != COD_OK;
        failures += version < 8 && cod_slot_close(&writer, slot, &entry) != COD_OK;
    }
    memcpy(input + HEAD, memory, COD_SLOT_HEADER_BYTES);
    failures += fuzz_write_file(folder, "window", input, sizeof input);
    cod_slot_stamp_header(input + HEAD, &(cod_slot_stamp){.life = 9, .begun_ms = 1, .written_ms = 2});
    return failures + fuzz_write_file(folder, "file", input, sizeof input);
}

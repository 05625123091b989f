#include "exchange/slot.h"

#include "core/chunk_format.h"
#include "core/hash.h"

#include <stdatomic.h>
#include <string.h>

/** "CDW5" and the header's format, in one word. */
#define MAGIC UINT64_C(0x0000000535574443)

/* Words of the header behind its checksum, in this order; the stamp, the newest version and the entries follow. */
enum { IDENTITY_AT = 16, STAMP_AT = 96, NEWEST_AT = 120 };

static void store_header(const cod_slot_header *header, unsigned char out[COD_SLOT_HEADER_BYTES])
{
    const cod_slot_identity *who = &header->identity;
    const uint64_t words[] = {MAGIC,
                              who->run,
                              who->model,
                              who->group,
                              who->shard | (uint64_t)who->shards << 32,
                              who->first,
                              who->count,
                              who->exact_from,
                              header->layout.slots | (uint64_t)header->layout.groups << 32,
                              header->layout.slot_bytes};
    memset(out, 0, COD_SLOT_HEADER_BYTES);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        cod_store_u64(out + 8 + 8 * i, words[i]);
    cod_store_u64(out + NEWEST_AT, header->newest);
    for (size_t i = 0; i < COD_SLOT_MAX; i++) {
        const cod_slot_entry *entry = &header->entries[i];
        unsigned char *at = out + COD_SLOT_ENTRIES_AT + COD_SLOT_ENTRY_BYTES * i;
        cod_store_u64(at, entry->version);
        cod_store_u64(at + 8, entry->life);
        cod_store_u64(at + 16, entry->bytes);
        cod_store_u64(at + 24, entry->sequence);
        cod_store_u64(at + 32, entry->reference);
        cod_store_u64(at + 40, entry->published_ms);
    }
    cod_store_u64(out, cod_hash(out + 8, COD_SLOT_HEADER_BYTES - 8, 0));
}

cod_status cod_slot_write_header(cod_slot_writer *writer)
{
    unsigned char bytes[COD_SLOT_HEADER_BYTES];
    store_header(&writer->header, bytes);
    memcpy(writer->memory, bytes, sizeof bytes);
    return writer->sync(writer->sync_context);
}

/** One aligned store, never torn. */
static void write_word(cod_slot_writer *writer, uint64_t at, uint64_t value)
{
    atomic_store_explicit((_Atomic uint64_t *)(void *)(writer->memory + at), value, memory_order_release);
}

cod_status cod_slot_writer_init(cod_slot_writer *writer, unsigned char *memory, const cod_slot_identity *identity,
                                const cod_slot_layout *layout, cod_slot_sync sync, void *sync_context)
{
    COD_REQUIRE(layout->slots >= 2 && layout->slots <= COD_SLOT_MAX, "a window has 2 to %d slots, not %u", COD_SLOT_MAX,
                layout->slots);
    *writer = (cod_slot_writer){.memory = memory,
                                .header = {.identity = *identity, .layout = *layout},
                                .sync = sync,
                                .sync_context = sync_context};
    return cod_slot_write_header(writer);
}

uint32_t cod_slot_next(const cod_slot_writer *writer, uint64_t *oldest)
{
    uint32_t slot = 0;
    for (uint32_t i = 1; i < writer->header.layout.slots; i++)
        if (writer->header.entries[i].version < writer->header.entries[slot].version)
            slot = i;
    *oldest = writer->header.entries[slot].version;
    return slot;
}

cod_status cod_slot_open(cod_slot_writer *writer, uint32_t slot, unsigned char **room)
{
    cod_slot_entry *entry = &writer->header.entries[slot];
    entry->version = 0;
    entry->bytes = 0;
    entry->sequence |= 1;
    write_word(writer, cod_slot_sequence_at(&writer->header.layout, slot), entry->sequence);
    *room = writer->memory + cod_slot_data_at(&writer->header.layout, slot);
    return cod_slot_write_header(writer);
}

cod_status cod_slot_close(cod_slot_writer *writer, uint32_t slot, const cod_slot_entry *entry)
{
    cod_slot_entry *own = &writer->header.entries[slot];
    const uint64_t sequence = own->sequence + 1;
    COD_TRY(writer->sync(writer->sync_context));
    *own = *entry;
    own->sequence = sequence;
    if (entry->version > writer->header.newest)
        writer->header.newest = entry->version;
    write_word(writer, cod_slot_sequence_at(&writer->header.layout, slot), sequence);
    /* A reader that saw the header before the word would take the slot for reopened. */
    COD_TRY(writer->sync(writer->sync_context));
    return cod_slot_write_header(writer);
}

cod_status cod_slot_acknowledge(cod_slot_writer *writer, uint32_t group, uint64_t version)
{
    write_word(writer, cod_slot_ack_at(&writer->header.layout, group), version);
    return writer->sync(writer->sync_context);
}

static bool is_intact(const unsigned char *bytes)
{
    return cod_load_u64(bytes) == cod_hash(bytes + 8, COD_SLOT_HEADER_BYTES - 8, 0);
}

void cod_slot_stamp_header(unsigned char *bytes, const cod_slot_stamp *stamp)
{
    cod_store_u64(bytes + STAMP_AT, stamp->life);
    cod_store_u64(bytes + STAMP_AT + 8, stamp->begun_ms);
    cod_store_u64(bytes + STAMP_AT + 16, stamp->written_ms);
    cod_store_u64(bytes, cod_hash(bytes + 8, COD_SLOT_HEADER_BYTES - 8, 0));
}

bool cod_slot_read_stamp(const unsigned char *bytes, cod_slot_stamp *stamp)
{
    *stamp = (cod_slot_stamp){cod_load_u64(bytes + STAMP_AT), cod_load_u64(bytes + STAMP_AT + 8),
                              cod_load_u64(bytes + STAMP_AT + 16)};
    return is_intact(bytes) && cod_load_u64(bytes + 8) == MAGIC && stamp->begun_ms <= COD_SLOT_VERSION_MAX;
}

bool cod_slot_makes_sense(const cod_slot_entry *entry, const cod_slot_layout *layout, uint64_t newest)
{
    return entry->version <= newest && entry->bytes <= layout->slot_bytes && entry->sequence % 2 == 0 &&
           entry->reference < entry->version;
}

bool cod_slot_header_makes_sense(const cod_slot_header *header)
{
    for (uint32_t i = 0; i < COD_SLOT_MAX; i++) {
        const cod_slot_entry *entry = &header->entries[i];
        if (entry->version != 0 &&
            (i >= header->layout.slots || !cod_slot_makes_sense(entry, &header->layout, header->newest)))
            return false;
    }
    return header->newest <= COD_SLOT_VERSION_MAX;
}

cod_status cod_slot_read_header(const unsigned char *bytes, const cod_slot_identity *expected,
                                const cod_slot_layout *layout, cod_slot_header *out, bool *torn)
{
    *torn = !is_intact(bytes);
    if (*torn)
        return COD_OK;
    *out = (cod_slot_header){.identity = *expected, .layout = *layout};
    /* What is expected, as bytes: everything before the stamp must equal it. */
    unsigned char wanted[COD_SLOT_HEADER_BYTES];
    store_header(out, wanted);
    if (memcmp(bytes + 8, wanted + 8, IDENTITY_AT - 8) != 0)
        return cod_fail(COD_ERR_FORMAT, "not a window of this format");
    if (memcmp(bytes + IDENTITY_AT, wanted + IDENTITY_AT, STAMP_AT - IDENTITY_AT) != 0)
        return cod_fail(COD_ERR_FORMAT,
                        "group %u publishes another run, model or exchange configuration; runs must not share a folder "
                        "of the exchange: give one of them another name= and exchange.directory=",
                        expected->group);
    out->newest = cod_load_u64(bytes + NEWEST_AT);
    if (out->newest > COD_SLOT_VERSION_MAX)
        return cod_fail(COD_ERR_FORMAT, "group %u's newest version, %llu, makes no sense", expected->group,
                        (unsigned long long)out->newest);
    for (size_t i = 0; i < COD_SLOT_MAX; i++) {
        const unsigned char *at = bytes + COD_SLOT_ENTRIES_AT + COD_SLOT_ENTRY_BYTES * i;
        out->entries[i] = (cod_slot_entry){cod_load_u64(at),      cod_load_u64(at + 8),  cod_load_u64(at + 16),
                                           cod_load_u64(at + 24), cod_load_u64(at + 32), cod_load_u64(at + 40)};
        const cod_slot_entry *entry = &out->entries[i];
        if (entry->version != 0 && (i >= layout->slots || !cod_slot_makes_sense(entry, layout, out->newest)))
            return cod_fail(COD_ERR_FORMAT, "slot %zu of group %u's window makes no sense", i, expected->group);
    }
    return COD_OK;
}

bool cod_slot_same_publisher(const cod_slot_header *a, const cod_slot_header *b)
{
    const cod_slot_identity *x = &a->identity, *y = &b->identity;
    return x->run == y->run && x->model == y->model && x->group == y->group && x->shard == y->shard &&
           x->shards == y->shards && x->first == y->first && x->count == y->count && x->exact_from == y->exact_from &&
           a->layout.slots == b->layout.slots && a->layout.groups == b->layout.groups &&
           a->layout.slot_bytes == b->layout.slot_bytes;
}

uint64_t cod_slot_used_bytes(const cod_slot_header *header)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < header->layout.slots; i++) {
        if (header->entries[i].bytes > header->layout.slot_bytes)
            return UINT64_MAX;
        used += header->entries[i].bytes;
    }
    return used;
}

int cod_slot_find(const cod_slot_header *header, uint64_t version)
{
    for (uint32_t i = 0; i < header->layout.slots; i++)
        if (version != 0 && header->entries[i].version == version)
            return (int)i;
    return -1;
}

uint64_t cod_slot_life(const cod_slot_header *header, uint64_t version)
{
    const int slot = cod_slot_find(header, version);
    return slot >= 0 ? header->entries[slot].life : 0;
}

uint64_t cod_slot_newest(const cod_slot_header *header)
{
    uint64_t newest = 0;
    for (uint32_t i = 0; i < header->layout.slots; i++)
        newest = header->entries[i].version > newest ? header->entries[i].version : newest;
    return newest;
}

/** The delta that follows `version`, or NULL. */
static const cod_slot_entry *find_next(const cod_slot_header *header, uint64_t version, uint64_t life,
                                       const cod_slot_wanted *wanted)
{
    for (uint32_t i = 0; i < header->layout.slots; i++) {
        const cod_slot_entry *entry = &header->entries[i];
        if (entry->reference == version && entry->version - version == wanted->spacing && entry->life == life &&
            entry->version <= wanted->at_most)
            return entry;
    }
    return NULL;
}

cod_slot_offered cod_slot_offer(const cod_slot_header *header, const cod_slot_wanted *wanted)
{
    uint64_t key = 0, delta = 0, oldest = UINT64_MAX;
    for (uint32_t i = 0; i < header->layout.slots; i++)
        if (header->entries[i].version != 0 && header->entries[i].version < oldest)
            oldest = header->entries[i].version;
    for (uint32_t i = 0; i < header->layout.slots; i++) {
        const cod_slot_entry *entry = &header->entries[i];
        if (entry->version <= wanted->after || entry->version <= wanted->held ||
            (entry->version > wanted->at_most && oldest <= wanted->at_most))
            continue;
        if (entry->reference == 0)
            key = entry->version > key ? entry->version : key;
        else if (entry->reference == wanted->held)
            delta = entry->version;
    }
    cod_slot_offered out = {.version = key != 0 ? key : delta};
    if (out.version == 0)
        return out;
    out.life = cod_slot_life(header, out.version);
    const cod_slot_entry *next = find_next(header, out.version, out.life, wanted);
    for (; next != NULL && out.following < header->layout.slots;
         next = find_next(header, next->version, out.life, wanted))
        out.following++;
    return out;
}

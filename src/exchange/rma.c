#include "exchange/rma.h"

#include "comm/group.h"
#include "core/chunk_format.h"
#include "core/trace.h"

#include <stdlib.h>
#include <string.h>

/** A question for one publisher's header. Each has its own, so that one that does not answer hides no other. */
typedef struct publisher {
    cod_request *asking;
    cod_room *asked; /**< NULL until first asked */
} publisher;

typedef enum pull_phase { PULL_NONE, PULL_HEADER, PULL_DATA, PULL_SEQUENCE, PULL_HERE } pull_phase;

typedef struct pull {
    pull_phase phase;
    cod_room *room; /**< borrowed */
    cod_slot_identity expected;
    int rank, slot;
    uint64_t version;
    cod_slot_entry entry;
    double data_s; /**< when the slot's bytes were asked for, then how long they took */
    cod_request *get;
} pull;

typedef struct rma {
    cod_transport base;
    cod_comm *comm;
    cod_window *window;
    cod_slot_writer writer;
    cod_slot_layout layout;
    uint32_t open_slot;

    publisher *publishers; /**< [world size] */
    cod_rooms *rooms;      /**< of all fragments' transports */
    pull *pulls;           /**< [rooms->count] */

    cod_request *ack;
    cod_room *ack_word;
} rma;

/** Gives a get up; its memory lives until it ends. */
static void abandon(cod_request **request, cod_room *memory)
{
    if (*request == NULL)
        return;
    cod_room_keep(memory);
    cod_request_abandon(request, cod_room_release, memory);
}

static cod_status sync_window(void *context)
{
    return cod_window_sync(((rma *)context)->window);
}

static cod_status publish_begin(cod_transport *transport, unsigned char **room)
{
    rma *t = (rma *)transport;
    uint64_t oldest;
    t->open_slot = cod_slot_next(&t->writer, &oldest);
    return cod_slot_open(&t->writer, t->open_slot, room);
}

static uint64_t oldest(cod_transport *transport)
{
    uint64_t version;
    cod_slot_next(&((rma *)transport)->writer, &version);
    return version;
}

static cod_status publish_end(cod_transport *transport, const cod_slot_entry *entry)
{
    rma *t = (rma *)transport;
    return cod_slot_close(&t->writer, t->open_slot, entry);
}

/** Without the entries that the layout has no slots for: they are zero. */
static cod_status get_header(rma *t, int world_rank, cod_room *to, cod_request **request)
{
    return cod_window_get_start(t->window, world_rank, 0, to->header, cod_slot_header_bytes(&t->layout), request);
}

static cod_status offer(cod_transport *transport, const cod_slot_identity *expected, int world_rank,
                        const cod_slot_wanted *wanted, bool *answered, cod_slot_offered *offered)
{
    rma *t = (rma *)transport;
    publisher *who = &t->publishers[world_rank];
    cod_slot_header header;
    bool done, torn;
    *answered = false;
    *offered = (cod_slot_offered){0};
    if (who->asked == NULL)
        COD_TRY(cod_room_create(0, &who->asked));
    if (who->asking == NULL)
        return get_header(t, world_rank, who->asked, &who->asking);
    COD_TRY(cod_request_test(&who->asking, &done));
    if (!done)
        return COD_OK;
    COD_TRY(cod_slot_read_header(who->asked->header, expected, &t->layout, &header, &torn));
    if (torn)
        return get_header(t, world_rank, who->asked, &who->asking);
    *answered = true;
    *offered = cod_slot_offer(&header, wanted);
    return COD_OK;
}

static cod_status ask_header(rma *t, pull *p)
{
    p->phase = PULL_HEADER;
    return get_header(t, p->rank, p->room, &p->get);
}

static cod_status pull_start(cod_transport *transport, int place, const cod_slot_identity *expected, int world_rank,
                             uint64_t version)
{
    rma *t = (rma *)transport;
    pull *p = &t->pulls[place];
    p->expected = *expected;
    p->rank = world_rank;
    p->version = version;
    COD_TRY(cod_rooms_take(t->rooms, place, &p->room));
    return ask_header(t, p);
}

/** The header has come: finds the slot and asks for its bytes. A torn header is asked for again. */
static cod_status take_header(rma *t, pull *p, cod_pull_state *state)
{
    cod_slot_header header;
    bool torn;
    COD_TRY(cod_slot_read_header(p->room->header, &p->expected, &t->layout, &header, &torn));
    if (torn)
        return ask_header(t, p);
    p->slot = cod_slot_find(&header, p->version);
    if (p->slot < 0) {
        /* Either it was replaced, or, in deterministic mode, it is not there yet. */
        if (cod_slot_newest(&header) <= p->version)
            return ask_header(t, p);
        *state = COD_PULL_LOST;
        return COD_OK;
    }
    p->entry = header.entries[p->slot];
    p->data_s = cod_clock_s();
    p->phase = PULL_DATA;
    return cod_window_get_start(t->window, p->rank, cod_slot_data_at(&t->layout, (uint32_t)p->slot), p->room->data,
                                p->entry.bytes, &p->get);
}

static cod_status take_data(rma *t, pull *p)
{
    p->data_s = cod_clock_s() - p->data_s;
    p->phase = PULL_SEQUENCE;
    return cod_window_get_start(t->window, p->rank, cod_slot_sequence_at(&t->layout, (uint32_t)p->slot), p->room->word,
                                sizeof p->room->word, &p->get);
}

static cod_status poll_phase(rma *t, pull *p, cod_pull_state *state)
{
    bool done;
    if (p->phase == PULL_NONE || p->phase == PULL_HERE)
        return COD_OK;
    COD_TRY(cod_request_test(&p->get, &done));
    if (!done)
        return COD_OK;
    if (p->phase == PULL_HEADER)
        return take_header(t, p, state);
    if (p->phase == PULL_DATA)
        return take_data(t, p);
    if (cod_load_u64(p->room->word) == p->entry.sequence)
        p->phase = PULL_HERE;
    else
        *state = COD_PULL_LOST;
    return COD_OK;
}

static cod_status pull_poll(cod_transport *transport, int place, cod_pull_state *state, cod_pulled *out)
{
    rma *t = (rma *)transport;
    pull *p = &t->pulls[place];
    pull_phase before;
    *state = COD_PULL_BUSY;
    /*
     * As far as it goes at once: in shared memory gets end as they start, and each step more is one in which to lose
     * the slot.
     */
    do {
        before = p->phase;
        COD_TRY(poll_phase(t, p, state));
    } while (p->phase != before && *state == COD_PULL_BUSY);
    *out = (cod_pulled){.bytes = p->phase == PULL_DATA       ? cod_window_get_arrived(p->get)
                                 : p->phase == PULL_SEQUENCE ? p->entry.bytes
                                                             : 0};
    if (p->phase == PULL_HERE) {
        *state = COD_PULL_DONE;
        *out = (cod_pulled){p->room->data, p->entry.bytes, p->entry.life, p->entry.published_ms, p->data_s, false};
    }
    if (*state == COD_PULL_LOST)
        p->phase = PULL_NONE;
    return COD_OK;
}

static void pull_cancel(cod_transport *transport, int place)
{
    pull *p = &((rma *)transport)->pulls[place];
    p->phase = PULL_NONE;
    abandon(&p->get, p->room); /* late bytes may still arrive there */
}

static cod_status acknowledge(cod_transport *transport, uint32_t group, uint64_t version)
{
    return cod_slot_acknowledge(&((rma *)transport)->writer, group, version);
}

static cod_status acknowledged(cod_transport *transport, const cod_slot_identity *reader, int world_rank,
                               uint32_t group, uint64_t *version)
{
    rma *t = (rma *)transport;
    bool done;
    (void)reader;
    *version = 0;
    if (t->ack == NULL)
        COD_TRY(cod_window_get_start(t->window, world_rank, cod_slot_ack_at(&t->layout, group), t->ack_word->word, 8,
                                     &t->ack));
    COD_TRY(cod_request_test(&t->ack, &done));
    if (done)
        *version = cod_load_u64(t->ack_word->word);
    return COD_OK;
}

/* Saved: the header's struct, the window in front of its slots, and of each slot what its entry says. */

static cod_status state(cod_transport *transport, void **data, size_t *bytes)
{
    rma *t = (rma *)transport;
    const cod_slot_header *header = &t->writer.header;
    const size_t front = cod_slot_data_at(&t->layout, 0);
    *bytes = sizeof *header + front + cod_slot_used_bytes(header);
    unsigned char *at = malloc(*bytes);
    COD_REQUIRE_MEMORY(at);
    *data = at;
    memcpy(at, header, sizeof *header);
    at += sizeof *header;
    memcpy(at, t->writer.memory, front);
    at += front;
    for (uint32_t i = 0; i < t->layout.slots; i++) {
        memcpy(at, t->writer.memory + cod_slot_data_at(&t->layout, i), header->entries[i].bytes);
        at += header->entries[i].bytes;
    }
    return COD_OK;
}

static cod_status restored(cod_transport *transport, const void *data, size_t bytes)
{
    rma *t = (rma *)transport;
    const unsigned char *saved = data;
    cod_slot_header header;
    const size_t front = cod_slot_data_at(&t->layout, 0);
    if (bytes < sizeof header + front)
        return cod_fail(COD_ERR_FORMAT, "the saved slots are cut off");
    memcpy(&header, saved, sizeof header);
    saved += sizeof header;
    if (!cod_slot_same_publisher(&header, &t->writer.header))
        return cod_fail(COD_ERR_FORMAT, "the saved slots are of another run, model or exchange section");
    /* Slots were saved whole once. When all are full that looks the same, and is. */
    const uint64_t used = cod_slot_used_bytes(&header);
    bool sound = cod_slot_header_makes_sense(&header);
    for (uint32_t i = 0; i < t->layout.slots; i++) /* readers compare them */
        sound = sound && cod_load_u64(saved + cod_slot_sequence_at(&t->layout, i)) == header.entries[i].sequence;
    if (!sound)
        return cod_fail(COD_ERR_FORMAT, "the saved slots make no sense");
    const bool whole = bytes == sizeof header + cod_slot_window_bytes(&t->layout);
    if (used == UINT64_MAX || (!whole && bytes != sizeof header + front + used))
        return cod_fail(COD_ERR_FORMAT, "the saved slots have %zu bytes, not those that their header says", bytes);
    t->writer.header = header;
    /* The header last, as ever: a peer that is up already must not find a version before its bytes. */
    memcpy(t->writer.memory + COD_SLOT_HEADER_BYTES, saved + COD_SLOT_HEADER_BYTES, front - COD_SLOT_HEADER_BYTES);
    const unsigned char *at = saved + front;
    for (uint32_t i = 0; i < t->layout.slots; i++) {
        memcpy(t->writer.memory + cod_slot_data_at(&t->layout, i), at, header.entries[i].bytes);
        at += whole ? t->layout.slot_bytes : header.entries[i].bytes;
    }
    COD_TRY(cod_window_sync(t->window));
    return cod_slot_write_header(&t->writer);
}

static cod_status destroy(cod_transport *transport)
{
    rma *t = (rma *)transport;
    for (int i = 0; i < t->rooms->count; i++)
        pull_cancel(transport, i);
    abandon(&t->ack, t->ack_word);
    for (int r = 0; r < cod_comm_size(t->comm); r++)
        abandon(&t->publishers[r].asking, t->publishers[r].asked);
    const cod_status status = cod_window_destroy(t->window);
    for (int r = 0; r < cod_comm_size(t->comm); r++)
        cod_room_release(t->publishers[r].asked);
    free(t->pulls);
    cod_room_release(t->ack_word);
    free(t->publishers);
    free(t);
    return status;
}

static const cod_transport_ops ops = {
    .publish_begin = publish_begin,
    .oldest = oldest,
    .publish_end = publish_end,
    .offer = offer,
    .pull_start = pull_start,
    .pull_poll = pull_poll,
    .pull_cancel = pull_cancel,
    .acknowledge = acknowledge,
    .acknowledged = acknowledged,
    .state = state,
    .restored = restored,
    .destroy = destroy,
};

static cod_status make_buffers(rma *t)
{
    t->publishers = calloc((size_t)cod_comm_size(t->comm), sizeof *t->publishers);
    COD_REQUIRE_MEMORY(t->publishers);
    t->pulls = calloc((size_t)t->rooms->count + 1, sizeof *t->pulls);
    COD_REQUIRE_MEMORY(t->pulls);
    return cod_room_create(0, &t->ack_word);
}

cod_status cod_rma_create(cod_comm *comm, const cod_slot_identity *identity, const cod_slot_layout *layout,
                          cod_rooms *rooms, const int *sources, size_t source_count, cod_transport **out)
{
    rma *t = calloc(1, sizeof *t);
    COD_REQUIRE_MEMORY(t);
    t->base.ops = &ops;
    t->comm = comm;
    t->layout = *layout;
    t->rooms = rooms;
    COD_TRY(cod_group_agree(cod_comm_world(comm), make_buffers(t), NULL));
    COD_TRY(cod_window_create(comm, cod_slot_window_bytes(layout), sources, source_count, &t->window));
    COD_TRY(cod_slot_writer_init(&t->writer, cod_window_memory(t->window), identity, layout, sync_window, t));
    *out = &t->base;
    return COD_OK;
}

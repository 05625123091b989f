#include "distill/rma.h"

#include "comm/group.h"
#include "core/chunk_format.h"
#include "core/memory.h"
#include "core/trace.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { GET_BYTES = 256 * 1024, GETS_IN_FLIGHT = 16 };

/** Memory that gets write to; shared with gets that were given up, and freed with the last of them. */
typedef struct staging {
    atomic_int users;
    unsigned char header[COD_SLOT_HEADER_BYTES];
    unsigned char word[8];
    unsigned char data[];
} staging;

/** What is known of one publisher's header. Each has its own, so that one that does not answer hides no other. */
typedef struct publisher {
    cod_request *asking;
    staging *asked;         /**< NULL until first asked */
    cod_slot_header header; /**< as it was last seen; no entries at first */
} publisher;

typedef enum pull_phase { PULL_NONE, PULL_HEADER, PULL_DATA, PULL_SEQUENCE, PULL_HERE } pull_phase;

typedef struct rma {
    cod_transport base;
    cod_comm *comm;
    cod_window *window;
    cod_slot_writer writer;
    cod_slot_layout layout;
    uint32_t open_slot;

    publisher *publishers; /**< [world size] */

    pull_phase phase;
    staging *pulled; /**< NULL when the last was given up with gets outstanding */
    cod_slot_identity expected;
    int rank, slot;
    uint64_t version, requested; /**< bytes of the slot that were asked for */
    cod_slot_entry entry;
    double data_s; /**< when the first bytes were asked for, then how long all took */
    cod_request *gets[GETS_IN_FLIGHT];

    cod_request *ack;
    staging *ack_word;
    void *saved; /**< the window's bytes behind the header, and the header struct */
    size_t saved_bytes;
} rma;

static cod_status staging_create(size_t bytes, staging **out)
{
    staging *s = NULL;
    COD_TRY(cod_aligned_alloc((void **)&s, sizeof *s + bytes));
    atomic_init(&s->users, 1);
    memset(s->header, 0, sizeof s->header);
    *out = s;
    return COD_OK;
}

static void staging_release(void *context)
{
    staging *s = context;
    if (s != NULL && atomic_fetch_sub(&s->users, 1) == 1)
        cod_aligned_free(s);
}

/** Gives a get up; its memory lives until it ends. */
static void abandon(cod_request **request, staging *memory)
{
    if (*request == NULL)
        return;
    atomic_fetch_add(&memory->users, 1);
    cod_request_abandon(request, staging_release, memory);
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
static cod_status get_header(rma *t, int world_rank, staging *to, cod_request **request)
{
    return cod_window_get_start(t->window, world_rank, 0, to->header, cod_slot_header_bytes(&t->layout), request);
}

static cod_status offer(cod_transport *transport, const cod_slot_identity *expected, int world_rank, uint64_t held,
                        uint64_t after, uint64_t at_most, uint64_t *version, uint64_t *life)
{
    rma *t = (rma *)transport;
    publisher *who = &t->publishers[world_rank];
    bool done = false;
    if (who->asked == NULL)
        COD_TRY(staging_create(0, &who->asked));
    if (who->asking == NULL)
        COD_TRY(get_header(t, world_rank, who->asked, &who->asking));
    else
        COD_TRY(cod_request_test(&who->asking, &done));
    if (done) {
        cod_slot_header header;
        bool torn;
        COD_TRY(cod_slot_read_header(who->asked->header, expected, &t->layout, &header, &torn));
        if (!torn)
            who->header = header;
    }
    *version = cod_slot_offer(&who->header, held, after, at_most);
    *life = cod_slot_life(&who->header, *version);
    return COD_OK;
}

static cod_status ask_header(rma *t)
{
    t->phase = PULL_HEADER;
    return get_header(t, t->rank, t->pulled, &t->gets[0]);
}

static cod_status pull_start(cod_transport *transport, const cod_slot_identity *expected, int world_rank,
                             uint64_t version)
{
    rma *t = (rma *)transport;
    t->expected = *expected;
    t->rank = world_rank;
    t->version = version;
    t->requested = 0;
    if (t->pulled == NULL)
        COD_TRY(staging_create(t->layout.slot_bytes, &t->pulled));
    return ask_header(t);
}

/** The header has come: finds the slot. A torn header is asked for again. */
static cod_status take_header(rma *t, cod_pull_state *state)
{
    cod_slot_header header;
    bool torn;
    COD_TRY(cod_slot_read_header(t->pulled->header, &t->expected, &t->layout, &header, &torn));
    if (torn)
        return ask_header(t);
    t->slot = cod_slot_find(&header, t->version);
    if (t->slot < 0) {
        /* Either it was replaced, or, in deterministic mode, it is not there yet. */
        if (cod_slot_newest(&header) > t->version)
            *state = COD_PULL_LOST;
        else
            return ask_header(t);
        return COD_OK;
    }
    t->entry = header.entries[t->slot];
    t->data_s = cod_clock_s();
    t->phase = PULL_DATA;
    return COD_OK;
}

/** Keeps several gets in flight until all bytes are here. */
static cod_status move_data(rma *t)
{
    bool all = true;
    for (int i = 0; i < GETS_IN_FLIGHT; i++) {
        bool done;
        COD_TRY(cod_request_test(&t->gets[i], &done));
        if (done && t->requested < t->entry.bytes) {
            const uint64_t left = t->entry.bytes - t->requested, bytes = left < GET_BYTES ? left : GET_BYTES;
            COD_TRY(cod_window_get_start(t->window, t->rank,
                                         cod_slot_data_at(&t->layout, (uint32_t)t->slot) + t->requested,
                                         t->pulled->data + t->requested, bytes, &t->gets[i]));
            t->requested += bytes;
            done = false;
        }
        all = all && done;
    }
    if (!all)
        return COD_OK;
    t->data_s = cod_clock_s() - t->data_s;
    t->phase = PULL_SEQUENCE;
    return cod_window_get_start(t->window, t->rank, cod_slot_sequence_at(&t->layout, (uint32_t)t->slot),
                                t->pulled->word, sizeof t->pulled->word, &t->gets[0]);
}

static cod_status poll_phase(rma *t, cod_pull_state *state)
{
    bool done;
    if (t->phase == PULL_DATA)
        return move_data(t);
    if (t->phase != PULL_HEADER && t->phase != PULL_SEQUENCE)
        return COD_OK;
    COD_TRY(cod_request_test(&t->gets[0], &done));
    if (!done)
        return COD_OK;
    if (t->phase == PULL_HEADER)
        return take_header(t, state);
    if (cod_load_u64(t->pulled->word) == t->entry.sequence)
        t->phase = PULL_HERE;
    else
        *state = COD_PULL_LOST;
    return COD_OK;
}

static cod_status pull_poll(cod_transport *transport, cod_pull_state *state, cod_pulled *out)
{
    rma *t = (rma *)transport;
    pull_phase before;
    *state = COD_PULL_BUSY;
    /* As far as it goes at once: in shared memory gets end as they start, and each step more is one in which to lose the slot. */
    do {
        before = t->phase;
        COD_TRY(poll_phase(t, state));
    } while (t->phase != before && *state == COD_PULL_BUSY);
    *out = (cod_pulled){.bytes = t->requested};
    if (t->phase == PULL_HERE) {
        *state = COD_PULL_DONE;
        *out = (cod_pulled){t->pulled->data, t->entry.bytes, t->entry.life, t->entry.published_ms, t->data_s};
    }
    if (*state == COD_PULL_LOST)
        t->phase = PULL_NONE;
    return COD_OK;
}

static void pull_cancel(cod_transport *transport)
{
    rma *t = (rma *)transport;
    bool outstanding = false;
    t->phase = PULL_NONE;
    for (int i = 0; i < GETS_IN_FLIGHT; i++) {
        outstanding = outstanding || t->gets[i] != NULL;
        abandon(&t->gets[i], t->pulled);
    }
    /* Late bytes may still arrive in the old memory: the next pull makes its own. */
    if (outstanding) {
        staging_release(t->pulled);
        t->pulled = NULL;
    }
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

static void state(cod_transport *transport, void **data, size_t *bytes)
{
    rma *t = (rma *)transport;
    memcpy(t->saved, &t->writer.header, sizeof t->writer.header);
    memcpy((char *)t->saved + sizeof t->writer.header, t->writer.memory, cod_slot_window_bytes(&t->layout));
    *data = t->saved;
    *bytes = t->saved_bytes;
}

static cod_status restored(cod_transport *transport)
{
    rma *t = (rma *)transport;
    cod_slot_header header;
    memcpy(&header, t->saved, sizeof header);
    if (!cod_slot_same_publisher(&header, &t->writer.header))
        return cod_fail(COD_ERR_FORMAT, "the saved slots are of another run, model or exchange section");
    t->writer.header = header;
    /* The header last, as ever: a peer that is up already must not find a version before its bytes. */
    const char *saved = (const char *)t->saved + sizeof header;
    memcpy(t->writer.memory + COD_SLOT_HEADER_BYTES, saved + COD_SLOT_HEADER_BYTES,
           cod_slot_window_bytes(&t->layout) - COD_SLOT_HEADER_BYTES);
    COD_TRY(cod_window_sync(t->window));
    memcpy(t->writer.memory, saved, COD_SLOT_HEADER_BYTES);
    for (int r = 0; r < cod_comm_size(t->comm); r++)
        t->publishers[r].header = (cod_slot_header){0};
    return cod_window_sync(t->window);
}

static cod_status destroy(cod_transport *transport)
{
    rma *t = (rma *)transport;
    pull_cancel(transport);
    abandon(&t->ack, t->ack_word);
    for (int r = 0; r < cod_comm_size(t->comm); r++)
        abandon(&t->publishers[r].asking, t->publishers[r].asked);
    const cod_status status = cod_window_destroy(t->window);
    for (int r = 0; r < cod_comm_size(t->comm); r++)
        staging_release(t->publishers[r].asked);
    staging_release(t->pulled);
    staging_release(t->ack_word);
    cod_aligned_free(t->saved);
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
    t->saved_bytes = sizeof t->writer.header + cod_slot_window_bytes(&t->layout);
    COD_TRY(cod_aligned_alloc(&t->saved, t->saved_bytes));
    COD_TRY(staging_create(t->layout.slot_bytes, &t->pulled));
    return staging_create(0, &t->ack_word);
}

cod_status cod_rma_create(cod_comm *comm, const cod_slot_identity *identity, const cod_slot_layout *layout,
                          cod_transport **out)
{
    rma *t = calloc(1, sizeof *t);
    COD_REQUIRE_MEMORY(t);
    t->base.ops = &ops;
    t->comm = comm;
    t->layout = *layout;
    COD_TRY(cod_group_agree(cod_comm_world(comm), make_buffers(t), NULL));
    COD_TRY(cod_window_create(comm, cod_slot_window_bytes(layout), &t->window));
    COD_TRY(cod_slot_writer_init(&t->writer, cod_window_memory(t->window), identity, layout, sync_window, t));
    *out = &t->base;
    return COD_OK;
}

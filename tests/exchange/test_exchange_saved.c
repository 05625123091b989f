/* What a checkpoint holds of the slots: no more than they do. */
#include "comm/job.h"

#include "comm/comm_internal.h"
#include "exchange/exchange_internal.h"
#include "exchange/exchange_run.h"

#include <stdlib.h>
#include <string.h>

enum { RUN_NAME = 7, PERIOD = 10, SAVED_AT = 33, STEPS = 58 };

/** Two groups; ranks from `second` on run on another node; 0 = all on one. */
typedef struct split {
    int ranks, sizes[2], second;
} split;

static const split splits[] = {{2, {1, 1}, 0}, {3, {2, 1}, 0}, {4, {3, 1}, 2}, {5, {4, 1}, 2}};

typedef enum form { EXACT, WHOLE, CUT_OFF, TOO_LONG, FORMS } form;

static void begin(exchange_run *r, const split *s)
{
    cod_exchange_options options = run_options(PERIOD);
    options.codec = COD_EXCHANGE_DELTA;
    options.deterministic = true;
    options.lag_steps = 7;
    options.slots = 8; /* three versions leave five of them empty */
    for (int k = 0; k < s->ranks; k++)
        job->node_of[k] = s->second > 0 && k >= s->second;
    run_open(r, s->sizes, 2, &options, RUN_NAME);
    for (int k = 0; k < s->ranks && s->second > 0; k++)
        check_all(cod_group_rank(r->group) != k || cod_group_size(r->group) == 1 ||
                  cod_exchange_holders(r->exchange) == (k < 2 ? 2 : s->sizes[0] - 2));
}

static cod_slot_header header_of(const run_saved *saved)
{
    cod_slot_header header;
    memcpy(&header, saved->data[saved->slots], sizeof header);
    return header;
}

/** Header and entries, then what versions took: over files of the newest alone, whose entry follows. */
static size_t exact_bytes(const cod_slot_header *header)
{
    const size_t front = sizeof *header + cod_slot_data_at(&header->layout, 0);
    const int newest = cod_slot_find(header, cod_slot_newest(header));
    if (run_is_on_files())
        return front + header->entries[newest].bytes + sizeof(cod_slot_entry);
    size_t bytes = front;
    for (uint32_t i = 0; i < header->layout.slots; i++)
        bytes += header->entries[i].version != 0 ? header->entries[i].bytes : 0;
    return bytes;
}

/** As the version before saved them: slots, or over files the room of the newest version, whole. */
static void make_whole(run_saved *saved)
{
    const cod_slot_header header = header_of(saved);
    const unsigned char *from = saved->data[saved->slots];
    const size_t front = sizeof header + cod_slot_data_at(&header.layout, 0), entry = sizeof(cod_slot_entry);
    const bool files = run_is_on_files();
    saved->bytes[saved->slots] =
        files ? front + header.layout.slot_bytes + entry : sizeof header + cod_slot_window_bytes(&header.layout);
    unsigned char *whole = calloc(1, saved->bytes[saved->slots]);
    must(whole != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "no memory"));
    memcpy(whole, from, front);
    if (files) {
        const size_t used = exact_bytes(&header) - front - entry;
        memcpy(whole + front, from + front, used);
        memcpy(whole + front + header.layout.slot_bytes, from + front + used, entry);
    }
    for (uint32_t i = 0, used = 0; !files && i < header.layout.slots; i++) {
        memcpy(whole + front + i * header.layout.slot_bytes, from + front + used, header.entries[i].bytes);
        used += (uint32_t)header.entries[i].bytes;
    }
    free(saved->data[saved->slots]);
    saved->data[saved->slots] = whole;
}

/** An entry that says more than a slot has. */
static void make_too_long(run_saved *saved)
{
    unsigned char *slots = saved->data[saved->slots];
    cod_slot_header header = header_of(saved);
    const uint64_t too_long = header.layout.slot_bytes + 1;
    for (uint32_t i = 0; i < header.layout.slots; i++)
        header.entries[i].bytes = too_long;
    memcpy(slots, &header, sizeof header);
    memcpy(slots + saved->bytes[saved->slots] - sizeof(cod_slot_entry) + offsetof(cod_slot_entry, bytes), &too_long,
           sizeof too_long);
}

/**
 * Goes on from what was saved, in this form.
 *
 * @param[out] digest  of all that was taken over; without a restart at `form` FORMS
 */
static cod_status go_on(const split *s, form how, uint64_t *digest)
{
    exchange_run r;
    cod_status status = COD_OK;
    begin(&r, s);
    if (how < FORMS) {
        run_until(&r, SAVED_AT);
        run_saved saved = run_save(&r);
        *digest = r.digest;
        run_close(&r);
        const cod_slot_header header = header_of(&saved);
        check_all(saved.bytes[saved.slots] == exact_bytes(&header));
        check_all(saved.bytes[saved.slots] < cod_slot_window_bytes(&header.layout) / 2);
        if (how >= WHOLE && how != CUT_OFF)
            make_whole(&saved);
        if (how == TOO_LONG)
            make_too_long(&saved);
        saved.bytes[saved.slots] -= how == CUT_OFF;
        begin(&r, s);
        r.step = SAVED_AT;
        r.digest = *digest;
        status = run_fill(&r, &saved);
    }
    if (status == COD_OK)
        run_until(&r, STEPS);
    run_close(&r);
    *digest = r.digest;
    return status;
}

TEST(saved_slots_take_what_they_hold)
{
    for (const split *s = splits; s < splits + sizeof splits / sizeof splits[0]; s++) {
        uint64_t first, again;
        if (s->ranks != cod_comm_size(job))
            continue;
        split together = *s;
        together.second = 0;
        check_all(go_on(s, FORMS, &first) == COD_OK);
        check_all(go_on(&together, FORMS, &again) == COD_OK && again == first);
        check_all(go_on(s, EXACT, &again) == COD_OK && again == first);
        check_all(go_on(s, WHOLE, &again) == COD_OK && again == first);
        check_all(go_on(s, CUT_OFF, &again) == COD_ERR_FORMAT);
        check_all(go_on(s, TOO_LONG, &again) == COD_ERR_FORMAT);
    }
}

TEST_GROUP(job_setup, job_teardown)

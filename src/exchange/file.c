#include "exchange/file_internal.h"

#include "core/chunk_format.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/** Least time between two looks at one header: an open and a read on a file server each. */
#define LOOK_S 0.01

static file *enter(cod_transport *transport)
{
    file *t = (file *)transport;
    pthread_mutex_lock(&t->mutex);
    /* A run without anything to resume shows that none of what an earlier one left counts any more. */
    t->header_due = t->header_due || !t->begun;
    t->begun = true;
    return t;
}

static cod_status leave(file *t, cod_status status)
{
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    return status;
}

static struct timespec patience_ends(const file *t)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); /* a wall clock that is set would end the wait, or never end it */
    const double end = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + t->patience_s;
    return (struct timespec){.tv_sec = (time_t)end, .tv_nsec = (long)(1e9 * (end - (double)(time_t)end))};
}

/**
 * Waits until what was published is written; not for ever. Storage that did not answer in time is waited for again only
 * after it has answered, so that one that hangs costs a run its patience once.
 */
static void await_stored(file *t)
{
    const struct timespec until = patience_ends(t);
    while ((t->storing || t->header_due) && !t->hung)
        if (pthread_cond_timedwait(&t->changed, &t->mutex, &until) == ETIMEDOUT && (t->storing || t->header_due)) {
            t->hung = true;
            cod_log_warn("'%s' has not answered for %g s; training goes on, and others may miss publications", t->own,
                         t->patience_s);
        }
}

/** Fails where this process's place is another's by now. With the mutex held. */
static cod_status check_place(const file *t)
{
    return t->usurped ? cod_fail(COD_ERR_IO, "%s", t->usurper) : COD_OK;
}

static cod_status publish_begin(cod_transport *transport, unsigned char **room)
{
    file *t = enter(transport);
    *room = t->rooms[t->room];
    return leave(t, check_place(t));
}

/** Asked by who waits for readers anyway: then it also waits until what was published is there. */
static uint64_t oldest(cod_transport *transport)
{
    file *t = enter(transport);
    uint64_t version;
    pthread_cond_broadcast(&t->changed);
    await_stored(t);
    cod_slot_next(&t->writer, &version);
    pthread_mutex_unlock(&t->mutex);
    return version;
}

static cod_status publish_end(cod_transport *transport, const cod_slot_entry *entry)
{
    file *t = enter(transport);
    if (t->storing) { /* storage is slower than publications: this one is left out, as if it had failed */
        file_note_outcome(t, cod_fail(COD_ERR_IO, "'%s': the publication before is still being written", t->own));
        return leave(t, COD_OK);
    }
    t->last = *entry;
    t->room = 1 - t->room;
    t->storing = true;
    return leave(t, COD_OK);
}

/** Asks for a group's header again, where that was not done just now. */
static publisher *ask(file *t, const cod_slot_identity *expected)
{
    publisher *who = &t->publishers[expected->group];
    who->expected = *expected;
    const double now = cod_clock_s();
    if (!who->asked && now - who->looked_s >= LOOK_S) {
        who->asked = true;
        who->looked = false;
        who->looked_s = now;
    }
    return who;
}

/** Says of what a group left, when it is first seen, that it is old: sealed files that were put back are whole, too. */
static void tell_age(const file *t, publisher *who, const cod_slot_header *header)
{
    cod_slot_stamp stamp;
    const double now_ms = (double)file_wall_ms();
    if (who->told_old || header->newest == 0 || !cod_slot_read_stamp(who->window, &stamp) || stamp.written_ms == 0)
        return;
    const double age_s = 1e-3 * (now_ms - (double)stamp.written_ms);
    if (age_s > t->old_s)
        cod_log_warn(
            "group %u published its newest version, %llu, %.3g %s ago: it is not training, or somebody has put "
            "old files back; what is there is used until something newer comes",
            header->identity.group, (unsigned long long)header->newest, age_s < 3600 ? age_s : age_s / 3600,
            age_s < 3600 ? "s" : "hours");
    who->told_old = true;
}

static cod_status offer(cod_transport *transport, const cod_slot_identity *expected, int world_rank,
                        const cod_slot_wanted *wanted, bool *answered, cod_slot_offered *offered)
{
    file *t = enter(transport);
    publisher *who = &t->publishers[expected->group];
    cod_slot_header header;
    (void)world_rank;
    *answered = who->looked;
    *offered = (cod_slot_offered){0};
    if (!who->looked)
        ask(t, expected);
    who->looked = false;
    if (!*answered || (who->window == NULL && who->damage == FILE_SOUND))
        return leave(t, COD_OK);
    cod_status status = file_check_window(t, who->window, who->damage, expected, &header);
    COD_THEN(status, file_check_not_older(&header, who->newest));
    if (status != COD_OK)
        return leave(t, status);
    tell_age(t, who, &header);
    who->newest = header.newest;
    *offered = cod_slot_offer(&header, wanted);
    return leave(t, COD_OK);
}

static cod_status pull_start(cod_transport *transport, int place, const cod_slot_identity *expected, int world_rank,
                             uint64_t version)
{
    file *t = enter(transport);
    file_pull *p = &t->pulls[place];
    const cod_status status = cod_rooms_take(t->pull_rooms, place, &p->room);
    (void)world_rank;
    if (status != COD_OK)
        return leave(t, status);
    p->ticket++;
    p->expected = *expected;
    p->version = version;
    p->arrived = 0;
    p->phase = PULL_WANTED;
    return leave(t, COD_OK);
}

static cod_status pull_poll(cod_transport *transport, int place, cod_pull_state *state, cod_pulled *out)
{
    file *t = enter(transport);
    file_pull *p = &t->pulls[place];
    cod_status status = COD_OK;
    *state = COD_PULL_BUSY;
    const double now = cod_clock_s();
    *out = (cod_pulled){.bytes = p->arrived, .queued = p->phase == PULL_WANTED && now - t->moved_s < t->patience_s};
    if (p->phase == PULL_ABSENT && now - p->looked_s >= LOOK_S)
        p->phase = PULL_WANTED;
    if (p->phase == PULL_HERE) {
        *state = COD_PULL_DONE;
        *out = (cod_pulled){p->room->data, p->entry.bytes, p->entry.life, p->entry.published_ms, p->pull_s, false};
    } else if (p->phase == PULL_GONE) {
        *state = COD_PULL_LOST;
    } else if (p->phase == PULL_BAD) {
        status = cod_fail(COD_ERR_FORMAT, "%s", p->reason);
    }
    return leave(t, status);
}

static void pull_cancel(cod_transport *transport, int place)
{
    file *t = enter(transport);
    t->pulls[place].ticket++;
    t->pulls[place].phase = PULL_NONE;
    leave(t, COD_OK);
}

static cod_status acknowledge(cod_transport *transport, uint32_t group, uint64_t version)
{
    file *t = enter(transport);
    t->header_due = true;
    return leave(t, cod_slot_acknowledge(&t->writer, group, version));
}

static cod_status acknowledged(cod_transport *transport, const cod_slot_identity *reader, int world_rank,
                               uint32_t group, uint64_t *version)
{
    file *t = enter(transport);
    const publisher *who = ask(t, reader);
    cod_slot_header header;
    (void)world_rank;
    *version = 0;
    if (who->window != NULL && file_check_window(t, who->window, who->damage, reader, &header) == COD_OK)
        *version = cod_load_u64(who->window + cod_slot_ack_at(&t->layout, group));
    return leave(t, COD_OK);
}

static uint64_t left(cod_transport *transport)
{
    return ((file *)transport)->left;
}

static uint64_t failures(cod_transport *transport)
{
    file *t = enter(transport);
    const uint64_t count = t->failures;
    leave(t, COD_OK);
    return count;
}

/*
 * Saved: the header's struct, the window without slots, the newest version (older ones are only files) and what it is.
 */

/** All but the version. */
static size_t saved_bytes(const file *t)
{
    return sizeof t->writer.header + t->window_bytes + sizeof t->last;
}

/** With the mutex held. */
static cod_status save(const file *t, void **data, size_t *bytes)
{
    *bytes = saved_bytes(t) + t->last.bytes;
    unsigned char *at = malloc(*bytes);
    COD_REQUIRE_MEMORY(at);
    *data = at;
    memcpy(at, &t->writer.header, sizeof t->writer.header);
    at += sizeof t->writer.header;
    memcpy(at, t->writer.memory, t->window_bytes);
    at += t->window_bytes;
    memcpy(at, t->rooms[1 - t->room], t->last.bytes);
    at += t->last.bytes;
    memcpy(at, &t->last, sizeof t->last);
    return COD_OK;
}

static cod_status state(cod_transport *transport, void **data, size_t *bytes)
{
    file *t = (file *)transport;
    pthread_mutex_lock(&t->mutex); /* not begun by this: a resume asks first what there is to fill in */
    if (t->begun)
        await_stored(t);
    cod_status status = check_place(t);
    COD_THEN(status, save(t, data, bytes));
    pthread_mutex_unlock(&t->mutex);
    return status;
}

/**
 * Has an errand run; with the mutex held.
 *
 * @return COD_ERR_IO when storage does not answer; the errand may still be under way then
 */
static cod_status run_on_thread(file *t, file_errand *errand)
{
    const struct timespec until = patience_ends(t);
    t->errand = errand;
    pthread_cond_broadcast(&t->changed);
    while (t->errand != NULL)
        if (pthread_cond_timedwait(&t->changed, &t->mutex, &until) == ETIMEDOUT && t->errand != NULL)
            return cod_fail(COD_ERR_IO, "'%s' has not answered for %g s: does its file system hang?", t->own,
                            t->patience_s);
    return t->errand_status == COD_OK ? COD_OK : cod_fail(t->errand_status, "%s", t->errand_reason);
}

/** Takes over what was saved; of its header nothing counts yet. With the mutex held. */
static cod_status unpack(file *t, const unsigned char *at, size_t bytes)
{
    cod_slot_entry last;
    if (bytes < saved_bytes(t))
        return cod_fail(COD_ERR_FORMAT, "the saved versions are cut off");
    memcpy(&t->resumed, at, sizeof t->resumed);
    if (!cod_slot_same_publisher(&t->resumed, &t->writer.header))
        return cod_fail(COD_ERR_FORMAT, "the saved versions are of another run, model or exchange section");
    memcpy(&last, at + bytes - sizeof last, sizeof last);
    if (!cod_slot_header_makes_sense(&t->resumed) ||
        (last.version != 0 && !cod_slot_makes_sense(&last, &t->layout, COD_SLOT_VERSION_MAX)))
        return cod_fail(COD_ERR_FORMAT, "the saved versions make no sense");
    const size_t version_bytes = bytes - saved_bytes(t);
    /* Once a slot's worth was saved, whatever the version took of it. */
    if (last.bytes > t->layout.slot_bytes || (version_bytes != last.bytes && version_bytes != t->layout.slot_bytes))
        return cod_fail(COD_ERR_FORMAT, "the saved version has %zu bytes, not those that its entry says",
                        version_bytes);
    at += sizeof t->resumed;
    memcpy(t->writer.memory + COD_SLOT_HEADER_BYTES, at + COD_SLOT_HEADER_BYTES,
           t->window_bytes - COD_SLOT_HEADER_BYTES);
    memcpy(t->rooms[1 - t->room], at + t->window_bytes, last.bytes);
    t->last = last;
    return COD_OK;
}

static cod_status restored(cod_transport *transport, const void *data, size_t bytes)
{
    file *t = (file *)transport;
    pthread_mutex_lock(&t->mutex);
    if (t->begun)
        await_stored(t);
    if (t->storing || t->header_due)
        return leave(t, cod_fail(COD_ERR_IO, "'%s' does not answer", t->own));
    cod_status status = unpack(t, data, bytes);
    COD_THEN(status, run_on_thread(t, file_keep_what_is_there));
    if (status != COD_OK)
        return leave(t, status);
    if (t->left > t->resumed.newest) /* of what came after the checkpoint */
        t->resumed.newest = t->left;
    t->writer.header = t->resumed;
    status = cod_slot_write_header(&t->writer);
    t->begun = true;
    t->storing = t->last.version != 0;
    t->header_due = !t->storing;
    return leave(t, status);
}

static void release(file *t)
{
    for (uint32_t g = 0; t->publishers != NULL && g < t->layout.groups; g++)
        free(t->publishers[g].window);
    free(t->publishers);
    for (int i = 0; i < 2; i++)
        cod_aligned_free(t->rooms[i]);
    free(t->pulls);
    cod_aligned_free(t->writer.memory);
    pthread_mutex_destroy(&t->mutex);
    pthread_cond_destroy(&t->changed);
    free(t);
}

/**
 * Ends the thread and frees, where storage answers in time; else the thread and what it uses are left to the process's
 * end. An errand under way was waited for before.
 *
 * @param[out] place  check_place(), when all is written
 * @return whether storage answered
 */
static bool end(file *t, cod_status *place)
{
    const struct timespec until = patience_ends(t);
    pthread_mutex_lock(&t->mutex);
    t->ending = true;
    for (int i = 0; i < t->pull_count; i++)
        t->pulls[i].ticket++;
    pthread_cond_broadcast(&t->changed);
    while (!t->ended && t->errand == NULL && pthread_cond_timedwait(&t->changed, &t->mutex, &until) == 0)
        ;
    const bool ended = t->ended;
    if (!ended)
        pthread_detach(t->thread);
    *place = check_place(t);
    pthread_mutex_unlock(&t->mutex);
    if (ended) {
        pthread_join(t->thread, NULL);
        release(t);
    }
    return ended;
}

static cod_status destroy(cod_transport *transport)
{
    file *t = (file *)transport;
    cod_status place;
    if (!end(t, &place))
        cod_log_warn("'%s' did not answer for %g s; the last publication may be missing there", t->folder,
                     t->patience_s);
    return place;
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
    .left = left,
    .failures = failures,
    .state = state,
    .restored = restored,
    .destroy = destroy,
};

static cod_status no_sync(void *context)
{
    (void)context;
    return COD_OK;
}

static cod_status make_buffers(file *t, const cod_slot_identity *identity)
{
    unsigned char *memory = NULL;
    t->publishers = calloc(t->layout.groups, sizeof *t->publishers);
    COD_REQUIRE_MEMORY(t->publishers);
    for (int i = 0; i < 2; i++)
        COD_TRY(cod_aligned_alloc((void **)&t->rooms[i], t->layout.slot_bytes));
    t->pulls = calloc((size_t)t->pull_count + 1, sizeof *t->pulls);
    COD_REQUIRE_MEMORY(t->pulls);
    COD_TRY(cod_aligned_alloc((void **)&memory, t->window_bytes));
    return cod_slot_writer_init(&t->writer, memory, identity, &t->layout, no_sync, NULL);
}

static cod_status start(file *t)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the caller's threads */
    const int error = pthread_create(&t->thread, NULL, file_work, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? COD_OK : cod_fail(COD_ERR_MEMORY, "cannot start a thread: %s", strerror(error));
}

/** All but the own folder, which the thread prepares that this starts last. */
static cod_status init(file *t, const cod_file_options *options, const cod_slot_identity *identity)
{
    t->patience_s = options->patience_s;
    t->anew = options->anew;
    t->old_s = options->old_s;
    t->stamp = (cod_slot_stamp){.life = options->life, .begun_ms = options->begun_ms};
    t->pull_rooms = options->rooms;
    t->pull_count = options->rooms->count;
    t->sealed = options->key_file != NULL && options->key_file[0] != '\0';
    if (t->sealed)
        COD_TRY(cod_seal_key_read(options->key_file, &t->key));
    if ((size_t)snprintf(t->folder, sizeof t->folder, "%s", options->folder) >= sizeof t->folder)
        return cod_fail(COD_ERR_ARGUMENT, "exchange.directory is too long");
    snprintf(t->own, sizeof t->own, "%s/group-%u/shard-%u", t->folder, identity->group, identity->shard);
    COD_TRY(make_buffers(t, identity));
    return start(t);
}

cod_status cod_file_transport_create(const cod_file_options *options, const cod_slot_identity *identity,
                                     const cod_slot_layout *layout, cod_transport **out)
{
    pthread_condattr_t by_clock;
    cod_status place;
    file *t = calloc(1, sizeof *t);
    COD_REQUIRE_MEMORY(t);
    t->base.ops = &ops;
    t->layout = *layout;
    t->window_bytes = cod_slot_data_at(layout, 0);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &by_clock);
    pthread_condattr_destroy(&by_clock);
    cod_status status = init(t, options, identity);
    if (status != COD_OK) {
        release(t);
        return status;
    }
    pthread_mutex_lock(&t->mutex);
    status = run_on_thread(t, file_prepare_folder);
    pthread_mutex_unlock(&t->mutex);
    if (status == COD_OK)
        *out = &t->base;
    else
        end(t, &place);
    return status;
}

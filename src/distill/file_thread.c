/*
 * The file transport's thread. Its functions have the mutex when they come and when they go, where they change
 * anything.
 */
#include "distill/file_internal.h"

#include "core/chunk_format.h"
#include "core/log.h"
#include "core/trace.h"
#include "io/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

cod_status file_open_shard(const file *t, uint32_t group, uint32_t shard, cod_untrusted_absence absence,
                           cod_untrusted_folder **out)
{
    char below[64];
    snprintf(below, sizeof below, "group-%u/shard-%u", group, shard);
    return cod_untrusted_folder_open(t->folder, below, absence, out);
}

void file_version_name(uint64_t version, char name[FILE_NAME_BYTES])
{
    snprintf(name, FILE_NAME_BYTES, "%llu.bin", (unsigned long long)version);
}

/** The version whose file has this name; 0 for all other names. */
static uint64_t version_of(const char *name)
{
    char again[FILE_NAME_BYTES];
    const uint64_t version = strtoull(name, NULL, 10);
    file_version_name(version, again);
    return strcmp(name, again) == 0 && version <= COD_SLOT_VERSION_MAX ? version : 0;
}

/** What a file is and where it belongs: its seal is of that as well. @param version  0 = the header */
static void place_of(const cod_slot_identity *who, uint64_t version, unsigned char place[40])
{
    cod_store_u64(place, UINT64_C(0x6567616863786563)); /* "cexchage": no other use of a key has this place */
    cod_store_u64(place + 8, who->run);
    cod_store_u64(place + 16, who->model);
    cod_store_u64(place + 24, who->group | (uint64_t)who->shard << 32);
    cod_store_u64(place + 32, version);
}

static cod_status write_sealed(const file *t, const cod_untrusted_folder *folder, const char *name, uint64_t version,
                               const unsigned char *data, size_t bytes)
{
    unsigned char place[40], seal[COD_SEAL_BYTES];
    place_of(&t->writer.header.identity, version, place);
    if (t->sealed)
        cod_seal_make(&t->key, place, sizeof place, data, bytes, seal);
    return cod_untrusted_file_write(folder, name, data, bytes, seal, t->sealed ? sizeof seal : 0);
}

static bool seal_fits(const file *t, const cod_slot_identity *who, uint64_t version, const unsigned char *data,
                      size_t bytes)
{
    unsigned char place[40];
    place_of(who, version, place);
    return !t->sealed || cod_seal_check(&t->key, place, sizeof place, data, bytes, data + bytes);
}

static cod_status remove_unnamed(void *context, const cod_untrusted_folder *folder, const char *entry)
{
    const cod_slot_header *header = context;
    const uint64_t version = version_of(entry);
    return version != 0 && cod_slot_find(header, version) < 0 ? cod_untrusted_file_remove(folder, entry) : COD_OK;
}

cod_status file_remove_others(const cod_untrusted_folder *folder, const cod_slot_header *header)
{
    cod_slot_header named = *header;
    return cod_untrusted_folder_visit(folder, remove_unnamed, &named);
}

static cod_status remove_temporary(void *context, const cod_untrusted_folder *folder, const char *entry)
{
    char name[FILE_NAME_BYTES] = FILE_HEADER_NAME;
    const char *first = entry[0] == '.' ? entry + 1 : entry;
    (void)context;
    if (first[0] >= '0' && first[0] <= '9')
        file_version_name(strtoull(first, NULL, 10), name);
    return cod_file_is_temporary(entry, name) ? cod_untrusted_file_remove(folder, entry) : COD_OK;
}

cod_status file_clean(const cod_untrusted_folder *folder)
{
    return cod_untrusted_folder_visit(folder, remove_temporary, NULL);
}

cod_status file_write_header(file *t)
{
    cod_untrusted_folder *folder = NULL;
    const cod_slot_header header = t->writer.header;
    unsigned char *bytes = malloc(t->window_bytes);
    COD_REQUIRE_MEMORY(bytes);
    memcpy(bytes, t->writer.memory, t->window_bytes);
    t->header_due = false;
    pthread_mutex_unlock(&t->mutex);
    cod_status status = file_open_shard(t, header.identity.group, header.identity.shard, COD_UNTRUSTED_CREATE, &folder);
    COD_THEN(status, write_sealed(t, folder, FILE_HEADER_NAME, 0, bytes, t->window_bytes));
    COD_THEN(status, file_remove_others(folder, &header));
    cod_untrusted_folder_close(folder);
    free(bytes);
    pthread_mutex_lock(&t->mutex);
    return status;
}

static cod_status write_version(file *t)
{
    char name[FILE_NAME_BYTES];
    cod_untrusted_folder *folder = NULL;
    const cod_slot_entry p = t->last;
    const unsigned char *bytes = t->rooms[1 - t->room];
    const cod_slot_identity *who = &t->writer.header.identity;
    pthread_mutex_unlock(&t->mutex);
    file_version_name(p.version, name);
    cod_status status = file_open_shard(t, who->group, who->shard, COD_UNTRUSTED_CREATE, &folder);
    COD_THEN(status, write_sealed(t, folder, name, p.version, bytes, p.bytes));
    cod_untrusted_folder_close(folder);
    pthread_mutex_lock(&t->mutex);
    if (status != COD_OK)
        return status;
    uint64_t oldest;
    unsigned char *room;
    const uint32_t slot = cod_slot_next(&t->writer, &oldest);
    COD_TRY(cod_slot_open(&t->writer, slot, &room));
    COD_TRY(cod_slot_close(&t->writer, slot, &p));
    return file_write_header(t);
}

/** Training goes on whatever becomes of a publication. */
void file_note_outcome(file *t, cod_status status)
{
    const cod_slot_identity *who = &t->writer.header.identity;
    if (status != COD_OK) {
        t->failures++;
        if (!t->failing)
            cod_log_warn("group %u: cannot publish, and tries again every time: %s", who->group, cod_error_message());
    } else if (t->failing) {
        cod_log_info("group %u: publishes again", who->group);
    }
    t->failing = status != COD_OK;
}

static void store(file *t)
{
    const bool version = t->storing; /* one may come while the header is written */
    file_note_outcome(t, version ? write_version(t) : file_write_header(t));
    t->storing = t->storing && !version;
    t->hung = false;
    pthread_cond_broadcast(&t->changed);
}

/** Reads a header file. @param[out] out  [window_bytes] @return whether there is one that can be read now */
static bool read_window(const file *t, const cod_slot_identity *who, unsigned char *out, file_damage *damage)
{
    void *data = NULL;
    size_t bytes = 0;
    cod_untrusted_folder *folder = NULL;
    cod_status status = file_open_shard(t, who->group, who->shard, COD_UNTRUSTED_NONE, &folder);
    if (folder != NULL)
        COD_THEN(status,
                 cod_untrusted_file_read(folder, FILE_HEADER_NAME, t->window_bytes + COD_SEAL_BYTES, &data, &bytes));
    cod_untrusted_folder_close(folder);
    *damage = FILE_SOUND;
    if (status == COD_ERR_FORMAT)
        *damage = FILE_DAMAGED;
    else if (data != NULL && bytes == t->window_bytes + COD_SEAL_BYTES - file_sealed_bytes(t, 0))
        *damage = FILE_UNSEALED;
    else if (data != NULL && bytes != file_sealed_bytes(t, t->window_bytes))
        *damage = FILE_DAMAGED;
    else if (data != NULL && !seal_fits(t, who, 0, data, t->window_bytes))
        *damage = FILE_UNSEALED;
    const bool there = data != NULL && *damage == FILE_SOUND;
    if (there)
        memcpy(out, data, t->window_bytes);
    free(data);
    return there;
}

static void look(file *t, uint32_t group)
{
    publisher *who = &t->publishers[group];
    unsigned char *window = malloc(t->window_bytes);
    const cod_slot_identity expected = who->expected;
    file_damage damage = FILE_SOUND;
    pthread_mutex_unlock(&t->mutex);
    const bool there = window != NULL && read_window(t, &expected, window, &damage);
    pthread_mutex_lock(&t->mutex);
    who->asked = false;
    who->looked = true;
    who->damage = damage;
    if (there) {
        free(who->window);
        who->window = window;
    } else {
        free(window);
    }
}

cod_status file_check_window(const file *t, const unsigned char *window, file_damage damage,
                             const cod_slot_identity *expected, cod_slot_header *header)
{
    bool torn = false;
    if (damage == FILE_UNSEALED)
        return cod_fail(COD_ERR_FORMAT,
                        t->sealed ? "the header of group %u's shard %u has no seal of exchange.key_file"
                                  : "the header of group %u's shard %u is sealed: give its "
                                    "exchange.key_file here, too",
                        expected->group, expected->shard);
    if (damage == FILE_SOUND)
        COD_TRY(cod_slot_read_header(window, expected, &t->layout, header, &torn));
    if (damage != FILE_SOUND || torn) /* it was renamed whole: not torn, but bad */
        return cod_fail(COD_ERR_FORMAT, "the header of group %u's shard %u is damaged", expected->group,
                        expected->shard);
    return COD_OK;
}

/** A publisher's newest version never falls, whatever becomes of its processes. */
cod_status file_check_not_older(const cod_slot_header *header, uint64_t newest)
{
    if (header->newest >= newest)
        return COD_OK;
    return cod_fail(COD_ERR_FORMAT,
                    "the header of group %u is older than one read before: its newest version was %llu, not %llu",
                    header->identity.group, (unsigned long long)newest, (unsigned long long)header->newest);
}

static cod_status note_newest(void *context, const cod_untrusted_folder *folder, const char *entry)
{
    uint64_t *newest = context;
    const uint64_t version = version_of(entry);
    (void)folder;
    *newest = version > *newest ? version : *newest;
    return COD_OK;
}

uint64_t file_newest_left(const file *t)
{
    const cod_slot_identity *who = &t->writer.header.identity;
    cod_slot_header header;
    file_damage damage;
    unsigned char *window = malloc(t->window_bytes);
    const bool there = window != NULL && read_window(t, who, window, &damage) &&
                       file_check_window(t, window, damage, who, &header) == COD_OK;
    free(window);
    if (!there) /* nothing, or another run's */
        return 0;
    uint64_t newest = header.newest;
    cod_untrusted_folder *folder = NULL;
    cod_status status = file_open_shard(t, who->group, who->shard, COD_UNTRUSTED_NONE, &folder);
    if (folder != NULL)
        COD_THEN(status, cod_untrusted_folder_visit(folder, note_newest, &newest));
    cod_untrusted_folder_close(folder);
    return newest;
}

/** Looks for the version in the header of its publisher. @param newest  of which that is known to have been there */
static cod_status find_version(const file *t, const cod_slot_identity *expected, uint64_t version, uint64_t newest,
                               pull_phase *phase, cod_slot_entry *entry)
{
    cod_slot_header header;
    file_damage damage;
    unsigned char *window = malloc(t->window_bytes);
    COD_REQUIRE_MEMORY(window);
    *phase = PULL_ABSENT;
    const bool there = read_window(t, expected, window, &damage);
    const cod_status status =
        there || damage != FILE_SOUND ? file_check_window(t, window, damage, expected, &header) : COD_OK;
    free(window);
    if (status != COD_OK || !there)
        return status;
    COD_TRY(file_check_not_older(&header, newest));
    const int slot = cod_slot_find(&header, version);
    if (slot >= 0)
        *entry = header.entries[slot];
    if (slot >= 0)
        *phase = PULL_READING;
    else if (cod_slot_newest(&header) > version)
        *phase = PULL_GONE;
    return COD_OK;
}

/** Reads an open version, as long as the pull is wanted. */
static cod_status read_pieces(file *t, file_pull *p, unsigned char *to, int from, const char *name, uint64_t ticket,
                              uint64_t bytes, pull_phase *phase)
{
    uint64_t used = 0;
    bool wanted = true;
    while (used < bytes && wanted) {
        const uint64_t left = bytes - used;
        const ssize_t got = pread(from, to + used, left < PIECE_BYTES ? left : PIECE_BYTES, (off_t)used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == ESTALE) {
            *phase = PULL_GONE;
            return COD_OK;
        }
        if (got <= 0)
            return cod_fail(COD_ERR_FORMAT, "'%s': %s", name, got < 0 ? strerror(errno) : "it was cut off");
        used += (uint64_t)got;
        pthread_mutex_lock(&t->mutex);
        wanted = ticket == p->ticket;
        p->arrived = wanted ? used : p->arrived;
        t->moved_s = cod_clock_s();
        pthread_mutex_unlock(&t->mutex);
    }
    *phase = PULL_HERE;
    return COD_OK;
}

static cod_status read_version(file *t, file_pull *p, unsigned char *to, const cod_slot_identity *who, uint64_t version,
                               uint64_t ticket, uint64_t bytes, pull_phase *phase)
{
    char name[FILE_NAME_BYTES], said[FILE_PATH_BYTES];
    cod_untrusted_folder *folder = NULL;
    int from = -1;
    size_t there = 0;
    file_version_name(version, name);
    snprintf(said, sizeof said, "%s/group-%u/shard-%u/%s", t->folder, who->group, who->shard, name);
    cod_status status = file_open_shard(t, who->group, who->shard, COD_UNTRUSTED_NONE, &folder);
    if (folder != NULL)
        COD_THEN(status, cod_untrusted_file_open(folder, name, &from, &there));
    cod_untrusted_folder_close(folder);
    if (status != COD_OK || from < 0) {
        *phase = PULL_GONE;
        return status;
    }
    const uint64_t all = file_sealed_bytes(t, bytes);
    if (there != all)
        status =
            cod_fail(COD_ERR_FORMAT, "'%s' has not the %llu bytes that its header says", said, (unsigned long long)all);
    else
        status = read_pieces(t, p, to, from, said, ticket, all, phase);
    close(from);
    if (status == COD_OK && *phase == PULL_HERE && !seal_fits(t, who, version, to, bytes))
        status = cod_fail(COD_ERR_FORMAT, "'%s' has no seal of exchange.key_file", said);
    return status;
}

static void pull(file *t, file_pull *p)
{
    const cod_slot_identity expected = p->expected;
    const uint64_t ticket = p->ticket, version = p->version, first = t->publishers[expected.group].expected.shard,
                   newest = expected.shard == first ? t->publishers[expected.group].newest : 0;
    cod_slot_entry entry = {0};
    pull_phase phase = PULL_ABSENT;
    cod_room *const room = p->room;
    const double begin = cod_clock_s();
    p->phase = PULL_READING;
    cod_room_keep(room); /* once the pull is given up, another one may begin in its place */
    pthread_mutex_unlock(&t->mutex);
    cod_status status = find_version(t, &expected, version, newest, &phase, &entry);
    if (phase == PULL_READING)
        COD_THEN(status, read_version(t, p, room->data, &expected, version, ticket, entry.bytes, &phase));
    cod_room_release(room);
    pthread_mutex_lock(&t->mutex);
    if (ticket != p->ticket)
        return;
    p->phase = status == COD_OK ? phase : PULL_BAD;
    p->entry = entry;
    p->looked_s = cod_clock_s();
    p->pull_s = p->looked_s - begin;
    snprintf(p->reason, sizeof p->reason, "%s", status == COD_OK ? "" : cod_error_message());
}

/** Each in its turn: one whose version never comes keeps no other waiting. */
static file_pull *next_wanted(file *t)
{
    for (int i = 0; i < t->pull_count; i++) {
        file_pull *p = &t->pulls[t->pull_turn];
        t->pull_turn = (t->pull_turn + 1) % t->pull_count;
        if (p->phase == PULL_WANTED)
            return p;
    }
    return NULL;
}

static uint32_t next_asked(const file *t)
{
    uint32_t group = 0;
    while (group < t->layout.groups && !t->publishers[group].asked)
        group++;
    return group;
}

static void run_errand(file *t)
{
    file_errand *const errand = t->errand;
    pthread_mutex_unlock(&t->mutex);
    const cod_status status = errand(t);
    pthread_mutex_lock(&t->mutex);
    t->errand_status = status;
    snprintf(t->errand_reason, sizeof t->errand_reason, "%s", status == COD_OK ? "" : cod_error_message());
    t->errand = NULL;
    pthread_cond_broadcast(&t->changed);
}

void *file_work(void *context)
{
    file *t = context;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        const uint32_t asked = next_asked(t);
        file_pull *wanted = NULL;
        t->moved_s = cod_clock_s();
        if (t->errand != NULL)
            run_errand(t);
        else if (t->storing || t->header_due)
            store(t);
        else if (t->ending)
            break;
        else if ((wanted = next_wanted(t)) != NULL)
            pull(t, wanted);
        else if (asked < t->layout.groups)
            look(t, asked);
        else
            pthread_cond_wait(&t->changed, &t->mutex);
    }
    t->ended = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

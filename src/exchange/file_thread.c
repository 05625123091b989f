/*
 * The file transport's thread. Its functions have the mutex when they come and when they go, where they change
 * anything.
 */
#include "exchange/file_internal.h"

#include "core/chunk_format.h"
#include "core/log.h"
#include "core/trace.h"
#include "io/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

cod_status file_write_header(file *t)
{
    cod_untrusted_folder *folder = NULL;
    const cod_slot_header header = t->writer.header;
    unsigned char *bytes = malloc(t->window_bytes);
    COD_REQUIRE_MEMORY(bytes);
    memcpy(bytes, t->writer.memory, t->window_bytes);
    cod_slot_stamp stamp = t->stamp;
    stamp.written_ms = file_wall_ms();
    cod_slot_stamp_header(bytes, &stamp);
    t->header_due = false;
    pthread_mutex_unlock(&t->mutex);
    cod_status status = file_open_shard(t, header.identity.group, header.identity.shard, COD_UNTRUSTED_CREATE, &folder);
    COD_THEN(status, file_write_sealed(t, folder, FILE_HEADER_NAME, 0, bytes, t->window_bytes));
    COD_THEN(status, file_remove_others(t, folder, &header));
    cod_untrusted_folder_close(folder);
    free(bytes);
    pthread_mutex_lock(&t->mutex);
    return status;
}

/** Removes a version that no header names any more: file_remove_others() does not see it among very many others. */
static void remove_version(file *t, uint64_t version)
{
    char name[FILE_NAME_BYTES];
    cod_untrusted_folder *folder = NULL;
    const cod_slot_identity who = t->writer.header.identity;
    pthread_mutex_unlock(&t->mutex);
    file_version_name(version, name);
    cod_status status = file_open_shard(t, who.group, who.shard, COD_UNTRUSTED_NONE, &folder);
    if (folder != NULL)
        COD_THEN(status, cod_untrusted_file_remove(folder, name));
    if (status != COD_OK) /* what lies in its place was named before */
        cod_log_debug("%s", cod_error_message());
    cod_untrusted_folder_close(folder);
    pthread_mutex_lock(&t->mutex);
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
    COD_THEN(status, file_write_sealed(t, folder, name, p.version, bytes, p.bytes));
    cod_untrusted_folder_close(folder);
    pthread_mutex_lock(&t->mutex);
    if (status != COD_OK)
        return status;
    uint64_t oldest;
    unsigned char *room;
    const uint32_t slot = cod_slot_next(&t->writer, &oldest);
    COD_TRY(cod_slot_open(&t->writer, slot, &room));
    COD_TRY(cod_slot_close(&t->writer, slot, &p));
    COD_TRY(file_write_header(t));
    if (oldest > 0)
        remove_version(t, oldest);
    return COD_OK;
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
    file_look_for_usurper(t);
    const bool version = t->storing; /* one may come while the header is written */
    if (t->usurped) {
        t->storing = t->header_due = false;
    } else {
        cod_status status = cod_slot_write_header(&t->writer);
        COD_THEN(status, version ? write_version(t) : file_write_header(t));
        file_note_outcome(t, status);
        t->storing = t->storing && !version;
    }
    t->hung = false;
    pthread_cond_broadcast(&t->changed);
}

static void look(file *t, uint32_t group)
{
    publisher *who = &t->publishers[group];
    unsigned char *window = malloc(t->window_bytes);
    const cod_slot_identity expected = who->expected;
    file_damage damage = FILE_SOUND;
    pthread_mutex_unlock(&t->mutex);
    const bool there = window != NULL && file_read_window(t, &expected, window, &damage);
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

/** Looks for the version in the header of its publisher. @param newest  of which that is known to have been there */
static cod_status find_version(const file *t, const cod_slot_identity *expected, uint64_t version, uint64_t newest,
                               pull_phase *phase, cod_slot_entry *entry)
{
    cod_slot_header header;
    file_damage damage;
    unsigned char *window = malloc(t->window_bytes);
    COD_REQUIRE_MEMORY(window);
    *phase = PULL_ABSENT;
    const bool there = file_read_window(t, expected, window, &damage);
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
    if (status == COD_OK && *phase == PULL_HERE && !file_seal_fits(t, who, version, to, bytes))
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

/* Errands. */

/**
 * Removes all versions. The number of the newest stays, in a header without any: a process that is killed before it has
 * published leaves to the next one what readers may hold.
 */
static cod_status empty(file *t, const cod_untrusted_folder *folder)
{
    cod_status status;
    pthread_mutex_lock(&t->mutex);
    if (t->left > 0) {
        status = file_write_header(t);
    } else {
        status = cod_untrusted_file_remove(folder, FILE_HEADER_NAME);
        COD_THEN(status, file_remove_others(t, folder, &t->writer.header));
    }
    pthread_mutex_unlock(&t->mutex);
    return status;
}

/** Removes what a killed process left in the own folder, and with `anew` all versions. */
static cod_status clean_own(file *t, const cod_untrusted_folder *folder)
{
    cod_slot_stamp before;
    COD_TRY(file_clean(t, folder));
    t->left = t->writer.header.newest = file_newest_left(t, &before);
    if (before.begun_ms >= t->stamp.begun_ms) /* by a clock that is ahead of this host's */
        t->stamp.begun_ms = before.begun_ms + 1;
    COD_TRY(cod_slot_write_header(&t->writer));
    return t->anew ? empty(t, folder) : COD_OK;
}

/** Without seals, who may write here may teach. Said by one rank. */
static void warn_of_rights(const file *t)
{
    struct stat info;
    if (!t->sealed && t->writer.header.identity.shard == 0 && stat(t->folder, &info) == 0 &&
        (info.st_mode & S_IWOTH) != 0)
        cod_log_warn("'%s' may be written by every user of this machine (mode %04o), who could publish as any group: "
                     "chmod o-w, or set exchange.key_file",
                     t->folder, (unsigned)(info.st_mode & 07777));
}

cod_status file_prepare_folder(file *t)
{
    const cod_slot_identity who = t->writer.header.identity;
    cod_untrusted_folder *folder = NULL;
    COD_TRY(file_open_shard(t, who.group, who.shard, COD_UNTRUSTED_CREATE, &folder));
    warn_of_rights(t);
    const cod_status status = clean_own(t, folder);
    cod_untrusted_folder_close(folder);
    return status;
}

cod_status file_keep_what_is_there(file *t)
{
    cod_untrusted_folder *folder = NULL;
    const cod_slot_identity *who = &t->resumed.identity;
    COD_TRY(file_open_shard(t, who->group, who->shard, COD_UNTRUSTED_CREATE, &folder));
    for (uint32_t i = 0; i < t->layout.slots; i++) {
        cod_slot_entry *entry = &t->resumed.entries[i];
        char name[FILE_NAME_BYTES];
        file_version_name(entry->version, name);
        if (entry->version != 0 && (entry->version == t->last.version ||
                                    !cod_untrusted_file_has(folder, name, file_sealed_bytes(t, entry->bytes))))
            *entry = (cod_slot_entry){.sequence = entry->sequence & ~UINT64_C(1)};
    }
    cod_untrusted_folder_close(folder);
    return COD_OK;
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

/* The file transport's thread. Its functions have the mutex when they come and when they go, where they change anything. */
#include "distill/file_internal.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

void file_header_path(const file *t, uint32_t group, uint32_t shard, char path[FILE_PATH_BYTES])
{
    snprintf(path, FILE_PATH_BYTES, "%s/group-%u/shard-%u/header", t->folder, group, shard);
}

void file_version_path(const file *t, uint32_t group, uint32_t shard, uint64_t version, char path[FILE_PATH_BYTES])
{
    snprintf(path, FILE_PATH_BYTES, "%s/group-%u/shard-%u/%llu.bin", t->folder, group, shard,
             (unsigned long long)version);
}

/** Removes versions that the header names no longer. */
cod_status file_remove_others(const file *t, const cod_slot_header *header)
{
    cod_arena arena = {0};
    cod_string_list names;
    cod_status status = cod_folder_list(t->own, "", ".bin", &arena, &names);
    for (size_t i = 0; status == COD_OK && i < names.count; i++) {
        char path[FILE_PATH_BYTES];
        if (cod_slot_find(header, strtoull(names.items[i], NULL, 10)) >= 0)
            continue;
        snprintf(path, sizeof path, "%s/%.60s", t->own, names.items[i]);
        status = cod_file_remove(path);
    }
    cod_arena_clear(&arena);
    return status;
}

cod_status file_write_header(file *t)
{
    char path[FILE_PATH_BYTES];
    const cod_slot_header header = t->writer.header;
    unsigned char *bytes = malloc(t->window_bytes);
    COD_REQUIRE_MEMORY(bytes);
    memcpy(bytes, t->writer.memory, t->window_bytes);
    t->header_due = false;
    pthread_mutex_unlock(&t->mutex);
    file_header_path(t, header.identity.group, header.identity.shard, path);
    cod_status status = cod_folder_create(t->own);
    if (status == COD_OK)
        status = cod_file_write(path, bytes, t->window_bytes);
    if (status == COD_OK)
        status = file_remove_others(t, &header);
    free(bytes);
    pthread_mutex_lock(&t->mutex);
    return status;
}

static cod_status write_version(file *t)
{
    char path[FILE_PATH_BYTES];
    const cod_slot_entry p = t->last;
    const unsigned char *bytes = t->rooms[1 - t->room];
    const cod_slot_identity *who = &t->writer.header.identity;
    pthread_mutex_unlock(&t->mutex);
    file_version_path(t, who->group, who->shard, p.version, path);
    cod_status status = cod_folder_create(t->own);
    if (status == COD_OK)
        status = cod_file_write(path, bytes, p.bytes);
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
    pthread_cond_broadcast(&t->changed);
}

/** Reads a header file. @param[out] out  [window_bytes] @return whether there is one that can be read now */
static bool read_window(const file *t, uint32_t group, uint32_t shard, unsigned char *out, bool *damaged)
{
    char path[FILE_PATH_BYTES];
    void *data = NULL;
    size_t bytes = 0;
    file_header_path(t, group, shard, path);
    const cod_status status = cod_file_read(path, t->window_bytes, &data, &bytes);
    *damaged = status == COD_ERR_FORMAT || (status == COD_OK && bytes != t->window_bytes);
    if (status == COD_OK && !*damaged)
        memcpy(out, data, bytes);
    free(data);
    return status == COD_OK && !*damaged;
}

static void look(file *t, uint32_t group)
{
    publisher *who = &t->publishers[group];
    unsigned char *window = malloc(t->window_bytes);
    bool damaged = false;
    pthread_mutex_unlock(&t->mutex);
    const bool there = window != NULL && read_window(t, group, 0, window, &damaged);
    pthread_mutex_lock(&t->mutex);
    who->asked = false;
    who->damaged = damaged;
    if (there) {
        free(who->window);
        who->window = window;
    } else {
        free(window);
    }
}

cod_status file_check_window(const file *t, const unsigned char *window, bool damaged,
                             const cod_slot_identity *expected, cod_slot_header *header)
{
    bool torn = false;
    if (!damaged)
        COD_TRY(cod_slot_read_header(window, expected, &t->layout, header, &torn));
    if (damaged || torn) /* it was renamed whole: not torn, but bad */
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

/** The newest version of which there is a file in the own folder. */
static uint64_t newest_file(const file *t)
{
    cod_arena arena = {0};
    cod_string_list names;
    uint64_t newest = 0;
    if (cod_folder_list(t->own, "", ".bin", &arena, &names) == COD_OK) {
        for (size_t i = 0; i < names.count; i++) {
            const uint64_t version = strtoull(names.items[i], NULL, 10);
            newest = version > newest && version < UINT64_MAX ? version : newest;
        }
    }
    cod_arena_clear(&arena);
    return newest;
}

uint64_t file_newest_left(const file *t)
{
    const cod_slot_identity *who = &t->writer.header.identity;
    cod_slot_header header;
    bool damaged;
    unsigned char *window = malloc(t->window_bytes);
    const bool there = window != NULL && read_window(t, who->group, who->shard, window, &damaged) &&
                       file_check_window(t, window, damaged, who, &header) == COD_OK;
    free(window);
    if (!there) /* nothing, or another run's */
        return 0;
    const uint64_t beside = newest_file(t);
    return beside > header.newest ? beside : header.newest;
}

/** Looks for the version in the header of its publisher. @param newest  of which that is known to have been there */
static cod_status find_version(const file *t, const cod_slot_identity *expected, uint64_t version, uint64_t newest,
                               pull_phase *phase, cod_slot_entry *entry)
{
    cod_slot_header header;
    bool damaged;
    unsigned char *window = malloc(t->window_bytes);
    COD_REQUIRE_MEMORY(window);
    *phase = PULL_ABSENT;
    const bool there = read_window(t, expected->group, expected->shard, window, &damaged);
    const cod_status status = there || damaged ? file_check_window(t, window, damaged, expected, &header) : COD_OK;
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
static cod_status read_pieces(file *t, int from, const char *path, uint64_t ticket, uint64_t bytes, pull_phase *phase)
{
    uint64_t used = 0;
    bool wanted = true;
    while (used < bytes && wanted) {
        const uint64_t left = bytes - used;
        const ssize_t got = pread(from, t->pulled + used, left < PIECE_BYTES ? left : PIECE_BYTES, (off_t)used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == ESTALE) {
            *phase = PULL_GONE;
            return COD_OK;
        }
        if (got <= 0)
            return cod_fail(COD_ERR_FORMAT, "'%s': %s", path, got < 0 ? strerror(errno) : "it was cut off");
        used += (uint64_t)got;
        pthread_mutex_lock(&t->mutex);
        wanted = ticket == t->ticket;
        t->arrived = wanted ? used : t->arrived;
        pthread_mutex_unlock(&t->mutex);
    }
    *phase = PULL_HERE;
    return COD_OK;
}

static cod_status read_version(file *t, const cod_slot_identity *who, uint64_t version, uint64_t ticket, uint64_t bytes,
                               pull_phase *phase)
{
    char path[FILE_PATH_BYTES];
    struct stat info;
    file_version_path(t, who->group, who->shard, version, path);
    const int from = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (from < 0 && (errno == ENOENT || errno == ESTALE)) {
        *phase = PULL_GONE;
        return COD_OK;
    }
    if (from < 0)
        return cod_fail(COD_ERR_FORMAT, "'%s': %s", path, strerror(errno));
    cod_status status;
    if (fstat(from, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != bytes)
        status = cod_fail(COD_ERR_FORMAT, "'%s' has not the %llu bytes that its header says", path,
                          (unsigned long long)bytes);
    else
        status = read_pieces(t, from, path, ticket, bytes, phase);
    close(from);
    return status;
}

static void pull(file *t)
{
    const cod_slot_identity expected = t->expected;
    const uint64_t ticket = t->ticket, version = t->version,
                   newest = expected.shard == 0 ? t->publishers[expected.group].newest : 0;
    cod_slot_entry entry = {0};
    pull_phase phase = PULL_ABSENT;
    const double begin = cod_clock_s();
    t->phase = PULL_READING;
    pthread_mutex_unlock(&t->mutex);
    cod_status status = find_version(t, &expected, version, newest, &phase, &entry);
    if (status == COD_OK && phase == PULL_READING)
        status = read_version(t, &expected, version, ticket, entry.bytes, &phase);
    pthread_mutex_lock(&t->mutex);
    if (ticket != t->ticket)
        return;
    t->phase = status == COD_OK ? phase : PULL_BAD;
    t->entry = entry;
    t->looked_s = cod_clock_s();
    t->pull_s = t->looked_s - begin;
    snprintf(t->reason, sizeof t->reason, "%s", status == COD_OK ? "" : cod_error_message());
}

static uint32_t next_asked(const file *t)
{
    uint32_t group = 0;
    while (group < t->layout.groups && !t->publishers[group].asked)
        group++;
    return group;
}

void *file_work(void *context)
{
    file *t = context;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        const uint32_t asked = next_asked(t);
        if (t->storing || t->header_due)
            store(t);
        else if (t->ending)
            break;
        else if (t->phase == PULL_WANTED)
            pull(t);
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

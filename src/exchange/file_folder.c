/*
 * What lies in the shared folder: its names, its seals, headers as they are read, and what else is found in this
 * publisher's own place there. All of it waits for storage, without the mutex.
 */
#include "exchange/file_internal.h"

#include "core/chunk_format.h"
#include "core/log.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    uint64_t version = 0;
    return cod_file_number(name, "", 1, ".bin", COD_SLOT_VERSION_MAX, &version) ? version : 0;
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

cod_status file_write_sealed(const file *t, const cod_untrusted_folder *folder, const char *name, uint64_t version,
                             const unsigned char *data, size_t bytes)
{
    unsigned char place[40], seal[COD_SEAL_BYTES];
    place_of(&t->writer.header.identity, version, place);
    if (t->sealed)
        cod_seal_make(&t->key, place, sizeof place, data, bytes, seal);
    return cod_untrusted_file_write(folder, name, data, bytes, seal, t->sealed ? sizeof seal : 0);
}

bool file_seal_fits(const file *t, const cod_slot_identity *who, uint64_t version, const unsigned char *data,
                    size_t bytes)
{
    unsigned char place[40];
    place_of(who, version, place);
    return !t->sealed || cod_seal_check(&t->key, place, sizeof place, data, bytes, data + bytes);
}

/** Says of the first entry that is none of ours, or cannot be removed, that it stays. By the thread. */
static void note_stray(file *t, const char *reason)
{
    if (!t->stray_told)
        cod_log_warn("%s; it is passed over, as is all that is no file of this group's", reason);
    t->stray_told = true;
}

/** Visits what lies in the own folder, as far as that is worth the time. */
static cod_status visit_own(file *t, const cod_untrusted_folder *folder, cod_untrusted_visit visit, void *context)
{
    char reason[FILE_REASON_BYTES];
    bool more;
    COD_TRY(cod_untrusted_folder_visit(folder, visit, context, &more));
    snprintf(reason, sizeof reason, "of more than %d entries in '%.300s' the rest is not looked at",
             COD_UNTRUSTED_ENTRIES_MOST, t->own);
    if (more)
        note_stray(t, reason);
    return COD_OK;
}

static void remove_ours(file *t, const cod_untrusted_folder *folder, const char *entry)
{
    if (cod_untrusted_file_remove(folder, entry) != COD_OK)
        note_stray(t, cod_error_message());
}

/** What remove_unnamed() goes by. */
typedef struct naming {
    file *t;
    cod_slot_header header;
    int removed;
} naming;

static cod_status remove_unnamed(void *context, const cod_untrusted_folder *folder, const char *entry)
{
    /* There are rarely more than a window's. Others may make more, and faster than they can be removed. */
    enum { REMOVED_MOST = 4 * COD_SLOT_MAX };
    naming *named = context;
    const uint64_t version = version_of(entry);
    if (version != 0 && cod_slot_find(&named->header, version) < 0 && named->removed++ < REMOVED_MOST)
        remove_ours(named->t, folder, entry);
    return COD_OK;
}

cod_status file_remove_others(file *t, const cod_untrusted_folder *folder, const cod_slot_header *header)
{
    naming named = {t, *header, 0};
    return visit_own(t, folder, remove_unnamed, &named);
}

static cod_status remove_temporary(void *context, const cod_untrusted_folder *folder, const char *entry)
{
    char name[FILE_NAME_BYTES] = FILE_HEADER_NAME;
    const char *first = entry[0] == '.' ? entry + 1 : entry;
    if (first[0] >= '0' && first[0] <= '9')
        file_version_name(strtoull(first, NULL, 10), name);
    if (cod_file_is_temporary(entry, name))
        remove_ours(context, folder, entry);
    return COD_OK;
}

cod_status file_clean(file *t, const cod_untrusted_folder *folder)
{
    return visit_own(t, folder, remove_temporary, t);
}

/** Reads a header file. @param[out] out  [window_bytes] @return whether there is one that can be read now */
bool file_read_window(const file *t, const cod_slot_identity *who, unsigned char *out, file_damage *damage)
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
    else if (data != NULL && !file_seal_fits(t, who, 0, data, t->window_bytes))
        *damage = FILE_UNSEALED;
    const bool there = data != NULL && *damage == FILE_SOUND;
    if (there)
        memcpy(out, data, t->window_bytes);
    free(data);
    return there;
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

/** Whether a version's file is one that a process of this publisher wrote, as far as its seal or its size says. */
static bool is_published(const file *t, const cod_untrusted_folder *folder, const char *name, uint64_t version)
{
    void *data = NULL;
    size_t bytes = 0;
    const uint64_t seal = file_sealed_bytes(t, 0);
    const cod_status status =
        cod_untrusted_file_read(folder, name, file_sealed_bytes(t, t->layout.slot_bytes), &data, &bytes);
    const bool is = status == COD_OK && data != NULL && bytes > seal &&
                    file_seal_fits(t, &t->writer.header.identity, version, data, bytes - seal);
    free(data);
    return is;
}

/** What note_newest() has found. */
typedef struct counting {
    file *t;
    uint64_t newest;
    int looks; /**< files read */
} counting;

static cod_status note_newest(void *context, const cod_untrusted_folder *folder, const char *entry)
{
    counting *f = context;
    const uint64_t version = version_of(entry);
    /* A killed process leaves fewer versions that its header does not name; all are read, and may be large. */
    enum { LOOKS_MOST = 2 * COD_SLOT_MAX };
    char reason[FILE_REASON_BYTES];
    if (version <= f->newest || f->looks++ >= LOOKS_MOST)
        return COD_OK;
    if (is_published(f->t, folder, entry, version)) {
        f->newest = version;
        return COD_OK;
    }
    snprintf(reason, sizeof reason, "'%.300s/%.32s' is no version that this group has published", f->t->own, entry);
    note_stray(f->t, reason);
    return COD_OK;
}

uint64_t file_newest_left(file *t, cod_slot_stamp *stamp)
{
    const cod_slot_identity *who = &t->writer.header.identity;
    cod_slot_header header;
    file_damage damage;
    unsigned char *window = malloc(t->window_bytes);
    *stamp = (cod_slot_stamp){0};
    const bool intact =
        window != NULL && file_read_window(t, who, window, &damage) && cod_slot_read_stamp(window, stamp);
    const bool ours = intact && file_check_window(t, window, damage, who, &header) == COD_OK;
    free(window);
    if (!ours) /* nothing, or another run's */
        return 0;
    counting left = {t, header.newest, 0};
    cod_untrusted_folder *folder = NULL;
    cod_status status = file_open_shard(t, who->group, who->shard, COD_UNTRUSTED_NONE, &folder);
    if (folder != NULL)
        COD_THEN(status, visit_own(t, folder, note_newest, &left));
    cod_untrusted_folder_close(folder);
    return left.newest;
}

uint64_t file_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/** Of two processes that publish as one group, the one that began later goes on: the other may have been given up. */
static bool began_later(const cod_slot_stamp *other, const cod_slot_stamp *own)
{
    return other->begun_ms > own->begun_ms || (other->begun_ms == own->begun_ms && other->life > own->life);
}

/** With the mutex held. */
static void note_usurper(file *t, const cod_slot_stamp *other)
{
    char when[32] = "?";
    const time_t begun = (time_t)(other->begun_ms / 1000);
    struct tm parts;
    if (gmtime_r(&begun, &parts) != NULL)
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &parts);
    snprintf(t->usurper, sizeof t->usurper,
             "another job, begun %s, publishes as group %u in '%.300s': this one publishes and saves nothing more, and "
             "ends (a group is one job, wherever that runs)",
             when, t->writer.header.identity.group, t->folder);
    t->usurped = true;
}

void file_look_for_usurper(file *t)
{
    const cod_slot_identity who = t->writer.header.identity;
    cod_slot_stamp other;
    cod_slot_header header;
    file_damage damage;
    unsigned char *window = malloc(t->window_bytes);
    pthread_mutex_unlock(&t->mutex);
    const bool found = window != NULL && file_read_window(t, &who, window, &damage) &&
                       cod_slot_read_stamp(window, &other) && other.life != 0 && other.life != t->stamp.life;
    const bool same_run = found && file_check_window(t, window, damage, &who, &header) == COD_OK;
    free(window);
    pthread_mutex_lock(&t->mutex);
    if (found && began_later(&other, &t->stamp))
        note_usurper(t, &other);
    else if (same_run && header.newest > t->writer.header.newest) /* readers have seen that number */
        t->writer.header.newest = header.newest;
}

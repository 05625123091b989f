/**
 * @file
 * The file transport's state, and what its two sides share: the caller's (file.c) and the thread's (file_thread.c).
 */
#ifndef COD_DISTILL_FILE_INTERNAL_H
#define COD_DISTILL_FILE_INTERNAL_H

#include "distill/file.h"
#include "io/seal.h"
#include "io/untrusted_folder.h"

#include <pthread.h>

#define FILE_HEADER_NAME "header"

enum { FILE_REASON_BYTES = 512, FILE_PATH_BYTES = 4096, FILE_NAME_BYTES = 32 };

/** What is wrong with a header file before it is read as one. */
typedef enum file_damage {
    FILE_SOUND,
    FILE_DAMAGED, /**< of another size, or no regular file */
    FILE_UNSEALED /**< its seal is missing, or not of our key */
} file_damage;

/** What is known of a group's first shard of a fragment, where news and acknowledgements are. */
typedef struct publisher {
    bool asked;            /**< to be looked at */
    bool looked;           /**< that was done, and the answer has not been given to who asked */
    file_damage damage;    /**< of its header, when that was looked at last */
    double looked_s;       /**< when it was last asked for */
    uint64_t newest;       /**< of any header read of it */
    unsigned char *window; /**< as last read; NULL = nothing yet */
    cod_slot_identity expected;
} publisher;

typedef enum pull_phase {
    PULL_NONE,
    PULL_WANTED,
    PULL_READING,
    PULL_ABSENT,
    PULL_HERE,
    PULL_GONE,
    PULL_BAD
} pull_phase;

typedef struct file_pull {
    pull_phase phase;
    uint64_t ticket; /**< one that was given up has an older one */
    cod_slot_identity expected;
    uint64_t version, arrived;
    double looked_s;
    cod_slot_entry entry;
    double pull_s;  /**< that reading it took */
    cod_room *room; /**< borrowed; the thread keeps it while it reads */
    char reason[FILE_REASON_BYTES];
} file_pull;

struct file;
/** What a caller waits for and storage may hold up: the thread does it, without the mutex, as nobody else is at work then. */
typedef cod_status file_errand(struct file *t);

typedef struct file {
    cod_transport base;
    char folder[FILE_PATH_BYTES - 128], own[FILE_PATH_BYTES - 64];
    cod_slot_layout layout;
    size_t window_bytes; /**< of a header file, without its seal */
    bool anew;           /**< versions of an earlier run are removed */
    bool sealed;         /**< all files end with a seal of `key` */
    cod_seal_key key;
    double patience_s; /**< that storage has to answer where the caller waits for it */
    pthread_t thread;

    pthread_mutex_t mutex; /**< guards all that follows; never held while storage is waited for */
    pthread_cond_t changed;
    double moved_s; /**< when the thread last began something, or a piece of a pull came */
    bool begun, ending, ended;
    bool hung; /**< storage kept a caller waiting for all of `patience_s`, and has not answered since */

    file_errand *errand; /**< wanted or under way; NULL = none */
    cod_status errand_status;
    char errand_reason[FILE_REASON_BYTES];
    cod_slot_header resumed; /**< as saved, while it is compared with the files that there are */

    cod_slot_writer writer; /**< its memory is a window without slots */
    unsigned char *rooms[2];
    int room;            /**< being filled; the other one holds `last` */
    cod_slot_entry last; /**< what lies in the room that is not being filled */
    bool storing, header_due;
    bool failing; /**< what was published last could not be written */
    uint64_t failures, left;

    publisher *publishers; /**< [groups] */

    cod_rooms *pull_rooms; /**< of all fragments' transports */
    file_pull *pulls;      /**< [pull_count] */
    int pull_count, pull_turn;

} file;

/** Opens a shard's folder. @param[out] out  new; NULL where it is absent and COD_UNTRUSTED_NONE */
COD_MUST_CHECK cod_status file_open_shard(const file *t, uint32_t group, uint32_t shard, cod_untrusted_absence absence,
                                          cod_untrusted_folder **out);
void file_version_name(uint64_t version, char name[FILE_NAME_BYTES]);
/** Bytes of a file that holds this many, with its seal. */
static inline uint64_t file_sealed_bytes(const file *t, uint64_t bytes)
{
    return bytes + (t->sealed ? COD_SEAL_BYTES : 0);
}

/** Removes the own shard's versions that a header does not name. */
COD_MUST_CHECK cod_status file_remove_others(const cod_untrusted_folder *folder, const cod_slot_header *header);
/** Removes what killed writers of the own shard left. */
COD_MUST_CHECK cod_status file_clean(const cod_untrusted_folder *folder);
/**
 * The newest version that earlier processes of this publisher may have made readable; 0 = none. The header that they left says it;
 * where that is an older one, put back, the versions beside it do.
 */
uint64_t file_newest_left(const file *t);
/** Writes the header file as the window stands; the mutex is let go meanwhile. */
COD_MUST_CHECK cod_status file_write_header(file *t);
/** What a header file says; COD_ERR_FORMAT when it is damaged, or somebody else's. */
COD_MUST_CHECK cod_status file_check_window(const file *t, const unsigned char *window, file_damage damage,
                                            const cod_slot_identity *expected, cod_slot_header *header);
/** COD_ERR_FORMAT where a first shard's header is older than one read before. @param newest  of those */
COD_MUST_CHECK cod_status file_check_not_older(const cod_slot_header *header, uint64_t newest);
/** Counts a publication that was left out, says the first of a row, or that it works again. With the mutex held. */
void file_note_outcome(file *t, cod_status status);
/** The thread: stores, pulls and looks until it is told to end. @param context  the file */
void *file_work(void *context);

#endif

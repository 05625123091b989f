/**
 * @file
 * The file transport's state, and what its parts share: the caller's side (file.c), the thread's (file_thread.c), and
 * what is in the folder (file_folder.c).
 */
#ifndef COD_EXCHANGE_FILE_INTERNAL_H
#define COD_EXCHANGE_FILE_INTERNAL_H

#include "exchange/file.h"
#include "io/seal.h"
#include "io/untrusted_folder.h"

#include <pthread.h>

#define FILE_HEADER_NAME "header"

enum { FILE_REASON_BYTES = 512, FILE_PATH_BYTES = 4096, FILE_NAME_BYTES = 32 };

/** Damage to a header file that is found before its content is read. */
typedef enum file_damage {
    FILE_SOUND,
    FILE_DAMAGED, /**< it has another size, or is no regular file */
    FILE_UNSEALED /**< its seal is missing, or was made with another key */
} file_damage;

/** State of a group's first shard of a fragment, which holds news and acknowledgements. */
typedef struct publisher {
    bool asked;            /**< the thread is to read it */
    bool looked;           /**< the thread has read it, and the answer was not yet given to the caller */
    file_damage damage;    /**< of its header, when it was last read */
    bool told_old;         /**< that what it publishes is old was said, or is no question any more */
    double looked_s;       /**< time of the last request */
    uint64_t newest;       /**< newest version in any header read so far */
    unsigned char *window; /**< as last read; NULL = not read yet */
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
    uint64_t ticket; /**< number of the pull; an abandoned pull has an older number */
    cod_slot_identity expected;
    uint64_t version, arrived;
    double looked_s;
    cod_slot_entry entry;
    double pull_s;  /**< seconds that reading took */
    cod_room *room; /**< borrowed; the thread keeps it while it reads */
    char reason[FILE_REASON_BYTES];
} file_pull;

struct file;
/**
 * Work that a caller waits for and that storage may delay. The thread does it without the mutex, because the caller
 * does nothing else meanwhile.
 */
typedef cod_status file_errand(struct file *t);

typedef struct file {
    cod_transport base;
    char folder[FILE_PATH_BYTES - 128], own[FILE_PATH_BYTES - 64];
    cod_slot_layout layout;
    size_t window_bytes; /**< of a header file, without its seal */
    bool anew;           /**< versions of an earlier run are removed */
    bool sealed;         /**< all files end with a seal of `key` */
    cod_seal_key key;
    double patience_s;    /**< seconds that a caller waits for storage */
    double old_s;         /**< of cod_file_options */
    cod_slot_stamp stamp; /**< of this process; without the time of writing */
    bool stray_told;      /**< an entry that is passed over was named; the thread's */
    pthread_t thread;

    pthread_mutex_t mutex; /**< guards everything below; never held while waiting for storage */
    pthread_cond_t changed;
    double moved_s; /**< time at which the thread last started something, or a piece of a pull arrived */
    bool begun, ending, ended;
    bool hung; /**< a caller has waited for all of `patience_s`, and storage has not answered since */

    file_errand *errand; /**< requested or in progress; NULL = none */
    cod_status errand_status;
    char errand_reason[FILE_REASON_BYTES];
    cod_slot_header resumed; /**< the saved header, while it is compared with the existing files */

    cod_slot_writer writer; /**< writes a window without slots */
    unsigned char *rooms[2];
    int room;            /**< index of the room being filled; the other one holds `last` */
    cod_slot_entry last; /**< entry of the version in the other room */
    bool storing, header_due;
    bool failing; /**< the last publication could not be written */
    uint64_t failures, left;
    bool usurped; /**< another job publishes in this one's place, which writes nothing more */
    char usurper[FILE_REASON_BYTES];

    publisher *publishers; /**< [groups] */

    cod_rooms *pull_rooms; /**< rooms of the transports of all fragments */
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

/** Removes the own shard's versions that a header does not name, as far as they are files. */
COD_MUST_CHECK cod_status file_remove_others(file *t, const cod_untrusted_folder *folder,
                                             const cod_slot_header *header);
/** Removes temporary files that killed writers of this shard left. */
COD_MUST_CHECK cod_status file_clean(file *t, const cod_untrusted_folder *folder);
/**
 * The newest version that earlier processes of this publisher may have made readable; 0 = none. It is read from the
 * header that they left or, if an older header was put back, from the versions: sealed ones, or in a folder without
 * seals those that are not empty.
 *
 * @param[out] stamp  of that header, also where it is another run's; zeros where there is none
 */
uint64_t file_newest_left(file *t, cod_slot_stamp *stamp);
/** Milliseconds since 1970. */
uint64_t file_wall_ms(void);
/**
 * Looks whether another process publishes in this one's place, which is then `usurped`. Takes the other one's newest
 * number where it is this one that goes on. With the mutex held, which is released meanwhile.
 */
void file_look_for_usurper(file *t);
/** Writes a file of the own shard with its seal. @param version  0 = the header */
COD_MUST_CHECK cod_status file_write_sealed(const file *t, const cod_untrusted_folder *folder, const char *name,
                                            uint64_t version, const unsigned char *data, size_t bytes);
/** Whether the seal behind `bytes` bytes is that of their place; true without seals. */
bool file_seal_fits(const file *t, const cod_slot_identity *who, uint64_t version, const unsigned char *data,
                    size_t bytes);
/** Reads a header file. @param[out] out  [window_bytes] @return whether there is one that can be read now */
bool file_read_window(const file *t, const cod_slot_identity *who, unsigned char *out, file_damage *damage);
/** Writes the current window as the header file; the mutex is released meanwhile. */
COD_MUST_CHECK cod_status file_write_header(file *t);
/** Reads a header file; COD_ERR_FORMAT if it is damaged or belongs to another run or shard. */
COD_MUST_CHECK cod_status file_check_window(const file *t, const unsigned char *window, file_damage damage,
                                            const cod_slot_identity *expected, cod_slot_header *header);
/**
 * COD_ERR_FORMAT if a first shard's header is older than one read before. @param newest version in the headers read
 * before
 */
COD_MUST_CHECK cod_status file_check_not_older(const cod_slot_header *header, uint64_t newest);
/**
 * Counts a publication that was left out. Logs the first of several in a row, and when writing works again. To be
 * called with the mutex held.
 */
void file_note_outcome(file *t, cod_status status);
/** An errand: creates the own folder, and cleans it. */
cod_status file_prepare_folder(file *t);
/**
 * An errand: forgets saved versions whose files are gone. With more publications than slots since the checkpoint, that
 * is all of them.
 */
cod_status file_keep_what_is_there(file *t);
/** The thread: stores, pulls and looks until it is told to end. @param context  the file */
void *file_work(void *context);

#endif

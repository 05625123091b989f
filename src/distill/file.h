/**
 * @file
 * The transport over a shared folder: groups that are separate jobs, on one file system, of which each may start, die and come back alone.
 *
 *   FOLDER/group-G/shard-K/header      a window (slot.h) without its slots: who publishes what, and which versions are there
 *   FOLDER/group-G/shard-K/VERSION.bin one encoded shard
 *
 * Both are written aside, flushed and renamed, the version before the header that names it, so there are no locks and nothing is
 * ever half there. A publisher keeps as many versions as a window has slots and removes the others after the header that no
 * longer names them. A reader trusts nothing: identity, sizes and checksums are compared, and a version that vanishes while
 * it is read is lost.
 *
 * One thread does all reading and writing; the calls here only look at what it has done, so no slow storage holds a step. What
 * cannot be written is left out, counted and said once; the next publication tries again, and makes the folder anew if need be.
 * Storage that hangs is waited for once, `patience_s` at most: by a checkpoint, a deterministic publication or the end of the run. A
 * start or a resume that it holds up fails after that time.
 *
 * Others may write in the folder: io/untrusted_folder.h says what they cannot do by that, docs/exchange.md who is trusted with what.
 */
#ifndef COD_DISTILL_FILE_H
#define COD_DISTILL_FILE_H

#include "distill/transport.h"

typedef struct cod_file_options {
    const char *folder;
    const char *
        key_file; /**< of the seals that all files end with (io/seal.h); NULL or "" = none. What has no seal of it is refused */
    double patience_s; /**< longest that a call waits for storage */
    bool anew;         /**< removes what an earlier run left of this shard */
    cod_rooms *rooms;  /**< for the pulls that may be under way at a time; borrowed, may be of other transports, too */
} cod_file_options;

/**
 * Opens the folder for one shard; of this rank alone. COD_ERR_IO when storage does not answer.
 *
 * @param[out] out  new; ops->destroy()
 */
COD_MUST_CHECK cod_status cod_file_transport_create(const cod_file_options *options, const cod_slot_identity *identity,
                                                    const cod_slot_layout *layout, cod_transport **out);

#endif

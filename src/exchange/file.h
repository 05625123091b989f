/**
 * @file
 * The transport over a shared folder, for groups that are separate jobs on one file system. Each may start, die and
 * resume alone.
 *
 *   FOLDER/group-G/shard-K/header      a window (slot.h) without its slots: who publishes what, and which versions are there
 *   FOLDER/group-G/shard-K/VERSION.bin one encoded shard
 *
 * Each file is written under another name, flushed and renamed, and a version is renamed before the header that names
 * it. There are therefore no locks, and a file is always complete. A publisher keeps as many versions as a window has
 * slots, and removes older ones after it has written a header that no longer names them. A reader trusts nothing:
 * identity, sizes and checksums are compared, and a version that vanishes while it is read is lost.
 *
 * One thread does all reading and writing; the calls here only look at what it has done, so no slow storage holds a
 * step. A publication that cannot be written is left out and counted, and a warning appears once; the next publication
 * tries again and makes the folder anew if necessary. A checkpoint, a deterministic publication or the end of the run
 * waits for storage that hangs, once, for at most `patience_s`. A start or a resume fails after that time.
 *
 * Each header says which process wrote it. Before it writes anything, a publisher looks whether another process that
 * began later publishes in its place: a group that was started twice, or was given up and started elsewhere. Then it
 * writes nothing more, and publish_begin(), state() and destroy() fail with COD_ERR_IO.
 *
 * Others may write in the folder: io/untrusted_folder.h says what they cannot do, and docs/exchange.md who is trusted
 * with what.
 */
#ifndef COD_EXCHANGE_FILE_H
#define COD_EXCHANGE_FILE_H

#include "exchange/transport.h"

typedef struct cod_file_options {
    const char *folder;
    /** key of all files' seals (io/seal.h); files without its seal are refused. NULL or "" = no seals */
    const char *key_file;
    double patience_s; /**< longest that a call waits for storage */
    double old_s;      /**< what a group left is called old from this age on */
    /** of this process and when it began, since 1970: of two that publish as one group, the later one goes on */
    uint64_t life, begun_ms;
    bool anew;        /**< removes what an earlier run left of this shard */
    cod_rooms *rooms; /**< rooms for pulls; borrowed, may be shared with other transports */
} cod_file_options;

/**
 * Opens the folder for one shard. Local to this rank. COD_ERR_IO if storage does not answer.
 *
 * @param[out] out  new; ops->destroy()
 */
COD_MUST_CHECK cod_status cod_file_transport_create(const cod_file_options *options, const cod_slot_identity *identity,
                                                    const cod_slot_layout *layout, cod_transport **out);

#endif

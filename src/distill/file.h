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
 */
#ifndef COD_DISTILL_FILE_H
#define COD_DISTILL_FILE_H

#include "distill/transport.h"

/**
 * Opens the folder for one shard; of this rank alone.
 *
 * @param anew      removes what an earlier run left of this shard
 * @param[out] out  new; ops->destroy()
 */
COD_MUST_CHECK cod_status cod_file_transport_create(const char *folder, bool anew, const cod_slot_identity *identity,
                                                    const cod_slot_layout *layout, cod_transport **out);

#endif

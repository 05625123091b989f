/**
 * @file
 * The layout of a rank's window: a header with its own checksum, one sequence word for each slot, and the slots. This
 * file defines bytes and their order; transports move them.
 *
 *   header          who publishes what, and which version lies in which slot; its checksum tells a torn read
 *   sequence words  u64 a slot: odd while the slot is written, raised by every reopening
 *   acknowledgements u64 a group: the newest version that this rank has taken from it (deterministic mode)
 *   slots           one encoded shard each
 *
 * A reader reads the header, then the slot's bytes, then the sequence word again. If the word still equals the
 * header's, the bytes are those of that version. A pull fails only when *its* slot was reopened.
 */
#ifndef COD_EXCHANGE_SLOT_H
#define COD_EXCHANGE_SLOT_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    COD_SLOT_MAX = 16,
    COD_SLOT_ENTRIES_AT = 128,
    COD_SLOT_ENTRY_BYTES = 48,
    COD_SLOT_HEADER_BYTES = COD_SLOT_ENTRIES_AT + COD_SLOT_ENTRY_BYTES * COD_SLOT_MAX
};

/** Sizes of a window; both sides compute them from the same configuration. */
typedef struct cod_slot_layout {
    uint32_t slots, groups;
    uint64_t slot_bytes; /**< a multiple of 64 */
} cod_slot_layout;

/** Bytes of the header that are in use with this number of slots. */
static inline uint64_t cod_slot_header_bytes(const cod_slot_layout *layout)
{
    return COD_SLOT_ENTRIES_AT + COD_SLOT_ENTRY_BYTES * (uint64_t)layout->slots;
}

static inline uint64_t cod_slot_sequence_at(const cod_slot_layout *layout, uint32_t slot)
{
    (void)layout;
    return COD_SLOT_HEADER_BYTES + 8 * (uint64_t)slot;
}

static inline uint64_t cod_slot_ack_at(const cod_slot_layout *layout, uint32_t group)
{
    return cod_slot_sequence_at(layout, layout->slots) + 8 * (uint64_t)group;
}

static inline uint64_t cod_slot_data_at(const cod_slot_layout *layout, uint32_t slot)
{
    return ((cod_slot_ack_at(layout, layout->groups) + 63) & ~UINT64_C(63)) + slot * layout->slot_bytes;
}

static inline uint64_t cod_slot_window_bytes(const cod_slot_layout *layout)
{
    return cod_slot_data_at(layout, layout->slots);
}

/** Versions must be exact as doubles, because they are part of reductions. */
#define COD_SLOT_VERSION_MAX (UINT64_C(1) << 53)

/** Who publishes what; must equal what the reader expects. */
typedef struct cod_slot_identity {
    uint64_t run, model;
    uint32_t group, shard, shards;
    uint64_t first, count, exact_from;
} cod_slot_identity;

typedef struct cod_slot_entry {
    uint64_t version; /**< 0 = nothing to read */
    uint64_t life;    /**< life of the publisher's group; a version made again after a death has another life */
    uint64_t bytes, sequence;
    uint64_t reference;    /**< the version that it is a delta against; 0 = a key, which stands alone */
    uint64_t published_ms; /**< since 1970, by the publisher's clock; 0 = not told */
} cod_slot_entry;

typedef struct cod_slot_header {
    cod_slot_identity identity;
    cod_slot_layout layout;
    uint64_t newest; /**< newest version that was ever readable, also before a publisher died and resumed */
    cod_slot_entry entries[COD_SLOT_MAX];
} cod_slot_header;

/** What a process says of itself in a header that outlives it, in files; zeros = it says nothing. */
typedef struct cod_slot_stamp {
    uint64_t life;       /**< of the process: another one has another */
    uint64_t begun_ms;   /**< when it began, since 1970, and after all processes of its group whose headers it found */
    uint64_t written_ms; /**< when the header was written */
} cod_slot_stamp;

/** Makes the window's writes so far visible before the later ones: MPI_Win_sync, or a fence between threads. */
typedef cod_status (*cod_slot_sync)(void *context);

/** The publisher's side: its own part of the window. */
typedef struct cod_slot_writer {
    unsigned char *memory; /**< [cod_slot_window_bytes] zeroed at first */
    cod_slot_header header;
    cod_slot_sync sync;
    void *sync_context;
} cod_slot_writer;

/** Takes `memory` and writes the first header. */
COD_MUST_CHECK cod_status cod_slot_writer_init(cod_slot_writer *writer, unsigned char *memory,
                                               const cod_slot_identity *identity, const cod_slot_layout *layout,
                                               cod_slot_sync sync, void *sync_context);

/** Writes the header anew, as it stands in writer->header. */
COD_MUST_CHECK cod_status cod_slot_write_header(cod_slot_writer *writer);

/** The slot that is written next: an empty one, else that of the oldest version; *oldest is that version or 0. */
uint32_t cod_slot_next(const cod_slot_writer *writer, uint64_t *oldest);

/** Reopens a slot: from here on readers of its old version lose it. Write [slot_bytes] at *room, then close. */
COD_MUST_CHECK cod_status cod_slot_open(cod_slot_writer *writer, uint32_t slot, unsigned char **room);
/** Makes the written bytes readable with `entry`, except that its sequence is set to the slot's. */
COD_MUST_CHECK cod_status cod_slot_close(cod_slot_writer *writer, uint32_t slot, const cod_slot_entry *entry);
COD_MUST_CHECK cod_status cod_slot_acknowledge(cod_slot_writer *writer, uint32_t group, uint64_t version);

/**
 * Reads a header that may be torn or damaged.
 *
 * @param bytes    [COD_SLOT_HEADER_BYTES] untrusted
 * @param torn     the checksum does not fit: read it again later
 * @return COD_ERR_FORMAT when it is intact but not what is expected: another run, model or configuration
 */
COD_MUST_CHECK cod_status cod_slot_read_header(const unsigned char *bytes, const cod_slot_identity *expected,
                                               const cod_slot_layout *layout, cod_slot_header *out, bool *torn);

/** Puts a stamp into a header. @param[in,out] bytes  [COD_SLOT_HEADER_BYTES] as the writer made them */
void cod_slot_stamp_header(unsigned char *bytes, const cod_slot_stamp *stamp);
/** Reads the stamp of a header, of whatever run. @return whether it is an intact header */
bool cod_slot_read_stamp(const unsigned char *bytes, cod_slot_stamp *stamp);

/** Whether an entry may be one of a header with this newest version. */
bool cod_slot_makes_sense(const cod_slot_entry *entry, const cod_slot_layout *layout, uint64_t newest);
/** Whether a header, which may come from a file, is one that a publisher can have written. */
bool cod_slot_header_makes_sense(const cod_slot_header *header);

/** Whether two headers are of one shard of one run, laid out alike. */
bool cod_slot_same_publisher(const cod_slot_header *a, const cod_slot_header *b);

/** Bytes in all slots together; UINT64_MAX if an entry, which may come from a file, has more bytes than a slot. */
uint64_t cod_slot_used_bytes(const cod_slot_header *header);
/** The slot that holds `version`, or -1. */
int cod_slot_find(const cod_slot_header *header, uint64_t version);
/** The life of `version`; 0 if no slot holds it. */
uint64_t cod_slot_life(const cod_slot_header *header, uint64_t version);
/** The newest readable version, or 0. */
uint64_t cod_slot_newest(const cod_slot_header *header);

/** What a reader looks for. */
typedef struct cod_slot_wanted {
    uint64_t held;    /**< version that it holds; 0 = none */
    uint64_t after;   /**< only versions after this one */
    uint64_t at_most; /**< only versions up to this one, unless all are later */
    uint64_t spacing; /**< difference between two successive versions of a publisher if none is left out */
} cod_slot_wanted;

/** What the reader takes next. */
typedef struct cod_slot_offered {
    uint64_t version, life; /**< 0 = nothing */
    /** number of deltas of that life that follow it, each against the one before, `spacing` apart */
    uint32_t following;
} cod_slot_offered;

/**
 * The newest key, or else the delta against the version held. Each delta needs the one before, so a reader that has
 * lost one waits for a key, for key_every publications at most.
 */
cod_slot_offered cod_slot_offer(const cod_slot_header *header, const cod_slot_wanted *wanted);

#endif

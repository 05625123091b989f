/*
 * A model of the slot protocol (src/exchange/slot.h, rma.c; docs/exchange-protocol.md) for spin: one publisher, one reader, each step of
 * either at any time. test_model.py runs it, and the broken variants, which are macros here.
 *
 * What stands between two calls of MPI_Win_sync may become visible in any order; so may what several gets in flight read. A
 * header is two pieces that a get may catch apart; its checksum tells (`generation`). Chunks have no checksum here: the
 * sequence words alone keep torn and old ones out. A chunk holds the version that it belongs to.
 *
 * The reader may stop for good at any step (`stopped`). Its time is counted in publications that began since it saw the
 * version as the newest; a pull that is shorter than n periods sees n of them begin at most.
 */
#ifndef SLOTS
#define SLOTS 3
#endif
#define CHUNKS 2
#define VERSIONS (SLOTS + 2)
#define NONE 255

/* What a pull may last, in periods. */
#ifdef LONGER_PULL
#define PERIODS (SLOTS - 1)
#else
#define PERIODS (SLOTS - 2)
#endif

#ifdef WORD_NOT_RAISED
#define CLOSED(sequence) 0
#define OPENED(sequence) 1
#else
#define CLOSED(sequence) ((sequence + 1) & ~1)
#define OPENED(sequence) (sequence | 1)
#endif

/* The window. */
byte word[SLOTS];
byte chunk[SLOTS * CHUNKS];
byte header_version[SLOTS], header_sequence[SLOTS];
byte generation_of_versions, generation_of_sequences;

/* The publisher's own copy of the header. */
byte version[SLOTS], sequence[SLOTS], generation;

byte ended;  /* publications made or given up */
byte passed; /* publications begun since the reader saw its version as the newest */
bool reading[SLOTS], stopped;

/* Writes to the window; those of one set become visible in any order, and all before the next set (MPI_Win_sync). */
#define WORD 1
#define VERSIONS_PIECE 2
#define SEQUENCES_PIECE 4
#define HEADER (VERSIONS_PIECE | SEQUENCES_PIECE)
#define FIRST_CHUNK 8
#define SECOND_CHUNK 16
#define PAYLOAD (FIRST_CHUNK | SECOND_CHUNK)

inline write_then_sync(set)
{
    todo = set;
    do
    :: todo & WORD -> d_step { word[slot] = sequence[slot]; todo = todo & ~WORD }
    :: todo & VERSIONS_PIECE ->
        d_step {
            for (k : 0 .. SLOTS - 1) { header_version[k] = version[k] }
            generation_of_versions = generation; k = 0; todo = todo & ~VERSIONS_PIECE
        }
    :: todo & SEQUENCES_PIECE ->
        d_step {
            for (k : 0 .. SLOTS - 1) { header_sequence[k] = sequence[k] }
            generation_of_sequences = generation; k = 0; todo = todo & ~SEQUENCES_PIECE
        }
    :: todo & FIRST_CHUNK -> d_step { chunk[slot * CHUNKS] = v; todo = todo & ~FIRST_CHUNK }
    :: todo & SECOND_CHUNK -> d_step { chunk[slot * CHUNKS + 1] = v; todo = todo & ~SECOND_CHUNK }
    :: todo == 0 -> break
    od
}

/* cod_slot_open() and cod_slot_close(), as far as they change the publisher's own copy. */
inline set_open()
{
    atomic { version[slot] = 0; sequence[slot] = OPENED(sequence[slot]); generation++ }
}

inline set_closed()
{
    atomic { version[slot] = v; sequence[slot] = CLOSED(sequence[slot]); generation++ }
}

active proctype publisher()
{
    byte v = 1, slot, todo, k;
    do
    :: v > VERSIONS -> break
    :: else ->
        atomic { /* cod_slot_next() */
            slot = 0;
            for (k : 1 .. SLOTS - 1) {
                if
                :: version[k] < version[slot] -> slot = k
                :: else
                fi
            }
            k = 0
        }
#ifdef WAITS_FOR_READERS
        !reading[slot];
#endif
        atomic {
            if
            :: passed < SLOTS -> passed++
            :: else
            fi
        }
        set_open();
#if defined(NO_SYNC_AFTER_OPEN)
        write_then_sync(WORD | HEADER | PAYLOAD);
#elif defined(NOT_MARKED_OPEN)
        write_then_sync(HEADER);
        write_then_sync(PAYLOAD);
#elif defined(HEADER_BEFORE_PAYLOAD)
        write_then_sync(WORD | HEADER);
#elif defined(NO_SYNC_BEFORE_CLOSE)
        write_then_sync(WORD | HEADER);
#else
        write_then_sync(WORD | HEADER);
        write_then_sync(PAYLOAD);
#endif
        if
        :: skip /* values that are not finite: given up, the slot stays open */
        :: set_closed();
#if defined(NO_SYNC_BEFORE_CLOSE)
            write_then_sync(PAYLOAD | WORD | HEADER);
#elif defined(NO_SYNC_BEFORE_HEADER)
            write_then_sync(WORD | HEADER);
#else
            write_then_sync(WORD);
            write_then_sync(HEADER);
#endif
#ifdef HEADER_BEFORE_PAYLOAD
            write_then_sync(PAYLOAD)
#endif
        fi;
        atomic { v++; ended++ }
    od
}

/* Where the version that is wanted lies, and how many newer ones can be read. */
inline look_up()
{
    from = NONE; newer = 0;
    for (k : 0 .. SLOTS - 1) {
        if
        :: header_version[k] == wanted -> from = k
        :: header_version[k] > wanted -> newer++
        :: else
        fi
    }
    k = 0
}

inline lost()
{
    /* Otherwise a pull that was short enough has failed. */
    assert(passed + behind > PERIODS)
}

active proctype reader() provided (!stopped)
{
    byte wanted, behind, newer, from, expected, seen, todo, k, checksum;
    bool torn, right;
    do
    ::  /* offer(): a header that is not torn, and any version in it */
        atomic {
            generation_of_versions == generation_of_sequences;
            select(k : 0 .. SLOTS - 1);
            wanted = header_version[k];
            look_up();
            behind = newer; passed = 0
        }
        if
        :: wanted == 0 -> goto next
        :: else
        fi;
        do /* take_header(): its pieces, and then whether they belong together */
        ::  d_step { look_up(); checksum = generation_of_versions }
            atomic {
                if
                :: from != NONE -> expected = header_sequence[from]
                :: else
                fi;
                torn = checksum != generation_of_sequences; checksum = 0
            }
#ifdef NO_HEADER_CHECKSUM
            torn = false;
#endif
            if
            :: torn -> torn = false
            :: !torn && from == NONE && newer > 0 -> lost(); goto next
            :: !torn && from == NONE && newer == 0 -> skip
            :: !torn && from != NONE -> break
            fi
        od;
        newer = 0;
#ifdef WAITS_FOR_READERS
        reading[from] = true;
#endif
        right = true;
        todo = PAYLOAD;
#ifdef WORD_WITH_THE_CHUNKS
        todo = PAYLOAD | WORD;
#endif
        do /* move_data() */
        :: todo & FIRST_CHUNK -> atomic { right = right && chunk[from * CHUNKS] == wanted; todo = todo & ~FIRST_CHUNK }
        :: todo & SECOND_CHUNK -> atomic { right = right && chunk[from * CHUNKS + 1] == wanted; todo = todo & ~SECOND_CHUNK }
        :: todo & WORD -> atomic { seen = word[from]; todo = todo & ~WORD }
        :: todo == 0 -> break
        od;
#if defined(NO_SECOND_LOOK)
        seen = expected;
#elif !defined(WORD_WITH_THE_CHUNKS)
        seen = word[from];
#endif
        reading[from] = false;
        if
        :: seen == expected -> assert(right)
        :: else -> lost()
        fi;
next:   atomic { wanted = 0; behind = 0; newer = 0; from = 0; expected = 0; seen = 0; right = false; passed = SLOTS }
    od
}

#ifdef STOPS
active proctype fate()
{
    stopped = true
}

/* However far the reader came before it stopped. */
ltl progress { <> (ended == VERSIONS) }
#endif

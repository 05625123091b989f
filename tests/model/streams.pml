/*
 * A model of keys that take longer than a period to cross (src/exchange/rma.c, puller.c;
 * docs/exchange-protocol.md) for spin: two publishers, one reader that pulls from both at once over one link.
 * test_model.py runs it, and the broken variants, which are macros here.
 *
 * Time goes in ticks, PERIOD of them from one publication to the next. A tick of the link carries one piece; pulls
 * that have something to fetch take turns. A publisher reopens its oldest slot at each publication, whoever reads
 * there, and has encoded some ticks later. All bytes of a slot are new as soon as it is reopened, so that a pull
 * which comes later finds nothing of what it wants. Each pull begins to look at a time of its own. Chunks have no
 * checksum here: the second look at the slot's sequence word alone keeps mixtures out.
 */
#define PEERS 2
#define SLOTS 5
#define PERIOD 3
/* With the look at the word, both keys together take what a version lives at least: SLOTS - 2 periods. */
#define DELTA_PIECES 1
#ifdef LONGER_KEY
#define KEY_PIECES 8
#else
#define KEY_PIECES 4
#endif
#define LIFE ((SLOTS - 2) * PERIOD)

/* Who comes too late for one key must find the next one young: two keys' time and a period lie between keys. */
#ifdef CLOSE_KEYS
#define KEY_EVERY 3
#else
#define KEY_EVERY (2 * (SLOTS - 2) + 1)
#endif
/* What may pass without a version taken over: a key too late, and all of the next one. */
#define PATIENCE (2 * (2 * (SLOTS - 2) + 1) * PERIOD)
#define TICKS (PATIENCE + PATIENCE / 2 + 2 * PERIOD)

#define AT(peer, slot) ((peer) * SLOTS + (slot))
#define IS_KEY(version) ((version) % KEY_EVERY == 1)

/* The windows: what a slot holds, and whether the header says so. */
byte holds[PEERS * SLOTS];
bool readable[PEERS * SLOTS];

/* The publishers. */
byte newest[PEERS];  /* begun */
byte until[PEERS];   /* the next begins, ticks */
byte encoded[PEERS]; /* the newest is, ticks; 0 = it is */

/* The reader's pulls, one of each peer. */
byte begins[PEERS];  /* it looks, ticks */
byte held[PEERS], wanted[PEERS], from[PEERS], pieces[PEERS], size[PEERS];
byte behind[PEERS];  /* newer versions that could be read when it began */
byte elapsed[PEERS]; /* ticks since it began */
byte idle[PEERS];    /* ticks since a version was taken over, or the first look */
bool whole[PEERS];   /* all pieces are of the version that is wanted */

byte turn, tick;

inline publish(peer)
{
    if
    :: until[peer] == 0 ->
        newest[peer]++;
        holds[AT(peer, newest[peer] % SLOTS)] = newest[peer];
        readable[AT(peer, newest[peer] % SLOTS)] = false;
        until[peer] = PERIOD - 1;
        if
        :: encoded[peer] = 1
        :: encoded[peer] = PERIOD - 1
        fi
    :: else ->
        until[peer]--;
        if
        :: encoded[peer] > 0 ->
            encoded[peer]--;
            readable[AT(peer, newest[peer] % SLOTS)] = encoded[peer] == 0
        :: else
        fi
    fi
}

/* cod_slot_offer(): the newest key, else the delta against what is held. The pull begins in the same tick. */
inline look(peer)
{
    wanted[peer] = 0;
    for (k : 0 .. SLOTS - 1) {
        if
        :: readable[AT(peer, k)] && holds[AT(peer, k)] > held[peer] && IS_KEY(holds[AT(peer, k)]) && holds[AT(peer, k)] > key ->
            key = holds[AT(peer, k)]
        :: readable[AT(peer, k)] && holds[AT(peer, k)] == held[peer] + 1 && held[peer] > 0 -> delta = held[peer] + 1
        :: else
        fi
    }
    wanted[peer] = (key > 0 -> key : delta);
    from[peer] = wanted[peer] % SLOTS;
    size[peer] = (IS_KEY(wanted[peer]) -> KEY_PIECES : DELTA_PIECES);
    behind[peer] = 0;
    for (k : 0 .. SLOTS - 1) {
        if
        :: readable[AT(peer, k)] && holds[AT(peer, k)] > wanted[peer] -> behind[peer]++
        :: else
        fi
    }
    whole[peer] = pieces[peer] == 0;
    elapsed[peer] = 0;
    key = 0; delta = 0; k = 0
}

/* Until the next look the ranks agree how it went, which may take a tick. */
inline end_pull(peer)
{
    if
    :: begins[peer] = 0
    :: begins[peer] = 1
    fi;
    wanted[peer] = 0; from[peer] = 0; size[peer] = 0; behind[peer] = 0; elapsed[peer] = 0; whole[peer] = false
}

inline lose(peer)
{
    assert(elapsed[peer] + PERIOD * behind[peer] > LIFE); /* it was slow, or late */
#ifndef GOES_ON_AFTER_A_LOSS
    pieces[peer] = 0;
#endif
    end_pull(peer)
}

inline fetch(peer)
{
    pieces[peer]++;
    whole[peer] = whole[peer] && holds[AT(peer, from[peer])] == wanted[peer]
}

/* The second look, at the slot's sequence word, a tick after the last piece. */
inline finish(peer)
{
    if
#ifdef NO_SECOND_LOOK_AT_STREAMS
    :: false -> skip
#else
    :: holds[AT(peer, from[peer])] != wanted[peer] -> lose(peer)
#endif
    :: else ->
        assert(whole[peer]); /* of one version, to the last piece */
#ifdef STREAMS
        /* Not a variant that is broken: it shows that keys which take longer are taken over. */
        assert(elapsed[peer] <= 2 * PERIOD);
#endif
        held[peer] = wanted[peer];
        idle[peer] = 0;
        pieces[peer] = 0;
        end_pull(peer)
    fi
}

inline pull(peer)
{
    if
    :: begins[peer] > 0 -> begins[peer]--; idle[peer] = idle[peer] + (idle[peer] > 0)
    :: else ->
        idle[peer]++;
        assert(idle[peer] <= PATIENCE); /* it goes on, whatever it lost */
        if
        :: wanted[peer] == 0 -> look(peer)
        :: else ->
            elapsed[peer]++;
            if
            :: pieces[peer] == size[peer] -> finish(peer)
#ifdef TIMES_THE_WHOLE_PULL
            :: pieces[peer] < size[peer] && elapsed[peer] > PERIOD -> lose(peer)
            :: pieces[peer] < size[peer] && elapsed[peer] <= PERIOD
#else
            :: pieces[peer] < size[peer]
#endif
            fi
        fi
    fi
}

/* One piece a tick, to the pulls in turn; one alone has all of the link. */
inline carry()
{
    if
    :: wanted[turn] > 0 && pieces[turn] < size[turn] -> fetch(turn); turn = 1 - turn
    :: else ->
        if
        :: wanted[1 - turn] > 0 && pieces[1 - turn] < size[1 - turn] -> fetch(1 - turn)
        :: else
        fi
    fi
}

active proctype exchange()
{
    byte k, key, delta;
    atomic {
        select(k : 0 .. PERIOD - 1);
        until[1] = k;
        select(k : 0 .. KEY_EVERY * PERIOD - 1);
        begins[0] = k;
        select(k : 0 .. KEY_EVERY * PERIOD - 1);
        begins[1] = k;
        k = 0
    }
    do
    :: tick < TICKS ->
        atomic { publish(0); publish(1) }
        atomic {
            pull(0);
            pull(1);
            carry();
            tick++
        }
    :: else -> break
    od
}

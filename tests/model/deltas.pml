/*
 * A model of keys and deltas (src/exchange/exchange.c, slot.c's cod_slot_offer()) for spin; docs/exchange-protocol.md says what they are.
 * test_model.py runs it, and the broken variants, which are macros here.
 *
 * A version is read whole or is lost: that is slot.pml's business. The publisher may give a publication up, and may once be
 * killed and go on from an earlier state; the versions that it then makes have numbers that were there before, and other weights.
 * The reader, of another job, lives on. Weights are a number of their own in each publication that was made.
 */
#define SLOTS 3
#define KEY_EVERY 3
#define VERSIONS 7
#define LIVES 2

/* What the window holds. A delta's checksum is seeded with the weights that it is against. */
typedef entry { byte version, reference, weights, against }
entry window[SLOTS];

/* The publisher: the last complete publication, and publications since the last key. */
byte v = 1, reference, reference_weights, since_key, life;
bool ended;

/* What the publisher's checkpoint holds. */
entry saved_window[SLOTS];
byte saved_v = 1, saved_reference, saved_reference_weights, saved_since_key;

inline save()
{
    for (i : 0 .. SLOTS - 1) {
        saved_window[i].version = window[i].version; saved_window[i].reference = window[i].reference;
        saved_window[i].weights = window[i].weights; saved_window[i].against = window[i].against
    }
    saved_v = v; saved_reference = reference; saved_reference_weights = reference_weights; saved_since_key = since_key
}

inline restore()
{
    for (i : 0 .. SLOTS - 1) {
        window[i].version = saved_window[i].version; window[i].reference = saved_window[i].reference;
        window[i].weights = saved_window[i].weights; window[i].against = saved_window[i].against
    }
    v = saved_v; reference = saved_reference; reference_weights = saved_reference_weights; since_key = saved_since_key
}

inline publish()
{
    slot = 0;
    for (i : 1 .. SLOTS - 1) {
        if
        :: window[i].version < window[slot].version -> slot = i
        :: else
        fi
    }
    window[slot].version = v;
    window[slot].weights = v + VERSIONS * life;
    if
    :: reference > 0 && since_key + 1 < KEY_EVERY ->
        window[slot].reference = reference; window[slot].against = reference_weights; since_key++
    :: else -> window[slot].reference = 0; window[slot].against = 0; since_key = 0
    fi;
    reference = v; reference_weights = window[slot].weights; slot = 0
}

active proctype publisher()
{
    byte i, slot;
    bool may_save = true;
    do
    :: atomic { v <= VERSIONS -> publish(); v++; i = 0 }
    :: atomic { v <= VERSIONS -> v++ } /* not finite: given up */
    :: atomic { may_save && v <= VERSIONS -> save(); may_save = false; i = 0 }
    :: atomic { life + 1 < LIVES -> restore(); life++; may_save = false; i = 0 } /* killed */
    :: v > VERSIONS -> break
    od;
    ended = true
}

/* cod_slot_offer(): the newest key, else the delta against what is held; 0 = nothing. */
inline look()
{
    key = 0; delta = 0;
    for (k : 0 .. SLOTS - 1) {
        if
        :: window[k].version <= held || window[k].version <= refused -> skip
        :: else ->
            if
            :: window[k].reference == 0 && window[k].version > key -> key = window[k].version
#ifdef ANY_DELTA
            :: window[k].reference > 0 && window[k].version > delta -> delta = window[k].version
#else
            :: window[k].reference > 0 && window[k].reference == held -> delta = window[k].version
#endif
            :: else
            fi
        fi
    }
#ifdef ANY_DELTA
    wanted = (delta > key -> delta : key);
#else
    wanted = (key > 0 -> key : delta);
#endif
    key = 0; delta = 0; k = 0
}

/* Takes over, or refuses, what lies there now as the version that is wanted; it may be gone. */
inline take()
{
    for (k : 0 .. SLOTS - 1) {
        if
        :: window[k].version == wanted && window[k].reference == 0 -> held_weights = window[k].weights; held = wanted
#ifdef NO_REFERENCE_IN_CHECKSUM
        :: window[k].version == wanted && window[k].reference > 0 ->
#else
        :: window[k].version == wanted && window[k].reference > 0 && window[k].against != held_weights -> refused = wanted
        :: window[k].version == wanted && window[k].reference > 0 && window[k].against == held_weights ->
#endif
            assert(window[k].against == held_weights); /* a delta only ever meets its reference */
            held_weights = window[k].weights; held = wanted
        :: else
        fi
    }
    k = 0
}

active proctype reader()
{
    byte held, held_weights, refused, wanted, key, delta, k;
    bool last;
    do
    :: atomic { last = ended; look() };
        if
        :: wanted > 0 -> atomic { take(); wanted = 0 }
        :: wanted == 0 && !last -> skip
        :: wanted == 0 && last -> break
        fi
    od;
    /* Whatever it lost, it has gone on from the newest key; after a publisher's return to an earlier state from the next one. */
    atomic {
        for (k : 0 .. SLOTS - 1) {
            assert(window[k].reference > 0 || window[k].version <= held || (life > 0 && window[k].version <= refused))
        }
    }
}

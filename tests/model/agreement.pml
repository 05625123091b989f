/*
 * A model of what the ranks of a group agree on (src/exchange/agreement.c, puller.c; docs/exchange-protocol.md) for spin: two ranks,
 * two pulls at a time, and sums that act two steps after they were said. test_model.py runs it, and the broken variants, which are macros here.
 *
 * Every step all ranks act on the sums of two steps ago, then each moves its part of every pull, or loses it, whenever it likes, and says how
 * it stands. What a version holds is not looked at; `done` and `lost` are of the present phase alone, as in the program.
 */
#define RANKS 2
#define PULLS 2
#define DELAY 2
#define STEPS 8
#define VERSIONS 2

#define IDLE 0
#define PULLING 1
#define GATHERING 2

#define OF(pull, rank) (pull * RANKS + rank)
#define SAID(when, pull) (when * PULLS + pull)

/* The same on all ranks, who act alike: of each pull. */
byte phase[PULLS], since[PULLS], version[PULLS], held[PULLS];
byte last[PULLS]; /* of the versions that were proposed together */

/* Each rank's own. */
bool done[PULLS * RANKS], lost[PULLS * RANKS];

/* The first rank's: what it proposes, 0 = nothing; and the newest that it has seen of the pull's peer. */
byte proposed[PULLS], proposed_last[PULLS], newest[PULLS];

/* What was said in the last two steps, summed over the ranks. */
byte said_done[DELAY * PULLS], said_lost[DELAY * PULLS], said_version[DELAY * PULLS], said_last[DELAY * PULLS];

byte step;

#ifdef FLAGS_OF_ANOTHER_PULL
#define HEARD(pull) 0
#else
#define HEARD(pull) pull
#endif

#ifdef NO_PHASE_CHECK
#define IS_CURRENT(pull) true
#else
#define IS_CURRENT(pull) (step >= DELAY + since[pull])
#endif

#ifdef DISTURBS_A_GATHER
#define IS_SETTLED(pull, at) true
#else
#define IS_SETTLED(pull, at) (phase[pull] == PULLING || said_done[at] + said_lost[at] == RANKS)
#endif

inline begin_phase(pull, next)
{
    phase[pull] = next;
    since[pull] = step;
    done[OF(pull, 0)] = false;
    done[OF(pull, 1)] = false
}

inline begin_version(pull, next)
{
    version[pull] = next;
    begin_phase(pull, PULLING);
    lost[OF(pull, 0)] = false;
    lost[OF(pull, 1)] = false
}

inline act(pull)
{
    at = SAID((step % DELAY), HEARD(pull));
    if
    :: phase[pull] == IDLE ->
        if
        :: said_version[at] > 0 ->
            proposed[pull] = 0;
            if
            :: said_version[at] > held[pull] ->
                last[pull] = said_last[at];
                begin_version(pull, said_version[at])
            :: else
            fi
        :: else
        fi
    :: phase[pull] != IDLE && IS_CURRENT(pull) ->
        if
        :: said_lost[at] > 0 && IS_SETTLED(pull, at) ->
            /* Who shares with others may not leave them. */
            assert(phase[pull] != GATHERING || ((done[OF(pull, 0)] || lost[OF(pull, 0)]) && (done[OF(pull, 1)] || lost[OF(pull, 1)])));
            phase[pull] = IDLE
        :: said_lost[at] == 0 && said_done[at] == RANKS ->
            /* All of it is here, on all ranks, and of this very version. */
            assert(done[OF(pull, 0)] && done[OF(pull, 1)] && !lost[OF(pull, 0)] && !lost[OF(pull, 1)]);
            if
            :: phase[pull] == PULLING -> begin_phase(pull, GATHERING)
            :: else ->
                assert(version[pull] > held[pull]);
                held[pull] = version[pull];
#ifdef IS_REACHED
                assert(false); /* not a variant that is broken: it shows that versions are taken over at all */
#endif
                if
                :: version[pull] < last[pull] ->
#ifdef FOLLOWING_IS_REACHED
                    assert(false); /* nor this one: deltas are taken one after the other */
#endif
#ifdef NEXT_HEARS_THE_LAST
                    since[pull] = step - DELAY;
                    version[pull] = version[pull] + 1;
                    phase[pull] = PULLING;
                    done[OF(pull, 0)] = false;
                    done[OF(pull, 1)] = false
#else
                    begin_version(pull, version[pull] + 1)
#endif
                :: else -> phase[pull] = IDLE
                fi
            fi
        :: else
        fi
    :: else
    fi
}

/* A rank's part of a pull comes, is lost, or takes longer. What is gathered cannot be lost by one rank before it has come. */
inline move_part(pull, rank)
{
    if
    :: phase[pull] != IDLE && !done[OF(pull, rank)] && !lost[OF(pull, rank)] ->
        if
        :: done[OF(pull, rank)] = true
        :: lost[OF(pull, rank)] = true
        :: skip
        fi
    :: else
    fi
}

inline look(pull)
{
    if
    :: newest[pull] < VERSIONS -> newest[pull] = newest[pull] + 1
    :: newest[pull] == 0 -> newest[pull] = VERSIONS /* the first look is late */
    :: skip
    fi;
    if
    :: phase[pull] == IDLE && proposed[pull] == 0 && newest[pull] > held[pull] ->
        proposed_last[pull] = newest[pull];
        if
        :: proposed[pull] = newest[pull]   /* a key */
        :: proposed[pull] = held[pull] + 1 /* a delta, and those behind it */
        fi
    :: else
    fi
}

inline say(pull)
{
    at = SAID((step % DELAY), pull);
    said_done[at] = done[OF(pull, 0)] + done[OF(pull, 1)];
    said_lost[at] = lost[OF(pull, 0)] + lost[OF(pull, 1)];
    said_version[at] = proposed[pull];
    said_last[at] = proposed_last[pull]
}

active proctype group()
{
    byte at;
    do
    :: step < STEPS ->
        d_step {
            act(0);
            act(1)
        }
        atomic {
            move_part(0, 0);
            move_part(0, 1);
            move_part(1, 0);
            move_part(1, 1);
            look(0);
            look(1)
        }
        d_step {
            say(0);
            say(1);
            at = 0;
            step = step + 1
        }
    :: else -> break
    od
}

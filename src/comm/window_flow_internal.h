/**
 * @file
 * Flow control of long gets: how many bytes of other ranks' windows to request ahead, computed from measurements,
 * without MPI or a clock.
 *
 * As in BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016), the rate and the round trip of a link
 * are measured; their product is the number of bytes that the link holds. Requesting twice that number lets an estimate
 * that is too low double with each round trip. The bytes that the link moves in 20 ms are added, because each side
 * looks only once a millisecond, and less often on a busy machine. The rule applies to each rank that is read, and to
 * all ranks together, which mostly share one link. Bytes requested from a rank that has not answered for a second do
 * not count toward the sum over all ranks.
 */
#ifndef COD_COMM_WINDOW_FLOW_INTERNAL_H
#define COD_COMM_WINDOW_FLOW_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WINDOW_FLOW_LEAST =
        16 * 1024, /**< also while nothing is measured; for sixteen ranks this takes 0.2 s at 10 Mbit/s */
    WINDOW_FLOW_MOST = 64 * 1024 * 1024,
    WINDOW_FLOW_PIECE_MOST = 1024 * 1024,
    WINDOW_FLOW_PIECES = WINDOW_FLOW_MOST / WINDOW_FLOW_PIECE_MOST + 1 /**< the first is short */
};

/** Measurements of the link from one rank, or from all ranks together. All zero at first. */
typedef struct window_flow {
    double rate,
        round_trip_s; /**< bytes a second, seconds; the longest recent round trip of all ranks. 0 = not measured */
    size_t in_flight; /**< bytes requested and not yet received */
    uint64_t arrived; /**< bytes received */
    double heard_s;   /**< time at which the last piece arrived, or the first piece in flight was requested */
    bool silent;      /**< that time is long ago: bytes in flight do not count for all ranks together */
} window_flow;

/** One get of MPI. */
typedef struct window_piece {
    size_t bytes; /**< 0 = none */
    double asked_s;
    bool alone;                    /**< nothing else was in flight when this piece was requested */
    uint64_t arrived, all_arrived; /**< bytes received then from this rank, and from all */
    bool full, all_full;           /**< with this piece the limit of bytes in flight was reached */
} window_piece;

/** Bytes that may be in flight. */
size_t window_flow_limit(const window_flow *flow);
/** Length of the next piece of a flow of which `left` bytes remain; 0 = the limit of bytes in flight is reached. */
size_t window_flow_next(const window_flow *flow, const window_flow *all, size_t left);
/** Checks whether a rank has stopped answering. */
void window_flow_look(window_flow *flow, window_flow *all, double now_s);
/** Notes that a piece was requested. */
void window_flow_asked(window_flow *flow, window_flow *all, window_piece *piece, size_t bytes, double now_s);
/** Notes that the piece has arrived, and clears it. */
void window_flow_arrived(window_flow *flow, window_flow *all, window_piece *piece, double now_s);

#endif

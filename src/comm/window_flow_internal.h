/**
 * @file
 * How many bytes of other ranks' windows to have asked for and not yet received: a rule by what is measured, without MPI and clock.
 *
 * As in BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016) a link's rate and its round trip are measured, and their
 * product is what the link itself holds. Twice that lets a rate that is not known yet double with each round trip. What the link takes 20 ms
 * for comes on top, since either side looks once a millisecond, and later on a busy machine. The rule holds for each rank that is read, and
 * for all together, which mostly share one link; what a rank that has not answered for a second was asked for counts as its own alone.
 */
#ifndef COD_COMM_WINDOW_FLOW_INTERNAL_H
#define COD_COMM_WINDOW_FLOW_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WINDOW_FLOW_LEAST = 16 * 1024, /**< also while nothing is known; sixteen ranks' take 10 Mbit/s 0.2 s */
    WINDOW_FLOW_MOST = 64 * 1024 * 1024,
    WINDOW_FLOW_PIECE_MOST = 1024 * 1024,
    WINDOW_FLOW_PIECES = WINDOW_FLOW_MOST / WINDOW_FLOW_PIECE_MOST + 1 /**< the first is a short one */
};

/** What is known of the way from one rank, or from all. All zero at first. */
typedef struct window_flow {
    double rate, round_trip_s; /**< bytes a second; of all: the longest of late. 0 = not measured yet */
    size_t in_flight;          /**< bytes asked for that have not come */
    uint64_t arrived;          /**< bytes that have come */
    double heard_s;            /**< when a piece came last, or the first of those in flight was asked for */
    bool silent;               /**< that is long ago: what is in flight is not among all's */
} window_flow;

/** One get of MPI's. */
typedef struct window_piece {
    size_t bytes; /**< 0 = none */
    double asked_s;
    bool alone;                    /**< nothing else was in flight when this was asked for */
    uint64_t arrived, all_arrived; /**< of the flow, and of all, then */
    bool full, all_full;           /**< with it as much as may be was in flight */
} window_piece;

/** Bytes that may be in flight. */
size_t window_flow_limit(const window_flow *flow);
/** How long the next piece of a flow is to be, where `left` bytes are wanted; 0 = as much as may be is in flight. */
size_t window_flow_next(const window_flow *flow, const window_flow *all, size_t left);
/** Looks whether a rank has fallen silent. */
void window_flow_look(window_flow *flow, window_flow *all, double now_s);
/** A piece was asked for. */
void window_flow_asked(window_flow *flow, window_flow *all, window_piece *piece, size_t bytes, double now_s);
/** It has come, and is none any more. */
void window_flow_arrived(window_flow *flow, window_flow *all, window_piece *piece, double now_s);

#endif

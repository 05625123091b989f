/**
 * @file
 * Links of a model: what moves between nodes shares each node's link, both ways apart, in equal parts.
 */
#ifndef COD_TOOLS_BENCH_SCALE_LINKS_H
#define COD_TOOLS_BENCH_SCALE_LINKS_H

#include "core/status.h"

#include <stddef.h>

typedef struct cod_scale_links cod_scale_links;

/**
 * Makes the links of `nodes` nodes, for at most `flows` flows at a time.
 *
 * @param bytes_per_s  of a node's link, each way
 * @param window_s     length of the windows of cod_scale_links_peak()
 */
COD_MUST_CHECK cod_status cod_scale_links_create(int nodes, size_t flows, double bytes_per_s, double window_s,
                                                 cod_scale_links **out);
void cod_scale_links_destroy(cod_scale_links *links);

/**
 * Starts a flow. Its rate is the least of `most_per_s` and of its parts of both links: bytes_per_s over the flows that
 * share each. A part that a flow cannot use is not given to others.
 *
 * @param flow  0 … flows - 1; not under way
 */
void cod_scale_links_start(cod_scale_links *links, size_t flow, int from, int to, double bytes, double most_per_s,
                           double now_s);
/** Ends a flow before it is done; nothing where it is not under way. */
void cod_scale_links_stop(cod_scale_links *links, size_t flow, double now_s);

/** The flow that is done first, and when; INFINITY = none is under way. */
double cod_scale_links_next(const cod_scale_links *links, size_t *flow);
/** Ends the flow that is done first, at its time. */
void cod_scale_links_end_next(cod_scale_links *links);

/** Bytes that have come to all nodes; what a flow brings counts when another begins or ends on one of its links. */
double cod_scale_links_bytes(const cod_scale_links *links);
/** The most bytes a second that came to one node in one window. */
double cod_scale_links_peak(const cod_scale_links *links);

/** Counts bytes that came at once, where links have no limit. */
void cod_scale_links_note(cod_scale_links *links, int to, double bytes, double now_s);

#endif

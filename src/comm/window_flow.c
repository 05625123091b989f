#include "comm/window_flow_internal.h"

/** A second look takes at least that long: what comes sooner tells no rate. */
#define LEAST_S 1e-6
/** Queued beyond what the link holds. */
#define QUEUED_S 0.02
/** A rank that answers does so within that, or within some round trips. */
#define SILENT_S 1.0

static size_t between(size_t least, double value, size_t most)
{
    return value < (double)least ? least : value > (double)most ? most : (size_t)value;
}

size_t window_flow_limit(const window_flow *flow)
{
    return between(WINDOW_FLOW_LEAST, flow->rate * (2 * flow->round_trip_s + QUEUED_S), WINDOW_FLOW_MOST);
}

static bool has_room(const window_flow *flow, size_t piece)
{
    return flow->in_flight + piece <= window_flow_limit(flow);
}

static size_t piece_of(const window_flow *flow, const window_flow *all)
{
    const size_t own = window_flow_limit(flow), limit = window_flow_limit(all);
    return between(WINDOW_FLOW_LEAST, (double)(own < limit ? own : limit) / 4, WINDOW_FLOW_PIECE_MOST);
}

size_t window_flow_next(const window_flow *flow, const window_flow *all, size_t left)
{
    /*
     * The first piece of an idle flow is short, so that its time measures the round trip and hardly depends on its
     * length.
     */
    const size_t piece = flow->in_flight == 0 ? WINDOW_FLOW_LEAST : piece_of(flow, all);
    if (flow->in_flight > 0 && !(has_room(flow, piece) && has_room(all, piece)))
        return 0;
    return left < piece ? left : piece;
}

void window_flow_asked(window_flow *flow, window_flow *all, window_piece *piece, size_t bytes, double now_s)
{
    *piece = (window_piece){.bytes = bytes,
                            .asked_s = now_s,
                            .alone = all->in_flight == 0,
                            .arrived = flow->arrived,
                            .all_arrived = all->arrived};
    if (flow->in_flight == 0)
        flow->heard_s = now_s;
    flow->in_flight += bytes;
    all->in_flight += flow->silent ? 0 : bytes;
    piece->full = !has_room(flow, piece_of(flow, all));
    piece->all_full = !has_room(all, piece_of(flow, all));
}

void window_flow_look(window_flow *flow, window_flow *all, double now_s)
{
    if (flow->silent || flow->in_flight == 0 || now_s - flow->heard_s < SILENT_S + 4 * flow->round_trip_s)
        return;
    flow->silent = true;
    all->in_flight -= flow->in_flight;
}

/**
 * Since a piece was asked for, `bytes` have come. One that left room for more may have found the link idle, and tells
 * nothing against the rate.
 */
static void note_rate(window_flow *flow, uint64_t bytes, double took_s, bool full)
{
    const double rate = (double)bytes / took_s;
    if (flow->rate <= 0)
        flow->rate = rate;
    else if (rate > flow->rate || full)
        flow->rate += (rate - flow->rate) / 2;
}

static void note_round_trip(window_flow *flow, window_flow *all, double took_s, bool alone)
{
    if (flow->round_trip_s <= 0 || took_s < flow->round_trip_s) {
        flow->round_trip_s = took_s;
    } else if (alone) {
        /*
         * Others wait behind each other; this one tells that the way is longer now. The bytes in flight stay what they
         * were.
         */
        flow->rate *= flow->round_trip_s / took_s;
        flow->round_trip_s = took_s;
    }
    enum { REMEMBERED = 64 }; /* pieces */
    const double more_s = flow->round_trip_s - all->round_trip_s;
    all->round_trip_s += more_s > 0 ? more_s : more_s / REMEMBERED;
}

void window_flow_arrived(window_flow *flow, window_flow *all, window_piece *piece, double now_s)
{
    const double took_s = now_s - piece->asked_s > LEAST_S ? now_s - piece->asked_s : LEAST_S;
    if (flow->silent)
        all->in_flight += flow->in_flight;
    flow->silent = false;
    flow->heard_s = now_s;
    flow->arrived += piece->bytes;
    flow->in_flight -= piece->bytes;
    all->arrived += piece->bytes;
    all->in_flight -= piece->bytes;
    note_round_trip(flow, all, took_s, piece->alone);
    note_rate(flow, flow->arrived - piece->arrived, took_s, piece->full);
    note_rate(all, all->arrived - piece->all_arrived, took_s, piece->all_full);
    piece->bytes = 0;
}

/* How a group pulls: the phases of exchange_pull.c, exchange_agreement.c and rma.c. */
#include "tools/bench/scale_model_internal.h"

#include "distill/merge.h"

#include <math.h>

/* As src/distill has them. */
enum { LOOKS = 4, STUCK_LOOKS = 8 };
/** Of a get of one rank, asked for ahead: src/comm/window_long.c. */
static const double in_flight_bytes = 16 * 256 * 1024;

static size_t flow_of(const model *m, const group *g, const pull *p)
{
    return (size_t)((g - m->groups) * COD_EXCHANGE_PULLS_MOST + (p - g->pulls));
}

/** The slot of the delta that is against `reference`; -1 = there is none. */
static int find_delta(const cod_slot_header *header, uint64_t reference)
{
    for (uint32_t i = 0; i < header->layout.slots; i++)
        if (header->entries[i].version != 0 && header->entries[i].reference == reference)
            return (int)i;
    return -1;
}

static void ask(const model *m, const pull *p, peer *of, double now)
{
    of->asked = true;
    of->asked_before = p->begun;
    of->answer_s = now + 2 * m->setting->latency_s;
    of->answer = m->groups[of->group].first.header;
}

/** The last of the deltas that follow each other from `first` on, of so many at most. */
static uint64_t chain_end(const cod_slot_header *header, uint64_t first, uint64_t at_most, int64_t most)
{
    uint64_t last = first;
    for (int64_t n = 1; n < most; n++) {
        const int slot = find_delta(header, last);
        if (slot < 0 || header->entries[slot].version > at_most)
            break;
        last = header->entries[slot].version;
    }
    return last;
}

static void look_at(const model *m, const group *g, pull *p, peer *of, bool asking, double now)
{
    const bool merges = m->options->merge == COD_MERGE_DELAY_CORRECTED;
    if (!of->asked && asking) {
        ask(m, p, of, now);
    } else if (of->asked && now >= of->answer_s && of->asked_before != p->begun) {
        ask(m, p, of, now); /* the answer is old */
    } else if (of->asked && now >= of->answer_s) {
        const uint64_t at_most = merges ? g->newest_own + 1 : UINT64_MAX,
                       version = cod_slot_offer(&of->answer, of->held, 0, at_most);
        of->asked = false;
        if (version <= of->held)
            return;
        p->proposed = (int)(of - g->peers);
        p->proposed_version = version;
        p->proposed_last = chain_end(&of->answer, version, at_most, m->setting->deltas);
    }
}

static void look_for_news(const model *m, group *g, pull *p, int64_t done, double now)
{
    const int place = (int)(p - g->pulls);
    const int64_t each = m->options->period / LOOKS;
    const bool asking = p->look || each <= 1 || done % each == 0;
    p->look = false;
    for (int k = 0; k < g->peer_count && p->proposed == NO_PEER; k += m->pull_count) {
        look_at(m, g, p, &g->peers[p->turn], asking, now);
        p->turn += m->pull_count;
        if (p->turn >= g->peer_count)
            p->turn = place;
    }
}

static void ask_header(const model *m, pull *p, double now)
{
    p->transfer = HEADER;
    p->ready_s = now + 2 * m->setting->latency_s;
}

static void start_pull(const model *m, pull *p, peer *of, const told *heard, int64_t step, double now)
{
    p->phase = PULLING;
    p->begun++;
    p->since = step;
    p->peer = of;
    p->version = heard->version;
    p->last = heard->last;
    p->complete = 0;
    p->passed = 0;
    p->done = p->lost = false;
    p->chunks_left = 0;
    p->polled_s = now;
    p->idle_s = 0;
    ask_header(m, p, now);
}

static void start_bytes(model *m, const group *g, pull *p, const cod_slot_entry *entry, double now)
{
    const cod_scale_setting *s = m->setting;
    const double bytes = (double)(entry->bytes * (uint64_t)s->ranks);
    const int reader = (int)(g - m->groups);
    p->sequence = entry->sequence;
    p->transfer = DATA;
    p->ready_s = now + 2 * s->latency_s;
    p->moving = isfinite(s->link_bytes_s);
    if (p->moving)
        cod_scale_links_start(m->links, flow_of(m, g, p), p->peer->group, reader, bytes,
                              s->ranks * in_flight_bytes / (2 * s->latency_s), now);
    else
        cod_scale_links_note(m->links, reader, bytes, now);
}

/** The bytes of p->version are here, and were not overwritten. */
static void complete(const model *m, pull *p)
{
    p->passed += p->complete > 0;
    p->complete = p->version;
    p->chunks_left += m->shard_chunks;
}

/** A chain ends before a version that is no longer there. */
static void end_chain(pull *p)
{
    p->lost = p->complete == 0;
    p->transfer = HERE;
}

void scale_pull_follow(model *m, const group *g, pull *p, double now)
{
    const cod_slot_header *header = &m->groups[p->peer->group].last.header;
    while (p->transfer == DATA && !p->moving && p->version < p->last) {
        const int slot = cod_slot_find(header, p->version), next = find_delta(header, p->version);
        const bool whole = slot >= 0 && header->entries[slot].sequence == p->sequence;
        if (whole)
            complete(m, p);
        if (!whole || next < 0) {
            end_chain(p);
            return;
        }
        p->version = header->entries[next].version;
        start_bytes(m, g, p, &header->entries[next], now);
    }
}

/** As far as it goes at once. */
static void move_bytes(model *m, const group *g, pull *p, double now)
{
    const cod_slot_header *header = &m->groups[p->peer->group].last.header;
    while (p->transfer != HERE && !p->lost && !p->moving && now >= p->ready_s) {
        const int slot = cod_slot_find(header, p->version);
        if (p->transfer == SEQUENCE) {
            if (slot >= 0 && header->entries[slot].sequence == p->sequence)
                complete(m, p);
            end_chain(p);
        } else if (p->transfer == DATA) {
            p->transfer = SEQUENCE;
            p->ready_s = now + 2 * m->setting->latency_s;
        } else if (slot >= 0) {
            p->idle_s = 0;
            start_bytes(m, g, p, &header->entries[slot], now);
            scale_pull_follow(m, g, p, now);
        } else if (cod_slot_newest(header) > p->version) {
            p->lost = true;
        } else { /* not there yet: asked for again */
            ask_header(m, p, now);
            return;
        }
    }
}

static void note_wait(const model *m, pull *p, double now)
{
    const double passed = now - p->polled_s, most = m->options->pull_timeout_s / STUCK_LOOKS;
    p->idle_s = p->moving || p->transfer == HERE ? 0 : p->idle_s + fmin(passed, most);
    p->polled_s = now;
    p->lost = p->lost || (!p->done && p->idle_s > m->options->pull_timeout_s);
}

void scale_pull_move(model *m, group *g, pull *p, int64_t done, double now)
{
    const cod_scale_setting *s = m->setting;
    if (p->phase == IDLE && p->proposed == NO_PEER)
        look_for_news(m, g, p, done, now);
    if (p->phase == GATHERING && done > p->since + 1)
        p->done = true;
    if (p->phase != PULLING || p->done || p->lost)
        return;
    move_bytes(m, g, p, now);
    if (p->complete > 0) {
        const uint64_t chunks = m->decoded_a_step < p->chunks_left ? m->decoded_a_step : p->chunks_left;
        p->chunks_left -= chunks;
        p->done = p->chunks_left == 0 && p->transfer == HERE;
        g->cost_s += s->costs.decode * (double)s->weights * (double)chunks / (double)m->shard_chunks / s->ranks;
    }
    note_wait(m, p, now);
}

/* Agreement. */

/** Beside the own publication of the same version, or of groups further apart the newest; none stands beside two. */
static void note_merge(model *m, const group *g, peer *of)
{
    const uint64_t newest = g->newest_own,
                   own = of->held > newest + 1 || of->held + COD_EXCHANGE_OWN_KEPT <= newest ? newest : of->held;
    const int64_t late = g->step - (int64_t)own * m->options->period;
    if (m->options->merge == COD_MERGE_NONE || own == of->merged_own)
        return;
    of->merged_own = own;
    m->merged++;
    m->strength += cod_merge_alpha(late > 0 ? late / m->options->period : 0);
}

static void take_over(model *m, group *g, pull *p)
{
    const cod_scale_setting *s = m->setting;
    const double weights = (double)s->weights, from_others = m->once ? 0 : weights * (s->ranks - 1) / s->ranks;
    p->peer->held = p->complete;
    m->taken++;
    m->passed += (uint64_t)p->passed;
    m->usable += (int64_t)p->complete + 2 <= s->steps / m->options->period;
    m->shared_bytes += 4 * from_others;
    g->cost_s += s->costs.copy * from_others;
    if (m->options->merge != COD_MERGE_NONE)
        g->cost_s += s->costs.merge * weights;
    note_merge(m, g, p->peer);
    p->phase = IDLE;
    p->look = true;
}

static void give_up(model *m, const group *g, pull *p, double now)
{
    cod_scale_links_stop(m->links, flow_of(m, g, p), now);
    p->moving = false;
    p->phase = IDLE;
    p->look = true;
    m->lost++;
}

void scale_pull_act(model *m, group *g, pull *p, int64_t step, double now)
{
    const told heard = p->told[step % AGREEMENT_DELAY];
    if (p->phase == IDLE) {
        if (heard.proposed == NO_PEER)
            return;
        p->proposed = NO_PEER;
        if (heard.version > g->peers[heard.proposed].held)
            start_pull(m, p, &g->peers[heard.proposed], &heard, step, now);
        return;
    }
    if (step - AGREEMENT_DELAY < p->since)
        return;
    if (heard.lost) {
        give_up(m, g, p, now);
    } else if (heard.done && p->phase == PULLING && m->setting->ranks > 1 && !m->once) {
        p->phase = GATHERING;
        p->since = step;
        p->done = false;
    } else if (heard.done) {
        take_over(m, g, p);
    }
}

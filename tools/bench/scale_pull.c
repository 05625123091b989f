/* How a group pulls: the phases of puller.c, agreement.c and rma.c. */
#include "tools/bench/scale_model_internal.h"

#include "exchange/merge.h"

#include <math.h>

/* As src/exchange has them. */
enum { LOOKS = 4, STUCK_LOOKS = 8 };
/** Of a get of one rank, asked for ahead: src/comm/window_get.c. */
static const double in_flight_bytes = 16 * 256 * 1024;

static size_t flow_of(const model *m, const group *g, const pull *p)
{
    return (size_t)((g - m->groups) * COD_EXCHANGE_PULLS_MOST + (p - g->pulls));
}

static void ask(const model *m, const pull *p, peer *of, double now)
{
    of->asked = true;
    of->asked_before = p->begun;
    of->answer_s = now + 2 * m->setting->latency_s;
    of->answer = m->groups[of->group].first.header;
}

static void look_at(const model *m, const group *g, pull *p, peer *of, bool asking, double now)
{
    const bool merges = m->options->merge == COD_MERGE_DELAY_CORRECTED;
    if (!of->asked && asking) {
        ask(m, p, of, now);
    } else if (of->asked && now >= of->answer_s && of->asked_before != p->begun) {
        ask(m, p, of, now); /* the answer is old */
    } else if (of->asked && now >= of->answer_s) {
        const cod_slot_wanted wanted = {
            .held = of->held, .at_most = merges ? g->newest_own + 1 : UINT64_MAX, .spacing = 1};
        const cod_slot_offered offered = cod_slot_offer(&of->answer, &wanted);
        const uint32_t most = (uint32_t)m->setting->deltas - 1;
        of->asked = false;
        if (offered.version <= of->held)
            return;
        p->proposed = (int)(of - g->peers);
        p->proposed_version = offered.version;
        p->proposed_following = offered.following < most ? offered.following : most;
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

/** @param rest  steps before it is decoded */
static void start_pull(const model *m, pull *p, peer *of, uint64_t version, uint32_t following, int64_t rest,
                       int64_t step, double now)
{
    p->phase = PULLING;
    p->begun++;
    p->since = step;
    p->peer = of;
    p->version = version;
    p->following = following;
    p->decoded_from = step + rest;
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

/** As far as it goes at once. */
static void move_bytes(model *m, const group *g, pull *p, double now)
{
    const cod_slot_header *header = &m->groups[p->peer->group].last.header;
    while (p->transfer != HERE && !p->lost && !p->moving && now >= p->ready_s) {
        const int slot = cod_slot_find(header, p->version);
        if (p->transfer == SEQUENCE) {
            p->lost = slot < 0 || header->entries[slot].sequence != p->sequence;
            p->transfer = HERE;
            p->chunks_left = m->shard_chunks;
        } else if (p->transfer == DATA) {
            p->transfer = SEQUENCE;
            p->ready_s = now + 2 * m->setting->latency_s;
        } else if (slot >= 0) {
            p->idle_s = 0;
            start_bytes(m, g, p, &header->entries[slot], now);
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
    if (p->transfer == HERE && !p->lost && done > p->decoded_from) {
        const uint64_t chunks = m->decoded_a_step < p->chunks_left ? m->decoded_a_step : p->chunks_left;
        p->chunks_left -= chunks;
        p->done = p->chunks_left == 0;
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

static void take_over(model *m, group *g, pull *p, int64_t step, double now)
{
    enum { REST_STEPS = 2 }; /* as src/exchange has them */
    const cod_scale_setting *s = m->setting;
    const double weights = (double)s->weights, from_others = m->once ? 0 : weights * (s->ranks - 1) / s->ranks;
    p->peer->held = p->version;
    m->taken++;
    m->usable += (int64_t)p->version + 2 <= s->steps / m->options->period;
    m->shared_bytes += 4 * from_others;
    g->cost_s += s->costs.copy * from_others;
    if (m->options->merge != COD_MERGE_NONE)
        g->cost_s += s->costs.merge * weights;
    note_merge(m, g, p->peer);
    p->phase = IDLE;
    p->look = true;
    if (p->following == 0)
        return;
    m->followed++;
    start_pull(m, p, p->peer, p->version + 1, p->following - 1, REST_STEPS, step, now);
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
            start_pull(m, p, &g->peers[heard.proposed], heard.version, heard.following, 0, step, now);
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
        take_over(m, g, p, step, now);
    }
}

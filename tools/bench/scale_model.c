/*
 * Steps in the order of time, each as the trainer makes it (src/train/trainer.c): what was told two steps before acts,
 * the step computes, the group publishes, encodes and moves its pulls, and tells. Pulls are in scale_pull.c.
 */
#include "tools/bench/scale_model_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double key_bytes(const model *m)
{
    return 4 * (double)m->setting->weights / m->setting->costs.key_ratio;
}

static double delta_bytes(const model *m)
{
    return 4 * (double)m->setting->weights / m->setting->costs.ratio;
}

/* Publishing. */

static double bytes_of(const model *m, const group *g)
{
    const cod_scale_setting *s = m->setting;
    if (s->published_bytes != NULL)
        return s->published_bytes[(g - m->groups) * (s->steps / m->options->period) + (int64_t)g->version - 1];
    return g->key ? key_bytes(m) : delta_bytes(m);
}

static cod_status close_slot(const model *m, const group *g, cod_slot_writer *writer)
{
    const double bytes = bytes_of(m, g) / m->setting->ranks;
    const cod_slot_entry entry = {
        .version = g->version, .bytes = (uint64_t)ceil(bytes), .reference = g->key ? 0 : g->reference};
    return cod_slot_close(writer, g->slot, &entry);
}

static void end_publication(group *g)
{
    g->encoding = false;
    g->newest_own = g->reference = g->version;
    g->since_key = g->key ? 0 : g->since_key + 1;
}

/** Up to so many chunks more: of all shards, one after another, or of the own one where values are held together. */
static cod_status encode(model *m, group *g, uint64_t chunks)
{
    const cod_scale_setting *s = m->setting;
    const uint64_t all = m->shard_chunks * (m->once ? 1 : (uint64_t)s->ranks), before = g->encoded;
    if (!g->encoding || before == all)
        return COD_OK;
    g->encoded = chunks < all - before ? before + chunks : all;
    const double mirrors = m->once ? 0 : (s->ranks - 1) * s->costs.mirror,
                 cost = (s->costs.encode + mirrors) / s->ranks * (double)s->weights;
    g->cost_s += cost * (double)(g->encoded - before) / (double)all;
    if (before < m->shard_chunks && g->encoded >= m->shard_chunks)
        COD_TRY(close_slot(m, g, &g->first));
    if (g->encoded < all)
        return COD_OK;
    COD_TRY(close_slot(m, g, &g->last));
    g->complete_step = g->step + AGREEMENT_DELAY;
    if (!m->once)
        end_publication(g);
    return COD_OK;
}

/** What is left, before the next. */
static cod_status finish_publication(model *m, group *g)
{
    COD_TRY(encode(m, g, UINT64_MAX));
    if (g->encoding)
        end_publication(g);
    return COD_OK;
}

static cod_status publish(model *m, group *g, int64_t done, double now)
{
    const cod_exchange_options *o = m->options;
    unsigned char *room;
    uint64_t oldest;
    if (done % o->period != 0 || g->peer_count == 0 || !g->interval_passed)
        return COD_OK;
    COD_TRY(finish_publication(m, g));
    g->cost_s += m->setting->costs.copy * (double)m->setting->weights / (m->once ? m->setting->ranks : 1);
    g->version = (uint64_t)(done / o->period);
    g->key = g->reference == 0 || g->since_key + 1 >= (uint64_t)o->key_every || done + o->period > m->setting->steps;
    g->slot = cod_slot_next(&g->first, &oldest);
    g->encoding = true;
    g->encoded = 0;
    g->complete_step = 0;
    g->published_s = now;
    g->published_step = done;
    g->interval_passed = o->min_interval_ms == 0;
    COD_TRY(cod_slot_open(&g->first, g->slot, &room));
    return cod_slot_open(&g->last, g->slot, &room);
}

/* Agreement. */

/** What was told two steps before the one that begins now. */
static void hear(model *m, group *g, double now)
{
    const int64_t step = g->step;
    if (step < AGREEMENT_DELAY)
        return;
    if (g->interval[step % AGREEMENT_DELAY] && step - AGREEMENT_DELAY > g->published_step)
        g->interval_passed = true;
    if (g->encoding && m->once && g->complete_step > 0 && step >= g->complete_step)
        end_publication(g);
    for (int k = 0; k < m->pull_count; k++)
        scale_pull_act(m, g, &g->pulls[k], step, now);
}

static void tell(const model *m, group *g, double now)
{
    const int64_t at = g->step % AGREEMENT_DELAY;
    g->interval[at] = 1e3 * (now - g->published_s) >= m->options->min_interval_ms;
    for (int k = 0; k < m->pull_count; k++) {
        pull *p = &g->pulls[k];
        p->told[at] = (told){p->proposed, p->proposed_version, p->proposed_following, p->done, p->lost};
    }
}

/* Steps. */

static void sample(model *m, const group *g, int64_t done)
{
    for (int k = 0; k < g->peer_count; k++) {
        const int64_t staleness = done - (int64_t)g->peers[k].held * m->options->period;
        if (g->peers[k].held == 0)
            continue;
        m->samples++;
        m->staleness[staleness > 0 ? staleness : 0]++; /* a peer may be ahead */
    }
}

static double computing_s(const model *m, const group *g)
{
    return m->setting->step_s[(g - m->groups) * m->setting->steps + g->step];
}

static cod_status end_step(model *m, group *g)
{
    const double now = m->now_s;
    const int64_t done = g->step + 1;
    g->cost_s = 0;
    COD_TRY(publish(m, g, done, now));
    if (done > g->published_step)
        COD_TRY(encode(m, g, m->encoded_a_step));
    for (int k = 0; k < m->pull_count; k++)
        scale_pull_move(m, g, &g->pulls[k], done, now);
    tell(m, g, now);
    sample(m, g, done);
    g->step++;
    hear(m, g, now);
    m->cost_s += g->cost_s;
    g->ends_s = g->step < m->setting->steps ? g->ends_s + g->cost_s + computing_s(m, g) : INFINITY;
    return COD_OK;
}

static group *first_group(const model *m)
{
    group *first = m->groups;
    for (int i = 1; i < m->setting->groups; i++)
        first = m->groups[i].ends_s < first->ends_s ? &m->groups[i] : first;
    return first;
}

/** How many times longer than on a core of its own a rank computes now. */
static double stretch(const model *m)
{
    const double ranks_a_core = m->setting->cores > 0 ? (double)m->computing / m->setting->cores : 1;
    return ranks_a_core > 1 ? ranks_a_core : 1;
}

/** @param[out] seconds  of all groups' steps */
static cod_status run(model *m, double *seconds)
{
    *seconds = 0;
    for (group *g = first_group(m); isfinite(g->ends_s); g = first_group(m)) {
        const double now = m->now_s + (g->ends_s - m->core_s) * stretch(m);
        size_t flow;
        for (double at = cod_scale_links_next(m->links, &flow); at <= now; at = cod_scale_links_next(m->links, &flow)) {
            pull *p = &m->groups[flow / COD_EXCHANGE_PULLS_MOST].pulls[flow % COD_EXCHANGE_PULLS_MOST];
            p->moving = false;
            p->ready_s = at + 2 * m->setting->latency_s;
            cod_scale_links_end_next(m->links);
        }
        m->now_s = now;
        m->core_s = g->ends_s;
        COD_TRY(end_step(m, g));
        if (isfinite(g->ends_s))
            continue;
        *seconds += now + g->cost_s * stretch(m);
        m->computing -= m->setting->ranks;
    }
    return COD_OK;
}

/* The groups. */

static cod_status no_sync(void *context)
{
    (void)context;
    return COD_OK;
}

static cod_status make_group(model *m, int number, size_t window_bytes, const cod_slot_layout *layout)
{
    const cod_scale_setting *s = m->setting;
    group *g = &m->groups[number];
    const cod_slot_identity identity = {.group = (uint32_t)number};
    unsigned char *window = m->windows + 2 * (size_t)number * window_bytes;
    COD_TRY(cod_slot_writer_init(&g->first, window, &identity, layout, no_sync, NULL));
    COD_TRY(cod_slot_writer_init(&g->last, window + window_bytes, &identity, layout, no_sync, NULL));
    g->peers = calloc((size_t)s->groups, sizeof *g->peers);
    COD_REQUIRE_MEMORY(g->peers);
    for (int i = 1; i < s->groups; i++) {
        const int other = (number + i) % s->groups;
        if (cod_exchange_reads(m->options, s->groups, number, other))
            g->peers[g->peer_count++].group = other;
    }
    for (int k = 0; k < m->pull_count; k++) {
        pull *p = &g->pulls[k];
        *p = (pull){.turn = k, .proposed = NO_PEER};
        for (int i = 0; i < AGREEMENT_DELAY; i++)
            p->told[i].proposed = NO_PEER;
    }
    g->interval_passed = true;
    g->ends_s = computing_s(m, g);
    return COD_OK;
}

static uint64_t rounded_up(uint64_t count, uint64_t unit)
{
    return (count + unit - 1) / unit;
}

static cod_status plan(model *m)
{
    const cod_scale_setting *s = m->setting;
    const uint64_t chunk = (uint64_t)m->options->chunk_values, chunks = s->weights / chunk + 1;
    cod_exchange_model *models = calloc((size_t)s->groups, sizeof *models);
    int *ranks = calloc((size_t)s->groups, sizeof *ranks);
    const cod_status status =
        models != NULL && ranks != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "no memory for %d groups", s->groups);
    for (int g = 0; status == COD_OK && g < s->groups; g++) {
        models[g] = (cod_exchange_model){.count = s->weights};
        ranks[g] = s->ranks;
    }
    if (status == COD_OK)
        m->sizes = cod_exchange_plan(m->options, models, ranks, s->groups, 0, m->once ? s->ranks : 1);
    free(models);
    free(ranks);
    COD_TRY(status);
    m->pull_count = m->sizes.pulls;
    const uint64_t shard = rounded_up(s->weights, (uint64_t)s->ranks);
    m->shard_chunks = rounded_up(shard, chunk);
    m->encoded_a_step = rounded_up(m->once ? shard / chunk + 1 : chunks, (uint64_t)m->sizes.encoding_steps);
    m->decoded_a_step = rounded_up(chunks, (uint64_t)m->sizes.decoding_steps);
    return COD_OK;
}

static cod_status make(model *m)
{
    const cod_scale_setting *s = m->setting;
    enum { SLOT_BYTES = 64 }; /* nothing is written there */
    const cod_slot_layout layout = {.slots = (uint32_t)m->options->slots, .slot_bytes = SLOT_BYTES};
    const size_t window_bytes = (cod_slot_window_bytes(&layout) + SLOT_BYTES - 1) / SLOT_BYTES * SLOT_BYTES;
    m->computing = (int64_t)s->groups * s->ranks;
    const double tenth_s = 0.1 * (double)m->options->period * s->step_s[0] * stretch(m);
    COD_TRY(plan(m));
    m->groups = calloc((size_t)s->groups, sizeof *m->groups);
    m->windows = calloc(2 * (size_t)s->groups, window_bytes);
    m->staleness = calloc((size_t)s->steps + 1, sizeof *m->staleness);
    COD_REQUIRE_MEMORY(m->groups);
    COD_REQUIRE_MEMORY(m->windows);
    COD_REQUIRE_MEMORY(m->staleness);
    COD_TRY(cod_scale_links_create(s->groups, (size_t)s->groups * COD_EXCHANGE_PULLS_MOST, s->link_bytes_s, tenth_s,
                                   &m->links));
    for (int g = 0; g < s->groups; g++)
        COD_TRY(make_group(m, g, window_bytes, &layout));
    return COD_OK;
}

static void clear(model *m)
{
    for (int g = 0; m->groups != NULL && g < m->setting->groups; g++)
        free(m->groups[g].peers);
    free(m->groups);
    free(m->windows);
    free(m->staleness);
    cod_scale_links_destroy(m->links);
}

static void read_staleness(const model *m, cod_scale_result *out)
{
    uint64_t before = 0;
    out->staleness_median = out->staleness_most = NAN;
    for (int64_t s = 0; s <= m->setting->steps; s++) {
        if (2 * before < m->samples && 2 * (before + m->staleness[s]) >= m->samples)
            out->staleness_median = (double)s;
        before += m->staleness[s];
        if (m->staleness[s] > 0)
            out->staleness_most = (double)s;
    }
}

static void read_result(const model *m, double seconds, cod_scale_result *out)
{
    const cod_scale_setting *s = m->setting;
    const double steps = (double)s->groups * (double)s->steps;
    double computing = 0, pairs = 0;
    for (int64_t i = 0; i < s->groups * s->steps; i++)
        computing += s->step_s[i];
    for (int g = 0; g < s->groups; g++)
        pairs += m->groups[g].peer_count;
    *out = (cod_scale_result){.sizes = m->sizes,
                              .publications = s->steps / m->options->period,
                              .taken = m->taken,
                              .followed = m->followed,
                              .lost = m->lost,
                              .merged = (double)m->merged / (pairs * (double)(s->steps / m->options->period)),
                              .strength = m->strength / (pairs * (double)(s->steps / m->options->period)),
                              .bytes_a_step = cod_scale_links_bytes(m->links) / steps,
                              .peak_bytes_s = cod_scale_links_peak(m->links),
                              .step_s = seconds / steps,
                              .overhead = m->cost_s / computing,
                              .shared_bytes_a_step = m->shared_bytes / steps};
    const double keys = 1 / (double)m->options->key_every,
                 published = keys * key_bytes(m) + (1 - keys) * delta_bytes(m);
    out->checkpoint_bytes =
        (double)m->sizes.checkpoint_bytes - (double)m->options->slots * ((double)m->sizes.published - published);
    out->used = out->publications > 2 ? (double)m->usable / (pairs * (double)(out->publications - 2)) : NAN;
    read_staleness(m, out);
}

cod_status cod_scale_run(const cod_scale_setting *setting, cod_scale_result *out)
{
    const cod_exchange_options *o = setting->exchange;
    COD_REQUIRE(o->codec == COD_EXCHANGE_DELTA && o->transport == COD_TRANSPORT_RMA && !o->deterministic,
                "the model is of exchange.codec=delta, transport=rma, deterministic=false");
    COD_REQUIRE(cod_exchange_fragments(o) == 1,
                "the model is of whole publications, exchange.fragments=1, and knows nothing of %d fragments",
                cod_exchange_fragments(o));
    COD_REQUIRE(setting->groups >= 2 && setting->ranks >= 1 && setting->steps >= 1 && setting->weights >= 1,
                "the model is of two groups at least");
    model m = {.setting = setting, .options = o, .once = setting->once && setting->ranks > 1};
    double seconds = 0;
    cod_status status = make(&m);
    COD_THEN(status, run(&m, &seconds));
    if (status == COD_OK)
        read_result(&m, seconds, out);
    clear(&m);
    return status;
}

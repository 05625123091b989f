#include "ranks.h"
#include "support/test.h"

#include "codec/codec.h"
#include "core/log.h"
#include "core/trace.h"
#include "exchange/exchange.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STEPS = 300,
    COUNT = 3000,
    STATE = 40,
    TOTAL = COUNT + STATE,
    RUN = 77,
    CHUNK = 256,
    MOST_GROUPS = 16,
    MOST_FRAGMENTS = 4
};
enum { CODEC_F32 = 1, CODEC_INT8 = 3 };

typedef struct scenario {
    const int *sizes; /**< [groups] ranks */
    size_t groups;
    cod_exchange_options options;
    bool may_lose_all; /**< whether any pull gets through is luck */
} scenario;

static atomic_int lines;

static void count_line(void *context, cod_log_level level, const char *line)
{
    (void)context;
    (void)level;
    (void)line;
    atomic_fetch_add(&lines, 1);
}

static void count_event(void *context, const cod_trace_event *event)
{
    (void)context;
    (void)event;
    atomic_fetch_add(&lines, 1);
}

/** What a group's weights are at a step. */
static void fill(float values[TOTAL], int group, int64_t step)
{
    for (int i = 0; i < TOTAL; i++)
        values[i] = sinf((float)i * 0.37F + (float)step) * (float)(group + 1);
}

/**
 * What a reader must get of the fragment published at `step`: each shard (bounds at multiples of 16) through the codec
 * and back, deltas from their key on.
 */
static cod_status expect(const scenario *s, const cod_exchange_model *model, int group, int64_t step,
                         float decoded[TOTAL])
{
    const bool deltas = s->options.codec == COD_EXCHANGE_DELTA;
    const cod_codec_options options = {.coding = deltas                          ? COD_CHUNK_STEP
                                                 : s->options.codec == CODEC_F32 ? COD_CHUNK_F32
                                                                                 : COD_CHUNK_INT8,
                                       .entropy = (cod_codec_entropy)s->options.entropy,
                                       .bf16_scales = s->options.scales == 1,
                                       .chunk_values = CHUNK,
                                       .quality_db = s->options.quality_db,
                                       .rounding = (float)s->options.rounding};
    float values[TOTAL];
    cod_codec codec;
    COD_TRY(cod_codec_init(&codec, &options));
    const int64_t period = s->options.period, spacing = cod_exchange_spacing(&s->options),
                  fragment = step / spacing % cod_exchange_fragments(&s->options),
                  begin = fragment > 0 ? fragment * spacing : period;
    const cod_exchange_range part = cod_exchange_fragment_range(&s->options, model, (int)fragment);
    const uint64_t shards = (uint64_t)s->sizes[group], units = (part.count + 15) / 16;
    /* The first publication of a fragment is a key, and each key_every-th after it. */
    const int64_t after_key = deltas ? (step - begin) / period % s->options.key_every : 0;
    for (int64_t at = step - after_key * period; at <= step; at += period) {
        fill(values, group, at);
        const bool alone = at == step - after_key * period;
        for (uint64_t k = 0; k < shards; k++) {
            const uint64_t first = units * k / shards * 16, end = units * (k + 1) / shards * 16;
            const cod_codec_range range = {.first = part.first + first,
                                           .count = (end < part.count ? end : part.count) - first,
                                           .exact_from = COUNT};
            cod_codec_begin(&codec, &range, &(cod_codec_key){RUN, (uint64_t)group, 1});
            COD_TRY(cod_codec_round_trip(&codec, values + range.first, alone ? NULL : decoded + first, UINT64_MAX,
                                         decoded + first));
        }
    }
    cod_codec_clear(&codec);
    return COD_OK;
}

/** A fragment of a peer is new: every value, and the own publication kept beside it, must be exact. */
static cod_status check(const scenario *s, const cod_exchange *exchange, const cod_exchange_model *models, int peer,
                        int fragment, int own, uint64_t *seen)
{
    const int64_t spacing = cod_exchange_spacing(&s->options);
    const int of = cod_exchange_peer_group(exchange, peer);
    cod_exchange_checkpoint now;
    float decoded[TOTAL];
    cod_exchange_read_checkpoint(exchange, peer, fragment, &now);
    if (now.version == *seen)
        return COD_OK;
    CHECK(now.version > *seen && now.step == (int64_t)now.version * spacing);
    *seen = now.version;
    COD_TRY(expect(s, &models[of], of, now.step, decoded));
    for (uint64_t i = 0; i < now.range.count; i++)
        CHECK(((const float *)now.values->host)[i] == decoded[i]);
    if (now.own != NULL) {
        COD_TRY(expect(s, &models[own], own, (int64_t)now.own_version * spacing, decoded));
        for (uint64_t i = 0; i < now.range.count; i++)
            CHECK(((const float *)now.own->host)[i] == decoded[i]);
    }
    return COD_OK;
}

static bool all_seen(const uint64_t *seen, int count)
{
    while (count > 0 && seen[count - 1] > 0)
        count--;
    return count == 0;
}

/** The trainer's part: publishes, advances, and lets the sums of step t act at step t + 2. */
static cod_status train(const scenario *s, cod_group *group, cod_exchange *exchange, const cod_exchange_model *models)
{
    double sums[2][COD_EXCHANGE_FLAGS_MOST];
    cod_request *reductions[2] = {NULL};
    const int own = cod_group_index(group), fragments = cod_exchange_fragments(&s->options),
              held = cod_exchange_peer_count(exchange) * fragments;
    uint64_t seen[MOST_GROUPS * MOST_FRAGMENTS] = {0};
    /*
     * Each pull may be lost to a publisher that is faster: longer, then. A version is taken at one step by all ranks of
     * a group.
     */
    const bool must_see = !s->may_lose_all;
    for (int64_t step = 1; step <= STEPS || (must_see && step <= 1000 * STEPS && !all_seen(seen, held)); step++) {
        const size_t now = (size_t)step % 2; /* where the sums of step - 2 are */
        COD_TRY(cod_request_wait(&reductions[now], INFINITY));
        if (step > 2)
            COD_TRY(cod_exchange_flags_in(exchange, step, sums[now]));
        if (cod_exchange_publish_due(exchange, step)) {
            cod_exchange_part part;
            float values[TOTAL];
            COD_TRY(cod_exchange_snapshot(exchange, step, &part));
            fill(values, own, step);
            memcpy(part.values->host, values + part.first, part.count * sizeof *values);
            COD_TRY(cod_exchange_publish(exchange, step, 0));
        }
        COD_TRY(cod_exchange_advance(exchange, step));
        usleep(300); /* in place of training: without it one thread may be through before another begins */
        cod_exchange_flags_out(exchange, sums[now]);
        COD_TRY(cod_group_reduce_start(group, sums[now], cod_exchange_flag_count(exchange), COD_REDUCE_SUM,
                                       &reductions[now]));
        for (int i = 0; i < held; i++)
            COD_TRY(check(s, exchange, models, i / fragments, i % fragments, own, &seen[i]));
        if (step == STEPS / 2 && !s->options.deterministic) {
            const cod_exchange_array *arrays;
            size_t count;
            COD_TRY(cod_exchange_state(exchange, &arrays, &count));
        }
    }
    for (size_t i = 0; i < 2; i++)
        COD_TRY(cod_request_wait(&reductions[i], INFINITY));
    CHECK(!must_see || all_seen(seen, held));
    return COD_OK;
}

static cod_status exchange_for_a_while(cod_comm *comm, void *context)
{
    const scenario *s = context;
    cod_exchange_model models[MOST_GROUPS];
    cod_group *group;
    cod_exchange *exchange;
    for (size_t g = 0; g < s->groups; g++)
        models[g] = (cod_exchange_model){.count = COUNT, .state_count = STATE, .hash = 9};
    COD_TRY(cod_group_create(comm, s->sizes, s->groups, &group));
    COD_TRY(cod_exchange_create(comm, group, &s->options, models, RUN, &exchange));
    COD_TRY(train(s, group, exchange, models));
    cod_exchange_counters counters;
    cod_exchange_read_counters(exchange, &counters);
    CHECK(counters.rejected == 0);
    cod_log_info("group %d: %llu published, %llu pulled, %llu lost", cod_group_index(group),
                 (unsigned long long)counters.published, (unsigned long long)counters.pulled,
                 (unsigned long long)counters.lost);
    COD_TRY(cod_exchange_destroy(exchange));
    cod_group_destroy(group);
    return COD_OK;
}

static void run(scenario s)
{
    int ranks = 0;
    for (size_t g = 0; g < s.groups; g++)
        ranks += s.sizes[g];
    s.options.chunk_values = CHUNK;
    s.options.pull_timeout_s = 60;
    cod_trace_set_sink(count_event, NULL);
    cod_log_set_sink(count_line, NULL, COD_LOG_DEBUG);
    atomic_store(&lines, 0);
    run_ranks(ranks, exchange_for_a_while, &s);
    assert_true(atomic_load(&lines) >= ranks);
    cod_log_set_sink(NULL, NULL, COD_LOG_DEBUG);
    cod_trace_set_sink(NULL, NULL);
}

TEST(two_single_ranks)
{
    run((scenario){.sizes = (const int[]){1, 1},
                   .groups = 2,
                   .options = {.period = 10, .codec = CODEC_INT8, .scales = 1, .slots = 3}});
}

TEST(unequal_groups)
{
    run((scenario){
        .sizes = (const int[]){2, 1}, .groups = 2, .options = {.period = 5, .codec = CODEC_INT8, .slots = 3}});
}

/** Publications every other step into two slots: most pulls lose theirs, none may be wrong. */
TEST(slots_reopened_while_read)
{
    run((scenario){.sizes = (const int[]){1, 2},
                   .groups = 2,
                   .options = {.period = 2, .codec = CODEC_F32, .entropy = COD_CODEC_LZ4, .slots = 2},
                   .may_lose_all = true});
}

/**
 * Seven pulls at a time in each of sixteen groups, of versions that stand alone and of deltas, each against the one
 * before.
 */
TEST(sixteen_groups)
{
    static const int sizes[MOST_GROUPS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    run((scenario){.sizes = sizes,
                   .groups = MOST_GROUPS,
                   .options = {.period = 50, .codec = CODEC_INT8, .scales = 1, .slots = 8}});
    run((scenario){.sizes = sizes,
                   .groups = MOST_GROUPS,
                   .options = {.period = 50,
                               .codec = COD_EXCHANGE_DELTA,
                               .scales = 1,
                               .slots = 8,
                               .quality_db = 43,
                               .rounding = 0.25,
                               .key_every = 4}});
}

/**
 * Four groups of two ranks that hold values together, of models in fragments; with three ranks a group each runs on two
 * nodes.
 */
TEST(ranks_and_fragments)
{
    const cod_exchange_options options = {.period = 40,
                                          .codec = COD_EXCHANGE_DELTA,
                                          .scales = 1,
                                          .slots = 8,
                                          .quality_db = 43,
                                          .rounding = 0.25,
                                          .key_every = 4};
    cod_exchange_options fragments = options;
    fragments.fragments = MOST_FRAGMENTS;
    run((scenario){.sizes = (const int[]){2, 2, 2, 2}, .groups = 4, .options = options});
    run((scenario){.sizes = (const int[]){2, 2, 2, 2}, .groups = 4, .options = fragments});
    run((scenario){.sizes = (const int[]){3, 3}, .groups = 2, .options = fragments});
}

TEST(a_deterministic_ring)
{
    run((scenario){.sizes = (const int[]){1, 1, 1},
                   .groups = 3,
                   .options = {.period = 5,
                               .codec = CODEC_INT8,
                               .slots = 2,
                               .deterministic = true,
                               .lag_steps = 2,
                               .peers = COD_PEERS_RING}});
}

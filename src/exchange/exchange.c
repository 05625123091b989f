/* The exchange as a whole: makes its parts, and does with its publisher and its pulls what the agreement decides. */
#include "exchange/exchange_internal.h"

#include "core/hash.h"
#include "core/trace.h"
#include "exchange/file.h"
#include "exchange/pace_internal.h"
#include "exchange/rma.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { STORAGE_PATIENCE_S = 10, OLD_S = 3600 };

/** A fragment is one chunk at least. */
static cod_status check_fragments(const cod_exchange *e)
{
    for (int g = 0; g < e->setup.groups; g++) {
        const uint64_t total = exchange_total_of(&e->setup.models[g]),
                       chunks = (total + (uint64_t)e->setup.options.chunk_values - 1) /
                                (uint64_t)e->setup.options.chunk_values;
        COD_REQUIRE(e->setup.fragments == 1 || chunks >= (uint64_t)e->setup.fragments,
                    "exchange.fragments: the model of group %d has %llu chunks of %lld values, which do not make %d "
                    "fragments: set fewer, or exchange.chunk_values lower",
                    g, (unsigned long long)chunks, (long long)e->setup.options.chunk_values, e->setup.fragments);
    }
    return COD_OK;
}

static cod_status make_buffers(cod_exchange *e)
{
    COD_TRY(check_fragments(e));
    COD_TRY(exchange_publisher_init(&e->publisher, &e->setup));
    COD_TRY(exchange_puller_init(&e->puller, &e->setup, &e->publisher.coder));
    return exchange_agreement_init(&e->agreement, &e->setup, e->puller.pull_count);
}

/** Names this process of the group, all its ranks by what the first one drew. */
static cod_status draw_life(cod_exchange *e)
{
    const uint64_t drawn[] = {exchange_wall_ms(), (uint64_t)getpid(), (uint64_t)(1e9 * cod_clock_s())};
    uint64_t life[] = {(cod_hash(drawn, sizeof drawn, e->setup.run) & EXCHANGE_LIFE_MASK) | 1, drawn[0]};
    COD_TRY(cod_group_broadcast(e->setup.group, life, sizeof life, 0));
    e->setup.life = life[0];
    e->setup.begun_ms = life[1];
    return COD_OK;
}

/**
 * The ranks that this one reads: first shards, where news are, and the shards that it pulls; where groups wait for each
 * other also the first rank of each reader, which says what it has taken. @param[out] out  new; free() it
 */
static cod_status find_sources(const cod_exchange *e, int **out, size_t *count)
{
    const int groups = e->setup.groups, mine = e->setup.mine;
    const bool waits = exchange_will_wait(&e->setup.options);
    int *sources = calloc((size_t)cod_comm_size(e->setup.comm) + (size_t)groups, sizeof *sources);
    COD_REQUIRE_MEMORY(sources);
    *out = sources;
    *count = 0;
    for (int g = 0; g < groups; g++) {
        const bool read = cod_exchange_reads(&e->setup.options, groups, mine, g),
                   reader = waits && cod_exchange_reads(&e->setup.options, groups, g, mine);
        if (read || reader)
            sources[(*count)++] = exchange_world_rank(&e->setup, g, 0);
        for (int k = e->setup.rank; read && k < exchange_shards_of(&e->setup, g); k += e->setup.size)
            sources[(*count)++] = exchange_world_rank(&e->setup, g, k);
    }
    return COD_OK;
}

static cod_status make_window(cod_exchange *e, const cod_slot_identity *identity, const cod_slot_layout *layout,
                              cod_transport **out)
{
    int *sources = NULL;
    size_t count = 0;
    cod_status status = cod_group_agree(cod_comm_world(e->setup.comm), find_sources(e, &sources, &count), NULL);
    COD_THEN(status, cod_rma_create(e->setup.comm, identity, layout, &e->puller.rooms, sources, count, out));
    free(sources);
    return status;
}

static cod_status open_folder(cod_exchange *e, const cod_slot_identity *identity, const cod_slot_layout *layout,
                              cod_transport **out)
{
    const cod_exchange_options *options = &e->setup.options;
    const cod_file_options shared = {.folder = options->directory,
                                     .key_file = options->key_file,
                                     .patience_s = fmax(options->pull_timeout_s, STORAGE_PATIENCE_S),
                                     .old_s = options->max_staleness_s > 0 ? options->max_staleness_s : OLD_S,
                                     .life = e->setup.life,
                                     .begun_ms = e->setup.begun_ms,
                                     .anew = options->anew,
                                     .rooms = &e->puller.rooms};
    const cod_status status = cod_file_transport_create(&shared, identity, layout, out);
    COD_TRY(cod_group_agree(cod_comm_world(e->setup.comm), status, NULL));
    double left = (double)(*out)->ops->left(*out);
    COD_TRY(cod_group_reduce(e->setup.group, &left, 1, COD_REDUCE_MAX));
    if ((uint64_t)left > e->publisher.left)
        e->publisher.left = (uint64_t)left;
    return COD_OK;
}

static cod_status make_transports(cod_exchange *e)
{
    const cod_slot_layout layout = exchange_layout(&e->setup);
    for (int f = 0; e->setup.publishes && f < e->setup.fragments; f++) {
        const cod_slot_identity identity = exchange_identity(&e->setup, e->setup.mine, f, e->setup.rank);
        COD_TRY(e->setup.options.transport == COD_TRANSPORT_RMA
                    ? make_window(e, &identity, &layout, &e->setup.transports[f])
                    : open_folder(e, &identity, &layout, &e->setup.transports[f]));
    }
    return COD_OK;
}

cod_status cod_exchange_create(cod_comm *comm, cod_group *group, const cod_exchange_options *options,
                               const cod_exchange_model *models, uint64_t run, cod_exchange **out)
{
    cod_exchange *e = calloc(1, sizeof *e);
    COD_REQUIRE_MEMORY(e);
    *out = e;
    COD_TRY(exchange_setup_init(&e->setup, comm, group, options, models, run));
    COD_TRY(cod_group_agree(cod_comm_world(comm), make_buffers(e), NULL));
    COD_TRY(cod_group_agree(cod_comm_world(comm), exchange_share_values(e), NULL));
    COD_TRY(cod_group_agree(cod_comm_world(comm), exchange_make_values(e), NULL));
    COD_TRY(draw_life(e));
    return make_transports(e);
}

cod_status cod_exchange_use_device(cod_exchange *e, const cod_backend *backend, cod_device *device)
{
    const bool at_once = cod_backend_runs_at_once(backend);
    double devices = !at_once;
    if (!e->setup.publishes)
        return COD_OK;
    /* One rank may have a device, and another could not open its own: then nobody shares. */
    if (e->setup.shared != NULL)
        COD_TRY(cod_group_reduce(e->setup.group, &devices, 1, COD_REDUCE_SUM));
    if (devices == 0 || (at_once && e->setup.shared == NULL))
        return COD_OK;
    exchange_free_values(e);
    if (at_once)
        return exchange_make_values(e);
    e->setup.backend = backend;
    e->setup.device = device;
    COD_TRY(cod_event_create(backend, device, &e->publisher.copied));
    e->setup.codes_on_device = cod_exchange_codes_on(backend, device);
    COD_TRY(exchange_make_values(e));
    if (!e->setup.codes_on_device)
        return COD_OK;
    COD_TRY(exchange_publisher_use_device(&e->publisher));
    return exchange_puller_use_device(&e->puller);
}

cod_status cod_exchange_destroy(cod_exchange *e)
{
    if (e == NULL)
        return COD_OK;
    cod_status status = exchange_puller_end(&e->puller);
    /* Where other groups do not come to the end of one, they would be waited for as long at each of the others. */
    bool came = true;
    for (int f = 0; e->setup.transports != NULL && f < e->setup.fragments && came; f++) {
        const cod_status ended =
            e->setup.transports[f] != NULL ? e->setup.transports[f]->ops->destroy(e->setup.transports[f]) : COD_OK;
        status = status == COD_OK ? ended : status;
        came = ended == COD_OK;
    }
    exchange_puller_leave_device(&e->puller);
    exchange_publisher_leave_device(&e->publisher);
    exchange_free_values(e);
    cod_event_destroy(e->setup.backend, e->publisher.copied);
    exchange_publisher_clear(&e->publisher);
    exchange_puller_clear(&e->puller);
    exchange_agreement_clear(&e->agreement);
    free(e->events);
    exchange_setup_clear(&e->setup);
    free(e->arrays);
    free(e->numbers);
    free(e->slots);
    free(e);
    return status;
}

/** The first rank looks for something to propose. */
static cod_status look_for_news(cod_exchange *e, exchange_pull *pull, int64_t step, exchange_proposal *proposal)
{
    uint64_t newest_own[COD_EXCHANGE_FRAGMENTS_MOST];
    if (e->setup.rank != 0 || proposal->peer != EXCHANGE_NO_PEER)
        return COD_OK;
    for (int f = 0; f < e->setup.fragments; f++)
        newest_own[f] = exchange_newest_own(&e->publisher, f);
    return exchange_puller_look(&e->puller, pull, step, newest_own, proposal);
}

/** Moves all pulls by a step. */
static cod_status move_pulls(cod_exchange *e, int64_t step)
{
    for (int k = 0; k < e->puller.pull_count; k++) {
        exchange_pull *pull = &e->puller.pulls[k];
        exchange_agreed_pull *agreed = &e->agreement.pulls[k];
        if (agreed->phase == EXCHANGE_IDLE)
            COD_TRY(look_for_news(e, pull, step, &agreed->proposal));
        else if (agreed->phase == EXCHANGE_PULLING)
            COD_TRY(exchange_puller_move(&e->puller, pull));
        else
            COD_TRY(exchange_puller_move_gather(&e->puller, pull));
    }
    return COD_OK;
}

bool cod_exchange_publish_due(const cod_exchange *e, int64_t step)
{
    if (e->events != NULL)
        return exchange_replays_publication(e, step);
    return exchange_publisher_is_due(&e->publisher, step) &&
           (e->setup.options.deterministic || e->publisher.interval_passed);
}

cod_status cod_exchange_snapshot(cod_exchange *e, int64_t step, cod_exchange_part *part)
{
    return exchange_publisher_snapshot(&e->publisher, step, part);
}

cod_status cod_exchange_publish(cod_exchange *e, int64_t step, uint64_t fingerprint)
{
    const double begin = cod_clock_s();
    const uint64_t version = (uint64_t)(step / cod_exchange_spacing(&e->setup.options));
    if (e->setup.waits)
        COD_TRY(exchange_wait_for_readers(&e->setup, exchange_fragment_of(&e->setup, version)));
    COD_TRY(exchange_publisher_begin(&e->publisher, step, fingerprint));
    if (e->setup.options.deterministic)
        COD_TRY(exchange_publisher_finish(&e->publisher));
    e->seconds += cod_clock_s() - begin;
    return COD_OK;
}

cod_status cod_exchange_advance(cod_exchange *e, int64_t step)
{
    const double begin = cod_clock_s();
    if (e->setup.options.deterministic) {
        if (e->publisher.version > 0 && step == e->publisher.step + e->setup.options.lag_steps)
            COD_TRY(exchange_take_all(e, step));
    } else {
        COD_TRY(exchange_publisher_advance(&e->publisher, step));
        COD_TRY(e->events != NULL ? exchange_replay_step(e, step) : move_pulls(e, step));
    }
    e->seconds += cod_clock_s() - begin;
    return COD_OK;
}

size_t cod_exchange_flag_count(const cod_exchange *e)
{
    return exchange_agreement_count(&e->agreement);
}

void cod_exchange_flags_out(const cod_exchange *e, double *out)
{
    const exchange_publication publication = exchange_publisher_report(&e->publisher);
    exchange_standing pulls[COD_EXCHANGE_PULLS_MOST];
    for (int k = 0; k < e->puller.pull_count; k++)
        pulls[k] = e->puller.pulls[k].standing;
    exchange_agreement_tell(&e->agreement, &publication, pulls, out);
}

/** Does with a pull what all ranks decide by these sums. */
static cod_status act(cod_exchange *e, exchange_pull *pull, int64_t step, const double *in)
{
    exchange_proposal proposal;
    exchange_outcome outcome;
    const exchange_decision decision =
        exchange_agreement_decide(&e->agreement, pull->place, step, in, &proposal, &outcome);
    if (decision == EXCHANGE_GO_ON || (decision == EXCHANGE_BEGIN && !exchange_puller_wants(&e->puller, &proposal)))
        return COD_OK;
    if (decision == EXCHANGE_BEGIN) {
        exchange_agreement_begin(&e->agreement, pull->place, step);
        return exchange_puller_start_proposed(&e->puller, &proposal);
    }
    exchange_puller_note_outcome(pull, &outcome);
    if (decision == EXCHANGE_GATHER)
        return exchange_puller_gather(&e->puller, pull);
    if (decision == EXCHANGE_GIVE_UP) {
        exchange_puller_give_up(&e->puller, pull, outcome.refused);
        return COD_OK;
    }
    bool follows;
    exchange_puller_take_over(&e->puller, pull, step);
    COD_TRY(exchange_puller_start_following(&e->puller, pull, &follows));
    if (follows)
        exchange_agreement_begin(&e->agreement, pull->place, step);
    return COD_OK;
}

cod_status cod_exchange_flags_in(cod_exchange *e, int64_t step, const double *in)
{
    exchange_publications publications;
    COD_TRY(exchange_agreement_hear(&e->agreement, step, e->publisher.print_of, in, &publications));
    exchange_publisher_hear(&e->publisher, &publications);
    for (int k = 0; k < e->puller.pull_count && !e->setup.waits; k++)
        COD_TRY(act(e, &e->puller.pulls[k], step, in));
    return COD_OK;
}

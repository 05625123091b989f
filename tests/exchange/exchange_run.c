#include "exchange/exchange_run.h"

#include "comm/job.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/trace.h"
#include "exchange/exchange_internal.h"
#include "ref/ref.h"
#include "support/folder.h"
#include "support/late.h"
#include "support/patience.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void run_must(cod_status status, const char *what, const char *file, int line)
{
    if (status == COD_OK)
        return;
    print_error("%s:%d: rank %d: %s (%s): %s [%s]\n", file, line, cod_comm_rank(job), what, cod_status_name(status),
                cod_error_message(), cod_error_place());
    cod_comm_abort(1);
}

bool run_misled;

bool run_is_on_files(void)
{
    const char *transport = getenv("COD_TEST_TRANSPORT");
    return transport != NULL && strcmp(transport, "file") == 0;
}

cod_exchange_options run_options(int64_t period)
{
    return (cod_exchange_options){.transport = run_is_on_files() ? COD_TRANSPORT_FILE : COD_TRANSPORT_RMA,
                                  .anew = true,
                                  .period = period,
                                  .codec = 3,
                                  .scales = 1,
                                  .chunk_values = 512,
                                  .slots = 3,
                                  .quality_db = 43,
                                  .rounding = 0.25,
                                  .key_every = 3,
                                  .entropy = COD_CODEC_ZSTD,
                                  .pull_timeout_s = COD_TEST_PATIENCE_S,
                                  .lag_steps = period / 2};
}

static uint64_t total(const exchange_run *r, int group)
{
    return r->models[group].count + r->models[group].state_count;
}

/** What a group's model is after a step: near what it was, so that deltas are worth it. */
static void known_values(const exchange_run *r, int group, int64_t step, float *out)
{
    uint64_t x = (uint64_t)step * 1000003u + (uint64_t)group * 7919u + 1, base = (uint64_t)group + 1;
    for (uint64_t i = 0; i < total(r, group); i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        base = base * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        out[i] =
            (float)((int64_t)(base >> 40) - (1 << 23)) * 0x1p-24f + (float)((int64_t)(x >> 40) - (1 << 23)) * 0x1p-28f;
    }
}

enum { KINDS_BYTES = 4096 };

/** Says whether the publication just begun is a key: over files one follows where storage left a version out. */
static void note_kind(const exchange_run *r)
{
    const char kind = r->exchange->publisher.against > 0 ? 'd' : 'k';
    const off_t at = cod_group_index(r->group) * KINDS_BYTES + (off_t)(r->exchange->publisher.version % KINDS_BYTES);
    if (r->kinds >= 0 && cod_group_rank(r->group) == 0)
        must(pwrite(r->kinds, &kind, 1, at) == 1 ? COD_OK : cod_fail(COD_ERR_IO, "cannot note a key"));
}

/** Whether this publication of a group, the `number`-th, is a key; *made: whether there is one. */
static bool is_key(const exchange_run *r, int group, int64_t version, int64_t number, bool *made)
{
    char kind = 0;
    *made = true;
    if (r->kinds < 0)
        return number % r->options.key_every == 0;
    *made = pread(r->kinds, &kind, 1, group * KINDS_BYTES + (off_t)(version % KINDS_BYTES)) == 1 && kind != 0;
    return kind == 'k';
}

/**
 * What a reader makes of the fragment that is published after this step: each shard by itself through the codec and
 * back, deltas from one publication to the next, but for the spoiled one.
 */
static void known_decoded(const exchange_run *r, int group, int64_t step, float *out)
{
    static const cod_chunk_coding codings[] = {COD_CHUNK_F32,  COD_CHUNK_F32,  COD_CHUNK_BF16,
                                               COD_CHUNK_INT8, COD_CHUNK_STEP, COD_CHUNK_STEP};
    const cod_codec_options options = {.coding = codings[r->options.codec],
                                       .bf16_scales = r->options.scales == 1,
                                       .chunk_values = (uint32_t)r->options.chunk_values,
                                       .quality_db = r->options.quality_db,
                                       .rounding = (float)r->options.rounding};
    const bool deltas = options.coding == COD_CHUNK_STEP;
    const int64_t spacing = cod_exchange_spacing(&r->options), fragments = cod_exchange_fragments(&r->options),
                  fragment = step / spacing % fragments;
    int64_t number = 0;
    const cod_exchange_range part = cod_exchange_fragment_range(&r->options, &r->models[group], (int)fragment);
    const uint64_t shards = (uint64_t)cod_group_members_of(r->group, group).size, units = (part.count + 15) / 16;
    const cod_codec_key key = {0};
    cod_codec codec;
    must(cod_codec_init(&codec, &options));
    const int64_t begin = fragment > 0 ? fragment * spacing : r->options.period;
    for (int64_t at = deltas ? begin : step; at <= step; at += r->options.period) {
        if (deltas && at == r->spoiled_step && group == r->spoiled_group)
            continue;
        bool made = true;
        const bool alone = !deltas || is_key(r, group, at / spacing, number++, &made);
        if (!made)
            continue;
        known_values(r, group, at, r->values);
        for (uint64_t s = 0; s < shards; s++) {
            const uint64_t first = units * s / shards * 16, end = units * (s + 1) / shards * 16;
            const cod_codec_range range = {.first = part.first + first,
                                           .count = (end < part.count ? end : part.count) - first,
                                           .exact_from = r->models[group].count};
            const float *values = r->values + range.first;
            cod_codec_begin(&codec, &range, &key);
            must(cod_codec_round_trip(&codec, values, alone ? NULL : out + first, UINT64_MAX, out + first));
        }
    }
    cod_codec_clear(&codec);
}

/**
 * One folder for all runs of a job that are restored; else each has its own, as what an earlier one left makes keys of
 * deltas.
 */
static const char *shared_folder(bool restored)
{
    static char path[256], own[300];
    static int runs;
    if (path[0] == '\0' && cod_comm_rank(job) == 0) {
        must(cod_test_folder_make(NULL) == 0 ? COD_OK : cod_fail(COD_ERR_IO, "no folder"));
        snprintf(path, sizeof path, "%s", cod_test_at("exchange"));
    }
    must(cod_group_broadcast(cod_comm_world(job), path, sizeof path, 0));
    snprintf(own, sizeof own, "%s/%d", path, restored ? 0 : ++runs);
    return own;
}

static void open_kinds(exchange_run *r)
{
    char path[512];
    snprintf(path, sizeof path, "%s.kinds", r->options.directory);
    r->kinds = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(r->kinds >= 0 ? COD_OK : cod_fail(COD_ERR_IO, "cannot open '%s'", path));
}

void run_open(exchange_run *r, const int *sizes, size_t groups, const cod_exchange_options *options, uint64_t run)
{
    *r = (exchange_run){.options = *options, .pause_ms = 1, .kinds = -1};
    if (options->transport == COD_TRANSPORT_FILE) {
        r->options.directory = shared_folder(options->deterministic);
        r->pause_ms = 3; /* a look at a peer is worth some of the shortest periods */
    }
    uint64_t largest = 0;
    for (size_t g = 0; g < groups; g++) {
        const size_t kind = options->merge == COD_MERGE_NONE ? g : 0;
        r->models[g] = (cod_exchange_model){.count = 5000 + 701 * kind, .state_count = 37 + kind, .hash = 100 + kind};
        largest = total(r, (int)g);
    }
    must(cod_aligned_alloc((void **)&r->values, largest * sizeof(float)));
    must(cod_aligned_alloc((void **)&r->expected, largest * sizeof(float)));
    must(cod_aligned_alloc((void **)&r->read, largest * sizeof(float)));
    must(cod_group_create(job, sizes, groups, &r->group));
    for (size_t g = 0; run_misled && g < groups; g++)
        r->models[g].hash += (int)g != cod_group_index(r->group);
    must(cod_exchange_create(job, r->group, &r->options, r->models, run, &r->exchange));
    run_use_device(r);
    if (options->transport == COD_TRANSPORT_FILE && !options->deterministic)
        open_kinds(r);
    must(cod_group_barrier(cod_comm_world(job)));
}

const float *run_read(exchange_run *r, cod_buffer *buffer)
{
    if (buffer->host != NULL)
        return buffer->host;
    must(r->backend->download(r->device, NULL, r->read, buffer, 0, buffer->bytes));
    return r->read;
}

static bool is_known(exchange_run *r, int group, int64_t step, cod_buffer *held)
{
    const float *values = run_read(r, held);
    const uint64_t number = (uint64_t)(step / cod_exchange_spacing(&r->options)), count = r->models[group].count;
    const cod_exchange_range range = cod_exchange_fragment_range(
        &r->options, &r->models[group], (int)(number % (uint64_t)cod_exchange_fragments(&r->options)));
    const uint64_t end = range.first + range.count, exact = range.first > count ? range.first : count;
    known_decoded(r, group, step, r->expected);
    /* `values` holds what was published by now; statistics are exact. */
    return held->bytes == range.count * sizeof(float) && memcmp(values, r->expected, held->bytes) == 0 &&
           (end <= exact ||
            memcmp(values + (exact - range.first), r->values + exact, (end - exact) * sizeof(float)) == 0);
}

/** Whether the own version of this step is what a merge is to subtract. */
static bool is_own(exchange_run *r, int64_t step, cod_buffer *own)
{
    const int mine = cod_group_index(r->group);
    if (r->options.merge_against != COD_AGAINST_EXACT)
        return is_known(r, mine, step, own);
    const uint64_t fragments = (uint64_t)cod_exchange_fragments(&r->options),
                   version = (uint64_t)(step / cod_exchange_spacing(&r->options));
    const cod_exchange_range range =
        cod_exchange_fragment_range(&r->options, &r->models[mine], (int)(version % fragments));
    known_values(r, mine, step, r->values);
    return own->bytes == range.count * sizeof(float) &&
           memcmp(run_read(r, own), r->values + range.first, own->bytes) == 0;
}

/** Checks what was newly taken over. */
static void look(exchange_run *r)
{
    const int fragments = cod_exchange_fragments(&r->options);
    const int64_t spacing = cod_exchange_spacing(&r->options);
    for (int i = 0; i < cod_exchange_peer_count(r->exchange) * fragments; i++) {
        const int group = cod_exchange_peer_group(r->exchange, i / fragments), fragment = i % fragments;
        cod_exchange_checkpoint c;
        cod_exchange_read_checkpoint(r->exchange, i / fragments, fragment, &c);
        if (c.own_version == c.version && r->met[group][fragment] != c.version) {
            r->met[group][fragment] = c.version;
            r->meetings++;
        }
        if (c.version == r->held[group][fragment])
            continue;
        bool good = c.version > r->held[group][fragment] && (int)(c.version % (uint64_t)fragments) == fragment &&
                    c.step == (int64_t)c.version * spacing && c.values != NULL && is_known(r, group, c.step, c.values);
        const bool own = c.own != NULL && !r->is_odd;
        if (own)
            good = good && is_own(r, (int64_t)c.own_version * spacing, c.own);
        r->with_own += c.own_version == c.version;
        r->wrong += !good;
        r->held[group][fragment] = c.version;
        r->seen[group] |= UINT64_C(1) << (c.version & 63);
        r->takeovers++;
        const uint64_t what[] = {(uint64_t)r->step, (uint64_t)group, c.version,
                                 cod_hash(run_read(r, c.values), c.values->bytes, 0),
                                 own ? cod_hash(run_read(r, c.own), c.own->bytes, 0) : 0};
        r->digest = cod_hash(what, sizeof what, r->digest);
    }
}

/** A merge subtracts an own version once that is complete: in the same step on all ranks, or their weights part. */
static void note_own(exchange_run *r)
{
    const exchange_publisher *publisher = &r->exchange->publisher;
    for (int i = 0; i < publisher->own_count; i++)
        r->own_digest = cod_hash(&publisher->own[i].version, sizeof publisher->own[i].version, r->own_digest);
}

/** Acts on what was told two steps ago. */
static void hear(exchange_run *r, int64_t step)
{
    run_told *told = &r->told[step % RUN_AGREEMENT_DELAY];
    if (!told->pending)
        return;
    told->pending = false;
    must(cod_request_wait(&told->request, COD_TEST_PATIENCE_S));
    r->ended = r->ended || told->values[cod_exchange_flag_count(r->exchange)] == cod_group_size(r->group);
    must(cod_exchange_flags_in(r->exchange, r->step, told->values));
}

static void tell(exchange_run *r)
{
    run_told *told = &r->told[r->step % RUN_AGREEMENT_DELAY];
    told->pending = true;
    cod_exchange_flags_out(r->exchange, told->values);
    told->values[cod_exchange_flag_count(r->exchange)] = r->satisfied;
    if (cod_group_size(r->group) > 1)
        must(cod_group_reduce_start(r->group, told->values, cod_exchange_flag_count(r->exchange) + 1, COD_REDUCE_SUM,
                                    &told->request));
}

/** Of a late device. */
static size_t free_bytes(const exchange_run *r)
{
    size_t bytes = 0, all;
    if (r->late)
        must(r->backend->memory(r->device, &bytes, &all));
    return bytes;
}

void run_use_device(exchange_run *r)
{
    r->backend = cod_late_chosen(&cod_ref_backend);
    r->late = r->backend != &cod_ref_backend;
    must(r->backend->open(NULL, &r->device));
    must(r->backend->buffer_create(r->device, total(r, cod_group_index(r->group)) * sizeof(float), &r->weights));
    const size_t before = free_bytes(r);
    must(cod_exchange_use_device(r->exchange, r->backend, r->device));
    r->device_bytes = before - free_bytes(r);
    const bool codes = r->late && r->exchange->puller.peer_count > 0;
    must((r->exchange->publisher.on_device != NULL) == codes
             ? COD_OK
             : cod_fail(COD_ERR_ARGUMENT, "the exchange codes elsewhere than it should"));
}

static const cod_transport_ops *own_ops; /**< of the transports of a run that is patient */

/** As long as it answers nothing. */
static bool is_waited_for(int *waits)
{
    enum { WAIT_US = 100, MOST = COD_TEST_PATIENCE_MS * (1000 / WAIT_US) };
    usleep(WAIT_US);
    return ++*waits < MOST;
}

static cod_status offer_patiently(cod_transport *transport, const cod_slot_identity *expected, int world_rank,
                                  const cod_slot_wanted *wanted, bool *answered, cod_slot_offered *offered)
{
    int waits = 0;
    cod_status status;
    do
        status = own_ops->offer(transport, expected, world_rank, wanted, answered, offered);
    while (status == COD_OK && !*answered && is_waited_for(&waits));
    return status;
}

static cod_status poll_patiently(cod_transport *transport, int place, cod_pull_state *state, cod_pulled *out)
{
    int waits = 0;
    cod_status status;
    do
        status = own_ops->pull_poll(transport, place, state, out);
    while (status == COD_OK && *state == COD_PULL_BUSY && is_waited_for(&waits));
    return status;
}

void run_patiently(exchange_run *r)
{
    static cod_transport_ops ops;
    own_ops = r->exchange->setup.transports[0]->ops;
    ops = *own_ops;
    ops.offer = offer_patiently;
    ops.pull_poll = poll_patiently;
    for (int f = 0; f < r->exchange->setup.fragments; f++)
        r->exchange->setup.transports[f]->ops = &ops;
}

void run_leave_device(exchange_run *r)
{
    r->backend->buffer_destroy(r->device, r->weights);
    r->backend->close(r->device);
}

/** Counts waits since there were `before` so many, while none is due. Until one is, a late device does nothing. */
static void note_waits(exchange_run *r, int64_t step, size_t before)
{
    enum { COPY_STEPS = 2 };
    const bool copying = !r->options.deterministic && step <= r->exchange->publisher.step + COPY_STEPS;
    r->waits += copying ? cod_late_crossings() - before : 0;
    if (r->late)
        cod_late_hold(r->device, copying && r->exchange->publisher.step > 0);
}

void run_publish(exchange_run *r, const float *values, int64_t step)
{
    cod_exchange_part part;
    must(cod_exchange_snapshot(r->exchange, step, &part));
    must(r->backend->upload(r->device, NULL, r->weights, 0, values, r->weights->bytes));
    if (r->late)
        cod_late_hold(r->device, true);
    const size_t waits = cod_late_crossings();
    must(r->backend->copy(r->device, NULL, part.values, 0, r->weights, part.first * sizeof(float),
                          part.count * sizeof(float)));
    must(cod_exchange_publish(r->exchange, step, cod_hash(values, r->weights->bytes, 0)));
    note_waits(r, step, waits);
}

static void one_step(exchange_run *r)
{
    const int mine = cod_group_index(r->group);
    const int64_t done = r->step + 1;
    double begin = cod_clock_s();
    hear(r, r->step);
    double spent = cod_clock_s() - begin;
    usleep((useconds_t)(1e3 * r->pause_ms));
    const bool publishes = r->last_publication == 0 || done <= r->last_publication;
    if (publishes && cod_exchange_publish_due(r->exchange, done)) {
        known_values(r, mine, done, r->values);
        if (done == r->spoiled_step && cod_group_index(r->group) == r->spoiled_group)
            r->values[r->models[mine].count - 1] = NAN;
        if (r->odd_step > 0 && done >= r->odd_step)
            r->values[0] += 1; /* of the first rank's shard, which it is not */
        begin = cod_clock_s();
        run_publish(r, r->values, done);
        spent += cod_clock_s() - begin;
        note_kind(r);
        r->publications++;
    }
    const size_t waits = cod_late_crossings();
    begin = cod_clock_s();
    must(cod_exchange_advance(r->exchange, done));
    note_waits(r, done, waits);
    spent += cod_clock_s() - begin;
    look(r);
    note_own(r);
    tell(r);
    r->slowest_s = spent > r->slowest_s ? spent : r->slowest_s;
    r->step++;
}

void run_until(exchange_run *r, int64_t steps)
{
    while (r->step < steps)
        one_step(r);
}

static bool holds_all(const exchange_run *r, uint64_t version)
{
    for (int i = 0; i < cod_exchange_peer_count(r->exchange); i++)
        if (run_held(r, cod_exchange_peer_group(r->exchange, i)) + (uint64_t)cod_exchange_fragments(&r->options) <=
            version)
            return false;
    return true;
}

void run_until_all_hold(exchange_run *r, uint64_t version)
{
    r->waiting = r->satisfied = false;
    run_until(r, r->step + RUN_AGREEMENT_DELAY); /* hears what was told of an earlier version */
    r->ended = false;
    while (!r->ended) {
        one_step(r);
        /* The question crosses groups, as nothing in training does; it is not waited for. */
        if (!r->waiting && holds_all(r, version)) {
            must(cod_group_reduce_start(cod_comm_world(job), &r->asked, 1, COD_REDUCE_SUM, &r->answer));
            r->waiting = true;
        }
        if (r->waiting && !r->satisfied)
            must(cod_request_test(&r->answer, &r->satisfied));
    }
}

double run_sum(exchange_run *r, double value)
{
    must(cod_group_reduce(r->group, &value, 1, COD_REDUCE_SUM));
    return value;
}

/** Leaves nothing told unheard: the next run begins as after a restart. */
static void drain(exchange_run *r)
{
    for (int64_t i = 0; i < RUN_AGREEMENT_DELAY; i++)
        hear(r, r->step + i);
}

/** Whether all ranks of the group have this number. */
static bool is_equal(exchange_run *r, uint64_t number)
{
    const int size = cod_group_size(r->group);
    uint64_t *numbers = calloc((size_t)size, sizeof *numbers);
    must(cod_group_gather(r->group, &number, sizeof number, numbers));
    bool equal = true;
    for (int i = 0; i < size; i++)
        equal = equal && numbers[i] == number;
    free(numbers);
    return equal;
}

void run_close(exchange_run *r)
{
    drain(r);
    const bool equal = is_equal(r, r->digest), own_equal = is_equal(r, r->own_digest);
    const uint64_t wrong = r->wrong;
    must(cod_group_barrier(cod_comm_world(job)));
    must(cod_exchange_destroy(r->exchange));
    run_leave_device(r);
    cod_group_destroy(r->group);
    if (r->kinds >= 0)
        close(r->kinds);
    cod_aligned_free(r->values);
    cod_aligned_free(r->expected);
    cod_aligned_free(r->read);
    check_all(own_equal);
    check_all(equal);
    check_all(wrong == 0);
    check_all(r->waits == 0);
}

uint64_t run_held(const exchange_run *r, int group)
{
    uint64_t oldest = r->held[group][0];
    for (int f = 1; f < cod_exchange_fragments(&r->options); f++)
        oldest = r->held[group][f] < oldest ? r->held[group][f] : oldest;
    return oldest;
}

cod_exchange_counters run_counters(const exchange_run *r)
{
    cod_exchange_counters counters;
    cod_exchange_read_counters(r->exchange, &counters);
    return counters;
}

run_saved run_save(exchange_run *r)
{
    const cod_exchange_array *arrays;
    run_saved saved = {0};
    must(cod_exchange_state(r->exchange, &arrays, &saved.count));
    for (size_t i = 0; i < saved.count; i++) {
        saved.slots = strcmp(arrays[i].name, COD_EXCHANGE_SLOTS) == 0 ? i : saved.slots;
        memcpy(saved.name[i], arrays[i].name, sizeof saved.name[i]);
        saved.bytes[i] = arrays[i].bytes;
        saved.data[i] = malloc(arrays[i].bytes);
        memcpy(saved.data[i], arrays[i].data, arrays[i].bytes);
    }
    return saved;
}

cod_status run_fill(exchange_run *r, run_saved *saved)
{
    const cod_exchange_array *arrays;
    size_t count;
    must(cod_exchange_state(r->exchange, &arrays, &count));
    must(count == saved->count ? COD_OK : cod_fail(COD_ERR_FORMAT, "another number of arrays"));
    for (size_t i = 0; i < count; i++) {
        if (i == saved->slots)
            continue;
        must(arrays[i].bytes == saved->bytes[i] ? COD_OK : cod_fail(COD_ERR_FORMAT, "%s changed", arrays[i].name));
        memcpy(arrays[i].data, saved->data[i], saved->bytes[i]);
    }
    must(cod_group_barrier(r->group)); /* the ranks of a node have filled the same memory */
    const cod_status status = cod_exchange_restored(r->exchange, saved->data[saved->slots], saved->bytes[saved->slots]);
    for (size_t i = 0; i < count; i++)
        free(saved->data[i]);
    const int fragments = cod_exchange_fragments(&r->options);
    for (int i = 0; status == COD_OK && i < cod_exchange_peer_count(r->exchange) * fragments; i++) {
        cod_exchange_checkpoint c;
        cod_exchange_read_checkpoint(r->exchange, i / fragments, i % fragments, &c);
        r->held[cod_exchange_peer_group(r->exchange, i / fragments)][i % fragments] = c.version;
    }
    return status;
}

void run_restore(exchange_run *r, run_saved *saved)
{
    must(run_fill(r, saved));
}

/* Steps that compute for a given time, and exchange weights that move as those of training do. */
#include "tools/bench/exchange.h"

#include "comm/group.h"
#include "core/memory.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "core/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { AGREEMENT_DELAY = 2, WORK_VALUES = 4096, NOISE_VALUES = 65521, ALONE_STEPS = 100 };

/**
 * How far weights move from one publication to the next, of their size: as measured in training
 * (docs/exchange-measurements.md).
 */
static const float movement = 0.03f;

/** What the ranks of a group told each other in one step. */
typedef struct told {
    bool pending;
    double values[COD_EXCHANGE_FLAGS_MOST];
    cod_request *request;
} told;

typedef struct bench {
    cod_comm *comm;
    cod_group *group;
    cod_exchange *exchange;
    const cod_bench_exchange_options *options;
    int64_t steps, step;
    long rounds; /**< of work in a step */
    float *values, *noise, *work;
    told told[AGREEMENT_DELAY];
    uint64_t *held;                       /**< [groups * fragments] version */
    double *step_s;                       /**< [steps] */
    double *published_s;                  /**< [versions()] when each version was published; 0 = not */
    double *taken_s;                      /**< [groups][versions()] when it was taken over; 0 = not */
    double *staleness;                    /**< [takeovers] */
    size_t takeovers, takeovers_capacity; /**< of staleness */
} bench;

/** One more than the highest version. */
static size_t versions(const bench *b)
{
    return (size_t)(b->steps / cod_exchange_spacing(&b->options->exchange)) + 1;
}

static double processor_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/**
 * Arithmetic in the first cache, in place of a training step. One copy: each inlined one would be optimised to a speed
 * of its own.
 */
static __attribute__((noinline)) void compute(bench *b)
{
    for (long r = 0; r < b->rounds; r++)
        for (size_t i = 0; i < WORK_VALUES; i++)
            b->work[i] = b->work[i] * 0.999f + 0.001f;
}

/** What stands for a training step. */
static void work(bench *b)
{
    const long ns = lround(1e6 * b->options->step_ms), second = 1000000000;
    if (b->options->sleep)
        nanosleep(&(struct timespec){.tv_sec = ns / second, .tv_nsec = ns % second}, NULL);
    else
        compute(b);
}

/** Finds how many rounds take step_ms where nobody disturbs. */
static void calibrate(bench *b)
{
    enum { TRIALS = 20, ROUNDS = 100 };
    double shortest = INFINITY;
    b->rounds = ROUNDS;
    for (int i = 0; i < TRIALS; i++) {
        const double begin = cod_clock_s();
        compute(b);
        shortest = fmin(shortest, cod_clock_s() - begin);
    }
    b->rounds = lround(fmax(1, ROUNDS * 1e-3 * b->options->step_ms / shortest));
}

static cod_status make_buffers(bench *b)
{
    const size_t count = (size_t)b->options->weights, groups = (size_t)cod_group_count(b->group);
    b->takeovers_capacity = groups * versions(b);
    b->step_s = calloc((size_t)b->steps, sizeof *b->step_s);
    b->published_s = calloc(versions(b), sizeof *b->published_s);
    b->taken_s = calloc(groups * versions(b), sizeof *b->taken_s);
    b->staleness = calloc(b->takeovers_capacity, sizeof *b->staleness);
    b->held = calloc(groups * (size_t)cod_exchange_fragments(&b->options->exchange), sizeof *b->held);
    COD_REQUIRE_MEMORY(b->step_s);
    COD_REQUIRE_MEMORY(b->published_s);
    COD_REQUIRE_MEMORY(b->taken_s);
    COD_REQUIRE_MEMORY(b->staleness);
    COD_REQUIRE_MEMORY(b->held);
    COD_TRY(cod_aligned_alloc((void **)&b->values, count * sizeof(float)));
    COD_TRY(cod_aligned_alloc((void **)&b->noise, NOISE_VALUES * sizeof(float)));
    COD_TRY(cod_aligned_alloc((void **)&b->work, WORK_VALUES * sizeof(float)));
    memset(b->work, 0, WORK_VALUES * sizeof(float));
    cod_rng rng = cod_rng_open(1, (uint32_t)cod_group_index(b->group), 0, 0, COD_RNG_TEST, 0);
    for (size_t i = 0; i < NOISE_VALUES; i++)
        b->noise[i] = (float)cod_rng_normal(&rng);
    for (size_t i = 0; i < count; i++)
        b->values[i] = b->noise[i % NOISE_VALUES];
    return COD_OK;
}

/** Once a period, before a publication; not part of a step. */
static void move_weights(bench *b)
{
    const size_t shift = (size_t)b->step * 7919;
    for (size_t i = 0; i < (size_t)b->options->weights; i++)
        b->values[i] += movement * b->noise[(i + shift) % NOISE_VALUES];
}

/** Notes which versions were newly taken over. */
static void look(bench *b)
{
    const int fragments = cod_exchange_fragments(&b->options->exchange);
    for (int i = 0; i < cod_exchange_peer_count(b->exchange) * fragments; i++) {
        const int group = cod_exchange_peer_group(b->exchange, i / fragments);
        uint64_t *held = &b->held[group * fragments + i % fragments];
        cod_exchange_checkpoint c;
        cod_exchange_read_checkpoint(b->exchange, i / fragments, i % fragments, &c);
        if (c.version == *held)
            continue;
        *held = c.version;
        b->taken_s[(size_t)group * versions(b) + c.version] = cod_clock_s();
        if (b->takeovers < b->takeovers_capacity)
            b->staleness[b->takeovers++] = (double)(c.pulled_at - c.step);
    }
}

/** Acts on what the group's ranks told each other in step - AGREEMENT_DELAY. */
static cod_status hear(bench *b, int64_t step)
{
    told *t = &b->told[step % AGREEMENT_DELAY];
    if (!t->pending)
        return COD_OK;
    t->pending = false;
    COD_TRY(cod_request_wait(&t->request, INFINITY));
    return cod_exchange_flags_in(b->exchange, step, t->values);
}

static cod_status tell(bench *b)
{
    told *t = &b->told[b->step % AGREEMENT_DELAY];
    t->pending = true;
    cod_exchange_flags_out(b->exchange, t->values);
    return cod_group_size(b->group) == 1
               ? COD_OK
               : cod_group_reduce_start(b->group, t->values, cod_exchange_flag_count(b->exchange), COD_REDUCE_SUM,
                                        &t->request);
}

static cod_status one_step(bench *b)
{
    const int64_t done = b->step + 1;
    const bool due = cod_exchange_publish_due(b->exchange, done);
    if (due && done % b->options->exchange.period == 0)
        move_weights(b);
    const double begin = cod_clock_s();
    COD_TRY(hear(b, b->step));
    work(b);
    if (due) {
        b->published_s[done / cod_exchange_spacing(&b->options->exchange)] = cod_clock_s();
        cod_exchange_part part;
        COD_TRY(cod_exchange_snapshot(b->exchange, done, &part));
        memcpy(part.values->host, b->values + part.first, part.count * sizeof(float));
        COD_TRY(cod_exchange_publish(b->exchange, done, 0));
    }
    COD_TRY(cod_exchange_advance(b->exchange, done));
    look(b);
    COD_TRY(tell(b));
    b->step_s[b->step++] = cod_clock_s() - begin;
    return COD_OK;
}

/** Sorts. NaN when there are none. */
static double percentile(double *values, size_t count, double part)
{
    cod_median(values, count);
    return count > 0 ? values[(size_t)fmin((double)count - 1, ceil(part * (double)count) - 1)] : NAN;
}

static cod_status run_alone(bench *b, cod_bench_exchange_result *out)
{
    double times[ALONE_STEPS];
    COD_TRY(cod_group_barrier(cod_comm_world(b->comm)));
    for (size_t i = 0; i < ALONE_STEPS; i++) {
        const double begin = cod_clock_s();
        work(b);
        times[i] = cod_clock_s() - begin;
    }
    out->alone_p99_ms = 1e3 * percentile(times, ALONE_STEPS, 0.99);
    out->alone_ms = 1e3 * cod_median(times, ALONE_STEPS);
    return cod_group_barrier(cod_comm_world(b->comm));
}

static cod_status run_exchange(bench *b, cod_bench_exchange_result *out)
{
    cod_comm_counters before, after;
    cod_exchange_counters counters;
    cod_comm_read_counters(b->comm, &before);
    const double begin = cod_clock_s(), used = processor_s();
    while (b->step < b->steps)
        COD_TRY(one_step(b));
    const double wall_s = cod_clock_s() - begin, steps = (double)b->steps;
    out->processors = (processor_s() - used) / wall_s;
    for (int64_t i = 0; i < AGREEMENT_DELAY; i++)
        COD_TRY(hear(b, b->step + i));
    cod_comm_read_counters(b->comm, &after);
    cod_exchange_read_counters(b->exchange, &counters);
    out->progress_ms = 1e3 * (after.progress_s - before.progress_s) / steps;
    out->exchange_ms = 1e3 * counters.seconds / steps;
    out->step_p99_ms = 1e3 * percentile(b->step_s, (size_t)b->steps, 0.99);
    out->step_ms = 1e3 * cod_median(b->step_s, (size_t)b->steps);
    out->published_bytes = (double)counters.published_bytes / steps;
    const double of_fragment = (double)b->options->weights / cod_exchange_fragments(&b->options->exchange);
    out->ratio =
        4.0 * of_fragment / cod_group_size(b->group) * (double)counters.published / (double)counters.published_bytes;
    out->published = (double)counters.published;
    out->taken = (double)counters.pulled;
    out->lost = (double)counters.lost;
    out->rejected = (double)counters.rejected;
    return COD_OK;
}

/** @param published  [ranks][versions()] when each was published; @param delays  [groups * versions()], overwritten */
static void measure_delays(const bench *b, const double *published, double *delays, cod_bench_exchange_result *out)
{
    const size_t groups = (size_t)cod_group_count(b->group);
    size_t count = 0;
    for (size_t g = 0; g < groups; g++)
        for (size_t v = 0; v < versions(b); v++) {
            const size_t rank = (size_t)cod_group_world_rank(b->group, (int)g, 0);
            const double taken = b->taken_s[g * versions(b) + v];
            if (taken > 0)
                delays[count++] = taken - published[rank * versions(b) + v];
        }
    out->use_p99_ms = 1e3 * percentile(delays, count, 0.99);
    out->use_ms = count > 0 ? 1e3 * cod_median(delays, count) : NAN;
    out->staleness_steps = b->takeovers > 0 ? cod_median(b->staleness, b->takeovers) : NAN;
    out->bandwidth = 4e3 * (double)b->options->weights / out->use_ms;
}

/** From every publication of another group to its use here. One clock serves all ranks. */
static cod_status find_delays(bench *b, cod_bench_exchange_result *out)
{
    const size_t ranks = (size_t)cod_comm_size(b->comm), groups = (size_t)cod_group_count(b->group);
    double *published = calloc(ranks * versions(b), sizeof *published);
    double *delays = calloc(groups * versions(b), sizeof *delays);
    cod_status status = published != NULL && delays != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "no memory for times");
    status = cod_group_agree(cod_comm_world(b->comm), status, NULL);
    COD_THEN(status,
             cod_group_gather(cod_comm_world(b->comm), b->published_s, versions(b) * sizeof *published, published));
    if (status == COD_OK)
        measure_delays(b, published, delays, out);
    free(delays);
    free(published);
    return status;
}

/** Sums of what is counted, medians of the rest. @param column  [ranks], overwritten */
static void merge(const cod_bench_exchange_result *all, size_t ranks, double *column, cod_bench_exchange_result *out)
{
    enum { NUMBERS = sizeof *out / sizeof(double), SUMMED = 5 };
    double *const summed[SUMMED] = {&out->published_bytes, &out->published, &out->taken, &out->lost, &out->rejected};
    cod_bench_exchange_result sums = *out;
    for (size_t n = 0; n < NUMBERS; n++) {
        size_t count = 0;
        double sum = 0;
        for (size_t r = 0; r < ranks; r++) {
            const double value = ((const double *)&all[r])[n];
            sum += value;
            if (!isnan(value))
                column[count++] = value;
        }
        ((double *)out)[n] = count > 0 ? cod_median(column, count) : NAN;
        ((double *)&sums)[n] = sum;
    }
    for (size_t i = 0; i < SUMMED; i++)
        *summed[i] = ((const double *)&sums)[(double *)summed[i] - (double *)out];
}

static cod_status merge_ranks(bench *b, cod_bench_exchange_result *out)
{
    const size_t ranks = (size_t)cod_comm_size(b->comm);
    cod_bench_exchange_result *all = calloc(ranks, sizeof *all);
    double *column = calloc(ranks, sizeof *column);
    cod_status status = all != NULL && column != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "no memory for results");
    status = cod_group_agree(cod_comm_world(b->comm), status, NULL);
    COD_THEN(status, cod_group_gather(cod_comm_world(b->comm), out, sizeof *out, all));
    if (status == COD_OK)
        merge(all, ranks, column, out);
    free(column);
    free(all);
    return status;
}

static cod_status make_groups(bench *b)
{
    const int ranks = cod_comm_size(b->comm), groups = b->options->groups;
    COD_REQUIRE(
        groups >= 2 && ranks % groups == 0,
        "a job of size %d does not divide into %d groups; start it with: mpirun -n RANKS codistill bench exchange",
        ranks, groups);
    COD_REQUIRE(
        b->options->one_clock || cod_comm_node_count(b->comm) == 1,
        "ranks lie on %d hosts, whose clocks differ; --net measures links, and --one-clock is for tools/netlab.sh",
        cod_comm_node_count(b->comm));
    int *sizes = calloc((size_t)groups, sizeof *sizes);
    COD_REQUIRE_MEMORY(sizes);
    for (int g = 0; g < groups; g++)
        sizes[g] = ranks / groups;
    const cod_status status = cod_group_create(b->comm, sizes, (size_t)groups, &b->group);
    free(sizes);
    return status;
}

static cod_status make_exchange(bench *b)
{
    const size_t groups = (size_t)cod_group_count(b->group);
    cod_exchange_model *models = calloc(groups, sizeof *models);
    COD_REQUIRE_MEMORY(models);
    for (size_t g = 0; g < groups; g++)
        models[g] = (cod_exchange_model){.count = (uint64_t)b->options->weights, .hash = 1};
    const cod_status status =
        cod_exchange_create(b->comm, b->group, &b->options->exchange, models, (uint64_t)1, &b->exchange);
    free(models);
    return status;
}

static cod_status run(bench *b, cod_bench_exchange_result *out)
{
    COD_TRY(make_groups(b));
    COD_TRY(cod_group_agree(cod_comm_world(b->comm), make_buffers(b), NULL));
    calibrate(b);
    COD_TRY(run_alone(b, out));
    COD_TRY(make_exchange(b));
    COD_TRY(run_exchange(b, out));
    COD_TRY(find_delays(b, out));
    COD_TRY(merge_ranks(b, out));
    return cod_exchange_destroy(b->exchange);
}

cod_status cod_bench_exchange_run(cod_comm *comm, const cod_bench_exchange_options *options,
                                  cod_bench_exchange_result *out)
{
    bench b = {.comm = comm, .options = options};
    *out = (cod_bench_exchange_result){0};
    b.steps = options->exchange.period * options->publications;
    const cod_status status = run(&b, out);
    cod_group_destroy(b.group);
    cod_aligned_free(b.values);
    cod_aligned_free(b.noise);
    cod_aligned_free(b.work);
    free(b.step_s);
    free(b.published_s);
    free(b.taken_s);
    free(b.staleness);
    free(b.held);
    return status;
}

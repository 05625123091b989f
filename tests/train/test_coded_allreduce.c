#include "comm/job.h"

#include "comm/group.h"
#include "core/memory.h"
#include "core/rng.h"
#include "train/coded_allreduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, BUCKETS = 12 };

/** The job's ranks as a group, a coded all-reduce of it, and the gradients. */
typedef struct fixture {
    cod_group *group;
    cod_coded_allreduce *allreduce;
    cod_collective *coded;
    cod_buffer buffer;
    float *values;
    size_t count;
} fixture;

static void open_fixture(fixture *f, size_t count)
{
    const int size = cod_comm_size(job);
    f->count = count;
    f->buffer.bytes = count * sizeof(float);
    check_ok(cod_aligned_alloc(&f->buffer.host, f->buffer.bytes));
    f->values = f->buffer.host;
    check_ok(cod_group_create(job, &size, 1, &f->group));
    check_ok(cod_coded_allreduce_create(f->group, count, &f->allreduce));
    f->coded = cod_coded_allreduce_collective(f->allreduce);
}

static void close_fixture(fixture *f)
{
    cod_coded_allreduce_destroy(f->allreduce);
    cod_group_destroy(f->group);
    cod_aligned_free(f->buffer.host);
}

/**
 * Averages all values in buckets, from the last to the first as backward makes them; waits in an order of each rank's
 * own.
 */
static cod_status average(const fixture *f, cod_collective *c, cod_buffer *buffer)
{
    cod_reduction *reductions[BUCKETS];
    for (size_t b = BUCKETS; b-- > 0;) {
        const size_t from = f->count * b / BUCKETS, end = f->count * (b + 1) / BUCKETS;
        COD_TRY(c->ops->average_start(c, buffer, from * sizeof(float), end - from, NULL, &reductions[b]));
    }
    for (int b = 0; b < BUCKETS; b++)
        COD_TRY(c->ops->wait(reductions[(b * 7 + c->rank) % BUCKETS], NULL));
    return c->ops->wait(NULL, NULL);
}

/** Whether all ranks hold the same bits. */
static bool is_one(const fixture *f)
{
    float *first = malloc(f->buffer.bytes);
    if (first == NULL)
        return false;
    memcpy(first, f->values, f->buffer.bytes);
    const bool told = cod_group_broadcast(f->group, first, f->buffer.bytes, 0) == COD_OK;
    const bool same = told && memcmp(first, f->values, f->buffer.bytes) == 0;
    free(first);
    return same;
}

/** Gradients of one rank and step: a few large ones among many small ones. */
static void fill_random(const fixture *f, int rank, int step)
{
    cod_rng rng = cod_rng_open(3, 0, (uint32_t)rank, (uint64_t)step, COD_RNG_TEST, 0);
    for (size_t i = 0; i < f->count; i++) {
        const double normal = cod_rng_normal(&rng);
        f->values[i] = (float)(1e-3 * normal * normal * normal);
    }
}

/** Blocks of whole multiples of one scale, up to 127 of it, whose means are such multiples too: nothing is rounded. */
static void fill_whole(const fixture *f, int rank)
{
    for (size_t b = 0; b < BUCKETS; b++) {
        const size_t from = f->count * b / BUCKETS, end = f->count * (b + 1) / BUCKETS;
        for (size_t i = from; i < end; i++) {
            const int whole = (i - from) % BLOCK == 0 ? 127 : 12 * ((int)((i * 7 + (size_t)rank * 3) % 21) - 10);
            f->values[i] = ldexpf((float)whole, -(int)((i - from) / BLOCK % 9));
        }
    }
}

TEST(what_blocks_hold_exactly_is_averaged_as_f32_is)
{
    static const size_t counts[] = {BUCKETS, 1000, BUCKETS * BLOCK * 4, 100003};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        fixture f = {0};
        open_fixture(&f, counts[k]);
        cod_buffer exact = {.bytes = f.buffer.bytes};
        check_ok(cod_aligned_alloc(&exact.host, exact.bytes));
        for (int round = 0; round < 3; round++) {
            fill_whole(&f, f.coded->rank);
            memcpy(exact.host, f.values, exact.bytes);
            check_ok(average(&f, f.coded, &f.buffer));
            check_ok(average(&f, cod_group_collective(f.group), &exact));
            check_all(memcmp(f.values, exact.host, exact.bytes) == 0);
        }
        bool owes = false;
        for (size_t i = 0; i < f.count; i++)
            owes = owes || cod_coded_allreduce_residual(f.allreduce)[i] != 0;
        check_all(!owes);
        cod_aligned_free(exact.host);
        close_fixture(&f);
    }
}

/** What was averaged and what is owed, over steps and ranks, is what was to be averaged. */
TEST(all_ranks_get_the_same_bits_and_nothing_is_lost)
{
    enum { COUNT = 40009, STEPS = 5 };
    fixture f = {0};
    open_fixture(&f, COUNT);
    double *wanted = calloc(2 * COUNT, sizeof *wanted), *got = wanted + COUNT, difference = 0, coarse = 0;
    check_all(wanted != NULL);
    for (int step = 0; step < STEPS; step++) {
        fill_random(&f, f.coded->rank, step);
        for (size_t i = 0; i < COUNT; i++)
            wanted[i] += (double)f.values[i];
        check_ok(average(&f, f.coded, &f.buffer));
        check_all(is_one(&f));
        for (size_t i = 0; i < COUNT; i++)
            got[i] += (double)f.values[i];
    }
    for (size_t i = 0; i < COUNT; i++) {
        coarse = fmax(coarse, fabs((double)cod_coded_allreduce_residual(f.allreduce)[i]));
        wanted[i] -= (double)cod_coded_allreduce_residual(f.allreduce)[i];
    }
    check_ok(cod_group_reduce(f.group, wanted, COUNT, COD_REDUCE_SUM));
    for (size_t i = 0; i < COUNT; i++)
        difference = fmax(difference, fabs(wanted[i] / f.coded->size - got[i]));
    check_all(difference < 1e-7 && coarse > 1e-5); /* rounding of f32, and that of coding */
    free(wanted);
    close_fixture(&f);
}

/**
 * How far the sum of many averages of equal gradients is from that of as many means, in multiples of the coarsest
 * scale.
 */
static double farthest_sum(fixture *f, bool feedback)
{
    enum { STEPS = 60 };
    double *sums = calloc(2 * f->count, sizeof *sums), *means = sums + f->count, far = 0, largest = 0;
    check_all(sums != NULL);
    memset(cod_coded_allreduce_residual(f->allreduce), 0, f->buffer.bytes);
    fill_random(f, f->coded->rank, 0);
    for (size_t i = 0; i < f->count; i++) {
        means[i] = (double)f->values[i];
        largest = fmax(largest, fabs(means[i]));
    }
    check_ok(cod_group_reduce(f->group, means, f->count, COD_REDUCE_SUM));
    check_ok(cod_group_reduce(f->group, &largest, 1, COD_REDUCE_MAX));
    for (int step = 0; step < STEPS; step++) {
        fill_random(f, f->coded->rank, 0);
        check_ok(average(f, f->coded, &f->buffer));
        for (size_t i = 0; i < f->count; i++)
            sums[i] += (double)f->values[i];
        if (!feedback)
            memset(cod_coded_allreduce_residual(f->allreduce), 0, f->buffer.bytes);
    }
    for (size_t i = 0; i < f->count; i++)
        far = fmax(far, fabs(sums[i] - STEPS * means[i] / f->coded->size));
    free(sums);
    return far / (largest / 127);
}

/**
 * Half a scale is owed for the rank's values and half for the mean, however many steps there were; without feedback,
 * each time.
 */
TEST(what_coding_loses_is_sent_later)
{
    fixture f = {0};
    open_fixture(&f, 20000);
    const double far = farthest_sum(&f, true), lost = farthest_sum(&f, false);
    check_all(far < 1.3 && lost > 10);
    close_fixture(&f);
}

TEST(what_is_not_finite_reaches_all)
{
    enum { COUNT = 30000 };
    for (int kind = 0; kind < 2; kind++) {
        fixture f = {0};
        size_t bad = 0;
        open_fixture(&f, COUNT);
        fill_random(&f, f.coded->rank, kind);
        if (f.coded->rank == f.coded->size - 1)
            f.values[COUNT / 3] = kind == 0 ? NAN : -INFINITY;
        check_ok(average(&f, f.coded, &f.buffer));
        for (size_t i = 0; i < COUNT; i++)
            bad += isfinite(f.values[i]) ? 0 : 1;
        check_all(isnan(f.values[COUNT / 3]) && bad <= BLOCK);
        close_fixture(&f);
    }
}

/** The residual is all that an all-reduce remembers. */
TEST(another_goes_on_from_the_residual)
{
    enum { COUNT = 20000 };
    fixture f = {0}, other = {0};
    open_fixture(&f, COUNT);
    open_fixture(&other, COUNT);
    for (int step = 0; step < 3; step++) {
        fill_random(&f, f.coded->rank, step);
        check_ok(average(&f, f.coded, &f.buffer));
    }
    memcpy(cod_coded_allreduce_residual(other.allreduce), cod_coded_allreduce_residual(f.allreduce), f.buffer.bytes);
    for (int step = 3; step < 5; step++) {
        fill_random(&f, f.coded->rank, step);
        fill_random(&other, f.coded->rank, step);
        check_ok(average(&f, f.coded, &f.buffer));
        check_ok(average(&other, other.coded, &other.buffer));
        check_all(memcmp(f.values, other.values, f.buffer.bytes) == 0);
    }
    close_fixture(&f);
    close_fixture(&other);
}

TEST(a_quarter_of_the_bytes_is_sent_and_counted)
{
    enum { COUNT = 200000 };
    fixture f = {0};
    cod_comm_counters before, after;
    open_fixture(&f, COUNT);
    fill_random(&f, f.coded->rank, 0);
    cod_comm_read_counters(job, &before);
    check_ok(average(&f, f.coded, &f.buffer));
    cod_comm_read_counters(job, &after);
    const double sent = (double)(after.group_bytes - before.group_bytes), size = f.coded->size;
    const double planned = cod_coded_allreduce_sent_bytes(COUNT, f.coded->size), exact = 8 * COUNT * (size - 1) / size;
    check_all(fabs(sent - planned) <= 0.02 * planned && fabs(sent - exact / 3.97) <= 0.02 * exact);
    close_fixture(&f);
}

TEST(a_reduction_that_tests_done_holds_the_average)
{
    fixture f = {0};
    cod_reduction *reduction = NULL;
    open_fixture(&f, 5001);
    fill_random(&f, f.coded->rank, 0);
    check_ok(f.coded->ops->average_start(f.coded, &f.buffer, 0, f.count, NULL, &reduction));
    cod_status status = COD_OK;
    for (bool done = false; status == COD_OK && !done;)
        status = f.coded->ops->test(reduction, &done);
    check_ok(status);
    check_all(is_one(&f));
    check_ok(f.coded->ops->wait(reduction, NULL));
    check_all(is_one(&f));
    close_fixture(&f);
}

TEST(a_range_outside_its_buffer_is_refused)
{
    fixture f = {0};
    cod_reduction *reduction = NULL;
    open_fixture(&f, 8);
    cod_collective *c = f.coded;
    cod_buffer device = {.bytes = f.buffer.bytes}, longer = {.host = f.values, .bytes = 2 * f.buffer.bytes};
    check_all(job_failed(c->ops->average_start(c, &f.buffer, 4, 8, NULL, &reduction), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(c->ops->average_start(c, &f.buffer, 64, 1, NULL, &reduction), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(c->ops->average_start(c, &f.buffer, 2, 1, NULL, &reduction), COD_ERR_ARGUMENT, "outside"));
    check_all(job_failed(c->ops->average_start(c, &longer, 32, 1, NULL, &reduction), COD_ERR_ARGUMENT, "outside"));
    check_all(
        job_failed(c->ops->average_start(c, &device, 0, 8, NULL, &reduction), COD_ERR_UNSUPPORTED, "host memory"));
    close_fixture(&f);
}

TEST_GROUP(job_setup, job_teardown)

#include "comm/bench.h"

#include "comm/comm_internal.h"
#include "comm/group_internal.h"
#include "core/memory.h"
#include "core/statistics.h"
#include "core/trace.h"

enum { MAX_BUCKETS = 256, MAX_ROUNDS = 1001 };

static cod_status blocking(cod_group *group, float *values, size_t count, double *seconds)
{
    COD_TRY(cod_group_barrier(group));
    const double begin = cod_clock_s();
    comm_lock(group->comm);
    const cod_status status = COD_MPI(MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_FLOAT, MPI_SUM, group->mpi));
    comm_unlock(group->comm);
    *seconds = cod_clock_s() - begin;
    return status;
}

/** Work that the processor cannot skip, about `seconds` long. */
static void compute(double seconds)
{
    volatile double sum = 0;
    for (const double begin = cod_clock_s(); cod_clock_s() - begin < seconds;)
        for (int i = 0; i < 1000; i++)
            sum = sum + i;
}

/** Starts the buckets, `between` seconds of computing before each, and waits for all. */
static cod_status bucketed(cod_group *group, cod_buffer *buffer, size_t count, int buckets, double between,
                           double *seconds)
{
    cod_reduction *reductions[MAX_BUCKETS];
    cod_collective *collective = cod_group_collective(group);
    COD_TRY(cod_group_barrier(group));
    const double begin = cod_clock_s();
    for (int i = 0; i < buckets; i++) {
        const size_t from = count * (size_t)i / (size_t)buckets, end = count * (size_t)(i + 1) / (size_t)buckets;
        compute(between);
        COD_TRY(
            collective->ops->average_start(collective, buffer, from * sizeof(float), end - from, NULL, &reductions[i]));
    }
    for (int i = 0; i < buckets; i++)
        COD_TRY(collective->ops->wait(reductions[i], NULL));
    *seconds = cod_clock_s() - begin;
    return COD_OK;
}

static cod_status measure(cod_group *group, cod_buffer *buffer, int buckets, int rounds,
                          cod_bench_allreduce_result *out)
{
    double plain[MAX_ROUNDS], cut[MAX_ROUNDS], ratio[MAX_ROUNDS], overlapped[MAX_ROUNDS];
    const size_t count = buffer->bytes / sizeof(float);
    for (int i = -3; i < rounds; i++) {
        const int slot = i < 0 ? 0 : i;
        COD_TRY(blocking(group, buffer->host, count, &plain[slot]));
        COD_TRY(bucketed(group, buffer, count, buckets, 0, &cut[slot]));
        ratio[slot] = cut[slot] / plain[slot];
    }
    out->blocking_s = cod_median(plain, (size_t)rounds);
    out->bucketed_s = cod_median(cut, (size_t)rounds);
    out->ratio = cod_median(ratio, (size_t)rounds);
    out->compute_s = 2 * out->blocking_s;
    COD_TRY(cod_group_broadcast(group, &out->compute_s, sizeof out->compute_s, 0));
    for (int i = 0; i < rounds; i++)
        COD_TRY(bucketed(group, buffer, count, buckets, out->compute_s / buckets, &overlapped[i]));
    out->overlapped_s = cod_median(overlapped, (size_t)rounds);
    return COD_OK;
}

cod_status cod_bench_allreduce(cod_group *group, size_t bytes, int buckets, int rounds, cod_bench_allreduce_result *out)
{
    COD_REQUIRE(buckets >= 1 && buckets <= MAX_BUCKETS && rounds >= 1 && rounds <= MAX_ROUNDS &&
                    bytes / sizeof(float) <= 1 << 28,
                "at most %d buckets, %d rounds and 1 GiB", MAX_BUCKETS, MAX_ROUNDS);
    cod_buffer buffer = {.bytes = bytes / sizeof(float) * sizeof(float)};
    COD_TRY(cod_aligned_alloc(&buffer.host, buffer.bytes));
    const cod_status status = measure(group, &buffer, buckets, rounds, out);
    cod_aligned_free(buffer.host);
    return status;
}

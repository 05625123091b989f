/*
 * Sums of slopes' gradients over blocks (src/cuda/slopes.cuh): of any number of blocks, in one order; a missing barrier
 * is found.
 */
#include "cuda/sums.cuh"

/* A copy of the functions in which the barrier may be left out. */
static bool missing;

static void planted_block_sync()
{
    if (!missing)
        block_sync();
}

#define block_sync planted_block_sync
#include "cuda/slopes.cuh"
#undef block_sync

#include <cmath>
#include <cstdlib>

extern "C" {
#include "emulated/emulated.h"
#include "pair.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

enum { THREADS = 64 };

/** What a block of a series has for a slope: such that sums depend on their order. */
static __host__ __device__ float value_of(int series, int number, int list)
{
    return 1.0f / (float)(1 + (series * 131 + number * 17 + list * 7) % 1009);
}

/** The grid: blocks of a series in x, series in y. */
__global__ void __launch_bounds__(THREADS) sums_kernel(const cuda_slopes slopes, int count)
{
    chain_wait();
    const slope_place at = {(int)blockIdx.y, (int)blockIdx.x, (int)gridDim.x};
    float *out = slope_partials(slopes, at);
    for (int list = (int)threadIdx.x; list < slopes.lists; list += THREADS)
        out[list] = value_of(at.series, at.number, list);
    slopes_finish(slopes, at, at.series * slopes.lists, count);
}

struct sums_case {
    int series, blocks, lists, count;
};

/** Runs the case twice on the same memory; new array of the second run's results, free() it. */
static float *sums_of(const sums_case &c, uint64_t seed)
{
    cuda_slopes slopes = {nullptr, c.lists, nullptr, nullptr};
    const size_t results = static_cast<size_t>(c.series * c.lists + 1),
                 floats = static_cast<size_t>(slope_floats(slopes, c.series, c.blocks)),
                 tickets = static_cast<size_t>(slope_tickets(c.series, c.blocks));
    void *memory[3];
    assert_ok(cuda_memory_create(test_cuda.device, results * sizeof(float), &memory[0]));
    assert_ok(cuda_memory_create(test_cuda.device, floats * sizeof(float), &memory[1]));
    assert_ok(cuda_memory_create(test_cuda.device, tickets * sizeof(unsigned), &memory[2]));
    slopes.dslope = static_cast<float *>(memory[0]);
    slopes.partials = static_cast<float *>(memory[1]);
    slopes.tickets = static_cast<unsigned *>(memory[2]);
    cod_device *device = test_cuda.device;
    cod_emulated_set_seed(seed);
    const dim3 grid(static_cast<unsigned>(c.blocks), static_cast<unsigned>(c.series));
    for (int run = 0; run < 2; run++)
        assert_ok(cuda_launch(device->stream, sums_kernel, grid, THREADS, THREADS * sizeof(float), slopes, c.count));
    float *out = static_cast<float *>(calloc(results, sizeof *out));
    assert_non_null(out);
    assert_ok(COD_CUDA(cudaMemcpyAsync(out, memory[0], results * sizeof *out, cudaMemcpyDeviceToHost, device->stream)));
    assert_ok(COD_CUDA(cudaStreamSynchronize(device->stream)));
    for (void *each : memory)
        cudaFree(each);
    return out;
}

/** Whether the sums are right, and those past `count` were left alone. */
static bool is_right(const sums_case &c, const float *sums)
{
    for (int i = 0; i < c.series * c.lists; i++) {
        const int series = i / c.lists, list = i % c.lists;
        double expected = 0;
        for (int number = 0; number < c.blocks && list < c.count; number++)
            expected += static_cast<double>(value_of(series, number, list));
        if (!(fabs(static_cast<double>(sums[i]) - expected) <= 1e-5 * expected))
            return false;
    }
    return true;
}

static const sums_case cases[] = {{1, 1, 1, 1},   {1, 63, 1, 1},    {1, 64, 16, 16}, {1, 65, 16, 9},
                                  {3, 129, 2, 2}, {2, 200, 64, 64}, {1, 4200, 1, 1}, {1, 130, 24, 24}};

TEST(sums_are_right_and_in_one_order)
{
    for (const sums_case &c : cases) {
        float *first = sums_of(c, 1);
        assert_true(is_right(c, first));
        for (uint64_t seed = 2; seed < 5; seed++) {
            float *other = sums_of(c, seed);
            assert_memory_equal(other, first, static_cast<size_t>(c.series * c.lists) * sizeof *first);
            free(other);
        }
        free(first);
    }
    cod_test_assert_none(cod_emulated_faults, "in all orders");
}

TEST(a_missing_barrier_is_found)
{
    char message[512];
    const sums_case c = {1, 200, 1, 1};
    int found = 0;
    missing = true;
    for (uint64_t seed = 0; seed < 8; seed++) {
        float *sums = sums_of(c, seed);
        found += !is_right(c, sums) || cod_emulated_faults(message, sizeof message) > 0;
        free(sums);
    }
    missing = false;
    assert_true(found > 0);
}

TEST_GROUP(test_pair_open, test_pair_close)

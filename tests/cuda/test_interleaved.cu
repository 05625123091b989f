/** Blocks that take turns, and kernels that begin before the one in front of them has ended: faults that they show. */
#include "orders.cuh"

#include <cstdlib>

static const unsigned BLOCKS = 4, ORDERS = 64;

/** Each block writes a number; the last one sums all of them. `early`: it says that it has come before it writes. */
__global__ void last_kernel(float *values, unsigned *ticket, float *sum, bool early)
{
    unsigned *shared = shared_memory<unsigned>();
    if (early && threadIdx.x == 0)
        shared[0] = ticket_take(ticket);
    if (threadIdx.x == 32)
        values[blockIdx.x] = (float)(blockIdx.x + 1);
    block_sync();
    if (!early && threadIdx.x == 0)
        shared[0] = ticket_take(ticket);
    block_sync();
    if (shared[0] != gridDim.x - 1 || threadIdx.x != 0)
        return;
    float total = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
        total += values[i];
    sum[0] = total;
}

static int wrong_sums(bool early)
{
    float *values = device_floats(BLOCKS), *ticket = device_floats(1), *sum = device_floats(1);
    int wrong = 0;
    for (uint64_t seed = 0; seed < ORDERS; seed++) {
        cod_emulated_set_seed(seed);
        memset(values, 0, BLOCKS * sizeof *values);
        memset(ticket, 0, sizeof *ticket);
        assert_ok(cuda_launch(nullptr, last_kernel, BLOCKS, THREADS, 4, values, reinterpret_cast<unsigned *>(ticket),
                              sum, early));
        wrong += sum[0] != 10;
    }
    cudaFree(values);
    cudaFree(ticket);
    cudaFree(sum);
    return wrong;
}

TEST(a_ticket_taken_too_early_gives_wrong_results)
{
    assert_int_equal(wrong_sums(false), 0);
    assert_true(wrong_sums(true) > 0);
}

/** All blocks wait for each other, then each reads what its neighbour wrote. */
__global__ void grid_barrier_kernel(float *values, uint32_t *arrived, float *out, bool waits)
{
    if (threadIdx.x == 0) {
        values[blockIdx.x] = (float)blockIdx.x;
        atomic_add(arrived, 1u);
        while (waits && *arrived < gridDim.x)
            atomic_add(arrived, 0u);
    }
    block_sync();
    if (threadIdx.x == 1)
        out[blockIdx.x] = values[(blockIdx.x + 1) % gridDim.x];
}

/** @return how many orders gave a block something else than its neighbour's value */
static int wrong_neighbours(unsigned blocks, bool waits)
{
    float *values = device_floats(blocks), *arrived = device_floats(1), *out = device_floats(blocks);
    int wrong = 0;
    for (uint64_t seed = 1; seed < 9; seed++) {
        cod_emulated_set_seed(seed);
        memset(values, 0xFF, blocks * sizeof *values);
        memset(arrived, 0, sizeof *arrived);
        (void)!cuda_launch(nullptr, grid_barrier_kernel, blocks, 1024, 0, values, reinterpret_cast<uint32_t *>(arrived),
                           out, waits);
        for (unsigned i = 0; i < blocks; i++)
            if (out[i] != (float)((i + 1) % blocks)) {
                wrong++;
                break;
            }
    }
    cudaFree(values);
    cudaFree(arrived);
    cudaFree(out);
    return wrong;
}

/* 4 multiprocessors have room for 2 blocks of 1024 threads each. */
TEST(a_grid_waits_for_itself_where_it_fits)
{
    char message[256];
    assert_int_equal(wrong_neighbours(8, true), 0);
    cod_test_assert_none(cod_emulated_faults, "in all orders");
    assert_int_equal(wrong_neighbours(8, false), 8);
    cod_test_assert_none(cod_emulated_faults, "in all orders");
    assert_int_equal(wrong_neighbours(9, true), 8);
    assert_int_equal(cod_emulated_faults(message, sizeof message), 1);
    assert_non_null(strstr(message, "8 of 9 blocks go on for ever; there is room for no more"));
}

enum chain_pair { READS_AFTER_WAIT, READS_AHEAD, WRITES_AHEAD };

/** Turns `in` over to `out`, after it has let the next kernel begin where `releases`. */
__global__ void writing_kernel(const float *in, float *out, bool releases)
{
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    chain_wait();
    if (releases)
        chain_release();
    out[at] = in[at];
}

/** Copies `in`, which the kernel before it writes, and writes `from`, which that kernel reads. */
template <chain_pair what> __global__ void following_kernel(const float *in, float *from, float *out)
{
    float *shared = shared_memory<float>();
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x, first = at / 4 * 4;
    if (what == WRITES_AHEAD)
        from[at] = -1;
    if (what != READS_AHEAD)
        chain_wait();
    copy16_ahead_start(shared + threadIdx.x * 4, in + first, 16);
    copy_commit();
    if (what == READS_AHEAD)
        chain_wait();
    copy_wait<0>();
    from[at] = -1;
    out[at] = shared[threadIdx.x * 4 + at % 4];
}

/** @return how many orders of the two kernels, the second with an edge from the first, gave something wrong */
template <chain_pair what> static int wrong_pairs(bool releases)
{
    const size_t count = BLOCKS * static_cast<size_t>(THREADS);
    cod_device device = {};
    float *from = device_floats(count), *between = device_floats(count), *out = device_floats(count);
    int wrong = 0;
    device.chains = true;
    assert_int_equal(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), cudaSuccess);
    for (uint64_t seed = 0; seed < ORDERS; seed++) {
        cod_emulated_set_seed(seed);
        for (size_t i = 0; i < count; i++)
            from[i] = (float)i;
        memset(between, 0xFF, count * sizeof *between);
        cuda_chain_end(&device);
        assert_ok(
            cuda_launch_chained(&device, device.stream, writing_kernel, BLOCKS, THREADS, 0, from, between, releases));
        assert_ok(cuda_launch_chained(&device, device.stream, following_kernel<what>, BLOCKS, THREADS, THREADS * 16,
                                      between, from, out));
        assert_int_equal(cudaStreamSynchronize(device.stream), cudaSuccess);
        for (size_t i = 0; i < count; i++)
            if (out[i] != (float)i) {
                wrong++;
                break;
            }
    }
    cudaStreamDestroy(device.stream);
    cudaFree(from);
    cudaFree(between);
    cudaFree(out);
    return wrong;
}

/* Where nobody watches memory: the second kernel has begun before the first one has ended. */
TEST(kernels_with_an_edge_run_together)
{
    assert_int_equal(setenv("COD_CUDA_UNWATCHED", "1", 1), 0);
    for (int releases = 0; releases < 2; releases++) {
        assert_int_equal(wrong_pairs<READS_AFTER_WAIT>(releases != 0), 0);
        assert_true(wrong_pairs<READS_AHEAD>(releases != 0) > 0);
        assert_true(wrong_pairs<WRITES_AHEAD>(releases != 0) > 0);
    }
    assert_int_equal(unsetenv("COD_CUDA_UNWATCHED"), 0);
    cod_test_assert_none(cod_emulated_faults, "in all orders");
}

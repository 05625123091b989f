/** What the emulated GPU finds, each planted once; and what its instructions give. */
#include "orders.cuh"

/** Each thread writes its number and reads its neighbour's. */
__global__ void turn_kernel(float *out, bool synchronised)
{
    float *shared = shared_memory<float>();
    shared[threadIdx.x] = (float)threadIdx.x;
    if (synchronised)
        block_sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

static int wrong_turns(bool synchronised)
{
    float *out = device_floats(2 * THREADS);
    int wrong = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        cod_emulated_set_seed(seed);
        assert_ok(cuda_launch(nullptr, turn_kernel, 2, THREADS, THREADS * sizeof(float), out, synchronised));
        for (int i = 0; i < 2 * THREADS; i++)
            if (!(out[i] == (float)((i + 1) % THREADS))) {
                wrong++;
                break;
            }
    }
    cudaFree(out);
    return wrong;
}

TEST(a_missing_barrier_gives_wrong_results)
{
    assert_int_equal(wrong_turns(true), 0);
    assert_int_equal(wrong_turns(false), 8);
}

__global__ void half_kernel()
{
    if (threadIdx.x % 2 == 0)
        block_sync();
    else
        warp_sync();
}

__global__ void leave_kernel()
{
    if (threadIdx.x >= 3)
        warp_sync();
}

TEST(threads_that_wait_for_ever_are_told)
{
    char message[256];
    assert_int_equal(faulty_orders(message, 0, half_kernel), 8);
    assert_non_null(strstr(message, "one is in"));
    assert_int_equal(faulty_orders(message, 0, leave_kernel), 8);
    assert_non_null(strstr(message, "the others are in warp_sync"));
}

/**
 * Each half of the block turns its numbers by itself, the second one twice; `threads`: how many each half says there
 * are.
 */
__global__ void parts_kernel(float *out, unsigned threads)
{
    float *shared = shared_memory<float>();
    const unsigned half = blockDim.x / 2, part = threadIdx.x / half, lane = threadIdx.x % half;
    float value = (float)lane;
    for (unsigned time = 0; time <= part; time++) {
        shared[threadIdx.x] = value;
        part_sync(part, threads);
        value = shared[part * half + (lane + 1) % half];
        part_sync(part, threads);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

TEST(parts_of_a_block_wait_for_themselves)
{
    char message[256];
    float *out = device_floats(2 * THREADS);
    assert_int_equal(faulty_orders(message, THREADS * sizeof(float), parts_kernel, out, THREADS / 2u), 0);
    for (int i = 0; i < 2 * THREADS; i++) {
        const int half = THREADS / 2, turns = 1 + i % THREADS / half;
        assert_true(out[i] == (float)((i % half + turns) % half));
    }
    assert_int_equal(faulty_orders(message, THREADS * sizeof(float), parts_kernel, out, 1u * THREADS), 8);
    assert_non_null(strstr(message, "part_sync"));
    assert_int_equal(faulty_orders(message, THREADS * sizeof(float), parts_kernel, out, 24u), 8);
    assert_non_null(strstr(message, "part_sync of part"));
    cudaFree(out);
}

__global__ void outside_kernel(float *out, int place)
{
    out[place] = 1;
}

__global__ void shared_outside_kernel(int place)
{
    shared_memory<float>()[place] = 1;
}

TEST(writes_beside_memory_are_found)
{
    char message[256];
    float *out = device_floats(10);
    assert_int_equal(faulty_orders(message, 0, outside_kernel, out, 9), 0);
    assert_int_equal(faulty_orders(message, 0, outside_kernel, out, 10), 8);
    assert_int_equal(faulty_orders(message, 0, outside_kernel, out, -1), 8);
    assert_non_null(strstr(message, "beside 40 bytes"));
    assert_non_null(strstr(message, "outside_kernel(float*, int)"));
    assert_int_equal(faulty_orders(message, 128, shared_outside_kernel, 31), 0);
    assert_int_equal(faulty_orders(message, 128, shared_outside_kernel, 32), 8);
    assert_int_equal(faulty_orders(message, 120, shared_outside_kernel, 30), 8); /* no fence is so near */
    assert_non_null(strstr(message, "beside 120 bytes of shared memory"));
    cudaFree(out);
}

/**
 * One thread reads what it should not, into shared memory that nobody looks at, as kernels may at the edges of a
 * picture.
 */
__global__ void hidden_read_kernel(const float *in, float *out, int place, bool wide, bool shared)
{
    if (shared)
        in = shared_memory<float>();
    const bool taken = blockIdx.x != 1 || threadIdx.x != 37;
    float value = 1;
    if (!taken && wide)
        value = (float)reinterpret_cast<const bytes16 *>(in + place)->words[0];
    else if (!taken)
        value = in[place];
    shared_memory<float>()[threadIdx.x] = value;
    out[blockIdx.x * blockDim.x + threadIdx.x] = taken;
}

static void check_read(const float *in, float *out, int place, bool wide, bool shared, const char *told)
{
    char message[256];
    const size_t shared_bytes = 256;
    assert_int_equal(faulty_orders(message, shared_bytes, hidden_read_kernel, in, out, place, wide, shared),
                     told != nullptr ? 8 : 0);
    if (told == nullptr)
        return;
    assert_non_null(strstr(message, told));
    assert_non_null(strstr(message, "in thread (37, 0, 0) of block (1, 0, 0) of hidden_read_kernel(float const*,"));
    for (int i = 0; i < 2 * THREADS; i++) /* nothing of it is seen in what the kernel gives */
        assert_true(out[i] == (float)(i != THREADS + 37));
}

TEST(reads_beside_memory_are_found)
{
    cod_emulated_set_seed(1);
    float *out = device_floats(2 * THREADS), *behind = device_floats(60);
    cod_emulated_set_seed(4);
    float *before = device_floats(60);
    check_read(behind, out, 59, false, false, nullptr);
    check_read(behind, out, 60, false, false, "a read beside 240 bytes of memory, of byte 240");
    check_read(behind, out, 60, true, false, "a read beside 240 bytes of memory, of byte 240");
    check_read(behind, out, 10000, false, false, "a read beside 240 bytes of memory, of byte 40000");
    check_read(before, out, 0, false, false, nullptr);
    check_read(before, out, -1, false, false, "a read beside 240 bytes of memory, of byte -4");
    check_read(nullptr, out, 63, false, true, nullptr);
    check_read(nullptr, out, 64, false, true, "a read beside 256 bytes of shared memory, of byte 256");
    cudaFree(before);
    cudaFree(behind);
    cudaFree(out);
}

TEST(misaligned_accesses_are_found)
{
#ifdef COD_CUDA_ALIGNMENT
    char message[256];
    float *in = device_floats(64), *out = device_floats(2 * THREADS);
    assert_int_equal(faulty_orders(message, 256, hidden_read_kernel, in, out, 4, true, false), 0);
    assert_int_equal(faulty_orders(message, 256, hidden_read_kernel, in, out, 5, true, false), 8);
    assert_non_null(strstr(message, "bytes16' at an address that is no multiple of 16"));
    assert_non_null(strstr(message, "in thread (37, 0, 0) of block (1, 0, 0) of hidden_read_kernel"));
    cudaFree(in);
    cudaFree(out);
#else
    skip(); /* UBSan ends the process */
#endif
}

__global__ void empty_kernel(int) {}

TEST(shared_memory_must_be_allowed)
{
    char message[256];
    const size_t at_first = 48 << 10, allowed = 100 << 10;
    assert_int_equal(faulty_orders(message, at_first, empty_kernel, 0), 0);
    assert_int_equal(faulty_orders(message, at_first + 1, empty_kernel, 0), 8);
    assert_non_null(strstr(message, "that was allowed 49152"));
    assert_int_equal(cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
                     cudaErrorInvalidValue);
    assert_ok(COD_CUDA(cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)allowed)));
    assert_int_equal(faulty_orders(message, allowed, empty_kernel, 0), 0);
    assert_int_equal(faulty_orders(message, allowed + 1, empty_kernel, 0), 8);
}

/** @param stream  one that records, for grids that would take long to run; NULL = the default stream */
static void expect_launch(cudaStream_t stream, dim3 blocks, dim3 threads, bool taken)
{
    char message[256];
    cudaLaunchConfig_t config = {};
    config.stream = stream;
    config.gridDim = blocks;
    config.blockDim = threads;
    const cudaError_t error = cudaLaunchKernelEx(&config, empty_kernel, 0);
    cudaGetLastError();
    assert_int_equal(cod_emulated_faults(message, sizeof message), !taken);
    assert_int_equal(error, taken ? cudaSuccess : cudaErrorInvalidValue);
    if (!taken)
        assert_non_null(strstr(message, "threads, which no GPU takes"));
}

/** Also where the launch is only recorded. */
TEST(grids_and_blocks_have_limits)
{
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    assert_ok(COD_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
    assert_ok(COD_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
    expect_launch(stream, dim3(1, 65535, 1), dim3(32), true);
    expect_launch(stream, dim3(1, 1, 65535), dim3(32), true);
    expect_launch(stream, dim3(70000), dim3(1024), true);
    assert_int_equal(cuda_launch(stream, empty_kernel, dim3(1, 65536, 1), 32, 0, 0), COD_ERR_BACKEND);
    assert_ok(COD_CUDA(cudaStreamEndCapture(stream, &graph)));
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    char message[256];
    assert_int_equal(cod_emulated_faults(message, sizeof message), 1);
    expect_launch(nullptr, dim3(1), dim3(1, 1024, 1), true);
    expect_launch(nullptr, dim3(1), dim3(16, 1, 64), true);
    expect_launch(nullptr, dim3(1, 65536, 1), dim3(32), false);
    expect_launch(nullptr, dim3(1, 1, 65536), dim3(32), false);
    expect_launch(nullptr, dim3(0x80000000u), dim3(32), false);
    expect_launch(nullptr, dim3(0), dim3(32), false);
    expect_launch(nullptr, dim3(1, 0, 1), dim3(32), false);
    expect_launch(nullptr, dim3(1), dim3(1056), false);
    expect_launch(nullptr, dim3(1), dim3(2, 1, 128), false);
    expect_launch(nullptr, dim3(1), dim3(64, 32, 1), false);
    expect_launch(nullptr, dim3(1), dim3(0), false);
}

/** Copies a block's part of `in` through shared memory. */
__global__ void copy_kernel(const float *in, float *out, int what)
{
    float *shared = shared_memory<float>();
    const unsigned first = blockIdx.x * blockDim.x;
    copy16_start(shared + threadIdx.x * 4, in + (first + threadIdx.x) * 4 + (what == 3), what == 4 ? 0 : 16);
    if (what != 1)
        copy_commit();
    if (what != 2)
        copy_wait<0>();
    block_sync();
    const unsigned next = (threadIdx.x + 1) % blockDim.x;
    for (unsigned i = 0; i < 4; i++)
        out[(first + threadIdx.x) * 4 + i] = shared[next * 4 + i];
}

TEST(copies_land_when_they_are_waited_for)
{
    const size_t count = 2 * THREADS * 4;
    cod_emulated_set_seed(1);
    float *in = device_floats(count + 4), *out = device_floats(count);
    char message[256];
    for (size_t i = 0; i < count; i++)
        in[i] = (float)i;
    const size_t shared_bytes = THREADS * 16;
    assert_int_equal(faulty_orders(message, shared_bytes, copy_kernel, in, out, 0), 0);
    for (size_t i = 0; i < count; i++)
        assert_true(out[i] == (float)((i / 4 % THREADS + 1) % THREADS * 4 + i / 4 / THREADS * THREADS * 4 + i % 4));
    for (int what = 1; what <= 2; what++) { /* no commit, no wait: poison */
        assert_int_equal(faulty_orders(message, shared_bytes, copy_kernel, in, out, what), 0);
        assert_true(out[0] != out[0]);
    }
    assert_int_equal(faulty_orders(message, shared_bytes, copy_kernel, in, out, 3), 8);
    assert_non_null(strstr(message, "no multiple of 16"));
    assert_int_equal(faulty_orders(message, shared_bytes, copy_kernel, in, out, 4), 0);
    assert_true(out[0] == 0 && out[count - 1] == 0);
    assert_int_equal(faulty_orders(message, shared_bytes, copy_kernel, in + 8, out, 4), 8); /* of no readable memory */
    assert_non_null(strstr(message, "a read beside"));
    cudaFree(in);
    cudaFree(out);
}

/** Writes to what is copied before or after the copy has landed. */
__global__ void overwrite_kernel(float *values, float *out, bool too_early)
{
    float *shared = shared_memory<float>();
    copy16_start(shared + threadIdx.x * 4, values + threadIdx.x * 4, 16);
    copy_commit();
    if (too_early)
        values[threadIdx.x * 4] = -1;
    copy_wait<0>();
    values[threadIdx.x * 4] = -1;
    out[threadIdx.x] = shared[threadIdx.x * 4];
}

TEST(sources_are_read_at_any_time_of_a_copy)
{
    float *values = device_floats(THREADS * 4), *out = device_floats(THREADS);
    for (int too_early = 0; too_early < 2; too_early++) {
        int wrong = 0;
        for (int i = 0; i < THREADS * 4; i++)
            values[i] = 1;
        assert_ok(cuda_launch(nullptr, overwrite_kernel, 1, THREADS, THREADS * 16, values, out, too_early != 0));
        for (int i = 0; i < THREADS; i++)
            wrong += out[i] != 1;
        assert_true(too_early ? wrong > THREADS / 4 && wrong < THREADS * 3 / 4 : wrong == 0);
    }
    cudaFree(values);
    cudaFree(out);
}

TEST(products_and_their_fragments_agree)
{
    float *c = device_floats(128);
    uint16_t *a = reinterpret_cast<uint16_t *>(device_floats(128)),
             *b = reinterpret_cast<uint16_t *>(device_floats(64));
    char message[256];
    for (int i = 0; i < 256; i++)
        a[i] = bf16_from_f32((float)(i * 7 % 11 - 5));
    for (int i = 0; i < 128; i++)
        b[i] = bf16_from_f32((float)(i * 5 % 13 - 6));
    assert_int_equal(faulty_orders(message, 768, product_kernel, a, b, c), 0);
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += f32_from_bf16(a[row * 16 + k]) * f32_from_bf16(b[k * 8 + column]);
            assert_true(c[row * 8 + column] == sum);
        }
    cudaFree(a);
    cudaFree(b);
    cudaFree(c);
}

__global__ void sum_kernel(float *out)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = warp_sum((float)(threadIdx.x % WARP_LANES));
}

TEST(sums_of_a_warp_reach_all_lanes)
{
    char message[256];
    float *out = device_floats(2 * THREADS);
    assert_int_equal(faulty_orders(message, 0, sum_kernel, out), 0);
    for (int i = 0; i < 2 * THREADS; i++)
        assert_true(out[i] == 496);
    cudaFree(out);
}

enum chain_misdeed { READS, WRITES, NEVER_WAITS, COPIES, WAITS_APART, NONE, COPIES_AHEAD };

/** Each block turns its part of `in`, and may do what a kernel with a programmatic edge must not. */
template <chain_misdeed what> __global__ void chain_kernel(const float *in, float *out)
{
    float *shared = shared_memory<float>();
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    float early = what == READS && threadIdx.x == 3 ? in[at] : 0;
    if (what == WRITES && threadIdx.x == 3)
        out[at] = 1;
    if (what == COPIES_AHEAD || what == COPIES) {
        if (what == COPIES)
            copy16_start(shared + threadIdx.x * 4, in, 16);
        else
            copy16_ahead_start(shared + threadIdx.x * 4, in, 16);
        copy_commit();
        copy_wait<0>();
        early = shared[threadIdx.x * 4];
    }
    if (what == WAITS_APART && threadIdx.x == 0)
        block_sync();
    if (what == NEVER_WAITS && threadIdx.x == 5)
        return;
    chain_wait();
    if (what == WAITS_APART && threadIdx.x != 0)
        block_sync();
    out[at] = in[at] + 0 * early;
}

/** The message of the last fault, where the kernel is launched behind another one in each of several orders. */
template <chain_misdeed what> static int faulty_chains(char *message)
{
    int faulty = 0;
    cod_device device = {};
    float *in = device_floats(2 * THREADS), *out = device_floats(2 * THREADS);
    for (int i = 0; i < 2 * THREADS; i++)
        in[i] = (float)i;
    device.chains = true;
    assert_int_equal(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), cudaSuccess);
    for (uint64_t seed = 0; seed < 4; seed++) {
        size_t chained;
        cod_emulated_set_seed(seed);
        cod_emulated_launches(&chained);
        assert_ok(cuda_launch(device.stream, chain_kernel<what>, 2, THREADS, THREADS * 16, in, out));
        device.chain = device.stream;
        char first[256];
        assert_int_equal(cod_emulated_faults(first, sizeof first), 0);
        cod_status status =
            cuda_launch_chained(&device, device.stream, chain_kernel<what>, 2, THREADS, THREADS * 16, in, out);
        COD_THEN(status, COD_CUDA(cudaStreamSynchronize(device.stream)));
        assert_int_equal(cod_emulated_launches(&chained), 2);
        assert_int_equal(chained, 1);
        const size_t faults = cod_emulated_faults(first, sizeof first);
        assert_true((status == COD_OK) == (faults == 0));
        if (faults > 0)
            snprintf(message, 256, "%s", first);
        faulty += faults > 0;
        if (what == NONE || what == COPIES_AHEAD)
            for (int i = 0; i < 2 * THREADS; i++)
                assert_true(out[i] == (float)i);
    }
    cudaStreamDestroy(device.stream);
    cudaFree(in);
    cudaFree(out);
    return faulty;
}

/* The parts of a kernel that came too early: without an edge from the kernel before, all of them are right. */
TEST(what_comes_before_the_wait_is_found)
{
    char message[256];
    assert_int_equal(faulty_chains<READS>(message), 4);
    assert_non_null(strstr(message, "memory is used before chain_wait()"));
    assert_int_equal(faulty_chains<WRITES>(message), 4);
    assert_non_null(strstr(message, "memory is used before chain_wait()"));
    assert_int_equal(faulty_chains<NEVER_WAITS>(message), 4);
    assert_non_null(strstr(message, "ends without chain_wait()"));
    assert_int_equal(faulty_chains<COPIES>(message), 4);
    assert_non_null(strstr(message, "copy16_start() before chain_wait()"));
    assert_int_equal(faulty_chains<WAITS_APART>(message), 4);
    assert_non_null(strstr(message, "threads wait for ever"));
    assert_int_equal(faulty_chains<NONE>(message), 0);
    assert_int_equal(faulty_chains<COPIES_AHEAD>(message), 0);
}

TEST(an_edge_from_a_copy_is_found)
{
    char message[256];
    cod_device device = {};
    float *in = device_floats(2 * THREADS), *out = device_floats(2 * THREADS);
    device.chains = true;
    assert_int_equal(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(out, in, 4, cudaMemcpyDeviceToDevice, device.stream), cudaSuccess);
    device.chain = device.stream;
    (void)!cuda_launch_chained(&device, device.stream, chain_kernel<NONE>, 2, THREADS, THREADS * 16, in, out);
    assert_int_equal(cod_emulated_faults(message, sizeof message), 1);
    assert_non_null(strstr(message, "a programmatic edge from what is no kernel"));
    cudaStreamDestroy(device.stream);
    cudaFree(in);
    cudaFree(out);
}

/**
 * One stream fills memory that another copies from.
 *
 * @return how many orders of late work gave the copy something else
 */
static int wrong_copies(bool waits)
{
    float *memory = device_floats(2);
    int wrong = 0;
    cudaStream_t first, second;
    cudaEvent_t filled;
    assert_int_equal(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming), cudaSuccess);
    for (uint64_t seed = 0; seed < 16; seed++) {
        cod_emulated_set_seed(seed);
        cod_emulated_set_late(true);
        memory[0] = memory[1] = 1;
        cudaMemsetAsync(memory, 0, sizeof *memory, first);
        cudaEventRecord(filled, first);
        assert_int_equal(cudaEventQuery(filled), cudaErrorNotReady);
        assert_true(memory[0] == 1);
        if (waits)
            cudaStreamWaitEvent(second, filled, 0);
        cudaMemcpyAsync(memory + 1, memory, sizeof *memory, cudaMemcpyDefault, second);
        assert_int_equal(cudaStreamSynchronize(second), cudaSuccess);
        wrong += memory[1] != 0;
        assert_int_equal(cudaEventSynchronize(filled), cudaSuccess);
        assert_true(memory[0] == 0 && cudaEventQuery(filled) == cudaSuccess);
        cod_emulated_set_late(false);
    }
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    cudaEventDestroy(filled);
    cudaFree(memory);
    return wrong;
}

TEST(late_streams_are_ordered_by_events_alone)
{
    assert_int_equal(wrong_copies(true), 0);
    const int wrong = wrong_copies(false);
    assert_true(wrong > 0 && wrong < 16);
}

/** How a kernel's fault reaches the host: by itself, in a recording, or late. */
enum fault_way { AT_ONCE, RECORDED, LATE };

static void expect_broken(cudaStream_t stream, cudaEvent_t event, float *out, fault_way way)
{
    char message[256];
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    void *memory = nullptr;
    cod_emulated_set_late(way == LATE);
    *out = 0;
    if (way == RECORDED)
        assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_ok(cuda_launch(stream, outside_kernel, 1, 32, 0, out, 10));
    const cod_status second = cuda_launch(stream, outside_kernel, 1, 32, 0, out, 0); /* does not run any more */
    assert_int_equal(second, way == AT_ONCE ? COD_ERR_BACKEND : COD_OK);
    if (way == RECORDED) {
        assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
        assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
        assert_int_equal(cudaGraphLaunch(exec, stream), cudaSuccess);
        cudaGraphDestroy(graph);
    }
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    assert_true(*out == 0);
    for (int time = 0; time < 2; time++) {
        assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
        assert_int_equal(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
        assert_int_equal(cudaMemsetAsync(out, 0, 4, stream), cudaErrorLaunchFailure);
        assert_int_equal(cudaEventRecord(event, stream), cudaErrorLaunchFailure);
        assert_int_equal(cudaEventQuery(event), cudaErrorLaunchFailure);
        assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    }
    if (exec != nullptr)
        cudaGraphExecDestroy(exec);
    assert_true(cod_emulated_faults(message, sizeof message) > 0);
    cod_emulated_set_late(false);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_true(*out == 0);
}

TEST(a_kernels_error_comes_later_and_stays)
{
    float *out = device_floats(10);
    cudaStream_t stream;
    cudaEvent_t event;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    for (fault_way way : {AT_ONCE, RECORDED, LATE})
        expect_broken(stream, event, out, way);
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
    cudaFree(out);
}

/** What the emulated GPU finds, each planted once; and what its instructions give. */
#include "cuda/cuda_internal.h"
#include "cuda/warp.cuh"

#include <cmath>
#include <cstring>

extern "C" {
#include "support/test.h" /* last: cmocka defines `fail` */
}

enum { THREADS = 64 };

static float *device_floats(size_t count)
{
    void *memory = nullptr;
    assert_int_equal(cudaMalloc(&memory, count * sizeof(float)), cudaSuccess);
    return static_cast<float *>(memory);
}

/** Runs the kernel in several orders; @return how many of them had a fault, with the last one's message. */
template <typename... P, typename... A>
static int faulty_orders(char *message, size_t shared_bytes, void (*kernel)(P...), const A &...arguments)
{
    int faulty = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        char first[256];
        cod_emulated_set_seed(seed);
        const cod_status status = cuda_launch(nullptr, kernel, 2, THREADS, shared_bytes, arguments...);
        const size_t faults = cod_emulated_faults(first, sizeof first);
        assert_true((status == COD_OK) == (faults == 0));
        if (faults > 0) {
            snprintf(message, 256, "%s", first);
            faulty++;
        }
    }
    return faulty;
}

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

static void a_missing_barrier_gives_wrong_results(void **)
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

static void threads_that_wait_for_ever_are_told(void **)
{
    char message[256];
    assert_int_equal(faulty_orders(message, 0, half_kernel), 8);
    assert_non_null(strstr(message, "one is in"));
    assert_int_equal(faulty_orders(message, 0, leave_kernel), 8);
    assert_non_null(strstr(message, "the others are in warp_sync"));
}

/** Each half of the block turns its numbers by itself, the second one twice; `threads`: how many each half says there are. */
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

static void parts_of_a_block_wait_for_themselves(void **)
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

static void writes_beside_memory_are_found(void **)
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

/** One thread reads what it should not, into shared memory that nobody looks at, as kernels may at the edges of a picture. */
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

static void reads_beside_memory_are_found(void **)
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

static void misaligned_accesses_are_found(void **)
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

static void shared_memory_must_be_allowed(void **)
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
static void grids_and_blocks_have_limits(void **)
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

static void copies_land_when_they_are_waited_for(void **)
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

/** C = A·B of {16, 16} and {16, 8} small integers through shared memory, as kernels load their fragments. */
__global__ void product_kernel(const uint16_t *a, const uint16_t *b, float *c)
{
    uint16_t *shared_a = shared_memory<uint16_t>(), *shared_b = shared_a + 256;
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
        shared_a[i] = a[i];
    for (unsigned i = threadIdx.x; i < 128; i += blockDim.x)
        shared_b[i] = b[i];
    block_sync();
    if (threadIdx.x < WARP_LANES) {
        const unsigned lane = threadIdx.x;
        uint32_t fa[4], fb[4];
        float d[4] = {0, 0, 0, 0};
        load_matrix4(fa, shared_a + lane % 16 * 16 + lane / 16 * 8);
        load_matrix4_transposed(fb, shared_b + lane % 16 * 8);
        const uint32_t two[2] = {fb[0], fb[1]};
        mma_bf16(d, fa, two);
        for (unsigned i = 0; i < 4; i++)
            c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
}

static void products_and_their_fragments_agree(void **)
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

enum { INSTRUCTION_WORDS = 16 };

/** What each instruction that older GPUs lack leaves in a lane's registers, {32, INSTRUCTION_WORDS}, of {32, 4} and {32, 4} words. */
__global__ void instructions_kernel(const uint32_t *words, uint32_t *out)
{
    uint32_t *shared = shared_memory<uint32_t>();
    const unsigned lane = threadIdx.x % WARP_LANES;
    uint32_t a[4], b[4];
    float bf16_sums[4] = {1, 2, 3, 4};
    int32_t s8_sums[4] = {1, 2, 3, 4};
    copy16_start(shared + 4 * threadIdx.x, words + 4 * threadIdx.x, threadIdx.x == 5 ? 0 : 16);
    copy_commit();
    copy_wait<0>();
    block_sync();
    /* Rows in an order of their own. */
    load_matrix4(a, shared + 4 * (lane * 5 % WARP_LANES));
    load_matrix4_transposed(b, shared + 4 * (WARP_LANES + lane * 11 % WARP_LANES));
    const uint32_t two[2] = {b[0], b[3]};
    mma_bf16(bf16_sums, a, two);
    mma_s8(s8_sums, a, two);
    if (threadIdx.x < WARP_LANES)
        for (unsigned i = 0; i < 4; i++) {
            uint32_t *of_lane = out + lane * INSTRUCTION_WORDS;
            of_lane[i] = a[i];
            of_lane[4 + i] = b[i];
            memcpy(of_lane + 8 + i, &bf16_sums[i], sizeof(float));
            of_lane[12 + i] = (uint32_t)s8_sums[i];
        }
}

/** V100, Jetson Xavier, T4. */
static const cod_emulated_machine older[] = {{13000, 1, 70, 1}, {13000, 1, 72, 1}, {13000, 1, 75, 1}};
enum { OLDER = sizeof older / sizeof *older };

static void older_gpus_compute_alike(void **)
{
    const size_t out_bytes = WARP_LANES * INSTRUCTION_WORDS * sizeof(uint32_t);
    uint32_t *words = reinterpret_cast<uint32_t *>(device_floats(4 * THREADS)), *out[1 + OLDER];
    char message[256];
    for (uint32_t i = 0; i < 4 * THREADS; i++) /* small integers, so that the order of additions does not matter */
        words[i] = (uint32_t)bf16_from_f32((float)(i * 7 % 11) - 5) << 16 | bf16_from_f32((float)(i * 5 % 13) - 6);
    for (int k = 0; k <= OLDER; k++) {
        out[k] = reinterpret_cast<uint32_t *>(device_floats(WARP_LANES * INSTRUCTION_WORDS));
        cod_emulated_set_machine(k > 0 ? &older[k - 1] : nullptr);
        assert_int_equal(faulty_orders(message, 16 * THREADS, instructions_kernel, words, out[k]), 0);
    }
    cod_emulated_set_machine(nullptr);
    assert_true(out[0][8] != 0 && out[0][12] != 0);
    for (int k = 0; k <= OLDER; k++) {
        assert_memory_equal(out[0], out[k], out_bytes);
        if (k > 0)
            cudaFree(out[k]);
    }
    cudaFree(out[0]);
    cudaFree(words);
}

/** Operands of product_kernel(), and what it made of them. */
struct product {
    uint16_t *a, *b; /**< {16, 16}, {16, 8} */
    float *c;        /**< {16, 8} */
};

static product product_begin()
{
    return {reinterpret_cast<uint16_t *>(device_floats(128)), reinterpret_cast<uint16_t *>(device_floats(64)),
            device_floats(128)};
}

static void product_end(const product &p)
{
    cudaFree(p.a);
    cudaFree(p.b);
    cudaFree(p.c);
}

/** A number with 8 significant bits and a sign, times 2^`exponent`, by chance of *seed. */
static uint16_t number(uint64_t *seed, int exponent)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    const int digits = (int)(*seed >> 40) % 128 + 128;
    return bf16_from_f32(ldexpf((float)(*seed >> 63 ? -digits : digits), exponent - 7));
}

/** The largest power of two at or below the magnitudes of 16 values, `step` apart; 0 if all are 0. */
static double largest_power(const uint16_t *values, int step)
{
    float most = 0;
    for (int k = 0; k < 16; k++)
        most = fmaxf(most, fabsf(f32_from_bf16(values[k * step])));
    return most > 0 ? ldexp(1, ilogbf(most)) : 0;
}

/**
 * How many sums are farther from the exact ones than they may be, those of row `but_row` and column `but_column` aside. As warp_older.cuh says, an
 * operand changes by less than 2^-29 of its row's or column's largest power of two, or by nothing where none is that small. Beside that there
 * are the roundings of 16 additions in f32 to 2^-24 each, and of results and sums of scaled products below f32's normal numbers.
 */
static int wrong_sums(const product &p, int but_row, int but_column)
{
    int wrong = 0;
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            const double most_a = largest_power(p.a + row * 16, 1), most_b = largest_power(p.b + column, 8);
            double sum = 0, bound = ldexp(1, -148) + ldexp(most_b, -150);
            for (int k = 0; k < 16; k++) {
                const double a = f32_from_bf16(p.a[row * 16 + k]), b = f32_from_bf16(p.b[k * 8 + column]);
                const double change_a = fabs(a) < ldexp(most_a, -29) ? ldexp(most_a, -29) : 0;
                const double change_b = fabs(b) < ldexp(most_b, -29) ? ldexp(most_b, -29) : 0;
                sum += a * b;
                bound += fabs(a * b) * ldexp(1, -20) + change_a * fabs(b) + fabs(a) * change_b + change_a * change_b;
            }
            if (row != but_row && column != but_column && !(fabs(p.c[row * 8 + column] - sum) <= bound)) {
                if (wrong++ == 0)
                    print_error("row %d, column %d: %g in place of %g, farther than %g\n", row, column,
                                (double)p.c[row * 8 + column], sum, bound);
            }
        }
    return wrong;
}

/** Of values by chance: an exponent for all of A, of B, and by how much it goes up and down from one row of A, column of B, and value to the next. */
struct range_case {
    const char *title;
    int a, b, lines, values;
};

static void older_gpus_keep_the_range_of_bf16(void **)
{
    static const range_case cases[] = {
        {"near 1", 0, 0, 0, 3},
        {"gradients of 1e-30", -100, 0, 0, 3},
        {"gradients of 1e30", 100, 0, 0, 3},
        {"1e-30 by 1e30", -100, 100, 0, 3},
        {"1e30 by 1e-30", 100, -100, 0, 3},
        {"large ones, by what takes them back", 117, -20, 0, 0},
        {"by the largest", -20, 127, 0, 0},
        {"the smallest normal numbers", -126, 10, 0, 0},
        {"numbers below them", -133, 60, 0, 4},
        {"products below f32's normal numbers", -70, -70, 0, 3},
        {"rows and columns far apart", 0, 0, 60, 3},
        {"values far apart", 0, 0, 0, 40},
        {"values at the edge of what is exact", 0, 0, 0, 15},
        {"all of it", 0, 0, 25, 25},
    };
    const product p = product_begin();
    char message[256];
    for (const range_case &c : cases)
        for (int k = 0; k < OLDER; k++)
            for (uint64_t seed = 1; seed <= 4; seed++) {
                uint64_t chance = seed;
                int by_row[16], by_column[8];
                for (int &line : by_row)
                    line = (int)((chance = chance * 6364136223846793005u + 99) >> 33) % (2 * c.lines + 1) - c.lines;
                for (int &line : by_column)
                    line = (int)((chance = chance * 6364136223846793005u + 99) >> 33) % (2 * c.lines + 1) - c.lines;
                for (int i = 0; i < 384; i++) {
                    const bool in_a = i < 256;
                    const int part =
                        (int)((chance = chance * 6364136223846793005u + 99) >> 33) % (2 * c.values + 1) - c.values;
                    if (in_a)
                        p.a[i] = number(&chance, c.a + by_row[i / 16] + part);
                    else
                        p.b[i - 256] = number(&chance, c.b + by_column[i % 8] + part);
                    if (chance >> 33 & 1 && c.values > 0) /* zeros between them */
                        (in_a ? p.a[i] : p.b[i - 256]) = (uint16_t)(chance >> 34 << 15);
                }
                cod_emulated_set_machine(&older[k]);
                assert_int_equal(faulty_orders(message, 768, product_kernel, p.a, p.b, p.c), 0);
                cod_emulated_set_machine(nullptr);
                if (wrong_sums(p, -1, -1) != 0)
                    fail_msg("%s, compute capability %d, seed %d", c.title, older[k].capability, (int)seed);
            }
    product_end(p);
}

/* Infinities and NaN reach the sums of their row or column, whatever the others are, and no more; nor do zeros. */
static void older_gpus_keep_what_is_not_finite_to_itself(void **)
{
    static const uint16_t found[] = {0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF}; /* infinities, NaNs */
    const product p = product_begin();
    char message[256];
    for (int k = 0; k < OLDER; k++)
        for (unsigned i = 0; i <= 2 * sizeof found / sizeof *found; i++) {
            uint64_t chance = i + 1;
            const bool in_a = i % 2 == 0, zeros = i == 2 * sizeof found / sizeof *found;
            const int row = (int)i * 5 % 16, column = (int)i * 3 % 8, at = (int)i * 7 % 16;
            for (int n = 0; n < 256; n++)
                p.a[n] = number(&chance, n / 16 * 3 - 20);
            for (int n = 0; n < 128; n++)
                p.b[n] = number(&chance, n % 8 * 3 - 10);
            for (int n = 0; n < 16 && zeros; n++)
                p.a[row * 16 + n] = (uint16_t)(n % 2 << 15);
            for (int n = 0; n < 3 && !zeros; n++) /* zero, and small beside its like */
                (in_a ? p.b[at * 8 + 2 * n] : p.a[n * 80 + at]) = n == 0 ? 0 : bf16_from_f32(ldexpf(1, -40 * n));
            if (!zeros)
                (in_a ? p.a[row * 16 + at] : p.b[at * 8 + column]) = found[i / 2];
            cod_emulated_set_machine(&older[k]);
            assert_int_equal(faulty_orders(message, 768, product_kernel, p.a, p.b, p.c), 0);
            cod_emulated_set_machine(nullptr);
            assert_int_equal(wrong_sums(p, zeros || !in_a ? -1 : row, zeros || in_a ? -1 : column), 0);
            for (int n = 0; n < 16 && !zeros; n++)
                assert_false(std::isfinite(in_a ? p.c[row * 8 + n % 8] : p.c[n * 8 + column]));
            for (int n = 0; n < 8 && zeros; n++)
                assert_true(p.c[row * 8 + n] == 0);
        }
    product_end(p);
}

__global__ void sum_kernel(float *out)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = warp_sum((float)(threadIdx.x % WARP_LANES));
}

static void sums_of_a_warp_reach_all_lanes(void **)
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
        const cod_status status =
            cuda_launch_chained(&device, device.stream, chain_kernel<what>, 2, THREADS, THREADS * 16, in, out);
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
static void what_comes_before_the_wait_is_found(void **)
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

static void an_edge_from_a_copy_is_found(void **)
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

/** One stream fills memory that another copies from. @return how many orders of late work gave the copy something else */
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

static void late_streams_are_ordered_by_events_alone(void **state)
{
    (void)state;
    assert_int_equal(wrong_copies(true), 0);
    const int wrong = wrong_copies(false);
    assert_true(wrong > 0 && wrong < 16);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_barrier_gives_wrong_results),
        cmocka_unit_test(threads_that_wait_for_ever_are_told),
        cmocka_unit_test(parts_of_a_block_wait_for_themselves),
        cmocka_unit_test(writes_beside_memory_are_found),
        cmocka_unit_test(reads_beside_memory_are_found),
        cmocka_unit_test(misaligned_accesses_are_found),
        cmocka_unit_test(copies_land_when_they_are_waited_for),
        cmocka_unit_test(products_and_their_fragments_agree),
        cmocka_unit_test(older_gpus_compute_alike),
        cmocka_unit_test(older_gpus_keep_the_range_of_bf16),
        cmocka_unit_test(older_gpus_keep_what_is_not_finite_to_itself),
        cmocka_unit_test(sums_of_a_warp_reach_all_lanes),
        cmocka_unit_test(shared_memory_must_be_allowed),
        cmocka_unit_test(grids_and_blocks_have_limits),
        cmocka_unit_test(what_comes_before_the_wait_is_found),
        cmocka_unit_test(an_edge_from_a_copy_is_found),
        cmocka_unit_test(late_streams_are_ordered_by_events_alone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

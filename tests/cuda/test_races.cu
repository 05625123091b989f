/** Races in shared memory, each planted once: the emulated GPU finds them whatever the order its threads run in. */
#include "orders.cuh"

enum between { NOTHING, SHUFFLE, PRODUCT, WARP_SYNC, PART_SYNC, BLOCK_SYNC };

static const char *const between_names[] = {"nothing",     "a shuffle",   "a product",
                                            "warp_sync()", "part_sync()", "block_sync()"};

static __device__ __forceinline__ void come_between(between what)
{
    float d[4] = {0, 0, 0, 0};
    const uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
    if (what == SHUFFLE)
        shuffle(1.0f, threadIdx.x);
    if (what == PRODUCT)
        mma_bf16(d, a, b);
    if (what == WARP_SYNC)
        warp_sync();
    if (what == PART_SYNC)
        part_sync(threadIdx.x / WARP_LANES, WARP_LANES);
    if (what == BLOCK_SYNC)
        block_sync();
}

/** Each thread writes its number, and reads what another thread has written. */
__global__ void write_read_kernel(float *out, unsigned distance, between what)
{
    float *shared = shared_memory<float>();
    shared[threadIdx.x] = (float)threadIdx.x;
    come_between(what);
    out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x ^ distance];
}

/** Each thread reads what another thread overwrites. */
__global__ void read_write_kernel(float *out, unsigned distance, between what)
{
    float *shared = shared_memory<float>();
    shared[threadIdx.x] = (float)threadIdx.x;
    block_sync();
    const float value = shared[threadIdx.x ^ distance];
    come_between(what);
    shared[threadIdx.x] = value;
    block_sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
}

/** Two threads write the same word. */
__global__ void write_write_kernel(float *out, unsigned distance, between what)
{
    float *shared = shared_memory<float>();
    if ((threadIdx.x & distance) == 0)
        shared[threadIdx.x] = 1;
    come_between(what);
    if ((threadIdx.x & distance) != 0)
        shared[threadIdx.x ^ distance] = 2;
    block_sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
}

/** Matrices are read that other lanes have written. */
__global__ void load_kernel(float *out, unsigned, between what)
{
    float *shared = shared_memory<float>();
    uint32_t r[4];
    for (unsigned i = 0; i < 4; i++)
        shared[threadIdx.x * 4 + i] = (float)threadIdx.x;
    come_between(what);
    load_matrix4(r, shared + threadIdx.x * 4);
    out[blockIdx.x * blockDim.x + threadIdx.x] = f32_from_word(r[threadIdx.x % 4]);
}

/** A copy lands, and another thread reads it. */
__global__ void copy_kernel(float *out, unsigned distance, between what)
{
    float *shared = shared_memory<float>();
    copy16_start(shared + threadIdx.x * 4, out, 16);
    copy_commit();
    copy_wait<0>();
    come_between(what);
    out[blockIdx.x * blockDim.x + threadIdx.x] = shared[(threadIdx.x ^ distance) * 4];
}

typedef void racing_kernel(float *, unsigned, between);

static void expect_races(racing_kernel *kernel, const char *name, unsigned distance, between least)
{
    float *out = device_floats(2 * THREADS);
    for (int what = NOTHING; what <= BLOCK_SYNC; what++) {
        char message[256];
        const int faulty = faulty_orders(message, THREADS * 16, kernel, out, distance, static_cast<between>(what));
        const int expected = what >= least ? 0 : 8;
        if (faulty != expected)
            fail_msg("%s, threads %u apart, %s between: %d of 8 orders have a race, not %d", name, distance,
                     between_names[what], faulty, expected);
        if (faulty > 0 && (strstr(message, "no barrier is between a ") == nullptr || strstr(message, name) == nullptr ||
                           strstr(message, " at test_races.cu:") == nullptr))
            fail_msg("%s: %s", name, message);
    }
    cudaFree(out);
}

static void expect_pair(racing_kernel *kernel, const char *name)
{
    expect_races(kernel, name, 1, WARP_SYNC);
    expect_races(kernel, name, WARP_LANES, BLOCK_SYNC);
}

TEST(a_value_is_read_behind_a_barrier)
{
    expect_pair(write_read_kernel, "write_read_kernel");
}

TEST(a_value_is_overwritten_behind_a_barrier)
{
    expect_pair(read_write_kernel, "read_write_kernel");
    expect_pair(write_write_kernel, "write_write_kernel");
}

TEST(matrices_are_read_behind_a_barrier)
{
    expect_races(load_kernel, "load_kernel", 0, WARP_SYNC);
}

TEST(copies_are_read_behind_a_barrier)
{
    expect_pair(copy_kernel, "copy_kernel");
}

/** Both halves of a word, both at once: no race. */
__global__ void halves_kernel(float *out)
{
    uint16_t *shared = shared_memory<uint16_t>();
    unsigned char *bytes = shared_memory<unsigned char>() + THREADS * 4;
    shared[threadIdx.x] = (uint16_t)threadIdx.x;
    bytes[threadIdx.x] = (unsigned char)threadIdx.x;
    block_sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = (float)shared[threadIdx.x ^ 1] + bytes[threadIdx.x ^ 1];
}

/** Counts in shared memory; `plain`: but for one thread's, which adds without an atomic operation. */
__global__ void count_kernel(float *out, bool plain)
{
    uint32_t *shared = shared_memory<uint32_t>();
    if (threadIdx.x == 0)
        *shared = 0;
    block_sync();
    if (plain && threadIdx.x == 5)
        *shared += 1;
    else
        atomic_add(shared, 1u);
    block_sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = (float)*shared;
}

TEST(sound_kernels_do_not_race)
{
    char message[256];
    float *out = device_floats(2 * THREADS);
    uint16_t *a = reinterpret_cast<uint16_t *>(device_floats(128)),
             *b = reinterpret_cast<uint16_t *>(device_floats(64));
    assert_int_equal(faulty_orders(message, 768, product_kernel, a, b, out), 0);
    assert_int_equal(faulty_orders(message, THREADS * 8, halves_kernel, out), 0);
    assert_int_equal(faulty_orders(message, 4, count_kernel, out, false), 0);
    assert_int_equal(faulty_orders(message, 4, count_kernel, out, true), 8);
    cudaFree(a);
    cudaFree(b);
    cudaFree(out);
}

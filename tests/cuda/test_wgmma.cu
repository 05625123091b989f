/** Products of warpgroups on the emulated GPU: what they give, and mistakes that a GPU might forgive now and then. */
#include "cuda/cuda_internal.h"
#include "cuda/wgmma.cuh"

#include <cmath>
#include <cstdio>
#include <cstring>

extern "C" {
#include "emulated/emulated.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

enum { ROWS = 64, STEPS = 4, DEPTH = STEPS * 16 };

template <int COLUMNS> constexpr int bytes_of_b = DEPTH *COLUMNS * 2;

/** What the kernel does wrong. */
enum mistake {
    NOTHING,
    NO_WRITES_FENCE,
    NO_BARRIER,
    NO_FENCE,
    FENCE_TOO_EARLY,
    NO_COMMIT,
    NO_WAIT,
    WAIT_FOR_TOO_FEW,
    A_OVERWRITTEN,
    B_OVERWRITTEN,
    STRIDES_SWAPPED,
    SWIZZLED,
    OUTSIDE,
    MISTAKES
};

/** C {ROWS, COLUMNS} of two warpgroups, each by itself, from A {DEPTH / 16}{thread}{4 words} and B as it is packed. */
template <int COLUMNS> __global__ void wide_kernel(const uint32_t *a, const uint32_t *b, float *c, int wrong)
{
    constexpr int B_BYTES = bytes_of_b<COLUMNS>;
    uint32_t *shared = shared_memory<uint32_t>();
    const unsigned thread = threadIdx.x % WGMMA_THREADS, lane = thread % WARP_LANES;
    for (unsigned i = threadIdx.x; i < B_BYTES / 4; i += blockDim.x)
        shared[i] = b[i];
    if (wrong != NO_WRITES_FENCE || threadIdx.x != 17)
        wgmma_writes_fence();
    if (wrong != NO_BARRIER)
        block_sync();
    uint64_t matrix =
        wrong == STRIDES_SWAPPED ? wgmma_matrix(shared, 128, COLUMNS * 16) : wgmma_matrix(shared, COLUMNS * 16, 128);
    if (wrong == SWIZZLED)
        matrix |= (uint64_t)1 << 62;
    if (wrong == OUTSIDE)
        matrix += B_BYTES >> 4;
    float d[COLUMNS / 8][4] = {};
    uint32_t rows[2][4];
    wgmma_fence();
    for (unsigned step = 0; step < STEPS; step++) {
        memcpy(rows[step % 2], a + (step * WGMMA_THREADS + thread) * 4, 16);
        if (wrong == FENCE_TOO_EARLY ? step < 2 : wrong != NO_FENCE)
            wgmma_fence();
        wgmma_bf16(d, rows[step % 2], matrix + step * (16 * COLUMNS * 2 >> 4));
        if (wrong == A_OVERWRITTEN)
            rows[step % 2][thread % 4] = 0x3F803F80u;
        if (wrong != NO_COMMIT || step + 1 < STEPS)
            wgmma_commit();
        if (step + 1 < STEPS || wrong == WAIT_FOR_TOO_FEW)
            wgmma_wait<1>();
        else if (wrong == B_OVERWRITTEN)
            shared[B_BYTES / 4 - 1 - threadIdx.x] = 0x3F803F80u;
        if (step + 1 == STEPS && wrong != NO_WAIT && wrong != WAIT_FOR_TOO_FEW)
            wgmma_wait<0>();
    }
    float *out = c + threadIdx.x / WGMMA_THREADS * ROWS * COLUMNS;
    for (unsigned j = 0; j < COLUMNS / 8; j++)
        for (unsigned i = 0; i < 4; i++)
            out[(thread / WARP_LANES * 16 + lane / 4 + i / 2 * 8) * COLUMNS + j * 8 + lane % 4 * 2 + i % 2] = d[j][i];
}

static float value_of_a(int row, int k)
{
    return (float)((row * 7 + k * 3) % 11 - 5);
}

static float value_of_b(int k, int column)
{
    return (float)((k * 5 + column * 9) % 13 - 6);
}

template <typename T> static T *on_device(size_t bytes)
{
    void *memory = nullptr;
    assert_int_equal(cudaMalloc(&memory, bytes), cudaSuccess);
    return static_cast<T *>(memory);
}

/** How many of some orders of threads have a fault or a wrong result; `message`: the last fault's. */
template <int COLUMNS> static int wrong_orders(mistake wrong, char *message, size_t bytes)
{
    constexpr int B_BYTES = bytes_of_b<COLUMNS>;
    uint32_t *a = on_device<uint32_t>(STEPS * WGMMA_THREADS * 16);
    uint16_t *b = on_device<uint16_t>(B_BYTES);
    float *c = on_device<float>(2 * ROWS * COLUMNS * sizeof(float));
    int found = 0;
    for (int step = 0; step < STEPS; step++)
        for (int thread = 0; thread < WGMMA_THREADS; thread++)
            for (int i = 0; i < 4; i++) {
                const int row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8,
                          k = step * 16 + (thread % 4 + i / 2 * 4) * 2;
                a[(step * WGMMA_THREADS + thread) * 4 + i] = bf16_pair(value_of_a(row, k), value_of_a(row, k + 1));
            }
    for (int k = 0; k < DEPTH; k++)
        for (int column = 0; column < COLUMNS; column++)
            b[(k / 8 * COLUMNS + column) * 8 + k % 8] = bf16_from_f32(value_of_b(k, column));
    for (uint64_t seed = 0; seed < 6; seed++) {
        cod_emulated_set_seed(seed);
        memset(c, 0xFF, 2 * ROWS * COLUMNS * sizeof(float));
        cod_status status = cuda_launch(nullptr, wide_kernel<COLUMNS>, 1, 2 * WGMMA_THREADS, B_BYTES, a,
                                        reinterpret_cast<const uint32_t *>(b), c, (int)wrong);
        COD_THEN(status, COD_CUDA(cudaStreamSynchronize(nullptr)));
        bool right = status == COD_OK;
        assert_true((cod_emulated_faults(message, bytes) == 0) == right);
        for (int i = 0; i < 2 * ROWS * COLUMNS; i++) {
            float sum = 0;
            for (int k = 0; k < DEPTH; k++)
                sum += value_of_a(i / COLUMNS % ROWS, k) * value_of_b(k, i % COLUMNS);
            right = right && c[i] == sum;
        }
        found += !right;
    }
    cudaFree(a);
    cudaFree(b);
    cudaFree(c);
    return found;
}

template <int COLUMNS> static void check_products()
{
    char outside[64];
    snprintf(outside, sizeof outside, "outside the launch's %d bytes", bytes_of_b<COLUMNS>);
    const char *const told[MISTAKES] = {nullptr,
                                        "without wgmma_writes_fence() of all threads",
                                        "without wgmma_writes_fence() of all threads",
                                        "without wgmma_fence()",
                                        "without wgmma_fence()",
                                        "a thread ends with",
                                        "a thread ends with",
                                        "a thread ends with",
                                        nullptr,
                                        "without wgmma_writes_fence() of all threads",
                                        nullptr,
                                        "matrix descriptor",
                                        outside};
    char message[256];
    for (int wrong = 0; wrong < MISTAKES; wrong++) {
        const int found = wrong_orders<COLUMNS>((mistake)wrong, message, sizeof message);
        if ((found > 0) != (wrong != NOTHING))
            fail_msg("mistake %d: %d orders have found it", wrong, found);
        if (told[wrong] != nullptr && strstr(message, told[wrong]) == nullptr)
            fail_msg("mistake %d: '%s'", wrong, message);
    }
}

TEST(products_are_right_and_mistakes_are_found)
{
    check_products<64>();
    check_products<128>();
}

TEST(only_hopper_has_them)
{
    cod_emulated_machine machine = {13000, 1, 100, 1, 100};
    char message[256];
    cod_emulated_set_machine(&machine);
    assert_int_equal(wrong_orders<64>(NOTHING, message, sizeof message), 6);
    assert_non_null(strstr(message, "compute capability 10.0"));
    cod_emulated_set_machine(nullptr);
    assert_int_equal(wrong_orders<64>(NOTHING, message, sizeof message), 0);
}

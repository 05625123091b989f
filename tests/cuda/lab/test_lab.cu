/**
 * Trial kernels that ran on an H100 and were right (COD_CUDA_LAB names their folder), on the emulated GPU: its matrix
 * products, loads of fragments, asynchronous copies, shuffles and conversions must be those of the hardware, or what
 * comes out is wrong. Their tolerance is that of the trials, 1e-2 of the norm; on the H100 errors were up to 1.7e-3.
 */
#include "conv3.cuh"
#include "tail.cuh"

#include "cuda/cuda_internal.h"

#include <algorithm>
#include <cstring>
#include <vector>

extern "C" {
#include "core/rng.h"
#include "emulated/emulated.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

static const double tolerance = 1e-2;

template <typename T> static T *on_device(size_t count)
{
    void *memory = nullptr;
    assert_int_equal(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
    memset(memory, 0xFF, count * sizeof(T));
    return static_cast<T *>(memory);
}

static float *zeros(size_t count)
{
    float *memory = on_device<float>(count);
    std::fill(memory, memory + count, 0.0f);
    return memory;
}

static float value(bf16 x)
{
    return f32_from_bf16(x.bits);
}

/** Normal numbers that bf16 has. */
static bf16 *random_bf16(size_t count, uint32_t stream)
{
    bf16 *memory = on_device<bf16>(count);
    cod_rng rng = cod_rng_open(7, 0, 0, 0, COD_RNG_TEST, stream);
    for (size_t i = 0; i < count; i++)
        memory[i] = __float2bfloat16((float)cod_rng_normal(&rng));
    return memory;
}

static float *random_f32(size_t count, float scale, uint32_t stream)
{
    float *memory = on_device<float>(count);
    cod_rng rng = cod_rng_open(7, 0, 0, 0, COD_RNG_TEST, stream);
    for (size_t i = 0; i < count; i++)
        memory[i] = value(__float2bfloat16(scale * (float)cod_rng_normal(&rng)));
    return memory;
}

template <typename... P, typename... A>
static void launch(void (*kernel)(P...), unsigned blocks, unsigned threads, int shared_bytes, const A &...arguments)
{
    char first[256];
    cod_emulated_set_seed(3);
    assert_int_equal(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
                     cudaSuccess);
    const cod_status status = cuda_launch(nullptr, kernel, dim3(blocks), threads, (size_t)shared_bytes, arguments...);
    if (cod_emulated_faults(first, sizeof first) > 0 || status != COD_OK)
        fail_msg("%s", first);
}

/** Distance of what came out, relative in the norm. A NaN never passes. */
struct distance {
    double difference = 0, norm = 0;
    void add(double actual, double expected)
    {
        difference += (actual - expected) * (actual - expected);
        norm += expected * expected;
    }
    void require(const char *what) const
    {
        const double error = std::sqrt(difference / norm);
        if (!(error < tolerance))
            fail_msg("%s: %.2e from what it should be", what, error);
        print_message("%s: %.1e\n", what, error);
    }
};

/* The tail: 9x9, 64 -> 3, one picture of 96x96. */

static bool inside(int i, int j, int size)
{
    return i >= 0 && j >= 0 && i < size && j < size;
}

static float tail_weight(const float *w, int k, int r, int s, int c)
{
    return w[((k * 9 + r) * 9 + s) * 64 + c];
}

TEST(tail_comes_out_right)
{
    enum { SIDE = T_S, PIXELS = SIDE * SIDE, ROWS = 12 };
    const bf16 *x = random_bf16((size_t)PIXELS * 64, 1), *dy = random_bf16((size_t)PIXELS * 3, 2);
    const float *w = random_f32(3 * 81 * 64, 0.02f, 3), *bias = random_f32(3, 1, 4);
    bf16 *wf = on_device<bf16>(32 * 576), *wd = on_device<bf16>(64 * 288), *dx = on_device<bf16>((size_t)PIXELS * 64);
    float *y = on_device<float>((size_t)PIXELS * 3), *dw = zeros(64 * 288);
    launch(tail_pack, 72, 256, 0, w, wf, wd);
    launch(tail_fwd, SIDE / ROWS, 128, TF_SMEM, x, wf, bias, y, (int)ROWS);
    launch(tail_dx, SIDE / TX_ROWS, 128, TX_SMEM, dy, wd, dx, (int)(SIDE / TX_ROWS));
    launch(tail_dw, SIDE / ROWS, 288, TW_SMEM, x, dy, dw, (int)ROWS);
    distance forward, data, weights;
    std::vector<double> expected(3 * 81 * 64);
    for (int p = 0; p < PIXELS; p++) {
        double sums[3] = {bias[0], bias[1], bias[2]}, back[64] = {};
        for (int r = 0; r < 9; r++)
            for (int s = 0; s < 9; s++) {
                const int i = p / SIDE + r - 4, j = p % SIDE + s - 4, bi = p / SIDE - r + 4, bj = p % SIDE - s + 4;
                for (int k = 0; k < 3; k++)
                    for (int c = 0; c < 64; c++) {
                        if (inside(i, j, SIDE)) {
                            const double at = value(x[((size_t)i * SIDE + j) * 64 + c]);
                            sums[k] += at * tail_weight(w, k, r, s, c);
                            expected[((k * 9 + r) * 9 + s) * 64 + c] += at * value(dy[p * 3 + k]);
                        }
                        if (inside(bi, bj, SIDE))
                            back[c] += (double)value(dy[(bi * SIDE + bj) * 3 + k]) * tail_weight(w, k, r, s, c);
                    }
            }
        for (int k = 0; k < 3; k++)
            forward.add(y[p * 3 + k], sums[k]);
        for (int c = 0; c < 64; c++)
            data.add(value(dx[(size_t)p * 64 + c]), back[c]);
    }
    for (int k = 0; k < 3; k++)
        for (int r = 0; r < 9; r++)
            for (int s = 0; s < 9; s++)
                for (int c = 0; c < 64; c++)
                    weights.add(dw[(c * 9 + 8 - r) * 32 + k * 9 + 8 - s], expected[((k * 9 + r) * 9 + s) * 64 + c]);
    forward.require("tail, forward");
    data.require("tail, data gradient");
    weights.require("tail, weight gradient");
}

/* The trunk: 3x3, 64 -> 64, pictures of 24x24, with normalisations in load and store. */

enum { TRUNK_SIDE = C_S, TRUNK_PIXELS = TRUNK_SIDE * TRUNK_SIDE, TRUNK_VALUES = TRUNK_PIXELS * 64 };

/** `wide`: for products of warpgroups. */
__global__ void trunk_pack(const float *w, bf16 *packed, bool back, bool wide)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), k = conv3_channel(i / 576), rs = i % 576 / 64,
              c = i % 64;
    packed[wide ? (i % 576 / 8 * 64 + i / 576) * 8 + i % 8 : i] =
        __float2bfloat16(back ? w[(c * 9 + 8 - rs) * 64 + k] : w[(k * 9 + rs) * 64 + c]);
}

/** Sums over the pixels of a and of a·b, by channel, as f64 and on the device. */
struct sums {
    double of[128] = {};
    float *device = zeros(128);
    sums(const bf16 *a, const bf16 *b)
    {
        for (int i = 0; i < TRUNK_VALUES; i++) {
            of[i % 64] += value(a[i]);
            of[64 + i % 64] += (double)value(a[i]) * value(b[i]);
        }
        for (int i = 0; i < 128; i++)
            device[i] = (float)of[i];
    }
    double mean(int c) const { return of[c] / TRUNK_PIXELS; }
    /** Where b is a. */
    double inverse(int c) const { return 1 / std::sqrt(of[64 + c] / TRUNK_PIXELS - mean(c) * mean(c) + C_EPS); }
};

struct trunk {
    const bf16 *t1 = random_bf16(TRUNK_VALUES, 11), *t2 = random_bf16(TRUNK_VALUES, 12),
               *e1 = random_bf16(TRUNK_VALUES, 13), *e2 = random_bf16(TRUNK_VALUES, 14);
    const float *w = random_f32(64 * 576, 0.05f, 15), *gamma = random_f32(64, 0.5f, 16),
                *beta = random_f32(64, 0.5f, 17);
    float *slope = zeros(1);
    bf16 *packed = on_device<bf16>(64 * 576);
    sums s1{t1, t1}, s2{t2, t2}, crossed{t1, t2}, se{e1, e1};
};

/** What the convolution reads, in f64. */
static double loaded(const trunk &t, int load, int i)
{
    const int c = i % 64;
    const double a = value(t.t1[i]), b = value(t.t2[i]), n = TRUNK_PIXELS;
    if (load == LOAD_PLAIN)
        return a;
    if (load == LOAD_BACK) {
        const double mean = t.s2.mean(c), inverse = t.s2.inverse(c);
        const double along = inverse * (t.crossed.of[64 + c] - mean * t.crossed.of[c]) / n;
        return t.gamma[c] * inverse * (a - t.crossed.of[c] / n - (b - mean) * inverse * along);
    }
    const double z = t.gamma[c] * t.s1.inverse(c) * (a - t.s1.mean(c)) + t.beta[c];
    return load == LOAD_SKIP ? z + b : z > 0 ? z : t.slope[0] * z;
}

template <int LOAD, int STORE, int WM, int WN> static void check_trunk(const trunk &t, const char *what)
{
    bf16 *saved = on_device<bf16>(TRUNK_VALUES), *out = on_device<bf16>(TRUNK_VALUES);
    float *out_sums = zeros(129);
    const bool back = LOAD == LOAD_BACK;
    ConvArgs a = {};
    launch(trunk_pack, 144, 256, 0, t.w, t.packed, back, WN < 0);
    a.t1 = t.t1, a.t2 = t.t2, a.w = t.packed, a.saved = saved, a.out = out;
    a.sum = back ? t.s2.device : t.s1.device, a.g_sum = t.crossed.device, a.gamma = a.e_gamma = t.gamma,
    a.beta = a.e_beta = t.beta;
    a.slope = a.e_slope = t.slope, a.e1 = t.e1, a.e2 = t.e2, a.e_sum = t.se.device, a.out_sum = out_sums,
    a.d_slope = out_sums + 128;
    a.batch = 1, a.inv_count = 1.0f / TRUNK_PIXELS;
    launch(conv3<LOAD, STORE, WM, WN>, TRUNK_PIXELS / conv3_pixels(WM, WN), conv3_threads(WM, WN),
           conv3_smem(conv3_rows(WM, WN)), a);
    distance read, written, added;
    std::vector<double> input(TRUNK_VALUES);
    double expected_sums[129] = {};
    for (int i = 0; i < TRUNK_VALUES; i++) {
        input[i] = LOAD == LOAD_PLAIN ? value(t.t1[i]) : value(saved[i]); /* what was kept is what was multiplied */
        if (LOAD != LOAD_PLAIN)
            read.add(input[i], loaded(t, LOAD, i));
    }
    for (int i = 0; i < TRUNK_VALUES; i++) {
        const int p = i / 64, k = i % 64;
        double sum = 0;
        for (int rs = 0; rs < 9; rs++) {
            const int y = p / TRUNK_SIDE + rs / 3 - 1, x = p % TRUNK_SIDE + rs % 3 - 1;
            for (int c = 0; inside(y, x, TRUNK_SIDE) && c < 64; c++)
                sum += input[(y * TRUNK_SIDE + x) * 64 + c] *
                       (back ? t.w[(c * 9 + 8 - rs) * 64 + k] : t.w[(k * 9 + rs) * 64 + c]);
        }
        const double raw = value(t.e1[i]), z = t.gamma[k] * t.se.inverse(k) * (raw - t.se.mean(k)) + t.beta[k];
        if (STORE == STORE_PRELU_BACK && z <= 0) {
            expected_sums[128] += sum * z;
            sum *= t.slope[0];
        }
        if (STORE == STORE_SKIP_BACK)
            sum += value(t.e2[i]);
        expected_sums[k] += sum;
        expected_sums[64 + k] += sum * (back ? raw : sum);
        written.add(value(out[i]), sum);
    }
    for (int c = 0; c < (STORE == STORE_PRELU_BACK ? 129 : 128); c++)
        added.add(out_sums[c], expected_sums[c]);
    print_message("%s, %d by %d warps\n", what, WM, WN);
    if (LOAD != LOAD_PLAIN)
        read.require("  read");
    written.require("  written");
    added.require("  sums");
}

TEST(trunk_comes_out_right)
{
    const trunk t;
    t.slope[0] = 0.2f;
    check_trunk<LOAD_PLAIN, STORE_STATS, 2, 4>(t, "plain");
    check_trunk<LOAD_ACT, STORE_STATS, 2, 4>(t, "activation");
    check_trunk<LOAD_SKIP, STORE_STATS, 4, 2>(t, "skip");
    check_trunk<LOAD_BACK, STORE_PRELU_BACK, 2, 4>(t, "back, PReLU");
    check_trunk<LOAD_BACK, STORE_SKIP_BACK, 4, 2>(t, "back, skip");
}

/** The same by products of warpgroups, whose weights have another order in memory. */
TEST(trunk_of_warpgroups_comes_out_right)
{
    const trunk t;
    t.slope[0] = 0.2f;
    check_trunk<LOAD_PLAIN, STORE_STATS, 1, -1>(t, "plain");
    check_trunk<LOAD_ACT, STORE_STATS, 3, -1>(t, "activation");
    check_trunk<LOAD_SKIP, STORE_STATS, 3, -3>(t, "skip");
    check_trunk<LOAD_BACK, STORE_PRELU_BACK, 3, -3>(t, "back, PReLU");
}

TEST(trunk_gradients_come_out_right)
{
    enum { LAYERS = 2, PARTS = 2, WEIGHTS = 9 * 64 * 64 };
    const bf16 *x = random_bf16(LAYERS * TRUNK_VALUES, 21), *d = random_bf16(LAYERS * TRUNK_VALUES, 22);
    float *dw = zeros(LAYERS * WEIGHTS);
    launch(conv3_dw, LAYERS * PARTS, 256, CW_SMEM, x, d, dw, (size_t)TRUNK_VALUES, (int)(TRUNK_SIDE / C_ROWS),
           (int)PARTS);
    distance weights;
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < WEIGHTS; i++) {
            const int rs = i / 4096, k = i / 64 % 64, c = i % 64;
            double sum = 0;
            for (int p = 0; p < TRUNK_PIXELS; p++) {
                const int row = p / TRUNK_SIDE + rs / 3 - 1, column = p % TRUNK_SIDE + rs % 3 - 1;
                if (inside(row, column, TRUNK_SIDE))
                    sum += (double)value(d[layer * TRUNK_VALUES + p * 64 + k]) *
                           value(x[layer * TRUNK_VALUES + (row * TRUNK_SIDE + column) * 64 + c]);
            }
            weights.add(dw[layer * WEIGHTS + i], sum);
        }
    weights.require("trunk, weight gradients of two layers");
}

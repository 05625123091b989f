/** What stands for instructions that GPUs before compute capability 8.0 lack (warp_older.cuh), on the emulated GPU. */
#include "orders.cuh"

enum { INSTRUCTION_WORDS = 16 };

/**
 * What each instruction that older GPUs lack leaves in a lane's registers, {32, INSTRUCTION_WORDS}, of {32, 4} and {32,
 * 4} words.
 */
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
static const cod_emulated_machine older[] = {{13000, 1, 70, 1, 0}, {13000, 1, 72, 1, 0}, {13000, 1, 75, 1, 0}};
enum { OLDER = sizeof older / sizeof *older };

TEST(older_gpus_compute_alike)
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
 * How many sums are farther from the exact ones than they may be, those of row `but_row` and column `but_column` aside.
 * As warp_older.cuh says, an operand changes by less than 2^-29 of its row's or column's largest power of two, or by
 * nothing where none is that small. Beside that there are the roundings of 16 additions in f32 to 2^-24 each, and of
 * results and sums of scaled products below f32's normal numbers.
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

/**
 * Of values by chance: an exponent for all of A, of B, and by how much it goes up and down from one row of A, column of
 * B, and value to the next.
 */
struct range_case {
    const char *title;
    int a, b, lines, values;
};

TEST(older_gpus_keep_the_range_of_bf16)
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
TEST(older_gpus_keep_what_is_not_finite_to_itself)
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
                (in_a ? p.b[at * 8 + 2 * n] : p.a[n * 80 + at]) = bf16_from_f32(n == 0 ? 0 : ldexpf(1, -40 * n));
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

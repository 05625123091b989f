/* Loops that keep one kind of arithmetic unit busy and nothing else. */
#include "cpu/bench.h"

#include "core/memory.h"
#include "core/trace.h"
#include "cpu/cpu_internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Enough independent sums to hide the latency of two units (2 · 5 cycles at most), few enough for 16 registers. */
enum { CHAINS = 12, REPEATS = 9 };

typedef struct peak_loop {
    void (*run)(int64_t rounds);
    double flops; /**< multiplications and additions of a round */
} peak_loop;

/* What the compiler can neither foresee nor drop. */
static volatile float opaque = 1.0f;
static volatile float sink;

/** A loop of CHAINS × sums[k] = STEP(sums[k], a); sums start apart, so that no two of them are one to the compiler. */
#define PEAK_LOOP(name, attributes, vector, START, STEP, END)                                                          \
    attributes static void name(int64_t rounds)                                                                        \
    {                                                                                                                  \
        vector sums[CHAINS], a = START(opaque);                                                                        \
        for (int k = 0; k < CHAINS; k++)                                                                               \
            sums[k] = START(opaque + (float)k);                                                                        \
        for (int64_t i = 0; i < rounds; i++) {                                                                         \
            _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) sums[k] = STEP(sums[k], a);                      \
        }                                                                                                              \
        for (int k = 1; k < CHAINS; k++)                                                                               \
            sums[0] = STEP(sums[0], sums[k]);                                                                          \
        sink = END(sums[0]);                                                                                           \
    }

typedef float quad __attribute__((vector_size(16)));
#define QUAD_START(x)     ((quad){0} + (x))
#define QUAD_STEP(sum, a) ((sum) * (a) + (a))
#define QUAD_END(sum)     (sum)[0]
PEAK_LOOP(generic_f32, , quad, QUAD_START, QUAD_STEP, QUAD_END)
static const peak_loop generic_f32_loop = {generic_f32, CHAINS * 4 * 2};

#if defined(__x86_64__)
#define AVX2       __attribute__((target("avx2,fma")))
#define AVX512     __attribute__((target("avx512f")))
#define AVX512BF16 __attribute__((target("avx512f,avx512bf16")))
#define AVX512VNNI __attribute__((target("avx512f,avx512vnni")))

#define YMM_STEP(sum, a)  _mm256_fmadd_ps(sum, a, a)
#define ZMM_STEP(sum, a)  _mm512_fmadd_ps(sum, a, a)
#define BF16_STEP(sum, a) _mm512_dpbf16_ps(sum, (__m512bh)(a), (__m512bh)(a))
#define INT8_START(x)     _mm512_castps_si512(_mm512_set1_ps(x))
#define INT8_STEP(sum, a) _mm512_dpbusd_epi32(sum, a, a)
#define INT8_END(sum)     (float)_mm512_cvtsi512_si32(sum)
PEAK_LOOP(avx2_f32, AVX2, __m256, _mm256_set1_ps, YMM_STEP, _mm256_cvtss_f32)
PEAK_LOOP(avx512_f32, AVX512, __m512, _mm512_set1_ps, ZMM_STEP, _mm512_cvtss_f32)
PEAK_LOOP(avx512_bf16, AVX512BF16, __m512, _mm512_set1_ps, BF16_STEP, _mm512_cvtss_f32)
PEAK_LOOP(avx512_s8, AVX512VNNI, __m512i, INT8_START, INT8_STEP, INT8_END)
static const peak_loop avx2_f32_loop = {avx2_f32, CHAINS * 8 * 2}, avx512_f32_loop = {avx512_f32, CHAINS * 16 * 2},
                       avx512_bf16_loop = {avx512_bf16, CHAINS * 32 * 2}, avx512_s8_loop = {avx512_s8, CHAINS * 64 * 2};

/* AMX: palette 1, eight tiles of 16 rows of 64 bytes; four of them are sums. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/**
 * GCC 12 believes that _tile_loadconfig() and _tile_storeconfig() use the first 8 bytes alone, and leaves out what is
 * stored behind them; a configuration without rows is then a general protection fault.
 */
static inline void in_memory(tile_config *config)
{
    __asm__ volatile("" : : "r"(config) : "memory");
}

#define AMX_LOOP(name, set, instruction)                                                                               \
    __attribute__((target("amx-tile," set))) static void name(int64_t rounds)                                          \
    {                                                                                                                  \
        tile_config before, ours = {.palette = 1};                                                                     \
        for (int i = 0; i < 8; i++) {                                                                                  \
            ours.row_bytes[i] = 64;                                                                                    \
            ours.rows[i] = 16;                                                                                         \
        }                                                                                                              \
        in_memory(&ours), in_memory(&before);                                                                          \
        _tile_storeconfig(&before);                                                                                    \
        _tile_loadconfig(&ours); /* zeroes the tiles */                                                                \
        for (int64_t i = 0; i < rounds; i++) {                                                                         \
            instruction(0, 4, 6);                                                                                      \
            instruction(1, 4, 7);                                                                                      \
            instruction(2, 5, 6);                                                                                      \
            instruction(3, 5, 7);                                                                                      \
        }                                                                                                              \
        if (before.palette != 0)                                                                                       \
            _tile_loadconfig(&before);                                                                                 \
        else                                                                                                           \
            _tile_release();                                                                                           \
    }

AMX_LOOP(amx_bf16, "amx-bf16", _tile_dpbf16ps)
AMX_LOOP(amx_s8, "amx-int8", _tile_dpbssd)
static const peak_loop amx_bf16_loop = {amx_bf16, 4 * 16 * 16 * 32 * 2}, amx_s8_loop = {amx_s8, 4 * 16 * 16 * 64 * 2};
#endif

/** NULL: there is none. */
static const peak_loop *find_loop(const cod_device *device, cod_dtype dtype)
{
#if defined(__x86_64__)
    const bool bf16 = device->kernels == &cpu_kernels_avx512_bf16;
    const bool avx512 = bf16 || device->kernels == &cpu_kernels_avx512;
    const bool amx = bf16 && cpu_onednn_isa() == CPU_ISA_AMX; /* then oneDNN has asked the kernel for the tiles */
    if (dtype == COD_F32 && avx512)
        return &avx512_f32_loop;
    if (dtype == COD_F32 && device->kernels == &cpu_kernels_avx2)
        return &avx2_f32_loop;
    if (dtype == COD_BF16 && bf16)
        return amx ? &amx_bf16_loop : &avx512_bf16_loop;
    if (dtype == COD_S8 && avx512 && __builtin_cpu_supports("avx512vnni"))
        return amx ? &amx_s8_loop : &avx512_s8_loop;
#endif
    return dtype == COD_F32 ? &generic_f32_loop : NULL;
}

typedef struct peak_job {
    const peak_loop *loop;
    int64_t rounds;
} peak_job;

static void run_peak(void *context, int64_t i, int thread)
{
    const peak_job *job = context;
    (void)i, (void)thread;
    job->loop->run(job->rounds);
}

static double time_parallel(const cod_device *device, void (*function)(void *, int64_t, int), void *context)
{
    const double start = cod_clock_s();
    cpu_parallel_for(device, device->threads, function, context);
    return cod_clock_s() - start;
}

cod_status cod_cpu_bench_peak(cod_device *device, cod_dtype dtype, double *gflops)
{
    peak_job job = {find_loop(device, dtype), 1024};
    if (job.loop == NULL)
        return cod_fail(COD_ERR_UNSUPPORTED, "cpu: %s has no arithmetic of %s", device->kernels->name,
                        cod_dtype_name(dtype));
    COD_TRY(cpu_use_threads(device->threads));
    while (time_parallel(device, run_peak, &job) < 4e-3) /* also wakes the clock up */
        job.rounds *= 2;
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        const double seconds = time_parallel(device, run_peak, &job);
        best = seconds < best ? seconds : best;
    }
    *gflops = 1e-9 * job.loop->flops * (double)job.rounds * device->threads / best;
    return COD_OK;
}

typedef struct triad {
    const cod_device *device;
    float *a, *b, *y;
    int64_t rows; /**< of TRIAD_ROW floats, for each thread */
} triad;

enum { TRIAD_ROW = 64, TRIAD_BYTES = 256 << 20 };

static void run_triad(void *context, int64_t i, int thread)
{
    const triad *t = context;
    const int64_t first = i * t->rows * TRIAD_ROW;
    (void)thread;
    t->device->kernels->add((cpu_rows){(char *)(t->a + first), TRIAD_ROW, false},
                            (cpu_rows){(char *)(t->b + first), TRIAD_ROW, false},
                            (cpu_rows){(char *)(t->y + first), TRIAD_ROW, false}, t->rows, TRIAD_ROW, 1, 3, false);
}

cod_status cod_cpu_bench_bandwidth(cod_device *device, double *gbytes)
{
    triad t = {.device = device, .rows = TRIAD_BYTES / (3 * TRIAD_ROW * (int64_t)sizeof(float) * device->threads)};
    const size_t count = (size_t)t.rows * TRIAD_ROW * (size_t)device->threads;
    void *memory;
    COD_TRY(cpu_use_threads(device->threads));
    COD_TRY(cod_aligned_alloc(&memory, 3 * count * sizeof(float)));
    memset(memory, 0, 3 * count * sizeof(float)); /* pages that were never written share one of zeros */
    t.a = memory;
    t.b = t.a + count;
    t.y = t.b + count;
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        const double seconds = time_parallel(device, run_triad, &t);
        best = seconds < best ? seconds : best;
    }
    cod_aligned_free(memory);
    *gbytes = 1e-9 * 3.0 * (double)count * sizeof(float) / best;
    return COD_OK;
}

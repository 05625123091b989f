/*
 * Ops MAGNITUDES and RANGES: `ref` against counts and a choice written out here, all others against the same, to the
 * bit.
 */
#include "support/test.h"

#include "core/int8_range.h"
#include "core/rng.h"
#include "ref/ref.h"
#include "support/late.h"
#include "support/ops.h"
#ifdef COD_TESTED
#include "cuda/cuda.h"
#else
#include "cpu/cpu.h"
#endif

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Guards lie before and behind what an op may write. */
enum { ROWS = 5, GUARD_BYTES = 64, GUARD = 0xA5, SHAPES = 6 };

static const cod_shape shapes[SHAPES] = {{1, 1, 1, 1},    {1, 3, 5, 7},     {2, 9, 13, 17},
                                         {3, 16, 16, 64}, {1, 1, 1, 70001}, {5, 1, 300, 3}};

/**
 * What a tensor may hold: `kind` 0 usual activations, 1 behind ReLU, 2 all sizes, 3 zeros, 4 and 5 also what is not
 * finite.
 */
static float random_value(cod_rng *rng, int kind)
{
    const float uniform = (float)(2 * cod_rng_uniform(rng) - 1);
    switch (kind) {
    case 0:
        return 3 * uniform * uniform * uniform;
    case 1:
        return uniform > 0 ? 3 * uniform : 0;
    case 3:
        return uniform > 0 ? 0.0f : -0.0f;
    case 4:
        return cod_rng_below(rng, 97) == 0 ? NAN : uniform;
    case 5:
        return cod_rng_below(rng, 97) == 0 ? -3.4e38f : uniform; /* becomes infinite in bf16 */
    default:
        return ldexpf(uniform, (int)cod_rng_below(rng, 270) - 148);
    }
}

/** A buffer whose first and last bytes are guards. */
static cod_buffer *guarded(const cod_backend *backend, cod_device *device, size_t bytes)
{
    cod_buffer *buffer;
    unsigned char *guards = malloc(bytes + 2 * GUARD_BYTES);
    assert_non_null(guards);
    memset(guards, GUARD, bytes + 2 * GUARD_BYTES);
    assert_ok(backend->buffer_create(device, bytes + 2 * GUARD_BYTES, &buffer));
    assert_ok(backend->upload(device, NULL, buffer, 0, guards, buffer->bytes));
    free(guards);
    return buffer;
}

/** Reads what lies between the guards, which must be as they were; frees the buffer. */
static void read_guarded(const cod_backend *backend, cod_device *device, cod_buffer *buffer, void *out)
{
    const size_t bytes = buffer->bytes - 2 * GUARD_BYTES;
    unsigned char *all = malloc(buffer->bytes);
    assert_non_null(all);
    assert_ok(backend->download(device, NULL, all, buffer, 0, buffer->bytes));
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (all[i] != GUARD || all[GUARD_BYTES + bytes + i] != GUARD)
            fail_msg("%s: wrote beside its output", backend->name);
    memcpy(out, all + GUARD_BYTES, bytes);
    free(all);
    backend->buffer_destroy(device, buffer);
}

static void run(const cod_backend *backend, cod_device *device, const cod_op *op)
{
    cod_plan *plan;
    assert_ok(backend->plan_create(device, op, &plan));
    assert_ok(backend->plans_prepare(device, &plan, 1, NULL));
    assert_ok(backend->plan_run(plan, NULL));
    backend->plan_destroy(plan);
}

/** The view's bytes with random values, gaps between its pixels too, and how often each magnitude occurs. */
static void *random_tensor(const cod_view *x, uint64_t seed, int kind, uint32_t *counts)
{
    cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, (uint32_t)kind);
    const int64_t pixels = x->shape.n * x->shape.h * x->shape.w;
    char *bytes = calloc(1, cod_view_span_bytes(x) + sizeof(double));
    assert_non_null(bytes);
    for (int64_t i = 0; i < pixels * x->pixel_stride; i++) {
        const bool counted = i % x->pixel_stride < x->shape.c;
        if (i >= (pixels - 1) * x->pixel_stride + x->shape.c)
            break;
        const float value = random_value(&rng, counted ? kind : 4);
        const uint16_t rounded = cod_bf16_from_f32(fabsf(value)), sign = signbit(value) ? 0x8000 : 0;
        const double wide = (double)value;
        if (x->dtype == COD_BF16)
            ((uint16_t *)(void *)bytes)[i] = rounded | sign;
        else
            memcpy(bytes + (size_t)i * cod_dtype_bytes(x->dtype), x->dtype == COD_F32 ? (const void *)&value : &wide,
                   cod_dtype_bytes(x->dtype));
        if (counted && rounded > 0)
            counts[isfinite(cod_f32_from_bf16(rounded)) ? rounded : COD_MAGNITUDE_INFINITE]++;
    }
    return bytes;
}

/** Counts several tensors into one row of several, the first of them over what lay there. */
static void check_magnitudes(const cod_backend *backend, cod_device *device, cod_dtype dtype, uint64_t seed)
{
    enum { TENSORS = 3 };
    const size_t row_bytes = COD_MAGNITUDES * sizeof(uint32_t), row = seed % ROWS;
    cod_buffer *counts = guarded(backend, device, ROWS * row_bytes);
    uint32_t *expected = calloc(COD_MAGNITUDES, sizeof *expected), *all = calloc(ROWS, row_bytes);
    assert_non_null(expected);
    assert_non_null(all);
    for (int t = 0; t < TENSORS; t++) {
        const cod_shape shape = shapes[(seed + (uint64_t)t) % SHAPES];
        cod_view x = cod_view_dense(NULL, 16, dtype, shape);
        x.pixel_stride += (int64_t)(seed % 2) * 5;
        void *bytes = random_tensor(&x, seed, (int)(seed / 2 + (uint64_t)t) % 6, expected);
        assert_ok(backend->buffer_create(device, x.offset + cod_view_span_bytes(&x), &x.buffer));
        assert_ok(backend->upload(device, NULL, x.buffer, x.offset, bytes, cod_view_span_bytes(&x)));
        const cod_op op = {.kind = COD_OP_MAGNITUDES,
                           .accumulate = t > 0,
                           .inputs = {x},
                           .outputs = {cod_view_dense(counts, GUARD_BYTES + row * row_bytes, COD_I32,
                                                      (cod_shape){1, 1, 1, COD_MAGNITUDES})},
                           .name = "test"};
        run(backend, device, &op);
        backend->buffer_destroy(device, x.buffer);
        free(bytes);
    }
    read_guarded(backend, device, counts, all);
    for (size_t i = 0; i < ROWS * row_bytes; i++)
        if (i / row_bytes != row && ((unsigned char *)all)[i] != GUARD)
            fail_msg("%s, seed %d: wrote into another row", backend->name, (int)seed);
    for (size_t m = 0; m < COD_MAGNITUDES; m++)
        if (all[row * COD_MAGNITUDES + m] != expected[m])
            fail_msg("%s, seed %d, %s: magnitude %zx occurs %u times, not %u", backend->name, (int)seed,
                     cod_dtype_name(dtype), m, all[row * COD_MAGNITUDES + m], expected[m]);
    free(expected);
    free(all);
}

/** The rule of core/int8_range.h: the largest of 64 ranges whose error is nearly the least. */
static float expected_range(const uint32_t *counts)
{
    double errors[COD_RANGE_STEPS] = {0}, largest = 0;
    int chosen = 0, least = 0;
    if (counts[COD_MAGNITUDE_INFINITE] > 0)
        return NAN;
    for (uint16_t m = 1; m < COD_MAGNITUDE_INFINITE; m++)
        largest = counts[m] > 0 ? (double)cod_f32_from_bf16(m) : largest;
    for (uint16_t m = 1; m < COD_MAGNITUDE_INFINITE; m++)
        for (int s = 0; s < COD_RANGE_STEPS; s++) {
            const double range = largest * (s + 1) / COD_RANGE_STEPS, step = range / 127,
                         value = (double)cod_f32_from_bf16(m), cut = value > range ? value - range : 0;
            errors[s] += counts[m] * (cut > 0 ? cut * cut : fmin(step * step / 12, value * value));
        }
    for (int s = 0; s < COD_RANGE_STEPS; s++)
        least = errors[s] < errors[least] ? s : least;
    for (int s = 0; s < COD_RANGE_STEPS; s++)
        chosen = errors[s] <= 1.25 * errors[least] ? s + 1 : chosen;
    return largest > 0 ? (float)(largest * chosen / COD_RANGE_STEPS) : 1;
}

/**
 * Rows of all kinds: activations, one magnitude alone, none, what is not finite, as many as a number holds, and one far
 * beyond all others, which the range leaves out.
 */
static void fill_row(uint32_t *counts, uint64_t seed, int kind)
{
    const cod_view x = cod_view_dense(NULL, 0, COD_F32, shapes[2 + seed % 2]);
    if (kind < 6) {
        free(random_tensor(&x, seed, kind, counts));
        return;
    }
    if (kind == 10) {
        for (int i = 1; i <= 64; i++)
            counts[cod_bf16_from_f32((float)i / 64)] = 10000 + (uint32_t)seed;
        counts[cod_bf16_from_f32(4)] = 1;
        return;
    }
    cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, (uint32_t)kind);
    counts[1 + cod_rng_below(&rng, COD_MAGNITUDE_INFINITE - 1)] = UINT32_MAX;
    for (int i = 0; i < 50 && kind == 7; i++)
        counts[1 + cod_rng_below(&rng, COD_MAGNITUDE_INFINITE - 1)] = cod_rng_below(&rng, UINT32_MAX);
    counts[0x0001] += kind == 8; /* the least, and the greatest */
    counts[COD_MAGNITUDE_INFINITE - 1] += kind == 9;
}

/** @param rows  the first of them of kind `seed` */
static void check_ranges(const cod_backend *backend, cod_device *device, int64_t rows, uint64_t seed)
{
    enum { KINDS = 11 };
    const size_t row_bytes = COD_MAGNITUDES * sizeof(uint32_t);
    uint32_t *counts = calloc((size_t)rows, row_bytes);
    float *ranges = calloc((size_t)rows, sizeof *ranges);
    cod_buffer *in, *out = guarded(backend, device, (size_t)rows * sizeof *ranges);
    assert_non_null(counts);
    assert_non_null(ranges);
    for (int64_t i = 0; i < rows; i++)
        fill_row(counts + i * COD_MAGNITUDES, seed, (int)(seed + (uint64_t)i) % KINDS);
    assert_ok(backend->buffer_create(device, (size_t)rows * row_bytes, &in));
    assert_ok(backend->upload(device, NULL, in, 0, counts, in->bytes));
    const cod_op op = {.kind = COD_OP_RANGES,
                       .inputs = {cod_view_dense(in, 0, COD_I32, (cod_shape){1, rows, 1, COD_MAGNITUDES})},
                       .outputs = {cod_view_dense(out, GUARD_BYTES, COD_F32, (cod_shape){1, 1, 1, rows})},
                       .name = "test"};
    run(backend, device, &op);
    read_guarded(backend, device, out, ranges);
    for (int64_t i = 0; i < rows; i++) {
        const float expected = expected_range(counts + i * COD_MAGNITUDES);
        if (isnan(expected) ? !isnan(ranges[i]) : memcmp(&ranges[i], &expected, sizeof expected) != 0)
            fail_msg("%s, seed %d: row %d has the range %.9g, not %.9g", backend->name, (int)seed, (int)i,
                     (double)ranges[i], (double)expected);
    }
    backend->buffer_destroy(device, in);
    free(counts);
    free(ranges);
}

static void check(const cod_backend *backend, int threads, bool wide)
{
    cod_device *device;
    assert_ok(backend->open(&(cod_device_options){.threads = threads}, &device));
    for (uint64_t seed = 0; seed < 24; seed++) {
        check_magnitudes(backend, device, seed % 4 < 2 ? COD_F32 : wide && seed % 3 == 0 ? COD_F64 : COD_BF16, seed);
        if (seed < 11)
            check_ranges(backend, device, 1 + (int64_t)seed % 4, seed);
    }
    backend->close(device);
    cod_test_assert_none(cod_late_violations, "%s", backend->name);
}

TEST(counts_and_ranges_are_the_rule)
{
#ifdef COD_TESTED
    check(&COD_TESTED, 0, false);
#else
    check(&cod_ref_backend, 0, true);
    check(&cod_cpu_backend, 1, false);
    check(&cod_cpu_backend, 3, false);
    check(cod_late_wrap(&cod_ref_backend), 0, true);
#endif
}

TEST(other_shapes_and_types_are_refused)
{
    cod_buffer buffer = {.bytes = 4 * COD_MAGNITUDES * sizeof(uint32_t)};
    const cod_view x = cod_view_dense(&buffer, 0, COD_F32, (cod_shape){1, 2, 3, 4}),
                   counts = cod_view_dense(&buffer, 0, COD_I32, (cod_shape){1, 1, 1, COD_MAGNITUDES}),
                   many = cod_view_dense(&buffer, 0, COD_I32, (cod_shape){1, 3, 1, COD_MAGNITUDES}),
                   few = cod_view_dense(&buffer, 0, COD_I32, (cod_shape){1, 1, 1, COD_MAGNITUDES - 1}),
                   floats = cod_view_dense(&buffer, 0, COD_F32, (cod_shape){1, 1, 1, COD_MAGNITUDES}),
                   three = cod_view_dense(&buffer, 0, COD_F32, (cod_shape){1, 1, 1, 3});
    const struct {
        cod_op_kind kind;
        cod_view in, out;
        cod_status status;
    } cases[] = {{COD_OP_MAGNITUDES, x, counts, COD_OK},
                 {COD_OP_MAGNITUDES, x, many, COD_ERR_ARGUMENT},
                 {COD_OP_MAGNITUDES, x, few, COD_ERR_ARGUMENT},
                 {COD_OP_MAGNITUDES, x, floats, COD_ERR_ARGUMENT},
                 {COD_OP_MAGNITUDES, {0}, counts, COD_ERR_ARGUMENT},
                 {COD_OP_RANGES, many, three, COD_OK},
                 {COD_OP_RANGES, counts, three, COD_ERR_ARGUMENT},
                 {COD_OP_RANGES, floats, x, COD_ERR_ARGUMENT},
                 {COD_OP_RANGES, many, many, COD_ERR_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cod_op op = {.kind = cases[i].kind, .inputs = {cases[i].in}, .outputs = {cases[i].out}, .name = "test"};
        if (cod_op_check(&op) != cases[i].status)
            fail_msg("case %zu: %s", i, cod_error_message());
    }
}

#ifdef COD_TESTED
TEST_DEVICE(COD_TESTED)
#endif

#include "support/test.h"

#include "core/rng.h"
#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "pair.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/**
 * What one launch does for many layers: weight gradients of equal layers as one plan, and packing. `ref` computes the
 * layers one by one. Values are small integers, whose sums are exact, so that results must be equal bit for bit.
 */

enum { MOST_LAYERS = 5, DW = COD_OP_MAX_INPUTS, DB = DW + 1 };

typedef struct group {
    int64_t n, h, w, in, out, kernel;
    int stride, pad, shuffle;
    int64_t gap_x, gap_y; /**< elements between pixels; an offset of a quarter of the bytes goes with them */
    cod_dtype x, y;
} group;

/** Layers that the kernel of 3x3 takes, ones that it does not, and ones that no kernel reads in place. */
static const group groups[] = {
    {1, 24, 24, 64, 64, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16},
    {2, 5, 7, 16, 16, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16},
    {1, 23, 41, 16, 48, 3, 1, 1, 1, 0, 32, COD_BF16, COD_BF16},
    {3, 9, 10, 32, 64, 3, 1, 0, 1, 32, 0, COD_BF16, COD_BF16},
    {1, 7, 25, 80, 32, 3, 1, 2, 1, 0, 0, COD_BF16, COD_BF16},
    {1, 6, 6, 32, 128, 3, 1, 1, 2, 0, 0, COD_BF16, COD_BF16},
    {2, 3, 9, 112, 96, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16},
    {1, 25, 3, 48, 16, 3, 1, 1, 1, 8, 8, COD_BF16, COD_BF16},
    {2, 9, 12, 16, 16, 3, 1, 1, 1, 0, 0, COD_F32, COD_BF16},
    {3, 1, 1, 64, 64, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16},
    {2, 9, 11, 24, 40, 3, 2, 1, 1, 0, 0, COD_BF16, COD_BF16},
    {1, 6, 7, 16, 8, 5, 4, 2, 1, 0, 0, COD_BF16, COD_BF16},
    {2, 8, 9, 8, 24, 1, 1, 0, 1, 0, 0, COD_BF16, COD_BF16},
    {2, 5, 6, 7, 9, 3, 1, 1, 1, 0, 0, COD_F32, COD_F32},
    {2, 5, 6, 3, 64, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

#ifdef __SANITIZE_ADDRESS__
enum { GROUP_STEP = 4 };
#else
enum { GROUP_STEP = 1 };
#endif

static cod_op layer_op(const group *g, bool bias, bool accumulate)
{
    const cod_test_layer layer = {g->n, g->h, g->w, g->in, g->out, g->kernel, g->stride, g->pad};
    const cod_test_layout layout = {g->x, g->y, g->gap_x, g->gap_y};
    cod_op op = cod_test_layer_op(&layer, COD_OP_CONV2D_BACKWARD_WEIGHTS, layout, g->shuffle);
    op.deterministic = true;
    op.accumulate = accumulate;
    if (!bias)
        cod_test_without_bias(&op);
    return op;
}

/** Integers of -3 … 3; with `exact` false, of 1000 times as many digits as bf16 keeps in sums. */
static void write_values(cod_test_op *test, uint64_t seed, bool exact)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        if (test->buffers[slot] == NULL)
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&test->op, slot)->shape);
        cod_rng rng = cod_rng_open(seed, 3, 0, 0, COD_RNG_TEST, (uint32_t)slot);
        double *values = calloc((size_t)count, sizeof *values);
        assert_non_null(values);
        for (int64_t i = 0; i < count; i++)
            values[i] = exact ? (double)cod_rng_below(&rng, 7) - 3 : ((double)cod_rng_below(&rng, 20001) - 1e4) / 7919;
        assert_ok(cod_test_op_write(test, slot, values));
        free(values);
    }
}

static double *read_slot(cod_test_op *test, size_t slot, int64_t *count)
{
    *count = cod_shape_count(cod_test_view(&test->op, slot)->shape);
    double *values = calloc((size_t)*count, sizeof *values);
    assert_non_null(values);
    assert_ok(cod_test_op_read(test, slot, values));
    return values;
}

static void require_equal(cod_test_op *expected, cod_test_op *actual, const char *what, int number, int layer)
{
    for (size_t slot = DW; slot <= DB; slot++) {
        int64_t count;
        if (expected->buffers[slot] == NULL)
            continue;
        double *a = read_slot(expected, slot, &count), *b = read_slot(actual, slot, &count);
        const cod_status status =
            cod_test_compare(slot == DW ? "dw" : "db", b, a, count, (cod_tolerance){.relative = 0});
        free(a), free(b);
        if (status != COD_OK)
            fail_msg("%s %d, layer %d: %s", what, number, layer, cod_error_message());
    }
}

static void require_no_faults(const char *what, int number, uint64_t seed)
{
    cod_test_assert_none(cod_emulated_faults, "%s %d, seed %" PRIu64, what, number, seed);
}

/** The layers' ops on the device's buffers. */
typedef struct layers {
    int count;
    cod_test_op tests[MOST_LAYERS];
    cod_op ops[MOST_LAYERS];
} layers;

/** Every third layer, or with `biases` false each, has no bias. */
static layers layers_open(cod_test_device on, const group *g, int count, bool accumulate, bool biases)
{
    layers l = {.count = count};
    for (int i = 0; i < count; i++) {
        const cod_op op = layer_op(g, biases && i % 3 != 1, accumulate);
        assert_ok(cod_test_op_init(&l.tests[i], on, &op));
        l.ops[i] = l.tests[i].op;
    }
    return l;
}

static void layers_close(layers *l)
{
    for (int i = 0; i < l->count; i++)
        cod_test_op_clear(&l->tests[i]);
}

static bool reads_in_place(const group *g)
{
    return g->x == g->y && (g->x == COD_F32 || (g->in % 8 == 0 && g->out / (g->shuffle * g->shuffle) % 8 == 0 &&
                                                g->gap_x % 8 == 0 && g->gap_y % 8 == 0));
}

static void check_group(int number, int count, bool accumulate, bool biases)
{
    const cod_backend *cuda = test_cuda.backend;
    const group *g = &groups[number];
    layers expected = layers_open(test_ref, g, count, accumulate, biases),
           actual = layers_open(test_cuda, g, count, accumulate, biases);
    cod_plan *plan = NULL;
    assert_int_equal(cuda->op_fuses(test_cuda.device, actual.ops, (size_t)count), reads_in_place(g) ? count : 1);
    for (int i = 0; i < count; i++) {
        write_values(&expected.tests[i], (uint64_t)(number + i), true);
        write_values(&actual.tests[i], (uint64_t)(number + i), true);
        assert_ok(cod_test_op_run(&expected.tests[i]));
    }
    cod_emulated_set_seed((uint64_t)number);
    if (reads_in_place(g)) {
        assert_ok(cuda->plan_create_fused(test_cuda.device, actual.ops, (size_t)count, &plan));
        assert_ok(cuda->plans_prepare(test_cuda.device, &plan, 1, NULL));
        assert_ok(cuda->plan_run(plan, NULL));
    }
    for (int i = 0; i < count && !reads_in_place(g); i++)
        assert_ok(cod_test_op_run(&actual.tests[i]));
    for (int i = 0; i < count; i++)
        require_equal(&expected.tests[i], &actual.tests[i], "group", number, i);
    require_no_faults("group", number, (uint64_t)number);
    cuda->plan_destroy(plan);
    layers_close(&expected);
    layers_close(&actual);
}

TEST(gradients_of_equal_layers_agree)
{
    for (int number = 0; number < GROUPS; number += GROUP_STEP) {
        const bool large = groups[number].h * groups[number].w > 300;
        check_group(number, large ? 2 : 2 + number % 4, number % 2 == 0, number % 5 != 3);
    }
}

/**
 * A kernel's limit of shared memory is the kernel's: a plan that needs less, made later, must leave it to those that
 * need more.
 */
TEST(a_small_plan_takes_no_memory_from_a_large_one)
{
    static const int64_t smaller[] = {5, 8, 12, 16};
    static const group large = {1, 24, 24, 64, 64, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16};
    layers first = layers_open(test_cuda, &large, 1, false, true);
    write_values(&first.tests[0], 1, true);
    for (size_t i = 0; i < sizeof smaller / sizeof smaller[0]; i++) {
        group small = large;
        small.h = small.w = smaller[i];
        layers second = layers_open(test_cuda, &small, 1, false, true);
        assert_ok(cod_test_op_run(&first.tests[0]));
        require_no_faults("large plan beside one of", (int)smaller[i], 1);
        layers_close(&second);
    }
    layers_close(&first);
}

/** A plan of the op, and what the device allocated for it. */
static cod_plan *plan_of(const cod_op *op, size_t *bytes)
{
    cod_plan *plan = NULL;
    const size_t before = test_cuda.backend->allocated(test_cuda.device);
    assert_ok(test_cuda.backend->plan_create(test_cuda.device, op, &plan));
    *bytes = test_cuda.backend->allocated(test_cuda.device) - before;
    return plan;
}

/** Runs the layer's plan and that of `ref`, which must agree. */
static void require_run(cod_plan *plan, cod_test_op *test, cod_test_op *expected, int number)
{
    write_values(test, 1, true);
    write_values(expected, 1, true);
    assert_ok(cod_test_op_run(expected));
    assert_ok(test_cuda.backend->plan_run(plan, NULL));
    require_equal(expected, test, "pair", number, 0);
    require_no_faults("pair", number, 1);
}

/**
 * Plans whose dy lie in one buffer have one place for partial sums, which grows until one of them has run. One that
 * needs more later has a place of its own, because the first one's run may have been recorded.
 */
static void check_partial_sums(const group *kinds, int number)
{
    enum { DY = 1, OTHERWISE = 1024 }; /* bytes that a plan has beside partial sums, at most */
    const cod_backend *cuda = test_cuda.backend;
    layers expected[2], l[2];
    size_t alone[2], more;
    cod_plan *plans[3];
    for (int i = 0; i < 2; i++) {
        expected[i] = layers_open(test_ref, &kinds[i], 1, false, true);
        l[i] = layers_open(test_cuda, &kinds[i], 1, false, true);
        cuda->plan_destroy(l[i].tests[0].plan);
        l[i].tests[0].plan = NULL;
    }
    cod_test_op *small = &l[0].tests[0], *large = &l[1].tests[0];
    cod_buffer *own = small->buffers[DY];
    small->buffers[DY] = small->op.inputs[DY].buffer = large->buffers[DY];
    for (int i = 0; i < 2; i++)
        cuda->plan_destroy(plan_of(&l[i].tests[0].op, &alone[i]));
    assert_true(alone[0] > 2 * OTHERWISE && alone[1] > alone[0] + OTHERWISE);
    const size_t before = cuda->allocated(test_cuda.device);

    plans[0] = plan_of(&small->op, &more);
    plans[1] = plan_of(&large->op, &more);
    assert_true(cuda->allocated(test_cuda.device) - before <= alone[1] + OTHERWISE);
    require_run(plans[0], small, &expected[0].tests[0], number);
    require_run(plans[1], large, &expected[1].tests[0], number);
    plans[2] = plan_of(&large->op, &more);
    assert_true(more <= OTHERWISE);
    for (int i = 0; i < 3; i++)
        cuda->plan_destroy(plans[i]);
    assert_int_equal(cuda->allocated(test_cuda.device), before);

    plans[0] = plan_of(&small->op, &more);
    require_run(plans[0], small, &expected[0].tests[0], number);
    plans[1] = plan_of(&large->op, &more);
    assert_int_equal(more, alone[1]);
    require_run(plans[1], large, &expected[1].tests[0], number);
    require_run(plans[0], small, &expected[0].tests[0], number);
    for (int i = 0; i < 2; i++)
        cuda->plan_destroy(plans[i]);
    assert_int_equal(cuda->allocated(test_cuda.device), before);
    small->buffers[DY] = own;
    for (int i = 0; i < 2; i++) {
        layers_close(&expected[i]);
        layers_close(&l[i]);
    }
}

/** By the kernel of 3x3, of few channels, and by products. */
TEST(plans_of_one_buffer_share_partial_sums)
{
    static const group kinds[][2] = {
        {{1, 12, 24, 64, 64, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16},
         {1, 24, 24, 64, 128, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16}},
        {{1, 6, 24, 64, 3, 3, 1, 1, 1, 0, 0, COD_BF16, COD_BF16},
         {1, 24, 24, 64, 3, 9, 1, 4, 1, 0, 0, COD_BF16, COD_BF16}},
        {{1, 9, 12, 16, 16, 3, 1, 1, 1, 0, 0, COD_F32, COD_F32},
         {1, 18, 24, 48, 64, 3, 1, 1, 1, 0, 0, COD_F32, COD_F32}},
    };
    for (int i = 0; i < (int)(sizeof kinds / sizeof kinds[0]); i++)
        check_partial_sums(kinds[i], i);
}

/** Sums are added in one order, whatever the order of blocks and threads. */
TEST(gradients_do_not_depend_on_the_order)
{
    static const int numbers[] = {1, 4, 10};
    const cod_backend *cuda = test_cuda.backend;
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
        layers l = layers_open(test_cuda, &groups[numbers[k]], 2, false, true);
        double *first = NULL;
        int64_t count;
        cod_plan *plan = NULL;
        assert_ok(cuda->plan_create_fused(test_cuda.device, l.ops, 2, &plan));
        for (int i = 0; i < 2; i++)
            write_values(&l.tests[i], (uint64_t)i, false);
        for (uint64_t seed = 0; seed < 4; seed++) {
            cod_emulated_set_seed(seed);
            assert_ok(cuda->plan_run(plan, NULL));
            double *values = read_slot(&l.tests[1], DW, &count);
            if (first != NULL)
                assert_memory_equal(values, first, (size_t)count * sizeof *values);
            free(first);
            first = values;
        }
        require_no_faults("group", numbers[k], 4);
        free(first);
        cuda->plan_destroy(plan);
        layers_close(&l);
    }
}

/** Only layers that are equal but for their addresses, and that kernels read in place, are one plan. */
TEST(unlike_layers_are_told_apart)
{
    const cod_backend *cuda = test_cuda.backend;
    const group *g = &groups[1];
    layers l = layers_open(test_cuda, g, 4, false, true);
    cod_plan *plan = NULL;
    assert_int_equal(cuda->op_fuses(test_cuda.device, l.ops, 4), 4);
    assert_int_equal(cuda->op_fuses(test_cuda.device, l.ops, 1), 1);
    for (int change = 0; change < 7; change++) {
        const cod_op kept = l.ops[2];
        cod_op *op = &l.ops[2];
        op->accumulate = change == 0 ? true : kept.accumulate;
        op->attr.stride_h += change == 1;
        op->attr.pad_w += change == 2;
        op->inputs[0].pixel_stride += change == 3 ? 8 : 0;
        op->inputs[1].dtype = change == 4 ? COD_F32 : kept.inputs[1].dtype;
        op->outputs[0].shape.n += change == 5;
        op->kind = change == 6 ? COD_OP_LINEAR_BACKWARD_WEIGHTS : kept.kind;
        assert_int_equal(cuda->op_fuses(test_cuda.device, l.ops, 4), 2);
        /* Changes that leave no valid op are refused before what may be fused is asked. */
        assert_fails(COD_ERR_ARGUMENT, change == 0 ? "no fused plan" : "'layer'",
                     cuda->plan_create_fused(test_cuda.device, l.ops, 4, &plan));
        *op = kept;
    }
    l.ops[0].kind = COD_OP_LINEAR_BACKWARD_WEIGHTS;
    assert_int_equal(cuda->op_fuses(test_cuda.device, l.ops, 4), 1);
    layers_close(&l);
}

/* Packing. */

/** Convolutions and linear layers of every type, both ways, among them ops that have nothing to pack. */
static cod_op packed_op(int i)
{
    static const cod_op_kind kinds[] = {COD_OP_CONV2D, COD_OP_CONV2D_BACKWARD_DATA, COD_OP_LINEAR,
                                        COD_OP_LINEAR_BACKWARD_DATA, COD_OP_ADD};
    cod_op op = cod_test_random_op(kinds[i % 5], i % 3 == 0 ? COD_F32 : COD_BF16, COD_F32, (uint64_t)i);
    op.attr.leak = 0.25f;
    if (op.kind == COD_OP_CONV2D && i % 4 == 0)
        op.attr.int8_range = 1.5f;
    return op;
}

/** Packs all of them in one call, twice with other values, and compares each with a plan that is packed alone. */
TEST(packing_together_is_packing_each)
{
    enum { PLANS = 40 };
    const cod_backend *cuda = test_cuda.backend;
    cod_test_op alone[PLANS], together[PLANS];
    cod_plan *plans[PLANS];
    for (int i = 0; i < PLANS; i++) {
        const cod_op op = packed_op(i);
        assert_ok(cod_test_op_init(&alone[i], test_cuda, &op));
        assert_ok(cod_test_op_init(&together[i], test_cuda, &op));
        plans[i] = together[i].plan;
    }
    for (uint64_t round = 0; round < 2; round++) {
        for (int i = 0; i < PLANS; i++) {
            write_values(&alone[i], (uint64_t)i + round, false);
            write_values(&together[i], (uint64_t)i + round, false);
        }
        assert_ok(cuda->plans_prepare(test_cuda.device, plans, round == 0 ? PLANS : PLANS / 2, NULL));
        for (int i = 0; i < (round == 0 ? PLANS : PLANS / 2); i++) {
            assert_ok(cod_test_op_run(&alone[i]));
            assert_ok(cuda->plan_run(together[i].plan, NULL));
            require_equal(&alone[i], &together[i], "op", i, (int)round);
        }
    }
    require_no_faults("packing", 0, 0);
    for (int i = 0; i < PLANS; i++) {
        cod_test_op_clear(&alone[i]);
        cod_test_op_clear(&together[i]);
    }
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)

/* Halves of normalisations, and plans of several ops on `ref` and through the wrappers. */
#include "open_ref.h"

#include "support/late.h"
#include "support/paranoid.h"
#include "support/sequence.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 60, Y = COD_OP_MAX_INPUTS };

static const cod_op_kind products[] = {COD_OP_CONV2D, COD_OP_CONV2D_BACKWARD_DATA, COD_OP_CONV2D_BACKWARD_WEIGHTS,
                                       COD_OP_LINEAR_BACKWARD_DATA};
enum { PRODUCTS = sizeof products / sizeof products[0] };

static const struct {
    cod_dtype activation, parameter;
} types[] = {{COD_F64, COD_F64}, {COD_F32, COD_F32}, {COD_BF16, COD_F32}};
enum { TYPES = sizeof types / sizeof types[0] };

static int64_t count_of(cod_test_op *test, size_t slot)
{
    return cod_shape_count(cod_test_view(&test->op, slot)->shape);
}

/** Copies a view of one op into a view of another. */
static void hand_on(cod_test_op *from, size_t source, cod_test_op *to, size_t target)
{
    double *values = calloc((size_t)count_of(from, source) + 1, sizeof *values);
    if (from->buffers[source] != NULL) {
        assert_ok(cod_test_op_read(from, source, values));
        assert_ok(cod_test_op_write(to, target, values));
    }
    free(values);
}

static void assert_same(cod_test_op *a, size_t first, cod_test_op *b, size_t second, uint64_t seed)
{
    const int64_t count = count_of(a, first);
    double *values = calloc((size_t)count * 2 + 1, sizeof *values);
    if (a->buffers[first] != NULL) {
        assert_ok(cod_test_op_read(a, first, values));
        assert_ok(cod_test_op_read(b, second, values + count));
        if (memcmp(values, values + count, (size_t)count * sizeof *values) != 0)
            fail_msg("%s, seed %" PRIu64 ": output %zu is not that of %s", cod_op_kind_name(b->op.kind), seed,
                     second - Y, cod_op_kind_name(a->op.kind));
    }
    free(values);
}

/**
 * A half of a described whole: codes as in test_gradients.c, '0'…'6' the whole's inputs, 'A'…'E' its outputs, 's' new
 * sums.
 */
static cod_op half_of(const cod_op *whole, cod_op_kind kind, const char *inputs, const char *outputs)
{
    cod_op op = {.kind = kind, .attr = whole->attr, .name = cod_op_kind_name(kind)};
    for (size_t i = 0; i < strlen(inputs) + strlen(outputs); i++) {
        const bool input = i < strlen(inputs);
        const size_t k = input ? i : i - strlen(inputs);
        const char code = input ? inputs[k] : outputs[k];
        cod_view *view = input ? &op.inputs[k] : &op.outputs[k];
        if (code == 's')
            *view = cod_view_dense(NULL, 0, COD_F64, (cod_shape){1, 1, 2, whole->inputs[0].shape.c});
        else
            *view = code >= 'A' ? whole->outputs[code - 'A'] : whole->inputs[code - '0'];
    }
    return op;
}

/** In f64 nothing is rounded between the halves. */
TEST(halves_of_norm_train_are_the_whole)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const cod_op op = cod_test_random_op(COD_OP_NORM_TRAIN, COD_F64, COD_F64, seed);
        const cod_op first = half_of(&op, COD_OP_NORM_STATISTICS, "0", "BCDE"),
                     second = half_of(&op, COD_OP_NORM_APPLY, "012BC34", "A");
        cod_test_op whole, statistics, apply;
        assert_ok(cod_test_op_init(&whole, ref, &op));
        assert_ok(cod_test_op_init(&statistics, ref, &first));
        assert_ok(cod_test_op_init(&apply, ref, &second));
        assert_ok(cod_test_op_randomise(&whole, seed, false));
        hand_on(&whole, 0, &statistics, 0);
        hand_on(&whole, Y + 3, &statistics, Y + 2), hand_on(&whole, Y + 4, &statistics, Y + 3);
        assert_ok(cod_test_op_run(&statistics));
        hand_on(&whole, 0, &apply, 0), hand_on(&whole, 1, &apply, 1), hand_on(&whole, 2, &apply, 2);
        hand_on(&statistics, Y, &apply, 3), hand_on(&statistics, Y + 1, &apply, 4);
        hand_on(&whole, 3, &apply, 5), hand_on(&whole, 4, &apply, 6);
        assert_ok(cod_test_op_run(&apply));
        assert_ok(cod_test_op_run(&whole));
        assert_same(&whole, Y, &apply, Y, seed);
        for (size_t i = 0; i < 4; i++)
            assert_same(&whole, Y + 1 + i, &statistics, Y + i, seed);
        cod_test_op_clear(&whole);
        cod_test_op_clear(&statistics);
        cod_test_op_clear(&apply);
    }
}

TEST(halves_of_norm_backward_are_the_whole)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cod_op op = cod_test_random_op(COD_OP_NORM_BACKWARD, COD_F64, COD_F64, seed);
        op.accumulate = seed % 2 == 1;
        cod_op first = half_of(&op, COD_OP_NORM_BACKWARD_REDUCE, "0123456", "1sBCD"),
               second = half_of(&op, COD_OP_NORM_BACKWARD_APPLY, "01245s", "A");
        first.accumulate = second.accumulate = op.accumulate;
        cod_test_op whole, reduce, apply;
        assert_ok(cod_test_op_init(&whole, ref, &op));
        assert_ok(cod_test_op_init(&reduce, ref, &first));
        assert_ok(cod_test_op_init(&apply, ref, &second));
        assert_ok(cod_test_op_randomise(&whole, seed, false));
        for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++)
            hand_on(&whole, i, &reduce, i);
        for (size_t i = 1; i < 4; i++)
            hand_on(&whole, Y + i, &reduce, Y + 1 + i);
        assert_ok(cod_test_op_run(&reduce));
        hand_on(&whole, 0, &apply, 0), hand_on(&reduce, Y, &apply, 1), hand_on(&whole, 2, &apply, 2);
        hand_on(&whole, 4, &apply, 3), hand_on(&whole, 5, &apply, 4), hand_on(&reduce, Y + 1, &apply, 5);
        hand_on(&whole, Y, &apply, Y);
        assert_ok(cod_test_op_run(&apply));
        assert_ok(cod_test_op_run(&whole));
        assert_same(&whole, Y, &apply, Y, seed);
        for (size_t i = 1; i < 4; i++)
            assert_same(&whole, Y + i, &reduce, Y + 1 + i, seed);
        cod_test_op_clear(&whole);
        cod_test_op_clear(&reduce);
        cod_test_op_clear(&apply);
    }
}

/**
 * All sequences, on `tested` as one plan and on `ref` as one plan an op, to the bit. @return how many had two and three
 * ops
 */
static void check_sequences(cod_test_device tested, uint64_t seeds, size_t lengths[2])
{
    for (size_t p = 0; p < PRODUCTS; p++)
        for (size_t t = 0; t < TYPES; t++)
            for (uint64_t seed = 0; seed < seeds; seed++) {
                cod_op ops[COD_TEST_SEQUENCE_OPS];
                const size_t count =
                    cod_test_random_sequence(products[p], types[t].activation, types[t].parameter, seed, ops);
                assert_ok(cod_test_sequence_parity(ref, tested, ops, count, seed, (cod_tolerance){0, 0}));
                lengths[count > 2]++;
            }
}

TEST(a_fused_plan_gives_what_its_ops_give)
{
    size_t lengths[2] = {0, 0};
    check_sequences(ref, SEEDS, lengths);
    assert_true(lengths[0] > SEEDS && lengths[1] > SEEDS);
}

TEST(wrappers_pass_fused_plans_through)
{
    const cod_backend *const wrappers[] = {cod_paranoid_wrap(&cod_ref_backend), cod_late_wrap(&cod_ref_backend)};
    for (size_t i = 0; i < 2; i++) {
        cod_test_device tested = {.backend = wrappers[i]};
        size_t lengths[2] = {0, 0};
        assert_ok(tested.backend->open(NULL, &tested.device));
        check_sequences(tested, SEEDS / 4, lengths);
        tested.backend->close(tested.device);
        cod_test_assert_none(i == 0 ? cod_paranoid_violations : cod_late_violations, "on %s", wrappers[i]->name);
    }
}

/** A sequence of three ops around a data gradient that keeps its shape, in which g is a tensor of its own. */
static size_t three_ops(cod_op ops[COD_TEST_SEQUENCE_OPS])
{
    for (uint64_t seed = 0;; seed++) {
        const size_t count = cod_test_random_sequence(COD_OP_CONV2D_BACKWARD_DATA, COD_F32, COD_F32, seed, ops);
        if (count == 3 && ops[2].outputs[0].offset != 0 && ops[2].outputs[0].offset != ops[1].outputs[0].offset &&
            cod_shape_equal(ops[0].outputs[0].shape, ops[1].outputs[0].shape) &&
            cod_shape_count(ops[0].inputs[0].shape) > 8)
            return count;
    }
}

TEST(gradients_out_of_place_are_no_sequence)
{
    cod_op ops[COD_TEST_SEQUENCE_OPS];
    cod_test_sequence test;
    const size_t count = cod_test_random_sequence(COD_OP_LINEAR_BACKWARD_DATA, COD_F32, COD_F32, 1, ops);
    assert_ok(cod_test_sequence_init(&test, ref, ops, count, 1, false));
    assert_int_equal(ref.backend->op_fuses(ref.device, test.ops, count), 2);
    test.ops[1].accumulate = true;
    assert_int_equal(ref.backend->op_fuses(ref.device, test.ops, count), 1);
    test.ops[1].accumulate = false, test.ops[0].accumulate = true;
    assert_int_equal(ref.backend->op_fuses(ref.device, test.ops, count), 1);
    test.ops[0].accumulate = false, test.ops[1].outputs[0] = test.ops[1].inputs[0];
    assert_int_equal(ref.backend->op_fuses(ref.device, test.ops, count), 1);
    cod_test_sequence_clear(&test);
}

TEST(what_is_no_sequence_is_refused)
{
    cod_op ops[COD_TEST_SEQUENCE_OPS];
    cod_test_sequence test;
    cod_plan *plan;
    const size_t count = three_ops(ops);
    assert_ok(cod_test_sequence_init(&test, ref, ops, count, 1, false));
    test.ops[1].inputs[0] = test.ops[0].inputs[1]; /* g, not what the first op makes of it */
    assert_int_equal(ref.backend->op_fuses(ref.device, test.ops, count), 1);
    assert_fails(COD_ERR_ARGUMENT, "3 ops from norm_backward_apply 'norm_backward_apply' on cannot be one plan",
                 ref.backend->plan_create_fused(ref.device, test.ops, count, &plan));
    assert_fails(COD_ERR_ARGUMENT, "0 ops", ref.backend->plan_create_fused(ref.device, test.ops, 0, &plan));
    cod_test_sequence_clear(&test);
}

/** A backend that takes whatever it is given as one plan, and forgets what it is told to. */
static struct {
    size_t skipped; /**< op that does not run; SIZE_MAX: all run */
} misdeed = {SIZE_MAX};

struct cod_plan {
    size_t count;
    cod_plan *inner[COD_TEST_SEQUENCE_OPS];
};

static cod_status bad_create_fused(cod_device *device, const cod_op *ops, size_t count, cod_plan **out)
{
    cod_plan *plan = calloc(1, sizeof *plan);
    COD_REQUIRE_MEMORY(plan);
    for (; plan->count < count; plan->count++)
        COD_TRY(cod_ref_backend.plan_create(device, &ops[plan->count], &plan->inner[plan->count]));
    *out = plan;
    return COD_OK;
}

static cod_status bad_create(cod_device *device, const cod_op *op, cod_plan **out)
{
    return bad_create_fused(device, op, 1, out);
}

static cod_status bad_prepare(cod_device *device, cod_plan *const *plans, size_t count, cod_queue *queue)
{
    (void)device, (void)plans, (void)count, (void)queue;
    return COD_OK;
}

static cod_status bad_run(cod_plan *plan, cod_queue *queue)
{
    for (size_t i = 0; i < plan->count; i++)
        if (i != misdeed.skipped)
            COD_TRY(cod_ref_backend.plan_run(plan->inner[i], queue));
    return COD_OK;
}

static void bad_destroy(cod_plan *plan)
{
    for (size_t i = 0; plan != NULL && i < plan->count; i++)
        cod_ref_backend.plan_destroy(plan->inner[i]);
    free(plan);
}

static size_t takes_all(cod_device *device, const cod_op *ops, size_t count)
{
    (void)device, (void)ops;
    return count;
}

static const cod_backend *bad_backend(void)
{
    static cod_backend bad;
    bad = cod_ref_backend;
    bad.op_fuses = takes_all;
    bad.plan_create = bad_create;
    bad.plan_create_fused = bad_create_fused;
    bad.plans_prepare = bad_prepare;
    bad.plan_run = bad_run;
    bad.plan_destroy = bad_destroy;
    return &bad;
}

/** An op of the plan that does not run leaves outputs unwritten, in the middle, too, where another op reads them. */
TEST(an_op_that_is_left_out_is_caught)
{
    cod_op ops[COD_TEST_SEQUENCE_OPS];
    cod_test_device paranoid = {.backend = cod_paranoid_wrap(bad_backend())};
    char message[256];
    const size_t count = three_ops(ops);
    assert_ok(paranoid.backend->open(NULL, &paranoid.device));
    for (size_t i = 0; i < count; i++)
        ops[i].accumulate = false;
    for (misdeed.skipped = 0; misdeed.skipped <= count; misdeed.skipped++) {
        cod_test_sequence test;
        assert_ok(cod_test_sequence_init(&test, paranoid, ops, count, 1, true));
        assert_ok(cod_test_sequence_run(&test));
        assert_true((cod_paranoid_violations(message, sizeof message) > 0) == (misdeed.skipped < count));
        if (misdeed.skipped < count)
            cod_test_assert_contains(message, "were not written");
        cod_test_sequence_clear(&test);
    }
    misdeed.skipped = SIZE_MAX;
    paranoid.backend->close(paranoid.device);
}

/**
 * The data gradient lies where the first op reads g, also for its neighbours: right one after another, wrong at the
 * same time.
 */
TEST(a_plan_of_ops_that_overlap_is_caught)
{
    for (int late = 0; late < 2; late++) {
        cod_op ops[COD_TEST_SEQUENCE_OPS];
        cod_test_device wrapped = {.backend = late ? cod_late_wrap(bad_backend()) : cod_paranoid_wrap(bad_backend())};
        cod_test_sequence test;
        char message[256];
        const size_t count = three_ops(ops);
        assert_ok(wrapped.backend->open(NULL, &wrapped.device));
        ops[1].outputs[0] = ops[2].inputs[1] = ops[0].inputs[1]; /* g */
        assert_ok(cod_test_sequence_init(&test, wrapped, ops, count, 1, true));
        const size_t violations =
            late ? cod_late_violations(message, sizeof message) : cod_paranoid_violations(message, sizeof message);
        assert_true(violations > 0);
        cod_test_assert_contains(message, "a plan of 3 ops, of which only");
        cod_test_sequence_clear(&test);
        wrapped.backend->close(wrapped.device);
    }
}

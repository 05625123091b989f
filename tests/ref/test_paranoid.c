#include "support/test.h"

#include "ref/ref.h"
#include "support/copies.h"
#include "support/ops.h"
#include "support/paranoid.h"

#include <inttypes.h>

/** What the bad backend does wrong, besides running `ref`. */
static struct {
    bool skip;           /**< runs nothing */
    unsigned char *poke; /**< flips a bit here after the run */
} misdeed;

static cod_status bad_run(cod_plan *plan, cod_queue *queue)
{
    if (!misdeed.skip)
        COD_TRY(cod_ref_backend.plan_run(plan, queue));
    if (misdeed.poke != NULL)
        *misdeed.poke ^= 1;
    return COD_OK;
}

static cod_test_device paranoid;

static unsigned char *host_of(const cod_test_op *test, size_t slot)
{
    return test->buffers[slot]->host;
}

/** y = 2·x on strided views. */
static void scale_init(cod_test_op *test)
{
    cod_op op = {.kind = COD_OP_ADD, .attr.alpha = 2, .name = "scale"};
    op.inputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 2, 2, 3});
    op.inputs[0].pixel_stride = 5;
    op.outputs[0] = op.inputs[0];
    assert_ok(cod_test_op_init(test, paranoid, &op));
    assert_ok(cod_test_op_randomise(test, 1, false));
}

static void expect_violation(const char *part)
{
    char message[256];
    assert_true(cod_paranoid_violations(message, sizeof message) > 0);
    cod_test_assert_contains(message, part);
    assert_int_equal(cod_paranoid_violations(message, sizeof message), 0);
    assert_string_equal(message, "");
}

TEST(good_plans_pass)
{
    for (int kind = 0; kind < COD_TEST_KINDS; kind++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            const cod_op op = cod_test_random_op((cod_op_kind)kind, COD_BF16, COD_F32, seed);
            const cod_test_device plain = {&cod_ref_backend, NULL};
            cod_test_device ref = plain;
            assert_ok(ref.backend->open(NULL, &ref.device));
            assert_ok(cod_test_parity(ref, paranoid, &op, seed, (cod_tolerance){0, 0}));
            ref.backend->close(ref.device);
            cod_test_assert_none(cod_paranoid_violations, "seed %" PRIu64, seed);
        }
    }
}

TEST(an_unwritten_output_is_caught)
{
    cod_test_op test;
    scale_init(&test);
    misdeed.skip = true;
    assert_ok(cod_test_op_run(&test));
    misdeed.skip = false;
    expect_violation("scale: 12 elements of output 0 were not written");
    cod_test_op_clear(&test);
}

TEST(a_changed_input_is_caught)
{
    cod_test_op test;
    scale_init(&test);
    misdeed.poke = host_of(&test, 0) + test.op.inputs[0].offset + 21;
    assert_ok(cod_test_op_run(&test));
    misdeed.poke = NULL;
    expect_violation("which is an input");
    cod_test_op_clear(&test);
}

TEST(a_write_between_pixels_is_caught)
{
    cod_test_op test;
    scale_init(&test);
    misdeed.poke = host_of(&test, COD_OP_MAX_INPUTS) + test.op.outputs[0].offset + 3 * sizeof(float);
    assert_ok(cod_test_op_run(&test));
    misdeed.poke = NULL;
    expect_violation("which is no output");
    cod_test_op_clear(&test);
}

TEST(writes_past_the_ends_are_caught)
{
    cod_test_op test;
    scale_init(&test);
    misdeed.poke = host_of(&test, COD_OP_MAX_INPUTS) + test.buffers[COD_OP_MAX_INPUTS]->bytes;
    assert_ok(cod_test_op_run(&test));
    expect_violation("byte 0 past a buffer");
    *misdeed.poke ^= 1; /* whole again */
    misdeed.poke = host_of(&test, COD_OP_MAX_INPUTS) - 2;
    assert_ok(cod_test_op_run(&test));
    misdeed.poke = NULL;
    expect_violation("byte 2 before a buffer");
    cod_test_op_clear(&test);
    expect_violation("buffer_destroy: byte 2 before a buffer");
}

TEST(stale_weights_are_caught)
{
    cod_op op = cod_test_random_op(COD_OP_LINEAR, COD_F32, COD_F32, 1);
    cod_test_op test;
    assert_ok(cod_test_op_init(&test, paranoid, &op));
    assert_ok(paranoid.backend->plan_run(test.plan, NULL));
    expect_violation("without plans_prepare()");
    assert_ok(paranoid.backend->plans_prepare(paranoid.device, &test.plan, 1, NULL));
    assert_ok(cod_test_op_randomise(&test, 1, false));
    assert_ok(paranoid.backend->plan_run(test.plan, NULL));
    expect_violation("the weights changed after plans_prepare()");
    assert_ok(cod_test_op_run(&test));
    assert_int_equal(cod_paranoid_violations(NULL, 0), 0);
    cod_test_op_clear(&test);
}

TEST(an_accumulated_output_keeps_its_value)
{
    cod_op op = {.kind = COD_OP_ADD, .attr.alpha = 1, .accumulate = true};
    op.inputs[0] = op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
    cod_test_op test;
    double y = 0;
    assert_ok(cod_test_op_init(&test, paranoid, &op));
    assert_ok(cod_test_op_write(&test, 0, (double[]){1}));
    assert_ok(cod_test_op_write(&test, COD_OP_MAX_INPUTS, (double[]){2}));
    assert_ok(cod_test_op_run(&test));
    assert_ok(cod_test_op_read(&test, COD_OP_MAX_INPUTS, &y));
    assert_true(y == 3);
    cod_test_op_clear(&test);
    assert_int_equal(cod_paranoid_violations(NULL, 0), 0);
}

static cod_status bad_copy(cod_device *device, cod_queue *queue, cod_buffer *target, size_t target_offset,
                           cod_buffer *source, size_t source_offset, size_t bytes)
{
    COD_TRY(cod_ref_backend.copy(device, queue, target, target_offset, source, source_offset, bytes));
    if (misdeed.poke != NULL)
        *misdeed.poke ^= 1;
    return COD_OK;
}

TEST(copies_stay_inside_the_guards)
{
    const cod_backend *backend = paranoid.backend;
    cod_test_copies(paranoid);
    assert_int_equal(cod_paranoid_violations(NULL, 0), 0);
    cod_buffer *pinned, *buffer;
    assert_ok(backend->host_buffer_create(paranoid.device, 8, &pinned));
    assert_ok(backend->buffer_create(paranoid.device, 8, &buffer));
    misdeed.poke = (unsigned char *)buffer->host + 8;
    assert_ok(backend->copy(paranoid.device, NULL, buffer, 0, pinned, 0, 8));
    misdeed.poke = NULL;
    expect_violation("copy: byte 0 past a buffer of 8");
    ((unsigned char *)pinned->host)[-1] ^= 1;
    backend->host_buffer_destroy(paranoid.device, pinned);
    expect_violation("host_buffer_destroy: byte 1 before a buffer of 8");
    ((unsigned char *)buffer->host)[8] ^= 1; /* whole again */
    backend->buffer_destroy(paranoid.device, buffer);
    assert_int_equal(cod_paranoid_violations(NULL, 0), 0);
}

static int open_paranoid(void **state)
{
    (void)state;
    static cod_backend bad;
    bad = cod_ref_backend;
    bad.plan_run = bad_run;
    bad.copy = bad_copy;
    paranoid.backend = cod_paranoid_wrap(&bad);
    return paranoid.backend->open(NULL, &paranoid.device) == COD_OK ? 0 : -1;
}

static int close_paranoid(void **state)
{
    (void)state;
    paranoid.backend->close(paranoid.device);
    return 0;
}

TEST_GROUP(open_paranoid, close_paranoid)

#include "support/test.h"

#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "pair.h"

#include <inttypes.h>
#include <stdlib.h>

/**
 * NORM_STATISTICS with NORM_APPLY against NORM_TRAIN of `ref`, NORM_BACKWARD_REDUCE with NORM_BACKWARD_APPLY against
 * NORM_BACKWARD.
 */

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 12 };
#else
enum { SEEDS = 60 };
#endif

enum { Y = COD_OP_MAX_INPUTS };

static cod_status run(const cod_op *op)
{
    const cod_backend *cuda = test_cuda.backend;
    cod_plan *plan = NULL;
    COD_TRY(cuda->plan_create(test_cuda.device, op, &plan));
    cod_status status = cuda->plans_prepare(test_cuda.device, &plan, 1, NULL);
    COD_THEN(status, cuda->plan_run(plan, NULL));
    cuda->plan_destroy(plan);
    return status;
}

/** The halves of NORM_TRAIN, on its tensors. */
static cod_status run_forward(const cod_op *whole)
{
    const cod_view *in = whole->inputs, *out = whole->outputs;
    const cod_op statistics = {.kind = COD_OP_NORM_STATISTICS,
                               .attr = whole->attr,
                               .inputs = {in[0]},
                               .outputs = {out[1], out[2], out[3], out[4]}};
    const cod_op apply = {.kind = COD_OP_NORM_APPLY,
                          .attr = whole->attr,
                          .inputs = {in[0], in[1], in[2], out[1], out[2], in[3], in[4]},
                          .outputs = {out[0]}};
    COD_TRY(run(&statistics));
    return run(&apply);
}

/** Whether `sums` are what dgamma and dbeta of the op are, where these are not added to. */
static cod_status check_sums(const cod_view *sums, cod_test_op *test)
{
    const int64_t channels = sums->shape.c;
    float *read = malloc((size_t)channels * 2 * sizeof *read);
    double *parameters = malloc((size_t)channels * 2 * sizeof *parameters);
    cod_status status = read != NULL && parameters != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, test_cuda.backend->download(test_cuda.device, NULL, read, sums->buffer, sums->offset,
                                                 (size_t)channels * 2 * sizeof *read));
    COD_THEN(status, cod_test_op_read(test, Y + 1, parameters + channels)); /* dgamma is the sum of g·x^ */
    COD_THEN(status, cod_test_op_read(test, Y + 2, parameters));
    for (int64_t i = 0; i < 2 * channels && status == COD_OK; i++)
        if ((double)read[i] != parameters[i])
            status = cod_fail(COD_ERR_NUMERIC, "sum %" PRId64 " is %g, not %g", i, (double)read[i], parameters[i]);
    free(read);
    free(parameters);
    return status;
}

/**
 * The halves of NORM_BACKWARD, with g where `where` says: 0 in place, 1 in a tensor of its own, 2 nowhere if it may be
 * absent.
 */
static cod_status run_backward(cod_test_op *test, int where)
{
    const cod_op *whole = &test->op;
    const cod_view *in = whole->inputs, *out = whole->outputs;
    const cod_backend *cuda = test_cuda.backend;
    const int64_t channels = in[0].shape.c;
    cod_buffer *sums = NULL, *own = NULL;
    COD_TRY(cuda->buffer_create(test_cuda.device, (size_t)channels * 2 * sizeof(float), &sums));
    cod_status status = cuda->buffer_create(test_cuda.device, cod_view_span_bytes(&in[1]), &own);
    cod_view g = in[1];
    if (where == 1)
        g = (cod_view){own, 0, in[1].dtype, in[1].shape, in[1].pixel_stride};
    const bool absent = where == 2 && whole->attr.activation == COD_ACT_NONE;
    const cod_view none = {.buffer = NULL}, rows = cod_view_dense(sums, 0, COD_F32, (cod_shape){1, 1, 2, channels});
    const cod_op reduce = {.kind = COD_OP_NORM_BACKWARD_REDUCE,
                           .accumulate = whole->accumulate,
                           .attr = whole->attr,
                           .inputs = {in[0], in[1], in[2], in[3], in[4], in[5], in[6]},
                           .outputs = {absent ? none : g, rows, out[1], out[2], out[3]}};
    const cod_op apply = {.kind = COD_OP_NORM_BACKWARD_APPLY,
                          .accumulate = whole->accumulate,
                          .inputs = {in[0], g, in[2], in[4], in[5], rows},
                          .outputs = {out[0]}};
    COD_THEN(status, run(&reduce));
    COD_THEN(status, run(&apply));
    if (!whole->accumulate)
        COD_THEN(status, check_sums(&rows, test));
    cuda->buffer_destroy(test_cuda.device, own);
    cuda->buffer_destroy(test_cuda.device, sums);
    return status;
}

static cod_status compare(cod_test_op *expected, cod_test_op *actual, cod_tolerance tolerance)
{
    for (size_t slot = Y; slot < COD_TEST_SLOTS; slot++) {
        if (expected->buffers[slot] == NULL)
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&expected->op, slot)->shape);
        double *values = malloc((size_t)count * 2 * sizeof *values);
        COD_REQUIRE_MEMORY(values);
        cod_status status = cod_test_op_read(expected, slot, values);
        COD_THEN(status, cod_test_op_read(actual, slot, values + count));
        COD_THEN(status, cod_test_compare("output", values + count, values, count, tolerance));
        free(values);
        if (status != COD_OK)
            return cod_fail_prefix(status, "%zu", slot - Y);
    }
    return COD_OK;
}

static cod_status check(const cod_op *op, uint64_t seed, cod_tolerance tolerance)
{
    cod_test_op expected = {.plan = NULL}, actual = {.plan = NULL};
    cod_status status = cod_test_op_init(&expected, test_ref, op);
    COD_THEN(status, cod_test_op_init(&actual, test_cuda, op));
    COD_THEN(status, cod_test_op_randomise(&expected, seed, false));
    COD_THEN(status, cod_test_op_randomise(&actual, seed, false));
    COD_THEN(status, cod_test_op_run(&expected));
    COD_THEN(status, op->kind == COD_OP_NORM_TRAIN ? run_forward(&actual.op) : run_backward(&actual, (int)(seed % 3)));
    COD_THEN(status, compare(&expected, &actual, tolerance));
    cod_test_op_clear(&expected);
    cod_test_op_clear(&actual);
    return status;
}

/** In bf16 g is rounded before it is used again: by 2^-9 of it, and dx is a difference of such. */
static void halves_make_the_whole(cod_op_kind kind, cod_dtype dtype)
{
    const cod_tolerance f32 = {2e-5, 2e-5}, bf16 = {8e-3, kind == COD_OP_NORM_BACKWARD ? 8e-3 : 2e-5};
    char message[512];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cod_emulated_set_seed(seed);
        const cod_op op = cod_test_random_op(kind, dtype, COD_F32, seed);
        const cod_status status = check(&op, seed, dtype == COD_F32 ? f32 : bf16);
        if (cod_emulated_faults(message, sizeof message) > 0)
            fail_msg("%s, %s, seed %" PRIu64 ": %s", cod_op_kind_name(kind), cod_dtype_name(dtype), seed, message);
        if (status != COD_OK)
            fail_msg("%s, %s, seed %" PRIu64 ": %s", cod_op_kind_name(kind), cod_dtype_name(dtype), seed,
                     cod_error_message());
    }
}

TEST(forward_halves_agree_with_ref)
{
    halves_make_the_whole(COD_OP_NORM_TRAIN, COD_F32);
    halves_make_the_whole(COD_OP_NORM_TRAIN, COD_BF16);
}

TEST(backward_halves_agree_with_ref)
{
    halves_make_the_whole(COD_OP_NORM_BACKWARD, COD_F32);
    halves_make_the_whole(COD_OP_NORM_BACKWARD, COD_BF16);
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)

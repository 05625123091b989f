#include "support/test.h"

#include "cpu/cpu.h"
#include "ref/ref.h"
#include "support/ops.h"

#include <omp.h>
#include <string.h>

/**
 * A convolution divided among n threads and run by fewer gives wrong sums or never ends. ctest runs this under
 * OMP_THREAD_LIMIT=1, OMP_MAX_ACTIVE_LEVELS=0, OMP_DYNAMIC and OMP_NUM_THREADS, which all lower the size of teams.
 */

enum { ASKED = 2, SEEDS = 12 };

static cod_test_device ref, cpu;

static int granted(void)
{
    return omp_get_thread_limit() < ASKED || omp_get_max_active_levels() < 1 ? 1 : ASKED;
}

/** A convolution whose weight gradient oneDNN divides by images, summing at a barrier. */
static cod_op convolution(cod_op_kind kind, bool deterministic)
{
    cod_op op = {
        .kind = kind, .deterministic = deterministic, .attr = {.stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1}};
    const cod_view x = cod_view_dense(NULL, 0, COD_F32, (cod_shape){4, 13, 17, 32});
    const cod_view w = cod_view_dense(NULL, 0, COD_F32, (cod_shape){32, 3, 3, 32});
    op.inputs[0] = x;
    op.inputs[1] = kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? x : w;
    op.outputs[0] = kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? w : x;
    return op;
}

static void check_parity(void)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const cod_op_kind kind = (cod_op_kind)(COD_OP_CONV2D + seed % 3);
        const cod_op op = convolution(kind, seed % 2 == 0);
        assert_ok(cod_test_parity(ref, cpu, &op, seed, (cod_tolerance){1e-5, 1e-5}));
    }
}

TEST(computes_with_the_threads_granted)
{
    cod_test_assert_contains(cpu.backend->describe(cpu.device), granted() == 1 ? ", 1 thread" : ", 2 threads");
    check_parity();
}

/** Another library may leave any setting behind, also between a plan's creation and its run. */
TEST(changed_team_size_is_set_again)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const cod_op op = convolution((cod_op_kind)(COD_OP_CONV2D + seed % 3), seed % 2 == 0);
        cod_test_op test;
        omp_set_num_threads(3);
        omp_set_dynamic(1);
        assert_ok(cod_test_op_init(&test, cpu, &op));
        assert_ok(cod_test_op_randomise(&test, seed, false));
        omp_set_num_threads(1);
        omp_set_dynamic(1);
        assert_ok(cod_test_op_run(&test));
        assert_int_equal(omp_get_dynamic(), 0);
        assert_int_equal(omp_get_max_threads(), granted());
        cod_test_op_clear(&test);
    }
    check_parity();
}

TEST(smaller_team_is_refused)
{
    if (granted() == 1)
        skip();
    const cod_op op = convolution(COD_OP_CONV2D_BACKWARD_WEIGHTS, false);
    const int levels = omp_get_max_active_levels();
    cod_test_op test;
    cod_plan *plan = NULL;
    assert_ok(cod_test_op_init(&test, cpu, &op));
    omp_set_max_active_levels(0);
    assert_fails(COD_ERR_ARGUMENT, "no longer gives the device's 2 threads", cpu.backend->plan_run(test.plan, NULL));
    omp_set_max_active_levels(levels);

    cod_status run = COD_OK, create = COD_OK;
    char message[256] = "";
#pragma omp parallel num_threads(2)
#pragma omp master
    {
        create = cpu.backend->plan_create(cpu.device, &test.op, &plan);
        run = cpu.backend->plan_run(test.plan, NULL);
        strncpy(message, cod_error_message(), sizeof message - 1);
    }
    assert_int_equal(create, COD_ERR_ARGUMENT);
    assert_int_equal(run, COD_ERR_ARGUMENT);
    cod_test_assert_contains(message, "inside a parallel region");
    assert_ok(cod_test_op_run(&test));
    cod_test_op_clear(&test);
}

static int setup(void **state)
{
    (void)state;
    const cod_device_options options = {.threads = ASKED};
    ref.backend = &cod_ref_backend;
    cpu.backend = &cod_cpu_backend;
    return ref.backend->open(NULL, &ref.device) || cpu.backend->open(&options, &cpu.device);
}

static int teardown(void **state)
{
    (void)state;
    ref.backend->close(ref.device);
    cpu.backend->close(cpu.device);
    return 0;
}

TEST_GROUP(setup, teardown)

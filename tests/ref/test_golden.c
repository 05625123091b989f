#include "support/test.h"

#include "golden/golden.h"
#include "ref/ref.h"

#include <stdlib.h>

#define GOLDEN_FILE COD_TEST_DIR "/../golden/golden.bin"

static cod_status run_case(cod_test_device on, const golden_case *golden, cod_dtype dtype, cod_tolerance tolerance)
{
    cod_op description = golden->op;
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
        if (cod_test_view(&description, slot)->dtype == COD_F64)
            cod_test_view(&description, slot)->dtype = dtype;
    cod_test_op test;
    COD_TRY(cod_test_op_init(&test, on, &description));
    cod_status status = COD_OK;
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
        if (golden->values[slot] != NULL)
            COD_THEN(status, cod_test_op_write(&test, slot, golden->values[slot]));
    COD_THEN(status, cod_test_op_run(&test));
    for (size_t slot = COD_OP_MAX_INPUTS; slot < COD_TEST_SLOTS && status == COD_OK; slot++) {
        if (golden->expected[slot] == NULL)
            continue;
        const int64_t count = cod_shape_count(cod_test_view(&description, slot)->shape);
        double *actual = calloc((size_t)count + 1, sizeof *actual);
        status = cod_test_op_read(&test, slot, actual);
        COD_THEN(status, cod_test_compare("output", actual, golden->expected[slot], count, tolerance));
        free(actual);
        if (status != COD_OK)
            status = cod_fail_prefix(status, "%s, %s, slot %zu", golden->name, cod_dtype_name(dtype), slot);
    }
    cod_test_op_clear(&test);
    return status;
}

static void run_all(cod_dtype dtype, cod_tolerance tolerance)
{
    cod_test_device on = {.backend = &cod_ref_backend};
    golden_file file;
    bool seen[COD_OP_KIND_COUNT] = {false};
    int failures = 0;
    assert_ok(on.backend->open(NULL, &on.device));
    assert_ok(golden_load(GOLDEN_FILE, &file));
    for (size_t i = 0; i < file.count; i++) {
        seen[file.cases[i].op.kind] = true;
        if (run_case(on, &file.cases[i], dtype, tolerance) != COD_OK) {
            print_error("%s\n", cod_error_message());
            failures++;
        }
    }
    golden_clear(&file);
    on.backend->close(on.device);
    assert_int_equal(failures, 0);
    for (int kind = 0; kind < COD_TEST_KINDS; kind++)
        if (!seen[kind] && !cod_test_is_norm_half((cod_op_kind)kind)) /* test_fused.c: together they are the whole */
            fail_msg("no golden case for %s", cod_op_kind_name((cod_op_kind)kind));
}

/** Only the order of sums differs. */
TEST(f64_agrees_with_pytorch)
{
    run_all(COD_F64, (cod_tolerance){.relative = 1e-12, .scaled = 1e-12});
}

/** Inputs are rounded to f32: 6e-8 of each, which logits of 300 turn into 2e-5 of a probability. */
TEST(f32_agrees_with_pytorch)
{
    run_all(COD_F32, (cod_tolerance){.relative = 2e-5, .scaled = 2e-5});
}

TEST(a_broken_golden_file_is_refused)
{
    golden_file file;
    assert_fails(COD_ERR_IO, "cannot open", golden_load(COD_TEST_DIR "/absent.bin", &file));
    assert_fails(COD_ERR_FORMAT, "not a golden file", golden_load(COD_TEST_DIR "/test_golden.c", &file));
}

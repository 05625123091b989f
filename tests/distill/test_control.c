/* Whether a run is behind another, by their evaluations. */
#include "support/test.h"

#include "distill/control.h"
#include "support/folder.h"

#include <math.h>
#include <stdio.h>

static void write_metrics(const char *text)
{
    FILE *file = fopen(cod_test_at("metrics.0.jsonl"), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

TEST(evaluations_are_read_and_joined)
{
    cod_control control;
    write_metrics(
        "{\"step\": 5, \"accuracy\": null}\n{\"step\": 10, \"accuracy\": 50}\n{\"step\": 20, \"accuracy\": 70}\n"
        "{\"step\": 30, \"accuracy\": 7");
    assert_ok(cod_control_read(cod_test_at(""), "accuracy", false, &control));
    assert_int_equal(control.count, 2);
    assert_true(control.noise == 0);
    assert_true(isnan(cod_control_at(&control, 9)) && isnan(cod_control_at(&control, 21)));
    assert_true(cod_control_at(&control, 10) == 50 && cod_control_at(&control, 15) == 60 &&
                cod_control_at(&control, 20) == 70);
    assert_false(cod_control_note(&control, 30, 0)); /* there is nothing to compare with */
    assert_int_equal(control.behind, 0);
    cod_control_clear(&control);
}

TEST(three_behind_by_more_than_the_noise_are_a_loss)
{
    cod_control control;
    /* A zigzag of 1 about 51: each lies 2 from its neighbours' mean. */
    write_metrics("{\"step\":1,\"x\":50}\n{\"step\":2,\"x\":52}\n{\"step\":3,\"x\":50}\n{\"step\":4,\"x\":52}\n"
                  "{\"step\":5,\"x\":50}\n{\"step\":6,\"x\":52}\n{\"step\":7,\"x\":50}\n{\"step\":8,\"x\":52}\n");
    assert_ok(cod_control_read(cod_test_at(""), "x", false, &control));
    assert_true(fabs(control.noise - 2 / 0.6745 / sqrt(1.5)) < 1e-9); /* 2.42 */
    assert_false(cod_control_note(&control, 1, 47));
    assert_false(cod_control_note(&control, 2, 49));
    assert_false(cod_control_note(&control, 3, 48)); /* within the noise: counting begins anew */
    assert_int_equal(control.behind, 0);
    assert_false(cod_control_note(&control, 4, 49));
    assert_false(cod_control_note(&control, 5, 47));
    assert_true(cod_control_note(&control, 6, 49));
    assert_false(cod_control_note(&control, 7, 47)); /* said once */
    cod_control_clear(&control);

    assert_ok(cod_control_read(cod_test_at(""), "x", true, &control));
    for (int64_t step = 1; step < 4; step++)
        assert_false(cod_control_note(&control, step, 40));
    assert_false(cod_control_note(&control, 4, 55));
    assert_false(cod_control_note(&control, 5, 55));
    assert_true(cod_control_note(&control, 6, 55));
    cod_control_clear(&control);
}

TEST(what_is_no_control_is_refused)
{
    cod_control control;
    write_metrics("{\"step\": 5, \"psnr_y\": 30}\n");
    assert_fails(COD_ERR_FORMAT, "it has no 'accuracy'",
                 cod_control_read(cod_test_at(""), "accuracy", false, &control));
    write_metrics("{\"accuracy\": 30}\n");
    assert_fails(COD_ERR_FORMAT, "line 1: step is missing",
                 cod_control_read(cod_test_at(""), "accuracy", false, &control));
    write_metrics("{\"step\": 1e300}\n");
    assert_fails(COD_ERR_FORMAT, "too large", cod_control_read(cod_test_at(""), "accuracy", false, &control));
    write_metrics("{\"step\": 5}\nnonsense\n");
    assert_fails(COD_ERR_FORMAT, "metrics.0.jsonl: line 2",
                 cod_control_read(cod_test_at(""), "accuracy", false, &control));
    assert_fails(COD_ERR_IO, "metrics.0.jsonl", cod_control_read("/nowhere", "accuracy", false, &control));
    assert_null(control.points);
}

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)

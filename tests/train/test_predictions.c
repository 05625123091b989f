/* Predictions that a run keeps: they come back as they were, and only of steps at which all groups were evaluated. */
#include "support/folder.h"
#include "support/test.h"

#include "io/file.h"
#include "train/predictions.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXAMPLES = 5 };

static float said[EXAMPLES] = {0, 2, 1, 1, 0}, sure[EXAMPLES] = {0.5f, 1, 0.75f, 0.4f, 0.9f};
static float truth[EXAMPLES] = {0, 2, 2, 1, 1};

static void write_one(cod_split split, int group, int64_t step)
{
    const cod_classification result = {.count = EXAMPLES, .predicted = said, .confidence = sure, .truth = truth};
    assert_ok(cod_predictions_write(cod_test_at(""), split, group, step, &result));
}

TEST(what_is_written_comes_back)
{
    cod_predictions p;
    write_one(COD_SPLIT_TEST, 3, 70);
    assert_ok(cod_predictions_read(cod_test_at(""), COD_SPLIT_TEST, 3, 70, &p));
    assert_int_equal(p.count, EXAMPLES);
    assert_memory_equal(p.predicted, said, sizeof said);
    assert_memory_equal(p.confidence, sure, sizeof sure);
    assert_memory_equal(p.truth, truth, sizeof truth);
    cod_predictions_clear(&p);
    assert_fails(COD_ERR_IO, "val-3", cod_predictions_read(cod_test_at(""), COD_SPLIT_VAL, 3, 70, &p));
    assert_null(p.predicted);
}

TEST(steps_are_those_of_all_groups)
{
    cod_arena arena = {0};
    cod_int_list steps;
    assert_ok(cod_predictions_steps(cod_test_at("none"), COD_SPLIT_VAL, 2, &arena, &steps));
    assert_int_equal(steps.count, 0);
    for (int g = 0; g < 2; g++)
        for (int64_t step = 10; step <= 40 - 10 * g; step += 10)
            write_one(COD_SPLIT_VAL, g, step);
    assert_ok(cod_predictions_steps(cod_test_at(""), COD_SPLIT_VAL, 2, &arena, &steps));
    assert_int_equal(steps.count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(steps.items[i], 10 * (i + 1));
    assert_ok(cod_predictions_steps(cod_test_at(""), COD_SPLIT_VAL, 1, &arena, &steps));
    assert_int_equal(steps.count, 4);
    cod_arena_clear(&arena);
}

TEST(a_damaged_file_is_refused)
{
    char path[4096];
    void *data;
    size_t bytes;
    cod_predictions p;
    write_one(COD_SPLIT_VAL, 0, 50);
    snprintf(path, sizeof path, "%s", cod_test_at("predictions/step-000000050/val-0.safetensors"));
    assert_ok(cod_file_read(path, 1 << 20, &data, &bytes));
    ((char *)data)[bytes - 1] ^= 1;
    assert_ok(cod_file_write(path, data, bytes));
    assert_fails(COD_ERR_FORMAT, "val-0", cod_predictions_read(cod_test_at(""), COD_SPLIT_VAL, 0, 50, &p));
    assert_ok(cod_file_write(path, data, bytes / 2));
    assert_fails(COD_ERR_FORMAT, "val-0", cod_predictions_read(cod_test_at(""), COD_SPLIT_VAL, 0, 50, &p));
    free(data);
}

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)

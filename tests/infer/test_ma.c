#include "support/test.h"

#include "infer/ma_model.h"
#include "io/safetensors.h"
#include "support/folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/** golden/ma.py makes the same. */
static cod_image pattern(int64_t width, int64_t height, int channels)
{
    cod_image image;
    assert_ok(cod_image_init(&image, width, height, channels, 8));
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                ((uint8_t *)image.pixels)[(y * width + x) * channels + c] =
                    (uint8_t)((x * x * 7 + y * 13 + x * y % 31 * 5 + c * 40) % 256);
    return image;
}

static void compare(const char *name, const char *group, const double *features, int count, FILE *golden)
{
    for (int i = 0; i < count; i++) {
        double expected;
        assert_int_equal(fscanf(golden, "%lf", &expected), 1);
        if (!(fabs(features[i] - expected) < 1e-7 * (1 + fabs(expected))))
            fail_msg("%s, %s %d: %.12g, not %.12g", name, group, i, features[i], expected);
    }
}

/** golden/ma.txt: values of a second implementation, in NumPy. */
TEST(features_are_those_of_numpy)
{
    char name[64];
    int crop, pictures = 0;
    const bool with_data = cod_test_data("set5/img_003_SRF_4_HR.png") != NULL;
    FILE *golden = fopen(COD_TEST_DIR "/golden/ma.txt", "r");
    assert_non_null(golden);
    while ((with_data || pictures < 2) && fscanf(golden, "%63s %d", name, &crop) == 2) {
        cod_image image;
        cod_ma_features features;
        if (strcmp(name, "pattern") == 0)
            image = pattern(128, 84, 3);
        else if (strcmp(name, "pattern-cropped") == 0)
            image = pattern(97, 120, 4); /* alpha is ignored */
        else {
            assert_ok(cod_image_read(cod_test_data(name), &image));
            assert_ok(cod_image_to_rgb8(&image));
        }
        assert_ok(cod_ma_features_of(&image, crop, &features));
        compare(name, "blocks", features.blocks, COD_MA_BLOCK_FEATURES, golden);
        compare(name, "bands", features.bands, COD_MA_BAND_FEATURES, golden);
        compare(name, "patches", features.patches, COD_MA_PATCH_FEATURES, golden);
        cod_image_clear(&image);
        pictures++;
    }
    fclose(golden);
    assert_int_equal(pictures, with_data ? 3 : 2);
}

TEST(pictures_without_enough_in_them_are_refused)
{
    cod_ma_features features;
    cod_image image = pattern(90, 91, 3);
    assert_ok(cod_ma_features_of(&image, 3, &features));
    assert_fails(COD_ERR_ARGUMENT, "90x91 pixels are too few for Ma's score: 84x84 must remain inside a border of 4",
                 cod_ma_features_of(&image, 4, &features));
    assert_fails(COD_ERR_ARGUMENT, "90x91 pixels are too few", cod_ma_features_of(&image, 400, &features));
    assert_fails(COD_ERR_ARGUMENT, "-1 pixels cannot", cod_ma_features_of(&image, -1, &features));
    memset(image.pixels, 77, cod_image_bytes(&image));
    assert_fails(COD_ERR_ARGUMENT, "all gray values are 77", cod_ma_features_of(&image, 0, &features));
    cod_image_clear(&image);
    assert_ok(cod_image_init(&image, 100, 100, 3, 16));
    assert_fails(COD_ERR_ARGUMENT, "8-bit RGB", cod_ma_features_of(&image, 0, &features));
    cod_image_clear(&image);
}

enum { TREES = 2, NODES = 6 };

/** Two trees: x[1] <= 2 ? 5 : x[0] <= -1 ? 7 : 11, and the constant 1. */
typedef struct forest_data {
    int32_t roots[TREES], feature[NODES], left[NODES];
    double value[NODES];
} forest_data;

static const forest_data small_forest = {{0, 5}, {1, -1, 0, -1, -1, -1}, {1, 0, 3, 0, 0, 0}, {2, 5, -1, 7, 11, 1}};

typedef struct model_data {
    forest_data forests[COD_MA_GROUPS];
    double linear[1 + COD_MA_GROUPS];
} model_data;

static model_data small_model(void)
{
    return (model_data){{small_forest, small_forest, small_forest}, {100, 1, 10, -2}};
}

/** Writes the model, without the tensor `without`, and loads it. */
static cod_status save_and_load(const model_data *data, const char *without, cod_ma_model *model)
{
    enum { PARTS = 4 };
    char names[COD_MA_GROUPS][PARTS][32];
    cod_st_tensor tensors[1 + COD_MA_GROUPS * PARTS] = {
        {"linear", COD_ST_F64, 1, {1 + COD_MA_GROUPS}, data->linear, 0}};
    size_t count = 1;
    for (int g = 0; g < COD_MA_GROUPS; g++) {
        const forest_data *f = &data->forests[g];
        const cod_st_tensor parts[PARTS] = {{"roots", COD_ST_I32, 1, {TREES}, f->roots, 0},
                                            {"value", COD_ST_F64, 1, {NODES}, f->value, 0},
                                            {"feature", COD_ST_I32, 1, {NODES}, f->feature, 0},
                                            {"left", COD_ST_I32, 1, {NODES}, f->left, 0}};
        for (int p = 0; p < PARTS; p++) {
            snprintf(names[g][p], sizeof names[g][p], "%s.%s", cod_ma_group_names[g], parts[p].name);
            tensors[count] = parts[p];
            tensors[count].name = names[g][p];
            count += strcmp(names[g][p], without) == 0 ? 0 : 1;
        }
    }
    assert_ok(cod_st_write(cod_test_at("ma.safetensors"), tensors, count, NULL, 0));
    return cod_ma_model_load(cod_test_at("ma.safetensors"), model);
}

/** A value on the threshold goes left; the forest's prediction is its trees' mean. */
TEST(a_forest_is_the_mean_of_its_trees)
{
    const model_data data = small_model();
    cod_ma_model model;
    assert_ok(save_and_load(&data, "", &model));
    const struct {
        double x0, x1, expected;
    } cases[] = {{0, 2, 3}, {-1, 2.5, 4}, {-0.5, 2.5, 6}, {0, 1, 3}};
    for (int i = 0; i < 4; i++) {
        const double features[2] = {cases[i].x0, cases[i].x1};
        assert_true(cod_ma_forest_predict(&model.forests[COD_MA_BANDS], features) == cases[i].expected);
    }
    const cod_ma_features features = {.blocks = {0, 2}, .bands = {-1, 3}, .patches = {0, 3}};
    assert_true(cod_ma_predict(&model, &features) == 100 + 3 + 10 * 4 - 2 * 6);
    cod_ma_model_clear(&model);
}

TEST(a_score_is_that_of_its_features)
{
    model_data data = small_model();
    cod_image image = pattern(128, 84, 3);
    cod_ma_features features;
    cod_ma_model model;
    assert_ok(cod_ma_features_of(&image, 0, &features));
    data.forests[COD_MA_BANDS].value[0] = features.bands[1];
    data.forests[COD_MA_PATCHES].value[0] = nextafter(features.patches[1], 0);
    data.forests[COD_MA_PATCHES].value[2] = features.patches[0];
    data.forests[COD_MA_BLOCKS].value[0] = features.blocks[1] - 1;
    data.forests[COD_MA_BLOCKS].value[2] = features.blocks[0] - 1;
    assert_ok(save_and_load(&data, "", &model));
    double score = NAN;
    assert_ok(cod_ma(&image, 0, &model, &score));
    assert_true(score == 100 + 6 + 10 * 3 - 2 * 4);
    cod_ma_model_clear(&model);
    cod_image_clear(&image);
}

static void refuse(const model_data *data, const char *without, const char *part)
{
    cod_ma_model model;
    assert_fails(COD_ERR_FORMAT, part, save_and_load(data, without, &model));
    cod_test_assert_contains(cod_error_message(), cod_test_at("ma.safetensors"));
    assert_null(model.forests[0].nodes);
}

TEST(damaged_models_are_refused)
{
    cod_ma_model model;
    model_data data = small_model();
    refuse(&data, "bands.left", "'bands.left' is not in it; tools/ma_model.py makes the file");
    data.forests[1].left[2] = 2; /* would not end */
    refuse(&data, "", "node 2 of bands leads to node 2, not to one of those behind it");
    data.forests[1].left[2] = 5; /* the right one is beyond the end */
    refuse(&data, "", "node 2 of bands leads to node 5");
    data = small_model();
    data.forests[0].feature[2] = COD_MA_BLOCK_FEATURES;
    refuse(&data, "", "node 2 of blocks asks for feature 18; they are 0 to 17");
    data = small_model();
    data.forests[2].roots[1] = NODES;
    refuse(&data, "", "tree 1 of patches begins at node 6, of 6");
    data = small_model();
    data.forests[2].value[0] = NAN;
    refuse(&data, "", "node 0 of patches has a value that is not finite");
    data = small_model();
    data.linear[3] = INFINITY;
    refuse(&data, "", "not finite");
    const cod_st_tensor narrow = {"linear", COD_ST_F32, 1, {4}, data.linear, 0};
    assert_ok(cod_st_write(cod_test_at("ma.safetensors"), &narrow, 1, NULL, 0));
    assert_fails(COD_ERR_FORMAT, "'linear' is not F64 [4]", cod_ma_model_load(cod_test_at("ma.safetensors"), &model));
    assert_fails(COD_ERR_IO, "the model of Ma's score", cod_ma_model_load("/nowhere/ma.safetensors", &model));
}

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)

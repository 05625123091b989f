/* data.scales: training pictures at several sizes. */
#include "pictures.h"

#include "data/resize.h"

#include <stdio.h>
#include <string.h>

/** Checks a training sample against its file brought down to `scale`. */
static void check_copy(const cod_dataset *dataset, size_t index, double scale)
{
    cod_pair pair;
    cod_image file, high, low;
    assert_ok(cod_dataset_read(dataset, COD_SPLIT_TRAIN, index, &pair));
    assert_ok(cod_image_read(cod_dataset_name(dataset, COD_SPLIT_TRAIN, index), &file));
    assert_ok(cod_image_resize(&file, scale, &high));
    assert_true(pair.low_width == high.width / 4 && pair.low_height == high.height / 4);
    for (int64_t y = 0; y < pair.low_height * 4; y++)
        assert_memory_equal(pair.high + y * pair.low_width * 12, (uint8_t *)high.pixels + y * high.width * 3,
                            (size_t)(pair.low_width * 12));
    const cod_image cut = {.width = pair.low_width * 4,
                           .height = pair.low_height * 4,
                           .channels = 3,
                           .bits = 8,
                           .pixels = (void *)(uintptr_t)pair.high};
    assert_ok(cod_image_resize(&cut, 0.25, &low));
    assert_memory_equal(pair.low, low.pixels, cod_image_bytes(&low));
    cod_image_clear(&file);
    cod_image_clear(&high);
    cod_image_clear(&low);
    cod_pair_clear(&pair);
}

/** Of a picture of make_pictures() at a scale, with the low-resolution one. */
static size_t bytes_at(double scale)
{
    const int64_t width = cod_resized_size(112, scale) / 4, height = cod_resized_size(100, scale) / 4;
    return (size_t)(width * height * 3 * (1 + 4 * 4));
}

/**
 * Each training picture comes at each scale, from memory or files; what is validated on stays as it is and is in no
 * copy.
 */
TEST(pictures_come_at_several_scales)
{
    static const double scales[] = {0.7, 1, 0.5, 0.7};
    cod_data_options options = options_of(make_pictures("scales", 7, 30));
    set_option(&options, "patch", "12");
    cod_dataset *plain = open_ok(&options, &lone_group);
    set_option(&options, "scales", "0.7,1,0.5,0.7");
    for (int uncached = 0; uncached < 2; uncached++) {
        set_option(&options, "cache_mb", uncached ? "0" : "64");
        cod_dataset *dataset = open_ok(&options, &lone_group);
        assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_TRAIN), 4 * 6);
        assert_int_equal(cod_dataset_count(dataset).files, 7);
        assert_int_equal(cod_dataset_count(dataset).uncached, uncached ? 7 + 3 * 6 : 0);
        /* Of what is held out there are no copies. */
        if (!uncached)
            assert_int_equal(cod_dataset_count(dataset).cached_bytes,
                             cod_dataset_count(plain).cached_bytes + 6 * (2 * bytes_at(0.7) + bytes_at(0.5)));
        for (size_t i = 0; i < 4 * 6; i++) {
            assert_string_equal(cod_dataset_name(dataset, COD_SPLIT_TRAIN, i),
                                cod_dataset_name(plain, COD_SPLIT_TRAIN, i / 4));
            check_copy(dataset, i, scales[i % 4]);
        }
        assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_VAL), 1);
        assert_string_equal(cod_dataset_name(dataset, COD_SPLIT_VAL, 0), cod_dataset_name(plain, COD_SPLIT_VAL, 0));
        cod_dataset_close(dataset);
    }
    cod_dataset_close(plain);
}

/**
 * Copies follow their pictures to groups, obey weights and are left out where no crop fits; folders of validation have
 * none.
 */
TEST(scales_go_with_folders_and_groups)
{
    char paths[512];
    make_pictures("scaled1", 2, 0);
    write_picture(below("scaled1/wide.png"), 400, 400, 4, 50);
    snprintf(paths, sizeof paths, "%s,%s", below("scaled1"), make_pictures("scaled2", 3, 100));
    cod_data_options options = options_of(paths);
    set_option(&options, "val_path", make_pictures("scaled-val", 2, 200));
    set_option(&options, "weights", "1,2");
    set_option(&options, "scales", "1,0.5");
    set_option(&options, "placement", "disjoint");
    size_t whole = 0, halves = 0;
    capture_log();
    for (int group = 0; group < 3; group++) {
        cod_dataset *dataset =
            open_ok(&options, &(cod_dataset_place){.scale = 4, .group = group, .groups = 3, .report = true});
        assert_int_equal(cod_dataset_count(dataset).train, 2);
        assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_VAL), 2);
        for (size_t i = 0; i < cod_dataset_size(dataset, COD_SPLIT_TRAIN); i++) {
            cod_pair pair;
            assert_ok(cod_dataset_read(dataset, COD_SPLIT_TRAIN, i, &pair));
            halves += pair.low_width == 50;
            whole += pair.low_width != 50;
            cod_pair_clear(&pair);
        }
        cod_dataset_close(dataset);
    }
    assert_true(whole == 3 + 2 * 3 && halves == 1);
    assert_int_equal(logged("5 of 6 pictures are left out at 0.5 of their size: smaller than one crop of 96x96"), 3);
}

TEST(scales_that_do_not_fit_are_refused)
{
    cod_dataset *dataset;
    cod_data_options options = options_of(make_pictures("unscaled", 3, 0));
    set_option(&options, "scales", "1,0.5");
    assert_fails(COD_ERR_ARGUMENT,
                 "none of 2 pictures, brought down to 0.5 of their size, holds a crop of 96x96 pixels",
                 cod_dataset_open(&options, &lone_group, &dataset));
    set_option(&options, "low_path", "lr");
    assert_fails(COD_ERR_ARGUMENT, "scales: low_path gives low-resolution pictures of one size",
                 cod_data_options_check(&options));
    options = options_of("flowers.csv");
    set_option(&options, "kind", "iris");
    set_option(&options, "scales", "0.5");
    assert_fails(COD_ERR_ARGUMENT, "scales: is for kind pictures, not iris", cod_data_options_check(&options));
    /* Pictures of one group may be too small though others are not. */
    options = options_of(below("unscaled"));
    write_picture(below("unscaled/wide.png"), 400, 400, 4, 50);
    set_option(&options, "scales", "0.5");
    set_option(&options, "val_fraction", "0");
    set_option(&options, "placement", "disjoint");
    int opened = 0;
    for (int group = 0; group < 4; group++)
        if (cod_dataset_open(&options, &(cod_dataset_place){.scale = 4, .group = group, .groups = 4}, &dataset) ==
            COD_OK) {
            opened++;
            cod_dataset_close(dataset);
        } else {
            assert_non_null(strstr(cod_error_message(), "holds a crop at any of these sizes"));
        }
    assert_int_equal(opened, 1);
}

/** Generated pictures have copies too. */
TEST(generated_pictures_come_at_several_scales)
{
    cod_data_options options = options_of("");
    set_option(&options, "kind", "synthetic");
    set_option(&options, "synthetic_count", "3");
    set_option(&options, "val_fraction", "0");
    set_option(&options, "scales", "1,0.5");
    cod_dataset *dataset = open_ok(&options, &lone_group);
    assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_TRAIN), 6);
    for (size_t i = 0; i < 6; i += 2) {
        cod_pair whole, half;
        cod_image small;
        assert_ok(cod_dataset_read(dataset, COD_SPLIT_TRAIN, i, &whole));
        assert_ok(cod_dataset_read(dataset, COD_SPLIT_TRAIN, i + 1, &half));
        const cod_image high = {.width = whole.low_width * 4,
                                .height = whole.low_height * 4,
                                .channels = 3,
                                .bits = 8,
                                .pixels = (void *)(uintptr_t)whole.high};
        assert_ok(cod_image_resize(&high, 0.5, &small));
        assert_true(half.low_width == whole.low_width / 2 && half.low_height == whole.low_height / 2);
        assert_memory_equal(half.high, small.pixels, cod_image_bytes(&small));
        cod_image_clear(&small);
        cod_pair_clear(&whole);
        cod_pair_clear(&half);
    }
    cod_dataset_close(dataset);
}

TEST_GROUP(cod_test_folder_make, remove_folder)

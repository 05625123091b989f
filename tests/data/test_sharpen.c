#include "pictures.h"

#include "data/crops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { W = 61, H = 40, COUNT = W * H * 3, SCALE = 4 };

/**
 * The picture of golden/make_sharpen.py: edges of 150, edges of 9, which are below the threshold, and all values side
 * by side.
 */
static void draw_picture(uint8_t *pixels)
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++, pixels += 3) {
            pixels[0] = (uint8_t)((x / 9 + y / 7) % 2 * 150 + x);
            pixels[1] = (uint8_t)(x / 20 % 2 * 9 + 100);
            pixels[2] = (uint8_t)((x * 7 + y * 13) % 256);
        }
}

static cod_sharpen_region whole_of(const uint8_t *pixels)
{
    return (cod_sharpen_region){.picture = pixels, .picture_width = W, .picture_height = H, .width = W, .height = H};
}

TEST(sharpened_pictures_are_the_published_ones)
{
    static uint8_t picture[COUNT];
    static float expected[COUNT];
    char path[1024];
    cod_sharpener *sharpener;
    cod_sharpened sharp;
    draw_picture(picture);
    snprintf(path, sizeof path, "%s/golden/sharpen.bin", COD_TEST_DIR);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(expected, sizeof(float), COUNT, file), COUNT);
    fclose(file);
    const cod_sharpen_region whole = whole_of(picture);
    assert_ok(cod_sharpener_create(&sharpener));
    assert_ok(cod_sharpen(sharpener, &whole, &sharp));
    for (int i = 0; i < COUNT; i++)
        if (!(fabs((double)sharp.pixels[i] - (double)expected[i]) < 1e-3)) /* sums of 51 values of 255 in f32 */
            fail_msg("value %d is %g, not %g", i, (double)sharp.pixels[i], (double)expected[i]);
    cod_sharpened_clear(&sharp);
    cod_sharpener_destroy(sharpener);
}

/** Also where parts reach beyond the picture. */
TEST(a_part_is_that_of_the_whole)
{
    static const struct {
        int64_t left, top, width, height;
    } parts[] = {{0, 0, 1, 1}, {60, 39, 1, 1}, {13, 5, 20, 30}, {-7, -3, 30, 12}, {50, 30, 20, 15}};
    static uint8_t picture[COUNT];
    cod_sharpener *sharpener;
    cod_sharpened whole, part;
    draw_picture(picture);
    cod_sharpen_region region = whole_of(picture);
    assert_ok(cod_sharpener_create(&sharpener));
    assert_ok(cod_sharpen(sharpener, &region, &whole));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        region.left = parts[i].left, region.top = parts[i].top;
        region.width = parts[i].width, region.height = parts[i].height;
        assert_ok(cod_sharpen(sharpener, &region, &part));
        for (int64_t y = 0; y < region.height; y++)
            for (int64_t x = 0; x < region.width; x++) {
                const int64_t from_x = llabs(region.left + x), from_y = llabs(region.top + y);
                const int64_t mirrored_x = from_x < W ? from_x : 2 * (W - 1) - from_x;
                const int64_t mirrored_y = from_y < H ? from_y : 2 * (H - 1) - from_y;
                const float *ours = part.pixels + (y * region.width + x) * 3,
                            *expected = whole.pixels + (mirrored_y * W + mirrored_x) * 3;
                if (mirrored_x == region.left + x && mirrored_y == region.top + y)
                    assert_memory_equal(ours, expected, 3 * sizeof(float));
                for (int c = 0; c < 3; c++) /* sums in another order */
                    assert_float_equal(ours[c], expected[c], 1e-3);
            }
        cod_sharpened_clear(&part);
    }
    cod_sharpened_clear(&whole);
    region.width = 0;
    assert_int_equal(cod_sharpen(sharpener, &region, &part), COD_ERR_ARGUMENT);
    cod_sharpener_destroy(sharpener);
}

typedef struct drawn {
    float *input, *target;
    size_t inputs, targets;
} drawn;

/** One sample at a fixed place; of bytes, only what is no byte. */
static drawn draw(const cod_samples *samples, bool bytes)
{
    const cod_sample_place place = {.seed = 5, .position = 7};
    drawn d = {.inputs = (size_t)cod_shape_count(samples->input), .targets = (size_t)cod_shape_count(samples->target)};
    d.input = calloc(d.inputs, sizeof(float));
    d.target = calloc(d.targets, sizeof(float));
    int32_t turn;
    if (bytes)
        assert_ok(samples->draw_bytes(samples->context, 1, &place, (uint8_t *)d.input, d.target, &turn));
    else
        assert_ok(samples->draw(samples->context, 1, &place, d.input, d.target));
    return d;
}

static void drawn_clear(drawn *d)
{
    free(d->input), free(d->target);
}

/** The same crop, turned alike; what is degraded is the sharpened picture. */
TEST(samples_have_the_truth_that_is_asked_for)
{
    cod_arena arena = {0};
    cod_data_options data;
    cod_degrade_options options;
    cod_dataset *dataset;
    cod_degrader *degrader;
    cod_sharpener *sharpener;
    assert_ok(cod_options_set_defaults(&cod_data_option_table, &data, &arena));
    assert_ok(cod_options_set_defaults(&cod_degrade_option_table, &options, &arena));
    data.kind = COD_DATA_SYNTHETIC;
    data.patch = 8;
    data.synthetic_count = 5;
    assert_ok(cod_dataset_open(&data, &(cod_dataset_place){.scale = SCALE, .groups = 1}, &dataset));
    assert_ok(cod_degrader_create(&options, SCALE, &degrader));
    assert_ok(cod_sharpener_create(&sharpener));
    for (int degraded = 0; degraded < 2; degraded++) {
        cod_crops crops[3];
        drawn d[3], bytes;
        for (int truth = COD_TRUTH_PLAIN; truth <= COD_TRUTH_BOTH; truth++) {
            cod_crops_init(&crops[truth], dataset, data.patch, true);
            crops[truth].truth = (cod_truth)truth;
            crops[truth].sharpener = sharpener;
            crops[truth].degrader = degraded ? degrader : NULL;
            const cod_samples samples = cod_crops_samples(&crops[truth]);
            assert_int_equal(samples.target.c, truth == COD_TRUTH_BOTH ? 6 : 3);
            d[truth] = draw(&samples, false);
            assert_true((samples.target_table == NULL) == (truth != COD_TRUTH_PLAIN));
            if (truth != COD_TRUTH_PLAIN) {
                bytes = draw(&samples, true);
                assert_memory_equal(bytes.target, d[truth].target, d[truth].targets * sizeof(float));
                drawn_clear(&bytes);
            }
        }
        for (size_t i = 0; i < d[0].targets / 3; i++) {
            assert_memory_equal(d[COD_TRUTH_BOTH].target + 6 * i, d[COD_TRUTH_PLAIN].target + 3 * i, 3 * sizeof(float));
            assert_memory_equal(d[COD_TRUTH_BOTH].target + 6 * i + 3, d[COD_TRUTH_SHARP].target + 3 * i,
                                3 * sizeof(float));
        }
        assert_memory_not_equal(d[COD_TRUTH_PLAIN].target, d[COD_TRUTH_SHARP].target, d[0].targets * sizeof(float));
        assert_memory_equal(d[COD_TRUTH_BOTH].input, d[COD_TRUTH_SHARP].input, d[0].inputs * sizeof(float));
        assert_int_equal(memcmp(d[COD_TRUTH_PLAIN].input, d[COD_TRUTH_SHARP].input, d[0].inputs * sizeof(float)) != 0,
                         degraded);
        crops[COD_TRUTH_BOTH].permute_channels = true;
        const cod_samples samples = cod_crops_samples(&crops[COD_TRUTH_BOTH]);
        drawn permuted = draw(&samples, false);
        const int order = orders_of(d[COD_TRUTH_BOTH].target, permuted.target, (int)(permuted.targets / 3));
        assert_true(order > 1 && (order & (order - 1)) == 0);
        drawn_clear(&permuted);
        for (int truth = 0; truth < 3; truth++)
            drawn_clear(&d[truth]);
    }
    cod_sharpener_destroy(sharpener);
    cod_degrader_destroy(degrader);
    cod_dataset_close(dataset);
    cod_arena_clear(&arena);
}

TEST_GROUP(cod_test_folder_make, remove_folder)

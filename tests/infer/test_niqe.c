#include "support/test.h"

#include "data/perceptual_index.h"
#include "infer/niqe_model.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** A picture with structure everywhere but in its upper left block; golden/niqe.py makes the same. */
static cod_image pattern(int64_t width, int64_t height, int channels)
{
    enum { FLAT = 110 };
    cod_image image;
    assert_ok(cod_image_init(&image, width, height, channels, 8));
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                ((uint8_t *)image.pixels)[(y * width + x) * channels + c] =
                    (uint8_t)(y < FLAT && x < FLAT ? 77 : (x * x * 7 + y * 13 + x * y % 31 * 5 + c * 40) % 256);
    return image;
}

/** Mean 0, covariance 1: a model that no file is needed for. */
static cod_niqe_model plain_model(void)
{
    cod_niqe_model model = {{0}, {0}};
    for (int i = 0; i < COD_NIQE_FEATURES; i++)
        model.covariance[i * COD_NIQE_FEATURES + i] = 1;
    return model;
}

static double niqe_of(const cod_image *image, int64_t crop, const cod_niqe_model *model)
{
    double niqe = NAN;
    assert_ok(cod_niqe(image, crop, model, &niqe));
    return niqe;
}

static void compare(const char *name, int crop, double niqe, double expected)
{
    if (!(fabs(niqe - expected) < 1e-8 * expected))
        fail_msg("%s, border %d: %.12g, not %.12g", name, crop, niqe, expected);
}

static double index_of(const cod_image *image, int64_t crop, const cod_niqe_model *model)
{
    double pi = NAN;
    assert_ok(cod_perceptual_index(image, crop, model, NULL, &pi));
    return pi;
}

/**
 * golden/niqe.txt: values of a second implementation, in NumPy. "pi:" stands before those that are in the perceptual
 * index's place.
 */
TEST(values_are_those_of_numpy)
{
    char line[64];
    int crop, pictures = 0;
    double expected;
    cod_niqe_model natural;
    const char *path = cod_test_data("niqe/niqe_pris_params.npz");
    const bool with_data = path != NULL;
    if (with_data)
        assert_ok(cod_niqe_model_load(path, &natural));
    FILE *golden = fopen(COD_TEST_DIR "/golden/niqe.txt", "r");
    assert_non_null(golden);
    while (fscanf(golden, "%63s %d %lf", line, &crop, &expected) == 3) {
        const bool index = strncmp(line, "pi:", 3) == 0;
        const char *name = line + (index ? 3 : 0);
        const bool made = strcmp(name, "pattern") == 0;
        const cod_niqe_model model = made ? plain_model() : natural;
        cod_image image;
        if (!made && !with_data)
            continue;
        if (made)
            image = pattern(300, 200, 3);
        else {
            assert_ok(cod_image_read(cod_test_data(name), &image));
            assert_ok(cod_image_to_rgb8(&image));
        }
        compare(line, crop, (index ? index_of : niqe_of)(&image, crop, &model), expected);
        cod_image_clear(&image);
        pictures++;
    }
    fclose(golden);
    assert_int_equal(pictures, with_data ? 17 : 2);
}

/** A border is left out, alpha is ignored, and what lies beyond the last whole block does not count. */
TEST(only_the_blocks_inside_the_border_count)
{
    const cod_niqe_model model = plain_model();
    cod_image rgb = pattern(300, 200, 3), rgba = pattern(300, 200, 4), inner, larger;
    const double expected = niqe_of(&rgb, 0, &model);
    assert_true(niqe_of(&rgba, 0, &model) == expected);
    assert_ok(cod_image_init(&larger, 310, 210, 3, 8));
    memset(larger.pixels, 255, cod_image_bytes(&larger));
    for (int64_t y = 0; y < 200; y++)
        memcpy((uint8_t *)larger.pixels + ((y + 5) * 310 + 5) * 3, (uint8_t *)rgb.pixels + y * 300 * 3, 300 * 3);
    assert_true(niqe_of(&larger, 5, &model) == expected);
    assert_ok(cod_image_init(&inner, 288, 192, 3, 8));
    for (int64_t y = 0; y < 192; y++)
        memcpy((uint8_t *)inner.pixels + y * 288 * 3, (uint8_t *)rgb.pixels + y * 300 * 3, 288 * 3);
    assert_true(niqe_of(&inner, 0, &model) == expected);
    cod_image_clear(&rgb);
    cod_image_clear(&rgba);
    cod_image_clear(&inner);
    cod_image_clear(&larger);
}

/** White against black is 219 apart on the Y channel; a border and alpha do not count. */
TEST(rmse_is_of_the_luma)
{
    cod_image a, b;
    double rmse;
    assert_ok(cod_image_init(&a, 4, 3, 3, 8));
    assert_ok(cod_image_init(&b, 4, 3, 4, 8));
    assert_ok(cod_rmse_y(&a, &b, 0, &rmse));
    assert_true(rmse == 0);
    memset((uint8_t *)b.pixels + 4 * 5, 255, 4); /* one of two pixels inside a border of 1 */
    assert_ok(cod_rmse_y(&a, &b, 1, &rmse));
    assert_true(fabs(rmse - 219 / sqrt(2)) < 1e-12);
    memset(b.pixels, 255, 4); /* in the border */
    assert_ok(cod_rmse_y(&a, &b, 1, &rmse));
    assert_true(fabs(rmse - 219 / sqrt(2)) < 1e-12);
    assert_fails(COD_ERR_ARGUMENT, "nothing of 4x3 pixels remains inside a border of 2", cod_rmse_y(&a, &b, 2, &rmse));
    cod_image_clear(&b);
    assert_ok(cod_image_init(&b, 3, 4, 3, 8));
    assert_fails(COD_ERR_ARGUMENT, "only 8-bit pictures of equal size", cod_rmse_y(&a, &b, 0, &rmse));
    cod_image_clear(&a);
    cod_image_clear(&b);
    static const double limits[] = {11.5, 12.5, 16};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cod_pirm_region(limits[i]), i + 1);
        assert_int_equal(cod_pirm_region(limits[i] + 1e-9), i < 2 ? i + 2 : 0);
    }
    assert_int_equal(cod_pirm_region(NAN), 0);
}

TEST(pictures_without_enough_blocks_are_refused)
{
    const cod_niqe_model model = plain_model();
    double niqe;
    cod_image small = pattern(191, 191, 3), flat = pattern(110, 110, 3), deep;
    assert_fails(COD_ERR_ARGUMENT, "191x191 pixels are too few for NIQE: 192x96 must remain",
                 cod_niqe(&small, 0, &model, &niqe));
    cod_image_clear(&flat);
    assert_ok(cod_image_init(&flat, 200, 200, 3, 8));
    memset(flat.pixels, 77, cod_image_bytes(&flat));
    assert_fails(COD_ERR_ARGUMENT, "that are not flat; 0 of 4 are not", cod_niqe(&flat, 0, &model, &niqe));
    assert_fails(COD_ERR_ARGUMENT, "200x200 pixels are too few", cod_niqe(&flat, 60, &model, &niqe));
    assert_fails(COD_ERR_ARGUMENT, "200x200 pixels are too few", cod_niqe(&flat, 600, &model, &niqe));
    assert_ok(cod_image_init(&deep, 200, 200, 3, 16));
    assert_fails(COD_ERR_ARGUMENT, "8-bit", cod_niqe(&deep, 0, &model, &niqe));
    cod_image_clear(&small);
    cod_image_clear(&flat);
    cod_image_clear(&deep);
}

/** Directions in which neither model has any variance are left out, as pinv() does: not divided by nothing. */
TEST(a_direction_without_variance_is_left_out)
{
    cod_image image = pattern(300, 200, 3);
    cod_niqe_model own;
    assert_ok(cod_niqe_features(&image, 0, &own)); /* of five blocks: at most four directions have variance */
    cod_niqe_model model = own;
    const double at_itself = niqe_of(&image, 0, &model);
    model.mean[0] += 1;
    const double beside = niqe_of(&image, 0, &model);
    assert_true(at_itself == 0 && isfinite(beside) && beside > 0);
    cod_image_clear(&image);
}

static char path[64];

static void refuse(const void *data, size_t bytes, cod_status code, const char *part)
{
    cod_niqe_model model;
    assert_ok(cod_file_write(path, data, bytes));
    assert_fails(code, part, cod_niqe_model_load(path, &model));
    cod_test_assert_contains(cod_error_message(), "niqe_pris_params.npz");
}

TEST(damaged_models_are_refused)
{
    const char *good = cod_test_data("niqe/niqe_pris_params.npz");
    if (good == NULL)
        skip();
    void *data;
    size_t bytes;
    cod_niqe_model model;
    snprintf(path, sizeof path, "/tmp/cod_niqe_%ld.npz", (long)getpid());
    assert_ok(cod_file_read(good, 1 << 20, &data, &bytes));
    unsigned char *at = data;
    refuse(data, bytes - 1, COD_ERR_FORMAT, "no ZIP archive, or one that is cut off");
    refuse(data, 10, COD_ERR_FORMAT, "10 bytes are too few");
    at[200] ^= 1; /* within the mean's values */
    refuse(data, bytes, COD_ERR_FORMAT, "'mu_pris_param.npy' in the archive is damaged");
    at[200] ^= 1;
    refuse("not an archive, but long enough", 31, COD_ERR_FORMAT, "no ZIP archive");
    assert_fails(COD_ERR_IO, "No such file", cod_niqe_model_load("/nowhere/model.npz", &model));
    unlink(path);
    free(data);
}

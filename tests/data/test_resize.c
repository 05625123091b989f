#include "support/test.h"

#include "data/metrics.h"
#include "data/resize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double *read_f64(const char *relative, size_t count)
{
    const char *path = cod_test_data(relative);
    if (path == NULL)
        skip();
    FILE *file = fopen(path, "rb");
    double *values = malloc(count * sizeof *values);
    assert_non_null(file);
    assert_int_equal(fread(values, sizeof *values, count, file), count);
    fclose(file);
    return values;
}

static cod_image read_image(const char *relative)
{
    const char *path = cod_test_data(relative);
    if (path == NULL)
        skip();
    cod_image image;
    assert_ok(cod_image_read(path, &image));
    return image;
}

static double largest_difference(const double *a, const double *b, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(a[i] - b[i]));
    return largest;
}

TEST(enlarging_equals_matlab)
{
    double *low = read_f64("imresize/bird_im_l_y_72x72.f64", 72 * 72);
    double *truth = read_f64("imresize/bird_im_b_y_288x288.f64", 288 * 288), *out = malloc(288 * 288 * sizeof *out);
    assert_ok(cod_resize_f64(low, 72, 72, 1, 4, out));
    assert_true(largest_difference(out, truth, 288 * 288) < 1e-9);
    free(low);
    free(truth);
    free(out);
}

TEST(shrinking_equals_matlab)
{
    double *truth = read_f64("imresize/bird_im_l_72x72x3.f64", 72 * 72 * 3), out[72 * 72 * 3];
    cod_image image = read_image("set5/img_002_SRF_4_HR.png");
    assert_int_equal(image.width, 288);
    const size_t count = cod_image_bytes(&image);
    double *high = malloc(count * sizeof *high);
    for (size_t i = 0; i < count; i++)
        high[i] = ((uint8_t *)image.pixels)[i] / 255.0;
    assert_ok(cod_resize_f64(high, 288, 288, 3, 0.25, out));
    for (size_t i = 0; i < 72 * 72 * 3; i++)
        out[i] = fmin(fmax(out[i], 0), 1) * 255;
    assert_true(largest_difference(out, truth, 72 * 72 * 3) < 1e-9);
    cod_image_clear(&image);
    free(high);
    free(truth);
}

/** MANIFEST.md's values for bicubic x4, and the low-resolution files away from the border, where they replicate. */
TEST(bicubic_on_set5_gives_the_published_quality)
{
    static const double psnr_y[5] = {31.7842, 30.1815, 22.0996, 31.6133, 26.4665};
    cod_quality mean = {0};
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "set5/img_%03d_SRF_4_HR.png", i + 1);
        cod_image high = read_image(name), low, again;
        snprintf(name, sizeof name, "set5/img_%03d_SRF_4_LR.png", i + 1);
        cod_image file = read_image(name);
        assert_ok(cod_image_resize(&high, 0.25, &low));
        assert_ok(cod_image_resize(&low, 4, &again));
        for (int64_t y = 2; y < low.height - 2; y++)
            for (int64_t x = 2 * 3; x < (low.width - 2) * 3; x++)
                assert_int_equal(((uint8_t *)low.pixels)[y * low.width * 3 + x],
                                 ((uint8_t *)file.pixels)[y * low.width * 3 + x]);
        cod_quality quality;
        assert_ok(cod_image_compare(&again, &high, 4, &quality));
        if (fabs(quality.psnr_y - psnr_y[i]) > 0.5e-4)
            fail_msg("image %d: %.4f dB, not %.4f", i + 1, quality.psnr_y, psnr_y[i]);
        mean.psnr_y += quality.psnr_y / 5;
        mean.ssim_y += quality.ssim_y / 5;
        mean.psnr_rgb += quality.psnr_rgb / 5;
        mean.ssim_rgb += quality.ssim_rgb / 5;
        cod_image_clear(&high);
        cod_image_clear(&low);
        cod_image_clear(&again);
        cod_image_clear(&file);
    }
    print_message("bicubic on Set5: %.4f %.5f %.4f %.5f\n", mean.psnr_y, mean.ssim_y, mean.psnr_rgb, mean.ssim_rgb);
    assert_true(fabs(mean.psnr_y - 28.4290) < 1e-4);
    assert_true(fabs(mean.ssim_y - 0.81114) < 1e-5);
    assert_true(fabs(mean.psnr_rgb - 26.6921) < 1e-4);
    assert_true(fabs(mean.ssim_rgb - 0.77309) < 1e-5);
}

TEST(a_constant_stays_constant_at_any_scale)
{
    static const double scales[] = {0.1, 0.25, 1 / 3.0, 0.5, 0.77, 1, 1.5, 2, 3, 4, 7.3};
    double in[13 * 5 * 2], out[128 * 64 * 2];
    for (size_t i = 0; i < 13 * 5 * 2; i++)
        in[i] = i % 2 ? 0.3 : 200;
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        const int64_t count = cod_resized_size(13, scales[s]) * cod_resized_size(5, scales[s]);
        assert_ok(cod_resize_f64(in, 13, 5, 2, scales[s], out));
        for (int64_t i = 0; i < count; i++)
            assert_true(fabs(out[2 * i] - 200) < 1e-12 * 200 && fabs(out[2 * i + 1] - 0.3) < 1e-12);
    }
}

TEST(sizes_and_bad_calls)
{
    for (int64_t k = 1; k <= 100; k++)
        for (int64_t n = 1; n <= 50; n++)
            assert_int_equal(cod_resized_size(n * k, 1.0 / (double)k), n);
    assert_int_equal(cod_resized_size(10, 0.25), 3);
    double value = 0;
    cod_image image, out;
    assert_fails(COD_ERR_ARGUMENT, "by -1", cod_resize_f64(&value, 1, 1, 1, -1, &value));
    assert_fails(COD_ERR_ARGUMENT, "empty", cod_image_resize(&(cod_image){0}, 2, &out));
    assert_ok(cod_image_init(&image, 40000, 1, 3, 8));
    assert_fails(COD_ERR_UNSUPPORTED, "limit", cod_image_resize(&image, 2, &out));
    cod_image_clear(&image);
}

TEST(wide_pixels_follow_narrow_ones)
{
    cod_image narrow, wide, narrow_out, wide_out;
    assert_ok(cod_image_init(&narrow, 16, 12, 4, 8));
    assert_ok(cod_image_init(&wide, 16, 12, 4, 16));
    for (size_t i = 0; i < 16 * 12 * 4; i++) {
        ((uint8_t *)narrow.pixels)[i] = (uint8_t)(i * 37);
        ((uint16_t *)wide.pixels)[i] = (uint16_t)((uint8_t)(i * 37) * 257);
    }
    assert_ok(cod_image_resize(&narrow, 0.5, &narrow_out));
    assert_ok(cod_image_resize(&wide, 0.5, &wide_out));
    for (size_t i = 0; i < 8 * 6 * 4; i++)
        assert_true(abs(((uint8_t *)narrow_out.pixels)[i] * 257 - ((uint16_t *)wide_out.pixels)[i]) <= 257);
    cod_image_clear(&narrow);
    cod_image_clear(&wide);
    cod_image_clear(&narrow_out);
    cod_image_clear(&wide_out);
}

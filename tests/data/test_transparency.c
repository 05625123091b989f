/* Filters and formats see no colours that are hidden under transparent pixels. */
#include "data/resize.h"
#include "data/transparency.h"
#include "support/folder.h"
#include "support/test.h"

#include <stdlib.h>

enum { W = 23, H = 17, GRAY = 128 };

/** Sets a pixel from values of 8 bits. */
static void set(cod_image *image, int x, int y, const int rgba[4])
{
    for (int c = 0; c < image->channels; c++) {
        const size_t at = ((size_t)y * (size_t)image->width + (size_t)x) * (size_t)image->channels + (size_t)c;
        if (image->bits == 8)
            ((uint8_t *)image->pixels)[at] = (uint8_t)rgba[c];
        else
            ((uint16_t *)image->pixels)[at] = (uint16_t)(rgba[c] * 257);
    }
}

/** In steps of 8 bits. */
static int get(const cod_image *image, int64_t x, int64_t y, int c)
{
    const size_t at = ((size_t)y * (size_t)image->width + (size_t)x) * (size_t)image->channels + (size_t)c;
    return image->bits == 8 ? ((uint8_t *)image->pixels)[at] : (((uint16_t *)image->pixels)[at] + 128) / 257;
}

/** Gray on the left, of the given alpha; red or another colour that is hidden on the right. */
static cod_image half_hidden(int bits, int alpha, const int hidden[4])
{
    const int gray[4] = {GRAY, GRAY, GRAY, alpha};
    cod_image image;
    assert_ok(cod_image_init(&image, W, H, 4, bits));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            set(&image, x, y, x < W / 2 ? gray : hidden);
    return image;
}

/** Wherever the result shows anything, it is gray; where it shows nothing, the hidden colour is still there. */
TEST(hidden_colours_do_not_bleed)
{
    static const double scales[] = {4, 3, 1.7, 1, 0.5, 0.3};
    const int red[4] = {254, 0, 0, 0};
    for (int bits = 8; bits <= 16; bits += 8)
        for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
            cod_image image = half_hidden(bits, 200, red), resized;
            assert_ok(cod_image_resize(&image, scales[s], &resized));
            for (int64_t y = 0; y < resized.height; y++)
                for (int64_t x = 0; x < resized.width; x++)
                    for (int c = 0; c < 3; c++)
                        if (get(&resized, x, y, 3) > 0 && abs(get(&resized, x, y, c) - GRAY) > 1)
                            fail_msg("scale %g: (%d,%d) shows %d", scales[s], (int)x, (int)y, get(&resized, x, y, c));
            assert_int_equal(get(&resized, 0, 0, 3), 200);
            assert_int_equal(get(&resized, resized.width - 1, 0, 3), 0);
            assert_int_equal(get(&resized, resized.width - 1, 0, 0), 254);
            cod_image_clear(&resized);
            cod_image_clear(&image);
        }
}

/** Where all pixels are equally transparent, colours are those of the picture without alpha. */
TEST(even_transparency_changes_no_colour)
{
    for (int alpha = 1; alpha <= 255; alpha += 127) {
        cod_image clear, opaque, resized, right;
        assert_ok(cod_image_init(&clear, W, H, 4, 8));
        assert_ok(cod_image_init(&opaque, W, H, 3, 8));
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                const int rgba[4] = {x * 11, y * 15, x * y % 256, alpha};
                set(&clear, x, y, rgba);
                set(&opaque, x, y, rgba);
            }
        assert_ok(cod_image_resize(&clear, 2.5, &resized));
        assert_ok(cod_image_resize(&opaque, 2.5, &right));
        for (int64_t y = 0; y < right.height; y++)
            for (int64_t x = 0; x < right.width; x++)
                for (int c = 0; c < 3; c++)
                    assert_true(abs(get(&resized, x, y, c) - get(&right, x, y, c)) <= (alpha < 255));
        cod_image_clear(&resized);
        cod_image_clear(&right);
        cod_image_clear(&clear);
        cod_image_clear(&opaque);
    }
}

/** Visible pixels stay as they are, hidden ones become what surrounds them, near and far. */
TEST(hidden_pixels_are_filled)
{
    const int green[4] = {0, 255, 3, 0}, faint[4] = {40, 50, 60, 1};
    for (int bits = 8; bits <= 16; bits += 8) {
        cod_image image = half_hidden(bits, 9, green), filled;
        set(&image, W - 1, H - 1, faint);
        assert_true(cod_image_is_transparent(&image));
        assert_ok(cod_image_fill_transparent(&image, &filled));
        assert_int_equal(filled.channels, 3);
        assert_int_equal(filled.bits, bits);
        for (int c = 0; c < 3; c++) {
            assert_int_equal(get(&filled, 3, 4, c), GRAY);
            assert_int_equal(get(&filled, W / 2, 8, c), GRAY);
            assert_int_equal(get(&filled, W - 1, H - 1, c), faint[c]);
            assert_true(get(&filled, W - 2, H - 2, c) > faint[c] && get(&filled, W - 2, H - 2, c) <= GRAY);
            assert_true(abs(get(&filled, W - 1, 0, c) - GRAY) < 40);
        }
        cod_image_clear(&filled);
        cod_image_clear(&image);
    }
}

TEST(nothing_visible_or_nothing_hidden)
{
    const int green[4] = {0, 255, 3, 0}, opaque[4] = {1, 2, 3, 255};
    cod_image image = half_hidden(8, 0, green), filled;
    assert_ok(cod_image_fill_transparent(&image, &filled));
    assert_int_equal(get(&filled, W - 1, 0, 1), 255);
    assert_int_equal(get(&filled, 0, 0, 1), GRAY);
    cod_image_clear(&filled);
    cod_image_clear(&image);
    image = half_hidden(8, 255, opaque);
    assert_false(cod_image_is_transparent(&image));
    cod_image_clear(&image);
    assert_ok(cod_image_init(&image, 1, 1, 3, 8));
    assert_false(cod_image_is_transparent(&image));
    assert_fails(COD_ERR_ARGUMENT, "without an alpha channel", cod_image_fill_transparent(&image, &filled));
    cod_image_clear(&image);
}

/** Without an alpha channel, pictures lie on white: for training, and in a JPEG. */
TEST_IN_FOLDER(transparent_pictures_lie_on_white)
{
    const int red[4] = {254, 0, 0, 0};
    for (int bits = 8; bits <= 16; bits += 8) {
        cod_image image = half_hidden(bits, 51, red), again;
        const char *path = cod_test_at("white.jpg");
        assert_ok(cod_image_write(path, &image, COD_IMAGE_JPEG, 100));
        assert_ok(cod_image_read(path, &again));
        assert_ok(cod_image_to_rgb8(&image));
        for (int c = 0; c < 3; c++) {
            assert_int_equal(get(&image, 0, 0, c), (GRAY * 51 + 255 * 204 + 127) / 255);
            assert_int_equal(get(&image, W - 1, 0, c), 255);
            assert_true(abs(get(&again, 2, 2, c) - get(&image, 2, 2, c)) <= 3);
            assert_true(get(&again, W - 1, 3, c) >= 252);
        }
        cod_image_clear(&again);
        cod_image_clear(&image);
    }
}

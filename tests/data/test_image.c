#include "pictures.h"

#include "data/image.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* The formulas of golden/make_pictures.py. */
enum { W = 23, H = 17 };

static const char *golden(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/golden/%s", COD_TEST_DIR, name);
    return path;
}

static int gray(int x, int y, int depth)
{
    return depth == 16 ? (x * 2741 + y * 13) % 65536 : (x * 5 + y * 3) % (1 << depth);
}

static void rgb(int x, int y, int depth, int out[3])
{
    const bool wide = depth == 16;
    out[0] = wide ? (x * 2741 + y) % 65536 : x * 11 % 256;
    out[1] = wide ? (y * 3001 + x) % 65536 : y * 15 % 256;
    out[2] = wide ? (x * 701 + y * 1301) % 65536 : (x * 7 + y * 13) % 256;
}

static int alpha(int x, int y, int depth)
{
    return depth == 16 ? (x * 2309 + y * 517) % 65536 : (x * 9 + y * 5) % 256;
}

typedef enum kind { GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA } kind;

/** What the reader should make of a pixel; alpha too where the file has any. */
static void expected_pixel(kind k, int depth, bool trns, int x, int y, int out[4])
{
    static const int palette_alpha[3] = {0, 60, 120};
    out[3] = depth == 16 ? 65535 : 255;
    if (k == RGB || k == RGBA) {
        rgb(x, y, depth, out);
        int clear[3];
        rgb(3, 2, depth, clear);
        if (trns && memcmp(clear, out, sizeof clear) == 0)
            out[3] = 0;
    } else if (k == PALETTE) {
        const int i = (x + 2 * y) % (1 << (depth < 4 ? depth : 4));
        out[0] = i * 40 % 256, out[1] = 255 - i * 17 % 256, out[2] = i * 97 % 256;
        if (trns && i < 3)
            out[3] = palette_alpha[i];
    } else {
        const int value = gray(x, y, depth), top = (1 << depth) - 1;
        out[0] = out[1] = out[2] = depth < 8 ? value * 255 / top : value;
        if (trns && value == 5)
            out[3] = 0;
    }
    if (k == GRAY_ALPHA || k == RGBA)
        out[3] = alpha(x, y, depth);
}

static int sample(const cod_image *image, int x, int y, int c)
{
    const size_t at = ((size_t)y * (size_t)image->width + (size_t)x) * (size_t)image->channels + (size_t)c;
    return image->bits == 8 ? ((uint8_t *)image->pixels)[at] : ((uint16_t *)image->pixels)[at];
}

TEST(every_kind_of_png_is_read)
{
    static const struct {
        const char *name;
        kind kind;
        int depth;
        bool trns;
    } cases[] = {
        {"gray1", GRAY, 1, false},
        {"gray2", GRAY, 2, false},
        {"gray4", GRAY, 4, false},
        {"gray8", GRAY, 8, false},
        {"gray16", GRAY, 16, false},
        {"gray8_trns", GRAY, 8, true},
        {"gray4_interlaced", GRAY, 4, false},
        {"rgb8", RGB, 8, false},
        {"rgb16", RGB, 16, false},
        {"rgb8_trns", RGB, 8, true},
        {"rgb8_interlaced", RGB, 8, false},
        {"palette1", PALETTE, 1, false},
        {"palette4", PALETTE, 4, false},
        {"palette8", PALETTE, 8, false},
        {"palette8_trns", PALETTE, 8, true},
        {"palette8_interlaced", PALETTE, 8, false},
        {"gray_alpha8", GRAY_ALPHA, 8, false},
        {"gray_alpha16", GRAY_ALPHA, 16, false},
        {"rgba8", RGBA, 8, false},
        {"rgba16", RGBA, 16, false},
        {"rgba16_interlaced", RGBA, 16, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.png", cases[i].name);
        cod_image image;
        assert_ok(cod_image_read(golden(name), &image));
        const bool transparent = cases[i].trns || cases[i].kind >= GRAY_ALPHA;
        assert_int_equal(image.width, W);
        assert_int_equal(image.height, H);
        assert_int_equal(image.channels, transparent ? 4 : 3);
        assert_int_equal(image.bits, cases[i].depth == 16 ? 16 : 8);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                int pixel[4];
                expected_pixel(cases[i].kind, cases[i].depth, cases[i].trns, x, y, pixel);
                for (int c = 0; c < image.channels; c++)
                    if (sample(&image, x, y, c) != pixel[c])
                        fail_msg("%s (%d,%d) channel %d: %d, not %d", name, x, y, c, sample(&image, x, y, c), pixel[c]);
            }
        cod_image_clear(&image);
        int64_t width, height;
        assert_ok(cod_image_probe(golden(name), &width, &height));
        assert_true(width == W && height == H);
    }
}

/** Compares with make_pictures.py's smooth picture; `tolerance` is JPEG's loss at this quality. */
static void check_smooth(const char *name, bool is_gray, int light, int tolerance)
{
    cod_image image;
    int64_t width, height;
    assert_ok(cod_image_probe(golden(name), &width, &height));
    assert_ok(cod_image_read(golden(name), &image));
    if (width != W || height != H || image.width != W || image.height != H || image.channels != 3 || image.bits != 8)
        fail_msg("%s: %lldx%lld", name, (long long)image.width, (long long)image.height);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            const int colours[3] = {10 * x + 10, 14 * y + 10, 250 - 5 * x - 5 * y};
            for (int c = 0; c < 3; c++) {
                const int truth = colours[is_gray ? 0 : c] * light / 255;
                if (abs(sample(&image, x, y, c) - truth) > tolerance)
                    fail_msg("%s (%d,%d) channel %d: %d, not %d", name, x, y, c, sample(&image, x, y, c), truth);
            }
        }
    cod_image_clear(&image);
}

TEST(every_kind_of_jpeg_is_read)
{
    check_smooth("baseline.jpg", false, 255, 4);
    check_smooth("progressive.jpg", false, 255, 4);
    check_smooth("subsampled.jpg", false, 255, 16);
    check_smooth("gray.jpg", true, 255, 4);
    check_smooth("cmyk.jpg", false, 200, 4);
}

/** By golden/make_other_pictures.py. */
TEST(other_formats_are_read)
{
    static const struct {
        const char *name;
        kind kind;
        int depth, channels;
    } cases[] = {
        {"rgb8.webp", RGB, 8, 3},
        {"rgba8.webp", RGBA, 8, 4},
        {"rgb8.bmp", RGB, 8, 3},
        {"rgba8.bmp", RGBA, 8, 4},
        {"palette8.bmp", PALETTE, 8, 3},
        {"gray8.tif", GRAY, 8, 3},
        {"gray16.tif", GRAY, 16, 3},
        {"gray_alpha8.tif", GRAY_ALPHA, 8, 4},
        {"gray_alpha16.tif", GRAY_ALPHA, 16, 4},
        {"rgb8.tif", RGB, 8, 3},
        {"rgb16.tif", RGB, 16, 3},
        {"rgba8.tif", RGBA, 8, 4},
        {"rgba16.tif", RGBA, 16, 4},
        {"tiles.tif", RGB, 8, 3},
        {"planes.tif", RGB, 8, 3},
        {"palette8.tif", PALETTE, 8, 3},
        {"tiles_rgba16.tif", RGBA, 16, 4},
        {"tiles_rgb16.tif", RGB, 16, 3},
        {"tiles_plain.tif", RGB, 8, 3},
        {"tiles_gray_alpha16.tif", GRAY_ALPHA, 16, 4},
        {"planes_rgba16.tif", RGBA, 16, 4},
        {"planes_tiles_rgba8.tif", RGBA, 8, 4},
        {"white16.tif", GRAY, 16, 3},
        {"big8.tif", RGB, 8, 3},
        {"big16.tif", RGB, 16, 3},
        {"rgb_other_alpha8.tif", RGBA, 8, 4},
        {"thumbnail_first.tif", RGB, 8, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cod_image image;
        int64_t width, height;
        assert_ok(cod_image_read(golden(cases[i].name), &image));
        if (image.width != W || image.height != H || image.channels != cases[i].channels ||
            image.bits != cases[i].depth)
            fail_msg("%s: %lldx%lld, %d channels of %d bits", cases[i].name, (long long)image.width,
                     (long long)image.height, image.channels, image.bits);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                int pixel[4];
                expected_pixel(cases[i].kind, cases[i].depth, false, x, y, pixel);
                for (int c = 0; c < image.channels; c++)
                    if (sample(&image, x, y, c) != pixel[c])
                        fail_msg("%s (%d,%d) channel %d: %d, not %d", cases[i].name, x, y, c, sample(&image, x, y, c),
                                 pixel[c]);
            }
        cod_image_clear(&image);
        assert_ok(cod_image_probe(golden(cases[i].name), &width, &height));
        assert_true(width == W && height == H);
    }
    check_smooth("smooth.webp", false, 255, 16);
    check_smooth("orientation6.webp", false, 255, 16);
    check_smooth("orientation6.tif", false, 255, 0);
    check_smooth("orientation6.png", false, 255, 0);
}

TEST(multiplied_colours_are_divided_by_their_alpha)
{
    cod_image image;
    assert_ok(cod_image_read(golden("tiles_multiplied8.tif"), &image));
    assert_int_equal(image.channels, 4);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            int pixel[3];
            rgb(x, y, 8, pixel);
            for (int c = 0; c < 3; c++)
                assert_int_equal(sample(&image, x, y, c), pixel[c] / 5 * 5);
            assert_int_equal(sample(&image, x, y, 3), x < 12 ? 51 : 255);
        }
    cod_image_clear(&image);
}

/**
 * The chunk that says how to turn a WebP stands at its end, which may lie behind what is read first to learn its size.
 */
TEST(a_late_orientation_is_seen)
{
    enum { EXTRA = 300 * 1024, HEAD = 8 };
    size_t count, exif = 12;
    int64_t width, height;
    uint8_t *bytes = read_bytes(golden("orientation6.webp"), &count), *longer = calloc(1, count + HEAD + EXTRA);
    while (exif + HEAD < count && memcmp(bytes + exif, "EXIF", 4) != 0)
        exif++;
    assert_true(exif + HEAD < count);
    memcpy(longer, bytes, exif);
    memcpy(longer + exif, "JUNK", 4);
    const uint32_t extra = EXTRA, all = (uint32_t)(count + EXTRA); /* of the file without its first eight bytes */
    memcpy(longer + exif + 4, &extra, sizeof extra);
    memcpy(longer + exif + HEAD + EXTRA, bytes + exif, count - exif);
    memcpy(longer + 4, &all, sizeof all);
    write_bytes(below("late.webp"), longer, count + HEAD + EXTRA);
    assert_ok(cod_image_probe(below("late.webp"), &width, &height));
    assert_true(width == W && height == H);
    free(bytes);
    free(longer);
}

/** Colours of five and six bits, and of one. */
TEST(few_bits_widen_to_eight)
{
    cod_image image;
    assert_ok(cod_image_read(golden("rgb565.bmp"), &image));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            int pixel[3];
            rgb(x, y, 8, pixel);
            for (int c = 0; c < 3; c++) {
                const int most = c == 1 ? 63 : 31, value = pixel[c] >> (c == 1 ? 2 : 3);
                assert_int_equal(sample(&image, x, y, c), (value * 255 + most / 2) / most);
            }
        }
    cod_image_clear(&image);
    assert_ok(cod_image_read(golden("gray1.bmp"), &image));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            assert_int_equal(sample(&image, x, y, 1), gray(x, y, 8) % 2 * 255);
    cod_image_clear(&image);
}

TEST(every_orientation_is_turned_upright)
{
    for (int i = 1; i <= 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "orientation%d.jpg", i);
        check_smooth(name, false, 255, 4);
    }
}

TEST(what_is_no_picture_is_named)
{
    cod_image image;
    int64_t width, height;
    const char *path = below("no/such.png");
    assert_fails(COD_ERR_IO, path, cod_image_read(path, &image));
    assert_null(image.pixels);
    assert_fails(COD_ERR_IO, "No such file", cod_image_probe(path, &width, &height));
    assert_fails(COD_ERR_IO, "not a regular file", cod_image_read(below("no"), &image));
    write_bytes(below("empty.png"), "", 0);
    assert_fails(COD_ERR_FORMAT, "empty", cod_image_read(below("empty.png"), &image));
    write_bytes(below("text.png"), "hello, world; no picture", 24);
    assert_fails(COD_ERR_FORMAT, "none of PNG, JPEG, WebP, TIFF and BMP", cod_image_read(below("text.png"), &image));
    static const struct {
        const char *bytes, *name;
    } foreign[] = {{"GIF89a__________", "GIF"}, {"____ftypavif____", "AVIF"}};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        assert_fails(COD_ERR_UNSUPPORTED, foreign[i].name, cod_image_decode(foreign[i].bytes, 16, "x", &image));
    assert_fails(COD_ERR_FORMAT, "damaged WebP", cod_image_decode("RIFF____WEBPVP8 ", 16, "x", &image));
    assert_fails(COD_ERR_FORMAT, "damaged BMP", cod_image_decode("BM______________", 16, "x", &image));
    assert_fails(COD_ERR_FORMAT, "damaged TIFF", cod_image_decode("II*\0____________", 16, "x", &image));
    assert_fails(COD_ERR_UNSUPPORTED, "moving pictures", cod_image_read(golden("moving.webp"), &image));
    assert_fails(COD_ERR_UNSUPPORTED, "moving pictures", cod_image_read(golden("moving.png"), &image));
    assert_fails(COD_ERR_UNSUPPORTED, "orientation stands behind",
                 cod_image_read(golden("orientation_late.png"), &image));
    assert_fails(COD_ERR_UNSUPPORTED, "32-bit samples that are floats", cod_image_read(golden("floats.tif"), &image));
    assert_fails(COD_ERR_UNSUPPORTED, "16-bit samples that are signed", cod_image_read(golden("signed16.tif"), &image));
    assert_fails(COD_ERR_UNSUPPORTED, "16-bit samples that are neither", cod_image_read(golden("cmyk16.tif"), &image));
    assert_fails(COD_ERR_UNSUPPORTED, "several pictures", cod_image_read(golden("pages.tif"), &image));
    /* A header that promises 60000x60000 pixels must not take 10 GB. */
    static const uint8_t huge[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0";
    write_bytes(below("huge.png"), huge, sizeof huge);
    assert_fails(COD_ERR_UNSUPPORTED, "limit", cod_image_probe(below("huge.png"), &width, &height));
}

/** Headers within the limits whose pixels are not there, and what may lack pixels unnoticed. */
TEST(what_cannot_hold_its_pixels_is_refused)
{
    cod_image image;
    assert_fails(COD_ERR_FORMAT, "69 bytes cannot hold 65535x8192 pixels", cod_image_read(golden("huge.png"), &image));
    assert_fails(COD_ERR_FORMAT, "914 bytes cannot hold 65500x8000 pixels", cod_image_read(golden("huge.jpg"), &image));
    assert_fails(COD_ERR_UNSUPPORTED, "arithmetic coding", cod_image_read(golden("arithmetic.jpg"), &image));
}

static const char *const fuzzed[] = {"rgb8.png",
                                     "palette8_trns.png",
                                     "rgba16_interlaced.png",
                                     "gray1.png",
                                     "baseline.jpg",
                                     "progressive.jpg",
                                     "cmyk.jpg",
                                     "orientation6.jpg",
                                     "rgba8.webp",
                                     "smooth.webp",
                                     "rgba8.bmp",
                                     "palette8.bmp",
                                     "rgb16.tif",
                                     "tiles.tif",
                                     "palette8.tif",
                                     "thumbnail_first.tif",
                                     "planes_tiles_rgba8.tif"};
enum { FUZZED = sizeof fuzzed / sizeof fuzzed[0] };

TEST(a_truncated_picture_is_an_error)
{
    for (size_t f = 0; f < FUZZED; f++) {
        size_t count;
        uint8_t *bytes = read_bytes(golden(fuzzed[f]), &count);
        for (size_t length = 0; length < count; length++) {
            uint8_t *part = malloc(length + 1); /* of its own size, so that reading past the end is seen */
            memcpy(part, bytes, length);
            part = realloc(part, length ? length : 1);
            cod_image image;
            if (cod_image_decode(part, length, "part", &image) == COD_OK)
                fail_msg("%s: the first %zu of %zu bytes pass as whole", fuzzed[f], length, count);
            assert_null(image.pixels);
            free(part);
        }
        free(bytes);
    }
}

TEST(flipped_bytes_never_crash)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xFF};
    for (size_t f = 0; f < FUZZED; f++) {
        size_t count, refused = 0;
        uint8_t *bytes = read_bytes(golden(fuzzed[f]), &count);
        for (size_t i = 0; i < count; i++)
            for (size_t m = 0; m < sizeof masks; m++) {
                bytes[i] ^= masks[m];
                cod_image image;
                if (cod_image_decode(bytes, count, "flipped", &image) != COD_OK)
                    refused++;
                cod_image_clear(&image);
                bytes[i] ^= masks[m];
            }
        assert_true(refused > 0);
        free(bytes);
    }
}

TEST(written_pictures_read_back)
{
    for (int channels = 3; channels <= 4; channels++)
        for (int bits = 8; bits <= 16; bits += 8) {
            cod_image image, again;
            assert_ok(cod_image_init(&image, 19, 7, channels, bits));
            for (size_t i = 0; i < cod_image_bytes(&image); i++)
                ((uint8_t *)image.pixels)[i] = (uint8_t)(i * 73 + i / 5);
            assert_ok(cod_image_write_png(below("round.png"), &image));
            assert_ok(cod_image_read(below("round.png"), &again));
            assert_true(again.channels == channels && again.bits == bits && again.width == 19 && again.height == 7);
            assert_memory_equal(image.pixels, again.pixels, cod_image_bytes(&image));
            cod_image_clear(&image);
            cod_image_clear(&again);
        }
}

/**
 * What JPEG and WebP keep: colours within their loss (in JPEG on white), alpha in WebP alone, everything 8-bit in WebP
 * at the best quality.
 */
TEST(lossy_formats_read_back)
{
    static const char *const names[] = {"round.jpg", "round.webp"};
    assert_int_equal(cod_image_format_of("A.JPEG"), COD_IMAGE_JPEG);
    assert_int_equal(cod_image_format_of("a.b.png"), COD_IMAGE_PNG);
    assert_int_equal(cod_image_format_of("a.tif"), COD_IMAGE_FORMATS);
    for (int n = 0; n < 2; n++)
        for (int wide = 0; wide < 2; wide++) {
            const cod_image_format format = cod_image_format_of(names[n]);
            const char *path = below(names[n]);
            cod_image image, again;
            assert_ok(cod_image_init(&image, W, H, 4, wide ? 16 : 8));
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++)
                    for (int c = 0; c < 4; c++) {
                        const int value = c == 3 ? 255 - x : 20 + 6 * x + 4 * y + 10 * c;
                        const size_t at = ((size_t)y * W + (size_t)x) * 4 + (size_t)c;
                        if (wide)
                            ((uint16_t *)image.pixels)[at] = (uint16_t)(value * 257);
                        else
                            ((uint8_t *)image.pixels)[at] = (uint8_t)value;
                    }
            for (int quality = 90; quality <= 100; quality += 10) {
                assert_ok(cod_image_write(path, &image, format, quality));
                assert_ok(cod_image_read(path, &again));
                assert_int_equal(again.channels, format == COD_IMAGE_WEBP ? 4 : 3);
                assert_int_equal(again.bits, 8);
                const int loss = format == COD_IMAGE_WEBP && quality == 100 ? 0 : 8;
                for (int y = 0; y < H; y++)
                    for (int x = 0; x < W; x++)
                        for (int c = 0; c < again.channels; c++) {
                            const int colour = 20 + 6 * x + 4 * y + 10 * c,
                                      shown = format == COD_IMAGE_WEBP ? colour : colour + (255 - colour) * x / 255,
                                      value = c == 3 ? 255 - x : shown;
                            if (abs(sample(&again, x, y, c) - value) > loss)
                                fail_msg("%s, quality %d (%d,%d) channel %d: %d, not %d", names[n], quality, x, y, c,
                                         sample(&again, x, y, c), value);
                        }
                cod_image_clear(&again);
            }
            assert_fails(COD_ERR_ARGUMENT, "a quality of 0", cod_image_write(path, &image, format, 0));
            cod_image_clear(&image);
        }
    cod_image flat;
    assert_ok(cod_image_init(&flat, 20000, 1, 3, 8));
    assert_fails(COD_ERR_UNSUPPORTED, "at most 16383", cod_image_write(below("flat.webp"), &flat, COD_IMAGE_WEBP, 90));
    cod_image_clear(&flat);
}

TEST(sixteen_bits_round_to_eight)
{
    static const uint16_t wide[8] = {0, 128, 129, 65535, 257, 385, 386, 65535};
    static const uint8_t narrow[6] = {0, 0, 1, 1, 1, 2};
    cod_image image;
    assert_ok(cod_image_init(&image, 2, 1, 4, 16));
    memcpy(image.pixels, wide, sizeof wide);
    assert_ok(cod_image_to_rgb8(&image));
    assert_true(image.channels == 3 && image.bits == 8);
    assert_memory_equal(image.pixels, narrow, sizeof narrow);
    cod_image_clear(&image);
}

TEST(a_failed_write_leaves_what_was_there)
{
    cod_image image;
    assert_ok(cod_image_init(&image, 200, 200, 3, 8));
    for (size_t i = 0; i < cod_image_bytes(&image); i++)
        ((uint8_t *)image.pixels)[i] = (uint8_t)(i * i >> 7);
    const char *path = below("atomic/a.png");
    write_bytes(path, "before", 6);
    /* A file size limit acts like a full disk, for root too. */
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &small);
    const cod_status status = cod_image_write_png(path, &image);
    for (int f = 0; f < COD_IMAGE_FORMATS; f++)
        assert_int_equal(cod_image_write(path, &image, (cod_image_format)f, 100), COD_ERR_IO);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, COD_ERR_IO);
    cod_test_assert_contains(cod_error_message(), path);
    size_t count;
    uint8_t *bytes = read_bytes(path, &count);
    assert_true(count == 6 && memcmp(bytes, "before", 6) == 0);
    free(bytes);
    assert_int_equal(count_entries(below("atomic")), 1);

    assert_fails(COD_ERR_IO, "No such file", cod_image_write_png("/no/such/folder/a.png", &image));
    assert_fails(COD_ERR_IO, "is a folder", cod_image_write_png(below("atomic"), &image));
    assert_fails(COD_ERR_IO, "no regular file", cod_image_write_png("/dev/null", &image));
    assert_fails(COD_ERR_ARGUMENT, "no file", cod_image_write_png(below("atomic/"), &image));
    assert_fails(COD_ERR_ARGUMENT, "no picture", cod_image_write_png(path, &(cod_image){0}));
    assert_int_equal(count_entries(below("atomic")), 1);
    cod_image_clear(&image);
}

TEST(a_written_picture_has_the_rights_of_a_new_file)
{
    struct stat info;
    const mode_t before = umask(027);
    write_picture(below("rights.png"), 4, 4, 1, 0);
    umask(before);
    assert_int_equal(stat(below("rights.png"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

TEST_GROUP(cod_test_folder_make, remove_folder)

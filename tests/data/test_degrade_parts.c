#include "support/test.h"

#include "data/degrade_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { W = 23, H = 17, COUNT = W * H * 3 };

/** The picture of golden/make_degrade.py. */
static void draw_picture(cod_floats *picture)
{
    assert_ok(cod_floats_resize(picture, W, H));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            float *pixel = picture->pixels + (y * W + x) * 3;
            pixel[0] = (float)(x * 11 % 256);
            pixel[1] = (float)(y * 15 % 256);
            pixel[2] = (float)((x * 7 + y * 13) % 256);
        }
}

static void fill(cod_floats *picture, int64_t side, float value)
{
    assert_ok(cod_floats_resize(picture, side, side));
    for (int64_t i = 0; i < cod_floats_count(picture); i++)
        picture->pixels[i] = value;
}

static int index_of(const char *name, const char *const *names)
{
    int index = 0;
    while (names[index] != NULL && strcmp(names[index], name) != 0)
        index++;
    assert_non_null(names[index]);
    return index;
}

static double next_number(char **rest)
{
    char *word = strsep(rest, " \n");
    assert_non_null(word);
    return strtod(word, NULL);
}

static void compare_kernel(char *rest)
{
    double weights[COD_BLUR_MAX_SIDE * COD_BLUR_MAX_SIDE];
    cod_blur blur = {.family = (cod_blur_family)index_of(strsep(&rest, " "), cod_blur_family_names)};
    blur.side = (int)next_number(&rest);
    double *const numbers[] = {&blur.sigma_x, &blur.sigma_y, &blur.theta, &blur.beta, &blur.cutoff};
    for (int i = 0; i < 5; i++)
        *numbers[i] = next_number(&rest);
    cod_blur_weights(&blur, weights);
    for (int i = 0; i < blur.side * blur.side; i++) {
        const double expected = next_number(&rest);
        if (!(fabs(weights[i] - expected) <= 1e-8 * fabs(expected) + 1e-12))
            fail_msg("%s %d: weight %d is %.10g, not %.10g", cod_blur_family_names[blur.family], blur.side, i,
                     weights[i], expected);
    }
}

static void compare_resized(char *rest, const cod_floats *picture)
{
    static const char *const modes[] = {"area", "bilinear", "bicubic", NULL};
    cod_floats out = {0};
    cod_grown scratch = {0};
    const int mode = index_of(strsep(&rest, " "), modes);
    const int width = (int)next_number(&rest), height = (int)next_number(&rest);
    assert_ok(cod_interpolate(picture, (cod_interpolation)mode, width, height, &scratch, &out));
    for (int i = 0; i < 3 * width + height; i++) {
        const int at = i < 3 * width ? height / 2 * width * 3 + i : ((i - 3 * width) * width + width / 2) * 3;
        const double expected = next_number(&rest);
        if (!(fabs(out.pixels[at] - expected) < 2e-3))
            fail_msg("%s to %dx%d: value %d is %g, not %g", modes[mode], width, height, at, out.pixels[at], expected);
    }
    cod_grown_clear(&out.room);
    cod_grown_clear(&scratch);
}

TEST(kernels_and_resizes_are_the_published_ones)
{
    enum { LINE = 16384 };
    char path[1024], *line = malloc(LINE);
    cod_floats picture = {0};
    int kernels = 0, resizes = 0;
    draw_picture(&picture);
    snprintf(path, sizeof path, "%s/golden/degrade.txt", COD_TEST_DIR);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, LINE, file) != NULL) {
        char *rest = line;
        if (strcmp(strsep(&rest, " "), "kernel") == 0) {
            compare_kernel(rest);
            kernels++;
        } else {
            compare_resized(rest, &picture);
            resizes++;
        }
    }
    assert_true(kernels == 9 && resizes == 12);
    fclose(file);
    free(line);
    cod_grown_clear(&picture.room);
}

/** The sum of weights times reflected pixels, one by one. */
static double filtered(const cod_floats *in, const double *weights, int side, int64_t x, int64_t y, int c)
{
    double sum = 0;
    for (int j = 0; j < side; j++)
        for (int i = 0; i < side; i++) {
            int64_t from_x = x + i - side / 2, from_y = y + j - side / 2;
            from_x = from_x < 0 ? -from_x : from_x >= in->width ? 2 * (in->width - 1) - from_x : from_x;
            from_y = from_y < 0 ? -from_y : from_y >= in->height ? 2 * (in->height - 1) - from_y : from_y;
            sum += weights[j * side + i] * in->pixels[(from_y * in->width + from_x) * 3 + c];
        }
    return sum;
}

/** What is left out of a kernel, or computed as two lines or folded rows, moves no pixel by a twentieth of a step. */
TEST(filters_are_their_sums)
{
    static const cod_blur blurs[] = {
        {.family = COD_BLUR_ISO, .side = 21, .sigma_x = 0.3},
        {.family = COD_BLUR_ISO, .side = 13, .sigma_x = 2.9},
        {.family = COD_BLUR_ANISO, .side = 15, .sigma_x = 2.9, .sigma_y = 0.4, .theta = 0.5},
        {.family = COD_BLUR_GENERALIZED_ISO, .side = 11, .sigma_x = 1.4, .beta = 0.5},
        {.family = COD_BLUR_PLATEAU_ANISO, .side = 9, .sigma_x = 2, .sigma_y = 0.7, .theta = -1, .beta = 1.3},
        {.family = COD_BLUR_SINC, .side = 21, .cutoff = 1.2},
    };
    double weights[COD_BLUR_MAX_SIDE * COD_BLUR_MAX_SIDE];
    cod_floats picture = {0}, out = {0};
    cod_grown scratch = {0};
    draw_picture(&picture);
    for (size_t b = 0; b < sizeof blurs / sizeof blurs[0]; b++) {
        cod_blur_kernel kernel;
        cod_blur_kernel_init(&kernel, &blurs[b]);
        cod_blur_weights(&blurs[b], weights);
        assert_ok(cod_blur_apply(&picture, &kernel, &scratch, &out));
        for (int64_t i = 0; i < COUNT; i++) {
            const double expected = filtered(&picture, weights, blurs[b].side, i / 3 % W, i / 3 / W, (int)(i % 3));
            if (!(fabs(out.pixels[i] - expected) < 0.05))
                fail_msg("%s: value %d is %g, not %g", cod_blur_family_names[blurs[b].family], (int)i, out.pixels[i],
                         expected);
        }
    }
    cod_blur_kernel small, large;
    cod_blur_kernel_init(&small, &blurs[0]);
    cod_blur_kernel_init(&large, &blurs[1]);
    assert_true(small.radius == 1 && small.separable && large.radius == 6);
    cod_grown_clear(&picture.room);
    cod_grown_clear(&out.room);
    cod_grown_clear(&scratch);
}

enum { SIDE = 160, VALUES = SIDE * SIDE * 3, PIXELS = SIDE * SIDE };

/** Mean and variance of values about what they were. */
static void measure(const cod_floats *picture, double was, double *mean, double *variance)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < VALUES; i++) {
        sum += picture->pixels[i] - was;
        squares += (picture->pixels[i] - was) * (picture->pixels[i] - was);
    }
    *mean = sum / VALUES;
    *variance = squares / VALUES - *mean * *mean;
}

static int count_gray(const cod_floats *picture)
{
    int gray = 0;
    for (int i = 0; i < PIXELS; i++)
        gray += picture->pixels[3 * i] == picture->pixels[3 * i + 1] &&
                picture->pixels[3 * i] == picture->pixels[3 * i + 2];
    return gray;
}

TEST(gaussian_noise_has_its_moments)
{
    const double sigma = 12;
    cod_floats picture = {0};
    double mean, variance, fourth = 0, products = 0;
    for (uint64_t seed = 0; seed < 2; seed++) {
        const bool gray = seed == 1;
        const double count = gray ? PIXELS : VALUES;
        cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, 0);
        fill(&picture, SIDE, 128);
        cod_add_gaussian(&picture, sigma, gray, &rng);
        measure(&picture, 128, &mean, &variance);
        /* Five standard deviations of each estimate. */
        assert_true(fabs(mean) < 5 * sigma / sqrt(count));
        assert_true(fabs(variance / (sigma * sigma) - 1) < 5 * sqrt(2 / count));
        assert_true(gray ? count_gray(&picture) == PIXELS : count_gray(&picture) < 5);
    }
    cod_rng rng = cod_rng_open(3, 0, 0, 0, COD_RNG_TEST, 0);
    fill(&picture, SIDE, 128);
    cod_add_gaussian(&picture, sigma, false, &rng);
    for (int i = 0; i + 1 < VALUES; i++) {
        const double here = (picture.pixels[i] - 128) / sigma, next = (picture.pixels[i + 1] - 128) / sigma;
        fourth += here * here * here * here / VALUES;
        products += here * next / VALUES;
    }
    assert_true(fabs(fourth - 3) < 5 * sqrt(96.0 / VALUES));
    assert_true(fabs(products) < 5 * sqrt(1.0 / VALUES));
    fill(&picture, SIDE, 250);
    cod_add_gaussian(&picture, 30, false, &rng);
    for (int i = 0; i < VALUES; i++)
        assert_true(picture.pixels[i] >= 0 && picture.pixels[i] <= 255);
    cod_grown_clear(&picture.room);
}

/** A picture whose first `levels` values are all different, and the others `value`: it has a known number of levels. */
static void fill_levels(cod_floats *picture, int levels, float value)
{
    fill(picture, SIDE, value);
    for (int i = 0; i < levels; i++)
        picture->pixels[i] = (float)i;
}

/** The variance of Poisson noise at v is v · 255 / levels times the scale's square. */
TEST(poisson_noise_has_its_moments)
{
    static const struct {
        int given, levels;
        float value;
    } cases[] = {{256, 256, 64}, {256, 256, 128}, {100, 128, 99}, {20, 32, 19}, {129, 256, 3}};
    cod_poisson *poisson;
    cod_floats picture = {0};
    double mean, variance;
    assert_ok(cod_poisson_create(&poisson));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cod_rng rng = cod_rng_open(i, 0, 0, 0, COD_RNG_TEST, 0);
        const double scale = 0.3, value = cases[i].value, rate = value / 255 * cases[i].levels;
        const double expected = value * 255 / cases[i].levels * scale * scale;
        fill_levels(&picture, cases[i].given, cases[i].value);
        cod_add_poisson(poisson, &picture, scale, false, &rng);
        for (int k = 0; k < cases[i].given; k++)
            picture.pixels[k] = cases[i].value; /* are few, and of other means */
        measure(&picture, value, &mean, &variance);
        if (!(fabs(mean) < 5 * sqrt(expected / VALUES) + 0.02 &&
              fabs(variance / expected - 1) < 5 * sqrt((2 + 1 / rate) / VALUES) + 0.01))
            fail_msg("case %zu: mean %g, variance %g, not %g", i, mean, variance, expected);
    }
    cod_rng rng = cod_rng_open(9, 0, 0, 0, COD_RNG_TEST, 0);
    fill_levels(&picture, 256, 100);
    for (int i = 0; i < 258; i++)
        picture.pixels[i] = (float)(i / 3); /* gray, so that gray noise leaves it so */
    cod_add_poisson(poisson, &picture, 1, true, &rng);
    assert_int_equal(count_gray(&picture), PIXELS);
    cod_poisson_destroy(poisson);
    cod_poisson_destroy(NULL);
    cod_grown_clear(&picture.room);
}

/** Two values, 0 and 255, are two levels: of 255 a Poisson distribution of mean 2 is drawn, of 0 nothing. */
TEST(poisson_noise_is_distributed_so)
{
    enum { MOST = 8, HALF = VALUES / 2 };
    cod_poisson *poisson;
    cod_floats picture = {0};
    int counts[MOST] = {0};
    assert_ok(cod_poisson_create(&poisson));
    cod_rng rng = cod_rng_open(5, 0, 0, 0, COD_RNG_TEST, 0);
    fill(&picture, SIDE, 255);
    for (int i = 0; i < HALF; i++)
        picture.pixels[i] = 0;
    /*
     * A tenth of the change keeps those below the mean apart: 255 + (k/2 - 1) · 25.5; those above it are limited to
     * 255.
     */
    cod_add_poisson(poisson, &picture, 0.1, false, &rng);
    for (int i = 0; i < HALF; i++)
        assert_true(picture.pixels[i] == 0);
    for (int i = HALF; i < VALUES; i++)
        counts[(int)lround((picture.pixels[i] - 255) / 12.75) + 2]++;
    const double shares[] = {exp(-2), 2 * exp(-2), 1 - 3 * exp(-2)};
    for (int k = 0; k < 3; k++)
        assert_true(fabs(counts[k] - HALF * shares[k]) < 5 * sqrt(HALF * shares[k]));
    cod_poisson_destroy(poisson);
    cod_grown_clear(&picture.room);
}

TEST(jpeg_costs_what_its_quality_says)
{
    static const int qualities[] = {5, 30, 60, 95};
    cod_jpeg_cycle cycle = {0};
    cod_floats picture = {0}, truth = {0};
    double last_error = 1e9;
    size_t last_bytes = 0;
    draw_picture(&truth);
    for (int q = 0; q < 4; q++) {
        double error = 0;
        draw_picture(&picture);
        assert_ok(cod_jpeg_apply(&cycle, &picture, qualities[q]));
        for (int i = 0; i < COUNT; i++)
            error += fabs(picture.pixels[i] - truth.pixels[i]) / COUNT;
        assert_true(error < last_error && cycle.bytes > last_bytes);
        last_error = error;
        last_bytes = cycle.bytes;
    }
    fill(&picture, 1, 77);
    assert_ok(cod_jpeg_apply(&cycle, &picture, 50));
    assert_true(fabs(picture.pixels[0] - 77) < 10);
    assert_ok(cod_floats_resize(&picture, 66000, 1)); /* more than JPEG's 65500: refused by libjpeg */
    assert_fails(COD_ERR_FORMAT, "cannot compress a picture of 66000x1 pixels as JPEG",
                 cod_jpeg_apply(&cycle, &picture, 50));
    draw_picture(&picture);
    assert_ok(cod_jpeg_apply(&cycle, &picture, 50));
    cod_jpeg_cycle_clear(&cycle);
    cod_grown_clear(&picture.room);
    cod_grown_clear(&truth.room);
}

TEST(what_is_no_number_becomes_black)
{
    uint8_t bytes[3];
    cod_floats picture = {0};
    fill(&picture, 1, 0);
    picture.pixels[0] = NAN;
    picture.pixels[1] = INFINITY;
    picture.pixels[2] = -INFINITY;
    cod_floats_to_bytes(&picture, bytes);
    assert_true(bytes[0] == 0 && bytes[1] == 255 && bytes[2] == 0);
    cod_floats_clamp(&picture);
    assert_true(picture.pixels[0] == 0 && picture.pixels[1] == 255 && picture.pixels[2] == 0);
    cod_grown_clear(&picture.room);
}

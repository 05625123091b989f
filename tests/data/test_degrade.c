#include "pictures.h"

#include "core/memory.h"
#include "data/crops.h"
#include "data/degrade_internal.h"

#include <math.h>
#include <string.h>

static cod_degrade_options default_options(cod_arena *arena)
{
    cod_degrade_options options;
    assert_ok(cod_options_set_defaults(&cod_degrade_option_table, &options, arena));
    return options;
}

enum { SCALE = 4, LOW_WIDTH = 10, LOW_HEIGHT = 8, HIGH_WIDTH = LOW_WIDTH * SCALE, HIGH_HEIGHT = LOW_HEIGHT * SCALE };

static void make_bytes(uint8_t *bytes)
{
    for (int i = 0; i < HIGH_WIDTH * HIGH_HEIGHT * 3; i++)
        bytes[i] = (uint8_t)(i * 7 % 251);
}

static cod_degrade_region whole_of(const uint8_t *bytes)
{
    return (cod_degrade_region){.picture = bytes,
                                .picture_width = HIGH_WIDTH,
                                .picture_height = HIGH_HEIGHT,
                                .low_width = LOW_WIDTH,
                                .low_height = LOW_HEIGHT};
}

/** Memory that large pictures took is kept for the next ones until it is given back. */
TEST(kept_memory_is_given_back)
{
    static uint8_t bytes[HIGH_WIDTH * HIGH_HEIGHT * 3];
    cod_arena arena = {0};
    const cod_degrade_options options = default_options(&arena);
    const cod_degradation d = {.count = 1, .passes = {{.factor = 1, .quality = 90}}};
    cod_degrader *degrader;
    cod_degraded out[2];
    make_bytes(bytes);
    const cod_degrade_region region = whole_of(bytes);
    assert_ok(cod_degrader_create(&options, SCALE, &degrader));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++)
            assert_ok(cod_degrade(degrader, &d, &(cod_sample_place){0}, &region, &out[i]));
        cod_degraded_clear(&out[0]);
        assert_true(cod_degrader_kept_bytes(degrader) >= sizeof(float) * sizeof bytes);
        cod_degrader_trim(degrader);
        assert_int_equal(cod_degrader_kept_bytes(degrader), 0);
        assert_int_equal(out[1].width, LOW_WIDTH); /* what is in use stays */
        cod_degraded_clear(&out[1]);
        assert_true(cod_degrader_kept_bytes(degrader) > 0);
    }
    cod_degrader_destroy(degrader);
    cod_arena_clear(&arena);
}

/**
 * With all else at rest, the result is that of the operations one by one: the last JPEG before or behind the resize and
 * sinc filter.
 */
TEST(operations_have_their_order)
{
    static uint8_t bytes[HIGH_WIDTH * HIGH_HEIGHT * 3];
    uint8_t expected[2][LOW_WIDTH * LOW_HEIGHT * 3];
    cod_arena arena = {0};
    const cod_degrade_options options = default_options(&arena);
    cod_degrader *degrader;
    cod_floats a = {0}, b = {0};
    cod_grown scratch = {0};
    cod_jpeg_cycle jpeg = {0};
    cod_blur_kernel kernel;
    make_bytes(bytes);
    const cod_degrade_region region = whole_of(bytes);
    assert_ok(cod_degrader_create(&options, SCALE, &degrader));
    cod_degradation d = {.count = 2, .sinc = true, .mode = COD_BICUBIC};
    d.final = (cod_blur){.family = COD_BLUR_SINC, .side = 9, .cutoff = 1.5};
    d.passes[0] = (cod_degradation_pass){.factor = 0.5, .mode = COD_AREA, .quality = 40};
    d.passes[1] = (cod_degradation_pass){.factor = 1.2, .mode = COD_BILINEAR, .quality = 20};
    cod_blur_kernel_init(&kernel, &d.final);
    for (int last = 0; last < 2; last++) {
        cod_degraded out;
        d.jpeg_last = last == 1;
        assert_ok(cod_degrade(degrader, &d, &(cod_sample_place){0}, &region, &out));
        assert_true(out.width == LOW_WIDTH && out.height == LOW_HEIGHT);
        assert_ok(cod_floats_resize(&a, HIGH_WIDTH, HIGH_HEIGHT));
        cod_floats_from_bytes(&a, bytes);
        assert_ok(cod_interpolate(&a, COD_AREA, HIGH_WIDTH / 2, HIGH_HEIGHT / 2, &scratch, &b));
        assert_ok(cod_jpeg_apply(&jpeg, &b, 40));
        assert_ok(cod_interpolate(&b, COD_BILINEAR, 12, 9, &scratch, &a));
        if (!last)
            assert_ok(cod_jpeg_apply(&jpeg, &a, 20));
        assert_ok(cod_interpolate(&a, COD_BICUBIC, LOW_WIDTH, LOW_HEIGHT, &scratch, &b));
        assert_ok(cod_blur_apply(&b, &kernel, &scratch, &a));
        if (last)
            assert_ok(cod_jpeg_apply(&jpeg, &a, 20));
        cod_floats_to_bytes(&a, expected[last]);
        assert_memory_equal(out.pixels, expected[last], sizeof expected[last]);
        cod_degraded_clear(&out);
    }
    assert_memory_not_equal(expected[0], expected[1], sizeof expected[0]);
    cod_degrader_destroy(degrader);
    cod_jpeg_cycle_clear(&jpeg);
    cod_grown_clear(&a.room);
    cod_grown_clear(&b.room);
    cod_grown_clear(&scratch);
    cod_arena_clear(&arena);
}

/** Choices come as often as they should; five standard deviations. */
TEST(choices_follow_their_probabilities)
{
    enum { DRAWS = 4000 };
    cod_arena arena = {0};
    const cod_degrade_options o = default_options(&arena);
    static const double families[] = {0.9 * 0.45, 0.9 * 0.25, 0.9 * 0.12, 0.9 * 0.03, 0.9 * 0.12, 0.9 * 0.03, 0.1};
    int counts[COD_BLUR_FAMILIES] = {0}, up = 0, down = 0, poisson = 0, gray = 0, blurs = 0, sinc = 0, last = 0;
    int modes[3] = {0};
    for (uint64_t i = 0; i < DRAWS; i++) {
        cod_degradation d;
        cod_degradation_draw(&o, &(cod_sample_place){.seed = 1, .position = i}, &d);
        const cod_degradation_pass *first = &d.passes[0], *second = &d.passes[1];
        counts[first->blur.family]++;
        up += first->factor > 1;
        down += first->factor < 1;
        modes[first->mode]++;
        poisson += first->poisson;
        gray += second->gray;
        blurs += second->blurs;
        sinc += d.sinc;
        last += d.jpeg_last;
        assert_true(first->blurs && first->blur.side % 2 == 1 && first->blur.side >= 7 && first->blur.side <= 21);
        assert_true(first->factor >= 0.15 && first->factor <= 1.5 && second->factor >= 0.3 && second->factor <= 1.2);
        assert_true(first->quality >= 30 && first->quality <= 95 && d.final.cutoff >= 3.14 / 3);
        assert_true(first->noise >= (first->poisson ? 0.05 : 1) && first->noise <= (first->poisson ? 3 : 30));
        assert_true(second->blur.family == COD_BLUR_SINC ||
                    (second->blur.sigma_x >= 0.2 && second->blur.sigma_x <= 1.5));
    }
#define NEAR(count, share) assert_true(fabs((count)-DRAWS *(share)) < 5 * sqrt(DRAWS * (share) * (1 - (share))))
    for (int f = 0; f < COD_BLUR_FAMILIES; f++)
        NEAR(counts[f], families[f]);
    NEAR(up, 0.2);
    NEAR(down, 0.7);
    NEAR(modes[0], 1.0 / 3);
    NEAR(modes[1], 1.0 / 3);
    NEAR(poisson, 0.5);
    NEAR(gray, 0.4);
    NEAR(blurs, 0.8);
    NEAR(sinc, 0.8);
    NEAR(last, 0.5);
#undef NEAR
    cod_arena_clear(&arena);
}

TEST(a_degradation_says_what_it_is)
{
    char text[COD_DEGRADATION_TEXT_BYTES];
    cod_degradation d = {.count = 2, .sinc = true, .mode = COD_AREA, .jpeg_last = true};
    d.final = (cod_blur){.family = COD_BLUR_SINC, .side = 9, .cutoff = 1.5};
    d.passes[0] = (cod_degradation_pass){.blurs = true, .factor = 1, .noise = 2.5, .gray = true, .quality = 40};
    d.passes[0].blur = (cod_blur){
        .family = COD_BLUR_GENERALIZED_ANISO, .side = 7, .sigma_x = 1, .sigma_y = 2, .theta = 0.7853981634, .beta = 3};
    d.passes[1] =
        (cod_degradation_pass){.factor = 0.5, .mode = COD_BICUBIC, .noise = 0.5, .poisson = true, .quality = 9};
    cod_degradation_describe(&d, text);
    assert_string_equal(
        text,
        "blur generalized_aniso 7x7 sigma 1.00 and 2.00 at 45 degrees beta 3.00, gray Gaussian noise 2.50, JPEG 40; "
        "resize 0.50 bicubic, colour Poisson noise 0.50; to 1/scale area, sinc 9x9 cutoff 1.50; JPEG 9");
    d.count = 1;
    d.sinc = d.jpeg_last = false;
    cod_degradation_describe(&d, text);
    assert_string_equal(
        text, "blur generalized_aniso 7x7 sigma 1.00 and 2.00 at 45 degrees beta 3.00, gray Gaussian noise 2.50; "
              "JPEG 40; to 1/scale area");
}

/** Places give what they gave, in any order, without new memory; the smallest pictures are degraded too. */
TEST(a_place_gives_the_same_again)
{
    enum { PLACES = 24, BYTES = LOW_WIDTH * LOW_HEIGHT * 3 };
    static uint8_t bytes[HIGH_WIDTH * HIGH_HEIGHT * 3], kept[PLACES][BYTES];
    cod_arena arena = {0};
    cod_degrade_options options = default_options(&arena);
    make_bytes(bytes);
    for (options.order = 1; options.order <= 2; options.order++) {
        cod_degrader *degrader;
        size_t allocated = 0;
        assert_ok(cod_degrader_create(&options, SCALE, &degrader));
        for (int i = 0; i < 2 * PLACES; i++) {
            const int at = i < PLACES ? i : 2 * PLACES - 1 - i;
            const cod_sample_place place = {.seed = 7, .group = 2, .position = (uint64_t)at};
            const cod_degrade_region region = whole_of(bytes);
            cod_degradation d;
            cod_degraded out;
            cod_degradation_draw(&options, &place, &d);
            assert_ok(cod_degrade(degrader, &d, &place, &region, &out));
            if (i < PLACES)
                memcpy(kept[at], out.pixels, BYTES);
            else
                assert_memory_equal(kept[at], out.pixels, BYTES);
            if (i == PLACES - 1)
                allocated = cod_aligned_alloc_count();
            cod_degraded_clear(&out);
        }
        assert_int_equal(cod_aligned_alloc_count(), allocated);
        for (int i = 1; i < PLACES; i++)
            assert_memory_not_equal(kept[0], kept[i], BYTES);
        for (uint64_t i = 0; i < 40; i++) {
            const cod_sample_place place = {.position = i};
            const cod_degrade_region tiny = {
                .picture = bytes, .picture_width = 1, .picture_height = 3, .left = -5, .low_width = 3, .low_height = 1};
            cod_degradation d;
            cod_degraded out;
            cod_degradation_draw(&options, &place, &d);
            assert_ok(cod_degrade(degrader, &d, &place, &tiny, &out));
            assert_true(out.width == 3 && out.height == 1);
            cod_degraded_clear(&out);
        }
        cod_degrader_destroy(degrader);
    }
    cod_arena_clear(&arena);
}

static cod_loader *start(const cod_samples *samples, int threads, uint64_t step, bool bytes)
{
    const cod_loader_options options = {
        .batch = 3, .seed = 3, .ranks = 1, .threads = threads, .prefetch = 2, .bytes = bytes};
    cod_loader *loader;
    assert_ok(cod_loader_create(samples, &options, step, &loader));
    return loader;
}

/**
 * Batches are the same with any number of threads, from any step on, and in 8 bits; the true crops are those of
 * bicubic.
 */
TEST(loaders_replay_degraded_crops)
{
    enum { STEPS = 12, RESUMED = 5 };
    cod_arena arena = {0};
    cod_data_options data;
    const cod_degrade_options options = default_options(&arena);
    cod_dataset *dataset;
    cod_degrader *degrader;
    cod_crops crops, plain;
    assert_ok(cod_options_set_defaults(&cod_data_option_table, &data, &arena));
    data.kind = COD_DATA_SYNTHETIC;
    data.patch = 8;
    data.synthetic_count = 5;
    assert_ok(cod_dataset_open(&data, &(cod_dataset_place){.scale = SCALE, .groups = 1}, &dataset));
    assert_ok(cod_degrader_create(&options, SCALE, &degrader));
    cod_crops_init(&plain, dataset, data.patch, true);
    cod_crops_init(&crops, dataset, data.patch, true);
    crops.degrader = degrader;
    const cod_samples samples = cod_crops_samples(&crops), bicubic = cod_crops_samples(&plain);
    cod_loader *loaders[] = {start(&samples, 0, 0, false), start(&samples, 3, 0, false), start(&bicubic, 0, 0, false)};
    cod_loader *resumed = NULL;
    for (uint64_t step = 0; step < STEPS; step++) {
        cod_batch b[4];
        for (int i = 0; i < 3; i++)
            assert_ok(cod_loader_next(loaders[i], &b[i]));
        if (step == RESUMED)
            resumed = start(&samples, 2, RESUMED, false);
        if (step >= RESUMED)
            assert_ok(cod_loader_next(resumed, &b[3]));
        const size_t low = cod_view_span_bytes(&b[0].input), high = cod_view_span_bytes(&b[0].target);
        for (int i = 1; i < (step < RESUMED ? 3 : 4); i++) {
            assert_memory_equal(cod_view_host(&b[0].target), cod_view_host(&b[i].target), high);
            if (i != 2)
                assert_memory_equal(cod_view_host(&b[0].input), cod_view_host(&b[i].input), low);
        }
        assert_memory_not_equal(cod_view_host(&b[0].input), cod_view_host(&b[2].input), low);
    }
    for (int i = 0; i < 3; i++)
        cod_loader_destroy(loaders[i]);
    cod_loader_destroy(resumed);
    assert_int_equal(check_bytes(&samples, 6, 20), 0xFF);
    cod_dataset_close(dataset);
    cod_degrader_destroy(degrader);
    cod_arena_clear(&arena);
}

static void set(cod_degrade_options *options, const char *key, const char *text, cod_arena *arena)
{
    const cod_option *option = cod_option_find(&cod_degrade_option_table, key);
    const char *items[8];
    size_t count = 0;
    char *rest = cod_arena_strdup(arena, text);
    assert_non_null(option);
    for (char *item; (item = strsep(&rest, ",")) != NULL;)
        items[count++] = item;
    assert_ok(cod_option_set(option, options, items, count, arena));
}

TEST(options_that_do_not_fit_are_refused)
{
    static const struct {
        const char *key, *text, *message;
    } cases[] = {
        {"blur_kernel_size", "8", "degradation.blur_kernel_size: 8 is even"},
        {"kernel_list", "iso,anso", "degradation.kernel_list: 'anso' is no blur kernel; did you mean 'aniso'?"},
        {"kernel_list2", "skew",
         "degradation.kernel_list2: 'skew' is no blur kernel; there are: iso, aniso, generalized_iso"},
        {"kernel_prob", "0.5,0.5", "degradation.kernel_prob: 2 given for 6 kernels in kernel_list"},
        {"kernel_prob2", "0,0,0,0,0,0", "degradation.kernel_prob2: nothing can be chosen"},
        {"blur_sigma", "3,0.2", "degradation.blur_sigma: 3, the least, is above 0.2, the most"},
        {"blur_sigma2", "1", "degradation.blur_sigma2: wants two numbers"},
        {"resize_prob", "0.5,0.5", "degradation.resize_prob: wants three numbers, for up, down and keep, not 2"},
        {"resize_range", "1.2,1.5", "degradation.resize_range: must contain 1, but goes from 1.2 to 1.5"},
        {"betag_range2", "0.5,0.9", "degradation.betag_range2: must contain 1, but goes from 0.5 to 0.9"},
        {"betap_range", "2,4", "degradation.betap_range: must contain 1, but goes from 2 to 4"},
        {"jpeg_range2", "95,30", "degradation.jpeg_range2: 95, the least, is above 30, the most"},
    };
    cod_arena arena = {0};
    cod_degrader *degrader;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cod_degrade_options options = default_options(&arena);
        set(&options, cases[i].key, cases[i].text, &arena);
        assert_fails(COD_ERR_ARGUMENT, cases[i].message, cod_degrader_create(&options, SCALE, &degrader));
        assert_null(degrader);
    }
    const cod_degrade_options options = default_options(&arena);
    assert_ok(cod_degrader_create(&options, SCALE, &degrader));
    cod_degraded out;
    const cod_degrade_region nothing = {0};
    assert_fails(COD_ERR_ARGUMENT, "cannot degrade 0x0 pixels",
                 cod_degrade(degrader, &(cod_degradation){.count = 1}, &(cod_sample_place){0}, &nothing, &out));
    cod_degraded_clear(&out);
    cod_degrader_destroy(degrader);
    cod_degrader_destroy(NULL);
    cod_arena_clear(&arena);
}

TEST_GROUP(cod_test_folder_make, remove_folder)

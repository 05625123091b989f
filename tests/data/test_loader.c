#include "pictures.h"

#include "data/crops.h"
#include "data/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PICTURES = 11, PATCH = 8, SCALE = 4, HIGH = PATCH * SCALE };

/**
 * Pairs in which every pixel tells its place, (x, y) of the low picture in red and green, and its picture in blue: the
 * high one repeats each low pixel, so that crops that belong together are known by their pixels.
 */
static cod_data_options make_pairs(const char *name, int cache_mb)
{
    for (int i = 0; i < PICTURES; i++) {
        write_picture(below("%s/high/%02d.png", name, i), SCALE * (20 + i), SCALE * 18, SCALE, i);
        write_picture(below("%s/low/%02d.png", name, i), 20 + i, 18, 1, i);
    }
    cod_data_options options = options_of(below("%s/high", name));
    set_option(&options, "low_path", below("%s/low", name));
    set_option(&options, "val_fraction", "0");
    set_option(&options, "patch", "8");
    options.cache_mb = cache_mb;
    return options;
}

static cod_dataset *open_pairs(const char *name, int cache_mb)
{
    const cod_data_options options = make_pairs(name, cache_mb);
    cod_dataset *dataset;
    assert_ok(cod_dataset_open(&options, &(cod_dataset_place){.scale = SCALE, .groups = 1}, &dataset));
    assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_TRAIN), PICTURES);
    return dataset;
}

static const cod_loader_options usual = {.batch = 6, .seed = 3, .ranks = 1, .threads = 2, .prefetch = 3};

/** Crops that live as long as the test. */
static cod_crops *hold_crops(const cod_dataset *dataset, int64_t patch, bool augment)
{
    enum { HELD = 16 };
    static cod_crops held[HELD];
    static int next_held;
    cod_crops *crops = &held[next_held++ % HELD];
    cod_crops_init(crops, dataset, patch, augment);
    return crops;
}

static cod_samples crops_of(const cod_dataset *dataset, int64_t patch, bool augment)
{
    return cod_crops_samples(hold_crops(dataset, patch, augment));
}

/** Crops whose channels change places, turned like those of crops_of(). */
static cod_samples permuted_crops_of(const cod_dataset *dataset, int64_t patch)
{
    cod_crops *crops = hold_crops(dataset, patch, true);
    crops->permute_channels = true;
    return cod_crops_samples(crops);
}

static cod_loader *start_with(cod_samples samples, const cod_loader_options *options, uint64_t first_step)
{
    cod_loader *loader;
    assert_ok(cod_loader_create(&samples, options, first_step, &loader));
    return loader;
}

static cod_loader *start(const cod_dataset *dataset, const cod_loader_options *options, uint64_t first_step)
{
    return start_with(crops_of(dataset, PATCH, true), options, first_step);
}

static cod_batch next(cod_loader *loader)
{
    cod_batch batch;
    assert_ok(cod_loader_next(loader, &batch));
    return batch;
}

static int value(const float *pixel, int channel)
{
    return (int)(pixel[channel] * 255 + 0.5f);
}

/** Number of the picture that crop i of a batch is of. */
static int picture_of(const cod_batch *batch, int64_t i)
{
    return value((const float *)cod_view_host(&batch->input) + i * PATCH * PATCH * 3, 2);
}

static bool equal(const cod_batch *a, const cod_batch *b)
{
    return a->step == b->step && a->epoch == b->epoch && cod_shape_equal(a->input.shape, b->input.shape) &&
           memcmp(cod_view_host(&a->input), cod_view_host(&b->input), cod_view_span_bytes(&a->input)) == 0 &&
           memcmp(cod_view_host(&a->target), cod_view_host(&b->target), cod_view_span_bytes(&a->target)) == 0;
}

TEST(crops_are_aligned_and_turned_together)
{
    cod_dataset *dataset = open_pairs("aligned", 16);
    for (int augment = 0; augment < 2; augment++) {
        cod_loader *loader = start_with(crops_of(dataset, PATCH, augment == 1), &usual, 0);
        int turns = 0, lefts = 0, tops = 0; /* bits of what was seen */
        for (int step = 0; step < 60; step++) {
            const cod_batch batch = next(loader);
            assert_true(cod_view_is_dense(&batch.input) && cod_view_is_dense(&batch.target));
            assert_true(cod_shape_equal(batch.input.shape, (cod_shape){6, PATCH, PATCH, 3}));
            assert_true(cod_shape_equal(batch.target.shape, (cod_shape){6, HIGH, HIGH, 3}));
            assert_int_equal((uintptr_t)cod_view_host(&batch.target) % COD_ALIGNMENT, 0);
            for (int i = 0; i < 6; i++) {
                const float *low = (const float *)cod_view_host(&batch.input) + i * PATCH * PATCH * 3;
                const float *high = (const float *)cod_view_host(&batch.target) + i * HIGH * HIGH * 3;
                for (int y = 0; y < HIGH; y++)
                    for (int x = 0; x < HIGH; x++)
                        assert_memory_equal(high + (y * HIGH + x) * 3, low + (y / SCALE * PATCH + x / SCALE) * 3,
                                            3 * sizeof *low);
                /* Where a step to the right and a step down lead in the picture tells the turn. */
                const int across_x = value(low + 3, 0) - value(low, 0), across_y = value(low + 3, 1) - value(low, 1);
                const int down_x = value(low + PATCH * 3, 0) - value(low, 0);
                const int down_y = value(low + PATCH * 3, 1) - value(low, 1);
                assert_int_equal(abs(across_x) + abs(across_y), 1);
                assert_int_equal(across_x * down_x + across_y * down_y, 0);
                turns |= 1 << ((across_x + across_y < 0) + 2 * (down_x + down_y < 0) + 4 * (across_x == 0));
                const int last = PATCH * PATCH * 3 - 3;
                const int left = value(low, 0) < value(low + last, 0) ? value(low, 0) : value(low + last, 0);
                const int top = value(low, 1) < value(low + last, 1) ? value(low, 1) : value(low + last, 1);
                assert_true(left + PATCH <= 20 + picture_of(&batch, i) && top + PATCH <= 18);
                lefts |= 1 << left;
                tops |= 1 << top;
            }
        }
        assert_int_equal(turns, augment ? 0xFF : 1);
        assert_int_equal(tops, (1 << 11) - 1);
        assert_int_equal(lefts & ((1 << 13) - 1), (1 << 13) - 1);
        cod_loader_destroy(loader);
    }
    cod_dataset_close(dataset);
}

TEST(channels_change_places_together)
{
    cod_dataset *dataset = open_pairs("permuted", 16);
    cod_loader *plain = start_with(crops_of(dataset, PATCH, true), &usual, 0);
    cod_loader *permuted = start_with(permuted_crops_of(dataset, PATCH), &usual, 0);
    int seen = 0;
    for (int step = 0; step < 20; step++) {
        const cod_batch a = next(plain), b = next(permuted);
        for (int i = 0; i < 6; i++) {
            const int low = i * PATCH * PATCH * 3, high = i * HIGH * HIGH * 3;
            const int order = orders_of((const float *)cod_view_host(&a.input) + low,
                                        (const float *)cod_view_host(&b.input) + low, PATCH * PATCH);
            assert_true(order != 0 && (order & (order - 1)) == 0);
            assert_int_equal(orders_of((const float *)cod_view_host(&a.target) + high,
                                       (const float *)cod_view_host(&b.target) + high, HIGH * HIGH),
                             order);
            seen |= order;
        }
    }
    assert_int_equal(seen, 0x3F);
    cod_loader_destroy(plain);
    cod_loader_destroy(permuted);
    cod_dataset_close(dataset);
}

TEST(bytes_give_the_same_crops)
{
    cod_dataset *dataset = open_pairs("bytes", 16);
    const cod_samples turned = crops_of(dataset, PATCH, true), straight = crops_of(dataset, PATCH, false);
    const cod_samples permuted = permuted_crops_of(dataset, PATCH);
    assert_int_equal(check_bytes(&turned, 6, 20), 0xFF);
    assert_int_equal(check_bytes(&permuted, 6, 20), 0xFF);
    assert_int_equal(check_bytes(&straight, 6, 5), 1);
    cod_dataset_close(dataset);
}

TEST(a_batch_depends_on_its_step_alone)
{
    cod_dataset *cached = open_pairs("steps", 16), *uncached = open_pairs("steps", 0);
    cod_loader_options inline_options = usual, many = usual, other = usual;
    inline_options.threads = 0;
    many.threads = 5;
    many.prefetch = 1;
    other.seed = 4;
    cod_loader *a = start(cached, &inline_options, 0), *b = start(cached, &usual, 0), *c = start(uncached, &many, 0);
    cod_loader *resumed = NULL, *different = start(cached, &other, 0);
    int same = 0;
    for (uint64_t step = 0; step < 30; step++) {
        const cod_batch x = next(a), y = next(b), z = next(c), w = next(different);
        assert_int_equal(x.step, step);
        assert_int_equal(x.epoch, step * 6 / PICTURES);
        assert_true(equal(&x, &y) && equal(&x, &z));
        same += equal(&x, &w);
        if (step == 7)
            resumed = start(cached, &usual, 7);
        if (step >= 7) {
            const cod_batch again = next(resumed);
            assert_true(equal(&x, &again));
        }
    }
    assert_int_equal(same, 0);
    cod_loader_destroy(a);
    cod_loader_destroy(b);
    cod_loader_destroy(c);
    cod_loader_destroy(resumed);
    cod_loader_destroy(different);
    cod_loader_destroy(NULL);
    cod_dataset_close(cached);
    cod_dataset_close(uncached);
}

TEST(groups_see_different_orders)
{
    cod_dataset *dataset = open_pairs("groups", 16);
    cod_loader_options second = usual;
    second.group = 1;
    cod_loader *a = start(dataset, &usual, 0), *b = start(dataset, &second, 0);
    const cod_batch x = next(a), y = next(b);
    assert_false(equal(&x, &y));
    cod_loader_destroy(a);
    cod_loader_destroy(b);
    cod_dataset_close(dataset);
}

TEST(ranks_use_each_sample_once_an_epoch)
{
    enum { RANKS = 3, BATCH = 4, EPOCHS = 12, STEPS = EPOCHS * PICTURES / (RANKS * BATCH) };
    cod_dataset *dataset = open_pairs("epochs", 16);
    int used[EPOCHS][PICTURES] = {{0}}, order[EPOCHS * PICTURES] = {0};
    for (int rank = 0; rank < RANKS; rank++) {
        cod_loader_options options = usual;
        options.batch = BATCH;
        options.rank = rank;
        options.ranks = RANKS;
        cod_loader *loader = start(dataset, &options, 0);
        for (int step = 0; step < STEPS; step++) {
            const cod_batch batch = next(loader);
            for (int i = 0; i < BATCH; i++) {
                const int position = step * RANKS * BATCH + rank * BATCH + i;
                order[position] = picture_of(&batch, i);
                used[position / PICTURES][order[position]]++;
            }
        }
        cod_loader_destroy(loader);
    }
    for (int epoch = 0; epoch < STEPS * RANKS * BATCH / PICTURES; epoch++)
        for (int i = 0; i < PICTURES; i++)
            assert_int_equal(used[epoch][i], 1);
    assert_memory_not_equal(order, order + PICTURES, PICTURES * sizeof *order);
    cod_dataset_close(dataset);
}

TEST(weights_repeat_a_folder)
{
    char paths[512];
    (void)make_pairs("light", 16);
    for (int i = 0; i < 2; i++)
        write_picture(below("heavy/%d.png", i), 100, 100, SCALE, 200 + i);
    snprintf(paths, sizeof paths, "%s,%s", below("light/high"), below("heavy"));
    cod_data_options options = options_of(paths);
    set_option(&options, "weights", "1,4");
    set_option(&options, "patch", "8");
    set_option(&options, "val_fraction", "0");
    cod_dataset *dataset;
    assert_ok(cod_dataset_open(&options, &(cod_dataset_place){.scale = SCALE, .groups = 1}, &dataset));
    assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_TRAIN), PICTURES + 2 * 4);
    assert_int_equal(cod_dataset_count(dataset).train, PICTURES + 2);
    cod_loader_options loader_options = usual;
    loader_options.batch = PICTURES + 2 * 4;
    cod_loader *loader = start(dataset, &loader_options, 5);
    const cod_batch batch = next(loader);
    int counts[256] = {0};
    for (int64_t i = 0; i < loader_options.batch; i++)
        counts[picture_of(&batch, i)]++;
    assert_true(counts[200] == 4 && counts[201] == 4);
    assert_int_equal(batch.epoch, 5);
    cod_loader_destroy(loader);
    cod_dataset_close(dataset);
}

TEST(two_ranks_of_eight_are_one_of_sixteen)
{
    cod_dataset *dataset = open_pairs("halves", 16);
    cod_loader_options whole = usual, half = usual;
    whole.batch = 16;
    half.batch = 8;
    half.ranks = 2;
    cod_loader *one = start(dataset, &whole, 2), *first = start(dataset, &half, 2), *second;
    half.rank = 1;
    second = start(dataset, &half, 2);
    for (int step = 0; step < 10; step++) {
        const cod_batch all = next(one), a = next(first), b = next(second);
        const size_t low = cod_view_span_bytes(&a.input), high = cod_view_span_bytes(&a.target);
        assert_memory_equal(cod_view_host(&all.input), cod_view_host(&a.input), low);
        assert_memory_equal((char *)cod_view_host(&all.input) + low, cod_view_host(&b.input), low);
        assert_memory_equal(cod_view_host(&all.target), cod_view_host(&a.target), high);
        assert_memory_equal((char *)cod_view_host(&all.target) + high, cod_view_host(&b.target), high);
    }
    cod_loader_destroy(one);
    cod_loader_destroy(first);
    cod_loader_destroy(second);
    cod_dataset_close(dataset);
}

TEST(a_file_gone_bad_is_replaced)
{
    cod_dataset *dataset = open_pairs("gone", 0);
    unlink(below("gone/high/03.png"));
    capture_log();
    for (int threads = 0; threads < 2; threads++) {
        cod_loader_options options = usual;
        options.batch = PICTURES;
        options.threads = threads;
        cod_loader *loader = start(dataset, &options, 0);
        const cod_batch batch = next(loader);
        int counts[256] = {0};
        for (int i = 0; i < PICTURES; i++)
            counts[picture_of(&batch, i)]++;
        assert_true(counts[3] == 0 && counts[4] == 2 && counts[2] == 1);
        cod_loader_destroy(loader);
    }
    assert_true(logged("03.png: cannot open") >= 2);
    capture_log();
    cod_loader_options alone = usual;
    alone.batch = PICTURES;
    alone.threads = 0;
    cod_loader *long_lived = start(dataset, &alone, 0);
    for (int i = 0; i < 40; i++)
        next(long_lived);
    cod_loader_destroy(long_lived);
    assert_int_equal(logged("another picture is used instead"), 5 + 3);
    assert_int_equal(logged("another picture is used instead, 32 times so far: "), 1);
    for (int i = 0; i < PICTURES; i++)
        write_bytes(below("gone/high/%02d.png", i), "spoiled", 7);
    for (int threads = 0; threads < 2; threads++) {
        cod_loader_options options = usual;
        options.threads = threads;
        cod_loader *loader = start(dataset, &options, 0);
        cod_batch batch;
        assert_fails(COD_ERR_FORMAT, "none of the training pictures", cod_loader_next(loader, &batch));
        cod_loader_destroy(loader);
    }
    cod_dataset_close(dataset);
}

TEST(bad_calls_are_refused)
{
    cod_dataset *dataset = open_pairs("calls", 16);
    const cod_samples samples = crops_of(dataset, PATCH, true), none = {0};
    cod_loader *loader;
    cod_loader_options options = usual;
    assert_fails(COD_ERR_ARGUMENT, "nothing to train on", cod_loader_create(&none, &options, 0, &loader));
    options.batch = 0;
    assert_fails(COD_ERR_ARGUMENT, "no batch of 0", cod_loader_create(&samples, &options, 0, &loader));
    options = usual;
    options.rank = 1;
    assert_fails(COD_ERR_ARGUMENT, "rank 1 of 1", cod_loader_create(&samples, &options, 0, &loader));
    options = usual;
    options.prefetch = 0;
    assert_fails(COD_ERR_ARGUMENT, "0 batches", cod_loader_create(&samples, &options, 0, &loader));
    assert_null(loader);
    options = usual;
    options.threads = 0;
    cod_batch batch;
    loader = start_with(crops_of(dataset, 19, true), &options, 0);
    assert_fails(COD_ERR_ARGUMENT, "larger than the data set", cod_loader_next(loader, &batch));
    cod_loader_destroy(loader);
    cod_loader_destroy(start(dataset, &usual, 0)); /* never asked for a batch */
    cod_dataset_close(dataset);
}

/** At least 2000 crops of 24x24 -> 96x96 a second and core, so that loading never limits training. */
TEST(crops_are_made_fast_enough)
{
    enum { STEPS = 200, BATCH = 16, GOAL = 2000 };
    const char *photos = cod_test_data("photos");
    if (photos == NULL)
        skip();
    const cod_data_options options = options_of(photos);
    cod_dataset *dataset;
    assert_ok(cod_dataset_open(&options, &(cod_dataset_place){.scale = 4, .groups = 1}, &dataset));
    const cod_loader_options loader_options = {.batch = BATCH, .ranks = 1, .prefetch = 1};
    cod_loader *loader = start_with(crops_of(dataset, 24, true), &loader_options, 0);
    const clock_t begin = clock();
    for (int step = 0; step < STEPS; step++)
        (void)next(loader);
    const double rate = STEPS * BATCH / ((double)(clock() - begin) / CLOCKS_PER_SEC);
    print_message("%.0f crops a second and core\n", rate);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(rate > GOAL);
#endif
    cod_loader_destroy(loader);
    cod_dataset_close(dataset);
}

TEST_GROUP(cod_test_folder_make, remove_folder)

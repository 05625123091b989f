#include "pictures.h"

#include "core/hash.h"
#include "core/log.h"
#include "data/files.h"
#include "data/resize.h"
#include "data/shared_file_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(files_are_found_in_order)
{
    static const char *const made[] = {"find/b.png",       "find/a/z.JPEG",   "find/a/b/c.jpg",     "find/B.PNG",
                                       "find/.hidden.png", "find/.git/x.png", "find/text.txt",      "find/a.webp",
                                       "find/noending",    "find/png",        "find/a/archive.tgz", "find/a-b.tiff"};
    static const char *const expected[] = {"B.PNG", "a-b.tiff", "a.webp", "a/b/c.jpg", "a/z.JPEG", "b.png", "l.png"};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        write_bytes(below("%s", made[i]), "x", 1);
    /* A link to a folder above is not followed for ever; one to nowhere is found, so that somebody hears of it. */
    assert_int_equal(symlink("..", below("find/a/up")), 0);
    assert_int_equal(symlink("nowhere", below("find/l.png")), 0);
    cod_file_list files = {0};
    assert_ok(cod_files_find(&files, below("find"), 3));
    assert_int_equal(files.count, sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < files.count; i++) {
        assert_string_equal(files.items[i].name, expected[i]);
        assert_string_equal(files.items[i].path, below("find/%s", expected[i]));
        assert_int_equal(files.items[i].root, 3);
        assert_int_equal(files.items[i].bytes, i == 6 ? 0 : 1);
    }
    cod_files_clear(&files);
    assert_ok(cod_files_find(&files, below("find/text.txt"), 0));
    assert_ok(cod_files_find(&files, below("nothing/"), 0)); /* finding nothing is no error */
    assert_string_equal(files.items[0].name, "text.txt");
    assert_fails(COD_ERR_IO, "/no/folder", cod_files_find(&files, "/no/folder", 0));
    cod_files_clear(&files);
}

static void count_lines(void *context, cod_log_level level, const char *line)
{
    (void)level;
    *(int *)context += strstr(line, "are left out") != NULL;
}

TEST(results_and_thumbnails_are_no_input)
{
    static const char *const made[] = {
        "in/a.jfif",       "in/b.jpe",           "in/out/a.png",         "in/@eaDir/a.jpg",
        "in/.cache/a.png", "in/run/config.yaml", "in/run/checkpoints/x", "in/run/samples/a.png",
        "in/sub/out/a.png"};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        write_bytes(below("%s", made[i]), "x", 1);
    int said = 0;
    cod_log_set_sink(count_lines, &said, COD_LOG_INFO);
    cod_file_list files = {.output = below("in/out")};
    assert_ok(cod_files_find(&files, below("in/"), 0));
    cod_log_set_sink(NULL, NULL, COD_LOG_INFO);
    assert_int_equal(said, 4); /* of four folders */
    assert_int_equal(files.count, 3);
    assert_string_equal(files.items[0].name, "a.jfif");
    assert_string_equal(files.items[2].name, "sub/out/a.png");
    cod_files_clear(&files);
}

TEST(options_that_disagree_are_refused)
{
    cod_data_options options = options_of("");
    assert_fails(COD_ERR_ARGUMENT, "path: name at least one", cod_data_options_check(&options));
    options = options_of("a,b");
    assert_ok(cod_data_options_check(&options));
    set_option(&options, "weights", "1,2,3");
    assert_fails(COD_ERR_ARGUMENT, "weights: 3 given for 2", cod_data_options_check(&options));
    options = options_of("a,b");
    set_option(&options, "low_path", "c");
    assert_fails(COD_ERR_ARGUMENT, "low_path: 1 given for 2", cod_data_options_check(&options));
    options = options_of("a");
    set_option(&options, "val_low_path", "c");
    assert_fails(COD_ERR_ARGUMENT, "val_low_path: 1 given for 0", cod_data_options_check(&options));
    options = options_of("a");
    set_option(&options, "val_path", "c");
    set_option(&options, "val_count", "3");
    assert_fails(COD_ERR_ARGUMENT, "val_count", cod_data_options_check(&options));
    options = options_of("");
    set_option(&options, "kind", "synthetic");
    assert_ok(cod_data_options_check(&options));
    set_option(&options, "val_count", "32");
    assert_fails(COD_ERR_ARGUMENT, "val_count: 32 leaves none", cod_data_options_check(&options));
}

TEST(pictures_come_with_their_bicubic_halves)
{
    const cod_data_options cached = options_of(make_pictures("plain", 7, 10));
    cod_data_options uncached = cached;
    set_option(&uncached, "cache_mb", "0");
    cod_dataset *first = open_ok(&cached, &lone_group), *second = open_ok(&uncached, &lone_group);
    const cod_dataset_counts counts = cod_dataset_count(first);
    assert_true(counts.files == 7 && counts.broken == 0 && counts.small == 0 && counts.train == 6 && counts.val == 1);
    assert_true(counts.cached_bytes == 7 * 3 * 28 * 25 * 17 && counts.uncached == 0);
    assert_int_equal(cod_dataset_count(second).uncached, 7);
    assert_int_equal(cod_dataset_count(second).cached_bytes, 0);
    assert_int_equal(cod_dataset_scale(first), 4);
    for (int s = COD_SPLIT_TRAIN; s <= COD_SPLIT_VAL; s++)
        for (size_t i = 0; i < cod_dataset_size(first, (cod_split)s); i++) {
            cod_pair a, b;
            cod_image file, low;
            assert_ok(cod_dataset_read(first, (cod_split)s, i, &a));
            assert_ok(cod_dataset_read(second, (cod_split)s, i, &b));
            assert_true(a.owned == NULL && b.owned != NULL);
            assert_true(a.low_width == 28 && a.low_height == 25 && b.low_width == 28 && b.low_height == 25);
            assert_string_equal(cod_dataset_name(first, (cod_split)s, i), cod_dataset_name(second, (cod_split)s, i));
            assert_ok(cod_image_read(cod_dataset_name(first, (cod_split)s, i), &file));
            assert_ok(cod_image_resize(&file, 0.25, &low));
            assert_memory_equal(a.high, file.pixels, cod_image_bytes(&file));
            assert_memory_equal(b.high, file.pixels, cod_image_bytes(&file));
            assert_memory_equal(a.low, low.pixels, cod_image_bytes(&low));
            assert_memory_equal(b.low, low.pixels, cod_image_bytes(&low));
            cod_image_clear(&file);
            cod_image_clear(&low);
            cod_pair_clear(&a);
            cod_pair_clear(&b);
        }
    cod_pair pair;
    assert_fails(COD_ERR_ARGUMENT, "no sample 6", cod_dataset_read(first, COD_SPLIT_TRAIN, 6, &pair));
    cod_dataset_close(first);
    cod_dataset_close(second);
    cod_dataset_close(NULL);
}

TEST(sides_are_cut_to_multiples_of_the_scale)
{
    write_picture(below("odd/a.png"), 103, 101, 1, 5);
    cod_data_options options = options_of(below("odd"));
    set_option(&options, "val_fraction", "0");
    cod_dataset *dataset = open_ok(&options, &lone_group);
    cod_pair pair;
    assert_ok(cod_dataset_read(dataset, COD_SPLIT_TRAIN, 0, &pair));
    assert_true(pair.low_width == 25 && pair.low_height == 25);
    assert_true(pair.high[3 * (100 * 99 + 99)] == 99 && pair.high[3 * (100 * 99 + 99) + 1] == 99);
    cod_pair_clear(&pair);
    cod_dataset_close(dataset);
}

TEST(what_cannot_be_used_is_counted_and_named)
{
    make_pictures("mixed", 5, 0);
    write_picture(below("mixed/small.png"), 95, 200, 1, 0);
    write_picture(below("mixed/tiny.png"), 3, 3, 1, 0);
    write_bytes(below("mixed/empty.jpg"), "", 0);
    write_bytes(below("mixed/web.webp"), "RIFF____WEBPVP8 ", 16);
    size_t count;
    uint8_t *bytes = read_bytes(below("mixed/00.png"), &count);
    write_bytes(below("mixed/cut.png"), bytes, count - 40); /* its header is sound */
    free(bytes);
    assert_int_equal(symlink("nowhere", below("mixed/link.png")), 0);
    const cod_data_options options = options_of(below("mixed"));
    for (int again = 0; again < 2; again++) {
        capture_log();
        cod_dataset *dataset = open_ok(&options, &lone_group), *other = NULL;
        if (again) /* finds the store and must say the same */
            other = open_ok(&options, &lone_group);
        const cod_dataset_counts counts = cod_dataset_count(other ? other : dataset);
        assert_true(counts.files == 11 && counts.broken == 4 && counts.small == 2 && counts.train == 4 &&
                    counts.val == 1);
        assert_int_equal(logged("left out: 6 of 11 pictures: "), again ? 2 : 1);
        assert_true(logged("small.png: is smaller than one crop of 96x96"));
        assert_true(logged("empty.jpg: the file is empty; "));
        assert_true(logged("cut.png: damaged PNG: the file ends too early"));
        assert_true(logged("link.png: cannot open: No such file"));
        assert_true(logged("tiny.png: is smaller than one crop of 96x96 pixels; and 1 more"));
        assert_false(logged("web.webp"));
        cod_dataset_close(dataset);
        cod_dataset_close(other);
    }
    cod_dataset_place silent = lone_group, listed = lone_group;
    char list[64 << 10] = "", path[4096];
    snprintf(path, sizeof path, "%s", below("left-out.txt"));
    listed.left_out = path;
    for (int few = 0; few < 2; few++) {
        capture_log();
        cod_dataset_close(open_ok(&options, &listed));
        assert_int_equal(logged(few ? "left-out.txt" : "and 1 more: '"), few ? 0 : 1);
        FILE *file = fopen(path, "r");
        assert_true((file == NULL) == (few == 1));
        if (file != NULL) {
            assert_true(fread(list, 1, sizeof list - 1, file) > 0);
            fclose(file);
            cod_test_assert_contains(list, "web.webp: damaged WebP: the file ends too early");
            cod_test_assert_contains(list, "small.png: is smaller than one crop of 96x96 pixels\n");
        }
        remove(below("mixed/web.webp")); /* five are named, and the list of six goes */
    }
    silent.report = false;
    capture_log();
    cod_dataset_close(open_ok(&options, &silent));
    assert_int_equal(logged("left out"), 0);
}

TEST(a_folder_that_gives_nothing_is_an_error)
{
    cod_dataset *dataset;
    write_bytes(below("bad/a.png"), "no picture", 10);
    write_bytes(below("bad/b.jpg"), "no picture", 10);
    write_picture(below("bad/c.png"), 20, 20, 1, 0);
    write_bytes(below("none/readme.txt"), "x", 1);
    const char *good = make_pictures("good", 3, 0);
    char paths[512];
    cod_data_options options = options_of(below("bad"));
    assert_fails(COD_ERR_ARGUMENT, below("bad"), cod_dataset_open(&options, &lone_group, &dataset));
    cod_test_assert_contains(cod_error_message(), "none of the 3 pictures");
    cod_test_assert_contains(cod_error_message(), "2 broken, 1 smaller than one crop of 96x96; the first: ");
    snprintf(paths, sizeof paths, "%s,%s", good, below("none"));
    options = options_of(paths);
    assert_fails(COD_ERR_ARGUMENT, below("none"), cod_dataset_open(&options, &lone_group, &dataset));
    options = options_of(good);
    set_option(&options, "val_path", below("none"));
    assert_fails(COD_ERR_ARGUMENT, "data.val_path: no pictures in", cod_dataset_open(&options, &lone_group, &dataset));
    options = options_of("/no/such/folder");
    assert_fails(COD_ERR_IO, "/no/such/folder", cod_dataset_open(&options, &lone_group, &dataset));
    options = options_of(good);
    set_option(&options, "val_count", "3");
    assert_fails(COD_ERR_ARGUMENT, "holding out 3 of 3", cod_dataset_open(&options, &lone_group, &dataset));
    set_option(&options, "val_count", "0");
    set_option(&options, "placement", "disjoint");
    const cod_dataset_place crowd = {.scale = 4, .seed = 1, .group = 2, .groups = 3};
    assert_fails(COD_ERR_ARGUMENT, "2 training items are too few", cod_dataset_open(&options, &crowd, &dataset));
    assert_fails(COD_ERR_ARGUMENT, "group 2 of 2",
                 cod_dataset_open(&options, &(cod_dataset_place){.scale = 4, .group = 2, .groups = 2}, &dataset));
    assert_null(dataset);
}

/** The number of each sample's picture, its blue. */
static void count_blues(const cod_dataset *dataset, cod_split split, int counts[256])
{
    for (size_t i = 0; i < cod_dataset_size(dataset, split); i++) {
        cod_pair pair;
        assert_ok(cod_dataset_read(dataset, split, i, &pair));
        counts[pair.high[2]]++;
        cod_pair_clear(&pair);
    }
}

TEST(held_out_pictures_are_spread_and_fixed)
{
    cod_data_options options = options_of(make_pictures("spread", 20, 0));
    set_option(&options, "val_count", "4");
    for (uint64_t seed = 0; seed < 3; seed++) {
        cod_dataset *dataset = open_ok(&options, &(cod_dataset_place){.scale = 4, .seed = seed, .groups = 1});
        int val[256] = {0}, train[256] = {0};
        count_blues(dataset, COD_SPLIT_VAL, val);
        count_blues(dataset, COD_SPLIT_TRAIN, train);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(val[i] + train[i], 1);
            assert_int_equal(val[i], i % 5 == 2);
        }
        cod_dataset_close(dataset);
    }
    for (int64_t held_out = 1; held_out < 20; held_out++) {
        options.val_count = held_out;
        cod_dataset *dataset = open_ok(&options, &lone_group);
        assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_VAL), held_out);
        assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_TRAIN), 20 - held_out);
        cod_dataset_close(dataset);
    }
}

TEST(groups_hold_equal_parts_that_do_not_overlap)
{
    char paths[512];
    snprintf(paths, sizeof paths, "%s,%s", make_pictures("part1", 7, 0), make_pictures("part2", 6, 100));
    cod_data_options options = options_of(paths);
    set_option(&options, "placement", "disjoint");
    set_option(&options, "weights", "1,3");
    int orders[2][256];
    for (uint64_t seed = 0; seed < 2; seed++) {
        int all[256] = {0};
        for (int group = 0; group < 3; group++) {
            cod_dataset *dataset =
                open_ok(&options, &(cod_dataset_place){.scale = 4, .seed = seed, .group = group, .groups = 3});
            int val[256] = {0};
            assert_int_equal(cod_dataset_count(dataset).train, 4);
            count_blues(dataset, COD_SPLIT_VAL, val);
            assert_int_equal(val[6], 1);
            count_blues(dataset, COD_SPLIT_TRAIN, all);
            if (group == 0) {
                memset(orders[seed], 0, sizeof orders[seed]);
                count_blues(dataset, COD_SPLIT_TRAIN, orders[seed]);
            }
            cod_dataset_close(dataset);
        }
        for (int i = 0; i < 6; i++)
            assert_true(all[i] == 1 && all[100 + i] == 3);
        assert_int_equal(all[6], 0);
    }
    assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
}

/** Training and validation pairs alike: the message is as long for a hundred of them. */
TEST(many_broken_pairs_are_one_message)
{
    for (int i = 0; i < 100; i++) {
        const char *part = i < 50 ? "train" : "val";
        write_picture(below("many/%s/%02d.png", part, i), 112, 100, 4, i);
        if (i % 25 < 10 || i % 25 >= 20) /* the ones between have no low-resolution picture */
            write_picture(below("many/%s-low/%02dx4.png", part, i), i % 25 < 10 ? 56 : 28, i % 25 < 10 ? 50 : 25, 1, i);
    }
    cod_data_options options = options_of(below("many/train"));
    set_option(&options, "low_path", below("many/train-low"));
    set_option(&options, "val_path", below("many/val"));
    set_option(&options, "val_low_path", below("many/val-low"));
    capture_log();
    cod_dataset *dataset = open_ok(&options, &lone_group);
    assert_true(cod_dataset_count(dataset).broken == 80 && cod_dataset_count(dataset).train == 10);
    assert_int_equal(logged("left out"), 1);
    assert_int_equal(logged("left out: 80 of 100 pictures: "), 1);
    assert_int_equal(logged("00x4.png: is 56x50 pixels; at scale 4, "), 1);
    assert_int_equal(logged("00.png needs a low-resolution picture of 28x25; "), 1);
    assert_int_equal(logged("04.png needs a low-resolution picture of 28x25; and 75 more"), 1);
    assert_int_equal(logged("05.png"), 0);
    cod_dataset_close(dataset);
    set_option(&options, "low_path", below("many/val-low"));
    capture_log();
    assert_fails(COD_ERR_ARGUMENT, "none of the 50 pictures in '", cod_dataset_open(&options, &lone_group, &dataset));
    cod_test_assert_contains(cod_error_message(), "04.png: no low-resolution picture '04' or '04x4' in '");
    cod_test_assert_contains(cod_error_message(), "; and 45 more");
    assert_int_equal(logged("left out"), 0);
}

TEST(pairs_match_by_name)
{
    write_picture(below("hr/same.png"), 120, 100, 4, 1);
    write_picture(below("hr/sub/suffix.png"), 120, 100, 4, 2);
    write_picture(below("hr/up.png"), 122, 103, 4, 3); /* made with its sides rounded up */
    write_picture(below("hr/lonely.png"), 120, 100, 4, 4);
    write_picture(below("hr/wrong.png"), 120, 100, 4, 5);
    write_picture(below("lr/same.png"), 30, 25, 1, 51);
    write_picture(below("lr/sub/suffixx4.png"), 30, 25, 1, 52);
    write_picture(below("lr/up.png"), 31, 26, 1, 53);
    write_picture(below("lr/lonelyx2.png"), 30, 25, 1, 54);
    write_picture(below("lr/wrong.png"), 60, 50, 1, 55);
    write_picture(below("hr/wide.png"), 120, 100, 4, 6);
    write_picture(below("lr/wide.png"), 31, 25, 1, 56);   /* one too wide, although 4 divides 120 */
    write_picture(below("hr/other.png"), 122, 103, 4, 7); /* another picture of a size that might be right */
    write_picture(below("lr/other.png"), 30, 26, 1, 200);
    cod_data_options options = options_of(below("hr"));
    set_option(&options, "low_path", below("lr"));
    set_option(&options, "val_path", below("hr/same.png"));
    set_option(&options, "val_low_path", below("lr/same.png"));
    capture_log();
    cod_dataset *dataset = open_ok(&options, &lone_group);
    assert_true(cod_dataset_count(dataset).files == 8 && cod_dataset_count(dataset).broken == 4);
    assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_TRAIN), 3);
    assert_int_equal(cod_dataset_size(dataset, COD_SPLIT_VAL), 1);
    assert_int_equal(logged("left out: 4 of 8 pictures: "), 1);
    assert_true(logged("lonely.png: no low-resolution picture 'lonely' or 'lonelyx4'"));
    assert_true(logged("wrong.png: is 60x50 pixels; at scale 4"));
    assert_true(logged("wide.png: is 31x25 pixels; at scale 4"));
    assert_true(logged("other.png: is no low-resolution picture of"));
    for (size_t i = 0; i < 3; i++) {
        cod_pair pair;
        assert_ok(cod_dataset_read(dataset, COD_SPLIT_TRAIN, i, &pair));
        assert_true(pair.low_width == 30 && pair.low_height == 25);
        for (int64_t y = 0; y < 100; y++)
            for (int64_t x = 0; x < 120; x++) {
                const uint8_t *high = pair.high + 3 * (120 * y + x), *low = pair.low + 3 * (30 * (y / 4) + x / 4);
                assert_true(high[0] == low[0] && high[1] == low[1] && high[2] + 50 == low[2]);
            }
        cod_pair_clear(&pair);
    }
    cod_dataset_close(dataset);
}

TEST(generated_pictures_need_no_files)
{
    cod_data_options options = options_of("");
    set_option(&options, "kind", "synthetic");
    set_option(&options, "synthetic_count", "6");
    cod_dataset *first = open_ok(&options, &lone_group), *second = NULL;
    set_option(&options, "synthetic_count", "8");
    cod_dataset_close(open_ok(&options, &lone_group)); /* beside the first ones in shared memory */
    set_option(&options, "synthetic_count", "6");
    set_option(&options, "cache_mb", "0");
    second = open_ok(&options, &(cod_dataset_place){.scale = 4, .seed = 9, .groups = 1});
    assert_true(cod_dataset_size(first, COD_SPLIT_TRAIN) == 5 && cod_dataset_size(first, COD_SPLIT_VAL) == 1);
    uint64_t before = 0;
    for (size_t i = 0; i < 5; i++) {
        cod_pair a, b;
        assert_ok(cod_dataset_read(first, COD_SPLIT_TRAIN, i, &a));
        assert_ok(cod_dataset_read(second, COD_SPLIT_TRAIN, i, &b));
        const size_t bytes = (size_t)(a.low_width * a.low_height * 3 * 16);
        assert_memory_equal(a.high, b.high, bytes);
        assert_true(a.low_width >= 24 && cod_hash(a.high, bytes, 0) != before);
        before = cod_hash(a.high, bytes, 0);
        cod_pair_clear(&a);
        cod_pair_clear(&b);
    }
    cod_dataset_close(first);
    cod_dataset_close(second);
}

TEST(part_of_the_pictures_may_be_cached)
{
    for (int i = 0; i < 5; i++) /* 612 kB each with its low picture */
        write_picture(below("part/%d.png", i), 480, 400, 2, i);
    cod_data_options options = options_of(below("part"));
    set_option(&options, "cache_mb", "2");
    cod_dataset *dataset = open_ok(&options, &lone_group);
    assert_int_equal(cod_dataset_count(dataset).uncached, 2);
    assert_true(cod_dataset_count(dataset).cached_bytes <= 2 << 20);
    int counts[256] = {0};
    count_blues(dataset, COD_SPLIT_TRAIN, counts);
    count_blues(dataset, COD_SPLIT_VAL, counts);
    for (int i = 0; i < 5; i++)
        assert_int_equal(counts[i], 1);
    cod_dataset_close(dataset);
}

TEST(a_full_shared_memory_means_a_private_copy)
{
    const cod_data_options options = options_of(make_pictures("full", 4, 0));
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    cod_dataset *dataset;
    signal(SIGXFSZ, SIG_IGN);
    capture_log();
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &small);
    const cod_status status = cod_dataset_open(&options, &lone_group, &dataset);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_ok(status);
    assert_int_equal(logged("keeps its own copy"), 1);
    int counts[256] = {0};
    count_blues(dataset, COD_SPLIT_TRAIN, counts);
    count_blues(dataset, COD_SPLIT_VAL, counts);
    for (int i = 0; i < 4; i++)
        assert_int_equal(counts[i], 1);
    cod_dataset_close(dataset);
}

/** Hash of all pixels, as another process sees them. */
static uint64_t hash_pixels(const cod_data_options *options)
{
    cod_dataset *dataset;
    uint64_t hash = 0;
    if (cod_dataset_open(options, &lone_group, &dataset) != COD_OK)
        return 0;
    for (size_t i = 0; i < cod_dataset_size(dataset, COD_SPLIT_TRAIN); i++) {
        cod_pair pair;
        if (cod_dataset_read(dataset, COD_SPLIT_TRAIN, i, &pair) != COD_OK || pair.owned != NULL)
            return 0;
        hash = cod_hash(pair.high, (size_t)(pair.low_width * pair.low_height * 48), hash);
        cod_pair_clear(&pair);
    }
    cod_dataset_close(dataset);
    return hash;
}

TEST(processes_share_one_store)
{
    enum { PROCESSES = 6, ROUNDS = 10 };
    const cod_data_options options = options_of(make_pictures("shared", 8, 0));
    const uint64_t expected = hash_pixels(&options);
    assert_true(expected != 0);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t children[PROCESSES];
        for (int i = 0; i < PROCESSES; i++)
            if ((children[i] = fork()) == 0)
                _exit(hash_pixels(&options) == expected ? 0 : 1);
        for (int i = 0; i < PROCESSES; i++) {
            int result;
            assert_int_equal(waitpid(children[i], &result, 0), children[i]);
            assert_int_equal(result, 0);
        }
    }
}

TEST(the_last_user_removes_the_file)
{
    const uint64_t key = cod_hash(&(pid_t){getpid()}, sizeof(pid_t), 1);
    cod_shared_file first, second;
    assert_ok(cod_shared_file_open(&first, key));
    assert_true(first.file >= 0 && first.base == NULL);
    assert_ok(cod_shared_file_reserve(&first, 1000));
    memset(first.base, 7, 1000);
    assert_ok(cod_shared_file_complete(&first));
    assert_ok(cod_shared_file_open(&second, key));
    assert_non_null(second.base);
    assert_true(second.bytes == 1000 && second.base[999] == 7);
    cod_shared_file_close(&first);
    assert_int_equal(access(second.path, F_OK), 0);
    char path[COD_SHARED_PATH_BYTES];
    strcpy(path, second.path);
    cod_shared_file_close(&second);
    assert_int_not_equal(access(path, F_OK), 0);
}

TEST(what_a_killed_process_left_is_filled_again_or_swept)
{
    const uint64_t key = cod_hash(&(pid_t){getpid()}, sizeof(pid_t), 2);
    for (int complete = 0; complete < 2; complete++) {
        const pid_t child = fork();
        if (child == 0) {
            cod_shared_file file;
            if (cod_shared_file_open(&file, key) == COD_OK && cod_shared_file_reserve(&file, 100) == COD_OK &&
                (!complete || cod_shared_file_complete(&file) == COD_OK))
                raise(SIGKILL);
            _exit(1);
        }
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFSIGNALED(result));
        cod_shared_file file, other;
        if (!complete) {
            assert_ok(cod_shared_file_open(&file, key));
            assert_null(file.base); /* ours to fill */
            cod_shared_file_close(&file);
        } else {
            assert_ok(cod_shared_file_open(&other, key + 1));
            snprintf(file.path, sizeof file.path, "%.*s%016llx", (int)(strlen(other.path) - 16), other.path,
                     (unsigned long long)key);
            assert_int_not_equal(access(file.path, F_OK), 0);
            cod_shared_file_close(&other);
        }
    }
}

TEST_GROUP(cod_test_folder_make, remove_folder)

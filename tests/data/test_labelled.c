#include "pictures.h"

#include "data/examples_internal.h"
#include "data/labelled.h"
#include "data/loader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { SIDE = 5, TRAIN = 60, TEST = 20, CLASSES = 4 };

static const cod_dataset_place alone = {.groups = 1, .seed = 7};

/** An IDX file of bytes i * factor; pixel values tell the example and the place. */
typedef struct idx {
    size_t bytes;
    uint8_t data[4 + 12 + TRAIN * SIDE * SIDE];
} idx;

static void put(idx *file, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        file->data[file->bytes++] = (uint8_t)(value >> shift);
}

static idx make_images(int count)
{
    idx file = {0};
    put(&file, 0x00000803);
    put(&file, (uint32_t)count);
    put(&file, SIDE);
    put(&file, SIDE);
    for (int i = 0; i < count; i++)
        for (int p = 0; p < SIDE * SIDE; p++)
            file.data[file.bytes++] = (uint8_t)(i * 3 + p);
    return file;
}

static idx make_labels(int count)
{
    idx file = {0};
    put(&file, 0x00000801);
    put(&file, (uint32_t)count);
    for (int i = 0; i < count; i++)
        file.data[file.bytes++] = (uint8_t)(i % CLASSES);
    return file;
}

static void write_gzip(const char *path, const idx *file)
{
    gzFile out = gzopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(gzwrite(out, file->data, (unsigned)file->bytes), (int)file->bytes);
    assert_int_equal(gzclose(out), Z_OK);
}

/** The four files, the training ones compressed. */
static cod_data_options make_mnist(const char *name)
{
    const idx images = make_images(TRAIN), labels = make_labels(TRAIN);
    const idx test_images = make_images(TEST), test_labels = make_labels(TEST);
    write_gzip(below("%s/train-images-idx3-ubyte.gz", name), &images);
    write_gzip(below("%s/train-labels-idx1-ubyte.gz", name), &labels);
    write_bytes(below("%s/t10k-images.idx3-ubyte", name), test_images.data, test_images.bytes);
    write_bytes(below("%s/t10k-labels-idx1-ubyte", name), test_labels.data, test_labels.bytes);
    cod_data_options options = options_of(below("%s", name));
    set_option(&options, "kind", "mnist");
    return options;
}

static cod_labelled *open_data(const cod_data_options *options, const cod_dataset_place *place)
{
    cod_labelled *labelled;
    assert_ok(cod_labelled_open(options, place, &labelled));
    return labelled;
}

static void refuse(const cod_data_options *options, cod_status code, const char *part)
{
    cod_labelled *labelled;
    assert_fails(code, part, cod_labelled_open(options, &alone, &labelled));
    assert_null(labelled);
}

TEST(idx_files_are_read_plain_and_compressed)
{
    const cod_data_options options = make_mnist("idx");
    cod_labelled *data = open_data(&options, &alone);
    assert_int_equal(cod_labelled_size(data, COD_SPLIT_TRAIN), 54);
    assert_int_equal(cod_labelled_size(data, COD_SPLIT_VAL), 6);
    assert_int_equal(cod_labelled_size(data, COD_SPLIT_TEST), TEST);
    assert_int_equal(cod_labelled_classes(data), CLASSES);
    assert_string_equal(cod_labelled_class_name(data, 3), "3");
    assert_true(cod_shape_equal(cod_labelled_shape(data), (cod_shape){1, SIDE, SIDE, 1}));
    const cod_normalisation by = cod_labelled_normalisation(data);
    for (size_t i = 0; i < TEST; i++) {
        float values[SIDE * SIDE];
        assert_ok(cod_labelled_read(data, COD_SPLIT_TEST, i, values));
        assert_int_equal(cod_labelled_class(data, COD_SPLIT_TEST, i), i % CLASSES);
        assert_int_equal(cod_labelled_number(data, COD_SPLIT_TEST, i), TRAIN + i);
        for (size_t p = 0; p < SIDE * SIDE; p++)
            assert_int_equal(lrintf((values[p] * by.deviation[0] + by.mean[0]) * 255), i * 3 + p);
    }
    cod_labelled_close(data);
}

TEST(real_mnist_is_read)
{
    if (cod_test_data("mnist") == NULL)
        skip();
    cod_data_options options = options_of(cod_test_data("mnist"));
    set_option(&options, "kind", "mnist");
    set_option(&options, "val_count", "5000");
    cod_labelled *data = open_data(&options, &alone);
    assert_int_equal(cod_labelled_size(data, COD_SPLIT_TRAIN), 55000);
    assert_int_equal(cod_labelled_size(data, COD_SPLIT_TEST), 10000);
    /* The well-known figures of all 60,000 are 0.1307 and 0.3081. */
    assert_float_equal(cod_labelled_normalisation(data).mean[0], 0.1307, 5e-4);
    assert_float_equal(cod_labelled_normalisation(data).deviation[0], 0.3081, 5e-4);
    static const uint32_t first[10] = {7, 2, 1, 0, 4, 1, 4, 9, 5, 9};
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(cod_labelled_class(data, COD_SPLIT_TEST, i), first[i]);
    cod_labelled_close(data);
}

TEST(damaged_idx_files_are_refused)
{
    const cod_data_options options = make_mnist("damage");
    const char *images = below("damage/train-images-idx3-ubyte.gz"), *plain = below("damage/t10k-images.idx3-ubyte");
    const char *labels = below("damage/t10k-labels-idx1-ubyte");
    size_t bytes;
    uint8_t *packed = read_bytes(images, &bytes);
    write_bytes(images, packed, bytes / 2);
    refuse(&options, COD_ERR_FORMAT, "train-images-idx3-ubyte.gz: ends early: ");
    packed[bytes / 2] ^= 0x55;
    write_bytes(images, packed, bytes);
    refuse(&options, COD_ERR_FORMAT, "train-images-idx3-ubyte.gz: damaged gzip data near byte ");
    packed[bytes / 2] ^= 0x55;
    packed[bytes - 6] ^= 1; /* the checksum */
    write_bytes(images, packed, bytes);
    refuse(&options, COD_ERR_FORMAT, "damaged gzip data");
    packed[bytes - 6] ^= 1;
    write_bytes(images, packed, bytes);
    free(packed);

    idx file = make_images(TEST);
    write_bytes(plain, file.data, file.bytes - 7);
    refuse(&options, COD_ERR_FORMAT, "t10k-images.idx3-ubyte: ends early: 509 bytes, where its header promises 516");
    write_bytes(plain, file.data, file.bytes + 1);
    refuse(&options, COD_ERR_FORMAT, "goes on after byte 516");
    write_bytes(plain, file.data, 9);
    refuse(&options, COD_ERR_FORMAT, "ends early: 9 bytes, where its header promises 16");
    file.data[11] = SIDE + 1;
    write_bytes(plain, file.data, file.bytes);
    refuse(&options, COD_ERR_FORMAT, "pictures of 6x5 (bytes 8 to 15)");
    file.data[8] = 0xFF;
    write_bytes(plain, file.data, file.bytes);
    refuse(&options, COD_ERR_FORMAT, "byte 8: a side of 4278190086 cannot be right");
    file.data[8] = 0;
    file.data[5] = 1; /* 65,556 pictures */
    write_bytes(plain, file.data, file.bytes);
    refuse(&options, COD_ERR_FORMAT, "values, which its 516 bytes cannot hold");
    file = make_labels(TEST);
    write_bytes(plain, file.data, file.bytes);
    refuse(&options, COD_ERR_FORMAT, "is no IDX file of 3 dimensions: it begins with bytes 00 00 08 01");
    file = make_images(TEST);
    write_bytes(plain, file.data, file.bytes);

    file = make_labels(TEST - 1);
    write_bytes(labels, file.data, file.bytes);
    refuse(&options, COD_ERR_FORMAT, "19 labels (byte 4), but '");
    file = make_labels(TEST);
    file.data[8 + 5] = CLASSES;
    write_bytes(labels, file.data, file.bytes);
    refuse(&options, COD_ERR_FORMAT, "t10k-labels-idx1-ubyte: byte 13: class 4, but '");
    file = make_labels(TEST);
    file.data[8 + TEST - 1] = CLASSES;
    write_bytes(labels, file.data, file.bytes);
    refuse(&options, COD_ERR_FORMAT, "t10k-labels-idx1-ubyte: byte 27: class 4, but '");
    remove(labels);
    refuse(&options, COD_ERR_ARGUMENT, "holds no 't10k-labels-idx1-ubyte'");
}

static const char table[] = "a,b,kind\r\n1,10,\"red\"\r\n2,10,blue\n\n3,10,red\n4,10,blue\n5,10,red\n6,10,blue";

TEST(tables_are_read)
{
    write_bytes(below("csv/good.csv"), table, sizeof table - 1);
    cod_data_options options = options_of(below("csv/good.csv"));
    set_option(&options, "kind", "iris");
    set_option(&options, "val_fraction", "0");
    cod_labelled *data = open_data(&options, &alone);
    assert_int_equal(cod_labelled_size(data, COD_SPLIT_TRAIN), 6);
    assert_int_equal(cod_labelled_size(data, COD_SPLIT_VAL) + cod_labelled_size(data, COD_SPLIT_TEST), 0);
    assert_string_equal(cod_labelled_class_name(data, 0), "blue");
    assert_string_equal(cod_labelled_class_name(data, 1), "red");
    assert_true(cod_shape_equal(cod_labelled_shape(data), (cod_shape){1, 1, 1, 2}));
    for (size_t i = 0; i < 6; i++) {
        float values[2];
        assert_ok(cod_labelled_read(data, COD_SPLIT_TRAIN, i, values));
        assert_int_equal(cod_labelled_class(data, COD_SPLIT_TRAIN, i), i % 2 == 0);
        assert_float_equal(values[0], ((float)i - 2.5f) / sqrtf(35.0f / 12), 1e-6);
        assert_float_equal(values[1], 0, 1e-6); /* a constant has no deviation to divide by */
    }
    cod_labelled_close(data);
}

TEST(damaged_tables_are_refused)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "bad.csv' is an empty file, not a table"},
        {"\n", "bad.csv: at least two columns"},
        {"a\n1\n", "bad.csv:1: at least two columns"},
        {"a,b\n", "bad.csv: no line follows the header"},
        {"a,b\n1,x\n1,2,y\n", "bad.csv:3: 3 fields, where the first line has 2"},
        {"a,b\n1,x\n1,2,y\n1\n", "bad.csv:3: 3 fields, where the first line has 2; line 4: 1 fields, where the first "
                                 "line has 2; 2 rows cannot be used"},
        {"a,b\n1,x\n?,y\n?,y\n?,y\n?,y\n?,y\n?,y\n?,y\n", "line 7: column 1: '?' is no number; and 2 more; 7 rows"},
        {"a,b\n1,x\nnine,y\n", "bad.csv:3: column 1: 'nine' is no number"},
        {"a,b\n1,\"x\n\"\nnan,y\n", "bad.csv:4: column 1: 'nan' is no number"},
        {"1,2,x\n1,2,y\n1,3,y\n", "bad.csv:1: is this line a header or a row?"},
        {"1,b,x\n1,2,x\n1,3,y\n", "bad.csv:1: is this line a header or a row?"},
        {"a,b\n1,\"x\n", "bad.csv:2:3: a quote that is not closed"},
        {"a,b\n1,\"x\"y\n", "bad.csv:2: after a closing quote a comma is wanted, not 'y"},
        {"a,b\n1,x\n ,y\n", "bad.csv:3: column 1: ' ' is empty"},
        {"a,b\n1,x\n1e39,y\n", "bad.csv:3: column 1: '1e39' is beyond the largest number of 32 bits"},
        {"a,b\n1,x\n2,\n3,y\n", "bad.csv:3: column 2, which names the class, is empty"},
        {"a,b\n1,x\n2,\n3,\n", "bad.csv:3: column 2, which names the class, is empty; line 4: column 2"},
        {"a,b\n1,x \n2,y\n3, x\n", "bad.csv: only spaces tell the classes '"},
        {"a;b\n1;x\n", "bad.csv:1: its columns are separated by semicolons; commas are wanted"},
        {"\xff\xfe!", "bad.csv: is text in UTF-16: save it as UTF-8"},
        {"a,b\n1,x\n2,x\n", "bad.csv: the last column: 1 classes cannot be learned"},
    };
    cod_data_options options = options_of(below("csv/bad.csv"));
    set_option(&options, "kind", "iris");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_bytes(below("csv/bad.csv"), cases[i].text, strlen(cases[i].text));
        const cod_status code =
            strstr(cases[i].message, "cannot be learned") != NULL ? COD_ERR_ARGUMENT : COD_ERR_FORMAT;
        refuse(&options, code, cases[i].message);
    }
    write_bytes(below("csv/bad.csv"), "a,b\n1\0x\n", 8);
    refuse(&options, COD_ERR_FORMAT, "is no text: byte 5 is zero");
    remove(below("csv/bad.csv"));
    refuse(&options, COD_ERR_IO, "bad.csv': No such file");
}

/** With and without a header, quoted commas, quotes and line breaks, and what some editors put first. */
TEST(tables_are_read_as_other_programs_read_them)
{
    static const char *const tables[] = {
        "a,b,class\n1,2,\"x, y\"\n3,4,z\n5,6,\"x, y\"\n",
        "1,2,\"x, y\"\n3,4,z\n5,6,\"x, y\"\n",
        "\xEF\xBB\xBF\"1\",2,\"x, y\"\r\n3,4,z\r\n\r\n5,6,\"x, y\"",
    };
    static const float truth[] = {1, 2, 3, 4, 5, 6};
    cod_data_options options = options_of(below("table.csv"));
    set_option(&options, "kind", "iris");
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        write_bytes(below("table.csv"), tables[i], strlen(tables[i]));
        cod_examples examples = {0};
        assert_ok(cod_iris_read(&options, false, &examples));
        assert_int_equal(examples.count, 3);
        assert_memory_equal(examples.floats, truth, sizeof truth);
        assert_string_equal(examples.class_names[0], "x, y");
        assert_true(examples.labels[0] == 0 && examples.labels[1] == 1 && examples.labels[2] == 0);
        cod_examples_clear(&examples);
    }
    static const char quotes[] = "a,c\n1,\"\"\"x\"\"\ny\"\n2,z\n";
    write_bytes(below("table.csv"), quotes, sizeof quotes - 1);
    cod_examples examples = {0};
    assert_ok(cod_iris_read(&options, false, &examples));
    assert_string_equal(examples.class_names[0], "\"x\"\ny");
    cod_examples_clear(&examples);
}

/** Photographs of two classes, `count` each; red tells x and green y, blue the class and number. */
static void make_photographs(const char *root, int count)
{
    for (int i = 0; i < count; i++) {
        write_picture(below("%s/ant/%d.png", root, i), 24, 18, 1, i);
        write_picture(below("%s/bee/%d.png", root, i), 18, 20, 1, 100 + i);
    }
}

static cod_data_options photographs(const char *root, const char *val)
{
    cod_data_options options = options_of(below("%s", root));
    set_option(&options, "kind", "folder");
    set_option(&options, "size", "16"); /* brought to 18 */
    if (val != NULL)
        set_option(&options, "val_path", below("%s", val));
    return options;
}

static int pixel(const cod_labelled *data, const float *values, int x, int y, int channel)
{
    const cod_normalisation by = cod_labelled_normalisation(data);
    return (int)lrintf((values[(y * 16 + x) * 3 + channel] * by.deviation[channel] + by.mean[channel]) * 255);
}

TEST(photographs_are_cut_and_turned)
{
    make_photographs("folders/train", 5);
    make_photographs("folders/val", 2);
    size_t bytes;
    uint8_t *whole = read_bytes(below("folders/train/bee/0.png"), &bytes);
    write_bytes(below("folders/train/bee/broken.png"), whole, bytes - 20);
    free(whole);
    cod_data_options options = photographs("folders/train", "folders/val");
    capture_log();
    for (int cached = 1; cached >= 0; cached--) {
        options.cache_mb = cached;
        cod_labelled *data = open_data(&options, &(cod_dataset_place){.groups = 1, .seed = 7, .report = cached == 1});
        assert_int_equal(cod_labelled_count(data).broken, cached); /* its header is sound */
        assert_int_equal(cod_labelled_size(data, COD_SPLIT_TRAIN), 11 - cached);
        assert_int_equal(cod_labelled_size(data, COD_SPLIT_VAL), 4);
        assert_string_equal(cod_labelled_class_name(data, 0), "ant");
        float values[16 * 16 * 3], target[2];
        /* 24x18 stays so; its middle 18 and of these the middle 16 begin at 3 + 1 and 0 + 1. */
        assert_ok(cod_labelled_read(data, COD_SPLIT_VAL, 1, values));
        assert_true(pixel(data, values, 0, 0, 0) == 4 && pixel(data, values, 0, 0, 1) == 1);
        assert_true(pixel(data, values, 15, 15, 0) == 19 && pixel(data, values, 0, 0, 2) == 1);
        const cod_samples samples = cod_labelled_samples(data);
        int lefts = 0, mirrored = 0;
        for (uint64_t position = 0; position < 200; position++) {
            assert_ok(
                samples.draw(samples.context, 2, &(cod_sample_place){.seed = 1, .position = position}, values, target));
            assert_true(target[0] == 1 && target[1] == 0);
            const int first = pixel(data, values, 0, 0, 0), last = pixel(data, values, 15, 0, 0);
            assert_int_equal(abs(first - last), 15);
            mirrored += first > last;
            lefts |= 1 << (first < last ? first : last);
        }
        assert_int_equal(lefts, 1 << 3 | 1 << 4 | 1 << 5);
        assert_in_range(mirrored, 60, 140);
        cod_labelled_close(data);
    }
    assert_int_equal(logged("left out: "), 1);
    assert_int_equal(logged("broken.png"), 1);
}

TEST(many_broken_photographs_are_one_message)
{
    make_photographs("many/train", 5);
    make_photographs("many/val", 2);
    for (int i = 0; i < 12; i++)
        write_bytes(below("many/%s/bee/broken%02d.png", i < 8 ? "train" : "val", i), "PNG", 3);
    cod_data_options options = photographs("many/train", "many/val");
    cod_labelled *data = NULL;
    capture_log();
    assert_ok(cod_labelled_open(&options, &(cod_dataset_place){.groups = 1, .report = true}, &data));
    assert_int_equal(cod_labelled_count(data).broken, 12);
    assert_int_equal(logged("left out"), 1);
    assert_true(logged("left out: 12 of 26 photographs: ") && logged("broken04.png") && logged("; and 7 more"));
    assert_int_equal(logged("broken05.png"), 0);
    cod_labelled_close(data);
}

TEST(missing_class_folders_are_refused)
{
    make_photographs("missing/train", 2);
    write_picture(below("missing/val/bee/0.png"), 20, 20, 1, 1);
    cod_data_options options = photographs("missing/train", "missing/val");
    refuse(&options, COD_ERR_ARGUMENT, "lacks the class folder 'ant' of '");
    make_photographs("missing/val", 1);
    write_picture(below("missing/val/wasp/0.png"), 20, 20, 1, 1);
    refuse(&options, COD_ERR_ARGUMENT, "val/wasp' is a class that '");
    write_bytes(below("missing/train/wasp/readme.txt"), "none", 4);
    refuse(&options, COD_ERR_ARGUMENT, "train/wasp' holds no photographs");
    write_bytes(below("missing/train/yak/readme.txt"), "none", 4);
    refuse(&options, COD_ERR_ARGUMENT, "train/wasp' holds no photographs (PNG, JPEG, WebP, TIFF or BMP); the class");
    write_picture(below("missing/none/zebu/0.png"), 20, 20, 1, 1);
    write_picture(below("missing/train/wasp/0.png"), 20, 20, 1, 1);
    write_picture(below("missing/train/yak/0.png"), 20, 20, 1, 1);
    options = photographs("missing/train", "missing/none");
    refuse(&options, COD_ERR_ARGUMENT, "none' lacks the class folder 'yak' of '");
    refuse(&options, COD_ERR_ARGUMENT, "none/zebu' is a class that '");
    options = photographs("missing/val/ant", NULL);
    refuse(&options, COD_ERR_ARGUMENT, "has 0 subfolders; one a class is wanted");
}

TEST(shifted_digits_keep_their_pixels)
{
    cod_data_options options = make_mnist("shift");
    set_option(&options, "shift", "1");
    cod_labelled *data = open_data(&options, &alone);
    const cod_samples samples = cod_labelled_samples(data);
    const cod_normalisation by = cod_labelled_normalisation(data);
    float still[SIDE * SIDE], values[SIDE * SIDE], target[CLASSES];
    int seen = 0;
    assert_ok(cod_labelled_read(data, COD_SPLIT_TRAIN, 9, still));
    for (uint64_t position = 0; position < 100; position++) {
        assert_ok(samples.draw(samples.context, 9, &(cod_sample_place){.position = position}, values, target));
        bool found = false;
        for (int move = 0; move < 9 && !found; move++) {
            found = true;
            for (int y = 0; y < SIDE; y++)
                for (int x = 0; x < SIDE; x++) {
                    const int from_x = x + move % 3 - 1, from_y = y + move / 3 - 1;
                    const bool inside = from_x >= 0 && from_x < SIDE && from_y >= 0 && from_y < SIDE;
                    const float wanted = inside ? still[from_y * SIDE + from_x] : -by.mean[0] / by.deviation[0];
                    found = found && fabsf(values[y * SIDE + x] - wanted) < 1e-6f;
                }
            seen |= found << move;
        }
        assert_true(found);
    }
    assert_int_equal(seen, 0x1FF);
    cod_labelled_close(data);
}

/** Digits that are moved over the border, photographs that are cut and mirrored, and what is not of bytes. */
TEST(bytes_give_the_same_examples)
{
    make_photographs("bytes/train", 5);
    make_photographs("bytes/val", 2);
    cod_data_options digits = make_mnist("bytes/digits"), photos = photographs("bytes/train", "bytes/val");
    set_option(&digits, "shift", "6"); /* farther than a digit is wide */
    const cod_data_options *const options[] = {&digits, &photos};
    for (int i = 0; i < 2; i++) {
        cod_labelled *data = open_data(options[i], &alone);
        const cod_samples samples = cod_labelled_samples(data);
        assert_int_equal(check_bytes(&samples, 8, 15), i == 0 ? 1 : 3);
        cod_labelled_close(data);
    }
    write_bytes(below("bytes/points.csv"), table, sizeof table - 1);
    cod_data_options points = options_of(below("bytes/points.csv"));
    set_option(&points, "kind", "iris");
    cod_labelled *data = open_data(&points, &alone);
    const cod_samples samples = cod_labelled_samples(data);
    cod_loader *loader;
    const cod_loader_options bytes = {.batch = 1, .ranks = 1, .prefetch = 1, .bytes = true};
    assert_null(samples.input_table);
    assert_fails(COD_ERR_ARGUMENT, "not made of 8-bit pixels", cod_loader_create(&samples, &bytes, 0, &loader));
    cod_labelled_close(data);
    set_option(&points, "transfer", "uint8");
    refuse(&points, COD_ERR_ARGUMENT, "transfer: uint8 is for data of 8-bit pixels, and iris are measurements");
}

static cod_data_options synthetic(const char *count)
{
    cod_data_options options = options_of("");
    set_option(&options, "kind", "synthetic");
    set_option(&options, "synthetic_shape", "3,2,5");
    set_option(&options, "synthetic_count", count);
    return options;
}

TEST(folds_are_alike_and_cover_all)
{
    cod_data_options options = synthetic("1000");
    set_option(&options, "folds", "5");
    uint8_t held[1000] = {0};
    for (int fold = 0; fold < 5; fold++) {
        options.fold = fold;
        cod_labelled *data = open_data(&options, &alone);
        assert_int_equal(cod_labelled_size(data, COD_SPLIT_TRAIN), 800);
        size_t of[10] = {0};
        for (size_t i = 0; i < cod_labelled_size(data, COD_SPLIT_VAL); i++) {
            held[cod_labelled_number(data, COD_SPLIT_VAL, i)]++;
            of[cod_labelled_class(data, COD_SPLIT_VAL, i)]++;
        }
        for (int k = 0; k < 10; k++)
            assert_int_equal(of[k], 20);
        cod_labelled_close(data);
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(held[i], 1);
    options.fold = 5;
    refuse(&options, COD_ERR_ARGUMENT, "fold: 5 is not one of 5 folds, 0 to 4");
    set_option(&options, "folds", "1");
    refuse(&options, COD_ERR_ARGUMENT, "1 part leaves nothing");
    set_option(&options, "synthetic_count", "20");
    set_option(&options, "folds", "21");
    refuse(&options, COD_ERR_ARGUMENT, "data.folds: 21 are more than the 20 examples");
}

TEST(training_examples_are_normalised)
{
    cod_data_options options = synthetic("500");
    cod_labelled *data = open_data(&options, &alone);
    double sums[5] = {0}, squares[5] = {0};
    const size_t count = cod_labelled_size(data, COD_SPLIT_TRAIN);
    for (size_t i = 0; i < count; i++) {
        float values[30];
        assert_ok(cod_labelled_read(data, COD_SPLIT_TRAIN, i, values));
        for (int v = 0; v < 30; v++) {
            sums[v % 5] += values[v];
            squares[v % 5] += values[v] * values[v];
        }
    }
    for (int c = 0; c < 5; c++) {
        assert_true(fabs(sums[c] / (6 * (double)count)) < 1e-5);
        assert_true(fabs(squares[c] / (6 * (double)count) - 1) < 1e-5);
    }
    const float mean[5] = {0}, deviation[5] = {1, 1, 1, 1, 0};
    assert_fails(COD_ERR_ARGUMENT, "3 channels does not fit",
                 cod_labelled_normalise(data, &(cod_normalisation){3, mean, deviation}));
    assert_fails(COD_ERR_ARGUMENT, "channel 4 cannot",
                 cod_labelled_normalise(data, &(cod_normalisation){5, mean, deviation}));
    cod_labelled_close(data);
}

TEST(batches_repeat_from_any_step)
{
    cod_data_options options = make_mnist("batches");
    set_option(&options, "shift", "2");
    cod_labelled *data = open_data(&options, &alone);
    const cod_samples samples = cod_labelled_samples(data);
    const cod_loader_options all = {.batch = 20, .seed = 3, .ranks = 1, .threads = 2, .prefetch = 2};
    cod_loader_options half = all;
    half.batch = 10;
    half.ranks = 2;
    half.rank = 1;
    cod_loader *first, *resumed, *second_rank;
    cod_batch a, b, c;
    assert_ok(cod_loader_create(&samples, &all, 0, &first));
    assert_ok(cod_loader_create(&samples, &all, 4, &resumed)); /* within the second epoch of 54 */
    assert_ok(cod_loader_create(&samples, &half, 4, &second_rank));
    for (int step = 0; step < 12; step++) {
        assert_ok(cod_loader_next(first, &a));
        assert_true(cod_shape_equal(a.input.shape, (cod_shape){20, SIDE, SIDE, 1}));
        assert_true(cod_shape_equal(a.target.shape, (cod_shape){20, 1, 1, CLASSES}));
        if (step < 4)
            continue;
        assert_ok(cod_loader_next(resumed, &b));
        assert_ok(cod_loader_next(second_rank, &c));
        assert_int_equal(b.step, step);
        assert_memory_equal(cod_view_host(&a.input), cod_view_host(&b.input), cod_view_span_bytes(&a.input));
        assert_memory_equal(cod_view_host(&a.target), cod_view_host(&b.target), cod_view_span_bytes(&a.target));
        assert_memory_equal((char *)cod_view_host(&a.input) + cod_view_span_bytes(&c.input), cod_view_host(&c.input),
                            cod_view_span_bytes(&c.input));
    }
    cod_loader_destroy(first);
    cod_loader_destroy(resumed);
    cod_loader_destroy(second_rank);
    cod_labelled_close(data);
}

TEST(options_that_do_not_fit_are_refused)
{
    static const struct {
        const char *kind, *key, *value, *message;
    } cases[] = {
        {"mnist", "weights", "2", "weights: is for kind pictures, not mnist"},
        {"mnist", "low_path", "x", "low_path: is for kind pictures, not mnist"},
        {"mnist", "permute_channels", "true", "permute_channels: is for kind pictures, not mnist"},
        {"mnist", "val_path", "x", "mnist holds out a part of its training examples"},
        {"iris", "test_path", "x", "test_path: is for kind folder, not iris"},
        {"iris", "path", "a,b", "path: iris is one file, not 2"},
        {"folder", "path", "", "name at least one folder with a subfolder for each class"},
        {"pictures", "placement", "dirichlet", "divides classes, which kind pictures has not"},
        {"pictures", "folds", "3", "folds: is for classification"},
        {"synthetic", "synthetic_shape", "3,2", "wants three numbers"},
        {"synthetic", "synthetic_count", "5", "5 examples cannot be of 10 classes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cod_data_options options = options_of("x");
        set_option(&options, "kind", cases[i].kind);
        set_option(&options, cases[i].key, cases[i].value);
        refuse(&options, COD_ERR_ARGUMENT, cases[i].message);
    }
}

TEST_GROUP(cod_test_folder_make, remove_folder)

/* LPIPS against PyTorch's values of the same formula (golden/lpips.py), and what it refuses. */
#include "support/folder.h"
#include "support/test.h"

#include "core/backend.h"
#include "infer/lpips.h"
#include "infer/models.h"
#include "io/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Number `i` of a sequence in 0 … 1; golden/lpips.py has the same. */
static double hashed(uint64_t i, uint64_t seed)
{
    uint64_t x = (i * 2654435761u + seed * 40503 + 12345) & 0xFFFFFFFF;
    x = ((x ^ (x >> 15)) * 2246822519u) & 0xFFFFFFFF;
    return (double)((x ^ (x >> 13)) >> 8) / 0x1p24;
}

static cod_image pattern(int64_t height, int64_t width, uint64_t seed, int channels)
{
    cod_image image;
    assert_ok(cod_image_init(&image, width, height, channels, 8));
    for (int64_t i = 0; i < width * height; i++)
        for (int c = 0; c < channels; c++)
            ((uint8_t *)image.pixels)[i * channels + c] =
                (uint8_t)(c < 3 ? floor(hashed((uint64_t)(3 * i + c), seed) * 256) : 7);
    return image;
}

/** A file under construction. */
typedef struct made_file {
    cod_st_tensor tensors[60];
    char names[60][48];
    size_t count;
} made_file;

static void add(made_file *file, const char *name, int rank, const int64_t *shape, uint64_t seed, double centre,
                double scale)
{
    cod_st_tensor *tensor = &file->tensors[file->count];
    snprintf(file->names[file->count], sizeof file->names[0], "%s", name);
    *tensor = (cod_st_tensor){.name = file->names[file->count++], .dtype = COD_ST_F32, .rank = rank};
    memcpy(tensor->shape, shape, (size_t)rank * sizeof *shape);
    const size_t count = cod_st_count(tensor);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((hashed(i, seed) - centre) * scale);
    tensor->data = values;
}

static void write_and_clear(made_file *file, const char *path)
{
    assert_ok(cod_st_write(path, file->tensors, file->count, NULL, 0));
    for (size_t i = 0; i < file->count; i++)
        free((void *)(uintptr_t)file->tensors[i].data);
    *file = (made_file){.count = 0};
}

static void add_layer(made_file *file, const char *layer, int64_t outputs, int64_t inputs, int64_t kernel)
{
    char name[48];
    const int64_t shape[4] = {outputs, inputs, kernel, kernel};
    const uint64_t seed = file->count;
    snprintf(name, sizeof name, "%s.weight", layer);
    add(file, name, 4, shape, seed, 0.5, 2 * sqrt(6.0 / (double)(inputs * kernel * kernel)));
    snprintf(name, sizeof name, "%s.bias", layer);
    add(file, name, 1, shape, seed + 1, 0.5, 0.1);
}

/** SqueezeNet 1.1 by torchvision's names, with the weights of golden/lpips.py. */
static void write_network(const char *path)
{
    static const int64_t fires[8][3] = {{3, 16, 64},  {4, 16, 64},   {6, 32, 128},  {7, 32, 128},
                                        {9, 48, 192}, {10, 48, 192}, {11, 64, 256}, {12, 64, 256}};
    made_file file = {.count = 0};
    int64_t before = 64;
    add_layer(&file, "features.0", 64, 3, 3);
    for (size_t i = 0; i < 8; i++) {
        char name[48];
        snprintf(name, sizeof name, "features.%d.squeeze", (int)fires[i][0]);
        add_layer(&file, name, fires[i][1], before, 1);
        snprintf(name, sizeof name, "features.%d.expand1x1", (int)fires[i][0]);
        add_layer(&file, name, fires[i][2], fires[i][1], 1);
        snprintf(name, sizeof name, "features.%d.expand3x3", (int)fires[i][0]);
        add_layer(&file, name, fires[i][2], fires[i][1], 3);
        before = 2 * fires[i][2];
    }
    write_and_clear(&file, path);
}

/** @param stages  how many of the seven; @param centre  0, or more for negative ones */
static void write_linear(const char *path, int stages, int64_t added_channels, double centre)
{
    made_file file = {.count = 0};
    for (int stage = 0; stage < stages; stage++) {
        char name[48];
        const int64_t channels = cod_squeezenet_channels(cod_squeezenet_stages[stage]);
        const int64_t shape[4] = {1, channels + added_channels, 1, 1};
        snprintf(name, sizeof name, "lin%d.model.1.weight", stage);
        add(&file, name, 4, shape, 100 + (uint64_t)stage, centre, 1);
    }
    write_and_clear(&file, path);
}

typedef struct networks {
    cod_device *device;
    cod_lpips *made[2], *shared; /**< unweighted and weighted; of the shared data, NULL where they are absent */
} networks;

static networks open_networks(const char *backend)
{
    networks n = {.device = test_device_open(backend)};
    const char *shared = cod_test_data("weights/squeezenet_v1.1_features.safetensors");
    write_network(cod_test_at("network.safetensors"));
    write_linear(cod_test_at("linear.safetensors"), 7, 0, 0);
    const cod_backend *b = cod_backend_find(backend);
    assert_ok(cod_lpips_create(cod_test_at("network.safetensors"), NULL, b, n.device, &n.made[0]));
    assert_ok(cod_lpips_create(cod_test_at("network.safetensors"), cod_test_at("linear.safetensors"), b, n.device,
                               &n.made[1]));
    assert_true(!cod_lpips_is_weighted(n.made[0]) && cod_lpips_is_weighted(n.made[1]));
    if (shared != NULL)
        assert_ok(cod_lpips_create(shared, "", b, n.device, &n.shared));
    return n;
}

static void close_networks(networks *n, const char *backend)
{
    cod_lpips_destroy(n->made[0]);
    cod_lpips_destroy(n->made[1]);
    cod_lpips_destroy(n->shared);
    test_device_close(backend, n->device);
}

/** A picture of Set5, cut to a multiple of 4, and its small one with each pixel four times as large. */
static void set5(int number, cod_image *truth, cod_image *near)
{
    char name[64];
    cod_image whole, low;
    snprintf(name, sizeof name, "set5/img_%03d_SRF_4_HR.png", number);
    assert_ok(cod_image_read(cod_test_data(name), &whole));
    assert_ok(cod_image_to_rgb8(&whole));
    snprintf(name, sizeof name, "set5/img_%03d_SRF_4_LR.png", number);
    assert_ok(cod_image_read(cod_test_data(name), &low));
    assert_ok(cod_image_to_rgb8(&low));
    assert_ok(cod_image_init(truth, low.width * 4, low.height * 4, 3, 8));
    assert_ok(cod_image_init(near, low.width * 4, low.height * 4, 3, 8));
    for (int64_t y = 0; y < truth->height; y++)
        for (int64_t x = 0; x < truth->width; x++) {
            const int64_t at = 3 * (y * truth->width + x);
            memcpy((char *)truth->pixels + at, (char *)whole.pixels + 3 * (y * whole.width + x), 3);
            memcpy((char *)near->pixels + at, (char *)low.pixels + 3 * (y / 4 * low.width + x / 4), 3);
        }
    cod_image_clear(&whole);
    cod_image_clear(&low);
}

/** f32 features and sums against PyTorch's in f64. */
static void values_are_those_of_pytorch_on(const char *backend, int64_t largest)
{
    char kind[16], weights[16];
    int first, second, cases = 0;
    double expected, distance;
    networks n = open_networks(backend);
    FILE *golden = fopen(COD_TEST_DIR "/golden/lpips.txt", "r");
    assert_non_null(golden);
    while (fscanf(golden, "%15s %d %d %15s %lf", kind, &first, &second, weights, &expected) == 5) {
        const bool made = strcmp(kind, "made") == 0;
        cod_image a, b;
        if (made ? first > largest : n.shared == NULL || largest < 100)
            continue;
        if (made) {
            a = pattern(first, second, 1000, 3);
            b = pattern(first, second, 1001, 3);
        } else
            set5(first, &b, &a);
        cod_lpips *lpips = made ? n.made[strcmp(weights, "weighted") == 0] : n.shared;
        assert_ok(cod_lpips_compare(lpips, &a, &b, 0, &distance));
        if (!(fabs(distance - expected) < 2e-5 * expected))
            fail_msg("%s: %s %d %d %s: %.9g, not %.9g", backend, kind, first, second, weights, distance, expected);
        cases++;
        cod_image_clear(&a);
        cod_image_clear(&b);
    }
    fclose(golden);
    assert_int_equal(cases, largest < 100 ? 4 : n.shared != NULL ? 8 : 6);
    close_networks(&n, backend);
}

TEST(values_are_those_of_pytorch)
{
    values_are_those_of_pytorch_on("cpu", 1000);
    values_are_those_of_pytorch_on("ref", 46);
}

/** Equal pictures have 0, order does not matter, and neither the border nor alpha counts. */
TEST(only_what_is_compared_counts)
{
    double distance, other;
    networks n = open_networks("cpu");
    cod_image a = pattern(40, 33, 1, 3), b = pattern(40, 33, 2, 3), framed, alpha = pattern(40, 33, 1, 4);
    assert_ok(cod_lpips_compare(n.made[1], &a, &a, 0, &distance));
    assert_true(distance == 0);
    assert_ok(cod_lpips_compare(n.made[1], &alpha, &a, 0, &distance));
    assert_true(distance == 0);
    assert_ok(cod_lpips_compare(n.made[1], &a, &b, 0, &distance));
    assert_ok(cod_lpips_compare(n.made[1], &b, &a, 0, &other));
    assert_true(fabs(distance - other) < 1e-6 && distance > 0.1);
    assert_ok(cod_image_init(&framed, 33 + 6, 40 + 6, 3, 8));
    memset(framed.pixels, 99, cod_image_bytes(&framed));
    for (int64_t y = 0; y < 40; y++)
        memcpy((char *)framed.pixels + 3 * ((y + 3) * 39 + 3), (char *)a.pixels + 3 * y * 33, 3 * 33);
    assert_ok(cod_lpips_compare(n.made[1], &framed, &framed, 3, &other));
    assert_true(other == 0);
    cod_image second = pattern(46, 39, 3, 3);
    for (int64_t y = 0; y < 40; y++)
        memcpy((char *)second.pixels + 3 * ((y + 3) * 39 + 3), (char *)b.pixels + 3 * y * 33, 3 * 33);
    assert_ok(cod_lpips_compare(n.made[1], &framed, &second, 3, &other));
    assert_true(other == distance);
    cod_image_clear(&a);
    cod_image_clear(&b);
    cod_image_clear(&framed);
    cod_image_clear(&alpha);
    cod_image_clear(&second);
    close_networks(&n, "cpu");
}

TEST(pictures_that_do_not_fit_are_refused)
{
    double distance;
    networks n = open_networks("cpu");
    cod_image a = pattern(25, 31, 1, 3), b = pattern(25, 30, 1, 3), c = pattern(24, 31, 1, 3);
    assert_ok(cod_lpips_compare(n.made[0], &a, &a, 0, &distance));
    assert_fails(COD_ERR_ARGUMENT, "a picture of 31x25 cannot be compared with one of 30x25",
                 cod_lpips_compare(n.made[0], &a, &b, 0, &distance));
    assert_fails(COD_ERR_ARGUMENT, "31x24 pixels are too few for LPIPS: 25x25 must remain inside a border of 0",
                 cod_lpips_compare(n.made[0], &c, &c, 0, &distance));
    assert_fails(COD_ERR_ARGUMENT, "31x25 pixels are too few", cod_lpips_compare(n.made[0], &a, &a, 1, &distance));
    cod_image_clear(&a);
    cod_image_clear(&b);
    cod_image_clear(&c);
    close_networks(&n, "cpu");
}

TEST(files_that_do_not_fit_are_refused)
{
    cod_lpips *lpips = NULL;
    cod_device *device = test_device_open("cpu");
    const cod_backend *cpu = cod_backend_find("cpu");
    const char *network = cod_test_at("network.safetensors"), *path = cod_test_at("bad.safetensors");
    write_network(network);
    write_linear(path, 6, 0, 0);
    assert_fails(COD_ERR_FORMAT, "'lin6.model.1.weight' is not in it",
                 cod_lpips_create(network, path, cpu, device, &lpips));
    assert_fails(COD_ERR_FORMAT, "bad.safetensors: 'lin6.model.1.weight' is not in it",
                 cod_lpips_check_files(network, path));
    write_linear(path, 7, 1, 0);
    assert_fails(COD_ERR_FORMAT, "'lin0.model.1.weight' is not of shape [1, 64, 1, 1]",
                 cod_lpips_create(network, path, cpu, device, &lpips));
    write_linear(path, 7, 0, 0.5);
    assert_fails(COD_ERR_FORMAT, "they are not negative", cod_lpips_create(network, path, cpu, device, &lpips));
    assert_fails(COD_ERR_FORMAT, "bad.safetensors: the file holds no layer of SqueezeNet 1.1",
                 cod_lpips_create(path, NULL, cpu, device, &lpips));
    assert_fails(COD_ERR_FORMAT, "the file holds no layer of SqueezeNet 1.1", cod_lpips_check_files(path, ""));
    made_file file = {.count = 0};
    add_layer(&file, "conv1", 64, 3, 3);
    write_and_clear(&file, path);
    assert_fails(COD_ERR_FORMAT,
                 "the file holds SqueezeNet 1.1 up to layer 1, but layer 9 is compared; layer 2 lacks "
                 "'fire2/squeeze1x1.weight'",
                 cod_lpips_create(path, NULL, cpu, device, &lpips));
    assert_fails(COD_ERR_FORMAT, "bad.safetensors: the file holds SqueezeNet 1.1 up to layer 1",
                 cod_lpips_check_files(path, ""));
    assert_fails(COD_ERR_IO, "nowhere.safetensors",
                 cod_lpips_create(cod_test_at("nowhere.safetensors"), NULL, cpu, device, &lpips));
    assert_null(lpips);
    test_device_close("cpu", device);
}

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)

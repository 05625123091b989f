#include "support/test.h"

#include "core/log.h"
#include "data/resize.h"
#include "infer/evaluate.h"
#include "infer/session.h"
#include "infer/stream.h"
#include "io/file.h"
#include "io/json.h"
#include "models.h"
#include "support/folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** An upscaler of a model of the test's, on a backend. */
typedef struct fixture {
    const char *backend;
    cod_saved_model saved;
    cod_device *device;
    cod_weights weights;
    cod_upscaler *upscaler;
} fixture;

/** In place: the upscaler borrows the model and the weights. */
static void fixture_open(fixture *f, const char *backend, cod_saved_model saved, cod_upscaler_options options)
{
    *f = (fixture){.backend = backend, .saved = saved, .device = test_device_open(backend)};
    assert_ok(
        cod_weights_init(&f->weights, cod_backend_find(backend), f->device, f->saved.model.graph, COD_F32, false));
    assert_ok(cod_weights_upload(&f->weights, f->saved.values));
    assert_ok(cod_upscaler_create(&f->saved.model, &f->weights, &options, &f->upscaler));
}

static void fixture_close(fixture *f)
{
    cod_upscaler_destroy(f->upscaler);
    cod_weights_clear(&f->weights);
    cod_saved_model_clear(&f->saved);
    test_device_close(f->backend, f->device);
}

static cod_image noise_image(int64_t width, int64_t height, int channels, int bits, uint64_t seed)
{
    cod_image image;
    assert_ok(cod_image_init(&image, width, height, channels, bits));
    const size_t count = (size_t)(width * height * channels);
    float *noise = test_noise(count, seed);
    for (size_t i = 0; i < count; i++) {
        if (bits == 8)
            ((uint8_t *)image.pixels)[i] = (uint8_t)(noise[i] * 255.99f);
        else
            ((uint16_t *)image.pixels)[i] = (uint16_t)(noise[i] * 65535.99f);
    }
    free(noise);
    return image;
}

/** The halo must be enough, and one pixel less too little: an input pixel at that distance still matters. */
TEST(halo_is_the_receptive_field)
{
    cod_saved_model models[] = {
        test_srresnet(1),
        test_model("srresnet",
                   (const cod_st_text[]){{"blocks", "1"},
                                         {"channels", "4"},
                                         {"head_kernel", "3"},
                                         {"tail_kernel", "3"},
                                         {"upsampler", "once"},
                                         {"scale", "3"},
                                         {"skip", "nearest"},
                                         {NULL, NULL}},
                   2),
        test_model("msrresnet",
                   (const cod_st_text[]){{"num_feat", "4"}, {"num_block", "1"}, {"scale", "2"}, {NULL, NULL}}, 3),
    };
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        enum { SIDE = 40, MIDDLE = SIDE / 2 };
        fixture f;
        fixture_open(&f, "ref", models[m], (cod_upscaler_options){.precision = COD_PRECISION_F32});
        const int64_t halo = cod_upscaler_halo(f.upscaler), scale = cod_upscaler_scale(f.upscaler), side = SIDE * scale;
        assert_true(halo > 1 && halo < MIDDLE);
        const size_t low_count = SIDE * 3, high_count = (size_t)(scale * side) * 3;
        float *low = test_noise(low_count, 4);
        float *before = malloc(high_count * sizeof *before), *after = malloc(high_count * sizeof *after);
        assert_ok(cod_upscaler_run_f32(f.upscaler, low, SIDE, 1, before));
        for (int c = 0; c < 3; c++)
            low[MIDDLE * 3 + c] += 3;
        assert_ok(cod_upscaler_run_f32(f.upscaler, low, SIDE, 1, after));
        int64_t farthest = 0;
        for (int64_t x = 0; x < side; x++)
            for (int64_t y = 0; y < scale; y++)
                if (memcmp(before + (y * side + x) * 3, after + (y * side + x) * 3, 3 * sizeof *before) != 0 &&
                    llabs(x / scale - MIDDLE) > farthest)
                    farthest = llabs(x / scale - MIDDLE);
        assert_true(farthest <= halo);
        assert_true(farthest >= halo - 2); /* effects at the very edge may be lost in rounding */
        free(low);
        free(before);
        free(after);
        fixture_close(&f);
    }
}

static void check_parts_equal_whole(const char *backend, cod_precision precision, double tolerance)
{
    static const int64_t sizes[][2] = {{61, 47}, {8, 90}, {33, 5}, {5, 230}};
    static const int64_t tiles[] = {8, 11, 32, 0}; /* 0: the last runs in bands */
    for (size_t s = 0; s < 4; s++) {
        const int64_t width = sizes[s][0], height = sizes[s][1];
        const size_t low_count = (size_t)(width * height) * 3, high_count = low_count * 16;
        float *low = test_noise(low_count, s);
        float *whole = malloc(high_count * sizeof *whole), *tiled = malloc(high_count * sizeof *tiled);
        fixture f;
        fixture_open(&f, backend, test_srresnet(5), (cod_upscaler_options){precision, 512});
        assert_int_equal(cod_upscaler_parts(f.upscaler, width, height), 1);
        assert_ok(cod_upscaler_run_f32(f.upscaler, low, width, height, whole));
        fixture_close(&f);
        for (size_t t = 0; t < 4; t++) {
            fixture_open(&f, backend, test_srresnet(5), (cod_upscaler_options){precision, tiles[t]});
            assert_ok(cod_upscaler_run_f32(f.upscaler, low, width, height, tiled));
            const double difference = test_difference(whole, tiled, high_count);
            if (s == 3 && tiles[t] == 0)
                assert_in_range(cod_upscaler_parts(f.upscaler, width, height), 4, 8);
            if (!(difference <= tolerance))
                fail_msg("%s, %lldx%lld in tiles of %lld: differs by %g", backend, (long long)width, (long long)height,
                         (long long)tiles[t], difference);
            fixture_close(&f);
        }
        free(low);
        free(whole);
        free(tiled);
    }
}

/** A network that takes even sides gives, for odd ones, what it gives when the last row and column are repeated. */
TEST(borders_are_repeated_up_to_what_the_network_takes)
{
    static const cod_st_text settings[] = {
        {"num_feat", "4"}, {"num_block", "1"}, {"num_grow_ch", "3"}, {"scale", "2"}, {NULL, NULL}};
    static const int64_t sizes[][2] = {{41, 231}, {187, 31}, {1, 1}}, tiles[] = {512, 9, 0}; /* 0: the first in bands */
    for (size_t s = 0; s < 3; s++) {
        const int64_t width = sizes[s][0], height = sizes[s][1], even_width = width + width % 2,
                      even_height = height + height % 2;
        float *low = test_noise((size_t)(width * height) * 3, s),
              *even = calloc((size_t)(even_width * even_height) * 3, sizeof *even),
              *high = calloc((size_t)(width * height) * 12, sizeof *high);
        for (int64_t i = 0; i < even_width * even_height; i++) {
            const int64_t y = i / even_width, x = i % even_width;
            memcpy(even + i * 3, low + ((y < height ? y : height - 1) * width + (x < width ? x : width - 1)) * 3,
                   3 * sizeof *even);
        }
        cod_saved_model saved = test_model("rrdb", settings, 3);
        cod_shape out;
        float *expected = test_run("ref", COD_F32, &saved, (cod_shape){1, even_height, even_width, 3}, even, &out);
        cod_saved_model_clear(&saved);
        for (size_t t = 0; t < sizeof tiles / sizeof tiles[0]; t++) {
            fixture f;
            fixture_open(&f, "ref", test_model("rrdb", settings, 3),
                         (cod_upscaler_options){COD_PRECISION_F32, tiles[t]});
            assert_ok(cod_upscaler_run_f32(f.upscaler, low, width, height, high));
            assert_int_equal(cod_upscaler_parts(f.upscaler, width, height) > 1,
                             tiles[t] == 0 ? s == 0 : tiles[t] == 9 && s < 2);
            for (int64_t y = 0; y < 2 * height; y++)
                assert_memory_equal(high + y * width * 6, expected + y * out.w * 3, (size_t)width * 6 * sizeof *high);
            fixture_close(&f);
        }
        free(low), free(even), free(high), free(expected);
    }
}

TEST(tiled_equals_whole)
{
    check_parts_equal_whole("ref", COD_PRECISION_F32, 0);
    check_parts_equal_whole("cpu", COD_PRECISION_F32, 1e-5); /* the library may choose another order of summing */
}

TEST(tiled_equals_whole_in_bf16)
{
    cod_device *device = test_device_open("cpu");
    const bool has_bf16 = cod_backend_find("cpu")->supports(device, COD_BF16);
    test_device_close("cpu", device);
    if (!has_bf16)
        skip();
    check_parts_equal_whole("cpu", COD_PRECISION_BF16, 1.0 / 255);
}

TEST(upscaling_is_what_the_graph_computes)
{
    const cod_shape shape = {1, 9, 13, 3};
    cod_shape out;
    float *low = test_noise((size_t)cod_shape_count(shape), 6);
    fixture f;
    fixture_open(&f, "ref", test_srresnet(7), (cod_upscaler_options){.precision = COD_PRECISION_F32});
    float *expected = test_run("ref", COD_F32, &f.saved, shape, low, &out);
    const size_t count = (size_t)cod_shape_count(out);
    float *high = malloc(count * sizeof *high);
    assert_ok(cod_upscaler_run_f32(f.upscaler, low, shape.w, shape.h, high));
    assert_true(test_difference(high, expected, count) == 0);

    /* Weights that somebody changes are noticed. */
    memset(f.saved.values, 0, (f.saved.layout.trainable + f.saved.layout.state) * sizeof(float));
    assert_ok(cod_weights_upload(&f.weights, f.saved.values));
    assert_ok(cod_upscaler_run_f32(f.upscaler, low, shape.w, shape.h, high));
    assert_true(test_difference(high, expected, count) > 0.01);
    free(low);
    free(high);
    free(expected);
    fixture_close(&f);
}

static void count_progress(void *context, size_t done, size_t total)
{
    size_t *calls = context;
    assert_int_equal(done, ++*calls);
    assert_true(done <= total);
}

TEST(pictures_keep_bits_alpha_and_gray)
{
    fixture f;
    fixture_open(&f, "ref", test_srresnet(8), (cod_upscaler_options){COD_PRECISION_F32, 8});
    for (int bits = 8; bits <= 16; bits += 8) {
        for (int channels = 3; channels <= 4; channels++) {
            cod_image in = noise_image(45, 20, channels, bits, 9), out, bicubic;
            size_t calls = 0;
            assert_ok(cod_upscaler_run(f.upscaler, &in, count_progress, &calls, &out));
            assert_int_equal(calls, cod_upscaler_parts(f.upscaler, 45, 20));
            assert_int_equal(out.width, 180);
            assert_int_equal(out.height, 80);
            assert_int_equal(out.channels, channels);
            assert_int_equal(out.bits, bits);
            assert_ok(cod_image_resize(&in, 4, &bicubic));
            for (size_t i = 3; channels == 4 && i < 180 * 80 * 4; i += 4)
                assert_true(bits == 8 ? ((uint8_t *)out.pixels)[i] == ((uint8_t *)bicubic.pixels)[i]
                                      : ((uint16_t *)out.pixels)[i] == ((uint16_t *)bicubic.pixels)[i]);
            cod_image_clear(&bicubic);
            cod_image_clear(&out);
            cod_image_clear(&in);
        }
    }
    cod_image gray = noise_image(10, 10, 3, 8, 10), out;
    uint8_t *pixels = gray.pixels;
    for (size_t i = 0; i < 300; i += 3)
        pixels[i + 1] = pixels[i + 2] = pixels[i];
    assert_ok(cod_upscaler_run(f.upscaler, &gray, NULL, NULL, &out));
    pixels = out.pixels;
    for (size_t i = 0; i < 4800; i += 3)
        assert_true(pixels[i] == pixels[i + 1] && pixels[i] == pixels[i + 2]);
    cod_image_clear(&out);
    cod_image_clear(&gray);
    fixture_close(&f);
}

/** What lies under transparent pixels changes nothing that is seen, and where nothing is seen it is kept. */
TEST(hidden_colours_do_not_reach_the_network)
{
    fixture f;
    fixture_open(&f, "ref", test_srresnet(8), (cod_upscaler_options){COD_PRECISION_F32, 8});
    cod_image in[2], out[2];
    for (int i = 0; i < 2; i++) {
        in[i] = noise_image(30, 20, 4, 8, 11);
        for (uint8_t *pixel = in[i].pixels, *end = pixel + 30 * 20 * 4; pixel < end; pixel += 4) {
            pixel[3] = (end - pixel) / 4 % 30 < 15 ? 0 : pixel[3] | 1;
            if (pixel[3] == 0)
                memset(pixel, i == 0 ? 255 : 7, 3);
        }
        assert_ok(cod_upscaler_run(f.upscaler, &in[i], NULL, NULL, &out[i]));
    }
    const uint8_t *a = out[0].pixels, *b = out[1].pixels;
    size_t seen = 0;
    for (size_t p = 0; p < 120 * 80 * 4; p += 4) {
        assert_int_equal(a[p + 3], b[p + 3]);
        seen += a[p + 3] > 0;
        for (size_t c = 0; c < 3 && a[p + 3] > 0; c++)
            assert_int_equal(a[p + c], b[p + c]);
    }
    assert_true(seen > 120 * 80 / 3 && seen < 120 * 80 && a[119 * 4] == 255 && b[119 * 4] == 7);
    for (int i = 0; i < 2; i++) {
        cod_image_clear(&in[i]);
        cod_image_clear(&out[i]);
    }
    fixture_close(&f);
}

/** Integers are the clipped and rounded f32 values. */
TEST(pictures_are_clipped_and_rounded)
{
    enum { WIDTH = 12, HEIGHT = 9, COUNT = WIDTH * HEIGHT * 3 };
    fixture f;
    fixture_open(&f, "ref", test_srresnet(11), (cod_upscaler_options){.precision = COD_PRECISION_F32});
    cod_image in = noise_image(WIDTH, HEIGHT, 3, 8, 12), out;
    float low[COUNT], *high = malloc(COUNT * 16 * sizeof *high);
    for (size_t i = 0; i < COUNT; i++)
        low[i] = ((uint8_t *)in.pixels)[i] / 255.0f;
    assert_ok(cod_upscaler_run_f32(f.upscaler, low, WIDTH, HEIGHT, high));
    assert_ok(cod_upscaler_run(f.upscaler, &in, NULL, NULL, &out));
    for (size_t i = 0; i < COUNT * 16; i++) {
        const float clipped = fminf(fmaxf(high[i], 0), 1);
        assert_true(fabsf((float)((uint8_t *)out.pixels)[i] - 255 * clipped) <= 0.501f);
    }
    free(high);
    cod_image_clear(&in);
    cod_image_clear(&out);
    fixture_close(&f);
}

TEST(memory_is_bounded_by_the_tile)
{
    fixture f;
    fixture_open(&f, "cpu", test_srresnet(13), (cod_upscaler_options){COD_PRECISION_F32, 16});
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        cod_image in = noise_image(80 + 120 * i, 60 + 80 * i, 3, 8, 14), out;
        assert_ok(cod_upscaler_run(f.upscaler, &in, NULL, NULL, &out));
        bytes[i] = cod_upscaler_bytes(f.upscaler);
        cod_image_clear(&in);
        cod_image_clear(&out);
    }
    /* Windows of a picture are of one size, at most that of a tile and what it sees around it. */
    assert_in_range(bytes[1], bytes[0] / 2, bytes[0] * 3 / 2);
    fixture_close(&f);
}

TEST(memory_holds_what_is_copied)
{
    const cod_backend *backend = cod_backend_find("ref");
    cod_device *device = test_device_open("ref");
    cod_buffer *buffers[2];
    cod_view views[2];
    cod_stream stream;
    for (int i = 0; i < 2; i++) {
        const cod_shape shape = {1, 4 << i, 6 << i, 3};
        const size_t bytes = (size_t)cod_shape_count(shape) * sizeof(float);
        assert_ok(backend->buffer_create(device, bytes, &buffers[i]));
        views[i] = cod_view_dense(buffers[i], 0, COD_F32, shape);
    }
    assert_ok(cod_stream_init(&stream, backend, device, views[0], views[1]));
    assert_true(cod_stream_bytes(&stream) >= cod_view_span_bytes(&views[0]) + cod_view_span_bytes(&views[1]));
    cod_stream_clear(&stream);
    assert_int_equal(cod_stream_bytes(&stream), 0);
    for (int i = 0; i < 2; i++)
        backend->buffer_destroy(device, buffers[i]);
    test_device_close("ref", device);
}

TEST(files_that_cannot_upscale_are_refused)
{
    cod_device *device = test_device_open("ref");
    const cod_backend *ref = cod_backend_find("ref");
    cod_upscaler *upscaler = NULL;
    cod_saved_model mlp = test_model("mlp", (const cod_st_text[]){TEST_SIZES(4, 4, 3, 2), {NULL, NULL}}, 15);
    const char *path = cod_test_at("mlp.safetensors");
    assert_ok(cod_model_save(path, &mlp.model, mlp.values, NULL, 0));
    assert_fails(COD_ERR_ARGUMENT, "'mlp' does not upscale",
                 cod_upscaler_open(path, ref, device, &(cod_upscaler_options){0}, &upscaler));
    cod_saved_model saved = test_srresnet(16);
    assert_ok(cod_model_save(path, &saved.model, saved.values, NULL, 0));
    assert_fails(COD_ERR_ARGUMENT, "tile is 4 pixels; at least 8",
                 cod_upscaler_open(path, ref, device, &(cod_upscaler_options){.tile = 4}, &upscaler));
    assert_fails(COD_ERR_ARGUMENT, "scale is 0", cod_upscaler_create_bicubic(0, &upscaler));
    assert_ok(cod_upscaler_open(path, ref, device, &(cod_upscaler_options){0}, &upscaler));
    assert_int_equal(cod_upscaler_scale(upscaler), 4);
    cod_upscaler_destroy(upscaler);
    cod_saved_model_clear(&mlp);
    cod_saved_model_clear(&saved);
    test_device_close("ref", device);
}

static int two(const void *options)
{
    (void)options;
    return 2;
}

static cod_value build_strided(cod_graph *graph, cod_value input, const void *options)
{
    (void)options;
    const cod_value x = cod_graph_conv2d(graph, "conv", input,
                                         (cod_conv2d_spec){.out_channels = 3, .kernel = 3, .stride = 2, .padding = 1});
    return cod_graph_resize(graph, x, 4, COD_RESIZE_NEAREST);
}

/** Where windows would not line up with strides, pictures are run whole however small the tile. */
TEST(models_without_a_halo_run_whole)
{
    static const cod_option_table table = {.section = "model", .help = "none", .struct_bytes = 1};
    static const cod_model_kind kind = {.name = "strided", .table = &table, .build = build_strided, .scale = two};
    cod_saved_model saved = {0};
    fixture f;
    assert_ok(cod_model_build(&kind, "", &saved.model));
    saved.layout = cod_graph_layout(saved.model.graph);
    void *values;
    assert_ok(cod_aligned_alloc(&values, (saved.layout.trainable + saved.layout.state) * sizeof(float)));
    saved.values = values;
    fixture_open(&f, "ref", saved, (cod_upscaler_options){COD_PRECISION_F32, 8});
    assert_int_equal(cod_upscaler_halo(f.upscaler), -1);
    assert_int_equal(cod_upscaler_parts(f.upscaler, 40, 40), 1);
    cod_image in = noise_image(40, 30, 3, 8, 19), out;
    assert_ok(cod_upscaler_run(f.upscaler, &in, NULL, NULL, &out));
    assert_int_equal(out.width, 80);
    cod_image_clear(&in);
    cod_image_clear(&out);
    fixture_close(&f);
}

TEST(sessions_open_what_is_named)
{
    cod_arena arena = {0};
    cod_session_options options;
    cod_session session;
    cod_saved_model saved = test_srresnet(20);
    const char *path = cod_test_at("session.safetensors");
    test_device_close("ref", test_device_open("ref")); /* registers the backends */
    assert_ok(cod_options_set_defaults(&cod_session_option_table, &options, &arena));
    assert_ok(cod_model_save(path, &saved.model, saved.values, NULL, 0));
    assert_ok(cod_session_open(path, &options, &session));
    assert_int_equal(cod_upscaler_scale(session.upscaler), 4);
    cod_session_close(&session);
    options.scale = 3;
    assert_fails(COD_ERR_ARGUMENT, "upscales by 4, not by 3", cod_session_open(path, &options, &session));
    assert_null(session.device);
    assert_ok(cod_session_open(COD_BICUBIC, &options, &session));
    assert_int_equal(cod_upscaler_scale(session.upscaler), 3);
    cod_session_close(&session);
    options.scale = 0;
    options.backend = "gpu";
    assert_fails(COD_ERR_ARGUMENT, "no backend 'gpu' in this build; it has ref, cpu",
                 cod_session_open(path, &options, &session));
    cod_saved_model_clear(&saved);
    cod_arena_clear(&arena);
}

/** The values of MANIFEST.md: bicubic x4 on Set5, float luma. */
TEST(bicubic_on_set5_gives_the_known_figures)
{
    static const double psnr_y[] = {31.7842, 30.1815, 22.0996, 31.6133, 26.4665};
    const char *folder = cod_test_data("set5");
    if (folder == NULL)
        skip();
    cod_upscaler *bicubic;
    cod_evaluation evaluation;
    char *text;
    assert_ok(cod_upscaler_create_bicubic(4, &bicubic));
    assert_ok(cod_evaluate_folder(bicubic, folder, NULL, NULL, NULL, &evaluation));
    assert_int_equal(evaluation.count, 5);
    assert_int_equal(evaluation.skipped, 0);
    for (size_t i = 0; i < 5; i++)
        assert_true(fabs(evaluation.images[i].quality.psnr_y - psnr_y[i]) < 5.1e-5);
    assert_true(fabs(evaluation.mean.quality.psnr_y - 28.4290) < 5.1e-5);
    assert_true(fabs(evaluation.mean.quality.ssim_y - 0.81114) < 5.1e-6);
    assert_true(fabs(evaluation.mean.quality.psnr_rgb - 26.6921) < 5.1e-5);

    cod_json_value *json;
    assert_ok(cod_evaluation_json(&evaluation, &text));
    assert_ok(cod_json_parse(text, strlen(text), &json));
    assert_int_equal(cod_json_count(cod_json_get(json, "images")), 5);
    const cod_json_value *first = cod_json_first(cod_json_get(json, "images"));
    assert_string_equal(cod_json_get_string(cod_json_get(first, "file"), ""), "img_001_SRF_4_HR.png");
    assert_true(cod_json_get_number(cod_json_get(cod_json_get(json, "mean"), "psnr_y"), 0) ==
                evaluation.mean.quality.psnr_y);
    cod_json_free(json);
    free(text);
    assert_ok(cod_evaluation_table(&evaluation, &text));
    cod_test_assert_contains(text, "mean                    28.4290  0.81114    26.6921\n");
    free(text);
    cod_evaluation_clear(&evaluation);
    cod_upscaler_destroy(bicubic);
}

/** A picture that is too small for NIQE is told so, and left out of its mean alone. */
TEST(niqe_is_told_beside_psnr)
{
    char folder[256], file[300], *text;
    cod_upscaler *bicubic;
    cod_evaluation evaluation;
    cod_metrics_options options = {.metrics = COD_METRIC_PSNR | COD_METRIC_NIQE};
    cod_niqe_model model = {{0}, {0}};
    snprintf(folder, sizeof folder, "%s", cod_test_at("natural"));
    assert_ok(cod_folder_create(folder));
    assert_ok(cod_upscaler_create_bicubic(2, &bicubic));
    cod_image small = noise_image(40, 40, 3, 8, 19), large = noise_image(220, 210, 3, 8, 20);
    snprintf(file, sizeof file, "%s/small.png", folder);
    assert_ok(cod_image_write_png(file, &small));
    snprintf(file, sizeof file, "%s/large.png", folder);
    assert_ok(cod_image_write_png(file, &large));
    assert_fails(COD_ERR_ARGUMENT, "NIQE needs its model",
                 cod_evaluate_folder(bicubic, folder, &options, NULL, NULL, &evaluation));
    options.niqe = &model;
    assert_ok(cod_evaluate_folder(bicubic, folder, &options, NULL, NULL, &evaluation));
    assert_int_equal(evaluation.count, 2);
    const cod_evaluated *of_large = &evaluation.images[0], *of_small = &evaluation.images[1];
    double niqe, truth;
    cod_image result;
    cod_quality quality;
    assert_ok(cod_evaluate_image(bicubic, &large, &quality, &result));
    assert_ok(cod_niqe(&result, 2, &model, &niqe));
    assert_ok(cod_niqe(&large, 2, &model, &truth));
    assert_true(of_large->niqe == niqe && of_large->niqe_truth == truth && niqe != truth);
    assert_true(isnan(of_small->niqe) && isnan(of_small->niqe_truth) && of_small->quality.psnr_y > 0);
    assert_true(evaluation.mean.niqe == niqe && evaluation.mean.niqe_truth == truth);
    cod_json_value *json;
    assert_ok(cod_evaluation_json(&evaluation, &text));
    assert_ok(cod_json_parse(text, strlen(text), &json));
    assert_true(cod_json_get_number(cod_json_get(cod_json_get(json, "mean"), "niqe"), 0) == niqe);
    assert_null(cod_json_get(cod_json_get(json, "mean"), "ssim_y"));
    cod_json_free(json);
    free(text);
    assert_ok(cod_evaluation_table(&evaluation, &text));
    cod_test_assert_contains(text, "NIQE: without 1 of 2 pictures");
    free(text);
    cod_evaluation_clear(&evaluation);
    cod_image_clear(&result);
    cod_image_clear(&small);
    cod_image_clear(&large);
    cod_upscaler_destroy(bicubic);
}

TEST(metrics_are_known_by_name)
{
    unsigned metrics;
    assert_ok(cod_metrics_parse("niqe,psnr", &metrics));
    assert_int_equal(metrics, COD_METRIC_PSNR | COD_METRIC_NIQE);
    assert_fails(COD_ERR_ARGUMENT, "unknown metric 'nique'; known are psnr, ssim, niqe, pi and lpips",
                 cod_metrics_parse("psnr,nique", &metrics));
    assert_fails(COD_ERR_ARGUMENT, "unknown metric ''", cod_metrics_parse("psnr,", &metrics));
}

static void count_left_out(void *context, cod_log_level level, const char *line)
{
    (void)level;
    *(int *)context += strstr(line, "left out: 2 of 3 pictures: ") != NULL && strstr(line, "broken.jpg: ") != NULL &&
                       strstr(line, "small.png: 18x40") != NULL;
}

TEST(folders_with_bad_pictures_are_reported)
{
    int said = 0;
    char folder[256], file[300];
    cod_upscaler *bicubic;
    cod_evaluation evaluation;
    snprintf(folder, sizeof folder, "%s", cod_test_at("pictures"));
    assert_ok(cod_folder_create(folder));
    assert_ok(cod_upscaler_create_bicubic(4, &bicubic));
    assert_fails(COD_ERR_ARGUMENT, "no pictures", cod_evaluate_folder(bicubic, folder, NULL, NULL, NULL, &evaluation));
    assert_fails(COD_ERR_IO, "absent",
                 cod_evaluate_folder(bicubic, cod_test_at("absent"), NULL, NULL, NULL, &evaluation));
    cod_image small = noise_image(18, 40, 3, 8, 17), good = noise_image(43, 38, 4, 16, 18);
    snprintf(file, sizeof file, "%s/small.png", folder);
    assert_ok(cod_image_write_png(file, &small));
    assert_fails(COD_ERR_ARGUMENT, "18x40 pixels are too few; at least 20",
                 cod_evaluate_folder(bicubic, folder, NULL, NULL, NULL, &evaluation));
    snprintf(file, sizeof file, "%s/good.png", folder);
    assert_ok(cod_image_write_png(file, &good));
    snprintf(file, sizeof file, "%s/broken.jpg", folder);
    assert_ok(cod_file_write(file, "nothing", 7));
    cod_log_set_sink(count_left_out, &said, COD_LOG_INFO);
    assert_ok(cod_evaluate_folder(bicubic, folder, NULL, NULL, NULL, &evaluation));
    cod_log_set_sink(NULL, NULL, COD_LOG_INFO);
    assert_int_equal(evaluation.count, 1);
    assert_int_equal(evaluation.skipped, 2);
    assert_int_equal(said, 1);
    assert_string_equal(evaluation.images[0].file, "good.png");
    cod_evaluation_clear(&evaluation);
    cod_image_clear(&small);
    cod_image_clear(&good);
    cod_upscaler_destroy(bicubic);
}

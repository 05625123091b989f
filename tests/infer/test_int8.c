#include "support/test.h"

#include "core/log.h"
#include "data/resize.h"
#include "infer/calibrate.h"
#include "infer/evaluate.h"
#include "infer/fold.h"
#include "infer/int8.h"
#include "io/file.h"
#include "models.h"
#include "support/folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Upscaling on 8-bit integers: where the ranges come from, and what the rounding costs. */

enum { WIDTH = 29, HEIGHT = 23, LOW = WIDTH * HEIGHT * 3, HIGH = LOW * 16 };

static cod_saved_model wide_model(uint64_t seed)
{
    static const cod_st_text settings[] = {{"blocks", "2"}, {"channels", "16"}, {NULL, NULL}};
    return test_model("srresnet", settings, seed);
}

/** A picture of smooth waves, as 8-bit RGB. */
static cod_image waves(int64_t width, int64_t height)
{
    cod_image image;
    assert_ok(cod_image_init(&image, width, height, 3, 8));
    for (int64_t i = 0; i < width * height * 3; i++)
        ((uint8_t *)image.pixels)[i] = (uint8_t)(127.5 + 120 * sin((double)(i / 3 % width) * 0.4) *
                                                             cos((double)(i / 3 / width) * 0.3 + (double)(i % 3)));
    return image;
}

static bool has_int8(const char *backend)
{
    cod_device *device = test_device_open(backend);
    const bool has = cod_backend_find(backend)->supports(device, COD_S8);
    test_device_close(backend, device);
    return has;
}

typedef struct fixture {
    const char *backend;
    cod_device *device;
    cod_upscaler *upscaler;
} fixture;

/** Opens a file of the model, which may have ranges. */
static void open_file(fixture *f, const char *backend, const char *path, cod_upscaler_options options)
{
    *f = (fixture){.backend = backend, .device = test_device_open(backend)};
    assert_ok(cod_upscaler_open(path, cod_backend_find(backend), f->device, &options, &f->upscaler));
}

static void close_file(fixture *f)
{
    cod_upscaler_destroy(f->upscaler);
    test_device_close(f->backend, f->device);
}

/** Writes the model with ranges observed on `ref`; the path is static. */
static const char *calibrated_file(uint64_t seed)
{
    fixture f;
    char *text = NULL;
    cod_saved_model saved = wide_model(seed);
    cod_image picture = waves(WIDTH, HEIGHT);
    const char *plain = cod_test_at("plain.safetensors"), *path = cod_test_at("calibrated.safetensors");
    assert_ok(cod_model_save(plain, &saved.model, saved.values, NULL, 0));
    open_file(&f, "ref", plain, (cod_upscaler_options){.precision = COD_PRECISION_INT8});
    assert_ok(cod_upscaler_calibrate(f.upscaler, &picture));
    assert_ok(cod_upscaler_format_int8(f.upscaler, &text));
    const cod_st_text metadata = {COD_INT8_METADATA, text};
    assert_ok(cod_model_save(path, &saved.model, saved.values, &metadata, 1));
    free(text);
    close_file(&f);
    cod_image_clear(&picture);
    cod_saved_model_clear(&saved);
    return path;
}

static float *upscale(const char *backend, const char *path, cod_upscaler_options options)
{
    fixture f;
    cod_image picture = waves(WIDTH, HEIGHT);
    float low[LOW], *high = malloc(HIGH * sizeof *high);
    assert_non_null(high);
    for (int i = 0; i < LOW; i++)
        low[i] = (float)((uint8_t *)picture.pixels)[i] / 255;
    cod_image_clear(&picture);
    open_file(&f, backend, path, options);
    assert_ok(cod_upscaler_run_f32(f.upscaler, low, WIDTH, HEIGHT, high));
    close_file(&f);
    return high;
}

static double rms_difference(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < HIGH; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / HIGH);
}

static double deviation(const float *a)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < HIGH; i++) {
        sum += (double)a[i] / HIGH;
        squares += (double)a[i] * (double)a[i] / HIGH;
    }
    return sqrt(squares - sum * sum);
}

/** It rounds, and not much: these weights are random, and so are sums of them, less forgiving than trained ones. */
TEST(it_is_close_to_f32_and_not_the_same)
{
    const char *path = calibrated_file(1);
    float *exact = upscale("ref", path, (cod_upscaler_options){.precision = COD_PRECISION_F32});
    float *rounded = upscale("ref", path, (cod_upscaler_options){.precision = COD_PRECISION_INT8});
    const double error = rms_difference(exact, rounded);
    if (!(error > 0 && error < 0.05 * deviation(exact)))
        fail_msg("rms error %g of deviation %g", error, deviation(exact));
    if (has_int8("cpu")) {
        float *cpu = upscale("cpu", path, (cod_upscaler_options){.precision = COD_PRECISION_INT8});
        const double other = rms_difference(exact, cpu);
        if (!(other > 0 && other < 0.05 * deviation(exact)))
            fail_msg("cpu: rms error %g of deviation %g", other, deviation(exact));
        free(cpu);
    }
    free(exact);
    free(rounded);
}

TEST(tiled_equals_whole)
{
    static const char *const backends[] = {"ref", "cpu"};
    const char *path = calibrated_file(2);
    for (int b = 0; b < 2; b++) {
        if (!has_int8(backends[b]))
            continue;
        float *whole = upscale(backends[b], path, (cod_upscaler_options){COD_PRECISION_INT8, 64});
        for (int tile = 8; tile < WIDTH; tile += 5) {
            float *tiled = upscale(backends[b], path, (cod_upscaler_options){COD_PRECISION_INT8, tile});
            const double difference = test_difference(whole, tiled, HIGH);
            if (!(difference <= 1.0 / 255))
                fail_msg("%s, tiles of %d: differs by %g", backends[b], tile, difference);
            free(tiled);
        }
        free(whole);
    }
}

TEST(without_ranges_it_says_what_to_do)
{
    cod_saved_model saved = wide_model(3);
    const char *path = cod_test_at("plain.safetensors");
    assert_ok(cod_model_save(path, &saved.model, saved.values, NULL, 0));
    cod_saved_model_clear(&saved);
    fixture f;
    cod_image picture = waves(20, 20), out;
    open_file(&f, "ref", path, (cod_upscaler_options){.precision = COD_PRECISION_INT8});
    assert_true(cod_upscaler_needs_calibration(f.upscaler));
    assert_fails(COD_ERR_ARGUMENT, "calibrate", cod_upscaler_run(f.upscaler, &picture, NULL, NULL, &out));
    assert_ok(cod_upscaler_calibrate(f.upscaler, &picture));
    assert_false(cod_upscaler_needs_calibration(f.upscaler));
    assert_ok(cod_upscaler_run(f.upscaler, &picture, NULL, NULL, &out));
    assert_string_equal(cod_upscaler_precision(f.upscaler), "int8");
    cod_image_clear(&out);
    close_file(&f);
    open_file(&f, "ref", path, (cod_upscaler_options){.precision = COD_PRECISION_F32});
    assert_false(cod_upscaler_needs_calibration(f.upscaler));
    assert_fails(COD_ERR_ARGUMENT, "int8", cod_upscaler_calibrate(f.upscaler, &picture));
    assert_fails(COD_ERR_ARGUMENT, "int8", cod_calibrate_files(f.upscaler, &(cod_file_list){0}, false));
    close_file(&f);
    cod_image_clear(&picture);
}

TEST(a_processor_without_it_is_named)
{
    cod_device *device = test_device_open("cpu");
    cod_dtype dtype;
    if (!cod_backend_find("cpu")->supports(device, COD_S8))
        assert_fails(COD_ERR_UNSUPPORTED, "int8",
                     cod_precision_dtype(COD_PRECISION_INT8, cod_backend_find("cpu"), device, &dtype));
    else
        assert_ok(cod_precision_dtype(COD_PRECISION_INT8, cod_backend_find("cpu"), device, &dtype));
    test_device_close("cpu", device);
}

TEST(ranges_survive_files_and_folding)
{
    cod_saved_model saved, folded;
    bool loadable = false;
    assert_ok(cod_model_load(calibrated_file(4), &saved));
    assert_non_null(saved.int8);
    const size_t nodes = cod_graph_node_count(saved.model.graph);
    float *ranges = calloc(nodes, sizeof *ranges);
    assert_ok(cod_int8_parse(saved.model.graph, saved.int8, ranges));
    size_t count = 0, convolutions = 0;
    for (size_t i = 0; i < nodes; i++) {
        count += ranges[i] > 0;
        convolutions += cod_graph_node(saved.model.graph, i)->kind == COD_NODE_CONV2D;
        assert_true(ranges[i] == 0 || cod_graph_node(saved.model.graph, i)->kind == COD_NODE_CONV2D);
    }
    assert_int_equal(count, convolutions - 2); /* not the first and the last */
    char *text = NULL;
    assert_ok(cod_int8_format(saved.model.graph, ranges, &text));
    assert_string_equal(text, saved.int8);
    assert_ok(cod_model_save_folded(cod_test_at("folded.safetensors"), &saved.model, saved.values, saved.int8, false,
                                    &loadable));
    assert_true(loadable);
    assert_ok(cod_model_load(cod_test_at("folded.safetensors"), &folded));
    assert_non_null(folded.int8);
    float *after = calloc(cod_graph_node_count(folded.model.graph), sizeof *after);
    assert_ok(
        cod_int8_parse(folded.model.graph, folded.int8, after)); /* layers have other names there, in the same order */
    for (size_t i = 0, k = 0; i < nodes; i++) {
        if (ranges[i] == 0)
            continue;
        while (after[k] == 0 && k + 1 < cod_graph_node_count(folded.model.graph))
            k++;
        assert_true(after[k++] == ranges[i]);
    }
    free(after);
    free(text);
    free(ranges);
    cod_saved_model_clear(&folded);
    cod_saved_model_clear(&saved);
}

TEST(damaged_ranges_are_refused)
{
    static const char *const texts[] = {"[1]",
                                        "{\"body.0.conv1\": \"x\"}",
                                        "{\"body.0.conv1\": -1}",
                                        "{\"body.0.conv1\": 1e99}",
                                        "{\"no.such\": 1}",
                                        "{\"head\": 1}",
                                        "{"};
    cod_saved_model saved = wide_model(5);
    float *ranges = calloc(cod_graph_node_count(saved.model.graph), sizeof *ranges);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_fails(COD_ERR_FORMAT, COD_INT8_METADATA, cod_int8_parse(saved.model.graph, texts[i], ranges));
    free(ranges);
    cod_saved_model_clear(&saved);
}

TEST(a_diverged_model_is_not_calibrated)
{
    cod_saved_model saved = wide_model(6);
    cod_weights weights;
    cod_upscaler *upscaler;
    cod_image picture = waves(9, 9);
    cod_device *device = test_device_open("ref");
    saved.values[0] = NAN;
    assert_ok(cod_weights_init(&weights, cod_backend_find("ref"), device, saved.model.graph, COD_F32, false));
    assert_ok(cod_weights_upload(&weights, saved.values));
    assert_ok(cod_upscaler_create(&saved.model, &weights, &(cod_upscaler_options){.precision = COD_PRECISION_INT8},
                                  &upscaler));
    assert_fails(COD_ERR_NUMERIC, "not finite", cod_upscaler_calibrate(upscaler, &picture));
    assert_true(cod_upscaler_needs_calibration(upscaler));
    cod_upscaler_destroy(upscaler);
    cod_weights_clear(&weights);
    cod_image_clear(&picture);
    cod_saved_model_clear(&saved);
    test_device_close("ref", device);
}

static void count_warning(void *context, cod_log_level level, const char *line)
{
    int *warnings = context;
    *warnings += level == COD_LOG_WARN && strstr(line, "not calibrated on: ") != NULL;
}

TEST(pictures_that_cannot_be_read_are_told_and_passed_over)
{
    const char *path = cod_test_at("wide.safetensors");
    cod_saved_model saved = wide_model(8);
    cod_image picture = waves(20, 20);
    assert_ok(cod_model_save(path, &saved.model, saved.values, NULL, 0));
    assert_ok(cod_folder_create(cod_test_at("some")));
    assert_ok(cod_image_write_png(cod_test_at("some/good.png"), &picture));
    for (int broken = 0; broken < 2; broken++) {
        fixture f;
        int warnings = 0;
        if (broken)
            assert_ok(cod_file_write(cod_test_at("some/broken.png"), "no picture", 10));
        open_file(&f, "ref", path, (cod_upscaler_options){.precision = COD_PRECISION_INT8});
        cod_log_set_sink(count_warning, &warnings, COD_LOG_WARN);
        const cod_status status = cod_calibrate_folder(f.upscaler, cod_test_at("some"), false);
        cod_log_set_sink(NULL, NULL, COD_LOG_INFO);
        assert_ok(status);
        assert_int_equal(warnings, broken);
        assert_false(cod_upscaler_needs_calibration(f.upscaler));
        close_file(&f);
    }
    cod_image_clear(&picture);
    cod_saved_model_clear(&saved);
}

/** On a photograph the rounding is to cost at most 0.05 dB. */
TEST(a_picture_loses_little)
{
    const char *folder = cod_test_data("set5");
    if (folder == NULL || !has_int8("cpu"))
        skip();
    static const cod_st_text settings[] = {{"blocks", "2"},     {"channels", "32"},    {"norm", "none"},
                                           {"skip", "bicubic"}, {"upsampler", "once"}, {NULL, NULL}};
    cod_saved_model saved = test_model("srresnet", settings, 7);
    const cod_param *tail = cod_graph_param(saved.model.graph, cod_graph_param_count(saved.model.graph) - 2);
    for (int64_t i = 0; i < cod_shape_count(tail->shape); i++) /* as a trained network, it adds little to bicubic */
        saved.values[tail->offset + (size_t)i] *= 0.02f;
    const char *path = cod_test_at("picture.safetensors");
    assert_ok(cod_model_save(path, &saved.model, saved.values, NULL, 0));
    cod_saved_model_clear(&saved);
    double psnr[2];
    for (int k = 0; k < 2; k++) {
        fixture f;
        cod_evaluation evaluation;
        open_file(&f, "cpu", path, (cod_upscaler_options){.precision = k ? COD_PRECISION_INT8 : COD_PRECISION_F32});
        if (k)
            assert_ok(cod_calibrate_folder(f.upscaler, folder, true));
        assert_ok(cod_evaluate_folder(f.upscaler, folder, NULL, NULL, NULL, &evaluation));
        psnr[k] = evaluation.mean.quality.psnr_y;
        cod_evaluation_clear(&evaluation);
        cod_evaluation_clear(NULL);
        close_file(&f);
    }
    print_message("f32 %.4f dB, int8 %.4f dB\n", psnr[0], psnr[1]);
    assert_true(psnr[1] >= psnr[0] - 0.05);
}

/* `codistill bench upscale`: how long a model takes for one whole picture. */
#include "tools/bench/bench.h"

#include "core/memory.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "infer/named_model.h"
#include "infer/session.h"
#include "io/file.h"
#include "tools/arguments.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: codistill bench upscale MODEL [options]\n\n"
    "Times MODEL (a .safetensors or .pth file) on one picture, from f32 to f32, as `codistill upscale` runs it.\n\n"
    "  --size WxH\tsize of the picture (150x100)\n"
    "  --repeats N\tnumber of runs timed, after 2 to warm up (7)\n"
    "  --input FILE\tread the picture from FILE: raw f32 [H, W, 3], 0 to 1. Without it, a random picture is used\n"
    "  --output FILE\twrite the result as raw f32 [scale*H, scale*W, 3]\n"
    "  --serve\trun once at once and then for each line read, and answer each with a line of JSON\n"
    "  --device D\twhere to compute: auto, cpu or cuda; auto uses a GPU if there is one (auto)\n"
    "  --threads N\tnumber of threads; 0 = as many as the process may use (0)\n"
    "  --precision P\tas in `codistill upscale` (auto)\n"
    "  --tile N\trun tiles of N low-resolution pixels a side instead of bands\n"
    "  --help\n";

enum { RGB = 3, MAX_REPEATS = 101, INPUT_BYTES_MAX = 1 << 30 };

typedef struct upscale_options {
    const char *model, *size, *repeats_text, *input, *output;
    int64_t width, height;
    int repeats;
    bool serve;
    cod_session_options session;
} upscale_options;

static cod_status fill(const upscale_options *options, float *low, size_t count)
{
    if (options->input == NULL) {
        cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_TEST, 0);
        for (size_t i = 0; i < count; i++)
            low[i] = (float)cod_rng_uniform(&rng);
        return COD_OK;
    }
    void *data;
    size_t bytes;
    COD_TRY(cod_file_read_any(options->input, INPUT_BYTES_MAX, &data, &bytes));
    cod_status status = COD_OK;
    if (bytes == count * sizeof *low)
        memcpy(low, data, bytes);
    else
        status = cod_fail(COD_ERR_FORMAT, "%s: %zu bytes, but %lldx%lld pixels take %zu", options->input, bytes,
                          (long long)options->width, (long long)options->height, count * sizeof *low);
    free(data);
    return status;
}

static cod_status run_once(const upscale_options *options, cod_session *session, const float *low, float *high,
                           double *ms)
{
    const double begin = cod_clock_s();
    COD_TRY(cod_upscaler_run_f32(session->upscaler, low, options->width, options->height, high));
    *ms = 1e3 * (cod_clock_s() - begin);
    return COD_OK;
}

static cod_status serve(const upscale_options *options, cod_session *session, const float *low, float *high,
                        size_t high_bytes)
{
    char line[64];
    for (bool first = true; first || fgets(line, sizeof line, stdin) != NULL; first = false) {
        double ms;
        COD_TRY(run_once(options, session, low, high, &ms));
        if (first && options->output != NULL)
            COD_TRY(cod_file_write(options->output, high, high_bytes));
        printf("{\"ms\": %.4f, \"precision\": \"%s\"}\n", ms, cod_upscaler_precision(session->upscaler));
        fflush(stdout);
    }
    return COD_OK;
}

static cod_status measure(const upscale_options *options, cod_session *session, const float *low, float *high,
                          size_t high_bytes)
{
    double times[MAX_REPEATS];
    const int scale = cod_upscaler_scale(session->upscaler);
    for (int r = -2; r < options->repeats; r++)
        COD_TRY(run_once(options, session, low, high, &times[r < 0 ? 0 : r]));
    const double median = cod_median(times, (size_t)options->repeats); /* sorts */
    char parts[64];
    cod_upscaler_describe_parts(session->upscaler, options->width, options->height, parts);
    printf("%s\n%lldx%lld -> %lldx%lld, %s, %s, %.1f MiB: %.2f ms (%.2f ... %.2f)\n",
           session->backend->describe(session->device), (long long)options->width, (long long)options->height,
           (long long)(scale * options->width), (long long)(scale * options->height),
           cod_upscaler_precision(session->upscaler), parts, (double)cod_upscaler_bytes(session->upscaler) / 1048576,
           median, times[0], times[options->repeats - 1]);
    return options->output != NULL ? cod_file_write(options->output, high, high_bytes) : COD_OK;
}

static cod_status run(const upscale_options *options)
{
    cod_session session;
    void *low = NULL, *high = NULL;
    COD_TRY(cod_session_open(options->model, &options->session, &session));
    const size_t count = (size_t)options->width * (size_t)options->height * RGB;
    const int scale = cod_upscaler_scale(session.upscaler);
    const size_t high_bytes = count * (size_t)scale * (size_t)scale * sizeof(float);
    cod_status status = cod_aligned_alloc(&low, count * sizeof(float));
    COD_THEN(status, cod_aligned_alloc(&high, high_bytes));
    COD_THEN(status, fill(options, low, count));
    COD_THEN(status, (options->serve ? serve : measure)(options, &session, low, high, high_bytes));
    cod_aligned_free(low);
    cod_aligned_free(high);
    cod_session_close(&session);
    return status;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, upscale_options *options, cod_arena *arena)
{
    const cod_argument own[] = {{.name = "size", .text = &options->size},
                                {.name = "repeats", .text = &options->repeats_text},
                                {.name = "input", .text = &options->input, .words = COD_WORDS_FILES},
                                {.name = "output", .letter = 'o', .text = &options->output, .words = COD_WORDS_FILES},
                                {.name = "serve", .flag = &options->serve}};
    const int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], &options->session, arena);
    char rest;
    long long width, height;
    if (code >= 0)
        return code;
    if (argc - optind != 1)
        return cod_cmd_usage(argv[0], "one MODEL is wanted");
    options->model = argv[optind];
    if (strcmp(options->model, COD_BICUBIC) == 0)
        return cod_cmd_usage(argv[0], "bicubic is no model to time");
    if (sscanf(options->size, "%lldx%lld%c", &width, &height, &rest) != 2 || width < 1 || height < 1 ||
        width > COD_IMAGE_MAX_SIDE || height > COD_IMAGE_MAX_SIDE)
        return cod_cmd_usage(argv[0], "--size: '%s' is no WIDTHxHEIGHT", options->size);
    options->width = width;
    options->height = height;
    long repeats = 7;
    const int wrong = cod_argument_number(argv[0], "repeats", options->repeats_text, 1, MAX_REPEATS, &repeats);
    options->repeats = (int)repeats;
    return wrong;
}

int cod_bench_upscale(int argc, char **argv)
{
    upscale_options options = {.size = "150x100"};
    cod_arena arena = {0};
    int code = parse(argc, argv, &options, &arena);
    if (code < 0) {
        cod_status status = cod_named_model_find(&arena, options.model, &options.model);
        COD_THEN(status, run(&options));
        code = cod_cmd_end(status);
    }
    cod_arena_clear(&arena);
    return code;
}

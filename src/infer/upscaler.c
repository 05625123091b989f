#include "infer/upscaler.h"

#include "data/resize.h"
#include "data/transparency.h"
#include "infer/int8.h"
#include "infer/stream.h"
#include "infer_internal.h"
#include "tiles_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RGB = 3 };

static const char PROGRAM[] = "upscale", INPUT[] = "input";

struct cod_upscaler {
    int scale, multiple; /**< sides of what the network takes are multiples of that */
    bool banded;         /**< pictures run in bands of rows, else in tiles */
    int64_t tile, halo;  /**< low-resolution pixels; halo < 0: the picture is run whole */
    cod_dtype dtype;
    const cod_model *model; /**< NULL: bicubic */
    cod_weights *weights;
    cod_saved_model own_model; /**< where the upscaler loaded them itself */
    cod_weights own_weights;
    cod_executable *executable; /**< for windows of this size; NULL before the first picture */
    int64_t window_width, window_height;
    bool window_bands;
    int64_t delay;               /**< low-resolution rows that a band's output is behind */
    cod_stream stream;           /**< of windows */
    float *int8_ranges;          /**< [node count] with int8, else NULL */
    cod_int8_observer *observer; /**< NULL where the ranges are the file's */
    bool calibrated;
};

/** Source and target of upscaling: pictures of integers, or f32 arrays. */
typedef struct upscale_job {
    int64_t width, height;
    const cod_image *in;
    cod_image *out;
    const float *low;
    float *high;
    bool gray; /**< the picture's channels are equal: the result's shall be too */
} upscale_job;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/** The model's, rounded up to a multiple of `multiple` where it has one. */
static cod_status halo_find(const cod_model *model, int64_t multiple, int64_t *halo)
{
    cod_arena arena = {0};
    graph_part part;
    const cod_status status = cod_graph_part_find(model, &arena, &part);
    if (status == COD_OK)
        *halo = cod_model_halo(model, &part);
    if (*halo > 0)
        *halo = infer_round_up(*halo, multiple);
    cod_arena_clear(&arena);
    return status;
}

static cod_status upscaler_init(cod_upscaler *upscaler, const cod_model *model, cod_weights *weights,
                                const cod_upscaler_options *options)
{
    COD_TRY(cod_model_check_upscales(model));
    COD_REQUIRE(options->tile == 0 || options->tile >= COD_UPSCALER_TILE_MIN,
                "tile is %lld pixels; at least %d, or 0 for bands", (long long)options->tile, COD_UPSCALER_TILE_MIN);
    COD_TRY(cod_precision_dtype(options->precision, weights->backend, weights->device, &upscaler->dtype));
    upscaler->multiple = cod_model_multiple(model->kind, model->options);
    COD_TRY(halo_find(model, upscaler->multiple, &upscaler->halo));
    if (options->precision == COD_PRECISION_INT8) {
        upscaler->int8_ranges = calloc(cod_graph_node_count(model->graph), sizeof(float));
        COD_REQUIRE_MEMORY(upscaler->int8_ranges);
    }
    upscaler->model = model;
    upscaler->weights = weights;
    upscaler->scale = cod_model_scale(model);
    upscaler->tile = options->tile > 0 ? options->tile : COD_UPSCALER_TILE;
    upscaler->banded = options->tile == 0 && upscaler->halo >= 0;
    return COD_OK;
}

cod_status cod_upscaler_create(const cod_model *model, cod_weights *weights, const cod_upscaler_options *options,
                               cod_upscaler **out)
{
    cod_upscaler *upscaler = calloc(1, sizeof *upscaler);
    COD_REQUIRE_MEMORY(upscaler);
    const cod_status status = upscaler_init(upscaler, model, weights, options);
    if (status == COD_OK)
        *out = upscaler;
    else
        cod_upscaler_destroy(upscaler);
    return status;
}

static cod_status open_model(cod_upscaler *upscaler, const char *path, const cod_backend *backend, cod_device *device,
                             const cod_upscaler_options *options)
{
    cod_saved_model *saved = &upscaler->own_model;
    cod_weights *weights = &upscaler->own_weights;
    COD_TRY(cod_model_load(path, saved));
    COD_TRY(cod_weights_init(weights, backend, device, saved->model.graph, COD_F32, false));
    COD_TRY(cod_weights_upload(weights, saved->values));
    cod_status status = upscaler_init(upscaler, &saved->model, weights, options);
    if (upscaler->int8_ranges != NULL && saved->int8 != NULL) {
        COD_THEN(status, cod_int8_parse(saved->model.graph, saved->int8, upscaler->int8_ranges));
        upscaler->calibrated = status == COD_OK;
    }
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

cod_status cod_upscaler_open(const char *path, const cod_backend *backend, cod_device *device,
                             const cod_upscaler_options *options, cod_upscaler **out)
{
    cod_upscaler *upscaler = calloc(1, sizeof *upscaler);
    COD_REQUIRE_MEMORY(upscaler);
    const cod_status status = open_model(upscaler, path, backend, device, options);
    if (status == COD_OK)
        *out = upscaler;
    else
        cod_upscaler_destroy(upscaler);
    return status;
}

cod_status cod_upscaler_create_bicubic(int scale, cod_upscaler **out)
{
    COD_REQUIRE(scale >= 1 && scale <= 16, "scale is %d; 1 to 16", scale);
    *out = calloc(1, sizeof **out);
    COD_REQUIRE_MEMORY(*out);
    **out = (cod_upscaler){.scale = scale, .multiple = 1, .dtype = COD_F32, .halo = -1};
    return COD_OK;
}

static void window_clear(cod_upscaler *upscaler)
{
    cod_stream_clear(&upscaler->stream);
    cod_executable_destroy(upscaler->executable);
    upscaler->executable = NULL;
    upscaler->window_width = upscaler->window_height = 0;
}

void cod_upscaler_destroy(cod_upscaler *upscaler)
{
    if (upscaler == NULL)
        return;
    window_clear(upscaler);
    cod_int8_observer_destroy(upscaler->observer); /* looks at the graph */
    if (upscaler->own_weights.backend != NULL)
        cod_weights_clear(&upscaler->own_weights);
    cod_saved_model_clear(&upscaler->own_model);
    free(upscaler->int8_ranges);
    free(upscaler);
}

int cod_upscaler_scale(const cod_upscaler *upscaler)
{
    return upscaler->scale;
}

const char *cod_upscaler_precision(const cod_upscaler *upscaler)
{
    return upscaler->int8_ranges != NULL ? "int8" : cod_dtype_name(upscaler->dtype);
}

int64_t cod_upscaler_halo(const cod_upscaler *upscaler)
{
    return upscaler->halo;
}

size_t cod_upscaler_bytes(const cod_upscaler *upscaler)
{
    const size_t staging = cod_stream_bytes(&upscaler->stream);
    const size_t weights = upscaler->model ? cod_weights_count(upscaler->weights) * sizeof(float) : 0;
    return staging + weights + (upscaler->executable ? cod_executable_bytes(upscaler->executable) : 0);
}

/**
 * Rows of a band: as many as stay in the caches from layer to layer. 0: the picture is no higher than a few, or not cut
 * so.
 */
static int64_t band_rows(const cod_upscaler *upscaler, int64_t width, int64_t height)
{
    enum { PIXELS = 6144, LEAST = 8, MOST = 64, FEW = 3 };
    const int64_t step = infer_round_up(2, upscaler->multiple), fitting = PIXELS / width / step * step;
    const int64_t rows = fitting < LEAST ? LEAST : fitting > MOST ? MOST : fitting;
    return upscaler->banded && height > FEW * rows ? rows : 0;
}

/** The tiles of one side of a picture. */
static infer_axis tiles_of(const cod_upscaler *upscaler, int64_t length)
{
    return infer_tiles(infer_round_up(length, upscaler->multiple), upscaler->tile, upscaler->halo, upscaler->multiple);
}

size_t cod_upscaler_parts(const cod_upscaler *upscaler, int64_t width, int64_t height)
{
    const int64_t band = band_rows(upscaler, width, height);
    if (band > 0)
        return (size_t)((height + upscaler->delay + band - 1) / band);
    return tiles_of(upscaler, width).count * tiles_of(upscaler, height).count;
}

void cod_upscaler_describe_parts(const cod_upscaler *upscaler, int64_t width, int64_t height, char text[64])
{
    const size_t parts = cod_upscaler_parts(upscaler, width, height);
    if (band_rows(upscaler, width, height) > 0)
        snprintf(text, 64, "%zu bands", parts);
    else if (parts > 1)
        snprintf(text, 64, "%zu tiles, halo %lld", parts, (long long)upscaler->halo);
    else
        snprintf(text, 64, "whole");
}

/** Opens the way of windows to the program and of results back. */
static cod_status window_stream(cod_upscaler *upscaler)
{
    const int64_t scale = upscaler->scale;
    const cod_view in = cod_executable_input(upscaler->executable, INPUT);
    const cod_view out = cod_executable_output(upscaler->executable, upscaler->model->output);
    const cod_shape wanted = {1, scale * in.shape.h, scale * in.shape.w, RGB};
    COD_REQUIRE(cod_shape_equal(out.shape, wanted), "the model's output is not %d times its input", upscaler->scale);
    return cod_stream_init(&upscaler->stream, upscaler->weights->backend, upscaler->weights->device, in, out);
}

/** Compiles for windows of this size. */
static cod_status window_compile(cod_upscaler *upscaler, int64_t width, int64_t height, bool bands,
                                 const float *int8_ranges)
{
    window_clear(upscaler);
    const cod_input_shape shape = {INPUT, {1, height, width, RGB}};
    cod_compile_memory memory = {0};
    const cod_compile_options options = {.activation = upscaler->dtype,
                                         .inputs = &shape,
                                         .input_count = 1,
                                         .bands = bands,
                                         .int8_ranges = int8_ranges,
                                         .memory = &memory};
    const cod_program_spec spec = {.name = PROGRAM, .outputs = {upscaler->model->output}};
    COD_TRY(infer_explain_memory(
        upscaler->weights, &memory,
        cod_compile(upscaler->model->graph, upscaler->weights, &options, &spec, 1, &upscaler->executable),
        "A smaller tile (--tile), or the processor (--device cpu), needs less"));
    upscaler->window_width = width;
    upscaler->window_height = height;
    upscaler->window_bands = bands;
    const cod_status status = window_stream(upscaler);
    if (status != COD_OK)
        window_clear(upscaler);
    return status;
}

/** Compiles for a window of this size, unless the executable already has it. */
static cod_status window_prepare(cod_upscaler *upscaler, int64_t width, int64_t height, bool bands)
{
    if (upscaler->executable && upscaler->window_width == width && upscaler->window_height == height &&
        upscaler->window_bands == bands)
        return COD_OK;
    COD_REQUIRE(!cod_upscaler_needs_calibration(upscaler),
                "precision int8 needs ranges that the model's file does not have; `codistill export --calibrate` "
                "makes one that has");
    const cod_status status = window_compile(upscaler, width, height, bands, upscaler->int8_ranges);
    return status == COD_OK
               ? COD_OK
               : cod_fail_prefix(status, "preparing windows of %lldx%lld pixels", (long long)width, (long long)height);
}

/** Element (y, x, 0) of the picture, in elements. */
static size_t element(int64_t width, int channels, int64_t y, int64_t x)
{
    return ((size_t)y * (size_t)width + (size_t)x) * (size_t)channels;
}

/** Reads `count` pixels from (y, x) on. */
static void row_load(const upscale_job *job, float *row, int64_t y, int64_t x, int64_t count)
{
    if (job->low != NULL) {
        memcpy(row, job->low + element(job->width, RGB, y, x), (size_t)count * RGB * sizeof *row);
        return;
    }
    const int channels = job->in->channels;
    const size_t from = element(job->width, channels, y, x);
    const uint8_t *bytes = job->in->pixels;
    const uint16_t *words = job->in->pixels;
    for (int64_t i = 0; i < count; i++)
        for (int c = 0; c < RGB; c++) {
            const size_t at = from + (size_t)i * (size_t)channels + (size_t)c;
            row[i * RGB + c] = job->in->bits == 8 ? (float)bytes[at] / 255 : (float)words[at] / 65535;
        }
}

/** Below the picture its last row is repeated, to its right its last pixel. */
static void window_load(const upscale_job *job, float *low, int64_t y0, int64_t x0, int64_t height, int64_t width)
{
    const int64_t there = least(width, job->width - x0);
    for (int64_t i = 0; i < height; i++) {
        float *row = low + element(width, RGB, i, 0);
        const int64_t y = least(y0 + i, job->height - 1);
        row_load(job, row, y, x0, there);
        for (int64_t x = there; x < width; x++)
            memcpy(row + x * RGB, row + (there - 1) * RGB, RGB * sizeof *row);
    }
}

/** Clipped and rounded to whole steps of 1 / `peak`; NaN becomes 0. */
static unsigned quantise(float value, float peak)
{
    return value > 0 ? (unsigned)(fminf(value, 1) * peak + 0.5f) : 0;
}

/** Writes `count` pixels of the result from (y, x) on. */
static void pixels_store(const upscale_job *job, const float *pixels, int64_t y, int64_t x, int64_t count, int scale)
{
    if (job->high != NULL) {
        memcpy(job->high + element(job->width * scale, RGB, y, x), pixels, (size_t)count * RGB * sizeof *pixels);
        return;
    }
    const int channels = job->out->channels;
    const bool wide = job->out->bits == 16;
    const float peak = wide ? 65535 : 255;
    uint8_t *bytes = (uint8_t *)job->out->pixels + (wide ? 0 : element(job->width * scale, channels, y, x));
    uint16_t *words = (uint16_t *)job->out->pixels + (wide ? element(job->width * scale, channels, y, x) : 0);
    for (int64_t i = 0; i < count; i++, pixels += RGB) {
        if (channels > RGB && (wide ? words[i * channels + RGB] == 0 : bytes[i * channels + RGB] == 0))
            continue; /* invisible: the colour is the resized one */
        const float mean = (pixels[0] + pixels[1] + pixels[2]) / RGB;
        for (int c = 0; c < RGB; c++) {
            const unsigned value = quantise(job->gray ? mean : pixels[c], peak);
            if (wide)
                words[i * channels + c] = (uint16_t)value;
            else
                bytes[i * channels + c] = (uint8_t)value;
        }
    }
}

/** A job that is under way: its windows are the steps of a stream. */
typedef struct job_steps {
    cod_upscaler *upscaler;
    cod_program *program;
    const upscale_job *job;
    infer_axis rows, columns; /**< of tiles */
    size_t count;             /**< windows */
    cod_upscaler_progress progress;
    void *context; /**< of `progress` */
} job_steps;

static cod_status steps_run(job_steps *steps, size_t count, cod_stream_steps stream)
{
    steps->count = count;
    stream.context = steps;
    return cod_stream_run(&steps->upscaler->stream, &stream, count);
}

static void step_report(const job_steps *steps, size_t step)
{
    if (steps->progress != NULL)
        steps->progress(steps->context, step + 1, steps->count);
}

static cod_status tile_fill(void *context, size_t step, float *low)
{
    const job_steps *steps = context;
    window_load(steps->job, low, infer_tile(&steps->rows, step / steps->columns.count).start,
                infer_tile(&steps->columns, step % steps->columns.count).start, steps->rows.window,
                steps->columns.window);
    return COD_OK;
}

static cod_status tile_run(void *context, size_t step)
{
    const job_steps *steps = context;
    (void)step;
    return cod_program_run(steps->program, NULL, NULL);
}

static cod_status tile_store(void *context, size_t step, const float *high)
{
    const job_steps *steps = context;
    const int scale = steps->upscaler->scale;
    const infer_span rows = infer_tile(&steps->rows, step / steps->columns.count);
    const infer_span columns = infer_tile(&steps->columns, step % steps->columns.count);
    const int64_t bottom = least(rows.last, steps->job->height), right = least(columns.last, steps->job->width);
    const int64_t x = columns.first * scale, count = (right - columns.first) * scale;
    for (int64_t y = rows.first * scale; y < bottom * scale; y++)
        pixels_store(steps->job,
                     high +
                         element(steps->columns.window * scale, RGB, y - rows.start * scale, x - columns.start * scale),
                     y, x, count, scale);
    step_report(steps, step);
    return COD_OK;
}

static cod_status tiles_run(job_steps *steps)
{
    return steps_run(steps, steps->rows.count * steps->columns.count,
                     (cod_stream_steps){.fill = tile_fill, .run = tile_run, .store = tile_store});
}

static cod_status band_fill(void *context, size_t step, float *low)
{
    const job_steps *steps = context;
    const int64_t band = steps->upscaler->window_height;
    window_load(steps->job, low, (int64_t)step * band, 0, band, steps->upscaler->window_width);
    return COD_OK;
}

static cod_status band_run(void *context, size_t step)
{
    const job_steps *steps = context;
    return cod_program_run_band(steps->program, (int64_t)step,
                                infer_round_up(steps->job->height, steps->upscaler->multiple));
}

static cod_status band_store(void *context, size_t step, const float *high)
{
    const job_steps *steps = context;
    const cod_upscaler *upscaler = steps->upscaler;
    const int scale = upscaler->scale;
    const int64_t width = steps->job->width * scale, rows = upscaler->window_height * scale;
    const int64_t top = (int64_t)step * rows - upscaler->delay * scale, left = steps->job->height * scale - top;
    for (int64_t y = top < 0 ? -top : 0; y < rows && y < left; y++)
        pixels_store(steps->job, high + element(upscaler->window_width * scale, RGB, y, 0), top + y, 0, width, scale);
    step_report(steps, step);
    return COD_OK;
}

/** The whole width, band by band from top to bottom: nothing is computed twice. */
static cod_status bands_run(job_steps *steps)
{
    cod_upscaler *upscaler = steps->upscaler;
    upscaler->delay = cod_program_delay(steps->program) / upscaler->scale;
    return steps_run(steps, cod_upscaler_parts(upscaler, steps->job->width, steps->job->height),
                     (cod_stream_steps){.fill = band_fill, .run = band_run, .store = band_store});
}

static cod_status job_run(cod_upscaler *upscaler, const upscale_job *job, cod_upscaler_progress progress, void *context)
{
    job_steps steps = {.upscaler = upscaler, .job = job, .progress = progress, .context = context};
    const int64_t band = band_rows(upscaler, job->width, job->height);
    if (band > 0) {
        const cod_status status = window_prepare(upscaler, infer_round_up(job->width, upscaler->multiple), band, true);
        steps.program = status == COD_OK ? cod_executable_program(upscaler->executable, PROGRAM) : NULL;
        if (status == COD_OK)
            return bands_run(&steps);
        if (status != COD_ERR_UNSUPPORTED)
            return status;
        upscaler->banded = false; /* a network that only tiles can cut */
    }
    steps.rows = tiles_of(upscaler, job->height);
    steps.columns = tiles_of(upscaler, job->width);
    COD_TRY(window_prepare(upscaler, steps.columns.window, steps.rows.window, false));
    steps.program = cod_executable_program(upscaler->executable, PROGRAM);
    return tiles_run(&steps);
}

static cod_status middle_fill(void *context, size_t step, float *low)
{
    const job_steps *steps = context;
    const upscale_job *job = steps->job;
    const int64_t width = steps->upscaler->window_width, height = steps->upscaler->window_height;
    (void)step;
    const int64_t multiple = steps->upscaler->multiple;
    window_load(job, low, (infer_round_up(job->height, multiple) - height) / 2,
                (infer_round_up(job->width, multiple) - width) / 2, height, width);
    return COD_OK;
}

bool cod_upscaler_needs_calibration(const cod_upscaler *upscaler)
{
    return upscaler->int8_ranges != NULL && !upscaler->calibrated;
}

void cod_upscaler_uncalibrate(cod_upscaler *upscaler)
{
    cod_int8_observer_destroy(upscaler->observer);
    upscaler->observer = NULL;
    upscaler->calibrated = false;
    window_clear(upscaler);
}

cod_status cod_upscaler_calibrate(cod_upscaler *upscaler, const cod_image *low)
{
    enum { SIDE = 128 };
    COD_REQUIRE(upscaler->int8_ranges != NULL, "only precision int8 is calibrated");
    const int64_t width = least(infer_round_up(low->width, upscaler->multiple), SIDE),
                  height = least(infer_round_up(low->height, upscaler->multiple), SIDE);
    const upscale_job job = {.width = low->width, .height = low->height, .in = low};
    job_steps steps = {.upscaler = upscaler, .job = &job};
    cod_status status = COD_OK;
    if (upscaler->observer == NULL)
        status = cod_int8_observer_create(upscaler->model->graph, &upscaler->observer);
    COD_THEN(status, window_compile(upscaler, width, height, false, NULL));
    COD_THEN(status,
             cod_stream_load(&upscaler->stream, &(cod_stream_steps){.context = &steps, .fill = middle_fill}, 0));
    COD_THEN(status, cod_int8_observe(upscaler->observer, upscaler->weights,
                                      cod_executable_program(upscaler->executable, PROGRAM)));
    if (status == COD_OK)
        cod_int8_choose(upscaler->observer, upscaler->int8_ranges);
    window_clear(upscaler);
    upscaler->calibrated = upscaler->calibrated || status == COD_OK;
    return status;
}

cod_status cod_upscaler_format_int8(const cod_upscaler *upscaler, char **text)
{
    COD_REQUIRE(upscaler->int8_ranges != NULL, "only precision int8 has ranges");
    return cod_int8_format(upscaler->model->graph, upscaler->int8_ranges, text);
}

static bool is_gray(const cod_image *image)
{
    const size_t pixels = (size_t)image->width * (size_t)image->height, channels = (size_t)image->channels;
    const uint8_t *bytes = image->pixels;
    const uint16_t *words = image->pixels;
    for (size_t i = 0; i < pixels * channels; i += channels)
        if (image->bits == 8 ? bytes[i] != bytes[i + 1] || bytes[i] != bytes[i + 2]
                             : words[i] != words[i + 1] || words[i] != words[i + 2])
            return false;
    return true;
}

cod_status cod_upscaler_run(cod_upscaler *upscaler, const cod_image *in, cod_upscaler_progress progress, void *context,
                            cod_image *out)
{
    *out = (cod_image){0};
    /* Bicubic gives the alpha channel; the model's colours, where there is one, then overwrite the others. */
    if (upscaler->model == NULL || in->channels != RGB)
        COD_TRY(cod_image_resize(in, upscaler->scale, out));
    else
        COD_TRY(cod_image_init(out, in->width * upscaler->scale, in->height * upscaler->scale, RGB, in->bits));
    cod_status status = COD_OK;
    cod_image filled = {0};
    if (upscaler->model != NULL) {
        if (cod_image_is_transparent(in))
            status = cod_image_fill_transparent(in, &filled);
        const cod_image *seen = filled.pixels != NULL ? &filled : in;
        const upscale_job job = {
            .width = in->width, .height = in->height, .in = seen, .out = out, .gray = is_gray(seen)};
        COD_THEN(status, job_run(upscaler, &job, progress, context));
        cod_image_clear(&filled);
    } else if (progress != NULL) {
        progress(context, 1, 1);
    }
    if (status != COD_OK)
        cod_image_clear(out);
    return status;
}

static cod_status bicubic_f32(int scale, const float *low, int64_t width, int64_t height, float *high)
{
    const size_t count = (size_t)width * (size_t)height * RGB, high_count = count * (size_t)scale * (size_t)scale;
    void *wide = NULL;
    COD_TRY(cod_aligned_alloc(&wide, (count + high_count) * sizeof(double)));
    double *from = wide, *to = from + count;
    for (size_t i = 0; i < count; i++)
        from[i] = low[i];
    const cod_status status = cod_resize_f64(from, height, width, RGB, scale, to);
    for (size_t i = 0; i < high_count && status == COD_OK; i++)
        high[i] = (float)to[i];
    cod_aligned_free(wide);
    return status;
}

cod_status cod_upscaler_run_f32(cod_upscaler *upscaler, const float *low, int64_t width, int64_t height, float *high)
{
    COD_REQUIRE(width > 0 && height > 0, "a picture of %lldx%lld pixels", (long long)width, (long long)height);
    if (upscaler->model == NULL)
        return bicubic_f32(upscaler->scale, low, width, height, high);
    const upscale_job job = {.width = width, .height = height, .low = low, .high = high};
    return job_run(upscaler, &job, NULL, NULL);
}

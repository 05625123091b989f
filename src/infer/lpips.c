#include "infer/lpips.h"

#include "infer/infer_internal.h"
#include "infer/squeezenet_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PROGRAM "features"
#define NETWORK "SqueezeNet 1.1"

enum { PICTURES = 2, COLOURS = 3, STAGES = COD_SQUEEZENET_STAGES, CHANNELS_MAX = 512 };

struct cod_lpips {
    cod_graph *graph;
    cod_weights weights;
    cod_value features[STAGES];
    bool weighted;
    float linear[STAGES][CHANNELS_MAX];
    cod_executable *executable; /**< for pictures of this size; NULL before the first */
    int64_t height, width;
    float *host; /**< the input, or one stage's features, whichever is larger */
};

static cod_status read_linear(const cod_st_file *file, int stage, float *values)
{
    const int64_t channels = cod_squeezenet_channels(cod_squeezenet_stages[stage]);
    char name[32];
    snprintf(name, sizeof name, "lin%d.model.1.weight", stage);
    const cod_st_tensor *tensor = cod_st_tensor_find(file, name);
    if (tensor == NULL)
        return cod_fail(COD_ERR_FORMAT,
                        "'%s' is not in it; LPIPS on SqueezeNet has 'lin0.model.1.weight' to 'lin6.model.1.weight'",
                        name);
    if (tensor->rank != 4 || tensor->shape[0] != 1 || tensor->shape[1] != channels || tensor->shape[2] != 1 ||
        tensor->shape[3] != 1)
        return cod_fail(COD_ERR_FORMAT, "'%s' is not of shape [1, %lld, 1, 1], as LPIPS on SqueezeNet has it", name,
                        (long long)channels);
    COD_TRY(cod_st_to_f32(tensor, values, (size_t)channels));
    for (int64_t c = 0; c < channels; c++)
        if (!(values[c] >= 0) || !isfinite(values[c]))
            return cod_fail(COD_ERR_FORMAT, "'%s' has a weight of %g; they are not negative", name, (double)values[c]);
    return COD_OK;
}

static cod_status read_file(const char *path, float linear[STAGES][CHANNELS_MAX])
{
    cod_st_file *file = NULL;
    COD_TRY(cod_st_open(path, &file));
    cod_status status = COD_OK;
    for (int stage = 0; status == COD_OK && stage < STAGES; stage++)
        status = read_linear(file, stage, linear[stage]);
    cod_st_close(file);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

static cod_status read_weights(const char *path, float linear[STAGES][CHANNELS_MAX])
{
    const cod_status status = read_file(path, linear);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "the linear weights of LPIPS");
}

static cod_status load_network(cod_lpips *l, const char *path, const cod_backend *backend, cod_device *device)
{
    cod_squeezenet_spec spec = {.layers = cod_squeezenet_stages, .layer_count = STAGES};
    COD_TRY(cod_squeezenet_examine(path, COD_SQUEEZENET_LAYERS, &spec.names, &spec.input));
    COD_TRY(cod_graph_create(&l->graph));
    cod_graph_use_set(l->graph, NETWORK);
    const cod_value pictures = cod_graph_input(l->graph, "pictures", COLOURS);
    cod_squeezenet_features(l->graph, pictures, spec, l->features);
    COD_TRY(cod_graph_status(l->graph));
    COD_TRY(cod_weights_init(&l->weights, backend, device, l->graph, COD_F32, false));
    COD_TRY(cod_weights_fill_initial(&l->weights, 0)); /* of "normalise", which no file has */
    return cod_set_load_weights(path, cod_graph_set_index(l->graph, NETWORK), &l->weights);
}

cod_status cod_lpips_create(const char *features, const char *weights, const cod_backend *backend, cod_device *device,
                            cod_lpips **out)
{
    *out = NULL;
    cod_lpips *l = calloc(1, sizeof *l);
    COD_REQUIRE_MEMORY(l);
    l->weighted = weights != NULL && weights[0] != '\0';
    for (int stage = 0; stage < STAGES; stage++)
        for (int c = 0; c < CHANNELS_MAX; c++)
            l->linear[stage][c] = 1;
    cod_status status = load_network(l, features, backend, device);
    if (status != COD_OK)
        status = cod_fail_prefix(status, "the network of LPIPS");
    if (l->weighted)
        COD_THEN(status, read_weights(weights, l->linear));
    if (status != COD_OK) {
        cod_lpips_destroy(l);
        return status;
    }
    *out = l;
    return COD_OK;
}

static void forget_size(cod_lpips *l)
{
    cod_executable_destroy(l->executable);
    free(l->host);
    l->executable = NULL;
    l->host = NULL;
}

void cod_lpips_destroy(cod_lpips *lpips)
{
    if (lpips == NULL)
        return;
    forget_size(lpips);
    cod_weights_clear(&lpips->weights);
    cod_graph_destroy(lpips->graph);
    free(lpips);
}

bool cod_lpips_is_weighted(const cod_lpips *lpips)
{
    return lpips->weighted;
}

/** Compiles for pictures of this size, where the last ones were of another. */
static cod_status prepare(cod_lpips *l, int64_t height, int64_t width)
{
    if (l->executable != NULL && l->height == height && l->width == width)
        return COD_OK;
    forget_size(l);
    const cod_input_shape input = {"pictures", {PICTURES, height, width, COLOURS}};
    cod_compile_memory memory = {0};
    const cod_compile_options options = {.activation = COD_F32, .inputs = &input, .input_count = 1, .memory = &memory};
    cod_program_spec spec = {.name = PROGRAM};
    for (int stage = 0; stage < STAGES; stage++)
        spec.outputs[stage] = l->features[stage];
    COD_TRY(infer_explain_memory(&l->weights, &memory,
                                 cod_compile(l->graph, &l->weights, &options, &spec, 1, &l->executable),
                                 "LPIPS of smaller pictures, or on the processor, may do"));
    size_t bytes = (size_t)(PICTURES * height * width * COLOURS) * sizeof *l->host;
    for (int stage = 0; stage < STAGES; stage++) {
        const cod_view view = cod_executable_output(l->executable, l->features[stage]);
        const size_t needed = cod_view_span_bytes(&view);
        COD_REQUIRE(view.dtype == COD_F32, "features of LPIPS are not f32");
        bytes = needed > bytes ? needed : bytes;
    }
    l->host = malloc(bytes);
    COD_REQUIRE_MEMORY(l->host);
    l->height = height;
    l->width = width;
    return COD_OK;
}

static float *take_picture(const cod_image *image, int64_t crop, float *out)
{
    for (int64_t y = crop; y < image->height - crop; y++) {
        const uint8_t *pixel = (const uint8_t *)image->pixels + (y * image->width + crop) * image->channels;
        for (int64_t x = crop; x < image->width - crop; x++, pixel += image->channels)
            for (int c = 0; c < COLOURS; c++)
                *out++ = (float)pixel[c] / 255;
    }
    return out;
}

/** 1 / (norm + 1e-10) of a pixel's features. */
static double scale_of(const float *features, int64_t channels)
{
    double square = 0;
    for (int64_t c = 0; c < channels; c++)
        square += (double)features[c] * (double)features[c];
    return 1 / (sqrt(square) + 1e-10);
}

/** One stage's part of equation 1. @param features  of both pictures, as the view has them */
static double stage_distance(const cod_view *view, const float *features, const float *linear)
{
    const int64_t pixels = view->shape.h * view->shape.w, channels = view->shape.c, stride = view->pixel_stride;
    double sum = 0;
    for (int64_t p = 0; p < pixels; p++) {
        const float *a = features + p * stride, *b = features + (pixels + p) * stride;
        const double scale_a = scale_of(a, channels), scale_b = scale_of(b, channels);
        for (int64_t c = 0; c < channels; c++) {
            const double difference = scale_a * (double)a[c] - scale_b * (double)b[c];
            sum += (double)linear[c] * difference * difference;
        }
    }
    return sum / (double)pixels;
}

static cod_status check_pictures(const cod_image *a, const cod_image *b, int64_t crop)
{
    COD_REQUIRE(a->width == b->width && a->height == b->height,
                "a picture of %lldx%lld cannot be compared with one of %lldx%lld", (long long)a->width,
                (long long)a->height, (long long)b->width, (long long)b->height);
    COD_REQUIRE(a->bits == 8 && b->bits == 8 && a->channels >= COLOURS && b->channels >= COLOURS,
                "LPIPS compares 8-bit RGB pictures");
    const int side = cod_squeezenet_side(COD_SQUEEZENET_LAYERS);
    COD_REQUIRE(crop >= 0 && a->width - 2 * crop >= side && a->height - 2 * crop >= side,
                "%lldx%lld pixels are too few for LPIPS: %dx%d must remain inside a border of %lld",
                (long long)a->width, (long long)a->height, side, side, (long long)crop);
    return COD_OK;
}

cod_status cod_lpips_compare(cod_lpips *lpips, const cod_image *a, const cod_image *b, int64_t crop, double *distance)
{
    const cod_backend *backend = lpips->weights.backend;
    COD_TRY(check_pictures(a, b, crop));
    COD_TRY(prepare(lpips, a->height - 2 * crop, a->width - 2 * crop));
    take_picture(b, crop, take_picture(a, crop, lpips->host));
    const cod_view input = cod_executable_input(lpips->executable, "pictures");
    COD_TRY(backend->upload(lpips->weights.device, NULL, input.buffer, input.offset, lpips->host,
                            cod_view_span_bytes(&input)));
    COD_TRY(cod_program_run(cod_executable_program(lpips->executable, PROGRAM), NULL, NULL));
    *distance = 0;
    for (int stage = 0; stage < STAGES; stage++) {
        const cod_view view = cod_executable_output(lpips->executable, lpips->features[stage]);
        COD_TRY(backend->download(lpips->weights.device, NULL, lpips->host, view.buffer, view.offset,
                                  cod_view_span_bytes(&view)));
        *distance += stage_distance(&view, lpips->host, lpips->linear[stage]);
    }
    return COD_OK;
}

cod_status cod_lpips_check_files(const char *features, const char *weights)
{
    cod_squeezenet_names names;
    cod_vgg_input input;
    float linear[STAGES][CHANNELS_MAX];
    COD_TRY(cod_squeezenet_examine(features, COD_SQUEEZENET_LAYERS, &names, &input));
    return weights != NULL && weights[0] != '\0' ? read_weights(weights, linear) : COD_OK;
}

#include "infer/evaluate.h"

#include "core/log.h"
#include "data/files.h"
#include "data/resize.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    cod_metric metric;
} metric_names[] = {{"psnr", COD_METRIC_PSNR}, {"ssim", COD_METRIC_SSIM}, {"niqe", COD_METRIC_NIQE}};

enum { METRICS = sizeof metric_names / sizeof metric_names[0] };

cod_status cod_metrics_parse(const char *text, unsigned *metrics)
{
    *metrics = 0;
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ",");
        int i = 0;
        while (i < METRICS &&
               (strlen(metric_names[i].name) != length || strncmp(metric_names[i].name, at, length) != 0))
            i++;
        if (i == METRICS)
            return cod_fail(COD_ERR_ARGUMENT, "unknown metric '%.*s'; known are psnr, ssim and niqe", (int)length, at);
        *metrics |= metric_names[i].metric;
        at += length;
        if (*at == '\0')
            return COD_OK;
    }
}

void cod_evaluation_clear(cod_evaluation *evaluation)
{
    if (evaluation == NULL)
        return;
    cod_arena_clear(&evaluation->arena);
    *evaluation = (cod_evaluation){0};
}

cod_status cod_evaluate_pair(cod_upscaler *upscaler, const cod_image *low, const cod_image *truth, cod_quality *quality,
                             cod_image *upscaled)
{
    cod_image result;
    COD_TRY(cod_upscaler_run(upscaler, low, NULL, NULL, &result));
    const cod_status status = cod_image_compare(&result, truth, cod_upscaler_scale(upscaler), quality);
    if (status == COD_OK && upscaled != NULL)
        *upscaled = result;
    else
        cod_image_clear(&result);
    return status;
}

/** The upper left part of an 8-bit RGB image whose sides are multiples of `scale`. */
static cod_status cut_to_multiple(const cod_image *image, int scale, cod_image *out)
{
    COD_TRY(cod_image_init(out, image->width / scale * scale, image->height / scale * scale, 3, 8));
    const uint8_t *from = image->pixels;
    uint8_t *to = out->pixels;
    for (int64_t y = 0; y < out->height; y++)
        memcpy(to + y * out->width * 3, from + y * image->width * 3, (size_t)out->width * 3);
    return COD_OK;
}

cod_status cod_evaluate_image(cod_upscaler *upscaler, const cod_image *truth, cod_quality *quality, cod_image *upscaled)
{
    enum { SSIM_WINDOW = 11 };
    const int scale = cod_upscaler_scale(upscaler), least = SSIM_WINDOW + 2 * scale;
    cod_image cut = {0}, low = {0};
    COD_REQUIRE(truth->channels == 3 && truth->bits == 8, "only 8-bit RGB pictures are evaluated");
    COD_REQUIRE(truth->width / scale * scale >= least && truth->height / scale * scale >= least,
                "%lldx%lld pixels are too few; at least %d to a side are needed at scale %d", (long long)truth->width,
                (long long)truth->height, (least + scale - 1) / scale * scale, scale);
    COD_TRY(cut_to_multiple(truth, scale, &cut));
    cod_status status = cod_image_resize(&cut, 1.0 / scale, &low);
    if (status == COD_OK)
        status = cod_evaluate_pair(upscaler, &low, &cut, quality, upscaled);
    cod_image_clear(&low);
    cod_image_clear(&cut);
    return status;
}

bool cod_evaluation_is_low(const cod_file_list *files, const char *name)
{
    const char *mark = NULL;
    for (const char *at = strstr(name, "LR"); at != NULL; at = strstr(at + 1, "LR"))
        mark = at;
    for (size_t i = 0; mark != NULL && i < files->count; i++) {
        const char *other = files->items[i].name;
        const size_t before = (size_t)(mark - name);
        if (strncmp(other, name, before) == 0 && strncmp(other + before, "HR", 2) == 0 &&
            strcmp(other + before + 2, mark + 2) == 0)
            return true;
    }
    return false;
}

/** NIQE of a picture and of the true one. Where either has too few blocks the file is named, and neither is known. */
static cod_status compute_niqe(const cod_file *file, const cod_image *upscaled, const cod_image *truth, int64_t crop,
                               const cod_niqe_model *model, cod_evaluated *image)
{
    cod_status status = cod_niqe(upscaled, crop, model, &image->niqe);
    if (status == COD_OK)
        status = cod_niqe(truth, crop, model, &image->niqe_truth);
    if (status == COD_OK)
        return COD_OK;
    image->niqe = image->niqe_truth = NAN;
    if (status == COD_ERR_ARGUMENT)
        cod_log_warn("%s has no NIQE: %s", file->path, cod_error_message());
    return status == COD_ERR_ARGUMENT ? COD_OK : status;
}

static cod_status evaluate_file(cod_upscaler *upscaler, const cod_file *file, const cod_metrics_options *options,
                                cod_evaluated *image)
{
    cod_image truth, upscaled = {0};
    COD_TRY(cod_image_read(file->path, &truth));
    cod_status status = cod_image_to_rgb8(&truth);
    image->niqe = image->niqe_truth = NAN;
    if (status == COD_OK) {
        status = cod_evaluate_image(upscaler, &truth, &image->quality, &upscaled);
        if (status != COD_OK)
            status = cod_fail_prefix(status, "%s", file->path);
    }
    if (status == COD_OK && (options->metrics & COD_METRIC_NIQE) != 0)
        status = compute_niqe(file, &upscaled, &truth, cod_upscaler_scale(upscaler), options->niqe, image);
    cod_image_clear(&upscaled);
    cod_image_clear(&truth);
    return status;
}

/** Whether the file is to blame, so that the others can go on without it. */
static bool is_files_fault(cod_status status)
{
    return status == COD_ERR_IO || status == COD_ERR_FORMAT || status == COD_ERR_UNSUPPORTED ||
           status == COD_ERR_ARGUMENT;
}

static void mean_compute(cod_evaluation *evaluation)
{
    cod_quality *mean = &evaluation->mean.quality;
    evaluation->mean.file = "mean";
    for (size_t i = 0; i < evaluation->count; i++) {
        const cod_evaluated *image = &evaluation->images[i];
        mean->psnr_y += image->quality.psnr_y / (double)evaluation->count;
        mean->ssim_y += image->quality.ssim_y / (double)evaluation->count;
        mean->psnr_rgb += image->quality.psnr_rgb / (double)evaluation->count;
        mean->ssim_rgb += image->quality.ssim_rgb / (double)evaluation->count;
        evaluation->without_niqe += isnan(image->niqe) ? 1 : 0;
        evaluation->mean.niqe += isnan(image->niqe) ? 0 : image->niqe;
        evaluation->mean.niqe_truth += isnan(image->niqe) ? 0 : image->niqe_truth;
    }
    const double with_niqe = (double)(evaluation->count - evaluation->without_niqe);
    evaluation->mean.niqe /= with_niqe;
    evaluation->mean.niqe_truth /= with_niqe;
}

static cod_status evaluate_files(cod_upscaler *upscaler, const cod_file_list *files, const cod_metrics_options *options,
                                 cod_evaluation_progress progress, void *context, cod_evaluation *evaluation)
{
    size_t total = 0;
    for (size_t i = 0; i < files->count; i++)
        total += !cod_evaluation_is_low(files, files->items[i].name);
    evaluation->images = cod_arena_alloc(&evaluation->arena, total * sizeof *evaluation->images);
    COD_REQUIRE_MEMORY(evaluation->images);
    for (size_t i = 0; i < files->count; i++) {
        const cod_file *file = &files->items[i];
        if (cod_evaluation_is_low(files, file->name))
            continue;
        cod_evaluated *image = &evaluation->images[evaluation->count];
        const cod_status status = evaluate_file(upscaler, file, options, image);
        if (status != COD_OK) {
            if (!is_files_fault(status))
                return status;
            cod_log_warn("left out: %s", cod_error_message());
            evaluation->skipped++;
            continue;
        }
        image->file = cod_arena_strdup(&evaluation->arena, file->name);
        COD_REQUIRE_MEMORY(image->file);
        evaluation->count++;
        if (progress != NULL)
            progress(context, evaluation->count + evaluation->skipped, total, image);
    }
    mean_compute(evaluation);
    return COD_OK;
}

cod_status cod_evaluate_folder(cod_upscaler *upscaler, const char *folder, const cod_metrics_options *options,
                               cod_evaluation_progress progress, void *context, cod_evaluation *evaluation)
{
    const cod_metrics_options usual = {.metrics = COD_METRIC_PSNR | COD_METRIC_SSIM};
    cod_file_list files = {0};
    options = options != NULL ? options : &usual;
    *evaluation = (cod_evaluation){.metrics = options->metrics};
    COD_REQUIRE((options->metrics & COD_METRIC_NIQE) == 0 || options->niqe != NULL, "NIQE needs its model");
    cod_status status = cod_files_find(&files, folder, 0);
    if (status == COD_OK && files.count == 0)
        status = cod_fail(COD_ERR_ARGUMENT, "%s: no pictures (PNG, JPEG, WebP, TIFF or BMP) in it", folder);
    if (status == COD_OK)
        status = evaluate_files(upscaler, &files, options, progress, context, evaluation);
    if (status == COD_OK && evaluation->count == 0)
        status = cod_fail(COD_ERR_ARGUMENT, "%s: none of the %zu pictures can be used; the last: %s", folder,
                          evaluation->skipped, cod_error_message());
    cod_files_clear(&files);
    if (status != COD_OK)
        cod_evaluation_clear(evaluation);
    return status;
}

static void evaluated_json(cod_json *json, unsigned metrics, const cod_evaluated *image)
{
    if ((metrics & COD_METRIC_PSNR) != 0)
        cod_json_number(json, "psnr_y", image->quality.psnr_y);
    if ((metrics & COD_METRIC_SSIM) != 0)
        cod_json_number(json, "ssim_y", image->quality.ssim_y);
    if ((metrics & COD_METRIC_PSNR) != 0)
        cod_json_number(json, "psnr_rgb", image->quality.psnr_rgb);
    if ((metrics & COD_METRIC_NIQE) != 0) {
        cod_json_number(json, "niqe", image->niqe);
        cod_json_number(json, "niqe_truth", image->niqe_truth);
    }
}

cod_status cod_evaluation_json(const cod_evaluation *evaluation, char **text)
{
    cod_json json = {.indent = 2};
    cod_json_open(&json, NULL, '{');
    cod_json_open(&json, "images", '[');
    for (size_t i = 0; i < evaluation->count; i++) {
        cod_json_open(&json, NULL, '{');
        cod_json_string(&json, "file", evaluation->images[i].file);
        evaluated_json(&json, evaluation->metrics, &evaluation->images[i]);
        cod_json_close(&json);
    }
    cod_json_close(&json);
    cod_json_open(&json, "mean", '{');
    evaluated_json(&json, evaluation->metrics, &evaluation->mean);
    cod_json_close(&json);
    cod_json_close(&json);
    return cod_json_end(&json, text);
}

static void table_head(FILE *stream, int width, unsigned metrics)
{
    fprintf(stream, "%-*s", width, "file");
    if ((metrics & COD_METRIC_PSNR) != 0)
        fprintf(stream, "  %9s", "PSNR-Y dB");
    if ((metrics & COD_METRIC_SSIM) != 0)
        fprintf(stream, "  %7s", "SSIM-Y");
    if ((metrics & COD_METRIC_PSNR) != 0)
        fprintf(stream, "  %9s", "PSNR-RGB");
    if ((metrics & COD_METRIC_NIQE) != 0)
        fprintf(stream, "  %7s  %12s", "NIQE", "the original");
    fputc('\n', stream);
}

static void table_niqe(FILE *stream, int width, double niqe)
{
    if (isnan(niqe))
        fprintf(stream, "  %*s", width, "-");
    else
        fprintf(stream, "  %*.4f", width, niqe);
}

static void table_row(FILE *stream, int width, unsigned metrics, const cod_evaluated *image)
{
    fprintf(stream, "%-*s", width, image->file);
    if ((metrics & COD_METRIC_PSNR) != 0)
        fprintf(stream, "  %9.4f", image->quality.psnr_y);
    if ((metrics & COD_METRIC_SSIM) != 0)
        fprintf(stream, "  %7.5f", image->quality.ssim_y);
    if ((metrics & COD_METRIC_PSNR) != 0)
        fprintf(stream, "  %9.4f", image->quality.psnr_rgb);
    if ((metrics & COD_METRIC_NIQE) != 0) {
        table_niqe(stream, 7, image->niqe);
        table_niqe(stream, 12, image->niqe_truth);
    }
    fputc('\n', stream);
}

cod_status cod_evaluation_table(const cod_evaluation *evaluation, char **text)
{
    size_t bytes = 0, width = 4;
    for (size_t i = 0; i < evaluation->count; i++)
        width = strlen(evaluation->images[i].file) > width ? strlen(evaluation->images[i].file) : width;
    FILE *stream = open_memstream(text, &bytes);
    COD_REQUIRE_MEMORY(stream);
    table_head(stream, (int)width, evaluation->metrics);
    for (size_t i = 0; i < evaluation->count; i++)
        table_row(stream, (int)width, evaluation->metrics, &evaluation->images[i]);
    table_row(stream, (int)width, evaluation->metrics, &evaluation->mean);
    if ((evaluation->metrics & COD_METRIC_NIQE) != 0 && evaluation->without_niqe > 0)
        fprintf(stream, "NIQE: without %zu of %zu pictures, which have too few blocks\n", evaluation->without_niqe,
                evaluation->count);
    const bool failed = ferror(stream) != 0;
    if (fclose(stream) != 0 || failed) {
        free(*text);
        return cod_fail(COD_ERR_MEMORY, "out of memory for the table");
    }
    return COD_OK;
}

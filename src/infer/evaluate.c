#include "infer/evaluate.h"

#include "core/log.h"
#include "data/faults.h"
#include "data/files.h"
#include "data/perceptual_index.h"
#include "data/resize.h"
#include "data/staged.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const cod_metric_names[] = {"psnr", "ssim", "niqe", "pi", "lpips", NULL};

cod_status cod_metrics_parse(const char *text, unsigned *metrics)
{
    *metrics = 0;
    for (const char *at = text;; at++) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, ", ");
        int i = 0;
        while (cod_metric_names[i] != NULL &&
               (strlen(cod_metric_names[i]) != length || strncmp(cod_metric_names[i], at, length) != 0))
            i++;
        if (cod_metric_names[i] == NULL)
            return cod_fail(COD_ERR_ARGUMENT, "unknown metric '%.*s'; known are psnr, ssim, niqe, pi and lpips",
                            (int)length, at);
        *metrics |= 1u << i;
        at += length + strspn(at + length, " ");
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

/** Makes the upscaler's input and the truth from a picture. */
static cod_status bring_down(const cod_image *picture, int scale, cod_image *truth, cod_image *low)
{
    enum { SSIM_WINDOW = 11 };
    const int least = SSIM_WINDOW + 2 * scale;
    COD_REQUIRE(picture->channels == 3 && picture->bits == 8, "only 8-bit RGB pictures are evaluated");
    COD_REQUIRE(picture->width / scale * scale >= least && picture->height / scale * scale >= least,
                "%lldx%lld pixels are too few; at least %d to a side are needed at scale %d", (long long)picture->width,
                (long long)picture->height, (least + scale - 1) / scale * scale, scale);
    COD_TRY(cut_to_multiple(picture, scale, truth));
    return cod_image_resize(truth, 1.0 / scale, low);
}

cod_status cod_evaluate_image(cod_upscaler *upscaler, const cod_image *truth, cod_quality *quality, cod_image *upscaled)
{
    cod_image cut = {0}, low = {0};
    cod_status status = bring_down(truth, cod_upscaler_scale(upscaler), &cut, &low);
    COD_THEN(status, cod_evaluate_pair(upscaler, &low, &cut, quality, upscaled));
    cod_image_clear(&low);
    cod_image_clear(&cut);
    return status;
}

cod_evaluated cod_evaluated_unknown(const char *file)
{
    return (cod_evaluated){file, {NAN, NAN, NAN, NAN}, NAN, NAN, NAN, NAN, NAN};
}

/** Leaves figures unknown that a picture is too small for, with a warning; other failures are passed on. */
static cod_status too_small(cod_status status, const char *name, const char *metric, double *a, double *b)
{
    if (status == COD_OK)
        return COD_OK;
    *a = *b = NAN;
    if (status == COD_ERR_ARGUMENT && name != NULL)
        cod_log_warn("%s has no %s: %s", name, metric, cod_error_message());
    return status == COD_ERR_ARGUMENT ? COD_OK : status;
}

cod_status cod_evaluate_upscaled(const cod_metrics_options *options, const char *name, const cod_image *upscaled,
                                 const cod_image *truth, int64_t crop, bool with_truth, cod_evaluated *image)
{
    COD_TRY(cod_image_compare(upscaled, truth, crop, &image->quality));
    if ((options->metrics & COD_METRIC_NIQE) != 0) {
        cod_status status = cod_niqe(upscaled, crop, options->niqe, &image->niqe);
        if (with_truth)
            COD_THEN(status, cod_niqe(truth, crop, options->niqe, &image->niqe_truth));
        COD_TRY(too_small(status, name, "NIQE", &image->niqe, &image->niqe_truth));
    }
    if ((options->metrics & COD_METRIC_PI) == 0)
        return COD_OK;
    COD_TRY(cod_rmse_y(upscaled, truth, crop, &image->rmse_y));
    return too_small(cod_perceptual_index(upscaled, crop, options->niqe, options->ma, &image->pi), name,
                     "perceptual index", &image->pi, &image->pi);
}

cod_status cod_evaluate_features(const cod_metrics_options *options, const char *name, const cod_image *upscaled,
                                 const cod_image *truth, int64_t crop, cod_evaluated *image)
{
    if ((options->metrics & COD_METRIC_LPIPS) == 0)
        return COD_OK;
    return too_small(cod_lpips_compare(options->lpips, upscaled, truth, crop, &image->lpips), name, "LPIPS",
                     &image->lpips, &image->lpips);
}

#define FIGURE(metric, key, label, width, digits, field)                                                               \
    {                                                                                                                  \
        metric, key, label, width, digits, offsetof(cod_evaluated, field)                                              \
    }
const cod_evaluated_figure cod_evaluated_figures[] = {
    FIGURE(COD_METRIC_PSNR, "psnr_y", "PSNR-Y dB", 9, 4, quality.psnr_y),
    FIGURE(COD_METRIC_SSIM, "ssim_y", "SSIM-Y", 7, 5, quality.ssim_y),
    FIGURE(COD_METRIC_PSNR, "psnr_rgb", "PSNR-RGB", 9, 4, quality.psnr_rgb),
    FIGURE(COD_METRIC_NIQE, "niqe", "NIQE", 7, 4, niqe),
    FIGURE(COD_METRIC_NIQE, "niqe_truth", "the original", 12, 4, niqe_truth),
    FIGURE(COD_METRIC_PI, "pi", "PI", 7, 4, pi),
    FIGURE(COD_METRIC_PI, "rmse_y", "RMSE-Y", 8, 4, rmse_y),
    FIGURE(COD_METRIC_LPIPS, "lpips", "LPIPS", 7, 4, lpips),
    {0},
};

void cod_evaluated_mean(cod_evaluated *images, size_t count, cod_evaluated *mean)
{
    *mean = cod_evaluated_unknown(mean->file);
    for (const cod_evaluated_figure *f = cod_evaluated_figures; f->key != NULL; f++) {
        const bool square = f->offset == offsetof(cod_evaluated, rmse_y);
        double sum = 0;
        size_t known = 0;
        for (size_t i = 0; i < count; i++) {
            const double value = *cod_evaluated_value(f, &images[i]);
            known += isnan(value) ? 0 : 1;
            sum += isnan(value) ? 0 : square ? value * value : value;
        }
        if (known > 0)
            *cod_evaluated_value(f, mean) = square ? sqrt(sum / (double)known) : sum / (double)known;
    }
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

/** A picture of the folder on its way. */
typedef struct folder_item {
    const cod_file *file;
    cod_image truth, low, upscaled;
    cod_evaluated result;
    cod_status status; /**< why it is left out */
    char message[512];
} folder_item;

typedef struct folder_work {
    cod_upscaler *upscaler;
    const cod_metrics_options *options;
    folder_item *items;
    size_t total;
    cod_evaluation *evaluation;
    cod_evaluation_progress progress;
    void *progress_context;
    cod_faults faults; /**< of what is left out */
} folder_work;

/** Leaves a picture out if its file caused the failure, so that the others can be evaluated. */
static cod_status leave_out(folder_item *item, cod_status status)
{
    const bool files_fault =
        status == COD_ERR_IO || status == COD_ERR_FORMAT || status == COD_ERR_UNSUPPORTED || status == COD_ERR_ARGUMENT;
    item->status = status;
    if (status != COD_OK)
        snprintf(item->message, sizeof item->message, "%s", cod_error_message());
    return files_fault ? COD_OK : status;
}

static cod_status read_file(const char *path, int scale, cod_image *truth, cod_image *low)
{
    cod_image picture;
    COD_TRY(cod_image_read(path, &picture));
    cod_status status = cod_image_to_rgb8(&picture);
    COD_THEN(status, bring_down(&picture, scale, truth, low));
    cod_image_clear(&picture);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

static cod_status prepare_file(void *context, size_t index)
{
    const folder_work *work = context;
    folder_item *item = &work->items[index];
    return leave_out(item, read_file(item->file->path, cod_upscaler_scale(work->upscaler), &item->truth, &item->low));
}

static cod_status upscale_file(void *context, size_t index)
{
    const folder_work *work = context;
    folder_item *item = &work->items[index];
    if (item->status != COD_OK)
        return COD_OK;
    cod_status status = cod_upscaler_run(work->upscaler, &item->low, NULL, NULL, &item->upscaled);
    COD_THEN(status, cod_evaluate_features(work->options, item->file->path, &item->upscaled, &item->truth,
                                           cod_upscaler_scale(work->upscaler), &item->result));
    return leave_out(item, status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", item->file->path));
}

static void clear_item(folder_item *item)
{
    cod_image_clear(&item->truth);
    cod_image_clear(&item->low);
    cod_image_clear(&item->upscaled);
}

static cod_status judge_file(void *context, size_t index)
{
    const folder_work *work = context;
    folder_item *item = &work->items[index];
    cod_status status = COD_OK;
    if (item->status == COD_OK) {
        status = cod_evaluate_upscaled(work->options, item->file->path, &item->upscaled, &item->truth,
                                       cod_upscaler_scale(work->upscaler), true, &item->result);
        status = leave_out(item, status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", item->file->path));
    }
    clear_item(item);
    return status;
}

static void take_file(void *context, size_t index)
{
    folder_work *work = context;
    const folder_item *item = &work->items[index];
    cod_evaluation *evaluation = work->evaluation;
    if (item->status != COD_OK) {
        cod_faults_add(&work->faults, "%s", item->message);
        evaluation->skipped++;
        return;
    }
    evaluation->images[evaluation->count++] = item->result;
    if (work->progress != NULL)
        work->progress(work->progress_context, index + 1, work->total, &item->result);
}

static cod_status evaluate_files(folder_work *work, const cod_file_list *files)
{
    const cod_staged staged = {work, prepare_file, upscale_file, judge_file, take_file};
    cod_evaluation *evaluation = work->evaluation;
    for (size_t i = 0; i < files->count; i++) {
        if (cod_evaluation_is_low(files, files->items[i].name))
            continue;
        const char *name = cod_arena_strdup(&evaluation->arena, files->items[i].name);
        COD_REQUIRE_MEMORY(name);
        work->items[work->total++] = (folder_item){.file = &files->items[i], .result = cod_evaluated_unknown(name)};
    }
    const cod_status status = cod_staged_run(&staged, work->total, work->options->threads);
    for (size_t i = 0; i < work->total; i++)
        clear_item(&work->items[i]);
    COD_TRY(status);
    char text[COD_FAULTS_TEXT];
    if (evaluation->count == 0)
        return cod_fail(COD_ERR_ARGUMENT, "none of the %zu pictures can be used: %s", evaluation->skipped,
                        cod_faults_first(&work->faults, "; ", text));
    cod_faults_report(&work->faults, work->total, "pictures", NULL);
    evaluation->mean.file = "mean";
    cod_evaluated_mean(evaluation->images, evaluation->count, &evaluation->mean);
    return COD_OK;
}

static cod_status evaluate_found(folder_work *work, const char *folder, const cod_file_list *files)
{
    cod_evaluation *evaluation = work->evaluation;
    if (files->count == 0)
        return cod_fail(COD_ERR_ARGUMENT, "%s: no pictures (PNG, JPEG, WebP, TIFF or BMP) in it", folder);
    evaluation->images = cod_arena_alloc(&evaluation->arena, files->count * sizeof *evaluation->images);
    COD_REQUIRE_MEMORY(evaluation->images);
    work->items = calloc(files->count, sizeof *work->items);
    COD_REQUIRE_MEMORY(work->items);
    const cod_status status = evaluate_files(work, files);
    free(work->items);
    cod_faults_clear(&work->faults);
    return status == COD_ERR_ARGUMENT ? cod_fail_prefix(status, "%s", folder) : status;
}

cod_status cod_evaluate_folder(cod_upscaler *upscaler, const char *folder, const cod_metrics_options *options,
                               cod_evaluation_progress progress, void *context, cod_evaluation *evaluation)
{
    const cod_metrics_options usual = {.metrics = COD_METRIC_PSNR | COD_METRIC_SSIM};
    cod_file_list files = {0};
    options = options != NULL ? options : &usual;
    folder_work work = {.upscaler = upscaler,
                        .options = options,
                        .evaluation = evaluation,
                        .progress = progress,
                        .progress_context = context};
    *evaluation = (cod_evaluation){.metrics = options->metrics};
    COD_REQUIRE((options->metrics & COD_METRICS_OF_NIQE) == 0 || options->niqe != NULL, "NIQE needs its model");
    COD_REQUIRE((options->metrics & COD_METRIC_LPIPS) == 0 || options->lpips != NULL, "LPIPS needs its network");
    evaluation->pi_with_ma = options->ma != NULL;
    evaluation->lpips_weighted = options->lpips != NULL && cod_lpips_is_weighted(options->lpips);
    cod_status status = cod_files_find(&files, folder, 0);
    COD_THEN(status, evaluate_found(&work, folder, &files));
    cod_files_clear(&files);
    if (status != COD_OK)
        cod_evaluation_clear(evaluation);
    return status;
}

/* Super-resolution: PSNR and SSIM on held-out pictures, and pictures to look at. */
#include "data/crops.h"
#include "infer/evaluate.h"
#include "io/file.h"
#include "train/metrics.h"
#include "train/task_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct super_resolution {
    cod_train_task base;
    cod_dataset *data;
    cod_crops crops;
    cod_degrader *degrader; /**< NULL = low pictures are the data set's */
    bool validates_degraded;
    cod_upscaler *upscaler, *bicubic;
} super_resolution;

static void close_task(cod_train_task *task)
{
    super_resolution *s = (super_resolution *)task;
    cod_upscaler_destroy(s->upscaler);
    cod_upscaler_destroy(s->bicubic);
    cod_dataset_close(s->data);
    cod_degrader_destroy(s->degrader);
    free(s);
}

static cod_status open_data(cod_run_config *config, const cod_dataset_place *place, super_resolution *s)
{
    const cod_group_config *group = cod_run_config_group(config, place->group);
    cod_dataset_place scaled = *place;
    scaled.scale = group->kind->scale(group->architecture);
    COD_TRY(cod_dataset_open(&config->data, &scaled, &s->data));
    const cod_dataset_counts counts = cod_dataset_count(s->data);
    s->base.sizes[COD_SPLIT_TRAIN] = counts.train;
    s->base.sizes[COD_SPLIT_VAL] = counts.val;
    s->base.broken = counts.broken;
    s->base.unfit = counts.small;
    cod_crops_init(&s->crops, s->data, config->data.patch, config->data.augment);
    s->base.samples = cod_crops_samples(&s->crops);
    if (config->data.degradation == COD_DEGRADATION_REAL_ESRGAN)
        COD_TRY(cod_degrader_create(&config->degradation, scaled.scale, &s->degrader));
    s->crops.degrader = s->degrader;
    s->validates_degraded = config->eval.degraded;
    return COD_OK;
}

static cod_status open_task(cod_run_config *config, const cod_dataset_place *place, cod_train_task **out)
{
    super_resolution *s = calloc(1, sizeof *s);
    COD_REQUIRE_MEMORY(s);
    s->base.kind = &cod_task_super_resolution;
    const cod_status status = open_data(config, place, s);
    if (status != COD_OK) {
        close_task(&s->base);
        return status;
    }
    *out = &s->base;
    return COD_OK;
}

static cod_status attach(cod_train_task *task, const cod_model *model, cod_weights *weights, cod_dtype activation)
{
    super_resolution *s = (super_resolution *)task;
    const cod_upscaler_options options = {.precision = activation == COD_BF16 ? COD_PRECISION_BF16 : COD_PRECISION_F32};
    COD_TRY(cod_upscaler_create(model, weights, &options, &s->upscaler));
    return cod_upscaler_create_bicubic(cod_dataset_scale(s->data), &s->bicubic);
}

/** Copies `from` into columns of `sheet` from `column` on, each pixel `factor` times as large. */
static void paste(cod_image *sheet, int64_t column, const cod_image *from, int64_t factor)
{
    const unsigned char *pixels = from->pixels;
    unsigned char *out = sheet->pixels;
    for (int64_t y = 0; y < sheet->height && y / factor < from->height; y++)
        for (int64_t x = 0; x < from->width * factor && column + x < sheet->width; x++)
            memcpy(out + 3 * (y * sheet->width + column + x), pixels + 3 * ((y / factor) * from->width + x / factor),
                   3);
}

/** samples/step-S-group-G-I.png: low, bicubic, ours and truth side by side. */
static cod_status write_sample(super_resolution *s, const cod_task_evaluation *what, size_t index, const cod_image *low,
                               const cod_image *ours, const cod_image *truth)
{
    enum { GAP = 8 };
    char path[4096];
    cod_image sheet = {0}, bicubic = {0};
    cod_status status = COD_OK;
    snprintf(path, sizeof path, "%s/samples", what->folder);
    COD_TRY(cod_folder_create(path));
    COD_TRY_GOTO(status, end, cod_upscaler_run(s->bicubic, low, NULL, NULL, &bicubic));
    COD_TRY_GOTO(status, end, cod_image_init(&sheet, 4 * truth->width + 3 * GAP, truth->height, 3, 8));
    memset(sheet.pixels, 255, cod_image_bytes(&sheet));
    const cod_image *const columns[] = {low, &bicubic, ours, truth};
    for (int i = 0; i < 4; i++)
        paste(&sheet, i * (truth->width + GAP), columns[i], i == 0 ? truth->width / low->width : 1);
    snprintf(path, sizeof path, "%s/samples/step-%07lld-group-%d-%zu.png", what->folder, (long long)what->step,
             what->group, index);
    COD_TRY_GOTO(status, end, cod_image_write_png(path, &sheet));
    void *png = NULL;
    size_t bytes = 0;
    COD_TRY_GOTO(status, end, cod_file_read(path, 256u << 20, &png, &bytes));
    char tag[32];
    snprintf(tag, sizeof tag, "sample/%zu", index);
    if (what->metrics != NULL)
        status = cod_metrics_image(what->metrics, what->step, tag, (int)sheet.width, (int)sheet.height, png, bytes);
    free(png);
end:
    cod_image_clear(&sheet);
    cod_image_clear(&bicubic);
    return status;
}

/** The low picture that is enlarged: the pair's, or its true one degraded in a way that follows from its number. */
static cod_status make_low(super_resolution *s, size_t index, const cod_pair *pair, cod_degraded *degraded,
                           cod_image *low)
{
    const int scale = cod_dataset_scale(s->data);
    const cod_sample_place place = {.position = index};
    const cod_degrade_region whole = {.picture = pair->high,
                                      .picture_width = pair->low_width * scale,
                                      .picture_height = pair->low_height * scale,
                                      .low_width = pair->low_width,
                                      .low_height = pair->low_height};
    const uint8_t *pixels = pair->low;
    cod_degradation degradation;
    *degraded = (cod_degraded){0};
    if (s->validates_degraded) {
        cod_degradation_draw(cod_degrader_options(s->degrader), &place, &degradation);
        COD_TRY(cod_degrade(s->degrader, &degradation, &place, &whole, degraded));
        pixels = degraded->pixels;
    }
    *low = (cod_image){pair->low_width, pair->low_height, 3, 8, (void *)(uintptr_t)pixels};
    return COD_OK;
}

/** Quality on one picture. @param show  also write it to samples/; NULL = no */
static cod_status evaluate_one(super_resolution *s, cod_upscaler *upscaler, cod_split split, size_t index,
                               const cod_task_evaluation *show, cod_quality *quality)
{
    cod_pair pair;
    cod_degraded degraded;
    cod_image low, ours = {0};
    const int scale = cod_dataset_scale(s->data);
    COD_TRY(cod_dataset_read(s->data, split, index, &pair));
    const cod_image truth = {pair.low_width * scale, pair.low_height * scale, 3, 8, (void *)(uintptr_t)pair.high};
    cod_status status = make_low(s, index, &pair, &degraded, &low);
    if (status == COD_OK)
        status = cod_evaluate_pair(upscaler, &low, &truth, quality, &ours);
    if (status == COD_OK && show != NULL)
        status = write_sample(s, show, index, &low, &ours, &truth);
    cod_image_clear(&ours);
    cod_degraded_clear(&degraded);
    cod_pair_clear(&pair);
    return status;
}

static cod_status evaluate(cod_train_task *task, const cod_task_evaluation *what, cod_task_quality *mean)
{
    super_resolution *s = (super_resolution *)task;
    const size_t available = s->base.sizes[what->split];
    const size_t count = what->limit > 0 && (size_t)what->limit < available ? (size_t)what->limit : available;
    *mean = count > 0 ? (cod_task_quality){{0}} : cod_task_quality_unknown();
    for (size_t i = 0; i < count; i++) {
        cod_quality one;
        const bool shown = (int64_t)i < what->shown;
        COD_TRY(evaluate_one(s, s->upscaler, what->split, i, shown ? what : NULL, &one));
        mean->values[0] += one.psnr_y / (double)count;
        mean->values[1] += one.ssim_y / (double)count;
        mean->values[2] += one.psnr_rgb / (double)count;
    }
    return COD_OK;
}

static cod_status measure_baseline(cod_train_task *task, cod_split split, double *value)
{
    super_resolution *s = (super_resolution *)task;
    const size_t count = s->base.sizes[split];
    *value = count > 0 ? 0 : NAN;
    for (size_t i = 0; i < count; i++) {
        cod_quality quality;
        COD_TRY(evaluate_one(s, s->bicubic, split, i, NULL, &quality));
        *value += quality.psnr_y / (double)count;
    }
    return COD_OK;
}

const cod_train_task_kind cod_task_super_resolution = {
    .task = COD_TASK_SUPER_RESOLUTION,
    .figures = {{.key = "psnr_y", .label = "psnr", .unit = "dB", .digits = 2},
                {.key = "ssim_y", .label = "ssim", .unit = "", .digits = 4},
                {.key = "psnr_rgb", .label = "psnr of rgb", .unit = "dB", .digits = 2}},
    .figure_count = 3,
    .baseline = {"bicubic_psnr_y", "bicubic"},
    .items = "pictures",
    .loss = COD_LOSS_L1,
    .distill = COD_LOSS_L1,
    .distill_weight = 0.1,
    .eval_items = 8,
    .open = open_task,
    .attach = attach,
    .evaluate = evaluate,
    .measure_baseline = measure_baseline,
    .close = close_task,
};

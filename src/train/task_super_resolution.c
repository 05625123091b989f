/* Super-resolution: figures of held-out pictures, and pictures to look at. */
#include "core/log.h"
#include "data/crops.h"
#include "data/staged.h"
#include "infer/closeup.h"
#include "infer/evaluate.h"
#include "io/file.h"
#include "train/metrics.h"
#include "train/picture_set_internal.h"
#include "train/recipe.h"
#include "train/task_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct super_resolution {
    cod_train_task base;
    cod_dataset *data;
    picture_set sets[COD_DATA_MAX_SETS];
    cod_crops crops;
    cod_sharpener *sharpener; /**< NULL = truth is as it is */
    cod_degrader *degrader;   /**< NULL = low pictures are the data set's */
    cod_degrader *validator;  /**< with eval.degraded: of whole pictures, apart from the loader's small ones */
    cod_upscaler *upscaler, *bicubic;
    const cod_backend *backend; /**< that the upscaler is on, with the next two */
    cod_device *device;
    cod_precision precision;
    const cod_eval_options *eval;
    cod_metrics_options metrics; /**< with the next three */
    cod_niqe_model niqe;
    cod_ma_model ma;
    cod_lpips *lpips;
    int threads; /**< that read and judge held-out pictures: as many as read those for training */
    bool warned;
} super_resolution;

static void close_task(cod_train_task *task)
{
    super_resolution *s = (super_resolution *)task;
    cod_upscaler_destroy(s->upscaler);
    cod_upscaler_destroy(s->bicubic);
    cod_lpips_destroy(s->lpips);
    cod_ma_model_clear(&s->ma);
    cod_dataset_close(s->data);
    for (size_t i = 0; i < COD_DATA_MAX_SETS; i++)
        picture_set_close(&s->sets[i]);
    cod_degrader_destroy(s->degrader);
    cod_degrader_destroy(s->validator);
    cod_sharpener_destroy(s->sharpener);
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
    s->base.held_out_key = cod_dataset_held_out_key(s->data);
    cod_crops_init(&s->crops, s->data, config->data.patch, config->data.augment);
    s->crops.permute_channels = config->data.permute_channels;
    s->crops.truth = cod_recipe_truth(config);
    if (s->crops.truth != COD_TRUTH_PLAIN)
        COD_TRY(cod_sharpener_create(&s->sharpener));
    s->crops.sharpener = s->sharpener;
    s->base.samples = cod_crops_samples(&s->crops);
    if (config->data.degradation == COD_DEGRADATION_REAL_ESRGAN)
        COD_TRY(cod_degrader_create(&config->degradation, scaled.scale, &s->degrader));
    s->crops.degrader = s->degrader;
    if (config->eval.degraded)
        COD_TRY(cod_degrader_create(&config->degradation, scaled.scale, &s->validator));
    return COD_OK;
}

static cod_status open_task(cod_run_config *config, const cod_dataset_place *place, cod_train_task **out)
{
    super_resolution *s = calloc(1, sizeof *s);
    COD_REQUIRE_MEMORY(s);
    s->base.kind = config->task;
    s->eval = &config->eval;
    s->threads = (int)config->data.threads;
    const cod_status status = open_data(config, place, s);
    if (status != COD_OK) {
        close_task(&s->base);
        return status;
    }
    *out = &s->base;
    return COD_OK;
}

static cod_status open_sets(cod_train_task *task, const cod_run_config *config, bool report)
{
    super_resolution *s = (super_resolution *)task;
    for (; task->set_count < config->data.val_sets.count; task->set_count++)
        COD_TRY(picture_set_open(&s->sets[task->set_count], task, config, cod_dataset_scale(s->data), report));
    return COD_OK;
}

/** Options and models for the run's figures; the network of LPIPS is on the weights' device. */
static cod_status open_metrics(super_resolution *s, const cod_weights *weights)
{
    const cod_train_task_kind *kind = s->base.kind;
    s->metrics.metrics = 0;
    for (int i = 0; i < kind->figure_count; i++)
        for (const cod_evaluated_figure *f = cod_evaluated_figures; f->key != NULL; f++)
            if (strcmp(f->key, kind->figures[i].key) == 0)
                s->metrics.metrics |= f->metric;
    s->metrics.niqe = &s->niqe;
    if ((s->metrics.metrics & COD_METRICS_OF_NIQE) != 0)
        COD_TRY(cod_niqe_model_load(s->eval->niqe_model, &s->niqe));
    if ((s->metrics.metrics & COD_METRIC_PI) != 0 && s->eval->ma_model[0] != '\0') {
        COD_TRY(cod_ma_model_load(s->eval->ma_model, &s->ma));
        s->metrics.ma = &s->ma;
    }
    if ((s->metrics.metrics & COD_METRIC_LPIPS) != 0)
        COD_TRY(cod_lpips_create(s->eval->lpips_network, s->eval->lpips_weights, weights->backend, weights->device,
                                 &s->lpips));
    s->metrics.lpips = s->lpips;
    return COD_OK;
}

static cod_status attach(cod_train_task *task, const cod_model *model, cod_weights *weights, cod_dtype activation)
{
    super_resolution *s = (super_resolution *)task;
    const cod_upscaler_options options = {.precision = activation == COD_BF16 ? COD_PRECISION_BF16 : COD_PRECISION_F32};
    COD_TRY(cod_upscaler_create(model, weights, &options, &s->upscaler));
    s->backend = weights->backend, s->device = weights->device, s->precision = options.precision;
    COD_TRY(cod_upscaler_create_bicubic(cod_dataset_scale(s->data), &s->bicubic));
    return open_metrics(s, weights);
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

/** Four pictures side by side: the low one, enlarged without interpolation, and three of one size. */
static cod_status draw_sheet(const cod_image *low, const cod_image *bicubic, const cod_image *ours,
                             const cod_image *truth, cod_image *sheet)
{
    enum { GAP = 8 };
    COD_TRY(cod_image_init(sheet, 4 * truth->width + 3 * GAP, truth->height, 3, 8));
    memset(sheet->pixels, 255, cod_image_bytes(sheet));
    const cod_image *const columns[] = {low, bicubic, ours, truth};
    for (int i = 0; i < 4; i++)
        paste(sheet, i * (truth->width + GAP), columns[i], i == 0 ? truth->width / low->width : 1);
    return COD_OK;
}

/** Adds the picture that was written to `path` to the metrics. */
static cod_status report_sample(const cod_task_evaluation *what, size_t index, const char *path, const cod_image *sheet)
{
    void *png = NULL;
    size_t bytes = 0;
    char tag[32];
    cod_status status = cod_file_read(path, 256u << 20, &png, &bytes);
    snprintf(tag, sizeof tag, "sample/%zu", index);
    if (what->metrics != NULL)
        COD_THEN(status,
                 cod_metrics_image(what->metrics, what->step, tag, (int)sheet->width, (int)sheet->height, png, bytes));
    free(png);
    return status;
}

/** samples/step-S-group-G-I.png: low, bicubic, ours and truth side by side. */
static cod_status write_sample(super_resolution *s, const cod_task_evaluation *what, size_t index, const cod_image *low,
                               const cod_image *ours, const cod_image *truth)
{
    char path[4096];
    cod_image sheet = {0}, bicubic = {0};
    snprintf(path, sizeof path, "%s/samples", what->folder);
    COD_TRY(cod_folder_create(path));
    snprintf(path, sizeof path, "%s/samples/step-%07lld-group-%d-%zu.png", what->folder, (long long)what->step,
             what->group, index);
    COD_TRY(cod_file_clean(path)); /* of who was killed while it wrote it */
    cod_status status = cod_upscaler_run(s->bicubic, low, NULL, NULL, &bicubic);
    COD_THEN(status, draw_sheet(low, &bicubic, ours, truth, &sheet));
    COD_THEN(status, cod_image_write_png(path, &sheet));
    COD_THEN(status, report_sample(what, index, path, &sheet));
    cod_image_clear(&sheet);
    cod_image_clear(&bicubic);
    return status;
}

/**
 * The low picture that is enlarged: the pair's, or its true one degraded in a way that follows from its number. That is
 * copied, as a degrader's memory is many times as large.
 */
static cod_status make_low(super_resolution *s, size_t index, const cod_pair *pair, void **copy, cod_image *low)
{
    const int scale = cod_dataset_scale(s->data);
    const cod_sample_place place = {.position = index};
    const cod_degrade_region whole = {.picture = pair->high,
                                      .picture_width = pair->low_width * scale,
                                      .picture_height = pair->low_height * scale,
                                      .low_width = pair->low_width,
                                      .low_height = pair->low_height};
    cod_degradation degradation;
    cod_degraded degraded;
    *low = (cod_image){.width = pair->low_width,
                       .height = pair->low_height,
                       .channels = 3,
                       .bits = 8,
                       .pixels = (void *)(uintptr_t)pair->low};
    if (s->validator == NULL)
        return COD_OK;
    low->pixels = *copy = malloc(cod_image_bytes(low));
    COD_REQUIRE_MEMORY(*copy);
    cod_degradation_draw(cod_degrader_options(s->validator), &place, &degradation);
    COD_TRY(cod_degrade(s->validator, &degradation, &place, &whole, &degraded));
    memcpy(*copy, degraded.pixels, cod_image_bytes(low));
    cod_degraded_clear(&degraded);
    return COD_OK;
}

/** A held-out picture on its way. */
typedef struct eval_item {
    cod_pair pair;
    void *degraded; /**< with eval.degraded: the low picture's memory */
    cod_image low, truth;
    cod_image ours;
} eval_item;

typedef struct eval_work {
    super_resolution *s;
    cod_upscaler *upscaler;
    cod_split split;
    const picture_set *set;          /**< in place of the split; NULL = the split */
    const cod_task_evaluation *show; /**< whose `shown` pictures go to samples/; NULL = none */
    eval_item *items;
    cod_evaluated *results;
} eval_work;

static cod_status read_item(const eval_work *w, size_t index, eval_item *item)
{
    const int scale = cod_dataset_scale(w->s->data);
    if (w->set != NULL)
        COD_TRY(cod_dataset_read(w->set->data, COD_SPLIT_TRAIN, w->set->pictures[index], &item->pair));
    else
        COD_TRY(cod_dataset_read(w->s->data, w->split, index, &item->pair));
    const cod_pair *pair = &item->pair;
    COD_TRY(make_low(w->s, index, pair, &item->degraded, &item->low));
    item->truth = (cod_image){.width = pair->low_width * scale,
                              .height = pair->low_height * scale,
                              .channels = 3,
                              .bits = 8,
                              .pixels = (void *)(uintptr_t)pair->high};
    return COD_OK;
}

static cod_status read_picture(void *context, size_t index)
{
    const eval_work *w = context;
    return read_item(w, index, &w->items[index]);
}

static cod_status upscale_picture(void *context, size_t index)
{
    const eval_work *w = context;
    eval_item *item = &w->items[index];
    COD_TRY(cod_upscaler_run(w->upscaler, &item->low, NULL, NULL, &item->ours));
    if (w->show != NULL && (int64_t)index < w->show->shown)
        COD_TRY(write_sample(w->s, w->show, index, &item->low, &item->ours, &item->truth));
    return cod_evaluate_features(&w->s->metrics, NULL, &item->ours, &item->truth, cod_upscaler_scale(w->upscaler),
                                 &w->results[index]);
}

static void clear_picture(eval_item *item)
{
    cod_image_clear(&item->ours);
    free(item->degraded);
    item->degraded = NULL;
    cod_pair_clear(&item->pair);
}

static cod_status judge_picture(void *context, size_t index)
{
    const eval_work *w = context;
    eval_item *item = &w->items[index];
    const cod_status status = cod_evaluate_upscaled(&w->s->metrics, NULL, &item->ours, &item->truth,
                                                    cod_upscaler_scale(w->upscaler), false, &w->results[index]);
    clear_picture(item);
    return status;
}

/** The run's figures, of a picture's or a mean. */
static void take_figures(const cod_train_task_kind *kind, cod_evaluated *mean, cod_task_quality *out)
{
    for (int i = 0; i < kind->figure_count; i++)
        for (const cod_evaluated_figure *f = cod_evaluated_figures; f->key != NULL; f++)
            if (strcmp(f->key, kind->figures[i].key) == 0)
                out->values[i] = *cod_evaluated_value(f, mean);
}

/** w->items and w->results have room for `count`. */
static cod_status evaluate_items(eval_work *w, size_t count, cod_task_quality *mean)
{
    const cod_staged staged = {w, read_picture, upscale_picture, judge_picture, NULL};
    super_resolution *s = w->s;
    cod_evaluated all = cod_evaluated_unknown("mean");
    for (size_t i = 0; i < count; i++)
        w->results[i] = cod_evaluated_unknown(NULL);
    const cod_status status = cod_staged_run(&staged, count, s->threads);
    for (size_t i = 0; i < count; i++)
        clear_picture(&w->items[i]);
    if (s->validator != NULL)
        cod_degrader_trim(s->validator);
    COD_TRY(status);
    cod_evaluated_mean(w->results, count, &all);
    take_figures(s->base.kind, &all, mean);
    return COD_OK;
}

/** Means over the first `count` pictures of a split. */
static cod_status evaluate_pictures(eval_work *w, size_t count, cod_task_quality *mean)
{
    w->items = calloc(count, sizeof *w->items);
    w->results = calloc(count, sizeof *w->results);
    cod_status status = w->items != NULL && w->results != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, evaluate_items(w, count, mean));
    free(w->items);
    free(w->results);
    return status;
}

static cod_status evaluate(cod_train_task *task, const cod_task_evaluation *what, cod_task_quality *mean)
{
    super_resolution *s = (super_resolution *)task;
    const size_t available = what->set > 0 ? task->sets[what->set - 1].size : s->base.sizes[what->split];
    const size_t count = what->limit > 0 && (size_t)what->limit < available ? (size_t)what->limit : available;
    eval_work work = {.s = s,
                      .upscaler = s->upscaler,
                      .split = what->split,
                      .set = what->set > 0 ? &s->sets[what->set - 1] : NULL,
                      .show = what->set > 0 ? NULL : what};
    *mean = cod_task_quality_unknown();
    if (count == 0)
        return COD_OK;
    COD_TRY(evaluate_pictures(&work, count, mean));
    if (isnan(mean->values[0]) && what->set == task->judge && !s->warned) {
        cod_log_warn(
            "group %d: none of %zu held-out pictures has a value of %s, by which the best model is chosen: each "
            "is too small for it, or what the model made of it is flat",
            what->group, count, s->base.kind->figures[0].label);
        s->warned = true;
    }
    return COD_OK;
}

static cod_status measure_baseline(cod_train_task *task, cod_split split, int64_t limit, cod_task_quality *mean)
{
    super_resolution *s = (super_resolution *)task;
    const size_t available = s->base.sizes[split];
    const size_t count = limit > 0 && (size_t)limit < available ? (size_t)limit : available;
    eval_work work = {.s = s, .upscaler = s->bicubic, .split = split};
    *mean = cod_task_quality_unknown();
    if (count > 0 && s->bicubic != NULL) /* NULL: the model has diverged before it was evaluated */
        COD_TRY(evaluate_pictures(&work, count, mean));
    for (int i = 0; i < s->base.kind->figure_count; i++)
        if (s->base.kind->figures[i].baseline == NULL)
            mean->values[i] = NAN;
    return COD_OK;
}

/** A few pictures, evenly spread over the held-out ones. */
static cod_status show_pictures(super_resolution *s, cod_upscaler *upscaler, const char *folder, cod_json *json)
{
    const size_t held = s->base.sizes[COD_SPLIT_VAL], count = held < COD_CLOSEUPS ? held : COD_CLOSEUPS;
    for (size_t i = 0; i < count; i++) {
        const size_t index = i * held / count;
        char name[32];
        snprintf(name, sizeof name, "crops/%zu", i);
        eval_item item = {0};
        eval_work work = {.s = s, .upscaler = upscaler, .split = COD_SPLIT_VAL, .items = &item};
        cod_status status = read_item(&work, index, &item);
        COD_THEN(status, cod_closeup_show(&item.low, &item.truth, upscaler, "ours",
                                          cod_dataset_name(s->data, COD_SPLIT_VAL, index), folder, name, json));
        clear_picture(&item);
        COD_TRY(status);
    }
    return COD_OK;
}

static cod_status show(cod_train_task *task, const char *model, const char *folder, cod_json *json)
{
    super_resolution *s = (super_resolution *)task;
    const cod_upscaler_options options = {.precision = s->precision};
    cod_upscaler *upscaler = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/crops", folder);
    COD_TRY(cod_folder_create(path));
    COD_TRY(cod_folder_clean(path)); /* of who was killed while it wrote one */
    COD_TRY(cod_upscaler_open(model, s->backend, s->device, &options, &upscaler));
    cod_json_open(json, "crops", '[');
    const cod_status status = show_pictures(s, upscaler, folder, json);
    cod_json_close(json);
    cod_upscaler_destroy(upscaler);
    return status;
}

const cod_train_task_kind cod_task_super_resolution = {
    .task = COD_TASK_SUPER_RESOLUTION,
    .figures =
        {
            {.key = "psnr_y", .label = "psnr", .unit = "dB", .digits = 2, .baseline = "bicubic_psnr_y"},
            {.key = "ssim_y", .label = "ssim", .unit = "", .digits = 4, .baseline = "bicubic_ssim_y"},
            {.key = "psnr_rgb", .label = "psnr of rgb", .unit = "dB", .digits = 2},
            {.key = "niqe",
             .label = "niqe",
             .unit = "",
             .digits = 3,
             .less_is_better = true,
             .baseline = "bicubic_niqe"},
            {.key = "pi", .label = "pi", .unit = "", .digits = 3, .less_is_better = true, .baseline = "bicubic_pi"},
            {.key = "rmse_y", .label = "rmse of y", .unit = "", .digits = 2, .less_is_better = true},
            {.key = "lpips",
             .label = "lpips",
             .unit = "",
             .digits = 4,
             .less_is_better = true,
             .baseline = "bicubic_lpips"},
        },
    .figure_count = 7,
    .baseline = "bicubic",
    .items = "pictures",
    .loss = COD_LOSS_L1,
    .distill = COD_LOSS_L1,
    .distill_weight = 0.1,
    .eval_items = 8,
    .open = open_task,
    .open_sets = open_sets,
    .attach = attach,
    .evaluate = evaluate,
    .measure_baseline = measure_baseline,
    .show = show,
    .close = close_task,
};

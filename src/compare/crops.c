/* Parts of held-out pictures, the same for every arm: the truth, bicubic, and the result of each arm's first group. */
#include "compare/compare_internal.h"

#include "core/backend.h"
#include "data/dataset.h"
#include "data/detail.h"
#include "infer/session.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CROPS = 3,
    SIDE = 24,   /**< of a crop, low-resolution pixels */
    MARGIN = 20, /**< computed around it, so that its border is what it is within the whole picture */
};

typedef struct crop {
    cod_image low;                    /**< with the margin */
    int64_t left, top, width, height; /**< of what is shown, within `low` */
    cod_image truth;                  /**< of what is shown */
    const char *title;                /**< borrowed from the data set */
} crop;

static void clear_crop(crop *one)
{
    cod_image_clear(&one->low);
    cod_image_clear(&one->truth);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/** The liveliest part of a picture. */
static cod_status choose(const cod_pair *pair, int scale, crop *out)
{
    const int64_t width = least(SIDE, pair->low_width), height = least(SIDE, pair->low_height);
    int64_t left, top;
    cod_detail_find(pair->low, pair->low_width, pair->low_height, width, height, &left, &top);
    const int64_t x = left > MARGIN ? left - MARGIN : 0, y = top > MARGIN ? top - MARGIN : 0;
    const int64_t end_x = least(left + width + MARGIN, pair->low_width),
                  end_y = least(top + height + MARGIN, pair->low_height);
    out->left = left - x, out->top = top - y, out->width = width, out->height = height;
    COD_TRY(cod_detail_cut(pair->low, pair->low_width, x, y, end_x - x, end_y - y, &out->low));
    return cod_detail_cut(pair->high, pair->low_width * scale, left * scale, top * scale, width * scale, height * scale,
                          &out->truth);
}

/** 10·log10 of peak² over the mean square error of all channels. */
static double psnr_of(const cod_image *image, const cod_image *truth)
{
    const size_t count = cod_image_bytes(image);
    const uint8_t *a = image->pixels, *b = truth->pixels;
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)count / sum) : NAN;
}

static cod_status write_image(cod_json *json, const char *folder, const char *file, const char *label,
                              const cod_image *image, double psnr)
{
    char path[COD_COMPARE_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    COD_TRY(cod_image_write_png(path, image));
    cod_json_open(json, NULL, '{');
    cod_json_string(json, "label", label);
    cod_json_string(json, "png", file);
    if (!isnan(psnr))
        cod_json_number(json, "psnr", psnr);
    cod_json_close(json);
    return COD_OK;
}

/** Enlarges a crop by a model's file (or bicubic) and writes it. */
static cod_status write_enlarged(const crop *one, int scale, const char *model, const char *label, const char *folder,
                                 const char *file, cod_json *json)
{
    cod_session_options options;
    cod_session session = {0};
    cod_arena arena = {0};
    cod_image large = {0}, part = {0};
    cod_status status = cod_options_set_defaults(&cod_session_option_table, &options, &arena);
    options.scale = scale;
    options.device = COD_DEVICE_CPU; /* one small crop at a time is not worth opening a GPU */
    COD_THEN(status, cod_session_open(model, &options, &session));
    COD_THEN(status, cod_upscaler_run(session.upscaler, &one->low, NULL, NULL, &large));
    COD_THEN(status, cod_detail_cut(large.pixels, large.width, one->left * scale, one->top * scale, one->width * scale,
                                    one->height * scale, &part));
    COD_THEN(status, write_image(json, folder, file, label, &part, psnr_of(&part, &one->truth)));
    cod_image_clear(&large);
    cod_image_clear(&part);
    cod_session_close(&session);
    cod_arena_clear(&arena);
    return status;
}

static cod_status write_crop(const cod_comparison *c, const char *folder, const crop *one, int index, int scale,
                             cod_json *json)
{
    char file[64];
    const char *name = strrchr(one->title, '/');
    cod_json_open(json, NULL, '{');
    cod_json_string(json, "title", name != NULL ? name + 1 : one->title);
    cod_json_open(json, "size", '[');
    cod_json_integer(json, NULL, one->truth.width);
    cod_json_integer(json, NULL, one->truth.height);
    cod_json_close(json);
    cod_json_open(json, "images", '[');
    snprintf(file, sizeof file, "crops/%d-truth.png", index);
    COD_TRY(write_image(json, folder, file, "truth", &one->truth, NAN));
    snprintf(file, sizeof file, "crops/%d-bicubic.png", index);
    COD_TRY(write_enlarged(one, scale, COD_BICUBIC, "bicubic", folder, file, json));
    for (size_t i = 0; i < c->arm_count; i++) {
        const cod_compare_run *run = cod_compare_finished_run(c, i);
        char model[COD_COMPARE_PATH];
        if (run == NULL)
            continue;
        cod_compare_run_path(c, run, "group.0.safetensors", model);
        snprintf(file, sizeof file, "crops/%d-%zu.png", index, i);
        COD_TRY(write_enlarged(one, scale, model, c->arms[i].name, folder, file, json));
    }
    cod_json_close(json);
    cod_json_close(json);
    return COD_OK;
}

static cod_status write_all(const cod_comparison *c, const cod_dataset *data, const char *folder, cod_json *json)
{
    const size_t held = cod_dataset_count(data).val, count = held < CROPS ? held : CROPS;
    const int scale = cod_dataset_scale(data);
    for (size_t i = 0; i < count; i++) {
        const size_t index = i * held / count;
        cod_pair pair;
        crop one = {.title = cod_dataset_name(data, COD_SPLIT_VAL, index)};
        COD_TRY(cod_dataset_read(data, COD_SPLIT_VAL, index, &pair));
        cod_status status = choose(&pair, scale, &one);
        cod_pair_clear(&pair);
        COD_THEN(status, write_crop(c, folder, &one, (int)i, scale, json));
        clear_crop(&one);
        COD_TRY(status);
    }
    return COD_OK;
}

cod_status cod_compare_write_crops(const cod_comparison *c, const char *folder, cod_json *json)
{
    const cod_group_config *whole = &c->config.whole;
    char path[COD_COMPARE_PATH];
    cod_dataset *data = NULL;
    bool any = false;
    for (size_t i = 0; i < c->arm_count; i++)
        any = any || cod_compare_finished_run(c, i) != NULL;
    if (c->task->task != COD_TASK_SUPER_RESOLUTION || !any)
        return COD_OK;
    snprintf(path, sizeof path, "%s/crops", folder);
    COD_TRY(cod_folder_create(path));
    const cod_dataset_place place = {
        .scale = whole->kind->scale(whole->architecture), .seed = (uint64_t)c->seeds[0], .groups = 1};
    COD_TRY(cod_dataset_open(&c->config.data, &place, &data));
    cod_json_open(json, "crops", '[');
    const cod_status status = write_all(c, data, folder, json);
    cod_json_close(json);
    cod_dataset_close(data);
    return status;
}

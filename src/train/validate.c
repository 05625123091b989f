/* Quality on held-out pictures while training, and pictures to look at. */
#include "infer/model_file.h"
#include "train/trainer_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cod_status make_upscalers(trainer *t)
{
    const cod_train_context *context = &t->context;
    if (t->upscaler != NULL)
        return COD_OK;
    const cod_upscaler_options options = {.precision =
                                              context->activation == COD_BF16 ? COD_PRECISION_BF16 : COD_PRECISION_F32};
    COD_TRY(cod_weights_init(&t->eval_weights, context->backend, context->device, t->model.graph, COD_F32, false));
    COD_TRY(cod_upscaler_create(&t->model, &t->eval_weights, &options, &t->upscaler));
    return cod_upscaler_create_bicubic(cod_model_scale(&t->model), &t->bicubic);
}

cod_status trainer_refresh_eval(trainer *t)
{
    const cod_train_context *context = &t->context;
    COD_TRY(make_upscalers(t));
    const size_t bytes = cod_weights_count(&t->weights) * sizeof(float);
    cod_buffer *ema = t->config->eval.ema && context->step > 0 ? cod_optimiser_ema(context->optimiser) : NULL;
    float *values = malloc(bytes);
    COD_REQUIRE_MEMORY(values);
    cod_status status =
        context->backend->download(context->device, NULL, values, ema ? ema : t->weights.values, 0, bytes);
    if (status == COD_OK)
        status = cod_weights_upload(&t->eval_weights, values);
    free(values);
    return status;
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
static cod_status write_sample(trainer *t, size_t index, const cod_image *low, const cod_image *ours,
                               const cod_image *truth)
{
    enum { GAP = 8 };
    char path[4096];
    cod_image sheet = {0}, bicubic = {0};
    cod_status status = COD_OK;
    snprintf(path, sizeof path, "%s/samples", t->folder);
    COD_TRY(cod_folder_create(path));
    COD_TRY_GOTO(status, end, cod_upscaler_run(t->bicubic, low, NULL, NULL, &bicubic));
    COD_TRY_GOTO(status, end, cod_image_init(&sheet, 4 * truth->width + 3 * GAP, truth->height, 3, 8));
    memset(sheet.pixels, 255, cod_image_bytes(&sheet));
    const cod_image *const columns[] = {low, &bicubic, ours, truth};
    for (int i = 0; i < 4; i++)
        paste(&sheet, i * (truth->width + GAP), columns[i], i == 0 ? truth->width / low->width : 1);
    snprintf(path, sizeof path, "%s/samples/step-%07lld-group-%d-%zu.png", t->folder, (long long)t->context.step,
             cod_group_index(t->group), index);
    COD_TRY_GOTO(status, end, cod_image_write_png(path, &sheet));
    void *png = NULL;
    size_t bytes = 0;
    COD_TRY_GOTO(status, end, cod_file_read(path, 256u << 20, &png, &bytes));
    char tag[32];
    snprintf(tag, sizeof tag, "sample/%zu", index);
    status = cod_metrics_image(t->metrics, t->context.step, tag, (int)sheet.width, (int)sheet.height, png, bytes);
    free(png);
end:
    cod_image_clear(&sheet);
    cod_image_clear(&bicubic);
    return status;
}

cod_status trainer_evaluate_held_out(trainer *t, cod_upscaler *upscaler, size_t index, bool sample,
                                     cod_quality *quality)
{
    cod_pair pair;
    cod_image ours = {0};
    const int scale = cod_dataset_scale(t->dataset);
    COD_TRY(cod_dataset_read(t->dataset, COD_SPLIT_VAL, index, &pair));
    const cod_image low = {pair.low_width, pair.low_height, 3, 8, (void *)(uintptr_t)pair.low};
    const cod_image truth = {pair.low_width * scale, pair.low_height * scale, 3, 8, (void *)(uintptr_t)pair.high};
    cod_status status = cod_evaluate_pair(upscaler, &low, &truth, quality, &ours);
    if (status == COD_OK && sample)
        status = write_sample(t, index, &low, &ours, &truth);
    cod_image_clear(&ours);
    cod_pair_clear(&pair);
    return status;
}

cod_status trainer_validate(trainer *t, int64_t limit, cod_quality *mean)
{
    const size_t available = cod_dataset_size(t->dataset, COD_SPLIT_VAL);
    const size_t count = limit > 0 && (size_t)limit < available ? (size_t)limit : available;
    *mean = count > 0 ? (cod_quality){0} : (cod_quality){NAN, NAN, NAN, NAN};
    if (count == 0)
        return COD_OK;
    COD_TRY(trainer_refresh_eval(t));
    for (size_t i = 0; i < count; i++) {
        cod_quality one;
        COD_TRY(trainer_evaluate_held_out(t, t->upscaler, i, (int64_t)i < t->config->log.samples, &one));
        mean->psnr_y += one.psnr_y / (double)count;
        mean->ssim_y += one.ssim_y / (double)count;
        mean->psnr_rgb += one.psnr_rgb / (double)count;
    }
    t->last_psnr = mean->psnr_y;
    if (mean->psnr_y <= t->best_psnr)
        return COD_OK;
    t->best_psnr = mean->psnr_y;
    char path[4096];
    COD_TRY(cod_folder_create(t->checkpoints));
    snprintf(path, sizeof path, "%s/best.%s.safetensors", t->checkpoints, t->part);
    return cod_model_save_weights(path, &t->model, &t->eval_weights, NULL, 0);
}

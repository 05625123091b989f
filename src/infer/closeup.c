#include "infer/closeup.h"

#include "data/detail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MARGIN = 20 /**< computed around what is shown, so that its border is what it is within the whole picture */ };

void cod_closeup_clear(cod_closeup *closeup)
{
    cod_image_clear(&closeup->low);
    cod_image_clear(&closeup->truth);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

cod_status cod_closeup_cut(const cod_image *low, const cod_image *truth, int scale, int64_t side, cod_closeup *out)
{
    const int64_t width = least(side, low->width), height = least(side, low->height);
    int64_t left, top;
    *out = (cod_closeup){.scale = scale};
    cod_detail_find(low->pixels, low->width, low->height, width, height, &left, &top);
    const int64_t x = left > MARGIN ? left - MARGIN : 0, y = top > MARGIN ? top - MARGIN : 0;
    const int64_t end_x = least(left + width + MARGIN, low->width), end_y = least(top + height + MARGIN, low->height);
    out->left = left - x, out->top = top - y, out->width = width, out->height = height;
    COD_TRY(cod_detail_cut(low->pixels, low->width, x, y, end_x - x, end_y - y, &out->low));
    if (truth == NULL)
        return COD_OK;
    return cod_detail_cut(truth->pixels, truth->width, left * scale, top * scale, width * scale, height * scale,
                          &out->truth);
}

/** 10·log10 of peak² over the mean square error of all channels. */
static double psnr_of(const cod_image *image, const cod_image *truth)
{
    const size_t count = cod_image_bytes(image);
    const uint8_t *a = image->pixels, *b = truth->pixels;
    double sum = 0;
    if (b == NULL)
        return NAN;
    for (size_t i = 0; i < count; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)count / sum) : NAN;
}

/** @param version  of the picture: "low", "bicubic", "truth", or the number of a model */
static cod_status write_image(const cod_closeup_list *list, const char *version, const char *label,
                              const cod_image *image, double psnr)
{
    char path[8192], file[1024];
    snprintf(file, sizeof file, "%s-%s.png", list->name, version);
    snprintf(path, sizeof path, "%s/%s", list->folder, file);
    COD_TRY(cod_image_write_png(path, image));
    cod_json_open(list->json, NULL, '{');
    cod_json_string(list->json, "label", label);
    cod_json_string(list->json, "png", file);
    if (!isnan(psnr))
        cod_json_number(list->json, "psnr", psnr);
    cod_json_close(list->json);
    return COD_OK;
}

static cod_status write_low(const cod_closeup_list *list)
{
    const cod_closeup *closeup = list->closeup;
    cod_image part = {0};
    cod_status status = cod_detail_cut(closeup->low.pixels, closeup->low.width, closeup->left, closeup->top,
                                       closeup->width, closeup->height, &part);
    COD_THEN(status, write_image(list, "low", "low", &part, NAN));
    cod_image_clear(&part);
    return status;
}

/** Enlarges it and writes what is shown. */
static cod_status write_enlarged(const cod_closeup_list *list, cod_upscaler *upscaler, const char *version,
                                 const char *label)
{
    const cod_closeup *closeup = list->closeup;
    const int64_t scale = closeup->scale;
    cod_image large = {0}, part = {0};
    cod_status status = cod_upscaler_run(upscaler, &closeup->low, NULL, NULL, &large);
    COD_THEN(status, cod_detail_cut(large.pixels, large.width, closeup->left * scale, closeup->top * scale,
                                    closeup->width * scale, closeup->height * scale, &part));
    COD_THEN(status, write_image(list, version, label, &part, psnr_of(&part, &closeup->truth)));
    cod_image_clear(&large);
    cod_image_clear(&part);
    return status;
}

cod_status cod_closeup_begin(const cod_closeup *closeup, const char *title, const char *folder, const char *name,
                             cod_json *json, cod_closeup_list *list)
{
    const char *slash = strrchr(title, '/');
    cod_upscaler *bicubic = NULL;
    *list = (cod_closeup_list){.closeup = closeup, .folder = folder, .name = name, .json = json};
    cod_json_open(json, NULL, '{');
    cod_json_string(json, "title", slash != NULL ? slash + 1 : title);
    cod_json_open(json, "size", '[');
    cod_json_integer(json, NULL, closeup->width * closeup->scale);
    cod_json_integer(json, NULL, closeup->height * closeup->scale);
    cod_json_close(json);
    cod_json_open(json, "images", '[');
    cod_status status = write_low(list);
    COD_THEN(status, cod_upscaler_create_bicubic(closeup->scale, &bicubic));
    COD_THEN(status, write_enlarged(list, bicubic, COD_BICUBIC, COD_BICUBIC));
    cod_upscaler_destroy(bicubic);
    return status;
}

cod_status cod_closeup_add(cod_closeup_list *list, cod_upscaler *upscaler, const char *label)
{
    char version[24];
    snprintf(version, sizeof version, "%zu", list->models++);
    return write_enlarged(list, upscaler, version, label);
}

cod_status cod_closeup_end(cod_closeup_list *list)
{
    const cod_image *truth = &list->closeup->truth;
    const cod_status status = truth->pixels != NULL ? write_image(list, "truth", "truth", truth, NAN) : COD_OK;
    cod_json_close(list->json);
    cod_json_close(list->json);
    return status;
}

cod_status cod_closeup_show(const cod_image *low, const cod_image *truth, cod_upscaler *upscaler, const char *label,
                            const char *title, const char *folder, const char *name, cod_json *json)
{
    cod_closeup closeup;
    cod_closeup_list list;
    cod_status status = cod_closeup_cut(low, truth, cod_upscaler_scale(upscaler), COD_CLOSEUP_SIDE, &closeup);
    COD_THEN(status, cod_closeup_begin(&closeup, title, folder, name, json, &list));
    COD_THEN(status, cod_closeup_add(&list, upscaler, label));
    COD_THEN(status, cod_closeup_end(&list));
    cod_closeup_clear(&closeup);
    return status;
}

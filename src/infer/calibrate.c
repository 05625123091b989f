#include "infer/calibrate.h"

#include "core/log.h"
#include "data/resize.h"

#include <string.h>

enum { PICTURES = 4 };

static cod_status calibrate_file(cod_upscaler *upscaler, const cod_file *file, bool reduce)
{
    cod_image image, low = {0};
    COD_TRY(cod_image_read(file->path, &image));
    cod_status status = reduce ? cod_image_resize(&image, 1.0 / cod_upscaler_scale(upscaler), &low) : COD_OK;
    COD_THEN(status, cod_upscaler_calibrate(upscaler, reduce ? &low : &image));
    cod_image_clear(&low);
    cod_image_clear(&image);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", file->path);
}

static bool is_files_fault(cod_status status)
{
    return status == COD_ERR_IO || status == COD_ERR_FORMAT || status == COD_ERR_UNSUPPORTED ||
           status == COD_ERR_ARGUMENT;
}

cod_status cod_calibrate_files(cod_upscaler *upscaler, const cod_file_list *files, bool reduce)
{
    COD_REQUIRE(strcmp(cod_upscaler_precision(upscaler), "int8") == 0, "precision %s is not calibrated; only int8 is",
                cod_upscaler_precision(upscaler));
    const size_t wanted = files->count < PICTURES ? files->count : PICTURES;
    cod_upscaler_uncalibrate(upscaler);
    for (size_t i = 0; i < wanted; i++) {
        const cod_status status = calibrate_file(upscaler, &files->items[i * files->count / wanted], reduce);
        if (status != COD_OK && !is_files_fault(status))
            return status;
        if (status != COD_OK)
            cod_log_warn("not calibrated on: %s", cod_error_message());
    }
    COD_REQUIRE(!cod_upscaler_needs_calibration(upscaler), "precision int8: no picture to calibrate on could be used");
    return COD_OK;
}

cod_status cod_calibrate_folder(cod_upscaler *upscaler, const char *folder, bool reduce)
{
    cod_file_list files = {0};
    cod_status status = cod_files_find(&files, folder, 0);
    if (status == COD_OK && files.count == 0)
        status = cod_fail(COD_ERR_ARGUMENT, "%s: no pictures (PNG, JPEG, WebP, TIFF or BMP) to calibrate on", folder);
    COD_THEN(status, cod_calibrate_files(upscaler, &files, reduce));
    cod_files_clear(&files);
    return status;
}

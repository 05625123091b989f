#include "data/image_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

enum {
    REASON_BYTES = 160,
    MOST_UNPACKED = 1 << 16, /**< bytes that one byte stands for: more than deflate and LZW can reach */
    MOST_AT_ONCE = 1 << 30   /**< bytes that libtiff may allocate in one piece */
};

/** A file in memory, and what libtiff says is wrong with it. */
typedef struct tiff_context {
    const uint8_t *bytes;
    size_t count, used;
    bool cut; /**< a tag is beyond the end; libtiff ignores it, and would take a palette's indices for gray */
    char reason[REASON_BYTES];
} tiff_context;

static tmsize_t on_read(thandle_t handle, void *out, tmsize_t length)
{
    tiff_context *context = handle;
    const size_t left = context->count - context->used, taken = (size_t)length < left ? (size_t)length : left;
    memcpy(out, context->bytes + context->used, taken);
    context->used += taken;
    return (tmsize_t)taken;
}

static tmsize_t on_write(thandle_t handle, void *data, tmsize_t length)
{
    (void)handle;
    (void)data;
    (void)length;
    return 0;
}

static toff_t on_seek(thandle_t handle, toff_t offset, int from)
{
    tiff_context *context = handle;
    const toff_t start = from == SEEK_CUR   ? context->used
                         : from == SEEK_END ? context->count
                                            : 0,
                 place = start + offset;
    context->used = place < context->count ? (size_t)place : context->count;
    return context->used;
}

static int on_close(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t on_size(thandle_t handle)
{
    return ((tiff_context *)handle)->count;
}

/** @param user  the context */
static int on_error(TIFF *tiff, void *user, const char *module, const char *format, va_list values)
{
    tiff_context *context = user;
    (void)tiff;
    (void)module;
    vsnprintf(context->reason, sizeof context->reason, format, values);
    return 1;
}

static int on_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list values)
{
    tiff_context *context = user;
    (void)tiff;
    (void)module;
    (void)values;
    context->cut = context->cut || strstr(format, "IO error") != NULL;
    return 1;
}

/** Properties of a picture, from its tags. */
typedef struct tags {
    uint32_t width, height;
    uint16_t bits, samples, planes, colours, kind, extra, orientation;
} tags;

static tags read_tags(TIFF *tiff)
{
    tags t = {.orientation = 1};
    uint16_t extras = 0, *kinds = NULL;
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &t.width);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &t.height);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &t.bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &t.samples);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &t.planes);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &t.kind);
    TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &t.colours);
    TIFFGetField(tiff, TIFFTAG_ORIENTATION, &t.orientation);
    if (TIFFGetFieldDefaulted(tiff, TIFFTAG_EXTRASAMPLES, &extras, &kinds) && extras > 0)
        t.extra = kinds[0];
    return t;
}

/**
 * Whether rows can be taken as they are: gray or RGB of 8 or 16 bits, with alpha or without, pixel by pixel in strips.
 */
static bool is_plain(TIFF *tiff, const tags *t)
{
    const uint16_t colours = t->colours == PHOTOMETRIC_RGB ? 3 : t->colours == PHOTOMETRIC_MINISBLACK ? 1 : 0;
    const bool alpha = t->samples == colours + 1 && t->extra != EXTRASAMPLE_UNSPECIFIED;
    return colours > 0 && (t->samples == colours || alpha) && (t->bits == 8 || t->bits == 16) &&
           t->planes == PLANARCONFIG_CONTIG && t->kind == SAMPLEFORMAT_UINT && !TIFFIsTiled(tiff);
}

static uint32_t sample_at(const void *row, size_t index, int bits)
{
    return bits == 8 ? ((const uint8_t *)row)[index] : ((const uint16_t *)row)[index];
}

/** One row to RGB or RGBA; colours that were multiplied with alpha are divided by it. */
static void convert_row(const tags *t, const void *row, int channels, void *out)
{
    const size_t samples = t->samples, colours = samples - (channels == 4 ? 1 : 0);
    const uint32_t most = t->bits == 8 ? 255 : 65535;
    for (size_t x = 0; x < t->width; x++)
        for (size_t c = 0; c < (size_t)channels; c++) {
            uint32_t value = sample_at(row, x * samples + (c == 3 ? colours : colours == 1 ? 0 : c), t->bits);
            if (channels == 4 && c < 3 && t->extra == EXTRASAMPLE_ASSOCALPHA) {
                const uint32_t alpha = sample_at(row, x * samples + colours, t->bits);
                const uint64_t straight = alpha > 0 ? ((uint64_t)value * most + alpha / 2) / alpha : 0;
                value = straight < most ? (uint32_t)straight : most;
            }
            if (t->bits == 8)
                ((uint8_t *)out)[x * (size_t)channels + c] = (uint8_t)value;
            else
                ((uint16_t *)out)[x * (size_t)channels + c] = (uint16_t)value;
        }
}

static cod_status damaged(const tiff_context *context)
{
    return cod_fail(COD_ERR_FORMAT, "damaged TIFF: %s", context->reason);
}

static cod_status decode_plain(TIFF *tiff, const tiff_context *context, const tags *t, cod_image *image)
{
    const size_t row_bytes = (size_t)t->width * t->samples * (t->bits / 8u);
    if ((size_t)TIFFScanlineSize(tiff) != row_bytes)
        return cod_fail(COD_ERR_UNSUPPORTED, "a TIFF of an unknown layout");
    COD_TRY(cod_image_init(image, t->width, t->height, t->samples % 2 == 0 ? 4 : 3, t->bits));
    void *row = malloc(row_bytes);
    COD_REQUIRE_MEMORY(row);
    const size_t stride = cod_image_bytes(image) / t->height;
    cod_status status = COD_OK;
    for (uint32_t y = 0; y < t->height && status == COD_OK; y++) {
        if (TIFFReadScanline(tiff, row, y, 0) < 0)
            status = damaged(context);
        else
            convert_row(t, row, image->channels, (uint8_t *)image->pixels + y * stride);
    }
    free(row);
    return status;
}

/**
 * Palettes, tiles, planes, JPEG within, CMYK and few bits, by libtiff's own conversion to RGBA, whose alpha is dropped.
 */
static cod_status decode_any(TIFF *tiff, const tiff_context *context, const tags *t, cod_image *image)
{
    char reason[1024] = "";
    if (!TIFFRGBAImageOK(tiff, reason))
        return cod_fail(COD_ERR_UNSUPPORTED, "a TIFF that libtiff cannot turn into RGB: %.200s", reason);
    const size_t pixels = (size_t)t->width * t->height;
    uint32_t *rgba = malloc(pixels * sizeof *rgba);
    COD_REQUIRE_MEMORY(rgba);
    /* Asked for its own orientation, libtiff leaves rows and columns where they are. */
    cod_status status = COD_OK;
    if (!TIFFReadRGBAImageOriented(tiff, t->width, t->height, rgba, t->orientation, 1))
        status = damaged(context);
    COD_THEN(status, cod_image_init(image, t->width, t->height, 3, 8));
    for (size_t p = 0; p < pixels && status == COD_OK; p++) {
        uint8_t *out = (uint8_t *)image->pixels + 3 * p;
        out[0] = (uint8_t)TIFFGetR(rgba[p]);
        out[1] = (uint8_t)TIFFGetG(rgba[p]);
        out[2] = (uint8_t)TIFFGetB(rgba[p]);
    }
    free(rgba);
    return status;
}

static cod_status decode(TIFF *tiff, const tiff_context *context, bool header_only, cod_image *image)
{
    const tags t = read_tags(tiff);
    if (context->cut)
        return damaged(context);
    COD_TRY(cod_image_check_size(t.width, t.height));
    if (header_only) {
        image->width = t.orientation < 5 ? t.width : t.height;
        image->height = t.orientation < 5 ? t.height : t.width;
        return COD_OK;
    }
    if ((uint64_t)t.width * t.height * t.samples / MOST_UNPACKED > context->count)
        return cod_fail(COD_ERR_FORMAT, "damaged TIFF: %zu bytes cannot hold %ux%u pixels", context->count, t.width,
                        t.height);
    COD_TRY(is_plain(tiff, &t) ? decode_plain(tiff, context, &t, image) : decode_any(tiff, context, &t, image));
    return cod_image_orient(image, t.orientation);
}

cod_status cod_tiff_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image)
{
    tiff_context context = {.bytes = bytes, .count = count, .reason = "the file ends too early"};
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    COD_REQUIRE_MEMORY(options);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, MOST_AT_ONCE);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, &context);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, &context);
    /* "m": by reading, not by a mapping, so that nothing beyond the bytes is looked at. */
    TIFF *tiff = TIFFClientOpenExt("picture", "rm", &context, on_read, on_write, on_seek, on_close, on_size, NULL, NULL,
                                   options);
    TIFFOpenOptionsFree(options);
    const cod_status status = tiff != NULL ? decode(tiff, &context, header_only, image) : damaged(&context);
    if (tiff != NULL)
        TIFFClose(tiff);
    return status;
}

void cod_tiff_version(char *text, size_t bytes)
{
    char version[32] = "";
    sscanf(TIFFGetVersion(), "LIBTIFF, Version %31[0-9.]", version);
    snprintf(text, bytes, "libtiff %s", version);
}

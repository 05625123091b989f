#include "data/exif_internal.h"
#include "data/image_internal.h"
#include "data/notes_internal.h"
#include "data/profile_internal.h"

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
    uint32_t tile_width, tile_height; /**< of what libtiff reads at once: a tile, or one row */
    uint16_t bits, samples, planes, photometric, format, orientation;
    uint16_t extras;     /**< samples behind the colours, as far as the file says so */
    int colours;         /**< samples of a colour: RGB 3, gray 1, CMYK with a profile 4; 0 = others, left to libtiff */
    int alpha;           /**< number of the sample that is alpha; -1 = none */
    bool multiplied;     /**< colours are multiplied by alpha */
    const void *profile; /**< libtiff's; NULL = none */
    uint32_t profile_bytes;
} tags;

/**
 * What the picture's directory says of its colours; libtiff takes a palette without its colours for gray. 0 = it does
 * not say.
 */
static uint32_t photometric_of(TIFF *tiff, const tiff_context *context)
{
    enum { TAG = TIFFTAG_PHOTOMETRIC };
    const uint8_t *bytes = context->bytes;
    const bool little = bytes[0] == 'I', big = bytes[2] == 43 || bytes[3] == 43;
    const size_t head = big ? 8 : 2, entry = big ? 20 : 12, value = big ? 12 : 8;
    const uint64_t directory = TIFFCurrentDirOffset(tiff);
    if (directory > context->count - head)
        return 0;
    const size_t at = (size_t)directory + (big && !little ? 6 : 0); /* the low half of the number of entries */
    const uint32_t entries = cod_image_number(bytes + at, 2, little);
    for (uint32_t i = 0; i < entries && directory + head + (i + 1) * entry <= context->count; i++) {
        const uint8_t *field = bytes + directory + head + i * entry;
        if (cod_image_number(field, 2, little) == TAG)
            return cod_image_number(field + value, 2, little);
    }
    return 0;
}

/** Which of the samples behind the colours is alpha; without the tag it is the first, as other programs have it. */
static void find_alpha(TIFF *tiff, tags *t)
{
    uint16_t *kinds = NULL;
    if (!TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &t->extras, &kinds)) {
        t->alpha = t->colours > 0 && t->samples == t->colours + 1 ? t->colours : -1;
        return;
    }
    t->alpha = -1;
    for (int i = 0; i < t->extras && i < t->samples && t->alpha < 0; i++)
        if (kinds[i] == EXTRASAMPLE_ASSOCALPHA || kinds[i] == EXTRASAMPLE_UNASSALPHA) {
            t->alpha = t->samples - t->extras + i;
            t->multiplied = kinds[i] == EXTRASAMPLE_ASSOCALPHA;
        }
}

static tags read_tags(TIFF *tiff)
{
    tags t = {.orientation = 1};
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &t.width);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &t.height);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &t.bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &t.samples);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &t.planes);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &t.format);
    TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &t.photometric);
    TIFFGetField(tiff, TIFFTAG_ORIENTATION, &t.orientation);
    t.tile_width = t.width;
    t.tile_height = 1;
    if (TIFFIsTiled(tiff)) {
        TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &t.tile_width);
        TIFFGetField(tiff, TIFFTAG_TILELENGTH, &t.tile_height);
    }
    const bool gray = t.photometric == PHOTOMETRIC_MINISBLACK || t.photometric == PHOTOMETRIC_MINISWHITE;
    if (!TIFFGetField(tiff, TIFFTAG_ICCPROFILE, &t.profile_bytes, &t.profile))
        t.profile = NULL;
    const bool cmyk = t.photometric == PHOTOMETRIC_SEPARATED && t.samples == 4 && t.profile != NULL &&
                      cod_profile_space_of(t.profile, t.profile_bytes) == COD_PROFILE_CMYK;
    t.colours = t.photometric == PHOTOMETRIC_RGB ? 3 : gray ? 1 : cmyk ? 4 : 0;
    find_alpha(tiff, &t);
    return t;
}

static cod_status damaged(const tiff_context *context)
{
    return cod_fail(COD_ERR_FORMAT, "damaged TIFF: %s", context->reason);
}

/** What of a picture's rows and columns libtiff has read at once. */
typedef struct piece {
    const void *samples; /**< [tile_height][tile_width][per_pixel] of 8 or 16 bits */
    uint32_t x, y;       /**< its upper left corner in the picture */
    int first;           /**< number of its first sample among those of a pixel */
    int per_pixel;
} piece;

/** Copies colours and alpha of a piece to where they belong in the picture; other samples are none of either. */
static void place(const tags *t, const piece *p, cod_image *image)
{
    const uint32_t rows = t->height - p->y < t->tile_height ? t->height - p->y : t->tile_height,
                   columns = t->width - p->x < t->tile_width ? t->width - p->x : t->tile_width;
    for (int s = 0; s < p->per_pixel; s++) {
        const int channel = p->first + s == t->alpha ? 3 : p->first + s < t->colours ? p->first + s : -1;
        for (uint32_t y = 0; y < rows && channel >= 0; y++) {
            size_t in = (size_t)y * t->tile_width * (size_t)p->per_pixel + (size_t)s,
                   out = ((size_t)(p->y + y) * t->width + p->x) * (size_t)image->channels + (size_t)channel;
            for (uint32_t x = 0; x < columns; x++, in += (size_t)p->per_pixel, out += (size_t)image->channels)
                if (t->bits == 8)
                    ((uint8_t *)image->pixels)[out] = ((const uint8_t *)p->samples)[in];
                else
                    ((uint16_t *)image->pixels)[out] = ((const uint16_t *)p->samples)[in];
        }
    }
}

/** One pixel of the samples that place() left there: gray becomes RGB, and colours are divided by their alpha. */
static void finish_pixel(const tags *t, uint32_t most, uint32_t pixel[4])
{
    if (t->photometric == PHOTOMETRIC_MINISWHITE)
        pixel[0] = most - pixel[0];
    if (t->colours == 1)
        pixel[1] = pixel[2] = pixel[0];
    for (int c = 0; c < 3 && t->multiplied; c++) {
        const uint64_t straight = pixel[3] > 0 ? ((uint64_t)pixel[c] * most + pixel[3] / 2) / pixel[3] : 0;
        pixel[c] = straight < most ? (uint32_t)straight : most;
    }
}

static void finish(const tags *t, cod_image *image)
{
    const size_t pixels = (size_t)t->width * t->height, channels = (size_t)image->channels;
    const uint32_t most = t->bits == 8 ? 255 : 65535;
    uint8_t *narrow = image->pixels;
    uint16_t *wide = image->pixels;
    for (size_t i = 0; i < pixels * channels; i += channels) {
        uint32_t pixel[4] = {0};
        for (size_t c = 0; c < channels; c++)
            pixel[c] = t->bits == 8 ? narrow[i + c] : wide[i + c];
        finish_pixel(t, most, pixel);
        for (size_t c = 0; c < 3; c++)
            if (t->bits == 8)
                narrow[i + c] = (uint8_t)pixel[c];
            else
                wide[i + c] = (uint16_t)pixel[c];
    }
}

/** @param samples  room for a tile or a row */
static cod_status read_pieces(TIFF *tiff, const tiff_context *context, const tags *t, void *samples, cod_image *image)
{
    const bool apart = t->planes == PLANARCONFIG_SEPARATE, tiled = TIFFIsTiled(tiff);
    for (uint16_t plane = 0; plane < (apart ? t->samples : 1); plane++)
        for (uint32_t y = 0; y < t->height; y += t->tile_height)
            for (uint32_t x = 0; x < t->width; x += t->tile_width) {
                const bool read = tiled ? TIFFReadTile(tiff, samples, x, y, 0, plane) >= 0
                                        : TIFFReadScanline(tiff, samples, y, plane) >= 0;
                if (!read)
                    return damaged(context);
                place(t, &(piece){samples, x, y, plane, apart ? 1 : t->samples}, image);
            }
    return COD_OK;
}

/** Gray and RGB of 8 or 16 bits, in strips or tiles, pixel by pixel or in planes. */
static cod_status decode_directly(TIFF *tiff, const tiff_context *context, const tags *t, cod_image *image)
{
    const uint64_t per_pixel = t->planes == PLANARCONFIG_SEPARATE ? 1 : t->samples,
                   expected = (uint64_t)t->tile_width * t->tile_height * per_pixel * (t->bits / 8u);
    const uint64_t bytes = TIFFIsTiled(tiff) ? TIFFTileSize64(tiff) : TIFFScanlineSize64(tiff);
    if (bytes != expected || bytes == 0)
        return cod_fail(COD_ERR_UNSUPPORTED, "a TIFF of an unknown layout");
    if (bytes > MOST_AT_ONCE || bytes / MOST_UNPACKED > context->count)
        return cod_fail(COD_ERR_FORMAT, "damaged TIFF: %zu bytes cannot hold a tile of %ux%u pixels", context->count,
                        t->tile_width, t->tile_height);
    COD_TRY(cod_image_init(image, t->width, t->height, t->alpha >= 0 || t->colours == 4 ? 4 : 3, t->bits));
    void *samples = malloc(bytes);
    COD_REQUIRE_MEMORY(samples);
    cod_status status = read_pieces(tiff, context, t, samples, image);
    free(samples);
    if (status == COD_OK && (t->colours == 1 || t->multiplied))
        finish(t, image);
    if (t->colours == 4)
        COD_THEN(status, cod_image_cmyk_to_rgb(image, t->profile, t->profile_bytes, false));
    return status;
}

/** Palettes, CMYK, YCbCr of JPEG within and few bits, by libtiff's own conversion, which has 8 bits without alpha. */
static cod_status decode_any(TIFF *tiff, const tiff_context *context, const tags *t, cod_image *image)
{
    char reason[1024] = "";
    if (t->alpha >= 0 || t->bits > 8)
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "a TIFF of %u-bit samples%s that are neither gray nor RGB; convert it to RGB", t->bits,
                        t->alpha >= 0 ? " with alpha" : "");
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

/**
 * Goes to the one picture of the file; others may be smaller copies of it, or masks. A file of several pictures is
 * refused, because all but one would be lost.
 */
static cod_status find_picture(TIFF *tiff, const tiff_context *context, bool header_only)
{
    enum { MOST_DIRECTORIES = 1000 };
    int found = -1, count = 1;
    for (;; count++) {
        uint32_t kind = 0;
        TIFFGetField(tiff, TIFFTAG_SUBFILETYPE, &kind);
        const bool main = (kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) == 0;
        if (main && header_only)
            return COD_OK;
        if ((main && found >= 0) || count > MOST_DIRECTORIES)
            return cod_fail(COD_ERR_UNSUPPORTED,
                            "a TIFF with several pictures is not supported; split it into files of one");
        if (main)
            found = count - 1;
        if (TIFFLastDirectory(tiff))
            break;
        if (!TIFFReadDirectory(tiff))
            return damaged(context);
    }
    return count == 1 || TIFFSetDirectory(tiff, (tdir_t)(found > 0 ? found : 0)) ? COD_OK : damaged(context);
}

/** Colour profile, EXIF and resolution. */
static cod_status keep_notes(TIFF *tiff, const tiff_context *context, const tags *t, cod_image *image)
{
    float x = 0, y = 0;
    uint16_t unit = RESUNIT_INCH;
    uint8_t *exif;
    size_t bytes;
    TIFFGetField(tiff, TIFFTAG_XRESOLUTION, &x);
    TIFFGetField(tiff, TIFFTAG_YRESOLUTION, &y);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_RESOLUTIONUNIT, &unit);
    const double factor = unit == RESUNIT_CENTIMETER ? 2.54 : unit == RESUNIT_INCH ? 1 : 0;
    COD_TRY(cod_image_keep_dpi(image, factor * x, factor * y));
    if (t->profile != NULL)
        COD_TRY(cod_image_keep_profile(image, t->profile, t->profile_bytes));
    cod_exif_of_tiff(context->bytes, context->count, TIFFCurrentDirOffset(tiff), &exif, &bytes);
    const cod_status status = exif != NULL ? cod_image_keep_exif(image, exif, bytes) : COD_OK;
    free(exif);
    return status;
}

static cod_status decode(TIFF *tiff, const tiff_context *context, bool header_only, cod_image *image)
{
    COD_TRY(find_picture(tiff, context, header_only));
    const tags t = read_tags(tiff);
    if (context->cut)
        return damaged(context);
    if (photometric_of(tiff, context) == PHOTOMETRIC_PALETTE && t.photometric != PHOTOMETRIC_PALETTE)
        return cod_fail(COD_ERR_FORMAT, "damaged TIFF: it lacks the colours of its palette");
    COD_TRY(cod_image_check_size(t.width, t.height));
    if (header_only) {
        image->width = t.orientation < 5 ? t.width : t.height;
        image->height = t.orientation < 5 ? t.height : t.width;
        return COD_OK;
    }
    if ((uint64_t)t.width * t.height * t.samples / MOST_UNPACKED > context->count)
        return cod_fail(COD_ERR_FORMAT, "damaged TIFF: %zu bytes cannot hold %ux%u pixels", context->count, t.width,
                        t.height);
    if (t.colours > 0 && t.samples < t.colours + t.extras)
        return cod_fail(COD_ERR_FORMAT, "damaged TIFF: of %u samples a pixel, %u are no colours, and %d should be",
                        t.samples, t.extras, t.colours);
    if (t.format == SAMPLEFORMAT_INT || t.format == SAMPLEFORMAT_IEEEFP || t.format > SAMPLEFORMAT_VOID)
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "a TIFF of %u-bit samples that are %s is not supported; convert it to unsigned integers",
                        t.bits,
                        t.format == SAMPLEFORMAT_INT      ? "signed"
                        : t.format == SAMPLEFORMAT_IEEEFP ? "floats"
                                                          : "complex");
    const bool direct = t.colours > 0 && t.samples >= t.colours && (t.bits == 8 || t.bits == 16);
    COD_TRY(direct ? decode_directly(tiff, context, &t, image) : decode_any(tiff, context, &t, image));
    COD_TRY(keep_notes(tiff, context, &t, image));
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

#include "data/exif_internal.h"
#include "data/image_internal.h"
#include "data/notes_internal.h"
#include "data/profile_internal.h"

#include <errno.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON_BYTES = 160, MOST_UNPACKED = 1032 /**< bytes that one byte of deflate can stand for */ };

/** Data shared with libpng's callbacks. */
typedef struct png_context {
    const uint8_t *bytes;
    size_t count, used;
    char reason[REASON_BYTES];
} png_context;

static void on_error(png_structp png, png_const_charp message)
{
    png_context *context = png_get_error_ptr(png);
    snprintf(context->reason, sizeof context->reason, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void on_read(png_structp png, png_bytep out, size_t length)
{
    png_context *context = png_get_io_ptr(png);
    if (length > context->count - context->used)
        png_error(png, "the file ends too early (truncated)");
    memcpy(out, context->bytes + context->used, length);
    context->used += length;
}

/** Asks libpng for RGB(A) of 8 or 16 bits in host order; returns the number of channels. */
static int normalise(png_structp png, png_infop info, int bits)
{
    const png_byte type = png_get_color_type(png, info);
    const bool transparent = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
    png_set_expand(png);
    if (!(type & PNG_COLOR_MASK_COLOR))
        png_set_gray_to_rgb(png);
    if (bits == 16 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        png_set_swap(png);
    return (type & PNG_COLOR_MASK_ALPHA) || transparent ? 4 : 3;
}

/**
 * A chunk of the given name before the pixels; NULL = there is none, or if `*length` is 1 the file ends too early.
 *
 * @param[out] length  bytes behind its name
 */
static const uint8_t *find_chunk(const uint8_t *bytes, size_t count, const char name[4], size_t *length)
{
    enum { SIGNATURE = 8, HEAD = 8, CHECKSUM = 4 };
    size_t at = SIGNATURE;
    while (at + HEAD <= count && memcmp(bytes + at + 4, "IDAT", 4) != 0) {
        *length = cod_image_number(bytes + at, 4, false);
        if (*length <= count - at - HEAD && memcmp(bytes + at + 4, name, 4) == 0)
            return bytes + at + HEAD;
        at += HEAD + *length + CHECKSUM;
    }
    *length = at + HEAD > count;
    return NULL;
}

/** Whether a chunk claims to be longer than the file: libpng would allocate all of some kinds before it reads them. */
static bool is_cut(const uint8_t *bytes, size_t count)
{
    enum { SIGNATURE = 8, HEAD = 8, CHECKSUM = 4 };
    size_t at = SIGNATURE;
    while (at + HEAD <= count) {
        const size_t length = cod_image_number(bytes + at, 4, false);
        if (length > count - at - HEAD)
            return true;
        at += HEAD + length + CHECKSUM;
    }
    return false;
}

/** @return 0 = the file ends before its pixels */
static int orientation_of(const uint8_t *bytes, size_t count)
{
    size_t length;
    const uint8_t *exif = find_chunk(bytes, count, "eXIf", &length);
    return exif != NULL ? cod_exif_tiff_orientation(exif, length) : length == 0;
}

/** Whether an orientation stands behind the pixels, where whoever asks for the size alone would miss it. */
static bool turns_late(png_structp png, png_infop info, const png_context *context)
{
    png_uint_32 length = 0;
    png_bytep exif = NULL;
    return png_get_eXIf_1(png, info, &length, &exif) != 0 && cod_exif_tiff_orientation(exif, length) > 1 &&
           orientation_of(context->bytes, context->count) == 1;
}

/** Code points of ITU-T H.273 in chunk cICP: what values mean, before any profile. */
static cod_status check_code_points(const png_context *context)
{
    size_t length;
    const uint8_t *points = find_chunk(context->bytes, context->count, "cICP", &length);
    if (points == NULL || length < 4)
        return COD_OK;
    const bool is_srgb = points[0] == 1 && (points[1] == 13 || points[1] == 1) && points[2] == 0;
    if (is_srgb)
        return COD_OK;
    return cod_fail(COD_ERR_UNSUPPORTED, "a PNG %s (cICP %u, %u) is not supported; convert it to sRGB",
                    points[1] == 16 || points[1] == 18 ? "of high dynamic range" : "in other colours than sRGB's",
                    points[0], points[1]);
}

/** A profile for gAMA and cHRM, where they differ from sRGB's. */
static cod_status keep_gamma(png_structp png, png_infop info, cod_image *image)
{
    enum { WHITE_TO_BLUE = 8 };
    static const double srgb[WHITE_TO_BLUE] = {0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06};
    const double srgb_gamma = 1 / 2.2;
    double gamma = srgb_gamma, xy[WHITE_TO_BLUE];
    memcpy(xy, srgb, sizeof xy);
    png_get_gAMA(png, info, &gamma);
    png_get_cHRM(png, info, &xy[0], &xy[1], &xy[2], &xy[3], &xy[4], &xy[5], &xy[6], &xy[7]);
    bool same = fabs(gamma / srgb_gamma - 1) < 0.01;
    for (int i = 0; i < WHITE_TO_BLUE; i++)
        same = same && fabs(xy[i] - srgb[i]) < 0.003;
    if (same || !(gamma > 0))
        return COD_OK;
    void *profile;
    size_t bytes;
    COD_TRY(cod_profile_from_gamma(1 / gamma, xy, &profile, &bytes));
    const cod_status status = cod_image_keep_profile(image, profile, bytes);
    free(profile);
    return status;
}

/** Colour profile, EXIF and resolution. libpng gives those behind the pixels, too. */
static cod_status keep_notes(png_structp png, png_infop info, cod_image *image)
{
    enum { METRE = PNG_RESOLUTION_METER };
    png_charp name;
    png_bytep data = NULL;
    png_uint_32 length = 0, x = 0, y = 0;
    int kind = 0;
    if (png_get_pHYs(png, info, &x, &y, &kind) != 0 && kind == METRE)
        COD_TRY(cod_image_keep_dpi(image, x * 0.0254, y * 0.0254));
    if (png_get_eXIf_1(png, info, &length, &data) != 0)
        COD_TRY(cod_image_keep_exif(image, data, length));
    if (png_get_iCCP(png, info, &name, &kind, &data, &length) != 0)
        return cod_image_keep_profile(image, data, length);
    if (png_get_valid(png, info, PNG_INFO_sRGB) != 0)
        return COD_OK;
    return keep_gamma(png, info, image);
}

/**
 * The part that libpng may leave by longjmp. What must survive it lies in the caller's *image and *rows, so no local
 * changes between setjmp and the jump.
 */
static cod_status decode_rows(png_structp png, png_infop info, png_context *context, cod_image *image, png_bytep **rows)
{
    if (setjmp(png_jmpbuf(png)) != 0)
        return cod_fail(COD_ERR_FORMAT, "damaged PNG: %s", context->reason);
    png_set_read_fn(png, context, on_read);
    png_set_user_limits(png, COD_IMAGE_MAX_SIDE, COD_IMAGE_MAX_SIDE);
    png_set_chunk_malloc_max(png, 64u << 20);
    /* A wrong checksum of the pixels is an error; of a comment it is none. */
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_QUIET_USE);
    png_read_info(png, info);
    COD_TRY(check_code_points(context));
    const int64_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    const int bits = png_get_bit_depth(png, info) == 16 ? 16 : 8;
    if ((uint64_t)height * png_get_rowbytes(png, info) / MOST_UNPACKED > context->count)
        return cod_fail(COD_ERR_FORMAT, "damaged PNG: %zu bytes cannot hold %lldx%lld pixels", context->count,
                        (long long)width, (long long)height);
    const int channels = normalise(png, info, bits);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    COD_TRY(cod_image_init(image, width, height, channels, bits));
    const size_t stride = cod_image_bytes(image) / (size_t)height;
    if (png_get_rowbytes(png, info) != stride)
        return cod_fail(COD_ERR_UNSUPPORTED, "a PNG of an unknown layout");
    *rows = malloc((size_t)height * sizeof **rows);
    COD_REQUIRE_MEMORY(*rows);
    for (int64_t y = 0; y < height; y++)
        (*rows)[y] = (png_bytep)image->pixels + (size_t)y * stride;
    png_read_image(png, *rows);
    png_read_end(png, info);
    COD_TRY(keep_notes(png, info, image));
    if (turns_late(png, info, context))
        return cod_fail(COD_ERR_UNSUPPORTED, "a PNG whose orientation stands behind its pixels; write it anew");
    return cod_image_orient(image, orientation_of(context->bytes, context->count));
}

cod_status cod_png_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image)
{
    if (header_only) {
        /* The signature, then the header chunk: length, "IHDR", width, height. */
        if (count < 24 || memcmp(bytes + 12, "IHDR", 4) != 0)
            return cod_fail(COD_ERR_FORMAT, "a PNG without a header");
        const int64_t width = cod_image_number(bytes + 16, 4, false), height = cod_image_number(bytes + 20, 4, false);
        COD_TRY(cod_image_check_size(width, height));
        const int orientation = orientation_of(bytes, count);
        if (orientation == 0)
            return cod_fail(COD_ERR_FORMAT, "damaged PNG: the file ends before its pixels");
        image->width = orientation < 5 ? width : height;
        image->height = orientation < 5 ? height : width;
        return COD_OK;
    }
    if (is_cut(bytes, count))
        return cod_fail(COD_ERR_FORMAT, "damaged PNG: the file ends too early (truncated)");
    size_t length;
    const uint8_t *moving = find_chunk(bytes, count, "acTL", &length);
    if (moving != NULL && length >= 4 && cod_image_number(moving, 4, false) > 1)
        return cod_fail(COD_ERR_UNSUPPORTED, "a PNG with moving pictures is not supported");
    png_context context = {.bytes = bytes, .count = count};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &context, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    png_bytep *rows = NULL;
    const cod_status status =
        info ? decode_rows(png, info, &context, image, &rows) : cod_fail(COD_ERR_MEMORY, "libpng has no memory");
    png_destroy_read_struct(&png, &info, NULL);
    free(rows);
    if (status != COD_OK)
        cod_image_clear(image);
    return status;
}

static void set_notes(png_structp png, png_infop info, const struct cod_image_notes *notes)
{
    if (notes == NULL)
        return;
    png_set_benign_errors(png, 1);
    if (notes->profile != NULL)
        png_set_iCCP(png, info, "icc", PNG_COMPRESSION_TYPE_BASE, notes->profile, (png_uint_32)notes->profile_bytes);
    if (notes->exif != NULL)
        png_set_eXIf_1(png, info, (png_uint_32)notes->exif_bytes, notes->exif);
    if (notes->dpi_x > 0)
        png_set_pHYs(png, info, (png_uint_32)lround(notes->dpi_x / 0.0254), (png_uint_32)lround(notes->dpi_y / 0.0254),
                     PNG_RESOLUTION_METER);
}

static cod_status encode_rows(png_structp png, png_infop info, png_context *context, FILE *file, const cod_image *image)
{
    if (setjmp(png_jmpbuf(png)) != 0)
        return cod_fail(COD_ERR_IO, "cannot write: %s", errno ? strerror(errno) : context->reason);
    errno = 0;
    png_init_io(png, file);
    png_set_user_limits(png, COD_IMAGE_MAX_SIDE, COD_IMAGE_MAX_SIDE);
    png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, image->bits,
                 image->channels == 4 ? PNG_COLOR_TYPE_RGB_ALPHA : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_level(png, 6);
    set_notes(png, info, image->notes);
    png_write_info(png, info);
    if (image->bits == 16 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        png_set_swap(png);
    const size_t stride = cod_image_bytes(image) / (size_t)image->height;
    for (int64_t y = 0; y < image->height; y++)
        png_write_row(png, (png_const_bytep)image->pixels + (size_t)y * stride);
    png_write_end(png, info);
    return COD_OK;
}

cod_status cod_png_encode(FILE *file, const cod_image *image, int quality)
{
    (void)quality;
    png_context context = {.reason = "unknown reason"};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &context, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    const cod_status status =
        info ? encode_rows(png, info, &context, file, image) : cod_fail(COD_ERR_MEMORY, "libpng has no memory");
    png_destroy_write_struct(&png, &info);
    return status;
}

const char *cod_png_version(void)
{
    return png_get_libpng_ver(NULL);
}

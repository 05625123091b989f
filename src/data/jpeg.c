#include "core/log.h"
#include "data/exif_internal.h"
#include "data/image_internal.h"
#include "data/notes_internal.h"
#include "data/profile_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

/**
 * Huffman's codes spend a bit at least on a block of 64 samples, each of which is a pixel, or 16 where samples are
 * fewest.
 */
enum { MOST_PIXELS_A_BYTE = 8 * 64 * 16 };

/** Each scan of a progressive picture passes over all of it, however few its bytes are. Usual ones have some ten. */
enum { MOST_SCANS = 100 };

typedef struct jpeg_context {
    struct jpeg_error_mgr manager; /* first: libjpeg hands us back a pointer to it */
    jmp_buf jump;
    char reason[JMSG_LENGTH_MAX];
    struct jpeg_progress_mgr progress;
} jpeg_context;

_Noreturn static void on_error(j_common_ptr jpeg)
{
    jpeg_context *context = (jpeg_context *)jpeg->err;
    jpeg->err->format_message(jpeg, context->reason);
    longjmp(context->jump, 1);
}

/**
 * libjpeg only warns of pixels that it cannot decode and of a missing end, and fills in gray; training on that is worse
 * than leaving the picture out. Bytes between markers and odd application headers do no harm.
 */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level >= 0)
        return;
    switch (jpeg->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_ICC:
        return;
    default:
        on_error(jpeg);
    }
}

static void on_progress(j_common_ptr jpeg)
{
    jpeg_context *context = (jpeg_context *)jpeg->err;
    if (!jpeg->is_decompressor || ((j_decompress_ptr)jpeg)->input_scan_number <= MOST_SCANS)
        return;
    snprintf(context->reason, sizeof context->reason, "more than %d scans, each of which passes over the whole picture",
             MOST_SCANS);
    longjmp(context->jump, 1);
}

static void on_output(j_common_ptr jpeg)
{
    (void)jpeg;
}

static int orientation_of(const struct jpeg_decompress_struct *jpeg)
{
    for (jpeg_saved_marker_ptr marker = jpeg->marker_list; marker != NULL; marker = marker->next)
        if (marker->marker == JPEG_APP0 + 1) {
            const int orientation = cod_exif_orientation(marker->data, marker->data_length);
            if (orientation != 1)
                return orientation;
        }
    return 1;
}

/** Adobe writes CMYK inverted: 255 is no ink. Others do not; the Adobe marker tells. */
static void cmyk_to_rgb(const uint8_t *in, uint8_t *out, size_t pixels, bool inverted)
{
    for (size_t p = 0; p < pixels; p++, in += 4, out += 3)
        for (size_t c = 0; c < 3; c++) {
            const unsigned light = inverted ? in[c] : 255u - in[c], white = inverted ? in[3] : 255u - in[3];
            out[c] = (uint8_t)((light * white + 127) / 255);
        }
}

/** The colour profile of a file. */
typedef struct jpeg_profile {
    JOCTET *bytes; /**< NULL = none */
    unsigned count;
} jpeg_profile;

enum { EXIF_HEAD = 6, INCH = 1, CENTIMETRE = 2 };

/** EXIF and resolution. */
static cod_status keep_notes(const struct jpeg_decompress_struct *jpeg, cod_image *image)
{
    const double unit = jpeg->density_unit == CENTIMETRE ? 2.54 : jpeg->density_unit == INCH ? 1 : 0;
    if (jpeg->saw_JFIF_marker)
        COD_TRY(cod_image_keep_dpi(image, unit * jpeg->X_density, unit * jpeg->Y_density));
    for (jpeg_saved_marker_ptr marker = jpeg->marker_list; marker != NULL; marker = marker->next)
        if (marker->marker == JPEG_APP0 + 1 && marker->data_length > EXIF_HEAD &&
            memcmp(marker->data, "Exif\0\0", EXIF_HEAD) == 0)
            return cod_image_keep_exif(image, marker->data + EXIF_HEAD, marker->data_length - EXIF_HEAD);
    return COD_OK;
}

/** The part that libjpeg may leave by longjmp; what must survive lies in *image, *jpeg and its memory pool. */
static cod_status decode(struct jpeg_decompress_struct *jpeg, jpeg_context *context, const uint8_t *bytes, size_t count,
                         bool header_only, jpeg_profile *profile, cod_image *image)
{
    if (setjmp(context->jump) != 0)
        return cod_fail(COD_ERR_FORMAT, "damaged JPEG: %s", context->reason);
    jpeg_create_decompress(jpeg);
    jpeg->mem->max_memory_to_use = 1L << 30;
    jpeg->progress = &context->progress;
    context->progress.progress_monitor = on_progress;
    jpeg_save_markers(jpeg, JPEG_APP0 + 1, 0xFFFF);
    jpeg_save_markers(jpeg, JPEG_APP0 + 2, 0xFFFF);
    jpeg_mem_src(jpeg, bytes, (unsigned long)count);
    jpeg_read_header(jpeg, TRUE);
    COD_TRY(cod_image_check_size(jpeg->image_width, jpeg->image_height));
    /* Of these libjpeg does not notice what lacks before the end marker: a few bytes would be a picture of any size. */
    if (jpeg->arith_code)
        return cod_fail(COD_ERR_UNSUPPORTED, "JPEG with arithmetic coding is not supported; convert it");
    const int orientation = orientation_of(jpeg);
    if (header_only) {
        image->width = orientation < 5 ? jpeg->image_width : jpeg->image_height;
        image->height = orientation < 5 ? jpeg->image_height : jpeg->image_width;
        return COD_OK;
    }
    if ((uint64_t)jpeg->image_width * jpeg->image_height / MOST_PIXELS_A_BYTE > count)
        return cod_fail(COD_ERR_FORMAT, "damaged JPEG: %zu bytes cannot hold %ux%u pixels", count, jpeg->image_width,
                        jpeg->image_height);
    const bool cmyk = jpeg->num_components == 4;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg_read_icc_profile(jpeg, &profile->bytes, &profile->count);
    const bool by_profile =
        cmyk && profile->bytes != NULL && cod_profile_space_of(profile->bytes, profile->count) == COD_PROFILE_CMYK;
    const int channels = by_profile ? 4 : 3;
    COD_TRY(cod_image_init(image, jpeg->image_width, jpeg->image_height, channels, 8));
    COD_TRY(keep_notes(jpeg, image));
    if (profile->bytes != NULL && !cmyk)
        COD_TRY(cod_image_keep_profile(image, profile->bytes, profile->count));
    jpeg_start_decompress(jpeg);
    /* Four bytes a pixel for CMYK, from libjpeg's own pool, freed with it. */
    JSAMPARRAY row = (*jpeg->mem->alloc_sarray)((j_common_ptr)jpeg, JPOOL_IMAGE, jpeg->output_width * 4, 1);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *out = (uint8_t *)image->pixels + (size_t)jpeg->output_scanline * jpeg->output_width * (size_t)channels;
        jpeg_read_scanlines(jpeg, cmyk && !by_profile ? row : &out, 1);
        if (cmyk && !by_profile)
            cmyk_to_rgb(row[0], out, jpeg->output_width, jpeg->saw_Adobe_marker);
    }
    if (by_profile)
        COD_TRY(cod_image_cmyk_to_rgb(image, profile->bytes, profile->count, jpeg->saw_Adobe_marker));
    jpeg_finish_decompress(jpeg);
    return cod_image_orient(image, orientation);
}

cod_status cod_jpeg_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image)
{
    struct jpeg_decompress_struct jpeg = {0};
    jpeg_context context = {.reason = ""};
    jpeg.err = jpeg_std_error(&context.manager);
    context.manager.error_exit = on_error;
    context.manager.emit_message = on_message;
    context.manager.output_message = on_output;
    jpeg_profile profile = {0};
    const cod_status status = decode(&jpeg, &context, bytes, count, header_only, &profile, image);
    jpeg_destroy_decompress(&jpeg);
    free(profile.bytes);
    if (status != COD_OK)
        cod_image_clear(image);
    return status;
}

/** After the start, before the first row. */
static void write_notes(struct jpeg_compress_struct *jpeg, const struct cod_image_notes *notes)
{
    enum { MOST = 65533 }; /* bytes of a marker */
    if (notes == NULL)
        return;
    if (notes->exif != NULL && notes->exif_bytes + EXIF_HEAD > MOST)
        cod_log_warn("EXIF of %zu bytes does not fit into a JPEG and is left out", notes->exif_bytes);
    else if (notes->exif != NULL) {
        jpeg_write_m_header(jpeg, JPEG_APP0 + 1, (unsigned)(notes->exif_bytes + EXIF_HEAD));
        for (size_t i = 0; i < EXIF_HEAD; i++)
            jpeg_write_m_byte(jpeg, "Exif\0\0"[i]);
        for (size_t i = 0; i < notes->exif_bytes; i++)
            jpeg_write_m_byte(jpeg, notes->exif[i]);
    }
    if (notes->profile != NULL)
        jpeg_write_icc_profile(jpeg, notes->profile, (unsigned)notes->profile_bytes);
}

static void set_density(struct jpeg_compress_struct *jpeg, const struct cod_image_notes *notes)
{
    if (notes == NULL || notes->dpi_x == 0 || fmax(notes->dpi_x, notes->dpi_y) > UINT16_MAX)
        return;
    jpeg->density_unit = INCH;
    jpeg->X_density = (UINT16)lround(notes->dpi_x);
    jpeg->Y_density = (UINT16)lround(notes->dpi_y);
}

/**
 * The part that libjpeg may leave by longjmp. Colours are not subsampled: what a network made of them would be lost.
 */
static cod_status encode(struct jpeg_compress_struct *jpeg, jpeg_context *context, FILE *file, const cod_image *image,
                         int quality)
{
    if (setjmp(context->jump) != 0)
        return cod_fail(COD_ERR_IO, "cannot write: %s", context->reason);
    jpeg_create_compress(jpeg);
    jpeg_stdio_dest(jpeg, file);
    jpeg->image_width = (JDIMENSION)image->width;
    jpeg->image_height = (JDIMENSION)image->height;
    jpeg->input_components = 3;
    jpeg->in_color_space = JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, quality, TRUE);
    jpeg->optimize_coding = TRUE;
    for (int c = 0; c < jpeg->num_components; c++)
        jpeg->comp_info[c].h_samp_factor = jpeg->comp_info[c].v_samp_factor = 1;
    set_density(jpeg, image->notes);
    jpeg_start_compress(jpeg, TRUE);
    write_notes(jpeg, image->notes);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW row = (JSAMPROW)image->pixels + (size_t)jpeg->next_scanline * jpeg->image_width * 3;
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
    return COD_OK;
}

cod_status cod_jpeg_encode(FILE *file, const cod_image *image, int quality)
{
    struct jpeg_compress_struct jpeg = {0};
    jpeg_context context = {.reason = ""};
    jpeg.err = jpeg_std_error(&context.manager);
    context.manager.error_exit = on_error;
    context.manager.output_message = on_output;
    const cod_status status = encode(&jpeg, &context, file, image, quality);
    jpeg_destroy_compress(&jpeg);
    return status;
}

const char *cod_jpeg_library(void)
{
#ifdef LIBJPEG_TURBO_VERSION
#define TEXT_OF(version)   #version
#define TEXT_OF_2(version) TEXT_OF(version)
    return "libjpeg-turbo " TEXT_OF_2(LIBJPEG_TURBO_VERSION);
#else
    return "libjpeg";
#endif
}

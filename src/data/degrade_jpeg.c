/* A picture through JPEG and back, in memory. */
#include "data/degrade_internal.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

typedef struct cod_jpeg_codec {
    struct jpeg_error_mgr manager; /* first: libjpeg hands us back a pointer to it */
    jmp_buf jump;
    char reason[JMSG_LENGTH_MAX];
    struct jpeg_compress_struct compress;
    struct jpeg_decompress_struct decompress;
    bool compresses, decompresses; /**< whether these are there */
} cod_jpeg_codec;

_Noreturn static void on_error(j_common_ptr jpeg)
{
    cod_jpeg_codec *codec = (cod_jpeg_codec *)jpeg->err;
    jpeg->err->format_message(jpeg, codec->reason);
    longjmp(codec->jump, 1);
}

static void open_codec(cod_jpeg_codec *codec)
{
    codec->compress.err = codec->decompress.err = jpeg_std_error(&codec->manager);
    codec->manager.error_exit = on_error;
    jpeg_create_compress(&codec->compress);
    codec->compresses = true;
    jpeg_create_decompress(&codec->decompress);
    codec->decompresses = true;
}

static void write_file(cod_jpeg_codec *codec, const cod_floats *picture, int quality, unsigned char *pixels)
{
    struct jpeg_compress_struct *jpeg = &codec->compress;
    jpeg->image_width = (JDIMENSION)picture->width;
    jpeg->image_height = (JDIMENSION)picture->height;
    jpeg->input_components = COD_RGB;
    jpeg->in_color_space = JCS_RGB;
    jpeg_set_defaults(jpeg);
    jpeg_set_quality(jpeg, quality, TRUE);
    jpeg_start_compress(jpeg, TRUE);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW row = pixels + (size_t)jpeg->next_scanline * jpeg->image_width * COD_RGB;
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
}

static void read_file(cod_jpeg_codec *codec, const unsigned char *file, unsigned long bytes, unsigned char *pixels)
{
    struct jpeg_decompress_struct *jpeg = &codec->decompress;
    jpeg_mem_src(jpeg, file, bytes);
    jpeg_read_header(jpeg, TRUE);
    jpeg->out_color_space = JCS_RGB;
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = pixels + (size_t)jpeg->output_scanline * jpeg->output_width * COD_RGB;
        jpeg_read_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_decompress(jpeg);
}

/** The part that libjpeg may leave by longjmp; what must survive lies in *cycle. */
static cod_status run(cod_jpeg_cycle *cycle, const cod_floats *picture, int quality)
{
    cod_jpeg_codec *codec = cycle->codec;
    if (setjmp(codec->jump) != 0)
        return cod_fail(COD_ERR_FORMAT, "cannot compress a picture of %lldx%lld pixels as JPEG: %s",
                        (long long)picture->width, (long long)picture->height, codec->reason);
    if (!codec->decompresses)
        open_codec(codec);
    unsigned char *file = cycle->file.memory;
    unsigned long bytes = cycle->file.bytes;
    jpeg_mem_dest(&codec->compress, &file, &bytes);
    write_file(codec, picture, quality, cycle->pixels.memory);
    cycle->bytes = bytes;
    read_file(codec, file, bytes, cycle->pixels.memory);
    if (file != cycle->file.memory) /* libjpeg takes memory of its own where ours does not suffice */
        free(file);
    return COD_OK;
}

cod_status cod_jpeg_apply(cod_jpeg_cycle *cycle, cod_floats *picture, int quality)
{
    const size_t count = (size_t)cod_floats_count(picture);
    COD_TRY(cod_grow(&cycle->pixels, count));
    COD_TRY(cod_grow(&cycle->file, 2 * count + 4096));
    if (cycle->codec == NULL)
        cycle->codec = calloc(1, sizeof *cycle->codec);
    COD_REQUIRE_MEMORY(cycle->codec);
    cod_floats_to_bytes(picture, cycle->pixels.memory);
    const cod_status status = run(cycle, picture, quality);
    if (status == COD_OK)
        cod_floats_from_bytes(picture, cycle->pixels.memory);
    else
        cod_jpeg_cycle_clear(cycle);
    return status;
}

void cod_jpeg_cycle_clear(cod_jpeg_cycle *cycle)
{
    cod_jpeg_codec *codec = cycle->codec;
    if (codec != NULL && codec->compresses)
        jpeg_destroy_compress(&codec->compress);
    if (codec != NULL && codec->decompresses)
        jpeg_destroy_decompress(&codec->decompress);
    free(codec);
    cod_grown_clear(&cycle->pixels);
    cod_grown_clear(&cycle->file);
    *cycle = (cod_jpeg_cycle){0};
}

#include "data/exif_internal.h"
#include "data/image_internal.h"
#include "data/notes_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>
#include <webp/encode.h>
#include <webp/mux.h>

/**
 * A lossless picture of one colour takes some 30 bytes whatever its size, so that no bound is exact; this one keeps a
 * header of a few bytes from taking a gigabyte.
 */
enum { MOST_PIXELS_A_BYTE = 1 << 20 };

/** What stands beside the pixels. Its EXIF is what follows "Exif\0\0" in a JPEG; some writers have that here, too. */
typedef struct chunks {
    WebPDemuxer *demuxer; /**< NULL = there are none */
    WebPChunkIterator exif, profile;
    const uint8_t *tiff; /**< NULL = no EXIF */
    size_t tiff_bytes;
} chunks;

/** @return false = chunks are announced, but the file ends before them */
static bool chunks_open(const uint8_t *bytes, size_t count, chunks *c)
{
    enum { FLAGS = 20, EXIF = 8, PROFILE = 32, HEAD = 6 }; /* of the chunk VP8X, which comes first */
    *c = (chunks){0};
    if (count <= FLAGS || memcmp(bytes + 12, "VP8X", 4) != 0 || (bytes[FLAGS] & (EXIF | PROFILE)) == 0)
        return true;
    const WebPData data = {bytes, count};
    c->demuxer = WebPDemux(&data);
    if (c->demuxer == NULL)
        return false;
    if (WebPDemuxGetChunk(c->demuxer, "EXIF", 1, &c->exif)) {
        const uint8_t *exif = c->exif.chunk.bytes;
        const size_t length = c->exif.chunk.size,
                     head = length > HEAD && memcmp(exif, "Exif\0\0", HEAD) == 0 ? HEAD : 0;
        c->tiff = exif + head;
        c->tiff_bytes = length - head;
    }
    WebPDemuxGetChunk(c->demuxer, "ICCP", 1, &c->profile);
    return true;
}

static void chunks_close(chunks *c)
{
    if (c->demuxer == NULL)
        return;
    WebPDemuxReleaseChunkIterator(&c->exif);
    WebPDemuxReleaseChunkIterator(&c->profile);
    WebPDemuxDelete(c->demuxer);
}

static cod_status decode_pixels(const uint8_t *bytes, size_t count, const WebPBitstreamFeatures *features,
                                const chunks *c, cod_image *image)
{
    if ((uint64_t)features->width * (uint64_t)features->height / MOST_PIXELS_A_BYTE > count)
        return cod_fail(COD_ERR_FORMAT, "damaged WebP: %zu bytes cannot hold %dx%d pixels", count, features->width,
                        features->height);
    COD_TRY(cod_image_init(image, features->width, features->height, features->has_alpha ? 4 : 3, 8));
    if (c->tiff != NULL)
        COD_TRY(cod_image_keep_exif(image, c->tiff, c->tiff_bytes));
    if (c->profile.chunk.size > 0)
        COD_TRY(cod_image_keep_profile(image, c->profile.chunk.bytes, c->profile.chunk.size));
    const size_t size = cod_image_bytes(image);
    const int stride = features->width * image->channels;
    const uint8_t *decoded = features->has_alpha ? WebPDecodeRGBAInto(bytes, count, image->pixels, size, stride)
                                                 : WebPDecodeRGBInto(bytes, count, image->pixels, size, stride);
    return decoded != NULL
               ? COD_OK
               : cod_fail(COD_ERR_FORMAT, "damaged WebP: its pixels cannot be decoded, or the file ends too early");
}

cod_status cod_webp_decode(const uint8_t *bytes, size_t count, bool header_only, cod_image *image)
{
    WebPBitstreamFeatures features;
    const VP8StatusCode found = WebPGetFeatures(bytes, count, &features);
    if (found != VP8_STATUS_OK)
        return cod_fail(COD_ERR_FORMAT, found == VP8_STATUS_NOT_ENOUGH_DATA ? "damaged WebP: the file ends too early"
                                                                            : "damaged WebP: its header is not right");
    if (features.has_animation)
        return cod_fail(COD_ERR_UNSUPPORTED, "a WebP with moving pictures is not supported; save one of them");
    COD_TRY(cod_image_check_size(features.width, features.height));
    chunks c;
    if (!chunks_open(bytes, count, &c))
        return cod_fail(COD_ERR_FORMAT, "damaged WebP: the file ends too early");
    const int orientation = c.tiff != NULL ? cod_exif_tiff_orientation(c.tiff, c.tiff_bytes) : 1;
    if (header_only) {
        image->width = orientation < 5 ? features.width : features.height;
        image->height = orientation < 5 ? features.height : features.width;
    }
    cod_status status = header_only ? COD_OK : decode_pixels(bytes, count, &features, &c, image);
    if (!header_only)
        COD_THEN(status, cod_image_orient(image, orientation));
    chunks_close(&c);
    return status;
}

/** Copies a chunk into the file that is put together. */
static bool add_chunk(WebPMux *mux, const char name[4], const void *data, size_t bytes)
{
    return WebPMuxSetChunk(mux, name, &(WebPData){data, bytes}, 1) == WEBP_MUX_OK;
}

/** The coded picture, with what stands beside it. WebP has a resolution in EXIF alone. */
static bool add_notes(const struct cod_image_notes *notes, const WebPData *coded, WebPData *whole)
{
    WebPMux *mux = WebPMuxNew();
    uint8_t *made = NULL;
    const uint8_t *exif = notes->exif;
    size_t bytes = notes->exif_bytes;
    if (exif == NULL && notes->dpi_x > 0) {
        cod_exif_of_dpi(notes->dpi_x, notes->dpi_y, &made, &bytes);
        exif = made;
    }
    bool done = mux != NULL && WebPMuxSetImage(mux, coded, 0) == WEBP_MUX_OK;
    done = done && (notes->profile == NULL || add_chunk(mux, "ICCP", notes->profile, notes->profile_bytes));
    done = done && (exif == NULL || add_chunk(mux, "EXIF", exif, bytes));
    done = done && WebPMuxAssemble(mux, whole) == WEBP_MUX_OK;
    WebPMuxDelete(mux);
    free(made);
    return done;
}

static cod_status write_coded(FILE *file, const struct cod_image_notes *notes, const WebPMemoryWriter *memory)
{
    const WebPData coded = {memory->mem, memory->size};
    WebPData whole = {0};
    if (notes != NULL && !add_notes(notes, &coded, &whole))
        return cod_fail(COD_ERR_MEMORY, "libwebp has no memory for the colour profile and EXIF");
    const WebPData *all = notes != NULL ? &whole : &coded;
    const bool written = fwrite(all->bytes, 1, all->size, file) == all->size;
    WebPDataClear(&whole);
    return written ? COD_OK : cod_fail(COD_ERR_IO, "cannot write: %s", strerror(errno));
}

static cod_status encode(WebPPicture *picture, const WebPConfig *config, FILE *file, const cod_image *image)
{
    WebPMemoryWriter memory;
    WebPMemoryWriterInit(&memory);
    picture->use_argb = config->lossless;
    picture->width = (int)image->width;
    picture->height = (int)image->height;
    picture->writer = WebPMemoryWrite;
    picture->custom_ptr = &memory;
    const int stride = (int)image->width * image->channels;
    const int taken = image->channels == 4 ? WebPPictureImportRGBA(picture, image->pixels, stride)
                                           : WebPPictureImportRGB(picture, image->pixels, stride);
    cod_status status = taken ? COD_OK : cod_fail(COD_ERR_MEMORY, "libwebp has no memory");
    if (status == COD_OK && !WebPEncode(config, picture))
        status = cod_fail(picture->error_code == VP8_ENC_ERROR_OUT_OF_MEMORY ? COD_ERR_MEMORY : COD_ERR_IO,
                          "cannot write: libwebp's error %d", (int)picture->error_code);
    COD_THEN(status, write_coded(file, image->notes, &memory));
    WebPMemoryWriterClear(&memory);
    return status;
}

cod_status cod_webp_encode(FILE *file, const cod_image *image, int quality)
{
    WebPPicture picture;
    WebPConfig config;
    if (image->width > WEBP_MAX_DIMENSION || image->height > WEBP_MAX_DIMENSION)
        return cod_fail(COD_ERR_UNSUPPORTED,
                        "%lldx%lld pixels are too many for WebP, whose sides have at most %d; write a PNG",
                        (long long)image->width, (long long)image->height, WEBP_MAX_DIMENSION);
    if (!WebPPictureInit(&picture) || !WebPConfigInit(&config))
        return cod_fail(COD_ERR_UNSUPPORTED, "libwebp is of another version than this program was built with");
    config.quality = (float)quality;
    config.lossless = quality == COD_IMAGE_BEST_QUALITY;
    if (config.lossless)
        config.quality = 75; /* here effort, not quality */
    const cod_status status = encode(&picture, &config, file, image);
    WebPPictureFree(&picture);
    return status;
}

void cod_webp_version(char *text, size_t bytes)
{
    const int version = WebPGetDecoderVersion();
    snprintf(text, bytes, "libwebp %d.%d.%d", version >> 16, version >> 8 & 255, version & 255);
}

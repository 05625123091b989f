#include "data/image_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>
#include <webp/encode.h>

/**
 * A lossless picture of one colour takes some 30 bytes whatever its size, so that no bound is exact; this one keeps a
 * header of a few bytes from taking a gigabyte.
 */
enum { MOST_PIXELS_A_BYTE = 1 << 20 };

/**
 * Its EXIF chunk is what follows "Exif\0\0" in a JPEG, and some writers put that before it here too.
 *
 * @return 0 = the chunk is announced, but the file ends before it
 */
static int orientation_of(const uint8_t *bytes, size_t count)
{
    enum { FLAGS = 20, EXIF = 8 }; /* of the chunk VP8X, which comes first */
    if (count <= FLAGS || memcmp(bytes + 12, "VP8X", 4) != 0 || (bytes[FLAGS] & EXIF) == 0)
        return 1;
    int orientation = 1;
    const WebPData data = {bytes, count};
    WebPDemuxer *demuxer = WebPDemux(&data);
    WebPChunkIterator chunk;
    if (demuxer == NULL)
        return 0;
    if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
        const uint8_t *exif = chunk.chunk.bytes;
        const size_t length = chunk.chunk.size;
        const bool head = length > sizeof "Exif\0" && memcmp(exif, "Exif\0", sizeof "Exif\0") == 0;
        orientation = head ? cod_exif_orientation(exif, length) : cod_exif_tiff_orientation(exif, length);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    WebPDemuxDelete(demuxer);
    return orientation;
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
    const int orientation = orientation_of(bytes, count);
    if (orientation == 0)
        return cod_fail(COD_ERR_FORMAT, "damaged WebP: the file ends too early");
    if (header_only) {
        image->width = orientation < 5 ? features.width : features.height;
        image->height = orientation < 5 ? features.height : features.width;
        return COD_OK;
    }
    if ((uint64_t)features.width * (uint64_t)features.height / MOST_PIXELS_A_BYTE > count)
        return cod_fail(COD_ERR_FORMAT, "damaged WebP: %zu bytes cannot hold %dx%d pixels", count, features.width,
                        features.height);
    COD_TRY(cod_image_init(image, features.width, features.height, features.has_alpha ? 4 : 3, 8));
    const size_t size = cod_image_bytes(image);
    const int stride = features.width * image->channels;
    const uint8_t *decoded = features.has_alpha ? WebPDecodeRGBAInto(bytes, count, image->pixels, size, stride)
                                                : WebPDecodeRGBInto(bytes, count, image->pixels, size, stride);
    return decoded != NULL
               ? cod_image_orient(image, orientation)
               : cod_fail(COD_ERR_FORMAT, "damaged WebP: its pixels cannot be decoded, or the file ends too early");
}

static int write_part(const uint8_t *data, size_t bytes, const WebPPicture *picture)
{
    return fwrite(data, 1, bytes, picture->custom_ptr) == bytes;
}

static cod_status encode(WebPPicture *picture, const WebPConfig *config, FILE *file, const cod_image *image)
{
    picture->use_argb = config->lossless;
    picture->width = (int)image->width;
    picture->height = (int)image->height;
    picture->writer = write_part;
    picture->custom_ptr = file;
    const int stride = (int)image->width * image->channels;
    const int taken = image->channels == 4 ? WebPPictureImportRGBA(picture, image->pixels, stride)
                                           : WebPPictureImportRGB(picture, image->pixels, stride);
    if (!taken)
        return cod_fail(COD_ERR_MEMORY, "libwebp has no memory");
    return WebPEncode(config, picture)
               ? COD_OK
               : cod_fail(COD_ERR_IO, "cannot write: libwebp's error %d", (int)picture->error_code);
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

/**
 * @file
 * Image files: PNG, JPEG, WebP, TIFF and BMP, told apart by content, to and from plain pixels. The only reader and
 * writer of pictures.
 */
#ifndef COD_DATA_IMAGE_H
#define COD_DATA_IMAGE_H

#include "core/status.h"

#include <stdint.h>

enum {
    COD_IMAGE_MAX_SIDE = 65535,               /**< pixels */
    COD_IMAGE_MAX_PIXELS = 512 * 1024 * 1024, /**< width * height; keeps a hostile header from taking all memory */
    COD_IMAGE_BEST_QUALITY = 100,
};

/** A picture: [height, width, channels], row-major, no padding. */
typedef struct cod_image {
    int64_t width, height;
    int channels; /**< 3 = RGB, 4 = RGBA (alpha not premultiplied) */
    int bits;     /**< 8: uint8_t pixels, 16: uint16_t pixels in host order */
    void *pixels; /**< owned; cod_image_clear() frees it */
    /** colour profile, EXIF and resolution of the file that it was read from; owned; NULL = none */
    struct cod_image_notes *notes;
} cod_image;

/** Allocates zeroed pixels; the caller clears `image`. */
COD_MUST_CHECK cod_status cod_image_init(cod_image *image, int64_t width, int64_t height, int channels, int bits);
/** Frees the pixels and zeroes the struct; a zeroed or NULL image is fine. */
void cod_image_clear(cod_image *image);

/**
 * Moves what the file of `from` said beside its pixels to `to`, a picture made of it: the colour profile; EXIF, with
 * orientation and size as they are now; the resolution, scaled so that the size in print stays.
 */
void cod_image_move_notes(cod_image *to, cod_image *from);

static inline size_t cod_image_bytes(const cod_image *image)
{
    return (size_t)image->width * (size_t)image->height * (size_t)image->channels * (size_t)(image->bits / 8);
}

/** The largest value of a channel: white, or opaque. */
static inline unsigned cod_image_top(const cod_image *image)
{
    return image->bits == 8 ? 255 : 65535;
}

/**
 * Reads a PNG (any bit depth, gray, palette, transparency, interlaced), a JPEG (baseline, progressive, gray, CMYK), a
 * WebP (one picture), a TIFF (one picture, beside which smaller copies may lie; gray and RGB of 8 or 16 bits, and what
 * libtiff turns into 8 bits without alpha) or a BMP (without compression).
 *
 * Gray becomes RGB with equal channels, a palette its colours, tRNS an alpha channel; less than 8 bits widen to 8;
 * EXIF orientation is applied. Values are those of the file, whose colour profile is kept beside them; so are EXIF and
 * the resolution. A profile of gray, or gAMA and cHRM of a PNG, become a profile of RGB. CMYK with a profile is
 * converted to sRGB by it.
 *
 * @param[out] image  cleared by the caller; zeroed on failure
 * @return COD_ERR_IO when the file cannot be read, COD_ERR_FORMAT when it is damaged, truncated or no image,
 *         COD_ERR_UNSUPPORTED for a known format that is none of these, a JPEG with arithmetic coding, several or moving
 *         pictures, a TIFF's signed, float or other samples that a cod_image cannot hold, or an image past the limits;
 *         the message names the file
 */
COD_MUST_CHECK cod_status cod_image_read(const char *path, cod_image *image);

/** cod_image_read() of `count` bytes in memory; messages call them `name`. */
COD_MUST_CHECK cod_status cod_image_decode(const void *bytes, size_t count, const char *name, cod_image *image);

/**
 * Size of the picture, with EXIF orientation applied, from the file's header alone; the pixels may still be damaged.
 */
COD_MUST_CHECK cod_status cod_image_probe(const char *path, int64_t *width, int64_t *height);

/** Turns any image into 8-bit RGB in place: what is transparent lies on white, 16 bits are rounded to 8. */
COD_MUST_CHECK cod_status cod_image_to_rgb8(cod_image *image);

typedef enum cod_image_format { COD_IMAGE_PNG, COD_IMAGE_JPEG, COD_IMAGE_WEBP, COD_IMAGE_FORMATS } cod_image_format;

/** The format that the ending of a name stands for (.png, .jpg, .jpeg, .webp); COD_IMAGE_FORMATS = none. */
cod_image_format cod_image_format_of(const char *path);

/**
 * Writes a picture completely or not at all: writes a temporary file beside `path`, flushes it (fsync) and renames it.
 * The picture's notes are written with it. PNG keeps all of an 8- or 16-bit RGB or RGBA picture; WebP rounds 16 bits to
 * 8; JPEG also has no alpha, so what is transparent lies on white.
 *
 * @param quality  of JPEG, without subsampling of colours, and of WebP: 1 … COD_IMAGE_BEST_QUALITY, which for WebP is
 *   lossless
 * @return COD_ERR_IO with the file and the reason; COD_ERR_UNSUPPORTED for a picture that is too large for WebP
 */
COD_MUST_CHECK cod_status cod_image_write(const char *path, const cod_image *image, cod_image_format format,
                                          int quality);
/** The bytes that cod_image_write() writes. @param[out] bytes  new; free() */
COD_MUST_CHECK cod_status cod_image_encode(const cod_image *image, cod_image_format format, int quality, void **bytes,
                                           size_t *count);
/** cod_image_write() as PNG. */
COD_MUST_CHECK cod_status cod_image_write_png(const char *path, const cod_image *image);

/**
 * The libraries behind it and their versions, such as "libpng 1.6.39, libjpeg-turbo 2.1.5, libwebp 1.2.4, libtiff
 * 4.5.0, Little CMS 2.14".
 */
void cod_image_libraries(char *text, size_t bytes);

#endif

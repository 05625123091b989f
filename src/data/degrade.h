/**
 * @file
 * Realistic low-resolution pictures: blurred, resized, noisy and compressed, in random order and strength (Wang et al.
 * 2021, Real-ESRGAN, section 3; Zhang et al. 2021, BSRGAN). A sample's degradation is a pure function of its place.
 *
 * First pass: blur, resize by a random factor, noise, JPEG. Second pass: perhaps blur, resize to about the low
 * resolution, noise; then the resize to 1/scale with a sinc filter, before or behind the last JPEG. As in BasicSR,
 * except that JPEG is libjpeg's, which rounds to 8 bits.
 */
#ifndef COD_DATA_DEGRADE_H
#define COD_DATA_DEGRADE_H

#include "data/blur_kernel.h"
#include "data/degrade_options.h"
#include "data/samples.h"

typedef struct cod_degrader cod_degrader;

enum { COD_DEGRADATION_TEXT_BYTES = 1024 };

/** What one pass does. */
typedef struct cod_degradation_pass {
    bool blurs;
    cod_blur blur;
    double factor; /**< factor of the resize; 1 = keep the size. In the second pass relative to the low resolution */
    int mode;      /**< of the resize: 0 area, 1 bilinear, 2 bicubic */
    bool poisson, gray;
    double noise; /**< standard deviation, or Poisson noise's scale */
    int quality;  /**< of JPEG, 1 … 100 */
} cod_degradation_pass;

/** All random choices of a sample's degradation except the noise itself. */
typedef struct cod_degradation {
    int count; /**< passes */
    cod_degradation_pass passes[2];
    int mode;  /**< of the resize to 1/scale */
    bool sinc; /**< whether `final` follows it */
    cod_blur final;
    bool jpeg_last; /**< with two passes: whether the second JPEG comes after that resize */
} cod_degradation;

/**
 * The part of an 8-bit RGB picture [picture_height, picture_width, 3] that is degraded. Outside its borders the picture
 * is reflected.
 */
typedef struct cod_degrade_region {
    const uint8_t *picture;
    int64_t picture_width, picture_height;
    int64_t left, top;
    int64_t low_width, low_height; /**< of the result; the part is scale times as large */
    const float *pixels;           /**< pixels to degrade in place of the picture's, 0 … 255; NULL = the picture's */
} cod_degrade_region;

/** A degraded picture; end it with cod_degraded_clear(). */
typedef struct cod_degraded {
    const uint8_t *pixels; /**< [height, width, 3] */
    int64_t width, height;
    cod_degrader *degrader;
    struct cod_degrade_room *room;
} cod_degraded;

/**
 * @param options  borrowed until cod_degrader_destroy()
 * @param[out] out  new; cod_degrader_destroy()
 * @return COD_ERR_ARGUMENT as cod_degrade_options_check()
 */
COD_MUST_CHECK cod_status cod_degrader_create(const cod_degrade_options *options, int scale, cod_degrader **out);
/** NULL is fine. */
void cod_degrader_destroy(cod_degrader *degrader);

/** Frees the memory that is kept for later calls, which grows with the largest picture; any thread. */
void cod_degrader_trim(cod_degrader *degrader);
/** Bytes of that memory. */
size_t cod_degrader_kept_bytes(cod_degrader *degrader);

const cod_degrade_options *cod_degrader_options(const cod_degrader *degrader);

/** Draws the degradation of the sample at a place; any thread. */
void cod_degradation_draw(const cod_degrade_options *options, const cod_sample_place *place, cod_degradation *out);

/**
 * In words: "blur aniso 15x15 sigma 2.10 and 0.70 at 31 degrees, resize 0.53 area, gray Gaussian noise 2.50, JPEG 40;
 * …".
 *
 * @param[out] text  of at least COD_DEGRADATION_TEXT_BYTES
 */
void cod_degradation_describe(const cod_degradation *degradation, char text[COD_DEGRADATION_TEXT_BYTES]);

/**
 * Degrades a part of a picture; any thread. Memory is kept for the next call.
 *
 * @param place  of the sample; it determines the noise
 * @param[out] out  new; cod_degraded_clear()
 */
COD_MUST_CHECK cod_status cod_degrade(cod_degrader *degrader, const cod_degradation *degradation,
                                      const cod_sample_place *place, const cod_degrade_region *region,
                                      cod_degraded *out);
void cod_degraded_clear(cod_degraded *degraded);

#endif

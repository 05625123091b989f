/**
 * @file
 * Image quality against a reference: PSNR and SSIM as the super-resolution literature computes them.
 */
#ifndef COD_DATA_METRICS_H
#define COD_DATA_METRICS_H

#include "data/image.h"

#include <math.h>

/** Quality of one picture; SSIM is at most 1, PSNR in dB is infinite for equal pictures. */
typedef struct cod_quality {
    double psnr_y, ssim_y;     /**< of the unrounded luma (MATLAB's rgb2ycbcr, 16 … 235) */
    double psnr_rgb, ssim_rgb; /**< PSNR of the mean error of all channels; SSIM meaned over the channels */
} cod_quality;

/**
 * Compares two 8-bit images of equal size, alpha ignored, `crop` pixels left out at each border (usually the scale).
 *
 * @return COD_ERR_ARGUMENT unless sizes agree and at least 11x11 pixels remain
 */
COD_MUST_CHECK cod_status cod_image_compare(const cod_image *image, const cod_image *truth, int64_t crop,
                                            cod_quality *quality);

/** ITU-R BT.601 luma of 8-bit RGB as MATLAB's rgb2ycbcr, without rounding: 16 … 235. */
static inline double cod_luma(const uint8_t rgb[3])
{
    return 16 + (65.481 * rgb[0] + 128.553 * rgb[1] + 24.966 * rgb[2]) / 255;
}

/** Gray as MATLAB's rgb2gray, rounded to 8 bits as it does for 8-bit pictures. */
static inline double cod_gray(const uint8_t rgb[3])
{
    return floor(0.298936021293775 * rgb[0] + 0.587043074451121 * rgb[1] + 0.114020904255103 * rgb[2] + 0.5);
}

/** 10 log10(peak² / mean square error) of `count` values; infinite when equal. */
double cod_psnr(const double *a, const double *b, size_t count, double peak);

/**
 * Mean SSIM of two planes [height, width] in 0 … 255 (Wang et al. 2004): 11x11 Gaussian window of sigma 1.5, only where
 * it fits whole, K1 = 0.01, K2 = 0.03.
 */
COD_MUST_CHECK cod_status cod_ssim(const double *a, const double *b, int64_t height, int64_t width, double *ssim);

/** The same without the factor of means: the mean of (2 covariance + C2) / (variance a + variance b + C2). */
COD_MUST_CHECK cod_status cod_ssim_structure(const double *a, const double *b, int64_t height, int64_t width,
                                             double *structure);

#endif

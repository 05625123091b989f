/**
 * @file
 * NIQE, a no-reference measure of how unnatural a picture looks: the distance of its statistics from those of natural
 * pictures.
 *
 * Mittal, Soundararajan & Bovik 2013, "Making a 'completely blind' image quality analyzer", by the steps of the
 * authors' MATLAB release, computequality.m and the functions that it calls. Lower is better; photographs have about 2
 * to 5.
 *
 * One step differs from the release. Where a window is flat, as in white margins, (v - mean) / (deviation + 1) is 0 in
 * exact arithmetic. In the release it is a rounding error of about 1e-14, and its sign, which depends on the order in
 * which a window is summed, affects the features. Here |…| < 1e-9 counts as 0. Without flat windows nothing differs.
 * Set5's head is 13 % flat: 8.280 here and with rows and columns summed one after another, 8.651 with all 49 products
 * in one sum. pyiqa 0.1.16 gives 8.603 (tools/bench/niqe_vs_pyiqa.sh says why).
 */
#ifndef COD_DATA_NIQE_H
#define COD_DATA_NIQE_H

#include "data/image.h"

enum {
    COD_NIQE_FEATURES = 36, /**< 18 of each block of the picture, then 18 of the same block at half the size */
    COD_NIQE_BLOCK = 96     /**< pixels to a side */
};

/**
 * A multivariate Gaussian fitted to the features of natural pictures: `mu_prisparam` and `cov_prisparam` of the
 * release.
 */
typedef struct cod_niqe_model {
    double mean[COD_NIQE_FEATURES];
    double covariance[COD_NIQE_FEATURES * COD_NIQE_FEATURES]; /**< symmetric */
} cod_niqe_model;

/**
 * @param image  8-bit; alpha is ignored
 * @param crop   pixels that are left out at each border
 * @return COD_ERR_ARGUMENT if fewer than two blocks of COD_NIQE_BLOCK with statistics remain
 */
COD_MUST_CHECK cod_status cod_niqe(const cod_image *image, int64_t crop, const cod_niqe_model *model, double *niqe);

/**
 * The picture's own features, whose distance to the model is NIQE: means over its blocks, and covariance (by the number
 * of blocks less one).
 */
COD_MUST_CHECK cod_status cod_niqe_features(const cod_image *image, int64_t crop, cod_niqe_model *features);

#endif

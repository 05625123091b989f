/**
 * @file
 * The figures of the PIRM 2018 challenge on perceptual super-resolution (Blau et al., "The 2018 PIRM challenge on
 * perceptual image super-resolution", ECCV workshops 2018), by the steps of the organisers' evaluate_results.m: both
 * are of the Y channel of 8-bit pictures (MATLAB's rgb2ycbcr, rounded to 8 bits).
 *
 * The perceptual index is ((10 - Ma) + NIQE) / 2. The model of Ma's score is not shipped. Without a file of it from the
 * user (infer/ma_model.h), NIQE alone takes the place of the index, and output says so (cod_pi_is()).
 */
#ifndef COD_DATA_PERCEPTUAL_INDEX_H
#define COD_DATA_PERCEPTUAL_INDEX_H

#include "data/ma.h"
#include "data/niqe.h"

/** Text that says what is shown as the perceptual index, with or without Ma's score. */
const char *cod_pi_is(bool with_ma);

/**
 * @param[in]  ma  NULL = NIQE alone
 * @param[out] pi  lower is better
 * @return as cod_niqe() and cod_ma()
 */
COD_MUST_CHECK cod_status cod_perceptual_index(const cod_image *image, int64_t crop, const cod_niqe_model *niqe,
                                               const cod_ma_model *ma, double *pi);

/**
 * Root of the mean squared error of the Y channel, 0 … 219, of two 8-bit pictures of equal size, `crop` pixels left out
 * at each border.
 */
COD_MUST_CHECK cod_status cod_rmse_y(const cod_image *image, const cod_image *truth, int64_t crop, double *rmse);

/** The challenge's region of an RMSE: 1 up to 11.5, 2 up to 12.5, 3 up to 16, beyond that 0, none. */
int cod_pirm_region(double rmse);

#endif

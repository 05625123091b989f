/** @file Parts of Ma's score; the fields of cod_ma_features describe what they compute. */
#ifndef COD_DATA_MA_INTERNAL_H
#define COD_DATA_MA_INTERNAL_H

#include "data/ma.h"
#include "data/steerable_internal.h"

enum { COD_MA_SCALES = 3 };

/**
 * The shape of a generalised Gaussian, among 0.03, 0.031, … 10: the one whose ratio of variance and squared mean
 * absolute deviation is nearest to that of the values (Sharifi & Leon-Garcia 1995).
 */
double cod_ma_shape(const double *values, size_t count);

/** @param[in] gray  0 … 1, its half and its quarter */
COD_MUST_CHECK cod_status cod_ma_block_features(const cod_plane gray[COD_MA_SCALES],
                                                double features[COD_MA_BLOCK_FEATURES]);
COD_MUST_CHECK cod_status cod_ma_patch_features(const cod_plane gray[COD_MA_SCALES],
                                                double features[COD_MA_PATCH_FEATURES]);
/** @param[in] gray  0 … 255 */
COD_MUST_CHECK cod_status cod_ma_band_features(const cod_plane *gray, double features[COD_MA_BAND_FEATURES]);

#endif

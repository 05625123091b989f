/**
 * @file
 * Ma's score: how good an upscaled picture looks, without a reference picture. Higher is better; it was trained on
 * viewers' scores from 0 to 10.
 *
 * Ma, Yang, Yang & Yang 2017, "Learning a no-reference quality metric for single-image super-resolution", by the steps
 * of the authors' MATLAB release (github.com/chaoma99/sr-metric): three groups of features, a random forest for each,
 * and a linear combination of the three predictions.
 *
 * Sources: every step and constant is in public copies of the release and of the code that it calls. These are
 * feature_all.m, block_dct.m, gama_gen_gauss.m, global_gsm.m and quality_predict.m, norm_sender_normalized.m and
 * ssim_index_new.m (from DIIVINE), buildSFpyr.m (matlabPyrTools) and regRF_predict.m (randomforest-matlab).
 *
 * Where copies or ports differ:
 * - The shape parameter: some copies of gama_gen_gauss.m search an interval, as BLIINDS-II does; others take the
 *   nearest entry of the table. Three ports of the release take the nearest one, and so do we.
 * - The parents in the divisive normalisation: the condition `nband < Nband - Nor` gives a parent to five of the first
 *   level's six bands. We follow it; pyiqa (nrqm_arch.py) gives one to all six.
 *
 * Not verified: no value was compared with MATLAB or with the authors' forests, because neither was available. The
 * tests compare with a second implementation in NumPy, written from the same sources. Singular values are square roots
 * of eigenvalues here, so that one that is 1e-8 of the largest one or less is not accurate.
 */
#ifndef COD_DATA_MA_H
#define COD_DATA_MA_H

#include "data/image.h"

/** The groups of features, each with a forest of its own. */
typedef enum cod_ma_group { COD_MA_BLOCKS, COD_MA_BANDS, COD_MA_PATCHES, COD_MA_GROUPS } cod_ma_group;

enum {
    COD_MA_BLOCK_FEATURES = 18,
    COD_MA_BAND_FEATURES = 45,
    COD_MA_PATCH_FEATURES = 75,
    COD_MA_FEATURES_MAX = COD_MA_PATCH_FEATURES,
    COD_MA_SIDE = 84 /**< smallest side in pixels, with which the quarter has 25 patches, one for each singular value */
};

/** "blocks", "bands", "patches". */
extern const char *const cod_ma_group_names[COD_MA_GROUPS];
extern const int cod_ma_feature_counts[COD_MA_GROUPS];

typedef struct cod_ma_features {
    /**
     * Six features of each of three pictures: the gray one in 0 … 1, its half and its quarter. A half is the picture
     * filtered by a 3x3 Gaussian of sigma 0.5, with zeros beyond the border, of which every second pixel stays, from
     * the second one on.
     *
     * Three figures of the DCT of each 7x7 window, every 3 pixels, without its first coefficient: the shape of a
     * generalised Gaussian; the coefficient of variation of absolute values; the variance of that coefficient over
     * three orientations. Features are the mean over the tenth of windows with the least shape and over all windows,
     * then of both other figures the mean over the tenth with the greatest and over all.
     */
    double blocks[COD_MA_BLOCK_FEATURES];
    /**
     * Of a steerable pyramid of the gray picture in 0 … 255, with two levels of six orientations: the shape of the
     * values of each divisively normalised band (12); the shape of both levels' values of each orientation (6); the
     * contrast and structure of SSIM between the band of high frequencies and each band before it is normalised (12);
     * the same between each two normalised bands of the first level (15).
     */
    double bands[COD_MA_BAND_FEATURES];
    /** Of the same three pictures as `blocks`: the 25 singular values, falling, of the matrix of their 5x5 patches. */
    double patches[COD_MA_PATCH_FEATURES];
} cod_ma_features;

/** A node of a regression tree. */
typedef struct cod_ma_node {
    double value;    /**< the threshold: features up to it go left; of a leaf its prediction */
    int32_t feature; /**< -1 = a leaf */
    int32_t left;    /**< index of the left child in the forest, above this node's; the right child is the next node */
} cod_ma_node;

/** Trees whose predictions are averaged. */
typedef struct cod_ma_forest {
    size_t tree_count, node_count;
    int32_t *roots;     /**< [tree_count] */
    cod_ma_node *nodes; /**< [node_count] */
} cod_ma_forest;

typedef struct cod_ma_model {
    cod_ma_forest forests[COD_MA_GROUPS];
    double linear
        [1 + COD_MA_GROUPS]; /**< the score is linear[0] + the sum of linear[1 + g] times the prediction of forest g */
} cod_ma_model;

/**
 * Checks that all trees are well formed.
 *
 * @return COD_ERR_FORMAT where a node leads out of the forest or backwards, or asks for a feature that its group lacks
 */
COD_MUST_CHECK cod_status cod_ma_model_check(const cod_ma_model *model);

/** The mean of a forest's trees. @param[in] features  of the forest's group */
double cod_ma_forest_predict(const cod_ma_forest *forest, const double *features);

double cod_ma_predict(const cod_ma_model *model, const cod_ma_features *features);

/**
 * @param image  8-bit RGB; alpha is ignored, the gray is that of MATLAB's rgb2gray
 * @param crop   pixels that are left out at each border
 * @return COD_ERR_ARGUMENT where less than COD_MA_SIDE pixels to a side remain, or a flat picture
 */
COD_MUST_CHECK cod_status cod_ma_features_of(const cod_image *image, int64_t crop, cod_ma_features *features);

/** The score of a picture. @return as cod_ma_features_of() */
COD_MUST_CHECK cod_status cod_ma(const cod_image *image, int64_t crop, const cod_ma_model *model, double *score);

#endif

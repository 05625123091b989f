/**
 * @file
 * Ma's score, how good an upscaled picture looks without one to compare it with: three random forests on three groups of features.
 *
 * Ma, Yang, Yang & Yang 2017, "Learning a no-reference quality metric for single-image super-resolution", by the steps of the authors'
 * MATLAB release (github.com/chaoma99/sr-metric). Higher is better; the forests were trained on viewers' scores from 0 to 10.
 *
 * Known for certain, from the release's own text as its copies have it (feature_all.m, block_dct.m, global_gsm.m, gama_gen_gauss.m,
 * oriented*_dct_rho_config3.m, quality_predict.m; norm_sender_normalized.m and ssim_index_new.m of DIIVINE; buildSFpyr.m of matlabPyrTools;
 * regRF_predict.m of randomforest-matlab): every step and constant below. Three ports agree on the shape parameter: the nearest of the table,
 * not the interval search of BLIINDS-II, whose code the release took over. They do not agree on the parents: pyiqa gives one to all six
 * bands of the first level; the release's condition `nband < Nband - Nor` gives none to the last one, and so do we.
 *
 * Not certain: nothing here was compared with MATLAB, for want of it and of the release's model. The tests compare with a second
 * implementation in NumPy, written from the same sources. Singular values are roots of eigenvalues here, accurate to about 1e-8 of the largest
 * one; a feature beside a threshold of a tree may fall to its other side, which moves the mean of 2000 trees by less than 0.01.
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
    COD_MA_SIDE = 84 /**< the least pixels to a side: the quarter has 25 patches then, one for each singular value */
};

/** "blocks", "bands", "patches". */
extern const char *const cod_ma_group_names[COD_MA_GROUPS];
extern const int cod_ma_feature_counts[COD_MA_GROUPS];

typedef struct cod_ma_features {
    /**
     * Of the gray picture in 0 … 1, its half and its quarter (each filtered by a 3x3 Gaussian of sigma 0.5 with zeros beyond the border, of
     * which every second pixel from the second one on stays): the DCT of 7x7 windows every 3 pixels, without its first coefficient.
     * The shape of a generalised Gaussian: mean of the least tenth of windows, mean of all. The deviation of absolute values by their mean: mean
     * of the greatest tenth, mean of all. The variance of that figure over three orientations: mean of the greatest tenth, mean of all.
     */
    double blocks[COD_MA_BLOCK_FEATURES];
    /**
     * Of the 12 bands of a steerable pyramid of the gray picture in 0 … 255, divisively normalised: the shape of each band's values, the
     * shape of both levels' values of each orientation; the contrast and structure of SSIM between the band of high frequencies and each band before
     * normalisation; the same between each two normalised bands of the first level.
     */
    double bands[COD_MA_BAND_FEATURES];
    /** Of the same three pictures as `blocks`: the 25 singular values, falling, of the matrix of 5x5 patches side by side. */
    double patches[COD_MA_PATCH_FEATURES];
} cod_ma_features;

/** A node of a regression tree. */
typedef struct cod_ma_node {
    double value;    /**< the threshold: features up to it go left; of a leaf its prediction */
    int32_t feature; /**< -1 = a leaf */
    int32_t left;    /**< node of the forest, behind this one; the right one is the next */
} cod_ma_node;

/** Trees whose mean prediction counts. */
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

/** @return COD_ERR_FORMAT where a node leads nowhere, or backwards, or asks for a feature that the group does not have */
COD_MUST_CHECK cod_status cod_ma_model_check(const cod_ma_model *model);

/** The mean of a forest's trees. @param[in] features  of the forest's group */
double cod_ma_forest_predict(const cod_ma_forest *forest, const double *features);

double cod_ma_predict(const cod_ma_model *model, const cod_ma_features *features);

/**
 * @param image  8-bit RGB; alpha is ignored, the gray is that of MATLAB's rgb2gray
 * @param crop   pixels that are left out at each border
 * @return COD_ERR_ARGUMENT unless COD_MA_SIDE pixels to a side remain that are not flat
 */
COD_MUST_CHECK cod_status cod_ma_features_of(const cod_image *image, int64_t crop, cod_ma_features *features);

/** The score of a picture. @return as cod_ma_features_of() */
COD_MUST_CHECK cod_status cod_ma(const cod_image *image, int64_t crop, const cod_ma_model *model, double *score);

#endif

/**
 * @file
 * Weights of Gaussian windows.
 */
#ifndef COD_DATA_GAUSSIAN_INTERNAL_H
#define COD_DATA_GAUSSIAN_INTERNAL_H

/** @param side  odd @param[out] weights  [side], of sum 1, the greatest in the middle */
void cod_gaussian_weights(int side, double sigma, double *weights);

#endif

/**
 * @file
 * Eigenvalues and eigenvectors of small symmetric matrices.
 */
#ifndef COD_DATA_SYMMETRIC_INTERNAL_H
#define COD_DATA_SYMMETRIC_INTERNAL_H

/**
 * Diagonalises a symmetric matrix by cyclic Jacobi rotations (Golub & Van Loan, Matrix Computations, 8.5).
 *
 * @param[in,out] a        [size, size]; its diagonal becomes the eigenvalues, in no order
 * @param[out]    vectors  [size, size], one in each column
 */
void cod_diagonalise(int size, double *a, double *vectors);

/** Eigenvalues up to this one count as 0 in MATLAB's pinv(); `largest` is the largest absolute one. */
double cod_pinv_tolerance(int size, double largest);

#endif

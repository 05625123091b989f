/**
 * @file
 * Whether two sets of repeated measurements differ by more than chance: Student's t-tests, confidence intervals, and
 * Holm's correction for several comparisons at once.
 */
#ifndef COD_REPORT_SIGNIFICANCE_H
#define COD_REPORT_SIGNIFICANCE_H

#include <stddef.h>

/** Mean of `values` [count]; NaN of none. */
double cod_mean(const double *values, size_t count);
/** Sample standard deviation (n - 1 below); NaN of fewer than two values. */
double cod_deviation(const double *values, size_t count);

/**
 * Regularised incomplete beta function I_x(a, b) for a, b > 0 and 0 <= x <= 1, to about 1e-13: the continued fraction
 * DLMF 8.17.22 by Lentz's method (Press et al., Numerical Recipes, 3rd ed., 6.4), with DLMF 8.17.4 for large x.
 */
double cod_incomplete_beta(double a, double b, double x);
/**
 * P(T <= t) of Student's distribution with `freedom` > 0 degrees, not necessarily whole: Abramowitz & Stegun 26.7.1.
 */
double cod_student_cdf(double t, double freedom);
/** P(|T| >= |t|), without the cancellation that 1 - cdf would have. */
double cod_student_two_sided(double t, double freedom);
/** The t for which P(T <= t) = `p`, 0 < p < 1. */
double cod_student_quantile(double p, double freedom);

typedef enum cod_t_test_kind {
    COD_T_TEST_NONE,   /**< too few values for any */
    COD_T_TEST_PAIRED, /**< Student (1908): of the differences of pairs */
    COD_T_TEST_WELCH,  /**< Welch (1947): unequal variances; freedom by Satterthwaite (1946) */
} cod_t_test_kind;

/** Result of a test about mean(a) - mean(b). NaN = unknown. */
typedef struct cod_t_test {
    cod_t_test_kind kind;
    size_t count_a, count_b;
    double difference;
    double t, freedom;
    double p;         /**< two-sided; NaN also if no value varies, because chance then cannot be estimated */
    double low, high; /**< 95 % confidence interval of the difference */
} cod_t_test;

/**
 * Test of the pairs (a[i], b[i]); with fewer than two pairs the kind is COD_T_TEST_NONE and only `difference` is set.
 */
cod_t_test cod_t_test_paired(const double *a, const double *b, size_t count);
/** Test of independent values; with fewer than two on a side the kind is COD_T_TEST_NONE. */
cod_t_test cod_t_test_welch(const double *a, size_t count_a, const double *b, size_t count_b);

/**
 * Adjusts the p-values of several tests so that the chance of one false finding among them stays below the level: Holm,
 * "A simple sequentially rejective multiple test procedure", 1979. NaN (no test) stays NaN and counts for nothing.
 * @param[in,out] p  [count]
 */
void cod_holm_adjust(double *p, size_t count);

#endif

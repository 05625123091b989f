#include "report/significance.h"

#include <math.h>
#include <stdbool.h>

double cod_mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count > 0 ? sum / (double)count : NAN;
}

double cod_deviation(const double *values, size_t count)
{
    const double mean = cod_mean(values, count);
    double squares = 0;
    for (size_t i = 0; i < count; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return count > 1 ? sqrt(squares / (double)(count - 1)) : NAN;
}

/** The continued fraction of I_x(a, b); converges fast for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    enum { MOST_TERMS = 10000 };
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double fraction = d;
    for (int m = 1; m < MOST_TERMS; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                     odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), terms[2] = {even, odd};
        double step = 1;
        for (int i = 0; i < 2; i++) {
            d = 1 + terms[i] * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + terms[i] / c;
            c = fabs(c) < tiny ? tiny : c;
            step = c * d;
            fraction *= step;
        }
        if (fabs(step - 1) < 1e-15)
            break;
    }
    return fraction;
}

double cod_incomplete_beta(double a, double b, double x)
{
    int sign;
    if (!(a > 0 && b > 0 && x >= 0 && x <= 1))
        return NAN;
    if (x == 0 || x == 1)
        return x;
    const double front =
        exp(lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double cod_student_two_sided(double t, double freedom)
{
    if (isinf(t))
        return 0;
    return cod_incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double cod_student_cdf(double t, double freedom)
{
    const double tail = cod_student_two_sided(t, freedom) / 2;
    return t > 0 ? 1 - tail : tail;
}

double cod_student_quantile(double p, double freedom)
{
    if (!(p > 0 && p < 1 && freedom > 0))
        return NAN;
    const double tail = 2 * (p < 0.5 ? p : 1 - p); /* two-sided probability of the size of t */
    double low = 0, high = 1;
    while (cod_student_two_sided(high, freedom) > tail && high < 1e300)
        high *= 2;
    for (int i = 0; i < 200 && low < high; i++) {
        const double middle = low + (high - low) / 2;
        if (middle == low || middle == high)
            break;
        if (cod_student_two_sided(middle, freedom) > tail)
            low = middle;
        else
            high = middle;
    }
    return p < 0.5 ? -high : high;
}

/** Fills in what follows from the difference, its standard error and the degrees of freedom. */
static void conclude(cod_t_test *test, double error)
{
    if (!(error > 0))
        return;
    const double width = cod_student_quantile(0.975, test->freedom) * error;
    test->t = test->difference / error;
    test->p = cod_student_two_sided(test->t, test->freedom);
    test->low = test->difference - width;
    test->high = test->difference + width;
}

static cod_t_test untested(size_t count_a, size_t count_b, double difference)
{
    return (cod_t_test){.count_a = count_a,
                        .count_b = count_b,
                        .difference = difference,
                        .t = NAN,
                        .freedom = NAN,
                        .p = NAN,
                        .low = NAN,
                        .high = NAN};
}

/** Whether values vary by more than the rounding of their sums. */
static bool varies(double deviation, double size)
{
    return deviation > 1e-12 * fabs(size);
}

cod_t_test cod_t_test_paired(const double *a, const double *b, size_t count)
{
    cod_t_test test = untested(count, count, cod_mean(a, count) - cod_mean(b, count));
    if (count < 2)
        return test;
    double squares = 0;
    for (size_t i = 0; i < count; i++)
        squares += (a[i] - b[i] - test.difference) * (a[i] - b[i] - test.difference);
    const double deviation = sqrt(squares / (double)(count - 1));
    test.kind = COD_T_TEST_PAIRED;
    test.freedom = (double)(count - 1);
    if (varies(deviation, fabs(a[0]) + fabs(b[0])))
        conclude(&test, deviation / sqrt((double)count));
    return test;
}

cod_t_test cod_t_test_welch(const double *a, size_t count_a, const double *b, size_t count_b)
{
    cod_t_test test = untested(count_a, count_b, cod_mean(a, count_a) - cod_mean(b, count_b));
    if (count_a < 2 || count_b < 2)
        return test;
    const double deviation_a = cod_deviation(a, count_a), deviation_b = cod_deviation(b, count_b),
                 square_a = deviation_a * deviation_a / (double)count_a,
                 square_b = deviation_b * deviation_b / (double)count_b, square = square_a + square_b;
    test.kind = COD_T_TEST_WELCH;
    if (!varies(sqrt(square), fabs(a[0]) + fabs(b[0])))
        return test;
    test.freedom =
        square * square / (square_a * square_a / (double)(count_a - 1) + square_b * square_b / (double)(count_b - 1));
    conclude(&test, sqrt(square));
    return test;
}

void cod_holm_adjust(double *p, size_t count)
{
    size_t tests = 0;
    for (size_t i = 0; i < count; i++)
        tests += isnan(p[i]) ? 0 : 1;
    /*
     * From the smallest up: the k-th smallest times how many are left, and never below the one before. A done one is
     * kept negative.
     */
    double before = 0;
    for (size_t left = tests; left > 0; left--) {
        size_t smallest = count;
        for (size_t i = 0; i < count; i++)
            if (p[i] >= 0 && !signbit(p[i]) && (smallest == count || p[i] < p[smallest]))
                smallest = i;
        before = fmax(before, fmin(1, p[smallest] * (double)left));
        p[smallest] = -before;
    }
    for (size_t i = 0; i < count; i++)
        p[i] = fabs(p[i]);
}

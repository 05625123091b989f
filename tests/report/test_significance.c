#include "support/test.h"

#include "report/significance.h"

#include <math.h>

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.17g instead of %.17g", value, expected);
}

/** Where the integral has a closed form: DLMF 8.17.1 for small whole a and b, the arc sine at one half. */
TEST(incomplete_beta_equals_closed_forms)
{
    for (double x = 0; x <= 1; x += 1.0 / 64) {
        assert_near(cod_incomplete_beta(1, 1, x), x, 1e-14);
        assert_near(cod_incomplete_beta(2, 3, x), x * x * (6 - 8 * x + 3 * x * x), 1e-14);
        assert_near(cod_incomplete_beta(5, 1, x), pow(x, 5), 1e-14);
        assert_near(cod_incomplete_beta(0.5, 0.5, x), 2 / M_PI * asin(sqrt(x)), 1e-13);
        assert_near(cod_incomplete_beta(3.5, 80, x) + cod_incomplete_beta(80, 3.5, 1 - x), 1, 1e-12);
    }
    assert_true(isnan(cod_incomplete_beta(0, 1, 0.5)));
    assert_true(isnan(cod_incomplete_beta(1, 1, 1.5)));
    assert_true(isnan(cod_incomplete_beta(1, 1, NAN)));
}

/** Closed forms for 1 to 4 degrees of freedom: Abramowitz & Stegun 26.7.3 and 26.7.4. */
TEST(student_equals_closed_forms)
{
    for (double t = -30; t <= 30; t += 0.25) {
        const double angle = atan(t / sqrt(3)), w = t * t + 4;
        assert_near(cod_student_cdf(t, 1), 0.5 + atan(t) / M_PI, 1e-13);
        assert_near(cod_student_cdf(t, 2), 0.5 + t / (2 * sqrt(2 + t * t)), 1e-13);
        assert_near(cod_student_cdf(t, 3), 0.5 + (angle + sin(angle) * cos(angle)) / M_PI, 1e-13);
        assert_near(cod_student_cdf(t, 4), 0.5 + t * (t * t + 6) / (2 * pow(w, 1.5)), 1e-13);
    }
    assert_near(cod_student_two_sided(1e8, 1), 2e-8 / M_PI, 1e-20);
    assert_near(cod_student_two_sided(INFINITY, 5), 0, 0);
}

/**
 * The 97.5 % and 99.5 % points as tables have them (NIST/SEMATECH e-Handbook 1.3.6.7.2, to its 3 decimals; more from
 * closed forms).
 */
TEST(quantiles_are_those_of_tables)
{
    static const struct {
        double freedom, at_975, at_995;
    } table[] = {{1, 12.706, 63.657}, {2, 4.303, 9.925},  {3, 3.182, 5.841},  {4, 2.776, 4.604},  {5, 2.571, 4.032},
                 {9, 2.262, 3.250},   {10, 2.228, 3.169}, {20, 2.086, 2.845}, {30, 2.042, 2.750}, {100, 1.984, 2.626}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_near(cod_student_quantile(0.975, table[i].freedom), table[i].at_975, 6e-4);
        assert_near(cod_student_quantile(0.995, table[i].freedom), table[i].at_995, 6e-4);
        assert_near(cod_student_quantile(0.025, table[i].freedom), -table[i].at_975, 6e-4);
    }
    assert_near(cod_student_quantile(0.975, 1), tan(M_PI * 0.475), 1e-11);
    assert_near(cod_student_quantile(0.975, 2), 0.95 * sqrt(2 / (1 - 0.95 * 0.95)), 1e-12);
    assert_near(cod_student_quantile(0.5, 7), 0, 1e-12);
    assert_true(isnan(cod_student_quantile(1, 7)));
}

/**
 * Student's own example (1908), hours of sleep gained by ten patients from two drugs: R's `sleep`, and what R's
 * t.test() says of it.
 */
TEST(tests_agree_with_r_on_students_sleep)
{
    static const double first[] = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0},
                        second[] = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};
    const cod_t_test paired = cod_t_test_paired(first, second, 10), welch = cod_t_test_welch(first, 10, second, 10);
    assert_int_equal(paired.kind, COD_T_TEST_PAIRED);
    assert_near(paired.difference, -1.58, 1e-12);
    assert_near(paired.t, -4.0621, 5e-5);
    assert_near(paired.freedom, 9, 0);
    assert_near(paired.p, 0.002833, 5e-7);
    assert_near(paired.low, -2.4598858, 5e-8);
    assert_near(paired.high, -0.7001142, 5e-8);
    assert_int_equal(welch.kind, COD_T_TEST_WELCH);
    assert_near(welch.t, -1.8608, 5e-5);
    assert_near(welch.freedom, 17.776, 5e-4);
    assert_near(welch.p, 0.07939, 5e-6);
    assert_near(welch.low, -3.3654832, 5e-8);
    assert_near(welch.high, 0.2054832, 5e-8);
}

TEST(too_little_is_not_tested)
{
    static const double a[] = {92.1, 92.3, 92.2}, b[] = {91.1, 91.3, 91.2};
    const cod_t_test one = cod_t_test_paired(a, b, 1), lone = cod_t_test_welch(a, 3, b, 1);
    assert_int_equal(one.kind, COD_T_TEST_NONE);
    assert_near(one.difference, 1, 1e-12);
    assert_true(isnan(one.p) && isnan(one.low));
    assert_int_equal(lone.kind, COD_T_TEST_NONE);
    assert_true(isnan(lone.p));
    /* The same difference in each pair, but for rounding: nothing tells what chance could do. */
    const cod_t_test same = cod_t_test_paired(a, b, 3), equal = cod_t_test_welch(a, 3, a, 3);
    assert_true(isnan(same.p) && isnan(same.low));
    assert_near(same.difference, 1, 1e-12);
    assert_near(equal.p, 1, 1e-12);
    assert_true(isnan(cod_mean(NULL, 0)));
    assert_true(isnan(cod_deviation(a, 1)));
    assert_near(cod_deviation(a, 3), 0.1, 1e-12);
}

/** The worked example of R's p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm"), and order, ties, limits and gaps. */
TEST(holm_adjusts_as_published)
{
    double five[] = {0.01, 0.02, 0.03, 0.04, 0.05}, mixed[] = {0.04, NAN, 0.001, 0, 0.9, 0.001}, one[] = {0.03};
    const double expected[] = {0.05, 0.08, 0.09, 0.09, 0.09}, of_mixed[] = {0.08, 0, 0.004, 0, 0.9, 0.004};
    cod_holm_adjust(five, 5);
    cod_holm_adjust(mixed, 6);
    cod_holm_adjust(one, 1);
    for (size_t i = 0; i < 5; i++)
        assert_near(five[i], expected[i], 1e-15);
    for (size_t i = 0; i < 6; i++)
        if (i != 1)
            assert_near(mixed[i], of_mixed[i], 1e-15);
    assert_true(isnan(mixed[1]));
    assert_near(one[0], 0.03, 0);
}

/* Ticks and texts of the report. */
#include "support/folder.h"
#include "support/test.h"

#include "io/file.h"
#include "report/markup.h"
#include "report/report.h"
#include "report/ticks_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_ticks(cod_ticks ticks, size_t count, const double *at, int digits)
{
    assert_int_equal(ticks.count, count);
    for (size_t i = 0; i < count; i++) {
        if (!(fabs(ticks.at[i] - at[i]) <= 1e-9 * fabs(at[i])))
            fail_msg("tick %zu is %g, not %g", i, ticks.at[i], at[i]);
        assert_int_equal(ticks.digits[i], digits);
    }
}

TEST(linear_ticks_are_round)
{
    assert_ticks(cod_ticks_linear(0, 1000, 6), 6, (const double[]){0, 200, 400, 600, 800, 1000}, 0);
    assert_ticks(cod_ticks_linear(88.3, 92.9, 6), 4, (const double[]){89, 90, 91, 92}, 0);
}

TEST(linear_ticks_fit)
{
    assert_ticks(cod_ticks_linear(0.001, 0.0049, 5), 4, (const double[]){0.001, 0.002, 0.003, 0.004}, 3);
    assert_ticks(cod_ticks_linear(-1, 1, 3), 3, (const double[]){-1, 0, 1}, 0);
    for (int i = 0; i < 2000; i++) {
        const double low = (i % 41 - 20) * pow(10, i % 7 - 3), high = low + (1 + i % 37) * pow(10, i % 11 - 4);
        const size_t most = 2 + (size_t)i % 9;
        const cod_ticks ticks = cod_ticks_linear(low, high, most);
        assert_true(ticks.count >= 1 && ticks.count <= most);
        for (size_t k = 0; k < ticks.count; k++)
            assert_true(ticks.at[k] >= low - 1e-8 * (high - low) && ticks.at[k] <= high + 1e-8 * (high - low));
        for (size_t k = 1; k < ticks.count; k++) /* shown texts differ */
            assert_true(strcmp(cod_number_text(ticks.at[k], ticks.digits[k]).text,
                               cod_number_text(ticks.at[k - 1], ticks.digits[k - 1]).text) != 0);
    }
}

TEST(logarithmic_ticks_are_powers)
{
    const cod_ticks dense = cod_ticks_log(0.4, 11, 7);
    const double at[] = {0.5, 1, 2, 5, 10};
    assert_int_equal(dense.count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_true(fabs(dense.at[i] - at[i]) < 1e-9);
    assert_int_equal(dense.digits[0], 1);
    assert_int_equal(dense.digits[4], 0);
    assert_ticks(cod_ticks_log(1, 400, 6), 6, (const double[]){1, 3, 10, 30, 100, 300}, 0);
    assert_ticks(cod_ticks_log(1, 1e4, 6), 5, (const double[]){1, 10, 100, 1000, 10000}, 0);
    assert_true(cod_ticks_log(1e-12, 1e12, 7).count <= 7);
    assert_true(cod_ticks_log(1e-12, 1e12, 7).count >= 3);
    assert_true(cod_ticks_log(1e-300, 1e300, 7).count <= 7);
}

TEST(ranges_without_ticks_have_none)
{
    assert_int_equal(cod_ticks_linear(1, 1, 5).count, 0);
    assert_int_equal(cod_ticks_linear(NAN, 1, 5).count, 0);
    assert_int_equal(cod_ticks_linear(0, INFINITY, 5).count, 0);
    assert_int_equal(cod_ticks_linear(1e15, 1e15 + 1e-3, 5).count, 0);
    assert_int_equal(cod_ticks_log(0, 1, 5).count, 0);
    assert_int_equal(cod_ticks_log(-1, 1, 5).count, 0);
    assert_int_equal(cod_ticks_log(1, NAN, 5).count, 0);
}

TEST(numbers_read_alike)
{
    assert_string_equal(cod_number_text(92.631, 2).text, "92.63");
    assert_string_equal(cod_number_text(-0.001, 2).text, "0.00");
    assert_string_equal(cod_number_text(-1.5, 1).text, "−1.5");
    assert_string_equal(cod_number_text(9999, 0).text, "9999");
    assert_string_equal(cod_number_text(1234567, 0).text, "1\xE2\x80\xAF"
                                                          "234\xE2\x80\xAF"
                                                          "567");
    assert_string_equal(cod_number_text(NAN, 0).text, "–");
    assert_string_equal(cod_signed_text(0.3, 1).text, "+0.3");
    assert_string_equal(cod_signed_text(0.0004, 2).text, "0.00");
    assert_string_equal(cod_figure_text(12345).text, "12\xE2\x80\xAF"
                                                     "300");
    assert_string_equal(cod_figure_text(0.01234).text, "0.0123");
    assert_string_equal(cod_figure_text(0).text, "0");
    assert_string_equal(cod_bytes_text(0).text, "0 B");
    assert_string_equal(cod_bytes_text(123456).text, "123 kB");
    assert_string_equal(cod_bytes_text(999900).text, "1.00 MB");
    assert_string_equal(cod_seconds_text(0.456).text, "0.456 s");
    assert_string_equal(cod_seconds_text(200).text, "3 min 20 s");
    assert_string_equal(cod_seconds_text(7500).text, "2 h 5 min");
    assert_string_equal(cod_rate_text(20e6).text, "20 Mbit/s");
    assert_string_equal(cod_rate_text(58.72e6).text, "58.7 Mbit/s");
    assert_string_equal(cod_rate_text(INFINITY).text, "no limit");
    assert_string_equal(cod_p_text(0.0004).text, "p &lt; 0.001");
    assert_string_equal(cod_p_text(0.0123).text, "p = 0.012");
    assert_string_equal(cod_p_text(1).text, "p = 1.00");
}

static void assert_markup(const char *text, size_t most, const char *expected)
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&out, &bytes);
    assert_non_null(stream);
    cod_markup_part(stream, text, most);
    fclose(stream);
    assert_string_equal(out, expected);
    free(out);
}

TEST(markup_is_escaped_and_cut_between_characters)
{
    assert_markup("<a href='x'>&\"", COD_MARKUP_ALL, "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    assert_markup("a\nb\x01\x7f", COD_MARKUP_ALL, "a\nb\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_markup("\xEF\xBF\xBE", COD_MARKUP_ALL, "\xEF\xBF\xBD");
    assert_markup("größer", 6, "größer");
    assert_markup("größere", 6, "größe…");
    assert_markup("<<<<", 3, "&lt;&lt;…");
    assert_markup("一二三四", 6, "一二…"); /* two columns each */
    assert_markup("", 0, "");
    assert_int_equal(cod_markup_length("größer"), 6);
    assert_int_equal(cod_markup_length("一二"), 4);
}

TEST(base64_is_that_of_the_rfc)
{
    static const char *const coded[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t bytes = 0; bytes <= 6; bytes++) {
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        assert_non_null(out);
        cod_markup_base64(out, "foobar", bytes);
        fclose(out);
        assert_string_equal(text, coded[bytes]);
        free(text);
    }
}

/** An earlier compare.json may come from anywhere. */
TEST_IN_FOLDER(no_terminal_obeys_the_name_of_an_arm)
{
    static const char json[] = "{\"format\": \"codistill-compare-1\", \"baseline\": \"a\", \"arms\": ["
                               "{\"name\": \"a\", \"runs\": [{\"seed\": 1, \"state\": \"finished\", \"quality\": 1}]}, "
                               "{\"name\": \"b\\u009b31m\\u001b[2J\\nc\", \"runs\": [{\"seed\": 1, \"state\": "
                               "\"finished\", \"quality\": 2}]}]}";
    char *text = NULL;
    size_t bytes = 0;
    assert_ok(cod_file_write(cod_test_at("compare.json"), json, sizeof json - 1));
    FILE *out = open_memstream(&text, &bytes);
    assert_ok(cod_report_print_verdict(cod_test_at(""), out));
    fclose(out);
    cod_test_assert_contains(text, "b\\xC2\\x9B31m\\x1B[2J\\x0Ac has the best result: ");
    free(text);
}

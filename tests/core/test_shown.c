/* Text from outside, as a terminal may show it. */
#include "support/test.h"

#include "core/log.h"
#include "core/shown.h"
#include "core/status.h"

#include <stdio.h>
#include <string.h>

static void expect(const char *text, const char *shown)
{
    assert_string_equal(cod_shown(text).text, shown);
    assert_string_equal(cod_shown(shown).text, shown); /* shown once more, it stays */
}

TEST(plain_text_stays)
{
    expect("", "");
    expect("pictures/a b.png", "pictures/a b.png");
    expect("Äpfel 日本 😀 \\x1B", "Äpfel 日本 😀 \\x1B");
}

TEST(control_characters_are_escaped)
{
    expect("a\nb\r\t", "a\\x0Ab\\x0D\\x09");
    expect("\x1b]0;name\x07", "\\x1B]0;name\\x07");
    expect("\x7f", "\\x7F");
    expect("\xc2\x9b"
           "31m",
           "\\xC2\\x9B31m"); /* C1's CSI */
    expect("\xc2\xa0", "\xc2\xa0");
}

TEST(what_is_no_utf8_is_escaped)
{
    expect("caf\xe9", "caf\\xE9");
    expect("\x9b", "\\x9B");
    expect("\xc0\xaf \xed\xa0\x80 \xf8", "\\xC0\\xAF \\xED\\xA0\\x80 \\xF8");
    expect("\xe6\x97", "\\xE6\\x97"); /* cut off */
}

TEST(what_does_not_fit_is_left_out)
{
    char out[8];
    assert_int_equal(cod_show("ab\ncd", 5, false, out, sizeof out), 7);
    assert_string_equal(out, "ab\\x0Ac");
    assert_int_equal(cod_show("abcde\n", 6, false, out, sizeof out), 5);
    assert_string_equal(out, "abcde");
    assert_int_equal(cod_show("a\nb", 3, true, out, sizeof out), 3);
    assert_string_equal(out, "a\nb");
    assert_int_equal(cod_show("a\0b", 3, false, out, sizeof out), 6);
    assert_int_equal(cod_show("a", 1, false, out, 1), 0);
    assert_string_equal(out, "");
}

static void keep(void *context, cod_log_level level, const char *line)
{
    (void)level;
    snprintf(context, 64, "%s", line);
}

TEST(messages_and_log_lines_are_escaped)
{
    char line[64] = "";
    assert_int_equal(cod_fail(COD_ERR_IO, "cannot read '%s'", "a\nb"), COD_ERR_IO);
    assert_string_equal(cod_error_message(), "cannot read 'a\\x0Ab'");
    assert_int_equal(cod_fail_prefix(COD_ERR_IO, "%s", "\x1b"), COD_ERR_IO);
    assert_string_equal(cod_error_message(), "\\x1B: cannot read 'a\\x0Ab'");
    assert_int_equal(cod_fail_lines(COD_ERR_IO, "one\ntwo\x1b"), COD_ERR_IO);
    assert_string_equal(cod_error_message(), "one\ntwo\\x1B");
    cod_log_set_sink(keep, line, COD_LOG_INFO);
    cod_log_warn("left out: %s", "a\n\x1eX0");
    cod_log_set_sink(NULL, NULL, COD_LOG_INFO);
    assert_string_equal(line, "left out: a\\x0A\\x1EX0");
}

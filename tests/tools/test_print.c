/* What commands print: escaped, however long it is. */
#include "support/test.h"

#include "tools/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What a call printed. @return new */
static char *printed(bool text_alone, const char *text)
{
    char *out = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&out, &bytes);
    assert_non_null(stream);
    if (!text_alone)
        cod_print(stream, "\nthe name '%s' ends\n", text);
    else
        cod_print_text(stream, text);
    assert_int_equal(fclose(stream), 0);
    return out;
}

/** Texts longer than a piece, with characters of two bytes and of three across its ends. */
TEST(long_texts_are_printed_whole)
{
    static const char *const characters[] = {"x", "\xC3\xA4", "\xE2\x82\xAC"};
    enum { COUNT = 9000 };
    for (size_t c = 0; c < 3; c++)
        for (size_t before = 0; before < 3; before++) {
            char text[3 * COUNT + 3] = "aa", wanted[sizeof text + 32];
            text[before] = '\0';
            for (size_t i = 0, length = strlen(characters[c]); i < COUNT; i++)
                memcpy(text + before + i * length, characters[c], length + 1);
            char *out = printed(true, text);
            assert_string_equal(out, text);
            free(out);
            snprintf(wanted, sizeof wanted, "\nthe name '%s' ends\n", text);
            out = printed(false, text);
            assert_string_equal(out, wanted);
            free(out);
        }
    assert_false(cod_print_has_lost());
}

TEST(what_a_terminal_would_obey_is_escaped)
{
    char *out = printed(false, "a\nb\x1B[2J\xFF");
    assert_string_equal(out, "\nthe name 'a\\x0Ab\\x1B[2J\\xFF' ends\n");
    free(out);
    out = printed(true, "a\nb\x1B[2J\x80\x80");
    assert_string_equal(out, "a\nb\\x1B[2J\\x80\\x80");
    free(out);
}

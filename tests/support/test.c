#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TESTS_MAX = 64 };

static struct {
    struct CMUnitTest tests[TESTS_MAX];
    int lines[TESTS_MAX];
    size_t count;
    CMFixtureFunction setup, teardown;
} listed;

void cod_test_list(struct CMUnitTest test, int line)
{
    if (listed.count == TESTS_MAX)
        abort();
    size_t at = listed.count++;
    for (; at > 0 && listed.lines[at - 1] > line; at--) { /* constructors of one file run in any order */
        listed.tests[at] = listed.tests[at - 1];
        listed.lines[at] = listed.lines[at - 1];
    }
    listed.tests[at] = test;
    listed.lines[at] = line;
}

void cod_test_list_fixtures(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    listed.setup = setup;
    listed.teardown = teardown;
}

int cod_test_run(void)
{
    return _cmocka_run_group_tests(program_invocation_short_name, listed.tests, listed.count, listed.setup,
                                   listed.teardown);
}

void cod_test_assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' does not contain '%s'", text, part);
}

void cod_test_assert_none(size_t (*findings)(char *first, size_t bytes), const char *where, ...)
{
    char first[512], place[256];
    va_list arguments;
    if (findings(first, sizeof first) == 0)
        return;
    va_start(arguments, where);
    vsnprintf(place, sizeof place, where, arguments);
    va_end(arguments);
    fail_msg("%s: %s", place, first);
}

const char *cod_test_data(const char *relative)
{
    static char path[4096];
    const char *root = getenv("COD_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : "data", relative);
    return access(path, R_OK) == 0 ? path : NULL;
}

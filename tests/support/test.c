#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cod_test_assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' does not contain '%s'", text, part);
}

const char *cod_test_data(const char *relative)
{
    static char path[4096];
    const char *root = getenv("COD_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : "data", relative);
    return access(path, R_OK) == 0 ? path : NULL;
}

#include "support/folder.h"

#include "support/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path);
}

/** Also where a test ends the process; not in its children, which leave by _exit(). */
static void remove_folder(void)
{
    if (folder[0] != '\0')
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    folder[0] = '\0';
}

int cod_test_folder_make(void **state)
{
    static int registered;
    (void)state;
    if (!registered++)
        atexit(remove_folder);
    remove_folder();
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/cod-test-XXXXXX", base != NULL && strlen(base) < 40 ? base : "/tmp");
    return mkdtemp(folder) == NULL;
}

int cod_test_folder_remove(void **state)
{
    (void)state;
    remove_folder();
    return 0;
}

const char *cod_test_at(const char *name)
{
    enum { TURNS = 8 };
    static char paths[TURNS][512];
    static int turn;
    char *path = paths[turn++ % TURNS];
    if (folder[0] == '\0')
        assert_int_equal(cod_test_folder_make(NULL), 0);
    snprintf(path, sizeof paths[0], "%s%s%s", folder, *name ? "/" : "", name);
    return path;
}

#include "tools/shipped_model.h"

#include "io/file.h"
#include "io/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** Their names; the first is taken where none is named. */
static const char *const names[] = {"sr-x4", "sr-x4-perceptual"};
/** What to do where one is not there. */
#define INSTEAD "name a .safetensors file or `bicubic` before the pictures"

/** NULL: the user means a file of his own. */
static const char *name_of(const char *named)
{
    if (named == NULL)
        return names[0];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(named, names[i]) == 0)
            return names[i];
    return NULL;
}

cod_status cod_shipped_model_find(cod_arena *arena, const char *named, const char **path)
{
    static const char *const places[] = {"share/models/", "share/codistill/models/"};
    const char *folder = getenv("COD_MODELS"), *name = name_of(named);
    char file[64], place[96], found[COD_SCRIPT_PATH], self[4096];
    *path = named;
    if (name == NULL)
        return COD_OK;
    snprintf(file, sizeof file, "%s.safetensors", name);
    if (folder != NULL && folder[0] != '\0') {
        *path = cod_path_join(arena, folder, file);
        COD_REQUIRE_MEMORY(*path);
        COD_REQUIRE(access(*path, R_OK) == 0,
                    "there is no model '%s': no '%s', where COD_MODELS says that it is; " INSTEAD, name, *path);
        return COD_OK;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(place, sizeof place, "%s%s", places[i], file);
        if (cod_file_find_above(place, R_OK, found, self)) {
            *path = cod_arena_strdup(arena, found);
            COD_REQUIRE_MEMORY(*path);
            return COD_OK;
        }
    }
    return cod_fail(COD_ERR_ARGUMENT,
                    "this installation comes without the model '%s': no folder above %s has %s%s; " INSTEAD
                    ", or set COD_MODELS to the folder of %s",
                    name, self, places[0], file, file);
}

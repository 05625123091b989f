#include "tools/shipped_model.h"

#include "io/file.h"
#include "io/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {"sr-x4", "sr-x4-gan"};
enum { NAMES = sizeof names / sizeof names[0] };

/** What to do where a model is not there. */
#define INSTEAD "name a .safetensors file or `bicubic` before the pictures"

cod_status cod_shipped_model_find(cod_arena *arena, const char *named, const char **path)
{
    static const char *const places[] = {"share/models", "share/codistill/models"};
    const char *folder = getenv("COD_MODELS"), *name;
    char file[64], found[COD_SCRIPT_PATH], self[4096];
    size_t known = 0;
    while (named != NULL && known < NAMES && strcmp(named, names[known]) != 0)
        known++;
    *path = named;
    if (known == NAMES)
        return COD_OK;
    name = names[known];
    snprintf(file, sizeof file, "%s.safetensors", name);
    if (folder != NULL && folder[0] != '\0') {
        *path = cod_path_join(arena, folder, file);
        COD_REQUIRE_MEMORY(*path);
        COD_REQUIRE(access(*path, R_OK) == 0,
                    "there is no model '%s': no '%s', where COD_MODELS says that it is; " INSTEAD, name, *path);
        return COD_OK;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char place[128];
        snprintf(place, sizeof place, "%s/%s", places[i], file);
        if (cod_file_find_above(place, R_OK, found, self)) {
            *path = cod_arena_strdup(arena, found);
            COD_REQUIRE_MEMORY(*path);
            return COD_OK;
        }
    }
    return cod_fail(COD_ERR_ARGUMENT,
                    "this installation comes without the model '%s': no folder above %s has %s/%s; " INSTEAD
                    ", or set COD_MODELS to the folder of %s",
                    name, self, places[0], file, file);
}

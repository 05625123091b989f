#include "tools/shipped_model.h"

#include "io/file.h"
#include "io/script.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME      "sr-x4"
#define FILE_NAME NAME ".safetensors"
/** What to do where it is not there. */
#define INSTEAD "name a .safetensors file or `bicubic` before the pictures"

cod_status cod_shipped_model_find(cod_arena *arena, const char *named, const char **path)
{
    static const char *const places[] = {"share/models/" FILE_NAME, "share/codistill/models/" FILE_NAME};
    const char *folder = getenv("COD_MODELS");
    char found[COD_SCRIPT_PATH], self[4096];
    *path = named;
    if (named != NULL && strcmp(named, NAME) != 0)
        return COD_OK;
    if (folder != NULL && folder[0] != '\0') {
        *path = cod_path_join(arena, folder, FILE_NAME);
        COD_REQUIRE_MEMORY(*path);
        COD_REQUIRE(access(*path, R_OK) == 0,
                    "there is no model '" NAME "': no '%s', where COD_MODELS says that it is; " INSTEAD, *path);
        return COD_OK;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (cod_file_find_above(places[i], R_OK, found, self)) {
            *path = cod_arena_strdup(arena, found);
            COD_REQUIRE_MEMORY(*path);
            return COD_OK;
        }
    return cod_fail(COD_ERR_ARGUMENT,
                    "this installation comes without the model '" NAME "': no folder above %s has %s; " INSTEAD
                    ", or set COD_MODELS to the folder of " FILE_NAME,
                    self, places[0]);
}

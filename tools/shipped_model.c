#include "tools/shipped_model.h"

#include "io/file.h"
#include "io/script.h"

#include <stdlib.h>
#include <unistd.h>

cod_status cod_shipped_model_find(cod_arena *arena, const char **path)
{
    static const char *const places[] = {"share/models/" COD_SHIPPED_MODEL,
                                         "share/codistill/models/" COD_SHIPPED_MODEL};
    const char *folder = getenv("COD_MODELS");
    char found[COD_SCRIPT_PATH], self[4096];
    if (folder != NULL && folder[0] != '\0') {
        *path = cod_path_join(arena, folder, COD_SHIPPED_MODEL);
        COD_REQUIRE_MEMORY(*path);
        COD_REQUIRE(
            access(*path, R_OK) == 0,
            "no MODEL is named, and there is no '%s', where COD_MODELS says that it is; name a .safetensors file "
            "or `bicubic` before the pictures",
            *path);
        return COD_OK;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (cod_file_find_above(places[i], R_OK, found, self)) {
            *path = cod_arena_strdup(arena, found);
            COD_REQUIRE_MEMORY(*path);
            return COD_OK;
        }
    return cod_fail(
        COD_ERR_ARGUMENT,
        "no MODEL is named, and this installation comes without one: no folder above %s has %s; name a "
        ".safetensors file or `bicubic` before the pictures, or set COD_MODELS to the folder of " COD_SHIPPED_MODEL,
        self, places[0]);
}

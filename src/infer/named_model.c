#include "infer/named_model.h"

#include "data/files.h"
#include "infer/upscaler.h"
#include "io/file.h"
#include "io/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const cod_named_models[] = {COD_NAMED_MODELS, NULL};
/** What to do where one is not there. */
#define INSTEAD "name a .safetensors file or `bicubic` before the pictures"

/** NULL: the user means a file of his own. */
static const char *name_of(const char *named)
{
    if (named == NULL)
        return cod_named_models[0];
    for (size_t i = 0; cod_named_models[i] != NULL; i++)
        if (strcmp(named, cod_named_models[i]) == 0)
            return cod_named_models[i];
    return NULL;
}

bool cod_named_model_is(const char *named)
{
    return name_of(named) != NULL || cod_file_is_run(named);
}

/** The final model of a training run's folder. */
static cod_status find_of_run(cod_arena *arena, const char *folder, const char **path)
{
    *path = cod_path_join(arena, folder, "final.safetensors");
    COD_REQUIRE_MEMORY(*path);
    COD_REQUIRE(cod_file_exists(*path),
                "'%s' is the folder of a training run that has no final.safetensors yet; name one of the models in "
                "'%s/checkpoints', such as best.group-0.safetensors",
                folder, folder);
    return COD_OK;
}

/** A model that comes with the program. */
static cod_status find_shipped(cod_arena *arena, const char *name, const char **path)
{
    static const char *const places[] = {"share/models/", "share/codistill/models/"};
    const char *folder = getenv("COD_MODELS");
    char file[64], place[96], found[COD_SCRIPT_PATH], self[4096];
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

cod_status cod_named_model_find(cod_arena *arena, const char *named, const char **path)
{
    const char *name = name_of(named);
    *path = named;
    if (name != NULL)
        return find_shipped(arena, name, path);
    if (cod_file_is_run(named))
        return find_of_run(arena, named, path);
    COD_REQUIRE(strcmp(named, COD_BICUBIC) == 0 || strpbrk(named, "./") != NULL || cod_file_exists(named),
                "there is no model '%s'; models that come with the program are %s and %s", named, cod_named_models[0],
                cod_named_models[1]);
    return COD_OK;
}

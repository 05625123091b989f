#include "core/file_kind.h"
#include "infer/foreign.h"
#include "infer_internal.h"

#include <stdio.h>
#include <string.h>

/** Takes the network that cod_foreign_choose() chooses, if there is one. */
static cod_status choose(const cod_st_tensor *tensors, size_t count, model_source *source)
{
    cod_foreign_network *networks = NULL;
    const cod_foreign_network *chosen = NULL;
    size_t found = 0;
    if (count == 0)
        return COD_OK;
    COD_TRY(cod_foreign_find(tensors, count, &source->arena, &networks, &found));
    COD_TRY(cod_foreign_choose(networks, found, &chosen));
    return chosen != NULL ? cod_st_gather(chosen->tensors, chosen->count, &source->network) : COD_OK;
}

/** The tensors of a file of torch.save(), whose names begin with the keys of their dictionaries; in the arena. */
static cod_status list_torch(model_source *source, cod_st_tensor **tensors, size_t *count)
{
    *count = cod_torch_tensor_count(source->torch);
    *tensors = cod_arena_alloc(&source->arena, (*count + 1) * sizeof **tensors);
    COD_REQUIRE_MEMORY(*tensors);
    for (size_t i = 0; i < *count; i++) {
        const cod_torch_tensor *at = cod_torch_tensor_at(source->torch, i);
        const size_t room = strlen(at->section) + strlen(at->tensor.name) + 2;
        char *name = cod_arena_alloc(&source->arena, room);
        COD_REQUIRE_MEMORY(name);
        snprintf(name, room, "%s%s%s", at->section, *at->section != '\0' ? "." : "", at->tensor.name);
        (*tensors)[i] = at->tensor;
        (*tensors)[i].name = name;
    }
    return COD_OK;
}

static cod_status choose_of_torch(const char *path, model_source *source)
{
    cod_st_tensor *tensors;
    size_t count;
    COD_TRY(list_torch(source, &tensors, &count));
    COD_TRY(choose(tensors, count, source));
    source->file = source->network;
    return source->network != NULL
               ? COD_OK
               : cod_fail(COD_ERR_FORMAT,
                          "no network in it is of an architecture that is known by its tensors; `codistill import %s "
                          "--list` shows them, and with -o OUT.safetensors writes them",
                          path);
}

static cod_status open_torch(const char *path, model_source *source)
{
    COD_TRY(cod_torch_open(path, &source->torch));
    const cod_status status = choose_of_torch(path, source);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

static cod_status open_safetensors(const char *path, model_source *source)
{
    COD_TRY(cod_st_open(path, &source->whole));
    source->file = source->whole;
    if (cod_st_metadata(source->whole, COD_KIND_METADATA) != NULL ||
        cod_st_metadata(source->whole, COD_VALUES_METADATA) != NULL)
        return COD_OK;
    const size_t count = cod_st_tensor_count(source->whole);
    const cod_status status = choose(count > 0 ? cod_st_tensor_at(source->whole, 0) : NULL, count, source);
    if (source->network != NULL)
        source->file = source->network;
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

cod_status model_source_open(const char *path, model_source *source)
{
    *source = (model_source){0};
    const cod_status status =
        cod_file_kind_at(path) == COD_FILE_TORCH ? open_torch(path, source) : open_safetensors(path, source);
    if (status != COD_OK)
        model_source_close(source);
    return status;
}

void model_source_close(model_source *source)
{
    cod_st_close(source->network);
    cod_st_close(source->whole);
    cod_torch_close(source->torch);
    cod_arena_clear(&source->arena);
    *source = (model_source){0};
}

#include "infer/foreign.h"
#include "infer_internal.h"

/** Takes the network that cod_foreign_choose() chooses, if there is one. */
static cod_status choose(model_source *source)
{
    cod_foreign_network *networks = NULL;
    const cod_foreign_network *chosen = NULL;
    size_t found = 0;
    const size_t count = cod_st_tensor_count(source->whole);
    if (count == 0)
        return COD_OK;
    COD_TRY(cod_foreign_find(cod_st_tensor_at(source->whole, 0), count, &source->arena, &networks, &found));
    COD_TRY(cod_foreign_choose(networks, found, &chosen));
    return chosen != NULL ? cod_st_gather(chosen->tensors, chosen->count, &source->network) : COD_OK;
}

cod_status model_source_open(const char *path, model_source *source)
{
    *source = (model_source){0};
    COD_TRY(cod_st_open(path, &source->whole));
    source->file = source->whole;
    if (cod_st_metadata(source->whole, COD_KIND_METADATA) != NULL ||
        cod_st_metadata(source->whole, COD_VALUES_METADATA) != NULL)
        return COD_OK;
    const cod_status status = choose(source);
    if (source->network != NULL)
        source->file = source->network;
    if (status == COD_OK)
        return COD_OK;
    model_source_close(source);
    return cod_fail_prefix(status, "%s", path);
}

void model_source_close(model_source *source)
{
    cod_st_close(source->network);
    cod_st_close(source->whole);
    cod_arena_clear(&source->arena);
    *source = (model_source){0};
}

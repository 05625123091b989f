/* The run's nonce, which distinguishes it from other runs with the same name. */
#include "train/trainer_internal.h"

#include "train/config_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NONCE_BYTES = 64 };

static cod_status set_nonce(trainer *t, const char *nonce)
{
    t->config->root.nonce = cod_arena_strdup(cod_config_arena(t->config->config), nonce);
    COD_REQUIRE_MEMORY(t->config->root.nonce);
    return COD_OK;
}

static cod_status draw(trainer *t)
{
    uint64_t drawn;
    char nonce[NONCE_BYTES];
    if (getentropy(&drawn, sizeof drawn) != 0)
        return cod_fail(COD_ERR_IO, "the system gives no random bytes");
    snprintf(nonce, sizeof nonce, "%016" PRIx64, drawn);
    return set_nonce(t, nonce);
}

/** Takes the nonce that a config.yaml says; runs of before have none. */
static cod_status read_nonce(trainer *t, const char *path)
{
    cod_run_config other = {0};
    cod_status status = cod_run_config_load_saved(path, &other);
    COD_THEN(status, set_nonce(t, other.root.nonce));
    cod_run_config_clear(&other);
    return status;
}

/** If several groups' jobs make the folder at the same time, the nonce of one of them becomes the run's. */
static cod_status draw_and_write(trainer *t, const char *path)
{
    char *text = NULL;
    bool made = false;
    COD_TRY(draw(t));
    COD_TRY(cod_run_config_resolved(t->config, true, &text));
    const cod_status status = cod_file_write_new(path, text, strlen(text), &made);
    free(text);
    return status == COD_OK && !made ? read_nonce(t, path) : status;
}

static cod_status settle(trainer *t)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/config.yaml", t->folder);
    const bool alone = t->config->only_group < 0, anew = t->config->checkpoint.resume == COD_RESUME_NEVER;
    if (t->config->root.nonce[0] != '\0')
        return COD_OK;
    if (cod_file_exists(path) && !(alone && anew))
        return read_nonce(t, path);
    return alone ? draw(t) : draw_and_write(t, path);
}

cod_status trainer_agree_nonce(trainer *t)
{
    cod_group *world = cod_comm_world(t->request->comm);
    char nonce[NONCE_BYTES] = "";
    const bool first = cod_comm_rank(t->request->comm) == 0;
    COD_REQUIRE(strlen(t->config->root.nonce) < sizeof nonce, "nonce: '%s' has more than %zu characters",
                t->config->root.nonce, sizeof nonce - 1);
    COD_TRY(cod_group_agree(world, first ? settle(t) : COD_OK, NULL));
    if (first)
        snprintf(nonce, sizeof nonce, "%s", t->config->root.nonce);
    COD_TRY(cod_group_broadcast(world, nonce, sizeof nonce, 0));
    return first ? COD_OK : set_nonce(t, nonce);
}

/* Finds the checkpoint from which a group would resume. */
#include "train/train.h"

#include "io/file.h"
#include "train/checkpoint.h"

#include <stdio.h>

int64_t cod_train_last_checkpoint(const cod_run_config *config, int group, int64_t before)
{
    cod_arena arena = {0};
    char part[32];
    const char *const parts[] = {part}, *folder = cod_run_config_folder(config);
    const char *checkpoints = folder != NULL ? cod_path_join(&arena, folder, "checkpoints") : NULL;
    int64_t found = -1;
    snprintf(part, sizeof part, "group-%d", group < 0 ? 0 : group);
    if (checkpoints != NULL && cod_checkpoint_newest(checkpoints, parts, 1, before, &found, NULL) != COD_OK)
        found = -1;
    cod_arena_clear(&arena);
    return found;
}

void cod_train_describe_checkpoint(const cod_run_config *config, int group, int64_t before, char out[80])
{
    const int64_t step = cod_train_last_checkpoint(config, group, before);
    if (step < 0)
        snprintf(out, 80, "there is no checkpoint yet");
    else
        snprintf(out, 80, "the last good checkpoint is of step %lld", (long long)step);
}

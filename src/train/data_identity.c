#include "train/data_identity_internal.h"

#include "io/file.h"
#include "train/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char files_key[] = "data_files", held_out_key[] = "data_held_out";

enum { MAX_LIST_BYTES = 1 << 30 };

cod_status trainer_data_identify(trainer_data_identity *data, const cod_data_options *options,
                                 const cod_train_task *task, const char *folder, int group)
{
    COD_TRY(cod_data_list_files(options, &data->list));
    cod_data_list_key(data->list, data->files);
    snprintf(data->held_out, sizeof data->held_out, "%016" PRIx64, task->held_out_key);
    snprintf(data->path, sizeof data->path, "%s/data.%d.tsv", folder, group);
    return COD_OK;
}

void trainer_data_clear(trainer_data_identity *data)
{
    free(data->list);
    data->list = NULL;
}

cod_status trainer_data_write(const trainer_data_identity *data)
{
    return cod_file_write(data->path, data->list, strlen(data->list));
}

cod_status trainer_data_save(const trainer_data_identity *data, cod_checkpoint *checkpoint)
{
    COD_TRY(cod_checkpoint_add_text(checkpoint, files_key, data->files));
    return cod_checkpoint_add_text(checkpoint, held_out_key, data->held_out);
}

void cod_train_data_change(const char *path, const char *then, const char *now, char change[COD_DATA_CHANGE_BYTES])
{
    void *list = NULL;
    size_t bytes = 0;
    char key[17] = "";
    change[0] = '\0';
    if (cod_file_exists(path) && cod_file_read(path, MAX_LIST_BYTES, &list, &bytes) == COD_OK)
        cod_data_list_key(list, key);
    if (strcmp(key, then) == 0)
        cod_data_list_compare(list, now, change);
    free(list);
}

void trainer_data_compare(const trainer_data_identity *data, const cod_st_file *checkpoint,
                          char difference[TRAINER_DATA_DIFFERENCE])
{
    const char *files = cod_st_metadata(checkpoint, files_key), *held_out = cod_st_metadata(checkpoint, held_out_key);
    char change[COD_DATA_CHANGE_BYTES];
    difference[0] = '\0';
    if (files != NULL && strcmp(files, data->files) != 0) {
        cod_train_data_change(data->path, files, data->list, change);
        snprintf(difference, TRAINER_DATA_DIFFERENCE, "the data's files have changed%s%s",
                 change[0] != '\0' ? ": " : "", change);
    } else if (held_out != NULL && strcmp(held_out, data->held_out) != 0) {
        snprintf(
            difference, TRAINER_DATA_DIFFERENCE,
            "other items of the data are held out, by data.val_count, data.val_fraction, data.folds or data.patch");
    }
}

void trainer_data_summarise(const trainer_data_identity *data, cod_json *json)
{
    cod_json_string(json, files_key, data->files);
    cod_json_string(json, held_out_key, data->held_out);
}

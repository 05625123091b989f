#include "train/picture_set_internal.h"

#include "infer/evaluate.h"

#include <stdlib.h>

/** Leaves out the low-resolution pictures of pairs that are called so, as `codistill eval` does. */
static cod_status choose_pictures(picture_set *set, size_t *count)
{
    const size_t found = cod_dataset_size(set->data, COD_SPLIT_TRAIN);
    cod_file *files = calloc(found + 1, sizeof *files);
    set->pictures = calloc(found + 1, sizeof *set->pictures);
    *count = 0;
    for (size_t i = 0; files != NULL && i < found; i++)
        files[i].name = cod_dataset_name(set->data, COD_SPLIT_TRAIN, i);
    const cod_file_list list = {.items = files, .count = found};
    for (size_t i = 0; files != NULL && set->pictures != NULL && i < found; i++)
        if (!cod_evaluation_is_low(&list, files[i].name))
            set->pictures[(*count)++] = i;
    const bool made = files != NULL && set->pictures != NULL;
    free(files);
    return made ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory for the names of %zu pictures", found);
}

/** All pictures of a set are of its only split, whatever their size. */
cod_status picture_set_open(picture_set *set, cod_train_task *task, const cod_run_config *config, int scale,
                            bool report)
{
    const char *path = cod_task_begin_set(task, config, task->set_count);
    cod_data_options options = config->data;
    options.kind = COD_DATA_PICTURES;
    options.path = (cod_string_list){1, &path};
    options.low_path = options.val_path = options.val_low_path = (cod_string_list){0};
    options.weights = (cod_int_list){0};
    options.scales = (cod_float_list){0};
    options.val_count = options.items_per_group = 0;
    options.val_fraction = 0;
    options.placement = COD_PLACEMENT_SHARED;
    options.patch = 1;
    const cod_dataset_place place = {.scale = scale, .groups = 1, .report = report, .option = "data.val_sets"};
    COD_TRY(cod_dataset_open(&options, &place, &set->data));
    return choose_pictures(set, &task->sets[task->set_count].size);
}

void picture_set_close(picture_set *set)
{
    cod_dataset_close(set->data);
    free(set->pictures);
    *set = (picture_set){0};
}

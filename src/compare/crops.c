/* Parts of held-out pictures, the same for every arm: bicubic, the result of each arm's first group, and the truth. */
#include "compare/compare_internal.h"

#include "core/backend.h"
#include "data/dataset.h"
#include "infer/closeup.h"
#include "infer/session.h"
#include "io/file.h"

#include <stdint.h>
#include <stdio.h>

/** Adds what the first group of an arm's finished run makes of it. */
static cod_status add_arm(const cod_comparison *c, size_t arm, cod_closeup_list *list)
{
    const cod_compare_run *run = cod_compare_finished_run(c, arm);
    char model[COD_COMPARE_PATH];
    cod_session_options options;
    cod_session session = {0};
    cod_arena arena = {0};
    if (run == NULL)
        return COD_OK;
    cod_compare_run_path(c, run, "group.0.safetensors", model);
    cod_status status = cod_options_set_defaults(&cod_session_option_table, &options, &arena);
    options.scale = list->closeup->scale;
    options.device = COD_DEVICE_CPU; /* one small part at a time is not worth opening a GPU */
    COD_THEN(status, cod_session_open(model, &options, &session));
    COD_THEN(status, cod_closeup_add(list, session.upscaler, c->arms[arm].name));
    cod_session_close(&session);
    cod_arena_clear(&arena);
    return status;
}

static cod_status write_versions(const cod_comparison *c, const cod_closeup *closeup, const char *title,
                                 const char *folder, int number, cod_json *json)
{
    char name[32];
    cod_closeup_list list;
    snprintf(name, sizeof name, "crops/%d", number);
    COD_TRY(cod_closeup_begin(closeup, title, folder, name, json, &list));
    for (size_t i = 0; i < c->arm_count; i++)
        COD_TRY(add_arm(c, i, &list));
    return cod_closeup_end(&list);
}

static cod_status write_crop(const cod_comparison *c, const cod_dataset *data, size_t index, const char *folder,
                             int number, cod_json *json)
{
    const int scale = cod_dataset_scale(data);
    cod_pair pair;
    cod_closeup closeup;
    COD_TRY(cod_dataset_read(data, COD_SPLIT_VAL, index, &pair));
    const cod_image low = {.width = pair.low_width,
                           .height = pair.low_height,
                           .channels = 3,
                           .bits = 8,
                           .pixels = (void *)(uintptr_t)pair.low},
                    truth = {.width = pair.low_width * scale,
                             .height = pair.low_height * scale,
                             .channels = 3,
                             .bits = 8,
                             .pixels = (void *)(uintptr_t)pair.high};
    cod_status status = cod_closeup_cut(&low, &truth, scale, COD_CLOSEUP_SIDE, &closeup);
    cod_pair_clear(&pair);
    COD_THEN(status, write_versions(c, &closeup, cod_dataset_name(data, COD_SPLIT_VAL, index), folder, number, json));
    cod_closeup_clear(&closeup);
    return status;
}

static cod_status write_all(const cod_comparison *c, const cod_dataset *data, const char *folder, cod_json *json)
{
    const size_t held = cod_dataset_count(data).val, count = held < COD_CLOSEUPS ? held : COD_CLOSEUPS;
    for (size_t i = 0; i < count; i++)
        COD_TRY(write_crop(c, data, i * held / count, folder, (int)i, json));
    return COD_OK;
}

cod_status cod_compare_write_crops(const cod_comparison *c, const char *folder, cod_json *json)
{
    const cod_group_config *whole = &c->config.whole;
    char path[COD_COMPARE_PATH];
    cod_dataset *data = NULL;
    bool any = false;
    for (size_t i = 0; i < c->arm_count; i++)
        any = any || cod_compare_finished_run(c, i) != NULL;
    if (c->task->task != COD_TASK_SUPER_RESOLUTION || !any)
        return COD_OK;
    snprintf(path, sizeof path, "%s/crops", folder);
    COD_TRY(cod_folder_create(path));
    COD_TRY(cod_folder_clean(path)); /* of who was killed while it wrote one */
    const cod_dataset_place place = {
        .scale = whole->kind->scale(whole->architecture), .seed = (uint64_t)c->seeds[0], .groups = 1};
    COD_TRY(cod_dataset_open(&c->config.data, &place, &data));
    cod_json_open(json, "crops", '[');
    const cod_status status = write_all(c, data, folder, json);
    cod_json_close(json);
    cod_dataset_close(data);
    return status;
}

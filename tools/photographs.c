#include "tools/photographs.h"

#include "core/backend.h"
#include "core/log.h"
#include "data/files.h"
#include "infer/closeup.h"
#include "infer/session.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MODELS = 32, MOST_PHOTOGRAPHS = 8, SIDE = 48 /**< of what is shown, pixels of the photograph */ };
static const size_t comparison_bytes = (size_t)1 << 28;

typedef struct photographs {
    const char *folder, *low;
    cod_arena arena;
    const char *labels[MOST_MODELS];
    cod_session models[MOST_MODELS];
    size_t model_count;
    int scale;
    cod_json json;
    size_t shown;
} photographs;

static cod_status add_model(photographs *p, const char *path, const char *label)
{
    cod_session *model = &p->models[p->model_count];
    cod_session_options options;
    COD_REQUIRE_MEMORY(path);
    COD_TRY(cod_options_set_defaults(&cod_session_option_table, &options, &p->arena));
    options.device = COD_DEVICE_CPU; /* small parts are not worth opening a GPU */
    COD_REQUIRE(cod_file_exists(path), "there is no %s: photographs need a model that has been trained", path);
    COD_TRY(cod_session_open(path, &options, model));
    p->labels[p->model_count++] = label;
    const int scale = cod_upscaler_scale(model->upscaler);
    COD_REQUIRE(p->scale == 0 || scale == p->scale, "%s enlarges %d times, but the models before it %d times", path,
                scale, p->scale);
    p->scale = scale;
    return COD_OK;
}

/** The arm's first finished run, whose folder lies beside the comparison's. */
static cod_status add_arm(photographs *p, const cod_json_value *arm)
{
    const cod_json_value *run = cod_json_first(cod_json_get(arm, "runs"));
    while (run != NULL && strcmp(cod_json_get_string(cod_json_get(run, "state"), ""), "finished") != 0)
        run = cod_json_next(run);
    const char *folder = cod_json_get_string(cod_json_get(run, "folder"), "");
    char path[8192];
    while (folder[0] != '\0' && strchr(folder, '/') != NULL)
        folder = strchr(folder, '/') + 1;
    if (folder[0] == '\0' || strcmp(folder, "..") == 0 || p->model_count == MOST_MODELS)
        return COD_OK;
    snprintf(path, sizeof path, "%s/../%s/group.0.safetensors", p->folder, folder);
    const char *name = cod_arena_strdup(&p->arena, cod_json_get_string(cod_json_get(arm, "name"), "(no name)"));
    COD_REQUIRE_MEMORY(name);
    return add_model(p, path, name);
}

static cod_status add_arms(photographs *p, const cod_json_value *comparison)
{
    for (const cod_json_value *arm = cod_json_first(cod_json_get(comparison, "arms")); arm != NULL;
         arm = cod_json_next(arm))
        COD_TRY(add_arm(p, arm));
    COD_REQUIRE(p->model_count > 0, "%s: no arm has a finished run, so there is no model to enlarge photographs",
                p->folder);
    return COD_OK;
}

static cod_status write_versions(photographs *p, const cod_closeup *closeup, const char *title)
{
    char name[40];
    cod_closeup_list list;
    snprintf(name, sizeof name, "photographs/%zu", p->shown);
    COD_TRY(cod_closeup_begin(closeup, title, p->folder, name, &p->json, &list));
    for (size_t i = 0; i < p->model_count; i++)
        COD_TRY(cod_closeup_add(&list, p->models[i].upscaler, p->labels[i]));
    p->shown++;
    return cod_closeup_end(&list);
}

static cod_status add_photograph(photographs *p, const cod_file *file)
{
    cod_image picture = {0};
    cod_closeup closeup = {0};
    cod_status status = cod_image_read(file->path, &picture);
    COD_THEN(status, cod_image_to_rgb8(&picture));
    if (status == COD_OK && (picture.width < 8 || picture.height < 8))
        status = cod_fail(COD_ERR_FORMAT, "%s: %lldx%lld pixels are too few; at least 8 to a side are needed",
                          file->path, (long long)picture.width, (long long)picture.height);
    if (status == COD_ERR_FORMAT || status == COD_ERR_UNSUPPORTED) {
        cod_log_warn("%s", cod_error_message());
        cod_image_clear(&picture);
        return COD_OK;
    }
    COD_THEN(status, cod_closeup_cut(&picture, NULL, p->scale, SIDE, &closeup));
    cod_image_clear(&picture);
    COD_THEN(status, write_versions(p, &closeup, file->name));
    cod_closeup_clear(&closeup);
    return status;
}

/** Some of the photographs, evenly spread over the folder. */
static cod_status add_photographs(photographs *p, const cod_file_list *files)
{
    char path[8192];
    const size_t count = files->count < MOST_PHOTOGRAPHS ? files->count : MOST_PHOTOGRAPHS;
    COD_REQUIRE(count > 0, "%s: no pictures (PNG, JPEG, WebP, TIFF or BMP) in it", p->low);
    snprintf(path, sizeof path, "%s/photographs", p->folder);
    COD_TRY(cod_folder_create(path));
    cod_json_open(&p->json, NULL, '{');
    cod_json_string(&p->json, "folder", p->low);
    cod_json_integer(&p->json, "scale", p->scale);
    cod_json_open(&p->json, "crops", '[');
    for (size_t i = 0; i < count; i++)
        COD_TRY(add_photograph(p, &files->items[i * files->count / count]));
    cod_json_close(&p->json);
    cod_json_close(&p->json);
    COD_REQUIRE(p->shown > 0, "%s: no picture can be shown", p->low);
    return COD_OK;
}

static cod_status save(photographs *p)
{
    char *text = NULL, path[8192];
    snprintf(path, sizeof path, "%s/photographs.json", p->folder);
    COD_TRY(cod_json_end(&p->json, &text));
    const cod_status status = cod_file_write(path, text, strlen(text));
    free(text);
    return status;
}

static cod_status read_comparison(const char *folder, cod_json_value **out)
{
    char path[8192];
    void *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/compare.json", folder);
    COD_TRY(cod_file_read(path, comparison_bytes, &text, &bytes));
    const cod_status status = cod_json_parse(text, bytes, out);
    free(text);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

static cod_status open_models(photographs *p, bool is_run)
{
    cod_json_value *comparison = NULL;
    if (is_run)
        return add_model(p, cod_path_join(&p->arena, p->folder, "final.safetensors"), "ours");
    cod_status status = read_comparison(p->folder, &comparison);
    COD_THEN(status, add_arms(p, comparison));
    cod_json_free(comparison);
    return status;
}

cod_status cod_photographs_write(const char *folder, bool is_run, const char *low)
{
    photographs p = {.folder = folder, .low = low, .json = {.indent = 2}};
    cod_file_list files = {0};
    cod_status status = cod_files_find(&files, low, 0);
    COD_THEN(status, open_models(&p, is_run));
    COD_THEN(status, add_photographs(&p, &files));
    COD_THEN(status, save(&p));
    cod_json_clear(&p.json);
    for (size_t i = 0; i < p.model_count; i++)
        cod_session_close(&p.models[i]);
    cod_files_clear(&files);
    cod_arena_clear(&p.arena);
    return status;
}

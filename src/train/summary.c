/* Parts of summary.json, and the parts of held-out pictures on a run's page (module report). */
#include "core/log.h"
#include "core/processors.h"
#include "train/closing_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cod_status write_crops(const trainer *t)
{
    char model[4096], path[4096], *text = NULL;
    cod_json json = {.indent = 2};
    snprintf(model, sizeof model, "%s/final.safetensors", t->folder);
    snprintf(path, sizeof path, "%s/crops.json", t->folder);
    cod_json_open(&json, NULL, '{');
    cod_status status = t->task->kind->show(t->task, model, t->folder, &json);
    cod_json_close(&json);
    if (status != COD_OK) {
        cod_json_clear(&json);
        return status;
    }
    COD_TRY(cod_json_end(&json, &text));
    status = cod_file_write(path, text, strlen(text));
    free(text);
    return status;
}

void trainer_show_final(const trainer *t)
{
    if (t->task->kind->show != NULL && t->task->sizes[COD_SPLIT_VAL] > 0 && write_crops(t) != COD_OK)
        cod_log_warn("the run's page lacks parts of held-out pictures: %s", cod_error_message());
}

void trainer_summarise_recipe(const trainer *t, cod_json *json)
{
    const cod_recipe *recipe = &t->session.recipe;
    cod_json_string(json, "recipe", recipe->kind->name);
    cod_json_open(json, "losses", '[');
    for (size_t i = 0; i < t->losses.count; i++)
        if (!t->losses.items[i].is_figure)
            cod_json_string(json, NULL, t->losses.items[i].name);
    cod_json_close(json);
    cod_json_open(json, "sets", '[');
    for (size_t s = 0; s < cod_graph_set_count(recipe->model.graph); s++) {
        const cod_recipe_set *set = &recipe->sets[s];
        cod_json_open(json, NULL, '{');
        cod_json_string(json, "name", set->name);
        cod_json_integer(json, "parameters", (int64_t)t->session.weights.sets[s].range.count);
        if (set->trained)
            cod_json_string(json, "optimiser", cod_optimiser_names[set->optimiser.kind]);
        cod_json_bool(json, "travels", set->travels);
        cod_json_close(json);
    }
    cod_json_close(json);
}

void trainer_summarise_machine(cod_json *json)
{
    char text[256];
    cod_processors_describe((int)sysconf(_SC_NPROCESSORS_ONLN), text, sizeof text);
    cod_json_string(json, "machine", text);
}

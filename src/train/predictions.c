#include "train/predictions.h"

#include "io/file.h"
#include "train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

enum { PART_BYTES = 32 };

static void part_name(cod_split split, int group, char part[PART_BYTES])
{
    snprintf(part, PART_BYTES, "%s-%d", split == COD_SPLIT_TEST ? "test" : "val", group);
}

static void folder_of(const char *run, char folder[4096])
{
    snprintf(folder, 4096, "%s/predictions", run);
}

cod_status cod_predictions_write(const char *folder, cod_split split, int group, int64_t step,
                                 const cod_classification *result)
{
    cod_checkpoint file = {0};
    char part[PART_BYTES], path[4096];
    part_name(split, group, part);
    folder_of(folder, path);
    cod_status status = cod_checkpoint_add_f32(&file, "predicted", result->predicted, result->count);
    COD_THEN(status, cod_checkpoint_add_f32(&file, "confidence", result->confidence, result->count));
    COD_THEN(status, cod_checkpoint_add_f32(&file, "truth", result->truth, result->count));
    COD_THEN(status, cod_checkpoint_write(&file, path, step, part));
    cod_checkpoint_clear(&file);
    return status;
}

static cod_status read_file(const cod_st_file *file, cod_predictions *out)
{
    const cod_st_tensor *predicted = cod_st_tensor_find(file, "predicted");
    out->count = predicted != NULL ? cod_st_count(predicted) : 0;
    out->predicted = malloc((3 * out->count + 1) * sizeof *out->predicted);
    COD_REQUIRE_MEMORY(out->predicted);
    out->confidence = out->predicted + out->count;
    out->truth = out->confidence + out->count;
    const size_t bytes = out->count * sizeof *out->predicted;
    COD_TRY(cod_checkpoint_read(file, "predicted", out->predicted, bytes));
    COD_TRY(cod_checkpoint_read(file, "confidence", out->confidence, bytes));
    return cod_checkpoint_read(file, "truth", out->truth, bytes);
}

cod_status cod_predictions_read(const char *folder, cod_split split, int group, int64_t step, cod_predictions *out)
{
    cod_st_file *file = NULL;
    char part[PART_BYTES], path[4096];
    *out = (cod_predictions){0};
    part_name(split, group, part);
    folder_of(folder, path);
    COD_TRY(cod_checkpoint_open(path, step, part, &file));
    const cod_status status = read_file(file, out);
    cod_st_close(file);
    if (status != COD_OK)
        cod_predictions_clear(out);
    return status;
}

void cod_predictions_clear(cod_predictions *predictions)
{
    free(predictions->predicted);
    *predictions = (cod_predictions){0};
}

cod_status cod_predictions_steps(const char *folder, cod_split split, int groups, cod_arena *arena, cod_int_list *steps)
{
    char path[4096];
    char(*names)[PART_BYTES] = cod_arena_alloc(arena, (size_t)groups * sizeof *names);
    const char **parts = cod_arena_alloc(arena, (size_t)groups * sizeof *parts);
    COD_REQUIRE_MEMORY(names);
    COD_REQUIRE_MEMORY(parts);
    *steps = (cod_int_list){0};
    folder_of(folder, path);
    if (!cod_file_exists(path))
        return COD_OK;
    for (int g = 0; g < groups; g++) {
        part_name(split, g, names[g]);
        parts[g] = names[g];
    }
    COD_TRY(cod_checkpoint_list(path, parts, (size_t)groups, arena, steps));
    for (size_t i = 0; i < steps->count / 2; i++) {
        const int64_t other = steps->items[steps->count - 1 - i];
        steps->items[steps->count - 1 - i] = steps->items[i];
        steps->items[i] = other;
    }
    return COD_OK;
}

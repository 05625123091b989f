#include "train/checkpoint.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/whole.h"
#include "io/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_PREFIX  "step-"
#define CHECKSUM_KEY "xxh3"

enum { STEP_DIGITS = 9 }; /**< at least */

/** Room for one more item; the arena keeps the old array until it is cleared. */
static void *grown(cod_arena *arena, void *items, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return items;
    const size_t wanted = *capacity ? 2 * *capacity : 16;
    void *larger = cod_arena_alloc(arena, wanted * item_bytes);
    if (larger == NULL)
        return NULL;
    if (count > 0)
        memcpy(larger, items, count * item_bytes);
    *capacity = wanted;
    return larger;
}

static cod_status add(cod_checkpoint *checkpoint, const char *name, cod_st_dtype dtype, const void *data, size_t count)
{
    for (size_t i = 0; i < checkpoint->tensor_count; i++)
        COD_REQUIRE(strcmp(checkpoint->tensors[i].name, name) != 0, "a checkpoint cannot hold two arrays '%s'", name);
    cod_st_tensor *tensors = grown(&checkpoint->arena, checkpoint->tensors, checkpoint->tensor_count,
                                   &checkpoint->tensor_capacity, sizeof *tensors);
    const char *copy = cod_arena_strdup(&checkpoint->arena, name);
    COD_REQUIRE_MEMORY(tensors);
    COD_REQUIRE_MEMORY(copy);
    checkpoint->tensors = tensors;
    tensors[checkpoint->tensor_count++] =
        (cod_st_tensor){.name = copy, .dtype = dtype, .rank = 1, .shape = {(int64_t)count}, .data = data};
    return COD_OK;
}

cod_status cod_checkpoint_add_bytes(cod_checkpoint *checkpoint, const char *name, const void *data, size_t bytes)
{
    return add(checkpoint, name, COD_ST_U8, data, bytes);
}

cod_status cod_checkpoint_add_f32(cod_checkpoint *checkpoint, const char *name, const float *data, size_t count)
{
    return add(checkpoint, name, COD_ST_F32, data, count);
}

cod_status cod_checkpoint_add_text(cod_checkpoint *checkpoint, const char *key, const char *value)
{
    for (size_t i = 0; i < checkpoint->text_count; i++)
        COD_REQUIRE(strcmp(checkpoint->texts[i].key, key) != 0, "a checkpoint cannot hold two entries '%s'", key);
    cod_st_text *texts =
        grown(&checkpoint->arena, checkpoint->texts, checkpoint->text_count, &checkpoint->text_capacity, sizeof *texts);
    const char *key_copy = cod_arena_strdup(&checkpoint->arena, key);
    const char *value_copy = cod_arena_strdup(&checkpoint->arena, value);
    COD_REQUIRE_MEMORY(texts);
    COD_REQUIRE_MEMORY(key_copy);
    COD_REQUIRE_MEMORY(value_copy);
    checkpoint->texts = texts;
    texts[checkpoint->text_count++] = (cod_st_text){key_copy, value_copy};
    return COD_OK;
}

cod_status cod_checkpoint_add_number(cod_checkpoint *checkpoint, const char *key, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    return cod_checkpoint_add_text(checkpoint, key, text);
}

void cod_checkpoint_clear(cod_checkpoint *checkpoint)
{
    cod_arena_clear(&checkpoint->arena);
    *checkpoint = (cod_checkpoint){0};
}

static void part_path(char path[4096], const char *folder, int64_t step, const char *part)
{
    snprintf(path, 4096, "%s/" STEP_PREFIX "%0*lld/%s.safetensors", folder, STEP_DIGITS, (long long)step, part);
}

/** Where the part is written before its step's folder is sure to stay. */
static void beside_path(char path[4096], const char *folder, const char *part)
{
    snprintf(path, 4096, "%s/.%s.safetensors.tmp", folder, part);
}

/** Writes a checksum of all names, arrays and texts except itself. It is a sum, because files keep no order of them. */
static void checksum_write(char out[17], const cod_st_tensor *tensors, size_t tensor_count, const cod_st_text *texts,
                           size_t text_count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        const size_t bytes = cod_st_count(&tensors[i]) * cod_st_dtype_bytes(tensors[i].dtype);
        sum += cod_hash(tensors[i].data, bytes, cod_hash(tensors[i].name, strlen(tensors[i].name), tensors[i].dtype));
    }
    for (size_t i = 0; i < text_count; i++)
        if (strcmp(texts[i].key, CHECKSUM_KEY) != 0)
            sum += cod_hash(texts[i].value, strlen(texts[i].value), cod_hash(texts[i].key, strlen(texts[i].key), 1));
    snprintf(out, 17, "%016llx", (unsigned long long)sum);
}

/**
 * Writes beside the step's folder and renames into it: another group that is ahead may prune this step, and remove the
 * folder while it is empty.
 */
static cod_status write_into(const char *beside, const char *path, const cod_checkpoint *checkpoint,
                             const cod_st_text *texts, size_t text_count)
{
    COD_TRY(cod_folder_create_above(beside));
    COD_TRY(cod_st_write(beside, checkpoint->tensors, checkpoint->tensor_count, texts, text_count));
    const cod_status status = cod_file_move_into(beside, path);
    if (status != COD_OK)
        unlink(beside);
    return status;
}

cod_status cod_checkpoint_write(const cod_checkpoint *checkpoint, const char *folder, int64_t step, const char *part)
{
    char path[4096], beside[4096], checksum[17];
    cod_st_text *texts = malloc((checkpoint->text_count + 1) * sizeof *texts);
    COD_REQUIRE_MEMORY(texts);
    if (checkpoint->text_count > 0)
        memcpy(texts, checkpoint->texts, checkpoint->text_count * sizeof *texts);
    checksum_write(checksum, checkpoint->tensors, checkpoint->tensor_count, texts, checkpoint->text_count);
    texts[checkpoint->text_count] = (cod_st_text){CHECKSUM_KEY, checksum};
    beside_path(beside, folder, part);
    part_path(path, folder, step, part);
    const cod_status status = write_into(beside, path, checkpoint, texts, checkpoint->text_count + 1);
    free(texts);
    return status;
}

cod_status cod_checkpoint_open(const char *folder, int64_t step, const char *part, cod_st_file **file)
{
    char path[4096], checksum[17];
    part_path(path, folder, step, part);
    COD_TRY(cod_st_open(path, file));
    const char *written = cod_st_metadata(*file, CHECKSUM_KEY);
    /* Tensors and texts of a file lie in arrays. */
    checksum_write(checksum, cod_st_tensor_at(*file, 0), cod_st_tensor_count(*file), cod_st_metadata_at(*file, 0),
                   cod_st_metadata_count(*file));
    if (written != NULL && strcmp(written, checksum) == 0)
        return COD_OK;
    cod_st_close(*file);
    *file = NULL;
    return cod_fail(COD_ERR_FORMAT, "%s: damaged: its bytes do not fit its checksum", path);
}

cod_status cod_checkpoint_read(const cod_st_file *file, const char *name, void *data, size_t bytes)
{
    const cod_st_tensor *tensor = cod_st_tensor_find(file, name);
    if (tensor == NULL)
        return cod_fail(COD_ERR_FORMAT, "the checkpoint has no '%s'", name);
    if (tensor->bytes != bytes)
        return cod_fail(COD_ERR_FORMAT,
                        "the checkpoint's '%s' has %zu bytes, not %zu: it is of another model or set-up", name,
                        tensor->bytes, bytes);
    memcpy(data, tensor->data, bytes);
    return COD_OK;
}

cod_status cod_checkpoint_number(const cod_st_file *file, const char *key, double *value)
{
    const char *text = cod_st_metadata(file, key);
    char *end = NULL;
    const double number = text ? strtod(text, &end) : NAN;
    if (text == NULL || end == text || *end != '\0')
        return cod_fail(COD_ERR_FORMAT, "the checkpoint has no number '%s'", key);
    *value = number;
    return COD_OK;
}

cod_status cod_checkpoint_whole(const cod_st_file *file, const char *key, int64_t least, int64_t *value)
{
    double number = NAN;
    COD_TRY(cod_checkpoint_number(file, key, &number));
    if (!cod_is_whole(number, (double)least, COD_WHOLE_MOST))
        return cod_fail(COD_ERR_FORMAT, "the checkpoint's '%s' is %g, no whole number of at least %lld", key, number,
                        (long long)least);
    *value = (int64_t)number;
    return COD_OK;
}

static int by_step(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/** Numbers of the folders step-N, oldest first. */
static cod_status all_steps(const char *folder, cod_arena *arena, cod_int_list *steps)
{
    cod_string_list names = {0};
    *steps = (cod_int_list){0};
    if (!cod_file_exists(folder))
        return COD_OK;
    COD_TRY(cod_folder_list(folder, STEP_PREFIX, "", arena, &names));
    steps->items = cod_arena_alloc(arena, (names.count + 1) * sizeof *steps->items);
    COD_REQUIRE_MEMORY(steps->items);
    for (size_t i = 0; i < names.count; i++) {
        uint64_t step;
        if (cod_file_number(names.items[i], STEP_PREFIX, STEP_DIGITS, "", INT64_MAX, &step))
            steps->items[steps->count++] = (int64_t)step;
    }
    /* Names sort by bytes, which is not by number past 999,999,999. */
    qsort(steps->items, steps->count, sizeof *steps->items, by_step);
    return COD_OK;
}

static void step_path(char path[4096], const char *folder, int64_t step)
{
    snprintf(path, 4096, "%s/" STEP_PREFIX "%0*lld", folder, STEP_DIGITS, (long long)step);
}

/** Whether there is a step's folder that can be used; not a file, a link that leads nowhere or a folder of others. */
static bool is_usable(const char *folder, int64_t step)
{
    char path[4096];
    struct stat info;
    step_path(path, folder, step);
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && access(path, R_OK | W_OK | X_OK) == 0;
}

/** Whether a part was not saved, or was removed. What is there but cannot be read is not absent. */
static bool is_absent(const char *folder, int64_t step, const char *part)
{
    char path[4096];
    struct stat info;
    part_path(path, folder, step, part);
    if (access(path, F_OK) == 0 || errno != ENOENT)
        return false;
    step_path(path, folder, step);
    return stat(path, &info) == 0 || lstat(path, &info) != 0;
}

static bool is_sound(const char *folder, int64_t step, const char *part)
{
    cod_st_file *file = NULL;
    const bool sound = cod_checkpoint_open(folder, step, part, &file) == COD_OK;
    if (!sound)
        cod_log_warn("%s; looking for an older checkpoint", cod_error_message());
    cod_st_close(file);
    return sound;
}

/** Whether all parts of a step were saved and are there. */
static bool is_complete(const char *folder, int64_t step, const char *const *parts, size_t count)
{
    for (size_t p = 0; p < count; p++)
        if (is_absent(folder, step, parts[p]))
            return false;
    return true;
}

/** Whether all parts of a step can be used. */
static bool are_sound(const char *folder, int64_t step, const char *const *parts, size_t count)
{
    for (size_t p = 0; p < count; p++)
        if (!is_sound(folder, step, parts[p]))
            return false;
    return true;
}

cod_status cod_checkpoint_newest(const char *folder, const char *const *parts, size_t part_count, int64_t before,
                                 int64_t *step, size_t *damaged)
{
    cod_arena arena = {0};
    cod_int_list all = {0};
    size_t refused = 0;
    const cod_status status = all_steps(folder, &arena, &all);
    *step = -1;
    for (size_t i = all.count; status == COD_OK && *step < 0 && i-- > 0;) {
        if (all.items[i] >= before || !is_complete(folder, all.items[i], parts, part_count))
            continue;
        if (are_sound(folder, all.items[i], parts, part_count))
            *step = all.items[i];
        else
            refused++;
    }
    if (damaged != NULL)
        *damaged = refused;
    cod_arena_clear(&arena);
    return status;
}

cod_status cod_checkpoint_list(const char *folder, const char *const *parts, size_t part_count, cod_arena *arena,
                               cod_int_list *steps)
{
    cod_int_list all = {0};
    COD_TRY(all_steps(folder, arena, &all));
    *steps = (cod_int_list){.items = cod_arena_alloc(arena, (all.count + 1) * sizeof(int64_t))};
    COD_REQUIRE_MEMORY(steps->items);
    for (size_t i = all.count; i-- > 0;)
        if (is_complete(folder, all.items[i], parts, part_count) && are_sound(folder, all.items[i], parts, part_count))
            steps->items[steps->count++] = all.items[i];
    return COD_OK;
}

/** Renames what is where the run saves and is not its own: it may be somebody's, so it stays. */
static cod_status set_aside(const char *path)
{
    enum { TRIES = 100 };
    char aside[4096];
    struct stat info;
    const char *name = strrchr(path, '/') + 1;
    for (int i = 0; i < TRIES; i++) {
        snprintf(aside, sizeof aside, "%.*sunusable-%d.%s", (int)(name - path), path, i, name);
        if (lstat(aside, &info) == 0)
            continue;
        if (rename(path, aside) == 0)
            cod_log_warn("'%s' is no part of a checkpoint; it is '%s' now", path, aside);
        else if (errno != ENOENT) /* else another group's job was quicker */
            return cod_fail(COD_ERR_IO, "cannot rename '%s', where checkpoints go: %s", path, strerror(errno));
        return COD_OK;
    }
    return cod_fail(COD_ERR_IO, "'%s' is no part of a checkpoint: remove it", path);
}

/** Removes a part's file, and its folder once that is empty: the last part's owner does it. */
static cod_status remove_part(const char *folder, int64_t step, const char *part)
{
    char path[4096];
    part_path(path, folder, step, part);
    struct stat info;
    if (lstat(path, &info) != 0)
        return COD_OK;
    if (S_ISDIR(info.st_mode))
        return set_aside(path);
    COD_TRY(cod_file_remove(path));
    step_path(path, folder, step);
    if (rmdir(path) != 0 && errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT)
        return cod_fail(COD_ERR_IO, "cannot remove '%s': %s", path, strerror(errno));
    return COD_OK;
}

cod_status cod_checkpoint_prune(const char *folder, const char *part, const char *const *parts, size_t part_count,
                                int64_t keep)
{
    cod_arena arena = {0};
    cod_int_list all = {0};
    cod_status status = all_steps(folder, &arena, &all);
    int64_t kept = 0;
    for (size_t i = all.count; status == COD_OK && i-- > 0;) {
        if (kept >= keep)
            status = remove_part(folder, all.items[i], part);
        else
            kept += is_usable(folder, all.items[i]) && is_complete(folder, all.items[i], parts, part_count);
    }
    cod_arena_clear(&arena);
    return status;
}

static cod_status remove_all_parts(const char *folder, int64_t step, cod_arena *arena)
{
    static const char suffix[] = ".safetensors";
    char path[4096];
    cod_string_list names;
    step_path(path, folder, step);
    COD_TRY(cod_folder_list(path, "", suffix, arena, &names));
    for (size_t i = 0; i < names.count; i++) {
        char part[256];
        snprintf(part, sizeof part, "%.*s", (int)(strlen(names.items[i]) - strlen(suffix)), names.items[i]);
        COD_TRY(remove_part(folder, step, part));
    }
    return COD_OK;
}

static cod_status discard_step(const char *folder, const char *part, int64_t step, cod_arena *arena)
{
    char path[4096];
    step_path(path, folder, step);
    if (!is_usable(folder, step))
        return set_aside(path);
    return part != NULL ? remove_part(folder, step, part) : remove_all_parts(folder, step, arena);
}

cod_status cod_checkpoint_discard(const char *folder, const char *part, int64_t step)
{
    cod_arena arena = {0};
    cod_int_list all = {0};
    cod_status status = all_steps(folder, &arena, &all);
    for (size_t i = 0; status == COD_OK && i < all.count; i++)
        if (all.items[i] > step)
            status = discard_step(folder, part, all.items[i], &arena);
    cod_arena_clear(&arena);
    return status;
}

static cod_status clean_step(const char *folder, int64_t step, const char *part)
{
    char path[4096];
    if (!is_usable(folder, step))
        return COD_OK;
    if (part != NULL) {
        part_path(path, folder, step, part);
        return cod_file_clean(path);
    }
    step_path(path, folder, step);
    const cod_status status = cod_folder_clean(path);
    rmdir(path); /* only when nothing is left in it */
    return status;
}

static cod_status clean_beside(const char *folder, const char *part)
{
    char beside[4096];
    if (part == NULL)
        return cod_file_exists(folder) ? cod_folder_clean(folder) : COD_OK;
    beside_path(beside, folder, part);
    COD_TRY(cod_file_clean(beside));
    return cod_file_remove(beside);
}

cod_status cod_checkpoint_clean(const char *folder, const char *part)
{
    cod_arena arena = {0};
    cod_int_list all = {0};
    cod_status status = all_steps(folder, &arena, &all);
    for (size_t i = 0; i < all.count && status == COD_OK; i++)
        status = clean_step(folder, all.items[i], part);
    cod_arena_clear(&arena);
    COD_THEN(status, clean_beside(folder, part));
    return status;
}

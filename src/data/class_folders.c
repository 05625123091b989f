/*
 * Photographs in one subfolder for each class, as in Intel Image Classification, ImageNet and torchvision's
 * ImageFolder.
 */
#include "core/folder_entry.h"
#include "core/hash.h"
#include "data/examples_internal.h"
#include "data/faults.h"
#include "data/resize.h"
#include "data/threads_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096, MARGIN_PARTS = 8 };

/** Names of a folder's subfolders, sorted. */
typedef struct name_list {
    size_t count, capacity;
    const char **items;
} name_list;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static cod_status append(name_list *list, const char *name, cod_arena *arena)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        const char **items = realloc(list->items, capacity * sizeof *items);
        COD_REQUIRE_MEMORY(items);
        list->items = items;
        list->capacity = capacity;
    }
    const char *copy = cod_arena_strdup(arena, name);
    COD_REQUIRE_MEMORY(copy);
    list->items[list->count++] = copy;
    return COD_OK;
}

static cod_status find_subfolders(const char *root, cod_arena *arena, name_list *list)
{
    DIR *directory = opendir(root);
    if (directory == NULL)
        return cod_fail(COD_ERR_IO, "%s: cannot read the folder: %s", root, strerror(errno));
    cod_status status = COD_OK;
    const struct dirent *entry = NULL;
    do {
        struct stat info;
        if (!cod_folder_next(directory, &entry))
            status = cod_fail(COD_ERR_IO, "%s: cannot read the folder: %s", root, strerror(errno));
        else if (entry == NULL || entry->d_name[0] == '.' || strcmp(entry->d_name, "@eaDir") == 0)
            continue;
        else if (fstatat(dirfd(directory), entry->d_name, &info, 0) == 0)
            status = S_ISDIR(info.st_mode) ? append(list, entry->d_name, arena) : COD_OK;
        else if (errno != ENOENT && errno != ELOOP)
            status = cod_fail(COD_ERR_IO, "%s/%s: %s", root, entry->d_name, strerror(errno));
    } while (status == COD_OK && entry != NULL);
    closedir(directory);
    if (list->count > 1)
        qsort(list->items, list->count, sizeof *list->items, by_text);
    return status;
}

static cod_status keep_classes(const char *root, const name_list *names, cod_examples *out)
{
    if (names->count < 2)
        return cod_fail(COD_ERR_ARGUMENT, "data.path: '%s' has %zu subfolder%s; one a class is wanted, and two classes",
                        root, names->count, names->count == 1 ? "" : "s");
    out->class_count = names->count;
    out->class_names = cod_arena_alloc(&out->arena, names->count * sizeof *names->items);
    if (out->class_names == NULL)
        return COD_ERR_MEMORY;
    memcpy(out->class_names, names->items, names->count * sizeof *names->items);
    return COD_OK;
}

/** The classes are the subfolders of the first root. */
static cod_status take_classes(const char *root, cod_examples *out)
{
    name_list names = {0};
    cod_status status = find_subfolders(root, &out->arena, &names);
    COD_THEN(status, keep_classes(root, &names, out));
    free(names.items);
    return status;
}

/** Fails where class folders have faults; says it of the first few at once. */
static cod_status check_faults(const char *key, cod_faults *faults)
{
    char text[COD_FAULTS_TEXT];
    if (faults->count == 0)
        return COD_OK;
    cod_faults_first(faults, "; ", text);
    cod_faults_clear(faults);
    return cod_fail(COD_ERR_ARGUMENT, "data.%s: %s", key, text);
}

/** Both lists are sorted. */
static cod_status compare_classes(const char *key, const char *root, const char *first_root, const name_list *names,
                                  const cod_examples *first)
{
    cod_faults faults = {0};
    for (size_t i = 0, k = 0; i < names->count || k < first->class_count;) {
        const int order = i == names->count         ? 1
                          : k == first->class_count ? -1
                                                    : strcmp(names->items[i], first->class_names[k]);
        if (order > 0)
            cod_faults_add(&faults, "'%s' lacks the class folder '%s' of '%s'", root, first->class_names[k],
                           first_root);
        if (order < 0)
            cod_faults_add(&faults, "'%s/%s' is a class that '%s' has no folder of", root, names->items[i], first_root);
        i += order <= 0;
        k += order >= 0;
    }
    return check_faults(key, &faults);
}

/** Every other root must have the same subfolders. */
static cod_status check_classes(const char *key, const char *root, const char *first_root, cod_examples *out)
{
    name_list names = {0};
    cod_status status = find_subfolders(root, &out->arena, &names);
    COD_THEN(status, compare_classes(key, root, first_root, &names, out));
    free(names.items);
    return status;
}

/** Appends a list of roots' files, each with its class as its root. */
static cod_status find_files(const char *key, const cod_string_list *roots, const char *first_root, cod_examples *out)
{
    for (size_t r = 0; r < roots->count; r++) {
        cod_faults faults = {0};
        COD_TRY(check_classes(key, roots->items[r], first_root, out));
        for (size_t k = 0; k < out->class_count; k++) {
            char folder[PATH_BYTES];
            const size_t before = out->files.count;
            snprintf(folder, sizeof folder, "%s/%s", roots->items[r], out->class_names[k]);
            const cod_status status = cod_files_find(&out->files, folder, k);
            if (status != COD_OK)
                cod_faults_clear(&faults);
            COD_TRY(status);
            if (out->files.count == before)
                cod_faults_add(&faults, "the class folder '%s' holds no photographs (PNG, JPEG, WebP, TIFF or BMP)",
                               folder);
        }
        COD_TRY(check_faults(key, &faults));
    }
    return COD_OK;
}

cod_status cod_photograph_read(const cod_examples *examples, size_t index, uint8_t *out)
{
    const int64_t side = examples->height;
    cod_image image, resized;
    COD_TRY(cod_image_read(examples->files.items[index].path, &image));
    cod_status status = cod_image_to_rgb8(&image);
    const int64_t shorter = image.width < image.height ? image.width : image.height;
    COD_THEN(status, cod_image_resize(&image, (double)side / (double)shorter, &resized));
    cod_image_clear(&image);
    COD_TRY(status);
    const uint8_t *from = resized.pixels;
    from += 3 * ((resized.height - side) / 2 * resized.width + (resized.width - side) / 2);
    for (int64_t y = 0; y < side; y++)
        memcpy(out + 3 * y * side, from + 3 * y * resized.width, (size_t)(3 * side));
    cod_image_clear(&resized);
    return COD_OK;
}

/** Data of the threads that fill the block. */
typedef struct filling {
    const cod_examples *examples;
    uint8_t *broken, *pixels;
} filling;

static cod_status fill(void *context, size_t index)
{
    filling *f = context;
    int64_t width, height;
    const cod_status status =
        index < f->examples->held
            ? cod_photograph_read(f->examples, index, f->pixels + index * cod_example_values(f->examples))
            : cod_image_probe(f->examples->files.items[index].path, &width, &height);
    f->broken[index] = status != COD_OK;
    return status == COD_ERR_MEMORY ? status : COD_OK;
}

static cod_status take_photographs(const cod_data_options *options, bool report, cod_examples *out)
{
    const size_t one = cod_example_values(out), limit = ((size_t)options->cache_mb << 20) / one;
    const size_t begin = cod_align_up(out->count);
    uint64_t key = cod_hash(&out->height, sizeof out->height, (uint64_t)options->cache_mb);
    for (size_t i = 0; i < out->count; i++) {
        const cod_file *file = &out->files.items[i];
        const int64_t facts[2] = {file->bytes, file->modified_ns};
        key = cod_hash(facts, sizeof facts, cod_hash(file->path, strlen(file->path), key));
    }
    char *here = realpath(".", NULL); /* paths may be relative to it */
    COD_REQUIRE_MEMORY(here);
    key = cod_hash(here, strlen(here), key);
    free(here);
    out->held = out->count < limit ? out->count : limit;
    if (!cod_block_open(&out->block, key, report)) {
        COD_TRY(cod_block_reserve(&out->block, begin + out->held * one, report));
        filling f = {.examples = out, .broken = out->block.base, .pixels = out->block.base + begin};
        COD_TRY(cod_run_parallel(out->count, fill, &f));
        COD_TRY(cod_block_complete(&out->block));
    }
    out->broken = out->block.base;
    out->bytes = out->block.base + begin;
    return COD_OK;
}

/** Names what is left out, by meeting it again. */
static cod_status report_broken(const cod_examples *examples)
{
    uint8_t *pixels = malloc(cod_example_values(examples));
    COD_REQUIRE_MEMORY(pixels);
    cod_faults faults = {0};
    for (size_t i = 0; i < examples->count; i++) {
        if (!examples->broken[i])
            continue;
        if (cod_photograph_read(examples, i, pixels) != COD_OK)
            cod_faults_add(&faults, "%s", cod_error_message());
        else
            cod_faults_add(&faults, "%s: it could not be read when all were, but can be now",
                           examples->files.items[i].path);
    }
    cod_faults_report(&faults, examples->count, "photographs", examples->left_out);
    cod_faults_clear(&faults);
    free(pixels);
    return COD_OK;
}

cod_status cod_class_folders_read(const cod_data_options *options, bool report, cod_examples *out)
{
    const char *first = options->path.items[0];
    out->files.silent = !report;
    COD_TRY(take_classes(first, out));
    const char **names = out->class_names;
    COD_TRY(find_files("path", &options->path, first, out));
    const size_t val_begin = out->files.count;
    COD_TRY(find_files("val_path", &options->val_path, first, out));
    const size_t test_begin = out->files.count;
    COD_TRY(find_files("test_path", &options->test_path, first, out));
    COD_TRY(cod_examples_reserve(out, out->files.count, out->class_count));
    out->class_names = names;
    out->val_begin = val_begin;
    out->test_begin = test_begin;
    for (size_t i = 0; i < out->count; i++)
        out->labels[i] = (uint32_t)out->files.items[i].root;
    /* Training crops at random; validation takes the middle. */
    out->height = out->width = options->size + options->size / MARGIN_PARTS;
    out->channels = 3;
    COD_TRY(take_photographs(options, report, out));
    return report ? report_broken(out) : COD_OK;
}

#include "data/source_internal.h"

#include "core/hash.h"
#include "data/resize.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Bumped when the same files give other pixels. */
enum { KEY_VERSION = 3, SYNTHETIC_MARGIN = 24 };

static uint64_t hash_text(uint64_t key, const char *text)
{
    return cod_hash(text, strlen(text) + 1, key);
}

static uint64_t hash_files(uint64_t key, const cod_file_list *files, size_t first)
{
    for (size_t i = first; i < files->count; i++) {
        const int64_t numbers[2] = {files->items[i].bytes, files->items[i].modified_ns};
        key = cod_hash(numbers, sizeof numbers, hash_text(key, files->items[i].name));
    }
    return key;
}

/** Finds the files of a root and adds what and where they are to the key. */
static cod_status find_root(cod_file_list *files, const char *root, size_t index, uint64_t *key)
{
    const size_t first = files->count;
    COD_TRY(cod_files_find(files, root, index));
    char *absolute = realpath(root, NULL);
    if (absolute == NULL)
        return cod_fail(COD_ERR_IO, "%s: %s", root, strerror(errno));
    *key = hash_files(hash_text(*key, absolute), files, first);
    free(absolute);
    return COD_OK;
}

/** A low-resolution file under the name that is looked for: relative to its root, without its ending. */
typedef struct stem {
    const char *text, *path;
} stem;

static int by_stem(const void *a, const void *b)
{
    return strcmp(((const stem *)a)->text, ((const stem *)b)->text);
}

/** Copies `name` without its ending, `suffix` instead; NULL when memory is short. */
static char *stem_of(cod_arena *arena, const char *name, const char *suffix)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    const size_t length = dot ? (size_t)(dot - name) : strlen(name);
    char *text = cod_arena_alloc(arena, length + strlen(suffix) + 1);
    if (text != NULL) {
        memcpy(text, name, length);
        strcpy(text + length, suffix);
    }
    return text;
}

/** Gives each source of one root the low file of the same stem, or of that stem and "x<scale>". */
static cod_status pair_root(cod_source_list *list, const stem *stems, size_t count, size_t root, const char *low_root)
{
    cod_arena *arena = &list->low.arena;
    char suffix[16];
    snprintf(suffix, sizeof suffix, "x%d", list->scale);
    for (size_t i = 0; i < list->count; i++) {
        cod_source *source = &list->items[i];
        if (source->root != root)
            continue;
        const stem plain = {.text = stem_of(arena, list->high.items[i].name, "")};
        const stem suffixed = {.text = stem_of(arena, list->high.items[i].name, suffix)};
        COD_REQUIRE_MEMORY(plain.text);
        COD_REQUIRE_MEMORY(suffixed.text);
        const stem *found = count ? bsearch(&plain, stems, count, sizeof *stems, by_stem) : NULL;
        if (found == NULL && count)
            found = bsearch(&suffixed, stems, count, sizeof *stems, by_stem);
        if (found != NULL) {
            source->low_path = found->path;
            continue;
        }
        const size_t length = strlen(suffixed.text) + strlen(plain.text) + strlen(low_root) + 64;
        char *problem = cod_arena_alloc(arena, length);
        COD_REQUIRE_MEMORY(problem);
        snprintf(problem, length, "no low-resolution picture '%s' or '%s' in '%s'", plain.text, suffixed.text,
                 low_root);
        source->problem = problem;
    }
    return COD_OK;
}

/** With the low files of the root, which `list` has from `first` on. @param stems  room for as many, overwritten */
static cod_status pair_with(cod_source_list *list, size_t first, stem *stems, size_t root, const char *low_root)
{
    const size_t count = list->low.count - first;
    for (size_t i = 0; i < count; i++) {
        const cod_file *file = &list->low.items[first + i];
        stems[i] = (stem){.text = stem_of(&list->low.arena, file->name, ""), .path = file->path};
        if (stems[i].text == NULL)
            return COD_ERR_MEMORY;
    }
    qsort(stems, count, sizeof *stems, by_stem);
    return pair_root(list, stems, count, root, low_root);
}

static cod_status pair_low(cod_source_list *list, const cod_string_list *roots, size_t first_root)
{
    for (size_t r = 0; r < roots->count; r++) {
        const size_t first = list->low.count;
        COD_TRY(find_root(&list->low, roots->items[r], first_root + r, &list->key));
        stem *stems = malloc((list->low.count - first + 1) * sizeof *stems);
        COD_REQUIRE_MEMORY(stems);
        const cod_status status = pair_with(list, first, stems, first_root + r, roots->items[r]);
        free(stems);
        COD_TRY(status);
    }
    return COD_OK;
}

static cod_status find_synthetic(const cod_data_options *options, cod_source_list *list)
{
    list->synthetic_side = options->patch + SYNTHETIC_MARGIN;
    const int64_t numbers[2] = {list->synthetic_side, options->synthetic_count};
    list->key = cod_hash(numbers, sizeof numbers, hash_text(list->key, "synthetic"));
    list->items = calloc((size_t)options->synthetic_count, sizeof *list->items);
    COD_REQUIRE_MEMORY(list->items);
    for (; list->count < (size_t)options->synthetic_count; list->count++) {
        char name[32];
        snprintf(name, sizeof name, "synthetic/%06zu", list->count);
        list->items[list->count].of = list->count;
        list->items[list->count].path = cod_arena_strdup(&list->high.arena, name);
        COD_REQUIRE_MEMORY(list->items[list->count].path);
    }
    return COD_OK;
}

/** Adds copies of all pictures that may be trained on, for each scale other than 1. */
static cod_status add_copies(const cod_float_list *scales, cod_source_list *list)
{
    cod_source *items = realloc(list->items, (list->found + scales->count * list->trained + 1) * sizeof *items);
    COD_REQUIRE_MEMORY(items);
    list->items = items;
    for (size_t s = 0; s < scales->count; s++) {
        if (scales->items[s] == 1)
            continue;
        list->key = cod_hash(&scales->items[s], sizeof scales->items[s], list->key);
        for (size_t i = 0; i < list->trained; i++) {
            items[list->count] = items[i];
            items[list->count++].scale = scales->items[s];
        }
    }
    return COD_OK;
}

size_t cod_source_at_scale(const cod_source_list *list, const cod_float_list *scales, size_t index, size_t which)
{
    if (scales->items[which] == 1)
        return index;
    size_t copies = 0;
    for (size_t s = 0; s < which; s++)
        copies += scales->items[s] != 1;
    return list->found + copies * list->trained + index;
}

static cod_status find_files(const cod_data_options *options, cod_source_list *list)
{
    const size_t roots = options->path.count;
    for (size_t r = 0; r < roots + options->val_path.count; r++) {
        const char *root = r < roots ? options->path.items[r] : options->val_path.items[r - roots];
        COD_TRY(find_root(&list->high, root, r, &list->key));
    }
    list->items = calloc(list->high.count + 1, sizeof *list->items);
    COD_REQUIRE_MEMORY(list->items);
    for (; list->count < list->high.count; list->count++) {
        const cod_file *file = &list->high.items[list->count];
        list->items[list->count] = (cod_source){.path = file->path, .root = file->root, .of = list->count};
        list->trained += file->root < roots;
    }
    COD_TRY(pair_low(list, &options->low_path, 0));
    return pair_low(list, &options->val_low_path, roots);
}

cod_status cod_sources_find(const cod_data_options *options, int scale, bool report, cod_source_list *list)
{
    *list = (cod_source_list){.scale = scale, .high.silent = !report, .low.silent = !report};
    const int64_t numbers[2] = {KEY_VERSION, scale};
    list->key = cod_hash(numbers, sizeof numbers, 0);
    if (options->kind == COD_DATA_SYNTHETIC) {
        COD_TRY(find_synthetic(options, list));
        list->trained = list->count;
    } else {
        COD_TRY(find_files(options, list));
    }
    list->found = list->count;
    return add_copies(&options->scales, list);
}

void cod_sources_clear(cod_source_list *list)
{
    free(list->items);
    cod_files_clear(&list->high);
    cod_files_clear(&list->low);
    *list = (cod_source_list){0};
}

cod_status cod_source_probe(const cod_source_list *list, size_t index, int64_t *low_width, int64_t *low_height)
{
    const cod_source *source = &list->items[index];
    if (source->problem != NULL)
        return cod_fail(COD_ERR_ARGUMENT, "%s: %s", source->path, source->problem);
    int64_t width = list->synthetic_side * list->scale, height = width;
    if (list->synthetic_side == 0)
        COD_TRY(cod_image_probe(source->path, &width, &height));
    if (source->scale != 0) {
        width = cod_resized_size(width, source->scale);
        height = cod_resized_size(height, source->scale);
    }
    *low_width = width / list->scale;
    *low_height = height / list->scale;
    if (source->low_path != NULL) {
        /* Sides that the scale does not divide are rounded down by some makers of pairs and up by others. */
        const int64_t up_width = *low_width + (width % list->scale != 0),
                      up_height = *low_height + (height % list->scale != 0);
        COD_TRY(cod_image_probe(source->low_path, &width, &height));
        const bool fits = (width == *low_width || width == up_width) && (height == *low_height || height == up_height);
        if (!fits)
            return cod_fail(COD_ERR_ARGUMENT,
                            "%s: is %lldx%lld pixels; at scale %d, %s needs a low-resolution picture of %lldx%lld",
                            source->low_path, (long long)width, (long long)height, list->scale, source->path,
                            (long long)*low_width, (long long)*low_height);
    }
    return COD_OK;
}

/** Copies the top left [height, width] of an image that is at least as large. */
static void copy_corner(const cod_image *image, int64_t width, int64_t height, uint8_t *out)
{
    const size_t bytes = (size_t)width * 3, stride = (size_t)image->width * 3;
    for (int64_t y = 0; y < height; y++)
        memcpy(out + (size_t)y * bytes, (const uint8_t *)image->pixels + (size_t)y * stride, bytes);
}

/** Replaces an image by a copy of another size. */
static cod_status rescale(cod_image *image, double scale)
{
    cod_image copy;
    COD_TRY(cod_image_resize(image, scale, &copy));
    cod_image_clear(image);
    *image = copy;
    return COD_OK;
}

/** Reads the top left [height, width] of a picture at `scale` (0 = unchanged). */
static cod_status load_file(const char *path, double scale, int64_t width, int64_t height, uint8_t *out)
{
    cod_image image;
    COD_TRY(cod_image_read(path, &image));
    cod_status status = cod_image_to_rgb8(&image);
    if (scale != 0)
        COD_THEN(status, rescale(&image, scale));
    if (status == COD_OK && (image.width < width || image.height < height))
        status = cod_fail(COD_ERR_FORMAT, "%s: the picture has changed its size since it was found", path);
    if (status == COD_OK)
        copy_corner(&image, width, height, out);
    cod_image_clear(&image);
    return status;
}

static cod_status load_synthetic(const cod_source_list *list, size_t index, int64_t width, int64_t height, uint8_t *out)
{
    const cod_source *source = &list->items[index];
    const int64_t side = list->synthetic_side * list->scale;
    cod_image image;
    COD_TRY(cod_image_init(&image, side, side, 3, 8));
    cod_synthetic_draw(source->of, side, image.pixels);
    const cod_status status = source->scale != 0 ? rescale(&image, source->scale) : COD_OK;
    if (status == COD_OK)
        copy_corner(&image, width, height, out);
    cod_image_clear(&image);
    return status;
}

/** Peak signal-to-noise ratio of `count` values of 8 bits, in dB. */
static double psnr(const uint8_t *a, const uint8_t *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum > 0 ? 10 * log10(255.0 * 255.0 * (double)count / sum) : INFINITY;
}

/**
 * Sides that the scale does not divide do not tell whether a low-resolution picture is of this high one; the reduced
 * high one does. Of pictures that have nothing to do with each other the ratio is some 10 dB.
 */
static cod_status check_pair(const cod_source_list *list, const cod_source *source, const uint8_t *low,
                             const cod_image *high)
{
    enum { LEAST_DB = 18 };
    int64_t width, height;
    cod_image small;
    COD_TRY(cod_image_probe(source->path, &width, &height));
    if (width % list->scale == 0 && height % list->scale == 0)
        return COD_OK;
    COD_TRY(cod_image_resize(high, 1.0 / list->scale, &small));
    const double found = psnr(low, small.pixels, cod_image_bytes(&small));
    cod_image_clear(&small);
    if (found >= LEAST_DB)
        return COD_OK;
    return cod_fail(COD_ERR_FORMAT,
                    "%s: is no low-resolution picture of %s: %.1f dB from it, reduced; at least %d wanted",
                    source->low_path, source->path, found, LEAST_DB);
}

cod_status cod_source_load(const cod_source_list *list, size_t index, int64_t low_width, int64_t low_height,
                           uint8_t *low, uint8_t *high)
{
    const cod_source *source = &list->items[index];
    const int64_t width = low_width * list->scale, height = low_height * list->scale;
    if (list->synthetic_side != 0)
        COD_TRY(load_synthetic(list, index, width, height, high));
    else
        COD_TRY(load_file(source->path, source->scale, width, height, high));
    if (source->low_path != NULL)
        COD_TRY(load_file(source->low_path, 0, low_width, low_height, low));
    const cod_image whole = {.width = width, .height = height, .channels = 3, .bits = 8, .pixels = high};
    if (source->low_path != NULL)
        return check_pair(list, source, low, &whole);
    cod_image small;
    COD_TRY(cod_image_resize(&whole, 1.0 / list->scale, &small));
    copy_corner(&small, low_width, low_height, low);
    cod_image_clear(&small);
    return COD_OK;
}

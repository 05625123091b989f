#include "data/identity.h"

#include "core/hash.h"
#include "core/regular_file.h"
#include "data/examples_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 16, BLOCK_BYTES = 4096, MAX_HASHED_FILES = 20000, MAX_SHOWN = 3 };

/** Whether a file can never be read as it is, so that the data set leaves it out; anything else may pass. */
static bool stays_unreadable(int reason)
{
    return reason == ENOENT || reason == EACCES || reason == ELOOP || reason == ENXIO || reason == EISDIR ||
           reason == ESPIPE;
}

static cod_status hash_open(int descriptor, const cod_file *file, uint64_t *key)
{
    char block[BLOCK_BYTES];
    const bool whole = file->bytes <= (int64_t)BLOCKS * BLOCK_BYTES;
    const int64_t last = file->bytes > BLOCK_BYTES ? file->bytes - BLOCK_BYTES : 0;
    for (int i = 0; i < BLOCKS; i++) {
        const int64_t at = whole ? (int64_t)i * BLOCK_BYTES : last * i / (BLOCKS - 1);
        const ssize_t got = cod_regular_read(descriptor, block, sizeof block, at);
        if (got < 0 && !stays_unreadable(errno))
            return cod_fail(COD_ERR_IO, "%s: cannot read: %s", file->path, strerror(errno));
        if (got > 0)
            *key = cod_hash(block, (size_t)got, *key);
    }
    return COD_OK;
}

/** Hash of evenly spread blocks; 0 if the file cannot be read. */
static cod_status hash_contents(const cod_file *file, uint64_t *key)
{
    const int descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *key = 0;
    if (descriptor < 0)
        return stays_unreadable(errno) ? COD_OK
                                       : cod_fail(COD_ERR_IO, "%s: cannot open: %s", file->path, strerror(errno));
    const cod_status status = hash_open(descriptor, file, key);
    close(descriptor);
    return status;
}

static void write_name(FILE *out, const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++)
        fprintf(out, *c < ' ' || *c == '\\' ? "\\x%02x" : "%c", *c);
}

static cod_status write_files(FILE *out, const char *option, const cod_file_list *files, bool hashed)
{
    for (size_t i = 0; i < files->count; i++) {
        const cod_file *file = &files->items[i];
        uint64_t key = 0;
        if (hashed)
            COD_TRY(hash_contents(file, &key));
        fprintf(out, "%s %zu\t", option, file->root);
        write_name(out, file->name);
        fprintf(out, "\t%" PRId64 "\t%016" PRIx64 "\n", file->bytes, key);
    }
    return ferror(out) ? cod_fail(COD_ERR_MEMORY, "out of memory for the names of %zu files", files->count) : COD_OK;
}

static void write_generated(FILE *out, const cod_data_options *options)
{
    const cod_int_list *shape = &options->synthetic_shape;
    fprintf(out, "generated\t%" PRId64 " of %" PRId64 " classes, patch %" PRId64 ", shape", options->synthetic_count,
            options->synthetic_classes, options->patch);
    for (size_t i = 0; i < shape->count; i++)
        fprintf(out, " %" PRId64, shape->items[i]);
    fprintf(out, "\t0\t%016x\n", 0);
}

enum { ROOT_OPTIONS = 6, SETS = 4 /**< place of val_sets among them */ };

/** A set is what its option's kind of data is: pictures, or the files of MNIST. */
static cod_status find_sets(const cod_data_options *options, cod_file_list *files)
{
    for (size_t i = 0; i < options->val_sets.count; i++) {
        const char *path = cod_data_set_path(options->val_sets.items[i]);
        const size_t first = files->count;
        COD_TRY(options->kind == COD_DATA_MNIST ? cod_mnist_find(path, files) : cod_files_find(files, path, i));
        for (size_t f = first; f < files->count; f++)
            files->items[f].root = i;
    }
    return COD_OK;
}

static cod_status find(const cod_data_options *options, const cod_string_list *const roots[ROOT_OPTIONS],
                       cod_file_list files[ROOT_OPTIONS])
{
    if (options->kind == COD_DATA_MNIST)
        COD_TRY(cod_mnist_find(options->path.items[0], &files[0]));
    for (int o = 0; o < ROOT_OPTIONS && options->kind != COD_DATA_MNIST && options->kind != COD_DATA_SYNTHETIC; o++)
        for (size_t r = 0; r < roots[o]->count && o != SETS; r++)
            COD_TRY(cod_files_find(&files[o], roots[o]->items[r], r));
    return find_sets(options, &files[SETS]);
}

static cod_status list_found(const cod_data_options *options, FILE *out)
{
    static const char *const names[ROOT_OPTIONS] = {"path",         "low_path", "val_path",
                                                    "val_low_path", "val_sets", "test_path"};
    const cod_string_list *const roots[ROOT_OPTIONS] = {&options->path,     &options->low_path,
                                                        &options->val_path, &options->val_low_path,
                                                        &options->val_sets, &options->test_path};
    cod_file_list files[ROOT_OPTIONS];
    for (int o = 0; o < ROOT_OPTIONS; o++)
        files[o] = (cod_file_list){.silent = true};
    cod_status status = find(options, roots, files);
    size_t count = 0;
    for (int o = 0; o < ROOT_OPTIONS; o++)
        count += files[o].count;
    for (int o = 0; o < ROOT_OPTIONS; o++) {
        COD_THEN(status, write_files(out, names[o], &files[o], count <= MAX_HASHED_FILES));
        cod_files_clear(&files[o]);
    }
    return status;
}

cod_status cod_data_list_files(const cod_data_options *options, char **list)
{
    size_t bytes = 0;
    cod_status status = COD_OK;
    *list = NULL;
    FILE *out = open_memstream(list, &bytes);
    COD_REQUIRE_MEMORY(out);
    if (options->kind == COD_DATA_SYNTHETIC)
        write_generated(out, options);
    status = list_found(options, out);
    if (fclose(out) != 0 && status == COD_OK)
        status = cod_fail(COD_ERR_MEMORY, "out of memory for the names of the data's files");
    if (status != COD_OK) {
        free(*list);
        *list = NULL;
    }
    return status;
}

void cod_data_list_key(const char *list, char key[17])
{
    snprintf(key, 17, "%016" PRIx64, cod_hash(list, strlen(list), 0));
}

/** A line, cut in two. */
typedef struct line {
    const char *name;  /**< with its root before it */
    const char *facts; /**< size and contents */
} line;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const line *)a)->name, ((const line *)b)->name);
}

/** Cuts a list into sorted lines. @param[in,out] list  its ends of lines and of names become ends of texts */
static size_t cut(char *list, line *lines)
{
    size_t count = 0;
    for (char *rest = list, *text; (text = strsep(&rest, "\n")) != NULL && *text != '\0';) {
        char *root_end = strchr(text, '\t'), *name_end = root_end != NULL ? strchr(root_end + 1, '\t') : NULL;
        if (name_end != NULL)
            *name_end = '\0';
        lines[count++] = (line){text, name_end != NULL ? name_end + 1 : ""};
    }
    qsort(lines, count, sizeof *lines, by_name);
    return count;
}

/** Files that changed in one way. */
typedef struct change {
    const char *what;
    size_t count;
    char names[COD_DATA_CHANGE_BYTES / 4];
} change;

static void note(change *c, const line *file)
{
    const size_t used = strlen(c->names);
    const char *tab = strchr(file->name, '\t');
    if (c->count++ < MAX_SHOWN)
        snprintf(c->names + used, sizeof c->names - used, "%s%s", used > 0 ? ", " : "", tab ? tab + 1 : file->name);
}

static void compare(const line *before, size_t before_count, const line *now, size_t now_count, change changes[3])
{
    for (size_t b = 0, n = 0; b < before_count || n < now_count;) {
        const int order = b == before_count ? 1 : n == now_count ? -1 : by_name(&before[b], &now[n]);
        if (order > 0)
            note(&changes[0], &now[n]);
        else if (order < 0)
            note(&changes[1], &before[b]);
        else if (strcmp(before[b].facts, now[n].facts) != 0)
            note(&changes[2], &now[n]);
        b += order <= 0;
        n += order >= 0;
    }
}

static void describe(const change changes[3], char text[COD_DATA_CHANGE_BYTES])
{
    size_t used = 0;
    for (int i = 0; i < 3; i++)
        if (changes[i].count > 0 && used < COD_DATA_CHANGE_BYTES)
            used += (size_t)snprintf(text + used, COD_DATA_CHANGE_BYTES - used, "%s%zu %s (%s%s)", used > 0 ? ", " : "",
                                     changes[i].count, changes[i].what, changes[i].names,
                                     changes[i].count > MAX_SHOWN ? ", …" : "");
    if (used == 0)
        snprintf(text, COD_DATA_CHANGE_BYTES, "the order of the files");
}

static size_t count_lines(const char *list)
{
    size_t count = 1;
    for (; *list != '\0'; list++)
        count += *list == '\n';
    return count;
}

void cod_data_list_compare(const char *before, const char *now, char text[COD_DATA_CHANGE_BYTES])
{
    change changes[3] = {{.what = "added"}, {.what = "removed"}, {.what = "changed"}};
    text[0] = '\0';
    if (strcmp(before, now) == 0)
        return;
    char *texts[2] = {strdup(before), strdup(now)};
    line *lines = malloc((count_lines(before) + count_lines(now)) * sizeof *lines);
    if (texts[0] != NULL && texts[1] != NULL && lines != NULL) {
        const size_t count = cut(texts[0], lines), now_count = cut(texts[1], lines + count);
        compare(lines, count, lines + count, now_count, changes);
        describe(changes, text);
    } else {
        snprintf(text, COD_DATA_CHANGE_BYTES, "no memory to say which");
    }
    free(texts[0]);
    free(texts[1]);
    free(lines);
}

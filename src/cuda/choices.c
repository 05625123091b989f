#include "cuda/choices.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] = "codistill: fastest implementations on NVIDIA GPUs, version 1\n";

enum { PATH_BYTES = 4096, LINE_BYTES = CUDA_KEY_BYTES + CUDA_NAME_BYTES + 128, MOST_CHOICES = 4096 };

typedef struct choice {
    char *key;
    char name[CUDA_NAME_BYTES];
    double us;
} choice;

typedef struct choice_list {
    choice *items;
    size_t count, room;
} choice_list;

struct cuda_choices {
    char path[PATH_BYTES]; /**< empty = no file */
    choice_list list;
    bool complained; /**< that the file could not be written */
};

static void list_clear(choice_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].key);
    free(list->items);
    *list = (choice_list){.items = NULL};
}

static choice *list_find(const choice_list *list, const char *key)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].key, key) == 0)
            return &list->items[i];
    return NULL;
}

static cod_status list_put(choice_list *list, const char *key, const char *name, double us)
{
    choice *item = list_find(list, key);
    if (item == NULL && list->count == list->room) {
        const size_t room = list->room > 0 ? 2 * list->room : 64;
        choice *items = realloc(list->items, room * sizeof *items);
        COD_REQUIRE_MEMORY(items);
        list->items = items;
        list->room = room;
    }
    if (item == NULL) {
        char *copy = strdup(key);
        COD_REQUIRE_MEMORY(copy);
        item = &list->items[list->count++];
        item->key = copy;
    }
    snprintf(item->name, sizeof item->name, "%s", name);
    item->us = us;
    return COD_OK;
}

/* The file. */

void cuda_choices_path(char *path, size_t bytes)
{
    const char *given = getenv("COD_CUDA_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[PATH_BYTES / 2];
    path[0] = '\0';
    if (given != NULL && given[0] != '\0') {
        if (strcmp(given, "off") != 0)
            snprintf(path, bytes, "%s", given);
        return;
    }
    const bool own = cache == NULL || cache[0] != '/';
    if (own && (home == NULL || home[0] != '/'))
        return;
    snprintf(folder, sizeof folder, "%s%s", own ? home : cache, own ? "/.cache" : "");
    mkdir(folder, 0777);
    snprintf(path, bytes, "%s/codistill", folder);
    mkdir(path, 0777);
    snprintf(path, bytes, "%s/codistill/cuda.txt", folder);
}

/** "CHECKSUM NAME MICROSECONDS KEY\n", the checksum of all that follows the space behind it. */
static bool line_write(FILE *file, const choice *item)
{
    char text[LINE_BYTES];
    const int length = snprintf(text, sizeof text, "%s %.2f %s", item->name, item->us, item->key);
    return fprintf(file, "%016" PRIx64 " %s\n", cod_hash(text, (size_t)length, 0), text) > 0;
}

/** Whether the line, without its end, is whole; then it is in the list. */
static bool line_read(const char *line, choice_list *list, cod_status *status)
{
    uint64_t checksum;
    char name[CUDA_NAME_BYTES];
    double us;
    int at = 0, key = 0;
    if (sscanf(line, "%16" SCNx64 " %n", &checksum, &at) != 1 || at != 17 ||
        checksum != cod_hash(line + at, strlen(line + at), 0))
        return false;
    if (sscanf(line + at, "%191s %lf %n", name, &us, &key) != 2 || key == 0)
        return false;
    *status = list_put(list, line + at + key, name, us);
    return true;
}

/** Adds the file's choices to the list. @return *foreign: it is a file, but none of ours */
static cod_status read_file(const char *path, choice_list *list, bool *foreign)
{
    char line[LINE_BYTES];
    size_t damaged = 0;
    cod_status status = COD_OK;
    *foreign = false;
    FILE *file = cod_regular_stream(path);
    if (file == NULL && errno == EINVAL)
        cod_log_warn("'%s' is no regular file: it is not used", path);
    if (file == NULL)
        return COD_OK;
    const bool empty = fgets(line, sizeof line, file) == NULL;
    *foreign = !empty && strcmp(line, header) != 0;
    while (!empty && !*foreign && status == COD_OK && fgets(line, sizeof line, file) != NULL) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        damaged += end == NULL || !line_read(line, list, &status);
    }
    *foreign |= ferror(file) != 0;
    fclose(file);
    if (*foreign)
        cod_log_warn("'%s' is no file of timed choices of this version: it is not used, and kept as '%s.foreign' when "
                     "a new one is written",
                     path, path);
    if (damaged > 0)
        cod_log_warn("'%s': %zu damaged line%s passed over; what they said is timed again", path, damaged,
                     damaged == 1 ? "" : "s");
    return status;
}

static cod_status write_list(FILE *file, const choice_list *list)
{
    const size_t first = list->count > MOST_CHOICES ? list->count - MOST_CHOICES : 0;
    bool whole = fputs(header, file) >= 0;
    for (size_t i = first; i < list->count; i++)
        whole &= line_write(file, &list->items[i]);
    whole &= fflush(file) == 0;
    return whole ? COD_OK : cod_fail(COD_ERR_IO, "%s", strerror(errno));
}

/** Replaces the file as a whole. */
static cod_status replace_file(const char *path, const choice_list *list)
{
    char temporary[PATH_BYTES + 64];
    snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    FILE *file = fopen(temporary, "we");
    if (file == NULL)
        return cod_fail(COD_ERR_IO, "'%s': %s", temporary, strerror(errno));
    cod_status status = write_list(file, list);
    if (fclose(file) != 0 && status == COD_OK)
        status = cod_fail(COD_ERR_IO, "'%s': %s", temporary, strerror(errno));
    if (status == COD_OK && rename(temporary, path) != 0)
        status = cod_fail(COD_ERR_IO, "'%s': %s", path, strerror(errno));
    if (status != COD_OK)
        unlink(temporary);
    return status;
}

/** What the file holds now, with the new choice: other processes have written since it was read. */
static cod_status merge_file(const char *path, const char *key, const char *name, double us)
{
    choice_list list = {.items = NULL};
    char aside[PATH_BYTES + 16];
    bool foreign = false;
    cod_status status = read_file(path, &list, &foreign);
    snprintf(aside, sizeof aside, "%s.foreign", path);
    if (status == COD_OK && foreign && rename(path, aside) != 0)
        status = cod_fail(COD_ERR_IO, "'%s': %s", aside, strerror(errno));
    COD_THEN(status, list_put(&list, key, name, us));
    COD_THEN(status, replace_file(path, &list));
    list_clear(&list);
    return status;
}

static cod_status store(const char *path, const char *key, const char *name, double us)
{
    char lock[PATH_BYTES + 16];
    struct stat info;
    /* Renaming over a device, such as /dev/null, would replace it. */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return cod_fail(COD_ERR_IO, "'%s' is no regular file", path);
    snprintf(lock, sizeof lock, "%s.lock", path);
    const int file = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return cod_fail(COD_ERR_IO, "'%s': %s", lock, strerror(errno));
    /* Some file systems know no locks: then two writers at once lose a line, which is timed again. */
    (void)!flock(file, LOCK_EX);
    const cod_status status = merge_file(path, key, name, us);
    close(file);
    return status;
}

/* Choices. */

cod_status cuda_choices_open(const char *path, cuda_choices **out)
{
    bool foreign = false;
    cuda_choices *choices = calloc(1, sizeof *choices);
    COD_REQUIRE_MEMORY(choices);
    snprintf(choices->path, sizeof choices->path, "%s", path != NULL ? path : "");
    const cod_status status = choices->path[0] != '\0' ? read_file(path, &choices->list, &foreign) : COD_OK;
    if (status != COD_OK) {
        cuda_choices_close(choices);
        return status;
    }
    *out = choices;
    return COD_OK;
}

void cuda_choices_close(cuda_choices *choices)
{
    if (choices == NULL)
        return;
    list_clear(&choices->list);
    free(choices);
}

const char *cuda_choices_find(const cuda_choices *choices, const char *key)
{
    const choice *item = list_find(&choices->list, key);
    return item != NULL ? item->name : NULL;
}

cod_status cuda_choices_add(cuda_choices *choices, const char *key, const char *name, double us)
{
    COD_REQUIRE(strlen(key) < CUDA_KEY_BYTES && strlen(name) < CUDA_NAME_BYTES && name[0] != '\0' &&
                    strpbrk(name, " \n") == NULL && strchr(key, '\n') == NULL,
                "'%s' cannot be noted as the choice of '%s'", name, key);
    COD_TRY(list_put(&choices->list, key, name, us));
    if (choices->path[0] == '\0' || choices->complained)
        return COD_OK;
    if (store(choices->path, key, name, us) != COD_OK) {
        cod_log_warn("timed choices are not kept: %s; COD_CUDA_CACHE names another file, or is off",
                     cod_error_message());
        choices->complained = true;
    }
    return COD_OK;
}

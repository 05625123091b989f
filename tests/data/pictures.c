#include "pictures.h"

#include "core/log.h"
#include "core/memory.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static cod_arena arena;

int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/codistill-test-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

int remove_folder(void **state)
{
    (void)state;
    cod_log_set_sink(NULL, NULL, COD_LOG_ERROR);
    cod_arena_clear(&arena);
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *below(const char *fmt, ...)
{
    char path[1024];
    int length = snprintf(path, sizeof path, "%s/", folder);
    va_list args;
    va_start(args, fmt);
    vsnprintf(path + length, sizeof path - (size_t)length, fmt, args);
    va_end(args);
    for (char *slash = path + length; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0700);
    }
    return cod_arena_strdup(&arena, path);
}

void write_picture(const char *path, int64_t width, int64_t height, int divisor, int blue)
{
    cod_image image;
    assert_ok(cod_image_init(&image, width, height, 3, 8));
    uint8_t *out = image.pixels;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            *out++ = (uint8_t)(x / divisor);
            *out++ = (uint8_t)(y / divisor);
            *out++ = (uint8_t)blue;
        }
    assert_ok(cod_image_write_png(path, &image));
    cod_image_clear(&image);
}

void write_bytes(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

uint8_t *read_bytes(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *count = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*count + 1);
    assert_int_equal(fread(bytes, 1, *count, file), *count);
    fclose(file);
    return bytes;
}

int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    assert_non_null(directory);
    int count = -2; /* . and .. */
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

void set_option(cod_data_options *options, const char *key, const char *text)
{
    const char *items[16];
    size_t count = 0;
    char *copy = cod_arena_strdup(&arena, text), *rest = NULL;
    for (char *item = strtok_r(copy, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest))
        items[count++] = item;
    assert_ok(cod_option_set(cod_option_find(&cod_data_option_table, key), options, items, count, &arena));
}

cod_data_options options_of(const char *paths)
{
    cod_data_options options;
    assert_ok(cod_options_set_defaults(&cod_data_option_table, &options, &arena));
    set_option(&options, "path", paths);
    return options;
}

static char log_text[65536];

static void keep_line(void *context, cod_log_level level, const char *line)
{
    (void)context, (void)level;
    const size_t length = strlen(log_text);
    snprintf(log_text + length, sizeof log_text - length, "%s\n", line);
}

void capture_log(void)
{
    log_text[0] = '\0';
    cod_log_set_sink(keep_line, NULL, COD_LOG_DEBUG);
}

int logged(const char *part)
{
    int count = 0;
    for (const char *at = log_text; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    return count;
}

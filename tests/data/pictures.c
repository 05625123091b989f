#include "pictures.h"

#include "core/backend.h"
#include "core/log.h"
#include "core/memory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static cod_arena arena;

const cod_dataset_place lone_group = {.scale = 4, .seed = 1, .groups = 1, .report = true};

int remove_folder(void **state)
{
    cod_log_set_sink(NULL, NULL, COD_LOG_ERROR);
    cod_arena_clear(&arena);
    return cod_test_folder_remove(state);
}

const char *below(const char *fmt, ...)
{
    char path[1024];
    int length = snprintf(path, sizeof path, "%s/", cod_test_at(""));
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

const char *make_pictures(const char *name, int count, int blue)
{
    for (int i = 0; i < count; i++)
        write_picture(below("%s/%02d.png", name, i), 112, 100, 4, blue + i);
    return below("%s", name);
}

cod_dataset *open_ok(const cod_data_options *options, const cod_dataset_place *place)
{
    cod_dataset *dataset;
    assert_ok(cod_dataset_open(options, place, &dataset));
    return dataset;
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

/** What byte-wise batches stand for, [batch] of `shape`, looked up and turned as cod_turn says. */
static void look_up(const cod_view *view, const float *table, const int32_t *turns, float *out)
{
    const cod_shape s = view->shape;
    const uint8_t *bytes = cod_view_host(view);
    for (int64_t i = 0; i < cod_shape_count(s); i++) {
        const int64_t c = i % s.c, x = i / s.c % s.w, y = i / s.c / s.w % s.h, n = i / s.c / s.w / s.h;
        const int64_t row = turns[n] & COD_TURN_MIRROR_Y ? s.h - 1 - y : y;
        const int64_t column = turns[n] & COD_TURN_MIRROR_X ? s.w - 1 - x : x;
        const bool transposed = turns[n] & COD_TURN_TRANSPOSE;
        const int64_t place = transposed ? column * s.w + row : row * s.w + column;
        out[i] = table[bytes[(n * s.h * s.w + place) * s.c + c] * s.c + c];
    }
}

/** Compares one tensor of two batches, of bytes where there is a table. */
static void check_view(const cod_view *bytes, const cod_view *floats, const float *table, const int32_t *turns)
{
    assert_true(cod_shape_equal(bytes->shape, floats->shape));
    if (table == NULL) {
        assert_int_equal(bytes->dtype, COD_F32);
        assert_memory_equal(cod_view_host(bytes), cod_view_host(floats), cod_view_span_bytes(floats));
        return;
    }
    float *values = malloc(cod_view_span_bytes(floats));
    assert_non_null(values);
    assert_int_equal(bytes->dtype, COD_U8);
    look_up(bytes, table, turns, values);
    assert_memory_equal(values, cod_view_host(floats), cod_view_span_bytes(floats));
    free(values);
}

int orders_of(const float *plain, const float *permuted, int pixels)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int fit = 0x3F;
    for (int i = 0; i < pixels; i++)
        for (int order = 0; order < 6; order++)
            for (int c = 0; c < 3; c++)
                if (permuted[i * 3 + c] != plain[i * 3 + orders[order][c]])
                    fit &= ~(1 << order);
    return fit;
}

int check_bytes(const cod_samples *samples, int64_t batch, int steps)
{
    const cod_loader_options plain = {.batch = batch, .seed = 3, .ranks = 1, .threads = 1, .prefetch = 2};
    cod_loader_options eight = plain;
    cod_loader *bytes, *floats;
    cod_batch a, b;
    int seen = 0;
    eight.bytes = true;
    assert_ok(cod_loader_create(samples, &eight, 0, &bytes));
    assert_ok(cod_loader_create(samples, &plain, 0, &floats));
    for (int step = 0; step < steps; step++) {
        assert_ok(cod_loader_next(bytes, &a));
        assert_ok(cod_loader_next(floats, &b));
        assert_null(b.turns);
        check_view(&a.input, &b.input, samples->input_table, a.turns);
        check_view(&a.target, &b.target, samples->target_table, a.turns);
        for (int64_t n = 0; n < batch; n++)
            seen |= 1 << a.turns[n];
    }
    cod_loader_destroy(bytes);
    cod_loader_destroy(floats);
    return seen;
}

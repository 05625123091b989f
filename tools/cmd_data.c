/* `codistill data`: what training would see, to look at. */
#include "tools/cmd.h"

#include "data/degrade.h"
#include "data/loader.h"
#include "io/file.h"
#include "tools/arguments.h"
#include "tools/print.h"
#include "train/strategy.h"
#include "train/task.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: codistill data CONFIG.yaml --show DIR [--count N] [--force] [key.path=value ...]\n\n"
    "Writes the first samples that group 0 would train on for super-resolution as PNG files: the low-resolution "
    "crop, enlarged so that each pixel is a square, beside the true crop and, if a loss uses it, the sharpened "
    "true crop. Prints how each low-resolution crop was degraded. Trains nothing.\n\n"
    "  --show DIR\tfolder to write sample-0000.png and so on to; made if it does not exist\n"
    "  --count N\tnumber of samples, from 1 to 10000 (8)\n"
    "  --force\treplace existing samples\n"
    "  --help\n";

enum { GAP = 8, RGB = 3, PATH_BYTES = 4096, TEXT_BYTES = COD_DEGRADATION_TEXT_BYTES };

typedef struct arguments {
    const char *folder;
    long count;
    bool force;
} arguments;

/** Copies sample values from `column` on, each pixel `factor` times as large. */
static void paste(cod_image *sheet, int64_t column, const float *pixels, int64_t side, int64_t channels, int64_t factor)
{
    uint8_t *out = sheet->pixels;
    for (int64_t y = 0; y < side * factor; y++)
        for (int64_t x = 0; x < side * factor; x++)
            for (int c = 0; c < 3; c++)
                out[(y * sheet->width + column + x) * 3 + c] =
                    (uint8_t)(pixels[((y / factor) * side + x / factor) * channels + c] * 255 + 0.5f);
}

static cod_status write_pair(const char *path, const cod_batch *batch)
{
    const int64_t low = batch->input.shape.w, high = batch->target.shape.w;
    const int64_t channels = batch->target.shape.c, truths = channels / RGB;
    const float *truth = cod_view_host(&batch->target);
    cod_image sheet;
    COD_TRY(cod_image_init(&sheet, (1 + truths) * high + truths * GAP, high, RGB, 8));
    memset(sheet.pixels, 255, cod_image_bytes(&sheet));
    paste(&sheet, 0, cod_view_host(&batch->input), low, RGB, high / low);
    for (int64_t i = 0; i < truths; i++)
        paste(&sheet, (1 + i) * (high + GAP), truth + i * RGB, high, channels, 1);
    const cod_status status = cod_image_write_png(path, &sheet);
    cod_image_clear(&sheet);
    return status;
}

static void describe(const cod_run_config *config, uint64_t position, char text[TEXT_BYTES])
{
    const cod_sample_place place = {.seed = (uint64_t)config->root.seed, .position = position};
    cod_degradation degradation;
    if (config->data.degradation == COD_DEGRADATION_BICUBIC) {
        snprintf(text, TEXT_BYTES, "%s", config->data.low_path.count > 0 ? "as low_path gives it" : "MATLAB's bicubic");
        return;
    }
    cod_degradation_draw(&config->degradation, &place, &degradation);
    cod_degradation_describe(&degradation, text);
}

static cod_status path_of(const arguments *args, long index, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/sample-%04ld.png", args->folder, index);
    COD_REQUIRE(args->force || !cod_file_exists(path), "%s: exists already; --force replaces it", path);
    return COD_OK;
}

static cod_status show_next(cod_loader *loader, const cod_run_config *config, const arguments *args, long index)
{
    cod_batch batch;
    char path[PATH_BYTES], text[TEXT_BYTES];
    COD_TRY(cod_loader_next(loader, &batch));
    COD_TRY(path_of(args, index, path));
    COD_TRY(write_pair(path, &batch));
    describe(config, batch.step, text);
    cod_print(stdout, "%s: %s\n", path, text);
    return COD_OK;
}

/** A loader of one sample a batch has them at the places where training has them. */
static cod_status show(const cod_run_config *config, const cod_samples *samples, const arguments *args)
{
    const cod_loader_options options = {.batch = 1, .seed = (uint64_t)config->root.seed, .ranks = 1, .prefetch = 1};
    char path[PATH_BYTES];
    cod_loader *loader;
    for (long i = 0; i < args->count; i++)
        COD_TRY(path_of(args, i, path));
    COD_TRY(cod_folder_create(args->folder));
    COD_TRY(cod_loader_create(samples, &options, 0, &loader));
    cod_status status = COD_OK;
    for (long i = 0; i < args->count && status == COD_OK; i++)
        status = show_next(loader, config, args, i);
    cod_loader_destroy(loader);
    return status;
}

static cod_status open_and_show(cod_run_config *config, const arguments *args)
{
    const cod_group_config *group = cod_run_config_group(config, 0);
    const cod_dataset_place place = {.seed = (uint64_t)config->root.seed,
                                     .groups = config->group_count > 0 ? (int)config->group_count : 1,
                                     .all = config->strategy->one_group,
                                     .report = true};
    cod_train_task *task;
    COD_REQUIRE(group->kind->task == COD_TASK_SUPER_RESOLUTION,
                "model '%s' is for %s; only samples of super-resolution can be shown", group->kind->name,
                cod_task_name(group->kind->task));
    COD_TRY(cod_train_task_find(group->kind->task)->open(config, &place, &task));
    const cod_status status = show(config, &task->samples, args);
    task->kind->close(task);
    return status;
}

static int run(int argc, char **argv, cod_config_arguments *given, cod_run_config *config)
{
    arguments args = {.count = 8};
    const char *count = NULL;
    const cod_argument own[] = {{.name = "show", .text = &args.folder, .words = COD_WORDS_FILES},
                                {.name = "count", .text = &count},
                                {.name = "force", .flag = &args.force}};
    int code = cod_config_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], given);
    if (code < 0)
        code = cod_argument_number(argv[0], "count", count, 1, 10000, &args.count);
    if (code >= 0)
        return code;
    if (args.folder == NULL)
        return cod_cmd_usage(argv[0], "--show names the folder to write to");
    cod_status status = cod_run_config_load(given->path, given->overrides, given->count, config);
    COD_THEN(status, open_and_show(config, &args));
    return cod_cmd_end(status);
}

int cod_cmd_data(int argc, char **argv)
{
    cod_config_arguments given = {0};
    cod_run_config config = {0};
    const int code = run(argc, argv, &given, &config);
    cod_run_config_clear(&config);
    cod_config_arguments_clear(&given);
    return code;
}

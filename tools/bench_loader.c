/* `codistill bench loader`: how many crops a core makes, beside copying as many bytes. */
#include "tools/bench.h"

#include "core/memory.h"
#include "core/trace.h"
#include "data/crops.h"
#include "data/loader.h"
#include "tools/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SCALE = 4 };
static const double warm_up_s = 0.2, measure_s = 2;

static const char help[] =
    "usage: codistill bench loader [FOLDER] [KEY=VALUE ...]\n\n"
    "Makes batches of random crops for about two seconds and prints crops a second, and a second of processor time,\n"
    "which other load does not change; beside them, how many a core could copy.\n\n"
    "  FOLDER     of pictures; without it generated ones\n"
    "  KEY=VALUE  an option of section data, such as threads=2, batch=16, patch=24, cache_mb=0\n";

static double processor_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

typedef struct rates {
    double crops_per_s, crops_per_core_s;
} rates;

/** Takes batches for a while. */
static cod_status take(cod_loader *loader, double seconds, cod_batch *batch, rates *out)
{
    const double begin_s = cod_clock_s(), begin_used_s = processor_s();
    int64_t crops = 0;
    double taken_s;
    do {
        COD_TRY(cod_loader_next(loader, batch));
        crops += batch->input.shape.n;
        taken_s = cod_clock_s() - begin_s;
    } while (taken_s < seconds);
    *out = (rates){(double)crops / taken_s, (double)crops / (processor_s() - begin_used_s)};
    return COD_OK;
}

static size_t batch_bytes(const cod_batch *batch)
{
    return cod_view_span_bytes(&batch->input) + cod_view_span_bytes(&batch->target);
}

/** Crops of that many bytes that a core copies in a second of its time. */
static cod_status copy(size_t bytes, int64_t crops_at_once, double *crops_per_core_s)
{
    void *from = NULL, *to = NULL;
    cod_status status = cod_aligned_alloc(&from, bytes);
    if (status == COD_OK)
        status = cod_aligned_alloc(&to, bytes);
    if (status == COD_OK) {
        memset(from, 1, bytes);
        memset(to, 2, bytes);
        const double begin_s = processor_s();
        int64_t crops = 0;
        double used_s;
        do {
            memcpy(to, from, bytes);
            *(volatile char *)from = *(volatile char *)to; /* so that no copy is left out */
            crops += crops_at_once;
            used_s = processor_s() - begin_s;
        } while (used_s < warm_up_s);
        *crops_per_core_s = (double)crops / used_s;
    }
    cod_aligned_free(from);
    cod_aligned_free(to);
    return status;
}

static cod_status measure(const cod_data_options *options)
{
    const cod_dataset_place place = {.scale = SCALE, .groups = 1, .report = true};
    const cod_loader_options loading = {
        .batch = options->batch, .ranks = 1, .threads = (int)options->threads, .prefetch = (int)options->prefetch};
    cod_dataset *dataset = NULL;
    cod_crops crops;
    cod_loader *loader = NULL;
    cod_batch batch;
    rates made = {0};
    double copied = 0;
    const double begin_s = cod_clock_s();
    cod_status status = cod_dataset_open(options, &place, &dataset);
    const double opened_s = cod_clock_s() - begin_s;
    if (status == COD_OK) {
        cod_crops_init(&crops, dataset, options->patch, options->augment);
        const cod_samples samples = cod_crops_samples(&crops);
        status = cod_loader_create(&samples, &loading, 0, &loader);
    }
    if (status == COD_OK)
        status = take(loader, warm_up_s, &batch, &made);
    if (status == COD_OK)
        status = take(loader, measure_s, &batch, &made);
    const size_t bytes = status == COD_OK ? batch_bytes(&batch) : 0;
    cod_loader_destroy(loader);
    if (status == COD_OK)
        status = copy(bytes, options->batch, &copied);
    if (status == COD_OK) {
        const cod_dataset_counts counts = cod_dataset_count(dataset);
        printf(
            "%zu pictures opened in %.2f s, %zu decoded on each use; crops of %lldx%lld and %lldx%lld as f32%s, %lld "
            "thread%s\n",
            counts.train + counts.val, opened_s, counts.uncached, (long long)options->patch, (long long)options->patch,
            (long long)options->patch * SCALE, (long long)options->patch * SCALE, options->augment ? ", turned" : "",
            (long long)options->threads, options->threads == 1 ? "" : "s");
        printf("%.0f crops/s, %.0f a second of a core; memcpy %.0f (%.2f of it)\n", made.crops_per_s,
               made.crops_per_core_s, copied, made.crops_per_core_s / copied);
    }
    cod_dataset_close(dataset);
    return status;
}

/** Takes KEY=VALUE or a folder. */
static cod_status set(cod_data_options *options, char *argument, cod_arena *arena)
{
    char *sign = strchr(argument, '=');
    const char *key = "path", *value = argument;
    if (sign != NULL) {
        *sign = '\0';
        key = argument;
        value = sign + 1;
    } else {
        options->kind = COD_DATA_PICTURES;
    }
    const cod_option *option = cod_option_find(&cod_data_option_table, key);
    COD_REQUIRE(option != NULL, "data has no option '%s'", key);
    return cod_option_set(option, options, &value, 1, arena);
}

int cod_bench_loader(int argc, char **argv)
{
    cod_arena arena = {0};
    cod_data_options options;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return COD_EXIT_OK;
    }
    cod_status status = cod_options_set_defaults(&cod_data_option_table, &options, &arena);
    options.kind = COD_DATA_SYNTHETIC;
    for (int i = 1; i < argc && status == COD_OK; i++)
        status = set(&options, argv[i], &arena);
    if (status == COD_OK)
        status = measure(&options);
    cod_arena_clear(&arena);
    return status == COD_OK ? COD_EXIT_OK : cod_cmd_failed(status);
}

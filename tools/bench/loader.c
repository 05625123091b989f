/* `codistill bench loader`: how many samples a core makes, beside copying as many bytes. */
#include "tools/bench/bench.h"

#include "core/memory.h"
#include "core/trace.h"
#include "data/crops.h"
#include "data/labelled.h"
#include "data/loader.h"
#include "tools/arguments.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SCALE = 4 };
static const double warm_up_s = 0.2, measure_s = 2;

static const char help[] =
    "usage: codistill bench loader [FOLDER] [KEY=VALUE ...]\n\n"
    "Makes batches of random crops, or of labelled examples, for about two seconds. Prints the samples made in a "
    "second and in a second of processor time, which other load on the machine does not change, and how many "
    "samples one core could copy in that time.\n\n"
    "  FOLDER\tfolder of pictures; without it, pictures are generated\n"
    "  KEY=VALUE\tsets an option of section data, such as threads=2, batch=16, patch=24, cache_mb=0, kind=mnist "
    "path=DIR, transfer=uint8 for batches in 8 bits, or degradation=real_esrgan; degradation.KEY=VALUE sets an "
    "option of section degradation. Write lists as \"[30, 95]\"\n";

static double processor_s(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

typedef struct rates {
    double samples_per_s, samples_per_core_s;
} rates;

/** Takes batches for a while. */
static cod_status take(cod_loader *loader, double seconds, cod_batch *batch, rates *out)
{
    const double begin_s = cod_clock_s(), begin_used_s = processor_s();
    int64_t samples = 0;
    double taken_s;
    do {
        COD_TRY(cod_loader_next(loader, batch));
        samples += batch->input.shape.n;
        taken_s = cod_clock_s() - begin_s;
    } while (taken_s < seconds);
    *out = (rates){(double)samples / taken_s, (double)samples / (processor_s() - begin_used_s)};
    return COD_OK;
}

static size_t batch_bytes(const cod_batch *batch)
{
    return cod_view_span_bytes(&batch->input) + cod_view_span_bytes(&batch->target);
}

/** Bytes of both have been touched, so that no page comes in while time is taken. */
static double time_copies(void *to, void *from, size_t bytes, int64_t samples_at_once)
{
    const double begin_s = processor_s();
    int64_t samples = 0;
    double used_s;
    do {
        memcpy(to, from, bytes);
        *(volatile char *)from = *(volatile char *)to; /* so that no copy is left out */
        samples += samples_at_once;
        used_s = processor_s() - begin_s;
    } while (used_s < warm_up_s);
    return (double)samples / used_s;
}

/** Samples of that many bytes that a core copies in a second of its time. */
static cod_status copy(size_t bytes, int64_t samples_at_once, double *samples_per_core_s)
{
    void *from = NULL, *to = NULL;
    cod_status status = cod_aligned_alloc(&from, bytes);
    COD_THEN(status, cod_aligned_alloc(&to, bytes));
    if (status == COD_OK) {
        memset(from, 1, bytes);
        memset(to, 2, bytes);
        *samples_per_core_s = time_copies(to, from, bytes, samples_at_once);
    }
    cod_aligned_free(from);
    cod_aligned_free(to);
    return status;
}

/** What is measured. */
typedef struct bench_options {
    cod_data_options data;
    cod_degrade_options degradation;
} bench_options;

/** What is drawn from: crops of pictures, or labelled examples. */
typedef struct drawn {
    cod_dataset *pictures;
    cod_crops crops;
    cod_degrader *degrader;
    cod_sharpener *sharpener;
    cod_labelled *labelled;
    cod_samples samples;
} drawn;

static cod_status open_data(const bench_options *o, drawn *d)
{
    const cod_data_options *options = &o->data;
    const cod_dataset_place place = {.scale = SCALE, .groups = 1, .report = true};
    if (cod_data_kind_is_labelled(options->kind)) {
        COD_TRY(cod_labelled_open(options, &place, &d->labelled));
        d->samples = cod_labelled_samples(d->labelled);
        return COD_OK;
    }
    COD_TRY(cod_dataset_open(options, &place, &d->pictures));
    cod_crops_init(&d->crops, d->pictures, options->patch, options->augment);
    if (options->gt_usm) { /* as recipe real_esrgan has it */
        COD_TRY(cod_sharpener_create(&d->sharpener));
        d->crops.sharpener = d->sharpener;
        d->crops.truth = COD_TRUTH_BOTH;
    }
    d->samples = cod_crops_samples(&d->crops);
    if (options->degradation == COD_DEGRADATION_REAL_ESRGAN)
        COD_TRY(cod_degrader_create(&o->degradation, SCALE, &d->degrader));
    d->crops.degrader = d->degrader;
    return COD_OK;
}

static void print_data(const cod_data_options *options, const drawn *d, double opened_s)
{
    const cod_shape in = d->samples.input, out = d->samples.target;
    printf("%zu samples to train on, opened in %.2f s; %lldx%lldx%lld and %lldx%lldx%lld as %s, %lld thread%s\n",
           d->samples.count, opened_s, (long long)in.h, (long long)in.w, (long long)in.c, (long long)out.h,
           (long long)out.w, (long long)out.c, options->transfer == COD_TRANSFER_UINT8 ? "bytes" : "f32",
           (long long)options->threads, options->threads == 1 ? "" : "s");
    if (d->pictures != NULL)
        printf("%zu pictures are decoded on each use\n", cod_dataset_count(d->pictures).uncached);
}

static cod_status measure(const bench_options *o)
{
    const cod_data_options *options = &o->data;
    const cod_loader_options loading = {.batch = options->batch,
                                        .ranks = 1,
                                        .threads = (int)options->threads,
                                        .prefetch = (int)options->prefetch,
                                        .bytes = options->transfer == COD_TRANSFER_UINT8};
    drawn data = {0};
    cod_loader *loader = NULL;
    cod_batch batch;
    rates made = {0};
    double copied = 0;
    const double begin_s = cod_clock_s();
    cod_status status = open_data(o, &data);
    const double opened_s = cod_clock_s() - begin_s;
    COD_THEN(status, cod_loader_create(&data.samples, &loading, 0, &loader));
    COD_THEN(status, take(loader, warm_up_s, &batch, &made));
    COD_THEN(status, take(loader, measure_s, &batch, &made));
    const size_t bytes = status == COD_OK ? batch_bytes(&batch) : 0;
    cod_loader_destroy(loader);
    COD_THEN(status, copy(bytes, options->batch, &copied));
    if (status == COD_OK) {
        print_data(options, &data, opened_s);
        printf("%.0f samples/s, %.0f a second of a core; memcpy %.0f (%.2f of it)\n", made.samples_per_s,
               made.samples_per_core_s, copied, made.samples_per_core_s / copied);
    }
    cod_degrader_destroy(data.degrader);
    cod_sharpener_destroy(data.sharpener);
    cod_dataset_close(data.pictures);
    cod_labelled_close(data.labelled);
    return status;
}

/** Sets an option; a list is "[A, B]", or one item as it stands. */
static cod_status set_value(const cod_option *option, void *values, const char *text, cod_arena *arena)
{
    char *copy = cod_arena_strdup(arena, text);
    const char **items = cod_arena_alloc(arena, (strlen(text) + 1) * sizeof *items);
    size_t count = 0;
    COD_REQUIRE_MEMORY(copy);
    COD_REQUIRE_MEMORY(items);
    if (cod_option_is_list(option) && text[0] == '[')
        for (char *rest = NULL, *item = strtok_r(copy, "[], ", &rest); item; item = strtok_r(NULL, "[], ", &rest))
            items[count++] = item;
    else
        items[count++] = text;
    if (cod_option_set(option, values, items, count, arena) != COD_OK)
        return cod_fail_prefix(COD_ERR_ARGUMENT, "%s", option->key);
    return COD_OK;
}

/** Takes KEY=VALUE or a folder. */
static cod_status set(bench_options *options, char *argument, cod_arena *arena)
{
    static const char other[] = "degradation.";
    char *sign = strchr(argument, '=');
    const char *key = "path", *value = argument;
    if (sign != NULL) {
        *sign = '\0';
        key = argument;
        value = sign + 1;
    } else {
        options->data.kind = COD_DATA_PICTURES;
    }
    const bool degrades = strncmp(key, other, strlen(other)) == 0;
    const cod_option_table *table = degrades ? &cod_degrade_option_table : &cod_data_option_table;
    const cod_option *option = cod_option_find(table, degrades ? key + strlen(other) : key);
    COD_REQUIRE(option != NULL, "%s has no option '%s'", table->section, degrades ? key + strlen(other) : key);
    void *values = degrades ? (void *)&options->degradation : &options->data;
    return set_value(option, values, value, arena);
}

int cod_bench_loader(int argc, char **argv)
{
    cod_arena arena = {0};
    bench_options options;
    const int code = cod_arguments_parse(argc, argv, help, NULL, 0, NULL, NULL);
    if (code >= 0)
        return code;
    cod_status status = cod_options_set_defaults(&cod_data_option_table, &options.data, &arena);
    COD_THEN(status, cod_options_set_defaults(&cod_degrade_option_table, &options.degradation, &arena));
    options.data.kind = COD_DATA_SYNTHETIC;
    for (int i = optind; i < argc && status == COD_OK; i++)
        status = set(&options, argv[i], &arena);
    COD_THEN(status, measure(&options));
    cod_arena_clear(&arena);
    return cod_cmd_end(status);
}

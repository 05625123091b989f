/* `codistill bench niqe`: what NIQE of pictures takes, on one core. */
#include "tools/bench/bench.h"

#include "core/statistics.h"
#include "core/trace.h"
#include "infer/niqe_model.h"
#include "tools/arguments.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>

enum { MAX_REPEATS = 101 };

static const char help[] =
    "usage: codistill bench niqe PICTURE ... --niqe-model FILE [--repeats N] [--serve]\n\n"
    "Prints NIQE of each picture, borders included, and the milliseconds that it takes on one core, without "
    "decoding.\n\n"
    "  --niqe-model F\tmodel of natural pictures: BasicSR's niqe_pris_params.npz\n"
    "  --repeats N\tnumber of repetitions; their median is printed (7)\n"
    "  --serve\tprint no table; measure all pictures at once and then for each line read, and answer each with a "
    "line of JSON\n";

typedef struct niqe_bench {
    const char *model_path;
    char **files; /**< [count] */
    int count, repeats;
    bool serve;
    cod_niqe_model model;
    cod_image *images; /**< [count] */
    double *niqe;      /**< [count] */
} niqe_bench;

static cod_status load(niqe_bench *b)
{
    COD_TRY(cod_niqe_model_load(b->model_path, &b->model));
    b->images = calloc((size_t)b->count, sizeof *b->images);
    b->niqe = calloc((size_t)b->count, sizeof *b->niqe);
    COD_REQUIRE_MEMORY(b->images);
    COD_REQUIRE_MEMORY(b->niqe);
    for (int i = 0; i < b->count; i++) {
        COD_TRY(cod_image_read(b->files[i], &b->images[i]));
        COD_TRY(cod_image_to_rgb8(&b->images[i]));
    }
    return COD_OK;
}

static cod_status measure(niqe_bench *b, int i, double *ms)
{
    const double begin_s = cod_clock_s();
    const cod_status status = cod_niqe(&b->images[i], 0, &b->model, &b->niqe[i]);
    *ms = 1e3 * (cod_clock_s() - begin_s);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", b->files[i]);
}

static cod_status serve(niqe_bench *b)
{
    char line[64];
    do {
        double total_ms = 0;
        for (int i = 0; i < b->count; i++) {
            double ms;
            COD_TRY(measure(b, i, &ms));
            total_ms += ms;
        }
        printf("{\"ms\": %.4f, \"niqe\": [", total_ms);
        for (int i = 0; i < b->count; i++)
            printf("%s%.9g", i > 0 ? ", " : "", b->niqe[i]);
        printf("]}\n");
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) != NULL);
    return COD_OK;
}

static cod_status print_table(niqe_bench *b)
{
    double total_ms = 0;
    for (int i = 0; i < b->count; i++) {
        double times[MAX_REPEATS];
        for (int r = 0; r < b->repeats; r++)
            COD_TRY(measure(b, i, &times[r]));
        const double ms = cod_median(times, (size_t)b->repeats);
        total_ms += ms;
        printf("%-40s %lldx%lld  %10.6f %9.2f ms\n", b->files[i], (long long)b->images[i].width,
               (long long)b->images[i].height, b->niqe[i], ms);
    }
    printf("%d picture%s, %.2f ms\n", b->count, b->count == 1 ? "" : "s", total_ms);
    return COD_OK;
}

static cod_status run(niqe_bench *b)
{
    cod_status status = load(b);
    COD_THEN(status, b->serve ? serve(b) : print_table(b));
    for (int i = 0; b->images != NULL && i < b->count; i++)
        cod_image_clear(&b->images[i]);
    free(b->images);
    free(b->niqe);
    return status;
}

int cod_bench_niqe(int argc, char **argv)
{
    niqe_bench b = {0};
    const char *repeats_text = NULL;
    long repeats = 7;
    const cod_argument own[] = {{.name = "niqe-model", .text = &b.model_path, .words = COD_WORDS_FILES},
                                {.name = "repeats", .text = &repeats_text},
                                {.name = "serve", .flag = &b.serve}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    code = code < 0 ? cod_argument_number(argv[0], "repeats", repeats_text, 1, MAX_REPEATS, &repeats) : code;
    if (code < 0 && (b.model_path == NULL || optind == argc))
        code =
            cod_cmd_usage(argv[0], "%s",
                          b.model_path == NULL ? "--niqe-model FILE is wanted: niqe_pris_params.npz, as BasicSR has it"
                                               : "a PICTURE is wanted");
    if (code >= 0)
        return code;
    b.files = argv + optind;
    b.count = argc - optind;
    b.repeats = (int)repeats;
    return cod_cmd_end(run(&b));
}

/* `codistill bench tune`: times the implementations of a step's convolutions anew, and shows what is chosen and why. */
#include "tools/bench/bench.h"

#include "cpu/bench.h"
#include "cpu/cpu.h"
#include "tools/arguments.h"
#include "tools/bench/training.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: codistill bench tune [options] [model option=value ...]\n\n"
    "Times the implementations of each convolution of a training step on this processor, and remembers the fastest "
    "for later runs, whatever was remembered before. A rule chooses one by its shape; another one is taken only if it "
    "is at least 5 % faster, in all rounds but one. Choices are remembered for this "
    "number of threads. Best on a quiet machine.\n\n" COD_BENCH_STEP_HELP
    "  --json\tprint everything as one JSON object\n\n"
    "The table has a row for each shape: how many convolutions of the step have it, the time of each implementation on "
    "a part of the batch, in microseconds, with that part of what it does once for all after an update of the weights, "
    "the one that the rule chooses in brackets, what is chosen, by how much it "
    "is faster than the rule's, and the noise: by what share its runs took longer than the least. `?` marks a choice "
    "with noise above 25 %, which is made again by a later run on a quiet machine.\n";

enum { MOST_SHAPES = 1024 };

typedef struct tune_row {
    uint64_t key;
    cod_op op;
    cod_cpu_choice choice;
    int uses;
} tune_row;

typedef struct tune_options {
    cod_bench_training_options training;
    bool json;
} tune_options;

static bool is_convolution(const cod_op *op)
{
    return op->kind == COD_OP_CONV2D || op->kind == COD_OP_CONV2D_BACKWARD_DATA ||
           op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
}

/** Like "16x24x24x64 -> 64, 3x3 /2": pictures, rows, columns and channels of x, channels of y, kernel and stride. */
static void describe(const cod_op *op, char *text, size_t bytes)
{
    const bool data = op->kind == COD_OP_CONV2D_BACKWARD_DATA, weights = op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    const cod_shape x = (data ? &op->outputs[0] : &op->inputs[0])->shape;
    const cod_shape w = (weights ? &op->outputs[0] : &op->inputs[1])->shape;
    const int used = snprintf(text, bytes, "%lldx%lldx%lldx%lld -> %lld, %lldx%lld", (long long)x.n, (long long)x.h,
                              (long long)x.w, (long long)x.c, (long long)w.n, (long long)w.h, (long long)w.w);
    if (op->attr.stride_h * op->attr.stride_w > 1)
        snprintf(text + used, bytes - (size_t)used, " /%d", op->attr.stride_h);
}

/** Tunes a convolution unless one like it was; a row more where it has several implementations. */
static cod_status tune_op(cod_device *device, const cod_op *op, tune_row *rows, size_t *count)
{
    cod_cpu_choice choice;
    const uint64_t key = cod_cpu_bench_choice_key(device, op);
    for (size_t i = 0; i < *count; i++) {
        if (rows[i].key == key) {
            rows[i].uses++;
            return COD_OK;
        }
    }
    COD_REQUIRE(*count < MOST_SHAPES, "a step has more than %d shapes of convolutions", MOST_SHAPES);
    COD_TRY(cod_cpu_bench_tune(device, op, &choice));
    rows[(*count)++] = (tune_row){key, *op, choice, 1};
    return COD_OK;
}

static void print_row(const tune_row *row)
{
    char shape[128];
    const cod_cpu_choice *c = &row->choice;
    describe(&row->op, shape, sizeof shape);
    printf("%3d  %-24s %-32s", row->uses, cod_op_kind_name(row->op.kind), shape);
    for (size_t i = 0; i < c->count; i++)
        printf("%s%s%s%s %.0f", i == 0 ? " " : ", ", i == c->rule ? "[" : "", c->names[i], i == c->rule ? "]" : "",
               1e6 * c->seconds[i]);
    printf(": %s%s", c->names[c->chosen], c->is_doubtful ? "?" : "");
    if (c->chosen != c->rule)
        printf(", %.2f times as fast in %d of %d rounds", c->seconds[c->rule] / c->seconds[c->chosen], c->agreed,
               c->rounds);
    printf(", noise %.0f %%", 100 * c->noise);
    if (c->before != NULL && c->before != c->names[c->chosen])
        printf("; was %s", c->before);
    printf("\n");
}

static void print_rows(cod_device *device, const tune_row *rows, size_t count)
{
    size_t overruled = 0, doubtful = 0, shown = 0;
    printf("%s\n\n", cod_cpu_backend.describe(device));
    for (size_t i = 0; i < count; i++) {
        if (rows[i].choice.count < 2)
            continue;
        print_row(&rows[i]);
        shown++;
        overruled += rows[i].choice.chosen != rows[i].choice.rule;
        doubtful += rows[i].choice.is_doubtful;
    }
    printf(
        "\n%zu shapes of convolutions, %zu with several implementations; the rule was overruled for %zu, %zu choices "
        "are doubtful\n",
        count, shown, overruled, doubtful);
}

static void row_json(const tune_row *row, cod_json *json)
{
    char shape[128];
    const cod_cpu_choice *c = &row->choice;
    describe(&row->op, shape, sizeof shape);
    cod_json_open(json, NULL, '{');
    cod_json_string(json, "kind", cod_op_kind_name(row->op.kind));
    cod_json_string(json, "shape", shape);
    cod_json_integer(json, "uses", row->uses);
    cod_json_string(json, "rule", c->names[c->rule]);
    cod_json_string(json, "chosen", c->names[c->chosen]);
    cod_json_string(json, "before", c->before);
    cod_json_open(json, "us", '{');
    for (size_t i = 0; i < c->count; i++)
        cod_json_number(json, c->names[i], c->count > 1 ? 1e6 * c->seconds[i] : NAN);
    cod_json_close(json);
    cod_json_integer(json, "rounds", c->rounds);
    cod_json_integer(json, "agreed", c->agreed);
    cod_json_number(json, "noise", c->noise);
    cod_json_close(json);
}

static cod_status print_json(cod_device *device, const tune_row *rows, size_t count)
{
    cod_json json = {.indent = 1};
    char *text = NULL;
    cod_json_open(&json, NULL, '{');
    cod_json_string(&json, "version", cod_version);
    cod_json_string(&json, "device", cod_cpu_backend.describe(device));
    cod_json_open(&json, "shapes", '[');
    for (size_t i = 0; i < count; i++)
        row_json(&rows[i], &json);
    cod_json_close(&json);
    cod_json_close(&json);
    COD_TRY(cod_json_end(&json, &text));
    puts(text);
    free(text);
    return COD_OK;
}

static cod_status tune(const tune_options *options, const cod_bench_training *t, tune_row *rows)
{
    cod_op op;
    size_t count = 0;
    cod_device *device = t->session.device;
    for (size_t s = 0; s < t->step_count; s++)
        for (size_t i = 0; cod_program_op(t->steps[s].program, i, &op); i++)
            if (is_convolution(&op))
                COD_TRY(tune_op(device, &op, rows, &count));
    if (options->json)
        return print_json(device, rows, count);
    print_rows(device, rows, count);
    return COD_OK;
}

static cod_status run(const tune_options *options)
{
    cod_bench_training training;
    tune_row *rows = calloc(MOST_SHAPES, sizeof *rows);
    COD_REQUIRE_MEMORY(rows);
    cod_status status = cod_bench_training_open(&options->training, &training);
    COD_THEN(status, tune(options, &training, rows));
    cod_bench_training_close(&training);
    free(rows);
    return status;
}

int cod_bench_tune(int argc, char **argv)
{
    tune_options options = {
        .training = {.model = "srresnet", .device = "cpu", .backend = COD_BACKEND_AUTO, .no_autotune = true}};
    cod_bench_training_options *training = &options.training;
    cod_bench_numbers numbers = {0};
    int repeats = 0;
    const char *precision = "auto";
    const cod_argument own[] = {COD_BENCH_STEP_ARGUMENTS(training, &numbers, &precision),
                                {.name = "json", .flag = &options.json}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    code = code < 0 ? cod_bench_numbers_read(argv[0], &numbers, training, &repeats) : code;
    code = code < 0 ? cod_bench_precision_read(argv[0], precision, &training->precision) : code;
    if (code >= 0)
        return code;
    training->settings = argv + optind;
    training->setting_count = argc - optind;
    return cod_cmd_end(run(&options));
}

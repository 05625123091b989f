/* `codistill bench step`: where the time of a training step goes, op by op, and what its convolutions take alone. */
#include "tools/bench.h"

#include "core/log.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "cpu/cpu.h"
#include "infer/upscaler.h"
#include "nn/compile.h"
#include "nn/model.h"
#include "nn/optimiser.h"
#include "tools/cmd.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const char help[] = "usage: codistill bench step [options] [model option=value ...]\n\n"
                           "Times one training step (forward, backward, Adam) on random data, op by op.\n\n"
                           "  --model NAME       architecture (srresnet)\n"
                           "  --batch N          pictures a step (16)\n"
                           "  --patch N          side of the low-resolution crop (24)\n"
                           "  --precision P      auto, f32 or bf16 (auto)\n"
                           "  --threads N        (1)\n"
                           "  --repeats N        steps measured, after 2 for warming up (7)\n"
                           "  --backend NAME     (cpu)\n"
                           "  --ops              a row for each op, not for each kind\n"
                           "Model options as in a configuration's section model, such as blocks=16 channels=64.\n"
                           "The last line: the step, the sum of its convolutions timed alone, each in oneDNN's best "
                           "formats, and their ratio.\n";

typedef struct bench {
    const char *model_name, *backend_name;
    int64_t batch, patch;
    cod_precision precision;
    int threads, repeats;
    bool per_op;
    cod_arena arena;
    const cod_model_kind *kind;
    void *options;
    const cod_backend *backend;
    cod_device *device;
    cod_dtype activation;
    cod_model model;
    cod_weights weights;
    cod_executable *executable;
    cod_optimiser *optimiser;
} bench;

static cod_status set_model_option(bench *b, const char *text)
{
    const char *equals = strchr(text, '=');
    COD_REQUIRE(equals != NULL, "'%s' is not option=value", text);
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    const cod_option *option = cod_option_find(b->kind->table, key);
    COD_REQUIRE(option != NULL, "model '%s' has no option '%s'", b->kind->name, key);
    const char *value = equals + 1;
    if (cod_option_set(option, b->options, &value, 1, &b->arena) != COD_OK)
        return cod_fail_prefix(COD_ERR_ARGUMENT, "%s", key);
    return COD_OK;
}

static cod_status set_up(bench *b, char **options, int count)
{
    b->kind = cod_model_kind_find(b->model_name);
    COD_REQUIRE(b->kind != NULL, "there is no model '%s'; `codistill models` lists them", b->model_name);
    b->options = cod_arena_alloc(&b->arena, b->kind->table->struct_bytes);
    COD_REQUIRE_MEMORY(b->options);
    COD_TRY(cod_options_set_defaults(b->kind->table, b->options, &b->arena));
    for (int i = 0; i < count; i++)
        COD_TRY(set_model_option(b, options[i]));
    b->backend = cod_backend_find(b->backend_name);
    COD_REQUIRE(b->backend != NULL, "there is no backend '%s'", b->backend_name);
    COD_TRY(b->backend->open(&(cod_device_options){.threads = b->threads}, &b->device));
    COD_TRY(cod_precision_dtype(b->precision, b->backend, b->device, &b->activation));
    COD_TRY(cod_model_build(b->kind, b->options, &b->model));
    const cod_value target = cod_graph_input_like(b->model.graph, "target", b->model.output);
    const cod_value loss =
        cod_graph_loss(b->model.graph, "task", b->model.output, target, (cod_loss_spec){.kind = COD_LOSS_L1});
    COD_TRY(cod_weights_init(&b->weights, b->backend, b->device, b->model.graph, COD_F32, true));
    COD_TRY(cod_weights_fill_initial(&b->weights, 1));
    const cod_input_shape input = {"input", {b->batch, b->patch, b->patch, b->kind->input_channels(b->options)}};
    const cod_program_spec spec = {.name = "step", .trains = "model", .losses = {loss}};
    const cod_compile_options compile = {.activation = b->activation, .inputs = &input, .input_count = 1};
    COD_TRY(cod_compile(b->model.graph, &b->weights, &compile, &spec, 1, &b->executable));
    const cod_optimiser_options adam = {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    return cod_optimiser_create(&b->weights, 0, &adam, &b->optimiser);
}

static cod_status fill_random(bench *b, const char *name, uint32_t item)
{
    const cod_view view = cod_executable_input(b->executable, name);
    const size_t count = (size_t)cod_shape_count(view.shape);
    float *values = malloc(count * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_TEST, item);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)cod_rng_uniform(&rng);
    const cod_status status =
        b->backend->upload(b->device, NULL, view.buffer, view.offset, values, count * sizeof *values);
    free(values);
    return status;
}

typedef struct row {
    const char *label;
    double ms, gflop, gbyte;
    int calls;
} row;

static double op_bytes(const cod_op *op)
{
    double bytes = 0;
    for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++)
        bytes += op->inputs[i].buffer
                     ? (double)cod_shape_count(op->inputs[i].shape) * (double)cod_dtype_bytes(op->inputs[i].dtype)
                     : 0;
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        bytes += op->outputs[i].buffer
                     ? (double)cod_shape_count(op->outputs[i].shape) * (double)cod_dtype_bytes(op->outputs[i].dtype)
                     : 0;
    return bytes;
}

static row *find_row(row *rows, size_t *count, const cod_op *op, bool per_op, size_t index, cod_arena *arena)
{
    char label[128];
    if (per_op)
        snprintf(label, sizeof label, "%zu %s %s", index, cod_op_kind_name(op->kind), op->name ? op->name : "");
    else
        snprintf(label, sizeof label, "%s", cod_op_kind_name(op->kind));
    for (size_t i = 0; i < *count; i++)
        if (strcmp(rows[i].label, label) == 0)
            return &rows[i];
    rows[*count] = (row){.label = cod_arena_strdup(arena, label)};
    return &rows[(*count)++];
}

/** Median time of each op within whole steps, so that caches are as in training. */
static cod_status time_ops(bench *b, double *step_ms)
{
    enum { MAX_OPS = 4096, MAX_REPEATS = 101 };
    cod_program *program = cod_executable_program(b->executable, "step");
    row *rows = cod_arena_alloc(&b->arena, MAX_OPS * sizeof *rows);
    double(*times)[MAX_REPEATS] = calloc(MAX_OPS, sizeof *times);
    double steps[MAX_REPEATS], updates[MAX_REPEATS];
    size_t row_count = 0;
    cod_op op;
    COD_REQUIRE_MEMORY(rows);
    COD_REQUIRE_MEMORY(times);
    cod_status status = COD_OK;
    for (int r = -2; r < b->repeats && status == COD_OK; r++) {
        const int slot = r < 0 ? 0 : r;
        const double begin = cod_clock_s();
        for (size_t i = 0; i < MAX_OPS && cod_program_op(program, i, &op) && status == COD_OK; i++) {
            const double start = cod_clock_s();
            status = cod_program_run_op(program, i);
            times[i][slot] = 1e3 * (cod_clock_s() - start);
        }
        const double middle = cod_clock_s();
        if (status == COD_OK)
            status = cod_optimiser_step(b->optimiser, 1e-4, r + 3);
        steps[slot] = 1e3 * (cod_clock_s() - begin);
        updates[slot] = 1e3 * (cod_clock_s() - middle);
    }
    for (size_t i = 0; i < MAX_OPS && cod_program_op(program, i, &op) && status == COD_OK; i++) {
        row *line = find_row(rows, &row_count, &op, b->per_op, i, &b->arena);
        line->ms += cod_median(times[i], (size_t)b->repeats);
        line->gflop += 1e-9 * cod_op_flops(&op);
        line->gbyte += 1e-9 * op_bytes(&op);
        line->calls++;
    }
    free(times);
    COD_TRY(status);
    *step_ms = cod_median(steps, (size_t)b->repeats);
    rows[row_count++] = (row){.label = "optimiser (adam)",
                              .ms = cod_median(updates, (size_t)b->repeats),
                              .gbyte = 28e-9 * (double)b->weights.layout.trainable,
                              .calls = 1};
    printf("%-34s %5s %9s %6s %9s %7s\n", "op", "calls", "ms", "share", "GFLOP/s", "GB/s");
    for (size_t i = 0; i < row_count; i++)
        printf("%-34s %5d %9.2f %5.1f%% %9.1f %7.1f\n", rows[i].label, rows[i].calls, rows[i].ms,
               100 * rows[i].ms / *step_ms, 1e3 * rows[i].gflop / rows[i].ms, 1e3 * rows[i].gbyte / rows[i].ms);
    return COD_OK;
}

/** The step's convolutions alone, each in the formats that oneDNN likes best. */
static cod_status time_convolutions(bench *b, double *ms)
{
    cod_program *program = cod_executable_program(b->executable, "step");
    cod_op op;
    *ms = 0;
    for (size_t i = 0; cod_program_op(program, i, &op); i++) {
        double one = 0;
        if (op.kind == COD_OP_CONV2D || op.kind == COD_OP_CONV2D_BACKWARD_DATA ||
            op.kind == COD_OP_CONV2D_BACKWARD_WEIGHTS)
            COD_TRY(cod_cpu_bench_convolution(b->device, &op, b->repeats, &one));
        *ms += one;
    }
    return COD_OK;
}

static cod_status run(bench *b, char **options, int count)
{
    double step = 0, convolutions = 0;
    COD_TRY(set_up(b, options, count));
    COD_TRY(fill_random(b, "input", 0));
    COD_TRY(fill_random(b, "target", 1));
    printf("%s, batch %lld of %lldx%lld, %s, %d thread%s, %zu parameters\n%s\n\n", b->kind->name, (long long)b->batch,
           (long long)b->patch, (long long)b->patch, cod_dtype_name(b->activation), b->threads,
           b->threads == 1 ? "" : "s", b->weights.layout.trainable, b->backend->describe(b->device));
    COD_TRY(time_ops(b, &step));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("\narena, inputs and outputs %.1f MiB, peak RSS %.1f MiB\n",
           (double)cod_executable_bytes(b->executable) / 1048576, (double)usage.ru_maxrss / 1024);
    if (strcmp(b->backend->name, "cpu") != 0) {
        printf("step %.1f ms\n", step);
        return COD_OK;
    }
    COD_TRY(time_convolutions(b, &convolutions));
    printf("step %.1f ms, convolutions alone %.1f ms, ratio %.2f\n", step, convolutions, step / convolutions);
    return COD_OK;
}

static void clear(bench *b)
{
    cod_optimiser_destroy(b->optimiser);
    cod_executable_destroy(b->executable);
    if (b->weights.backend != NULL)
        cod_weights_clear(&b->weights);
    cod_model_clear(&b->model);
    if (b->device != NULL)
        b->backend->close(b->device);
    cod_arena_clear(&b->arena);
}

int cod_bench_step(int argc, char **argv)
{
    static const struct option longs[] = {
        {"model", 1, NULL, 'm'},   {"batch", 1, NULL, 'b'},   {"patch", 1, NULL, 'p'},   {"precision", 1, NULL, 'd'},
        {"threads", 1, NULL, 't'}, {"repeats", 1, NULL, 'r'}, {"backend", 1, NULL, 'k'}, {"ops", 0, NULL, 'o'},
        {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    bench b = {.model_name = "srresnet", .backend_name = "cpu", .batch = 16, .patch = 24, .threads = 1, .repeats = 7};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        const long number = optarg ? strtol(optarg, NULL, 10) : 0;
        int precision = 0;
        switch (c) {
        case 'm':
            b.model_name = optarg;
            break;
        case 'k':
            b.backend_name = optarg;
            break;
        case 'b':
            b.batch = number;
            break;
        case 'p':
            b.patch = number;
            break;
        case 't':
            b.threads = (int)number;
            break;
        case 'r':
            b.repeats = (int)number;
            break;
        case 'o':
            b.per_op = true;
            break;
        case 'h':
            fputs(help, stdout);
            return COD_EXIT_OK;
        case 'd':
            while (cod_precision_names[precision] != NULL && strcmp(cod_precision_names[precision], optarg) != 0)
                precision++;
            if (cod_precision_names[precision] == NULL)
                return cod_cmd_usage("bench", "'%s' is no precision: auto, f32 or bf16", optarg);
            b.precision = (cod_precision)precision;
            break;
        default:
            return cod_cmd_usage("bench", "there is no option '%s', or its value is missing", argv[optind - 1]);
        }
    }
    if (b.batch < 1 || b.patch < 1 || b.threads < 1 || b.repeats < 1 || b.repeats > 101)
        return cod_cmd_usage("bench", "batch, patch, threads and repeats (at most 101) must be at least 1");
    const cod_status status = run(&b, argv + optind, argc - optind);
    const int code = status == COD_OK ? COD_EXIT_OK : cod_cmd_failed(status);
    clear(&b);
    return code;
}

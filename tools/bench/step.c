/* `codistill bench step`: where the time of a training step goes, op by op, and what its convolutions take alone. */
#include "tools/bench/bench.h"

#include "core/trace.h"
#include "cpu/bench.h"
#include "cpu/cpu.h"
#include "tools/arguments.h"
#include "tools/bench/ops.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill bench step [options] [model option=value ...]\n\n"
    "Times one training step (forward, backward, Adam) on random data, op by op.\n\n" COD_BENCH_STEP_HELP
    "  --repeats N\tnumber of steps timed, after 2 to warm up (7)\n"
    "  --device D\twhere to compute: auto, cpu or cuda; auto uses a GPU if there is one (auto)\n"
    "  --no-autotune\tuse fixed implementations instead of the fastest ones\n"
    "  --ops\tprint a row for each op, in addition to one for each kind\n"
    "  --json\tprint everything as one JSON object, each op included\n"
    "  --export DIR\tfirst write the weights and the batch to DIR as safetensors, for comparison with other programs\n"
    "  --serve\tprint no tables; run a step at once and then one for each line read, and answer each with a line of "
    "JSON\n"
    "Model options are those of a configuration's section model, such as blocks=16 channels=64 or hidden=256,256. "
    "Options of a recipe take the name of their section, such as gan.content=vgg22.\n\n"
    "Share of peak: for ops that multiply, the share of peak arithmetic (f32, or bf16 where activations are bf16); "
    "for the others, the share of peak memory bandwidth. Both peaks are measured here, with the same number of "
    "threads. An op can exceed 100 % if its data is still in a cache, or if it needs fewer multiplications than the "
    "definition of a convolution. The last line shows the step, the sum of its convolutions timed alone, each in "
    "oneDNN's best format, and their ratio.\n";

typedef struct step_options {
    cod_bench_training_options training;
    const char *export_folder;
    int repeats;
    bool each_op, json, serve;
} step_options;

typedef struct step_result {
    cod_bench_ops ops;
    cod_bench_peak peak;
    float loss;
    double first_step_s, peak_rss_mib;
    double convolutions_ms; /**< NAN = not measured, or there are none */
} step_result;

/** Since the process started, to 0.01 s; NAN where the system does not say. */
static double process_age_s(void)
{
    unsigned long long start_ticks = 0;
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "r");
    const size_t length = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    text[length] = '\0';
    const char *field = strrchr(text, ')'); /* the name before it may hold anything */
    if (field == NULL ||
        sscanf(field, ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &start_ticks) != 1)
        return NAN;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - (double)start_ticks / (double)sysconf(_SC_CLK_TCK);
}

static double peak_rss_mib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/** The step's convolutions alone, each in the formats that oneDNN likes best. */
static cod_status time_convolutions(const cod_bench_training *t, int repeats, double *ms)
{
    cod_op op;
    *ms = 0;
    for (size_t s = 0; s < t->step_count; s++)
        for (size_t i = 0; cod_program_op(t->steps[s].program, i, &op); i++) {
            double one = 0;
            if (op.kind == COD_OP_CONV2D || op.kind == COD_OP_CONV2D_BACKWARD_DATA ||
                op.kind == COD_OP_CONV2D_BACKWARD_WEIGHTS)
                COD_TRY(cod_cpu_bench_convolution(t->session.device, &op, repeats, &one));
            *ms += one;
        }
    *ms = *ms > 0 ? *ms : NAN;
    return COD_OK;
}

/** Memory and the first step come first: measuring the peaks takes memory of its own. */
static cod_status measure(const step_options *options, cod_bench_training *t, step_result *result)
{
    *result = (step_result){.convolutions_ms = NAN};
    COD_TRY(cod_bench_training_step(t));
    result->first_step_s = process_age_s();
    COD_TRY(cod_bench_training_loss(t, &result->loss));
    COD_TRY(cod_bench_ops_measure(t, options->repeats, &result->ops));
    result->peak_rss_mib = peak_rss_mib();
    COD_TRY(cod_bench_peak_measure(t, &result->peak));
    cod_bench_ops_compare(&result->ops, &result->peak);
    return t->session.backend == &cod_cpu_backend ? time_convolutions(t, options->repeats, &result->convolutions_ms)
                                                  : COD_OK;
}

static void print_result(const step_options *options, cod_bench_training *t, const step_result *result)
{
    const cod_bench_training_options *o = &options->training;
    const cod_bench_peak *peak = &result->peak;
    const double step = result->ops.total.ms;
    const cod_shape batch = cod_executable_input(t->session.executable, "input").shape;
    printf("%s, %s, batch %lld of %lldx%lld, %s, %d thread%s, %zu parameters\n%s\n", t->session.recipe.kind->name,
           t->session.recipe.model.kind->name, (long long)batch.n, (long long)batch.h, (long long)batch.w,
           cod_dtype_name(t->session.activation), o->threads, o->threads == 1 ? "" : "s",
           t->session.weights.layout.trainable, t->session.backend->describe(t->session.device));
    if (peak->f32_gflops > 0)
        printf("peak, measured now: f32 %.1f GFLOP/s, memory %.1f GB/s", peak->f32_gflops, peak->memory_gbytes);
    if (peak->bf16_gflops > 0)
        printf(", bf16 %.1f GFLOP/s", peak->bf16_gflops);
    printf("\n");
    printf("\n");
    cod_bench_ops_print(&result->ops, options->each_op);
    printf("\nsteps %.1f ... %.1f ms; from the process's start to the first finished step %.2f s, its loss %.6f\n",
           result->ops.step_min_ms, result->ops.step_max_ms, result->first_step_s, (double)result->loss);
    printf("arena, inputs and outputs %.1f MiB, peak RSS %.1f MiB\n",
           (double)cod_executable_bytes(t->session.executable) / 1048576, result->peak_rss_mib);
    if (isnan(result->convolutions_ms))
        printf("step %.1f ms\n", step);
    else
        printf("step %.1f ms, convolutions alone %.1f ms, ratio %.2f\n", step, result->convolutions_ms,
               step / result->convolutions_ms);
}

static void peak_json(const char *key, double value, cod_json *json)
{
    cod_json_number(json, key, value > 0 ? value : NAN);
}

static cod_status print_json(const step_options *options, cod_bench_training *t, const step_result *result)
{
    cod_json json = {.indent = 1};
    char *text = NULL;
    cod_json_open(&json, NULL, '{');
    cod_json_string(&json, "version", cod_version);
    cod_json_string(&json, "device", t->session.backend->describe(t->session.device));
    cod_json_string(&json, "recipe", t->session.recipe.kind->name);
    cod_json_string(&json, "model", t->session.recipe.model.kind->name);
    cod_json_integer(&json, "parameters", (int64_t)t->session.weights.layout.trainable);
    cod_json_integer(&json, "batch", options->training.batch);
    cod_json_integer(&json, "patch", options->training.patch);
    cod_json_string(&json, "precision", cod_dtype_name(t->session.activation));
    cod_json_integer(&json, "threads", options->training.threads);
    cod_json_open(&json, "peak", '{');
    peak_json("f32_gflops", result->peak.f32_gflops, &json);
    peak_json("bf16_gflops", result->peak.bf16_gflops, &json);
    peak_json("memory_gbytes", result->peak.memory_gbytes, &json);
    cod_json_close(&json);
    cod_json_number(&json, "step_ms", result->ops.total.ms);
    cod_json_number(&json, "step_min_ms", result->ops.step_min_ms);
    cod_json_number(&json, "step_max_ms", result->ops.step_max_ms);
    cod_json_number(&json, "of_peak", result->ops.total.floor_ms / result->ops.total.ms);
    cod_json_number(&json, "convolutions_ms", result->convolutions_ms);
    cod_json_number(&json, "first_step_s", result->first_step_s);
    cod_json_number(&json, "loss", (double)result->loss);
    cod_json_number(&json, "arena_mib", (double)cod_executable_bytes(t->session.executable) / 1048576);
    cod_json_number(&json, "peak_rss_mib", result->peak_rss_mib);
    cod_bench_ops_json(&result->ops, &json);
    cod_json_close(&json);
    COD_TRY(cod_json_end(&json, &text));
    puts(text);
    free(text);
    return COD_OK;
}

/** {"content": 0.5, …}: the losses of all sub-steps before their last updates. */
static cod_status print_losses(const cod_bench_training *t)
{
    const cod_recipe *recipe = &t->session.recipe;
    const char *comma = "";
    printf("{");
    for (size_t i = 0; i < recipe->step_count; i++) {
        const cod_sub_step *step = &recipe->steps[i];
        for (size_t k = 0; k < COD_PROGRAM_MAX_LOSSES && step->losses[k] != NULL; k++) {
            float value;
            COD_TRY(cod_executable_loss(t->session.executable, step->program.losses[k], &value));
            printf("%s\"%s\": %.9g", comma, step->losses[k], (double)value);
            comma = ", ";
        }
    }
    printf("}");
    return COD_OK;
}

static cod_status serve(cod_bench_training *t)
{
    char line[64];
    do {
        float loss;
        const double begin = cod_clock_s();
        COD_TRY(cod_bench_training_step(t));
        const double ms = 1e3 * (cod_clock_s() - begin);
        COD_TRY(cod_bench_training_loss(t, &loss));
        printf("{\"ms\": %.4f, \"loss\": %.9g, \"precision\": \"%s\", \"losses\": ", ms, (double)loss,
               cod_dtype_name(t->session.activation));
        COD_TRY(print_losses(t));
        printf("}\n");
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) != NULL);
    return COD_OK;
}

static cod_status measure_and_print(const step_options *options, cod_bench_training *training)
{
    step_result result = {0};
    cod_status status = measure(options, training, &result);
    if (options->json)
        COD_THEN(status, print_json(options, training, &result));
    else if (status == COD_OK)
        print_result(options, training, &result);
    cod_bench_ops_clear(&result.ops);
    return status;
}

static cod_status run(const step_options *options)
{
    cod_bench_training training;
    cod_status status = cod_bench_training_open(&options->training, &training);
    if (options->export_folder != NULL)
        COD_THEN(status, cod_bench_training_export(&training, options->export_folder));
    COD_THEN(status, options->serve ? serve(&training) : measure_and_print(options, &training));
    cod_bench_training_close(&training);
    return status;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, step_options *options)
{
    cod_bench_training_options *training = &options->training;
    cod_bench_numbers numbers = {0};
    const char *precision = "auto";
    const cod_argument own[] = {COD_BENCH_STEP_ARGUMENTS(training, &numbers, &precision),
                                {.name = "repeats", .text = &numbers.repeats},
                                {.name = "device", .text = &training->device, .choices = cod_device_names},
                                {.name = "backend", .text = &training->backend, .words = COD_WORDS_BACKENDS},
                                {.name = "no-autotune", .flag = &training->no_autotune},
                                {.name = "ops", .flag = &options->each_op},
                                {.name = "json", .flag = &options->json},
                                {.name = "export", .text = &options->export_folder, .words = COD_WORDS_FILES},
                                {.name = "serve", .flag = &options->serve}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    code = code < 0 ? cod_bench_device_check(argv[0], training) : code;
    code = code < 0 ? cod_bench_numbers_read(argv[0], &numbers, training, &options->repeats) : code;
    return code < 0 ? cod_bench_precision_read(argv[0], precision, &training->precision) : code;
}

int cod_bench_step(int argc, char **argv)
{
    step_options options = {.training = {.model = "srresnet", .device = "auto", .backend = COD_BACKEND_AUTO}};
    const int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    options.training.settings = argv + optind;
    options.training.setting_count = argc - optind;
    return cod_cmd_end(run(&options));
}

/* `codistill bench copy`: whether data should reach a device by copies from pinned memory, or in another way. */
#include "tools/bench/copy.h"

#include "core/queue.h"
#include "io/json.h"
#include "tools/arguments.h"
#include "tools/bench/bench.h"
#include "tools/bench/ops.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: codistill bench copy [options] [model option=value ...]\n\n"
    "Compares ways to move data to a device with memory of its own, such as a GPU.\n\n"
    "  --device D\tauto or cuda (cuda)\n"
    "  --model NAME\tarchitecture whose training steps use the data (srresnet)\n"
    "  --batch N\tpictures in a step (16)\n"
    "  --patch N\tside of the low-resolution crop, or of a classifier's pictures, in pixels (24)\n"
    "  --mib N\tlargest transfer in MiB (64)\n"
    "  --repeats N\tnumber of rounds timed, after one to warm up (7)\n"
    "  --json\tprint everything as one JSON object\n"
    "Model options are those of a configuration's section model, such as blocks=16 channels=64.\n\n"
    "Ways: pageable copies from ordinary memory while the host waits. The others are those of data.transfer: pinned "
    "copies while the device computes; with mapped, the device reads the host's memory; with uint8, a quarter of the "
    "bytes is copied and the device converts them.\n"
    "Each way is timed alone first, in GB of f32 values that arrive in a second; then with training steps, 20 in a "
    "round, whose mini-batch arrives that way, compared with steps whose mini-batch stays on the device: how much "
    "longer a step takes, and which share of the transfer's own time computing hides. All figures are medians of the "
    "rounds.\n";

typedef struct copy_options {
    cod_bench_training_options training;
    size_t largest_bytes;
    int repeats;
    bool json;
} copy_options;

/** A number of a table, or a dash. */
static void print_cell(int digits, double value)
{
    if (isnan(value))
        printf(" %12s", "-");
    else
        printf(" %12.*f", digits, value);
}

static void print_speeds(const cod_copy_speeds *speeds)
{
    printf("\n%-12s", "GB/s");
    for (int way = 0; way < COD_COPY_WAYS; way++)
        printf(" %12s", cod_copy_way_names[way]);
    printf("\n");
    for (size_t i = 0; i < speeds->count; i++) {
        printf("%8.2f MiB", (double)speeds->bytes[i] / 1048576);
        for (int way = 0; way < COD_COPY_WAYS; way++)
            print_cell(2, speeds->gb_per_s[i][way]);
        printf("\n");
    }
}

static void print_steps(const cod_bench_training *t, const cod_copy_steps *steps)
{
    const cod_shape batch = t->session.input.shape;
    printf("\n%s, batch %lld of %lldx%lld, %s: %.2f MB a step in f32; a step without any transfer takes %.3f ms\n\n",
           t->session.recipe.model.kind->name, (long long)batch.n, (long long)batch.h, (long long)batch.w,
           cod_dtype_name(t->session.activation), 1e-6 * (double)steps->batch_bytes, steps->unfed_ms);
    printf("%-12s %12s %12s %12s %12s\n", "", "transfer ms", "step ms", "longer by %", "hidden %");
    for (cod_copy_way way = 0; way < COD_COPY_WAYS; way++) {
        printf("%-12s", cod_copy_way_names[way]);
        print_cell(3, steps->transfer_ms[way]);
        print_cell(3, steps->step_ms[way]);
        print_cell(1, 100 * (steps->step_ms[way] / steps->unfed_ms - 1));
        print_cell(0, 100 * cod_copy_hidden(steps, way));
        printf("\n");
    }
}

/** Numbers that are not there become null. */
static cod_status print_json(const cod_bench_training *t, const cod_copy_speeds *speeds, const cod_copy_steps *steps)
{
    cod_json json;
    char *text;
    cod_json_open(&json, NULL, '{');
    cod_json_string(&json, "device", t->session.backend->describe(t->session.device));
    cod_json_open(&json, "transfers", '[');
    for (size_t i = 0; i < speeds->count; i++) {
        cod_json_open(&json, NULL, '{');
        cod_json_integer(&json, "bytes", (int64_t)speeds->bytes[i]);
        for (int way = 0; way < COD_COPY_WAYS; way++)
            cod_json_number(&json, cod_copy_way_names[way], speeds->gb_per_s[i][way]);
        cod_json_close(&json);
    }
    cod_json_close(&json);
    cod_json_integer(&json, "batch_bytes", (int64_t)steps->batch_bytes);
    cod_json_number(&json, "unfed_step_ms", steps->unfed_ms);
    cod_json_open(&json, "steps", '{');
    for (cod_copy_way way = 0; way < COD_COPY_WAYS; way++) {
        cod_json_open(&json, cod_copy_way_names[way], '{');
        cod_json_number(&json, "transfer_ms", steps->transfer_ms[way]);
        cod_json_number(&json, "step_ms", steps->step_ms[way]);
        cod_json_number(&json, "hidden", cod_copy_hidden(steps, way));
        cod_json_close(&json);
    }
    cod_json_close(&json);
    cod_json_close(&json);
    COD_TRY(cod_json_end(&json, &text));
    printf("%s\n", text);
    free(text);
    return COD_OK;
}

/** Without a device there is nothing to compare. NULL = not known yet. */
static cod_status check_backend(const cod_backend *backend)
{
    COD_REQUIRE(backend == NULL || !cod_backend_runs_at_once(backend),
                "'%s' computes in the host's memory, where nothing has to be copied; a GPU is wanted: --device cuda",
                backend->name);
    return COD_OK;
}

/** What the arguments alone say. */
static const cod_backend *named_backend(const cod_bench_training_options *options)
{
    const bool named = strcmp(options->backend, COD_BACKEND_AUTO) != 0;
    return cod_backend_find(named ? options->backend : options->device);
}

static cod_status run(const copy_options *options)
{
    cod_bench_training training = {0};
    cod_copy_speeds speeds;
    cod_copy_steps steps;
    COD_TRY(check_backend(named_backend(&options->training)));
    cod_status status = cod_bench_training_open(&options->training, &training);
    const cod_train_session *session = &training.session;
    COD_THEN(status, check_backend(session->backend));
    COD_THEN(status, cod_copy_measure_speeds(session->backend, session->device, options->largest_bytes,
                                             options->repeats, &speeds));
    COD_THEN(status, cod_copy_measure_steps(&training, options->repeats, &steps));
    if (options->json) {
        COD_THEN(status, print_json(&training, &speeds, &steps));
    } else if (status == COD_OK) {
        printf("%s\n", session->backend->describe(session->device));
        print_speeds(&speeds);
        print_steps(&training, &steps);
    }
    cod_bench_training_close(&training);
    return status;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, copy_options *options)
{
    enum { MAX_MIB = 4096, MIB = 1 << 20 };
    cod_bench_training_options *training = &options->training;
    cod_bench_numbers numbers = {0};
    const char *mib_text = NULL;
    long mib = 64;
    const cod_argument own[] = {{.name = "device", .text = &training->device, .choices = cod_device_names},
                                {.name = "backend", .text = &training->backend, .words = COD_WORDS_BACKENDS},
                                {.name = "model", .text = &training->model, .words = COD_WORDS_KINDS},
                                {.name = "batch", .text = &numbers.batch},
                                {.name = "patch", .text = &numbers.patch},
                                {.name = "mib", .text = &mib_text},
                                {.name = "repeats", .text = &numbers.repeats},
                                {.name = "json", .flag = &options->json}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    code = code < 0 ? cod_bench_device_check(argv[0], training) : code;
    code = code < 0 ? cod_bench_numbers_read(argv[0], &numbers, training, &options->repeats) : code;
    code = code < 0 ? cod_argument_number(argv[0], "mib", mib_text, 1, MAX_MIB, &mib) : code;
    options->largest_bytes = (size_t)mib * MIB;
    return code;
}

int cod_bench_copy(int argc, char **argv)
{
    copy_options options = {.training = {.model = "srresnet", .device = "cuda", .backend = COD_BACKEND_AUTO}};
    const int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    options.training.settings = argv + optind;
    options.training.setting_count = argc - optind;
    return cod_cmd_end(run(&options));
}

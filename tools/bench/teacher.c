/* `codistill bench teacher`: what a teacher of each precision adds to a training step, and what changing it takes. */
#include "tools/bench/bench.h"

#include "core/branch.h"
#include "core/queue.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "distill/teacher.h"
#include "tools/arguments.h"
#include "tools/bench/ops.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "usage: codistill bench teacher [options] [model option=value ...]\n\n"
    "Times training steps on random data, in turn without and with a teacher of the same architecture.\n\n"
    "  --model NAME\tarchitecture (srresnet)\n"
    "  --batch N\tpictures in a step (16)\n"
    "  --patch N\tside of the low-resolution crop in pixels (24)\n"
    "  --batch-fraction F\tshare of the batch that the teacher predicts, as in distill.batch_fraction (1)\n"
    "  --threads N\tnumber of threads (1)\n"
    "  --repeats N\tnumber of rounds timed, after one to warm up (7)\n"
    "  --device D\twhere to compute: auto, cpu or cuda; auto uses a GPU if there is one (auto)\n"
    "  --no-autotune\tuse fixed implementations instead of the fastest ones\n"
    "Model options are those of a configuration's section model, such as blocks=16 channels=64.\n\n"
    "Prints a row for each precision of the teacher that the processor has; the student's is `auto`. All times are "
    "medians: the teacher's forward pass alone; a step with distill.every 1, 2 and 4 (averaged over as many steps), "
    "and the share that the teacher adds; and a switch, which is what the first run of new weights takes beyond the "
    "others.\n";

enum { PRECISIONS = 3, PERIODS = 3, STEPS = 4 };
static const int periods[PERIODS] = {1, 2, 4}; /* of distill.every */

typedef struct teacher_options {
    cod_bench_training_options training;
    double fraction;
    int repeats;
} teacher_options;

typedef struct row {
    cod_teacher *teacher; /**< NULL = the processor does not have it */
    double forward_ms[COD_BENCH_MAX_REPEATS], switch_ms[COD_BENCH_MAX_REPEATS];
    double step_ms[PERIODS][COD_BENCH_MAX_REPEATS];
} row;

typedef struct bench {
    cod_bench_training training;
    cod_buffer checkpoint; /**< the initial weights, of the host */
    cod_branch branch;     /**< of teachers, beside the student's forward pass */
    row rows[PRECISIONS];
    double plain_ms[COD_BENCH_MAX_REPEATS];
} bench;

static const cod_precision precisions[PRECISIONS] = {COD_PRECISION_F32, COD_PRECISION_BF16, COD_PRECISION_INT8};

static cod_status make_teachers(bench *b, const teacher_options *options)
{
    cod_bench_training *t = &b->training;
    const cod_train_session *session = &t->session;
    b->checkpoint.bytes = cod_weights_count(&session->weights) * sizeof(float);
    b->checkpoint.host = malloc(b->checkpoint.bytes);
    COD_REQUIRE_MEMORY(b->checkpoint.host);
    COD_TRY(cod_weights_download(&session->weights, b->checkpoint.host));
    COD_TRY(cod_branch_init(&b->branch, session->backend, session->device));
    for (int p = 0; p < PRECISIONS; p++) {
        const cod_dtype needed = precisions[p] == COD_PRECISION_INT8   ? COD_S8
                                 : precisions[p] == COD_PRECISION_BF16 ? COD_BF16
                                                                       : COD_F32;
        const cod_teacher_spec spec = {.peer = &t->config.whole,
                                       .target = "teacher",
                                       .queue = b->branch.queue,
                                       .pictures = options->training.taught,
                                       .precision = precisions[p]};
        if (session->backend->supports(session->device, needed))
            COD_TRY(cod_teacher_create(session, &spec, &b->rows[p].teacher));
    }
    return COD_OK;
}

/** @param[out] predicted  reached when the student may read it */
static cod_status predict(bench *b, cod_teacher *teacher, cod_event **predicted)
{
    COD_TRY(cod_branch_fork(&b->branch));
    COD_TRY(cod_teacher_run(teacher, 0));
    COD_TRY(cod_teacher_give(teacher, 1));
    return cod_branch_join(&b->branch, predicted);
}

/** Predicts, and waits for it. */
static cod_status predict_alone(bench *b, cod_teacher *teacher)
{
    cod_event *predicted;
    COD_TRY(predict(b, teacher, &predicted));
    return cod_event_wait(b->training.session.backend, predicted);
}

/** One step, taught where there is a teacher. */
static cod_status step(bench *b, cod_teacher *teacher)
{
    cod_bench_training *t = &b->training;
    cod_event *predicted;
    if (teacher == NULL)
        return cod_bench_training_step(t);
    COD_TRY(predict(b, teacher, &predicted));
    cod_program_await(t->distil, predicted);
    COD_TRY(cod_program_run(t->distil, NULL, NULL));
    COD_TRY(cod_bench_training_update(t, 0));
    return cod_bench_training_finish(t);
}

/**
 * As many steps in each case, so that what a busy machine takes away falls on all alike.
 *
 * @param[out] ms  of one, in the mean
 */
static cod_status time_steps(bench *b, cod_teacher *teacher, int period, double *ms)
{
    const double begin = cod_clock_s();
    for (int i = 0; i < STEPS; i++)
        COD_TRY(step(b, i % period == 0 ? teacher : NULL));
    *ms = 1e3 * (cod_clock_s() - begin) / STEPS;
    return COD_OK;
}

static cod_status time_teacher(bench *b, row *r, int round)
{
    const double begin = cod_clock_s(); /* after a step, which was waited for */
    COD_TRY(cod_teacher_load(r->teacher, &b->checkpoint, 0));
    COD_TRY(predict_alone(b, r->teacher));
    COD_TRY(predict_alone(b, r->teacher));
    const double loaded = cod_clock_s();
    COD_TRY(predict_alone(b, r->teacher));
    r->forward_ms[round] = 1e3 * (cod_clock_s() - loaded);
    r->switch_ms[round] = 1e3 * (loaded - begin) - 2 * r->forward_ms[round];
    for (int i = 0; i < PERIODS; i++)
        COD_TRY(time_steps(b, r->teacher, periods[i], &r->step_ms[i][round]));
    return COD_OK;
}

static cod_status measure(bench *b, int repeats)
{
    for (int i = -1; i < repeats; i++) {
        const int round = i < 0 ? 0 : i;
        COD_TRY(time_steps(b, NULL, 1, &b->plain_ms[round]));
        for (int p = 0; p < PRECISIONS; p++)
            if (b->rows[p].teacher != NULL)
                COD_TRY(time_teacher(b, &b->rows[p], round));
    }
    return COD_OK;
}

static void print(bench *b, const teacher_options *options)
{
    const cod_bench_training_options *o = &options->training;
    const cod_bench_training *t = &b->training;
    const size_t rounds = (size_t)options->repeats;
    const double plain = cod_median(b->plain_ms, rounds); /* sorts */
    printf("%s, batch %lld of %lldx%lld, %s, %d thread%s; a teacher predicts %lld picture%s\n%s\n\n",
           t->session.recipe.model.kind->name, (long long)o->batch, (long long)o->patch, (long long)o->patch,
           cod_dtype_name(t->session.activation), o->threads, o->threads == 1 ? "" : "s", (long long)o->taught,
           o->taught == 1 ? "" : "s", t->session.backend->describe(t->session.device));
    printf("step without a teacher %.1f ms (%.1f ... %.1f)\n\n", plain, b->plain_ms[0], b->plain_ms[rounds - 1]);
    printf("%-8s %10s", "teacher", "forward ms");
    for (int i = 0; i < PERIODS; i++)
        printf("      every %d: step ms", periods[i]);
    printf(" %10s\n", "switch ms");
    for (int p = 0; p < PRECISIONS; p++) {
        row *r = &b->rows[p];
        if (r->teacher == NULL)
            continue;
        printf("%-8s %10.1f", cod_precision_names_with_int8[precisions[p]], cod_median(r->forward_ms, rounds));
        for (int i = 0; i < PERIODS; i++) {
            const double ms = cod_median(r->step_ms[i], rounds);
            printf("  %12.1f %+6.1f %%", ms, 100 * (ms / plain - 1));
        }
        printf(" %10.1f\n", cod_median(r->switch_ms, rounds));
    }
}

static cod_status run(const teacher_options *options)
{
    bench *b = calloc(1, sizeof *b);
    COD_REQUIRE_MEMORY(b);
    cod_status status = cod_bench_training_open(&options->training, &b->training);
    COD_THEN(status, make_teachers(b, options));
    COD_THEN(status, measure(b, options->repeats));
    if (status == COD_OK)
        print(b, options);
    for (int p = 0; p < PRECISIONS; p++)
        cod_teacher_destroy(b->rows[p].teacher);
    cod_branch_clear(&b->branch);
    cod_bench_training_close(&b->training);
    free(b->checkpoint.host);
    free(b);
    return status;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, teacher_options *options)
{
    cod_bench_training_options *training = &options->training;
    cod_bench_numbers numbers = {0};
    const char *fraction = NULL;
    const cod_argument own[] = {{.name = "model", .text = &training->model, .words = COD_WORDS_KINDS},
                                {.name = "batch", .text = &numbers.batch},
                                {.name = "patch", .text = &numbers.patch},
                                {.name = "batch-fraction", .text = &fraction},
                                {.name = "threads", .text = &numbers.threads},
                                {.name = "repeats", .text = &numbers.repeats},
                                {.name = "device", .text = &training->device, .choices = cod_device_names},
                                {.name = "backend", .text = &training->backend, .words = COD_WORDS_BACKENDS},
                                {.name = "no-autotune", .flag = &training->no_autotune}};
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    code = code < 0 ? cod_bench_device_check(argv[0], training) : code;
    code = code < 0 ? cod_bench_numbers_read(argv[0], &numbers, training, &options->repeats) : code;
    char *end = NULL;
    options->fraction = fraction != NULL ? strtod(fraction, &end) : 1;
    if (code < 0 && fraction != NULL &&
        (end == fraction || *end != '\0' || !(options->fraction > 0 && options->fraction <= 1)))
        code = cod_cmd_usage(argv[0], "--batch-fraction: '%s' is not a number above 0 and up to 1", fraction);
    training->taught = (int64_t)ceil(options->fraction * (double)training->batch);
    return code;
}

int cod_bench_teacher(int argc, char **argv)
{
    teacher_options options = {.training = {.model = "srresnet", .device = "auto", .backend = COD_BACKEND_AUTO}};
    const int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    options.training.settings = argv + optind;
    options.training.setting_count = argc - optind;
    return cod_cmd_end(run(&options));
}

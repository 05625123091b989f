#include "tools/cmd.h"

#include "comm/comm.h"
#include "core/log.h"
#include "io/file.h"
#include "tools/launch.h"
#include "train/train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill train CONFIG.yaml [key.path=value ...] [--resume]\n\n"
    "Trains as the configuration says. Started plainly, it starts as many ranks as cluster.groups and\n"
    "cluster.ranks_per_group ask for, by mpirun; under mpirun or srun it joins their job.\n\n"
    "  key.path=value  overrides an option, such as train.steps=2000 (`codistill config` lists them all)\n"
    "  --resume        fail if there is no checkpoint to go on from (without it: go on if there is one)\n\n"
    "The run's folder, OUTPUT/NAME, receives config.yaml, metrics.GROUP.jsonl, tensorboard/, checkpoints/,\n"
    "samples/, group.GROUP.safetensors, final.safetensors and summary.json.\n"
    "SIGINT, SIGTERM and SIGUSR1 save and end; the same command goes on from there.\n"
    "To a mpirun of your own send SIGUSR1: SIGTERM and SIGINT make it kill its ranks after one second.\n";

static volatile int stop_signal;

static void ask_to_stop(int signal)
{
    stop_signal = signal;
}

/** Where a group's progress lines go beside the terminal. */
typedef struct progress_log {
    const char *folder;
    cod_file_log *file;
} progress_log;

static void log_to_file(progress_log *log, int group, const char *line)
{
    char path[4096];
    if (log->folder == NULL)
        return;
    snprintf(path, sizeof path, "%s/log.%d.txt", log->folder, group);
    if ((log->file == NULL && cod_file_log_open(path, &log->file) != COD_OK) ||
        cod_file_log_line(log->file, line) != COD_OK) {
        cod_log_warn("no more lines go to the log file: %s", cod_error_message());
        log->folder = NULL;
    }
}

static void print_progress(void *context, const cod_train_progress *progress)
{
    const cod_metrics_line *line = progress->line;
    char text[512];
    int used = snprintf(text, sizeof text, "group %d  step %lld/%lld  loss %.5f", progress->group,
                        (long long)line->step, (long long)progress->steps, line->task_loss);
#define ADD(...) used += snprintf(text + used, used < (int)sizeof text ? sizeof text - (size_t)used : 0, __VA_ARGS__)
    if (!isnan(line->psnr_y))
        ADD("  psnr %.2f dB", line->psnr_y);
    ADD("  %.0f ms  %.0f images/s", line->step_ms, line->images_per_s);
    if (line->strategy.teacher_step >= 0)
        ADD("  teacher of step %lld (%lld old, weight %.2g)", (long long)line->strategy.teacher_step,
            (long long)line->strategy.staleness_steps, line->strategy.distill_weight);
    const long eta = (long)(progress->eta_s + 0.5);
    ADD("  left %ld:%02ld:%02ld", eta / 3600, eta / 60 % 60, eta % 60);
#undef ADD
    fprintf(stderr, "%s\n", text);
    log_to_file(context, progress->group, text);
}

typedef struct train_arguments {
    const char *path;
    const char **overrides;
    size_t count;
} train_arguments;

/** Loads the configuration on every rank; the lowest rank that fails says why. */
static cod_status load_agreed(cod_comm *comm, const train_arguments *arguments, cod_run_config *config)
{
    const cod_status status = cod_run_config_load(arguments->path, arguments->overrides, arguments->count, config);
    return cod_group_agree(cod_comm_world(comm), status, NULL);
}

/**
 * Before a rank speaks and aborts the job: time for the one that knows why, and of several for the lowest, whose abort
 * silences the others.
 */
static void let_others_speak(const cod_comm *comm, cod_status status)
{
    enum { STAGGER_MS = 250, LONGEST_MS = 3000 };
    const int rank = cod_comm_rank(comm), ms = rank < LONGEST_MS / STAGGER_MS ? rank * STAGGER_MS : LONGEST_MS;
    usleep(1000u * (useconds_t)(status == COD_ERR_PEER ? LONGEST_MS : ms));
}

/** Says why, once: every rank that failed by itself speaks, but of equal failures only the first rank. */
static int fail_job(cod_comm *comm, cod_status status, bool agreed)
{
    const int rank = cod_comm_rank(comm);
    int code = status == COD_ERR_ARGUMENT ? COD_EXIT_USAGE : COD_EXIT_FAILED;
    if (agreed ? rank == 0 : status != COD_ERR_PEER)
        code = cod_cmd_failed(status);
    if (rank == 0)
        cod_launch_leave_exit_code(code);
    return code;
}

static int train_joined(const train_arguments *arguments)
{
    cod_comm *comm = NULL;
    cod_run_config config;
    cod_status status = cod_comm_init(NULL, &comm);
    if (status != COD_OK)
        return cod_cmd_failed(status);
    status = load_agreed(comm, arguments, &config);
    if (status != COD_OK) {
        const int code = fail_job(comm, status, true);
        return cod_comm_finalize(comm) == COD_OK ? code : COD_EXIT_FAILED;
    }
    cod_comm_configure(comm, &config.cluster);
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < 3; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = ask_to_stop, .sa_flags = SA_RESTART}, NULL);
    progress_log log = {.folder = cod_run_config_folder(&config)};
    const cod_train_request request = {.config = &config,
                                       .comm = comm,
                                       .report = print_progress,
                                       .report_context = &log,
                                       .stop_signal = &stop_signal,
                                       .version = cod_version};
    cod_train_ending ending = COD_TRAIN_FINISHED;
    status = cod_train_run(&request, &ending);
    cod_file_log_close(log.file);
    if (status != COD_OK) {
        let_others_speak(comm, status);
        cod_comm_abort(fail_job(comm, status, false));
    }
    if (cod_comm_rank(comm) == 0)
        cod_launch_leave_exit_code(COD_EXIT_OK);
    status = cod_comm_finalize(comm);
    if (status != COD_OK)
        cod_comm_abort(cod_cmd_failed(status));
    cod_run_config_clear(&config);
    return COD_EXIT_OK;
}

static int train_parsed(int argc, char **argv, const train_arguments *arguments)
{
    if (cod_comm_launched_ranks() > 0)
        return train_joined(arguments);
    cod_run_config config;
    const cod_status status = cod_run_config_load(arguments->path, arguments->overrides, arguments->count, &config);
    if (status != COD_OK)
        return cod_cmd_failed(status);
    const int ranks = cod_run_config_ranks(&config);
    cod_run_config_clear(&config);
    return ranks == 1 ? train_joined(arguments) : cod_launch(ranks > 0 ? ranks : 1, argc, argv);
}

int cod_cmd_train(int argc, char **argv)
{
    const char **overrides = calloc((size_t)argc + 1, sizeof *overrides);
    train_arguments arguments = {.overrides = overrides};
    int code = -1;
    if (overrides == NULL)
        return COD_EXIT_FAILED;
    for (int i = 1; i < argc && code < 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            code = COD_EXIT_OK;
        } else if (strcmp(argv[i], "--resume") == 0) {
            overrides[arguments.count++] = "checkpoint.resume=must";
        } else if (argv[i][0] == '-') {
            code = cod_cmd_usage(argv[0], "there is no option '%s'", argv[i]);
        } else if (strchr(argv[i], '=') != NULL) {
            overrides[arguments.count++] = argv[i];
        } else if (arguments.path == NULL) {
            arguments.path = argv[i];
        } else {
            code = cod_cmd_usage(argv[0], "'%s' is neither an option nor key=value; the configuration is '%s' already",
                                 argv[i], arguments.path);
        }
    }
    if (code < 0)
        code = arguments.path == NULL ? cod_cmd_usage(argv[0], "a configuration file is missing")
                                      : train_parsed(argc, argv, &arguments);
    free(overrides);
    return code;
}

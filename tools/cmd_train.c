#include "tools/cmd.h"

#include "comm/comm.h"
#include "core/duration.h"
#include "core/log.h"
#include "core/shown.h"
#include "report/report.h"
#include "tools/arguments.h"
#include "tools/display.h"
#include "tools/launch.h"
#include "tools/launcher.h"
#include "tools/run_log.h"
#include "tools/stop.h"
#include "train/train.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill train CONFIG.yaml [key.path=value ...] [--resume] [--group K]\n\n"
    "Trains what the configuration describes. Called by itself, the command starts all ranks that the "
    "configuration asks for (cluster.groups, cluster.ranks_per_group) with mpirun. Called by mpirun or srun, it is "
    "a rank of that job.\n\n"
    "  key.path=value\tsets an option, such as train.steps=2000 (`codistill config` lists all options)\n"
    "  --resume\tfail if there is no checkpoint to resume from. Without --resume, the run resumes from the newest "
    "checkpoint if there is one and starts anew otherwise\n"
    "  --group K\ttrain only group K. Start the other groups with the same command, each as a separate job that "
    "can start, die and resume alone. This needs exchange.transport=file and one run folder that all jobs can "
    "read; the last group to finish writes final.safetensors and summary.json\n\n"
    "The run's folder, OUTPUT/NAME, contains config.yaml, log.GROUP.txt, metrics.GROUP.jsonl, exchange.GROUP.jsonl, "
    "tensorboard/, checkpoints/, samples/, group.GROUP.safetensors, final.safetensors and summary.json. Recipes with "
    "a discriminator also write discriminator.GROUP.safetensors.\n"
    "Exit codes: 0 the run is finished, now or before; 1 it failed; 2 wrong usage or configuration; 75 it was saved "
    "and stopped before its end: the same command resumes it. Before its first step nothing is saved: that is a 1.\n"
    "On SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU or SIGXFSZ, and when train.max_time is over, the run "
    "saves a checkpoint and stops. A job of which a rank does not answer is killed within ten seconds; a second SIGINT "
    "or "
    "SIGTERM, a second later, kills a job at once. If nobody reads standard error any more, training goes on. The "
    "command leaves a finished run as it is. If you started mpirun yourself, send SIGUSR1 to it: on SIGTERM and "
    "SIGINT, mpirun kills its ranks after one second.\n";

/** Of this rank: its group's log, and what the terminal goes on showing. */
typedef struct progress_log {
    cod_run_log log;
    const cod_run_config *config;
    const cod_comm *comm;
    const char *command; /**< as it was typed */
    int groups;          /**< 0 = not known yet */
    bool begun;
    int64_t step;         /**< last seen; 0 = none */
    double loss, quality; /**< last seen; quality by the task's first figure */
} progress_log;

/** The log's sink while a rank trains. */
static void log_line(void *context, cod_log_level level, const char *line)
{
    progress_log *log = context;
    char text[8256];
    cod_cmd_log(NULL, level, line);
    snprintf(text, sizeof text, "%s%s", cod_cmd_log_mark(level), line);
    cod_run_log_line(&log->log, text);
}

static void follow(void *context, cod_train_stage stage, const cod_train_place *place)
{
    progress_log *log = context;
    char text[8256];
    if (stage == COD_TRAIN_BEGINS) {
        log->begun = true;
        cod_run_log_begin(&log->log);
        return;
    }
    log->groups = place->groups;
    cod_run_log_open(&log->log, cod_run_config_folder(log->config), place->group, place->leads);
    const int rank = cod_comm_rank(log->comm);
    snprintf(text, sizeof text, "started: codistill %s on %s, process %ld, rank %d of %d: %s", cod_version,
             cod_comm_node_name(log->comm, cod_comm_node_of(log->comm, rank)), (long)getpid(), rank,
             cod_comm_size(log->comm), log->command);
    cod_run_log_line(&log->log, text);
}

/** In the logs of all groups: why the job ends. What only refuses the command says nothing of the run. */
static void log_failure(progress_log *log, cod_status status)
{
    char text[8256];
    if (log->groups == 0 || (status == COD_ERR_ARGUMENT && !log->begun))
        return;
    snprintf(text, sizeof text, "failed: %s", cod_error_message());
    cod_run_log_end(&log->log, log->config, log->groups, text);
}

static void format_progress(const cod_train_progress *progress, double loss, double quality, char *text, size_t bytes)
{
    const cod_metrics_line *line = progress->line;
    size_t used = 0;
#define ADD(...) used += (size_t)snprintf(text + used, used < bytes ? bytes - used : 0, __VA_ARGS__)
    ADD("group %d  step %lld/%lld", progress->group, (long long)line->step, (long long)progress->steps);
    ADD("  left %s", cod_duration(progress->eta_s).text); /* early in the line, so that narrow terminals show it */
    if (!isnan(loss))
        ADD("  loss %.5f", loss);
    const cod_task_figure *figure = &line->task->figures[0];
    if (!isnan(quality))
        ADD("  %s %.*f%s%s", figure->label, figure->digits, quality, cod_task_figure_gap(figure), figure->unit);
    if (!isnan(line->step_ms))
        ADD("  %.*f ms  %.0f images/s", line->step_ms < 10, line->step_ms, line->images_per_s);
    const long long age = line->strategy.staleness_steps;
    if (line->strategy.teacher_step >= 0)
        ADD("  teacher %lld step%s %s, weight %.2g", llabs(age), llabs(age) == 1 ? "" : "s", age < 0 ? "ahead" : "old",
            line->strategy.distill_weight);
    if (line->strategy.pushes > 0)
        ADD("  pushes %llu, in the mean %.1f updates old", (unsigned long long)line->strategy.pushes,
            (double)line->strategy.push_staleness / (double)line->strategy.pushes);
#undef ADD
}

/** A line for each line of metrics; on a terminal the group's one line instead, in between too. */
static void print_progress(void *context, const cod_train_progress *progress)
{
    progress_log *log = context;
    const cod_metrics_line *line = progress->line;
    char text[512];
    log->step = line->step;
    log->loss = isnan(line->task_loss) ? log->loss : line->task_loss;
    log->quality = isnan(line->quality.values[0]) ? log->quality : line->quality.values[0];
    if (!progress->between) {
        format_progress(progress, line->task_loss, line->quality.values[0], text, sizeof text);
        cod_run_log_line(&log->log, text);
        if (!cod_display_shows_groups())
            cod_display_line(text);
    }
    format_progress(progress, log->loss, log->quality, text, sizeof text);
    cod_display_group(progress->group, text);
}

/** What the command line says. */
typedef struct train_arguments {
    cod_config_arguments config;
    long group;         /**< -1 = all */
    char command[4096]; /**< as a shell takes it */
} train_arguments;

static cod_status load(const train_arguments *arguments, bool to_train, cod_run_config *config)
{
    const cod_config_arguments *from = &arguments->config;
    COD_TRY(to_train ? cod_run_config_load_to_train(from->path, from->overrides, from->count, config)
                     : cod_run_config_load(from->path, from->overrides, from->count, config));
    const cod_status status =
        arguments->group < 0 ? COD_OK : cod_run_config_choose_group(config, (int)arguments->group);
    if (status != COD_OK)
        cod_run_config_clear(config);
    return status;
}

/** Sleeps, but not once another rank has ended the job, which mpirun tells by SIGTERM. @return whether all is quiet */
static bool sleep_in_peace(int ms)
{
    enum { SLICE_MS = 10 };
    const int before = cod_stop_count(SIGTERM);
    for (; ms > 0 && cod_stop_count(SIGTERM) == before; ms -= SLICE_MS)
        usleep(1000u * SLICE_MS);
    return cod_stop_count(SIGTERM) == before;
}

/** Milliseconds that a rank leaves those below it to speak for all. */
static int stagger_ms(const cod_comm *comm)
{
    enum { STAGGER_MS = 250, LONGEST_MS = 3000 };
    const int rank = cod_comm_rank(comm);
    return rank < LONGEST_MS / STAGGER_MS ? rank * STAGGER_MS : LONGEST_MS;
}

/**
 * Says why and ends all ranks. Every rank that failed comes here; the first to speak silences the others, so that there
 * is one message: a rank with a reason of its own before those that only know that another failed, of equals the
 * lowest. Where ranks agreed on a failure, one of them is known to speak; the others do only if it did not get to it in
 * a long time.
 */
static _Noreturn void end_job(progress_log *log, cod_status status)
{
    enum { PEER_MS = 3000, AGREED_MS = 60000, KILL_MS = 5000 };
    const cod_comm *comm = log->comm;
    const int rank = cod_comm_rank(comm);
    const int patience = cod_error_said_elsewhere() ? AGREED_MS : status == COD_ERR_PEER ? PEER_MS : 0;
    int code = COD_EXIT_FAILED;
    if (sleep_in_peace(stagger_ms(comm) + patience)) {
        if (cod_comm_size(comm) > 1 && status != COD_ERR_ARGUMENT)
            status =
                cod_fail_prefix(status, "rank %d on %s", rank, cod_comm_node_name(comm, cod_comm_node_of(comm, rank)));
        cod_display_close();
        code = cod_cmd_failed(status);
        log_failure(log, status);
        if (rank == 0)
            cod_launch_tell_exit_code(code);
    } else {
        usleep(1000u * KILL_MS);
    }
    if (cod_comm_launched_ranks() == 0) /* alone: nobody to end, and MPI's abort would say its own word */
        _exit(code);
    cod_comm_abort(code);
}

/** Ends a job of which all is done and written, though not all ranks come to their end. */
static _Noreturn void end_finished_job(const cod_comm *comm)
{
    if (sleep_in_peace(stagger_ms(comm))) {
        cod_display_close();
        cod_log_warn("the run has finished, but not all of its ranks end: %s; the job ends without them",
                     cod_error_message());
        cod_launch_tell_over(COD_EXIT_OK);
    }
    cod_comm_abort(COD_EXIT_OK);
}

static void give_up(void *log, cod_status why)
{
    end_job(log, why);
}

/** Writes the page of a run that has finished; one that another job has yet to end has no summary. */
static void write_page(const char *folder)
{
    bool finished = false;
    if (cod_report_write_run(folder, 0, &finished) != COD_OK)
        cod_log_warn("the run's page is not written: %s", cod_error_message());
    else if (finished)
        cod_log_info("the run's page: %s/report.html", folder);
}

/** The last line of a group's log. */
static void log_ending(progress_log *log, cod_train_ending ending)
{
    char text[120] = "finished";
    if (log->step > 0) /* else its last line was reported before a resume */
        snprintf(text, sizeof text, "finished at step %lld of %lld", (long long)log->step,
                 (long long)log->config->train.steps);
    cod_run_log_line(&log->log, ending == COD_TRAIN_FINISHED ? text : "stopped: the same command goes on");
}

static int train_joined(const train_arguments *arguments)
{
    cod_comm *comm = NULL;
    cod_run_config config;
    cod_status status = cod_comm_init(NULL, &comm);
    if (status != COD_OK)
        return cod_cmd_failed(status);
    cod_launch_tell_rank(cod_comm_rank(comm));
    /* On every rank; the lowest one that fails says why. */
    status = cod_group_agree(cod_comm_world(comm), load(arguments, true, &config), NULL);
    if (status != COD_OK) {
        /* mpirun's code is that of the rank which ends first: all end with that of who knows why. */
        double code = status == COD_ERR_PEER ? 0 : status == COD_ERR_ARGUMENT ? COD_EXIT_USAGE : COD_EXIT_FAILED;
        if (cod_comm_rank(comm) == 0)
            cod_cmd_failed(status);
        if (cod_group_reduce(cod_comm_world(comm), &code, 1, COD_REDUCE_MAX) != COD_OK || code == 0)
            code = COD_EXIT_FAILED;
        if (cod_comm_rank(comm) == 0)
            cod_launch_tell_exit_code((int)code);
        return cod_comm_finalize(comm) == COD_OK ? (int)code : COD_EXIT_FAILED;
    }
    cod_comm_configure(comm, &config.cluster);
    progress_log log = {.config = &config, .comm = comm, .command = arguments->command, .loss = NAN, .quality = NAN};
    const cod_train_request request = {.config = &config,
                                       .comm = comm,
                                       .report = print_progress,
                                       .report_context = &log,
                                       .follow = follow,
                                       .follow_context = &log,
                                       .between_s = cod_display_shows_groups() ? 0.5 : 0,
                                       .stop_signal = cod_stop_signal(),
                                       .version = cod_version,
                                       .give_up = give_up,
                                       .give_up_context = &log};
    cod_train_ending ending;
    cod_log_set_sink(log_line, &log, COD_LOG_INFO);
    status = cod_train_run(&request, &ending);
    if (status == COD_ERR_INTERRUPTED && ending == COD_TRAIN_FINISHED)
        end_finished_job(comm);
    if (status != COD_OK)
        end_job(&log, status);
    const int code = ending == COD_TRAIN_FINISHED ? COD_EXIT_OK : COD_EXIT_STOPPED;
    if (cod_comm_rank(comm) == 0 && ending == COD_TRAIN_FINISHED)
        write_page(cod_run_config_folder(&config));
    log_ending(&log, ending);
    cod_log_set_sink(cod_cmd_log, NULL, COD_LOG_INFO);
    cod_run_log_close(&log.log);
    cod_display_close();
    if (cod_comm_rank(comm) == 0)
        cod_launch_tell_exit_code(code);
    status = cod_comm_finalize(comm);
    if (status == COD_ERR_INTERRUPTED && ending == COD_TRAIN_FINISHED)
        end_finished_job(comm);
    if (status != COD_OK)
        end_job(&log, status);
    cod_run_config_clear(&config);
    /* The launching process has been told. Of any other code than 0 mpirun speaks, and ends the ranks that are left. */
    return cod_launch_is_told() ? COD_EXIT_OK : code;
}

/** In the groups' logs: what ranks cannot know. */
static void log_launch(const cod_run_config *config, const cod_launch_ending *ending)
{
    char text[4500];
    const int signal = *cod_stop_signal();
    if (ending->why[0] != '\0')
        snprintf(text, sizeof text, "failed: %s", ending->why);
    else
        snprintf(text, sizeof text, "stopped: the command was sent signal %d (%s)", signal, strsignal(signal));
    if (ending->why[0] != '\0' ? ending->has_begun : signal != 0 && ending->code == COD_EXIT_STOPPED)
        cod_run_log_end(NULL, config, 0, text);
}

/** Starts the ranks. Where one was killed, or none was started, nobody else can say so. */
static int train_launched(const cod_run_config *config, int ranks, int argc, char **argv)
{
    cod_launch_ending ending;
    cod_launch(config, ranks, argc, argv, &ending);
    log_launch(config, &ending);
    if (ending.why[0] != '\0' && ending.has_begun) {
        char good[80];
        cod_train_describe_checkpoint(config, cod_run_config_group_of_rank(config, ending.rank), INT64_MAX, good);
        return cod_cmd_failed(cod_fail(COD_ERR_PEER, "%s; %s", ending.why, good));
    }
    return ending.why[0] != '\0' ? cod_cmd_failed(cod_fail(COD_ERR_PEER, "%s", ending.why)) : ending.code;
}

static int train_parsed(int argc, char **argv, const train_arguments *arguments)
{
    cod_display_open();
    if (cod_comm_launched_ranks() > 0)
        return train_joined(arguments);
    if (getenv(COD_LAUNCHER_VARIABLE) != NULL) /* or it would start itself again and again */
        return cod_cmd_failed(cod_fail(COD_ERR_UNSUPPORTED,
                                       "'%s' has started this program, but not as a rank of an MPI job: COD_MPIEXEC "
                                       "must name the launcher of the MPI that this program was built with",
                                       cod_launcher_program()));
    cod_run_config config;
    const cod_status status = load(arguments, false, &config);
    if (status != COD_OK)
        return cod_cmd_failed(status);
    const int ranks = cod_launcher_ranks(&config);
    const int code = ranks == 1 && !cod_launcher_is_elsewhere() ? train_joined(arguments)
                                                                : train_launched(&config, ranks, argc, argv);
    cod_run_config_clear(&config);
    return code;
}

/** "codistill train my.yaml 'name=two words'" */
static void write_command(int argc, char **argv, char *text, size_t bytes)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    size_t used = (size_t)snprintf(text, bytes, "codistill");
    for (int i = 0; i < argc && used < bytes; i++) {
        const char *quote = argv[i][0] != '\0' && argv[i][strspn(argv[i], plain)] == '\0' ? "" : "'";
        used += (size_t)snprintf(text + used, bytes - used, " %s%s%s", quote, argv[i], quote);
    }
}

int cod_cmd_train(int argc, char **argv)
{
    bool resume = false;
    const char *group = NULL;
    char command[2048];
    cod_stop_catch();
    train_arguments arguments = {.group = -1};
    write_command(argc, argv, command, sizeof command);
    cod_show(command, strlen(command), false, arguments.command, sizeof arguments.command);
    cod_config_arguments *config = &arguments.config;
    const cod_argument own[] = {{.name = "resume", .flag = &resume}, {.name = "group", .text = &group}};
    int code = cod_config_arguments_parse(argc, argv, help, own, 2, config);
    if (code < 0)
        code = cod_argument_number(argv[0], "group", group, 0, INT_MAX, &arguments.group);
    if (resume)
        config->overrides[config->count++] = "checkpoint.resume=must";
    if (code < 0)
        code = train_parsed(argc, argv, &arguments);
    cod_config_arguments_clear(config);
    return code;
}

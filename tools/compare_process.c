/* A run of a comparison: its configuration, its process, and how it ended. */
#include "tools/compare.h"

#include "io/file.h"
#include "tools/display.h"
#include "tools/script.h"
#include "train/train.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OWN_OVERRIDES = 12, OWN_BYTES = 320, LABORATORY_ARGUMENTS = 8 };

static volatile sig_atomic_t child, asked, in_laboratory;

/** To the run under way, except what the terminal has told it already; the laboratory knows one signal only. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    (void)context;
    asked = 1;
    if (child > 0 && info->si_code <= 0)
        kill((pid_t)child, in_laboratory ? SIGTERM : signal);
}

void compare_catch_signals(void)
{
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < 3; i++)
        sigaction(signals[i], &(struct sigaction){.sa_sigaction = pass_on, .sa_flags = SA_RESTART | SA_SIGINFO}, NULL);
}

bool compare_is_asked(void)
{
    return asked != 0;
}

void compare_run_path(const comparison *c, const compare_run *run, const char *file, char path[COMPARE_PATH])
{
    const char *name = run->same != NULL ? run->same->name : run->name;
    snprintf(path, COMPARE_PATH, "%s/%s%s%s", c->config.root.output, name, file[0] != '\0' ? "/" : "", file);
}

/** Steps between lines of metrics, so that there is one with each evaluation: the curves are made of them. */
static int64_t log_every(const comparison *c)
{
    const int64_t lines = c->config.log.every, evaluations = c->config.eval.every;
    return evaluations % lines == 0 ? lines : evaluations;
}

/** This run's own overrides. @return how many */
static size_t own_overrides(const comparison *c, const compare_run *run, char own[OWN_OVERRIDES][OWN_BYTES])
{
    const compare_arm *arm = &c->arms[run->arm];
    size_t count = 0;
    snprintf(own[count++], OWN_BYTES, "name=%s", run->name);
    snprintf(own[count++], OWN_BYTES, "train.strategy=%s", arm->kind->name);
    snprintf(own[count++], OWN_BYTES, "seed=%lld", (long long)run->seed);
    if (run->steps > 0)
        snprintf(own[count++], OWN_BYTES, "train.steps=%lld", (long long)run->steps);
    if (c->task->task == COD_TASK_CLASSIFICATION)
        snprintf(own[count++], OWN_BYTES, "eval.predictions=%s",
                 run->pilot || run->candidate != NULL ? "false" : "true");
    const int64_t pilot_lines = run->steps >= 200 ? run->steps / 100 : 1;
    snprintf(own[count++], OWN_BYTES, "log.every=%lld", (long long)(run->pilot ? pilot_lines : log_every(c)));
    if (!run->pilot)
        return count;
    snprintf(own[count++], OWN_BYTES, "log.samples=0");
    snprintf(own[count++], OWN_BYTES, "eval.every=0");
    snprintf(own[count++], OWN_BYTES, "checkpoint.every=0");
    if (run->max_time_s > 0)
        snprintf(own[count++], OWN_BYTES, "train.max_time=%.0fs", ceil(run->max_time_s));
    return count;
}

/** The command line's overrides, the tuned, the arm's and the run's own, of which the last counts; `own` holds texts. @param[out] overrides  new; free() */
static cod_status make_overrides(const comparison *c, const compare_run *run, char own[OWN_OVERRIDES][OWN_BYTES],
                                 const char ***overrides, size_t *count)
{
    const compare_arm *arm = &c->arms[run->arm];
    const compare_candidate *tuned = run->candidate != NULL ? run->candidate : arm->chosen;
    const size_t tuned_count = tuned != NULL ? tuned->set_count : 0;
    const char **all = calloc(c->arguments.count + tuned_count + arm->set_count + OWN_OVERRIDES, sizeof *all);
    const size_t owned = own_overrides(c, run, own);
    COD_REQUIRE_MEMORY(all);
    *count = 0;
    for (size_t i = 0; i < c->arguments.count; i++)
        all[(*count)++] = c->arguments.overrides[i];
    for (size_t i = 0; i < tuned_count; i++)
        all[(*count)++] = tuned->set[i];
    for (size_t i = 0; i < arm->set_count; i++)
        all[(*count)++] = arm->set[i];
    for (size_t i = 0; i < owned; i++)
        all[(*count)++] = own[i];
    *overrides = all;
    return COD_OK;
}

cod_status compare_load(const comparison *c, const compare_run *run, cod_run_config *config)
{
    char own[OWN_OVERRIDES][OWN_BYTES];
    const char **overrides;
    size_t count;
    COD_TRY(make_overrides(c, run, own, &overrides, &count));
    const cod_status status = cod_run_config_load(c->arguments.path, overrides, count, config);
    free(overrides);
    return status;
}

cod_status compare_find_difference(const comparison *c, const compare_run *run, char difference[256])
{
    char path[COMPARE_PATH];
    cod_run_config config;
    difference[0] = '\0';
    COD_TRY(compare_load(c, run, &config));
    compare_run_path(c, run, "config.yaml", path);
    cod_status status = COD_OK;
    if (cod_file_exists(path))
        status = cod_run_config_compare(&config, path, COD_COMPARE_RESULT, difference);
    cod_run_config_clear(&config);
    return status;
}

cod_status compare_look_at(const comparison *c, compare_run *run)
{
    const compare_arm *arm = &c->arms[run->arm];
    char path[COMPARE_PATH], difference[256], tuned[512] = "";
    if (run->same != NULL)
        return COD_OK;
    COD_TRY(compare_find_difference(c, run, difference));
    if (arm->chosen != NULL)
        compare_describe_candidate(arm, arm->chosen, tuned, sizeof tuned);
    COD_REQUIRE(difference[0] == '\0',
                "'%s/%s' is a run of another configuration (%s%s%s); remove it, or choose another name= or output=",
                c->config.root.output, run->name, difference, tuned[0] != '\0' ? "; compare.tune chooses " : "", tuned);
    compare_run_path(c, run, "summary.json", path);
    run->state = cod_file_exists(path) ? COMPARE_FINISHED : COMPARE_MISSING;
    return COD_OK;
}

cod_status compare_read_summary(const comparison *c, compare_run *run)
{
    char path[COMPARE_PATH];
    void *data = NULL;
    size_t bytes = 0;
    compare_run_path(c, run, "summary.json", path);
    COD_TRY(cod_file_read(path, 1 << 26, &data, &bytes));
    cod_json_free(run->summary);
    run->summary = NULL;
    const cod_status status = cod_json_parse(data, bytes, &run->summary);
    free(data);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

/** Shows what the process says, and keeps what it gives as the reason of a failure. */
static void relay(int from, char message[COMPARE_MESSAGE])
{
    static const char *const marks[] = {"codistill: ", "netlab: error: "};
    FILE *in = fdopen(from, "r");
    char *line = NULL, *end = NULL;
    size_t capacity = 0;
    for (ssize_t length; in != NULL && (length = getline(&line, &capacity, in)) > 0;) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        for (size_t i = 0; i < 2; i++)
            if (strncmp(line, marks[i], strlen(marks[i])) == 0)
                snprintf(message, COMPARE_MESSAGE, "%s", line + strlen(marks[i]));
        if (line[0] != COD_DISPLAY_MARK) {
            cod_display_line(line);
        } else if (line[1] == 'S') {
            const long group = strtol(line + 2, &end, 10);
            cod_display_group((int)group, *end == ' ' ? end + 1 : end);
        }
    }
    free(line);
    if (in != NULL)
        fclose(in);
    cod_display_close();
}

/** Starts a process and waits for its end, handing on signals. @return as waitpid() tells, or -1 */
static int run_process(const char **args, char message[COMPARE_MESSAGE])
{
    sigset_t signals, before;
    int state = 0, ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, &before); /* none may come while it is not known whom to hand it to */
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        dup2(ends[1], STDERR_FILENO);
        setenv(COD_DISPLAY_VARIABLE, cod_display_shows_groups() ? "terminal" : "plain", 1);
        if (getppid() == parent)
            execv(args[0], (char *const *)(uintptr_t)args);
        _exit(127);
    }
    child = pid;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (pid > 0)
        relay(ends[0], message);
    else
        close(ends[0]);
    while (pid > 0 && waitpid(pid, &state, 0) < 0)
        ;
    child = 0;
    return pid > 0 ? state : -1;
}

cod_status compare_stopped(const comparison *c, const compare_run *run)
{
    cod_run_config config;
    COD_TRY(compare_load(c, run, &config));
    const int64_t step = cod_train_last_checkpoint(&config, 0, INT64_MAX), steps = config.train.steps;
    cod_run_config_clear(&config);
    return cod_fail(COD_ERR_INTERRUPTED, "run '%s' stopped at step %lld of %lld; the same command goes on", run->name,
                    (long long)(step > 0 ? step : 0), (long long)steps);
}

bool compare_is_in_laboratory(const comparison *c, const compare_run *run)
{
    return run->candidate == NULL && strcmp(c->rates[run->rate], "none") != 0 && !c->arms[run->arm].kind->single_rank;
}

/** What stands before `codistill train` where the ranks are to lie on hosts of a laboratory. @return how many */
static cod_status laboratory(const comparison *c, const compare_run *run, char path[COD_SCRIPT_PATH], char texts[2][16],
                             const char **args, size_t *count)
{
    const compare_arm *arm = &c->arms[run->arm];
    char self[COMPARE_PATH];
    const char *rate = c->rates[run->rate];
    *count = 0;
    in_laboratory = compare_is_in_laboratory(c, run);
    if (!in_laboratory)
        return COD_OK;
    COD_TRY(cod_script_find("tools/netlab.sh", path, self));
    COD_REQUIRE(arm->slots > 0 && arm->hosts >= 2,
                "arm '%s' has no equal groups to put on hosts of their own; leave compare.rates out", arm->name);
    snprintf(texts[0], 16, "%d", arm->hosts);
    snprintf(texts[1], 16, "%d", arm->slots);
    const char *const before[LABORATORY_ARGUMENTS] = {path,     "--hosts", texts[0], "--slots",
                                                      texts[1], "--rate",  rate,     "--"};
    memcpy(args, before, sizeof before);
    *count = LABORATORY_ARGUMENTS;
    return COD_OK;
}

static void set_failed(compare_run *run, int state, const char *message)
{
    run->state = COMPARE_FAILED;
    if (message[0] != '\0')
        snprintf(run->message, sizeof run->message, "%s", message);
    else if (state != -1 && WIFSIGNALED(state))
        snprintf(run->message, sizeof run->message, "it was killed by signal %d (%s)", WTERMSIG(state),
                 strsignal(WTERMSIG(state)));
    else
        snprintf(run->message, sizeof run->message, "it ended with exit code %d and gave no reason",
                 state == -1 ? -1 : WEXITSTATUS(state));
}

cod_status compare_train(const comparison *c, compare_run *run)
{
    char self[COMPARE_PATH], own[OWN_OVERRIDES][OWN_BYTES], path[COD_SCRIPT_PATH], texts[2][16],
        message[COMPARE_MESSAGE];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char **overrides = NULL;
    size_t count = 0, used = 0;
    COD_TRY(make_overrides(c, run, own, &overrides, &count));
    const char **args = calloc(count + LABORATORY_ARGUMENTS + 4, sizeof *args);
    cod_status status = length > 0 && args != NULL ? COD_OK : cod_fail(COD_ERR_IO, "cannot start a run");
    self[length > 0 ? length : 0] = '\0';
    message[0] = '\0';
    if (status == COD_OK)
        status = laboratory(c, run, path, texts, args, &used);
    int state = -1;
    if (status == COD_OK) {
        args[used++] = self;
        args[used++] = "train";
        args[used++] = c->arguments.path;
        memcpy(args + used, overrides, count * sizeof *args);
        state = run_process(args, message);
    }
    free(args);
    free(overrides);
    COD_TRY(status);
    const bool well = state != -1 && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    compare_run_path(c, run, "summary.json", path);
    if (well && cod_file_exists(path))
        run->state = COMPARE_FINISHED;
    else if (well || asked)
        return compare_stopped(c, run);
    else
        set_failed(run, state, message);
    return COD_OK;
}

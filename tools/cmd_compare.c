/* `codistill compare`: one configuration trained in several ways, side by side. */
#include "tools/cmd.h"

#include "compare/compare.h"
#include "core/shown.h"
#include "report/report.h"
#include "tools/arguments.h"
#include "tools/display.h"
#include "tools/news.h"
#include "tools/print.h"
#include "tools/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill compare CONFIG.yaml [--strategies LIST] [--seeds LIST] [--dry-run] [key.path=value ...]\n\n"
    "Trains the configuration once for each combination of an arm of its section `compare`, a seed and a link "
    "rate, all with equal budgets. Prints a table and a verdict, and writes compare.json, compare.csv and "
    "report.html to OUTPUT/NAME-compare. Finished runs are not repeated, and those of earlier comparisons of that "
    "name stay. A run with that name but another configuration is refused. If a run fails, the command records the "
    "failure and goes on with the next run. On a signal, the current run saves and ends, and the exit code is 75; "
    "the same command continues. With compare.tune, each arm is first trained with each candidate, and its runs use "
    "the candidate "
    "that is best on validation data. Exit codes: 0 all runs are finished, 1 some failed, 2 wrong usage, 75 "
    "stopped.\n\n"
    "  --strategies LIST\treplaces compare.arms by strategies, such as single,allreduce,local_sgd. codistill_rows "
    "stands for four arms: distil, merge, both and neither. `single` adds a second arm, single_long, with as many "
    "times the steps as there are groups\n"
    "  --seeds LIST\treplaces compare.seeds, such as 1,2,3\n"
    "  --dry-run\tprint which runs are finished and which would be trained, and train nothing\n";

static volatile sig_atomic_t child, in_laboratory;

/** To the run under way, except what the terminal has told it already; the laboratory knows one signal only. */
static void pass_on(int signal, bool by_terminal)
{
    if (child > 0 && !by_terminal)
        kill((pid_t)child, in_laboratory ? SIGTERM : signal);
}

static bool is_asked(void *context)
{
    (void)context;
    return *cod_stop_signal() != 0;
}

/** Shows a line that the process says, and keeps what it gives as the reason of a failure. */
static void on_line(void *message, const char *bytes, size_t count)
{
    static const char *const marks[] = {"codistill: ", "netlab: error: "};
    char line[4 * COD_NEWS_MOST_LINE + 1];
    cod_news news;
    const size_t before = cod_news_find(cod_news_token(), bytes, count, &news);
    if (news.kind == COD_NEWS_LINE) {
        cod_show(news.text, news.bytes, false, line, sizeof line);
        cod_display_group(news.number, line);
    }
    if (news.kind != 0 && before == 0)
        return;
    cod_show(bytes, before, false, line, sizeof line);
    for (size_t i = 0; i < 2; i++)
        if (strncmp(line, marks[i], strlen(marks[i])) == 0)
            snprintf(message, COD_COMPARE_MESSAGE, "%.*s", COD_COMPARE_MESSAGE - 1, line + strlen(marks[i]));
    cod_display_line(line);
}

/** Shows what the process says until nobody can say anything any more; closes `from`. */
static void show_words(int from, char *message)
{
    cod_lines lines = {0};
    char data[4096];
    ssize_t got;
    while ((got = read(from, data, sizeof data)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0)
            cod_lines_add(&lines, data, (size_t)got, on_line, message);
    cod_lines_end(&lines, on_line, message);
    close(from);
}

/** Hands signals on to it. */
static int run_process(void *context, const char *const *args, bool laboratory, char message[COD_COMPARE_MESSAGE])
{
    (void)context;
    in_laboratory = laboratory;
    sigset_t all, before;
    int state = 0, ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    cod_news_listen();
    setenv(COD_DISPLAY_VARIABLE, cod_display_shows_groups() ? "terminal" : "plain", 1);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* none may come while it is not known whom to hand it to */
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        cod_stop_release(); /* what comes before the program is there ends it: nothing is lost yet */
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        dup2(ends[1], STDERR_FILENO);
        if (getppid() == parent)
            execv(args[0], (char *const *)(uintptr_t)args);
        _exit(127);
    }
    child = pid;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (pid > 0) {
        show_words(ends[0], message);
        cod_display_close();
    } else {
        close(ends[0]);
    }
    while (pid > 0 && waitpid(pid, &state, 0) < 0)
        ;
    child = 0;
    return pid > 0 ? state : -1;
}

static void say(void *context, const char *line)
{
    (void)context;
    cod_display_line(line);
}

static cod_status write_result(const cod_comparison *c)
{
    char folder[COD_COMPARE_PATH];
    COD_TRY(cod_comparison_write(c, folder));
    printf("\n");
    COD_TRY(cod_report_print_verdict(folder, stdout));
    cod_print(stdout, "\nwritten to %s/compare.json and %s/compare.csv\n", folder, folder);
    COD_TRY(cod_report_write(folder));
    cod_print(stdout, "the report: %s/report.html\n", folder);
    return COD_OK;
}

/** What is there so far, after an interruption, which stays the failure. */
static cod_status write_part(const cod_comparison *c)
{
    char interruption[COD_COMPARE_MESSAGE];
    snprintf(interruption, sizeof interruption, "%s", cod_error_message());
    COD_TRY(write_result(c));
    return cod_fail(COD_ERR_INTERRUPTED, "%s", interruption);
}

static cod_status train_and_tell(cod_comparison *c)
{
    const cod_status status = cod_comparison_train(c);
    if (status == COD_ERR_INTERRUPTED)
        return write_part(c);
    COD_TRY(status);
    cod_comparison_print(c, stdout);
    COD_TRY(write_result(c));
    return cod_comparison_check(c);
}

static cod_status compare(const cod_compare_arguments *arguments, bool dry)
{
    const cod_compare_host host = {.version = cod_version, .say = say, .is_asked = is_asked, .run = run_process};
    cod_comparison *c;
    COD_TRY(cod_comparison_create(arguments, &host, &c));
    const cod_status status = dry ? cod_comparison_preview(c, stdout) : train_and_tell(c);
    cod_comparison_destroy(c);
    return status;
}

int cod_cmd_compare(int argc, char **argv)
{
    cod_config_arguments config;
    cod_stop_catch();
    cod_stop_on_request(pass_on);
    bool dry = false;
    cod_compare_arguments arguments = {.strategies = "", .seeds = ""};
    const cod_argument own[] = {{.name = "strategies", .text = &arguments.strategies, .words = COD_WORDS_STRATEGIES},
                                {.name = "seeds", .text = &arguments.seeds},
                                {.name = "dry-run", .flag = &dry}};
    int code = cod_config_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], &config);
    if (code < 0) {
        arguments.path = config.path;
        arguments.overrides = config.overrides;
        arguments.count = config.count;
        cod_display_open();
        const cod_status status = compare(&arguments, dry);
        code = cod_cmd_end(status);
        if (status == COD_ERR_INTERRUPTED)
            code = COD_EXIT_STOPPED;
    }
    cod_config_arguments_clear(&config);
    return code;
}

/* `codistill compare`: the same configuration with several strategies, one table. */
#include "tools/cmd.h"

#include "io/file.h"
#include "io/json.h"
#include "tools/arguments.h"
#include "train/config.h"
#include "train/train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RUNS = 256, MAX_LIST = 32, OWN_OVERRIDES = 4 };

static const char help[] =
    "usage: codistill compare CONFIG.yaml --strategies LIST [--seeds LIST] [key.path=value ...]\n\n"
    "Trains the configuration once for each strategy and seed, with equal steps and equal data per rank, and prints "
    "one\n"
    "table; `single` also runs with as many times the steps as there are groups (single_long). Runs that are finished\n"
    "already are not repeated; one made with another configuration is refused, and not mixed with the others. A "
    "signal\n"
    "is handed on to the run under way, which saves and ends. Writes OUTPUT/NAME-compare/compare.json.\n\n"
    "  --strategies LIST  such as single,allreduce,codistill (these three)\n"
    "  --seeds LIST       such as 1,2,3 (the configuration's)\n";

typedef struct compare_run {
    char name[160], strategy[48];
    int64_t seed, steps;
    bool done;
    cod_json_value *summary;
} compare_run;

typedef struct comparison {
    cod_config_arguments arguments;
    char *strategies[MAX_LIST], *seeds[MAX_LIST];
    size_t strategy_count, seed_count;
    cod_run_config config;
    compare_run runs[MAX_RUNS];
    size_t run_count;
} comparison;

static volatile sig_atomic_t child, asked;

/** To the run under way, except what the terminal has told it already. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    (void)context;
    asked = 1;
    if (child > 0 && info->si_code <= 0)
        kill((pid_t)child, signal);
}

static size_t split(char *text, char *items[MAX_LIST])
{
    size_t count = 0;
    for (char *rest = NULL, *item = strtok_r(text, ",", &rest); item != NULL && count < MAX_LIST;
         item = strtok_r(NULL, ",", &rest))
        items[count++] = item;
    return count;
}

static cod_status add_run(comparison *c, const char *label, const char *strategy, int64_t seed, int64_t steps)
{
    COD_REQUIRE(c->run_count < MAX_RUNS, "more than %d runs", MAX_RUNS);
    compare_run *run = &c->runs[c->run_count++];
    *run = (compare_run){.seed = seed, .steps = steps};
    snprintf(run->strategy, sizeof run->strategy, "%s", strategy);
    snprintf(run->name, sizeof run->name, "%s-%s-seed%lld", c->config.root.name, label, (long long)seed);
    return COD_OK;
}

static cod_status plan_runs(comparison *c)
{
    for (size_t k = 0; k < c->seed_count; k++) {
        char *end = NULL;
        const long long seed = strtoll(c->seeds[k], &end, 10);
        COD_REQUIRE(*end == '\0' && seed >= 0, "'%s' is no seed; a seed is a whole number of at least 0", c->seeds[k]);
        for (size_t i = 0; i < c->strategy_count; i++) {
            const cod_strategy_kind *kind = cod_strategy_find(c->strategies[i]);
            COD_REQUIRE(kind != NULL, "there is no strategy '%s'", c->strategies[i]);
            COD_TRY(add_run(c, kind->name, kind->name, seed, c->config.train.steps));
            if (kind->single_rank && c->config.group_count > 1)
                COD_TRY(add_run(c, "single_long", kind->name, seed,
                                c->config.train.steps * (int64_t)c->config.group_count));
        }
    }
    return COD_OK;
}

static void run_path(const comparison *c, const compare_run *run, const char *file, char path[4096])
{
    snprintf(path, 4096, "%s/%s/%s", c->config.root.output, run->name, file);
}

/** The command line's overrides and this run's own; `own` holds the texts. @param[out] overrides  [arguments.count + OWN_OVERRIDES] */
static void make_overrides(const comparison *c, const compare_run *run, char own[OWN_OVERRIDES][256],
                           const char **overrides)
{
    snprintf(own[0], sizeof own[0], "name=%s", run->name);
    snprintf(own[1], sizeof own[1], "train.strategy=%s", run->strategy);
    snprintf(own[2], sizeof own[2], "seed=%lld", (long long)run->seed);
    snprintf(own[3], sizeof own[3], "train.steps=%lld", (long long)run->steps);
    memcpy(overrides, c->arguments.overrides, c->arguments.count * sizeof *overrides);
    for (size_t i = 0; i < OWN_OVERRIDES; i++)
        overrides[c->arguments.count + i] = own[i];
}

/** The run's configuration. @param[out] config  new; cod_run_config_clear() */
static cod_status load_config(const comparison *c, const compare_run *run, cod_run_config *config)
{
    char own[OWN_OVERRIDES][256];
    const size_t count = c->arguments.count + OWN_OVERRIDES;
    const char **overrides = calloc(count, sizeof *overrides);
    COD_REQUIRE_MEMORY(overrides);
    make_overrides(c, run, own, overrides);
    const cod_status status = cod_run_config_load(c->arguments.path, overrides, count, config);
    free(overrides);
    return status;
}

/** Whether the run is done; one that was made, or begun, with another configuration must not be taken for it. */
static cod_status look_at(const comparison *c, compare_run *run)
{
    char path[4096], difference[256] = "";
    cod_run_config config;
    COD_TRY(load_config(c, run, &config));
    run_path(c, run, "config.yaml", path);
    cod_status status = COD_OK;
    if (cod_file_exists(path))
        status = cod_run_config_compare(&config, path, COD_COMPARE_RESULT, difference);
    cod_run_config_clear(&config);
    COD_TRY(status);
    COD_REQUIRE(difference[0] == '\0',
                "'%s/%s' is a run of another configuration (%s); remove it, or choose another name= or output=",
                c->config.root.output, run->name, difference);
    run_path(c, run, "summary.json", path);
    run->done = cod_file_exists(path);
    return COD_OK;
}

static cod_status read_summary(const comparison *c, compare_run *run)
{
    char path[4096];
    void *data = NULL;
    size_t bytes = 0;
    run_path(c, run, "summary.json", path);
    COD_TRY(cod_file_read(path, 1 << 26, &data, &bytes));
    const cod_status status = cod_json_parse(data, bytes, &run->summary);
    free(data);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

/** Starts a process and waits for its end, handing on signals. @return as waitpid() tells, or -1 */
static int run_process(const char *program, const char **args)
{
    sigset_t signals, before;
    int state = 0;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, &before); /* none may come while it is not known whom to hand it to */
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() == parent)
            execv(program, (char *const *)(uintptr_t)args);
        _exit(127);
    }
    child = pid;
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (pid > 0 && waitpid(pid, &state, 0) < 0)
        ;
    child = 0;
    return pid > 0 ? state : -1;
}

/** Says where a run stopped that ended well, or was asked to end, before its last step. */
static cod_status report_stopped(const comparison *c, const compare_run *run)
{
    cod_run_config config;
    COD_TRY(load_config(c, run, &config));
    const int64_t step = cod_train_last_checkpoint(&config, 0, INT64_MAX);
    cod_run_config_clear(&config);
    return cod_fail(COD_ERR_INTERRUPTED, "run '%s' stopped at step %lld of %lld; the same command goes on", run->name,
                    (long long)(step > 0 ? step : 0), (long long)run->steps);
}

/** Runs `codistill train` with this run's overrides, in a process of its own. */
static cod_status train(const comparison *c, const compare_run *run)
{
    char self[4096], own[OWN_OVERRIDES][256], path[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char **args = calloc(c->arguments.count + OWN_OVERRIDES + 4, sizeof *args);
    if (length < 0 || args == NULL) {
        free(args);
        return cod_fail(COD_ERR_IO, "cannot start a run");
    }
    self[length] = '\0';
    args[0] = "codistill";
    args[1] = "train";
    args[2] = c->arguments.path;
    make_overrides(c, run, own, args + 3);
    const int state = run_process(self, args);
    free(args);
    run_path(c, run, "summary.json", path);
    const bool well = state != -1 && WIFEXITED(state) && WEXITSTATUS(state) == 0;
    if (well && cod_file_exists(path))
        return COD_OK;
    if (well || asked)
        return report_stopped(c, run);
    return cod_fail(COD_ERR_PEER, "run '%s' failed (its messages are above); the same command goes on from here",
                    run->name);
}

static double number(const compare_run *run, const char *key)
{
    return cod_json_get_number(cod_json_get(run->summary, key), NAN);
}

/** What the run's figures are called: the same in all runs of a comparison. */
static const char *text(const compare_run *run, const char *key)
{
    return cod_json_get_string(cod_json_get(run->summary, key), "?");
}

static int baseline_width(const char *name)
{
    return (int)strlen(name) > 9 ? (int)strlen(name) : 9;
}

/** In a column; "none" where there is nothing to tell. */
static void print_number(int width, int digits, double value)
{
    if (isnan(value))
        printf(" %*s", width, "none");
    else
        printf(" %*.*f", width, digits, value);
}

static void print_table(const comparison *c)
{
    const char *figure = text(&c->runs[0], "figure"), *baseline = text(&c->runs[0], "baseline");
    printf("%-36s %9s %*s %12s %10s %14s %14s %9s\n", "run", figure, baseline_width(baseline), baseline, "samples",
           "core-s", "between, MB", "inside, MB", "wall, s");
    for (size_t i = 0; i < c->run_count; i++) {
        const compare_run *run = &c->runs[i];
        printf("%-36s", run->name);
        print_number(9, 3, number(run, figure));
        print_number(baseline_width(baseline), 3, number(run, baseline));
        print_number(12, 0, number(run, "samples_per_group") * number(run, "groups"));
        print_number(10, 0, number(run, "core_s"));
        print_number(14, 3, number(run, "intergroup_bytes") / 1e6);
        print_number(14, 1, number(run, "intragroup_bytes") / 1e6);
        print_number(9, 1, number(run, "wall_s"));
        printf("\n");
    }
}

static cod_status write_json(const comparison *c)
{
    const char *const keys[] = {text(&c->runs[0], "figure"),
                                text(&c->runs[0], "baseline"),
                                "groups",
                                "ranks",
                                "steps",
                                "samples_per_group",
                                "core_s",
                                "wall_s",
                                "step_ms_median",
                                "intergroup_bytes",
                                "intragroup_bytes"};
    cod_json json = {.indent = 2};
    char path[4096], *document = NULL;
    cod_json_open(&json, NULL, '{');
    cod_json_string(&json, "config", c->arguments.path);
    cod_json_open(&json, "runs", '[');
    for (size_t i = 0; i < c->run_count; i++) {
        cod_json_open(&json, NULL, '{');
        cod_json_string(&json, "name", c->runs[i].name);
        cod_json_string(&json, "strategy", c->runs[i].strategy);
        cod_json_integer(&json, "seed", c->runs[i].seed);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            cod_json_number(&json, keys[k], number(&c->runs[i], keys[k]));
        cod_json_close(&json);
    }
    cod_json_close(&json);
    cod_json_close(&json);
    COD_TRY(cod_json_end(&json, &document));
    snprintf(path, sizeof path, "%s/%s-compare", c->config.root.output, c->config.root.name);
    cod_status status = cod_folder_create(path);
    snprintf(path, sizeof path, "%s/%s-compare/compare.json", c->config.root.output, c->config.root.name);
    if (status == COD_OK)
        status = cod_file_write(path, document, strlen(document));
    free(document);
    if (status == COD_OK)
        printf("\nwritten to %s\n", path);
    return status;
}

static cod_status compare(comparison *c)
{
    COD_TRY(cod_run_config_load(c->arguments.path, c->arguments.overrides, c->arguments.count, &c->config));
    char seed[32], all[] = "single,allreduce,codistill";
    snprintf(seed, sizeof seed, "%lld", (long long)c->config.root.seed);
    if (c->seed_count == 0)
        c->seeds[c->seed_count++] = seed;
    if (c->strategy_count == 0)
        c->strategy_count = split(all, c->strategies);
    COD_TRY(plan_runs(c));
    for (size_t i = 0; i < c->run_count; i++)
        COD_TRY(look_at(c, &c->runs[i]));
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < 3; i++)
        sigaction(signals[i], &(struct sigaction){.sa_sigaction = pass_on, .sa_flags = SA_RESTART | SA_SIGINFO}, NULL);
    for (size_t i = 0; i < c->run_count; i++) {
        compare_run *run = &c->runs[i];
        if (asked && !run->done)
            return report_stopped(c, run);
        fprintf(stderr, "== %s (%zu of %zu)%s\n", run->name, i + 1, c->run_count, run->done ? ": done before" : "");
        if (!run->done)
            COD_TRY(train(c, run));
        COD_TRY(read_summary(c, run));
    }
    print_table(c);
    return write_json(c);
}

int cod_cmd_compare(int argc, char **argv)
{
    comparison *c = calloc(1, sizeof *c);
    if (c == NULL)
        return cod_cmd_failed(cod_fail(COD_ERR_MEMORY, "no memory for a comparison"));
    const char *strategies = "", *seeds = "";
    const cod_argument own[] = {{.name = "strategies", .text = &strategies}, {.name = "seeds", .text = &seeds}};
    int code = cod_config_arguments_parse(argc, argv, help, own, 2, &c->arguments);
    char *lists[] = {strdup(strategies), strdup(seeds)};
    if (lists[0] == NULL || lists[1] == NULL) {
        code = cod_cmd_failed(cod_fail(COD_ERR_MEMORY, "no memory for the lists"));
    } else if (code < 0) {
        c->strategy_count = split(lists[0], c->strategies);
        c->seed_count = split(lists[1], c->seeds);
        const cod_status status = compare(c);
        code = status == COD_OK ? COD_EXIT_OK : cod_cmd_failed(status);
    }
    for (size_t i = 0; i < c->run_count; i++)
        cod_json_free(c->runs[i].summary);
    free(lists[0]);
    free(lists[1]);
    cod_run_config_clear(&c->config);
    cod_config_arguments_clear(&c->arguments);
    free(c);
    return code;
}

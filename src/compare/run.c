/* A run of a comparison: its configuration, its process, and how it ended. */
#include "compare/compare_internal.h"

#include "core/shown.h"
#include "data/identity.h"
#include "io/file.h"
#include "io/script.h"
#include "train/train.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

enum { OWN_OVERRIDES = 12, OWN_BYTES = 320, LABORATORY_ARGUMENTS = 8, MAX_LINE = 2048 };

void cod_compare_say(const cod_comparison *c, const char *fmt, ...)
{
    char raw[MAX_LINE], line[4 * MAX_LINE + 1];
    va_list args;
    va_start(args, fmt);
    vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    cod_show(raw, strlen(raw), false, line, sizeof line);
    c->host->say(c->host->context, line);
}

/** Steps between lines of metrics, so that there is one with each evaluation: the curves are made of them. */
static int64_t log_every(const cod_comparison *c)
{
    const int64_t lines = c->config.log.every, evaluations = c->config.eval.every;
    return evaluations % lines == 0 ? lines : evaluations;
}

/** This run's own overrides. @return how many */
static size_t own_overrides(const cod_comparison *c, const cod_compare_run *run, char own[OWN_OVERRIDES][OWN_BYTES])
{
    const cod_compare_arm *arm = &c->arms[run->arm];
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

/**
 * The command line's overrides, the tuned, the arm's and the run's own, of which the last counts; `own` holds texts.
 *
 * @param[out] overrides  new; free()
 */
static cod_status make_overrides(const cod_comparison *c, const cod_compare_run *run,
                                 char own[OWN_OVERRIDES][OWN_BYTES], const char ***overrides, size_t *count)
{
    const cod_compare_arm *arm = &c->arms[run->arm];
    const cod_compare_candidate *tuned = run->candidate != NULL ? run->candidate : arm->chosen;
    const size_t tuned_count = tuned != NULL ? tuned->set_count : 0;
    const char **all = calloc(c->arguments->count + tuned_count + arm->set_count + OWN_OVERRIDES, sizeof *all);
    const size_t owned = own_overrides(c, run, own);
    COD_REQUIRE_MEMORY(all);
    *count = 0;
    for (size_t i = 0; i < c->arguments->count; i++)
        all[(*count)++] = c->arguments->overrides[i];
    for (size_t i = 0; i < tuned_count; i++)
        all[(*count)++] = tuned->set[i];
    for (size_t i = 0; i < arm->set_count; i++)
        all[(*count)++] = arm->set[i];
    for (size_t i = 0; i < owned; i++)
        all[(*count)++] = own[i];
    *overrides = all;
    return COD_OK;
}

const char cod_compare_no_patience[] =
    "runs that are compared have equal budgets, which one that ends early does not use up; set eval.patience=0";

cod_status cod_compare_load(const cod_comparison *c, const cod_compare_run *run, cod_run_config *config)
{
    char own[OWN_OVERRIDES][OWN_BYTES];
    const char **overrides;
    size_t count;
    COD_TRY(make_overrides(c, run, own, &overrides, &count));
    const cod_status status = cod_run_config_load(c->arguments->path, overrides, count, config);
    free(overrides);
    COD_TRY(status);
    if (config->eval.patience == 0)
        return COD_OK;
    cod_run_config_clear(config);
    return cod_fail(COD_ERR_ARGUMENT, "eval.patience: %s", cod_compare_no_patience);
}

cod_status cod_compare_find_difference(const cod_comparison *c, const cod_compare_run *run, char difference[256])
{
    char path[COD_COMPARE_PATH];
    cod_run_config config;
    difference[0] = '\0';
    COD_TRY(cod_compare_load(c, run, &config));
    cod_compare_run_path(c, run, "config.yaml", path);
    cod_status status = COD_OK;
    if (cod_file_exists(path))
        status = cod_run_config_compare(&config, path, COD_COMPARE_RESULT, difference);
    cod_run_config_clear(&config);
    return status;
}

/** A finished run is comparable only if it was trained on the data that are there now. */
static cod_status check_data(const cod_comparison *c, cod_compare_run *run)
{
    char path[COD_COMPARE_PATH], key[17], change[COD_DATA_CHANGE_BYTES];
    cod_run_config config;
    char *now = NULL;
    COD_TRY(cod_compare_read_summary(c, run));
    const char *then = cod_json_get_string(cod_json_get(run->summary, "data_files"), NULL);
    if (then == NULL)
        return COD_OK; /* of a version that did not note it */
    COD_TRY(cod_compare_load(c, run, &config));
    cod_status status = cod_data_list_files(&config.data, &now);
    cod_run_config_clear(&config);
    COD_TRY(status);
    cod_data_list_key(now, key);
    if (strcmp(key, then) != 0) {
        cod_compare_run_path(c, run, "data.0.tsv", path);
        cod_train_data_change(path, then, now, change);
        status = cod_fail(COD_ERR_ARGUMENT,
                          "'%s/%s' was trained on other data than there are now%s%s, so it cannot be compared with new "
                          "runs; restore the data, or remove that run",
                          c->config.root.output, run->name, change[0] != '\0' ? ": " : "", change);
    }
    free(now);
    return status;
}

cod_status cod_compare_look_at(const cod_comparison *c, cod_compare_run *run)
{
    const cod_compare_arm *arm = &c->arms[run->arm];
    char path[COD_COMPARE_PATH], difference[256], tuned[512] = "";
    if (run->same != NULL)
        return COD_OK;
    COD_TRY(cod_compare_find_difference(c, run, difference));
    if (arm->chosen != NULL)
        cod_compare_describe_candidate(arm, arm->chosen, tuned, sizeof tuned);
    COD_REQUIRE(difference[0] == '\0',
                "'%s/%s' is a run of another configuration (%s%s%s); remove it, or choose another name= or output=",
                c->config.root.output, run->name, difference, tuned[0] != '\0' ? "; compare.tune chooses " : "", tuned);
    cod_compare_run_path(c, run, "summary.json", path);
    run->state =
        cod_file_bytes(path) > 0 ? COD_COMPARE_FINISHED : COD_COMPARE_MISSING; /* train makes an empty one again */
    return run->state == COD_COMPARE_FINISHED ? check_data(c, run) : COD_OK;
}

cod_status cod_compare_read_summary(const cod_comparison *c, cod_compare_run *run)
{
    char path[COD_COMPARE_PATH];
    void *data = NULL;
    size_t bytes = 0;
    cod_compare_run_path(c, run, "summary.json", path);
    COD_TRY(cod_file_read(path, 1 << 26, &data, &bytes));
    cod_json_free(run->summary);
    run->summary = NULL;
    const cod_status status = cod_json_parse(data, bytes, &run->summary);
    free(data);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

cod_status cod_compare_stopped(const cod_comparison *c, const cod_compare_run *run)
{
    cod_run_config config;
    COD_TRY(cod_compare_load(c, run, &config));
    const int64_t step = cod_train_last_checkpoint(&config, 0, INT64_MAX), steps = config.train.steps;
    cod_run_config_clear(&config);
    return cod_fail(COD_ERR_INTERRUPTED, "run '%s' stopped at step %lld of %lld; the same command goes on", run->name,
                    (long long)(step > 0 ? step : 0), (long long)steps);
}

bool cod_compare_is_in_laboratory(const cod_comparison *c, const cod_compare_run *run)
{
    return run->candidate == NULL && strcmp(c->rates[run->rate], "none") != 0 && !c->arms[run->arm].kind->single_rank;
}

/** The arguments before `codistill train` if the ranks are to run on hosts of a laboratory. @return their number */
static cod_status laboratory(const cod_comparison *c, const cod_compare_run *run, char path[COD_SCRIPT_PATH],
                             char texts[2][16], const char **args, size_t *count)
{
    const cod_compare_arm *arm = &c->arms[run->arm];
    char self[COD_COMPARE_PATH];
    const char *rate = c->rates[run->rate];
    *count = 0;
    if (!cod_compare_is_in_laboratory(c, run))
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

static void set_failed(cod_compare_run *run, int state, const char *message)
{
    run->state = COD_COMPARE_FAILED;
    if (message[0] != '\0')
        snprintf(run->message, sizeof run->message, "%s", message);
    else if (state != -1 && WIFSIGNALED(state))
        snprintf(run->message, sizeof run->message, "it was killed by signal %d (%s)", WTERMSIG(state),
                 strsignal(WTERMSIG(state)));
    else
        snprintf(run->message, sizeof run->message, "it ended with exit code %d and gave no reason",
                 state == -1 ? -1 : WEXITSTATUS(state));
}

cod_status cod_compare_train(const cod_comparison *c, cod_compare_run *run)
{
    char self[COD_COMPARE_PATH], own[OWN_OVERRIDES][OWN_BYTES], path[COD_SCRIPT_PATH], texts[2][16],
        message[COD_COMPARE_MESSAGE];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char **overrides = NULL;
    size_t count = 0, used = 0;
    COD_TRY(make_overrides(c, run, own, &overrides, &count));
    const char **args = calloc(count + LABORATORY_ARGUMENTS + 4, sizeof *args);
    cod_status status = length > 0 && args != NULL ? COD_OK : cod_fail(COD_ERR_IO, "cannot start a run");
    self[length > 0 ? length : 0] = '\0';
    message[0] = '\0';
    COD_THEN(status, laboratory(c, run, path, texts, args, &used));
    int state = -1;
    if (status == COD_OK) {
        args[used++] = self;
        args[used++] = "train";
        args[used++] = c->arguments->path;
        memcpy(args + used, overrides, count * sizeof *args);
        state = c->host->run(c->host->context, args, cod_compare_is_in_laboratory(c, run), message);
    }
    free(args);
    free(overrides);
    COD_TRY(status);
    const int code = state != -1 && WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    cod_compare_run_path(c, run, "summary.json", path);
    if (code == 0 && cod_file_exists(path))
        run->state = COD_COMPARE_FINISHED;
    else if (code == 0 || code == EX_TEMPFAIL || c->host->is_asked(c->host->context))
        return cod_compare_stopped(c, run);
    else
        set_failed(run, state, message);
    return COD_OK;
}

#include "compare/compare.h"

#include "compare/compare_internal.h"
#include "core/duration.h"
#include "core/shown.h"
#include "core/trace.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>

static cod_status add_runs(cod_comparison *c)
{
    c->runs = calloc(c->arm_count * c->seed_count * c->rate_count + 1, sizeof *c->runs);
    COD_REQUIRE_MEMORY(c->runs);
    for (size_t r = 0; r < c->rate_count; r++)
        for (size_t s = 0; s < c->seed_count; s++)
            for (size_t a = 0; a < c->arm_count; a++) {
                cod_compare_run *run = &c->runs[c->run_count];
                const bool alone = c->arms[a].kind->single_rank;
                *run = (cod_compare_run){.arm = a, .rate = r, .seed = c->seeds[s]};
                const bool plain = !cod_compare_is_in_laboratory(c, run);
                snprintf(run->name, sizeof run->name, "%s-%s%s%s-seed%lld", c->config.root.name, c->arms[a].name,
                         plain ? "" : "-", plain ? "" : c->rates[r], (long long)run->seed);
                if (alone && r > 0)
                    run->same = &c->runs[s * c->arm_count + a];
                c->run_count++;
            }
    return COD_OK;
}

/** Before anything is trained: folders of other configurations, as far as steps are known by then. */
static cod_status look_at_all(cod_comparison *c)
{
    const int kind = c->config.compare.budget;
    for (size_t i = 0; i < c->run_count; i++) {
        cod_compare_run *run = &c->runs[i];
        const bool known = kind == COD_BUDGET_STEPS || kind == COD_BUDGET_SAMPLES || c->arms[run->arm].own_steps;
        if (!known || run->state == COD_COMPARE_FAILED)
            continue;
        COD_TRY(cod_compare_decide_steps(c, run));
        COD_TRY(cod_compare_look_at(c, run));
    }
    return COD_OK;
}

/** Reads the summary of a finished run, and tells when the run is judged by other data than the first one is. */
static cod_status take_result(const cod_comparison *c, cod_compare_run *run)
{
    const char *first = NULL, *own;
    COD_TRY(cod_compare_read_summary(c, run));
    own = cod_json_get_string(cod_json_get(run->summary, "data_held_out"), NULL);
    for (size_t i = 0; i < c->run_count && first == NULL; i++)
        first = cod_json_get_string(cod_json_get(c->runs[i].summary, "data_held_out"), NULL);
    if (own != NULL && strcmp(own, first) != 0)
        cod_compare_say(c,
                        "warning: %s is judged by other held-out %s than the first run; their figures do not compare",
                        run->name, c->task->items);
    return COD_OK;
}

/** "0:40:00": how long `left` runs take if each takes as long as `count` others did, in the mean. */
static void describe_time(double seconds, size_t count, size_t left, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", cod_duration(seconds / (double)count * (double)left).text);
}

/** ", about 0:40:00 left" if the runs from `next` on take as long each as those that were trained did. */
static void describe_left(const cod_comparison *c, size_t next, char *text, size_t bytes)
{
    size_t left = 0;
    for (size_t i = next; i < c->run_count; i++)
        left += c->runs[i].same == NULL && c->runs[i].state == COD_COMPARE_MISSING;
    char time[32];
    describe_time(c->trained_s, c->trained, left, time, sizeof time);
    snprintf(text, bytes, ", about %s left", time);
}

static cod_status train_one(cod_comparison *c, cod_compare_run *run, size_t number)
{
    if (run->same != NULL) {
        run->state = run->same->state;
        memcpy(run->message, run->same->message, sizeof run->message);
        return run->state == COD_COMPARE_FINISHED ? cod_compare_read_summary(c, run) : COD_OK;
    }
    if (run->steps == 0 && run->state != COD_COMPARE_FAILED) {
        COD_TRY(cod_compare_decide_steps(c, run));
        if (run->state != COD_COMPARE_FAILED)
            COD_TRY(cod_compare_look_at(c, run));
    }
    if (c->host->is_asked(c->host->context) && run->state == COD_COMPARE_MISSING)
        return cod_compare_stopped(c, run);
    char left[64] = "";
    if (run->state == COD_COMPARE_MISSING && c->trained > 0)
        describe_left(c, number - 1, left, sizeof left);
    cod_compare_say(c, "== %s (%zu of %zu)%s", run->name, number, c->run_count,
                    run->state == COD_COMPARE_FINISHED ? ": done before" : left);
    if (run->state == COD_COMPARE_MISSING) {
        const double begin = cod_clock_s();
        COD_TRY(cod_compare_train(c, run));
        c->trained_s += cod_clock_s() - begin;
        c->trained++;
    }
    if (run->state == COD_COMPARE_FINISHED)
        return take_result(c, run);
    cod_compare_say(c, "== %s failed: %s", run->name, run->message);
    return COD_OK;
}

cod_status cod_comparison_check(const cod_comparison *c)
{
    size_t failed = 0;
    const cod_compare_run *first = NULL;
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].state != COD_COMPARE_FINISHED) {
            first = failed++ == 0 ? &c->runs[i] : first;
        }
    if (failed == 0)
        return COD_OK;
    return cod_fail(COD_ERR_PEER, "%zu of %zu runs failed, the first '%s': %s; the same command tries them again",
                    failed, c->run_count, first->name, first->message);
}

cod_status cod_comparison_create(const cod_compare_arguments *arguments, const cod_compare_host *host,
                                 cod_comparison **out)
{
    cod_comparison *c = calloc(1, sizeof *c);
    COD_REQUIRE_MEMORY(c);
    c->arguments = arguments;
    c->host = host;
    cod_status status = cod_run_config_load(arguments->path, arguments->overrides, arguments->count, &c->config);
    COD_THEN(status, cod_compare_read(c));
    COD_THEN(status, add_runs(c));
    if (status != COD_OK) {
        cod_comparison_destroy(c);
        return status;
    }
    *out = c;
    return COD_OK;
}

void cod_comparison_destroy(cod_comparison *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->run_count; i++)
        cod_json_free(c->runs[i].summary);
    free(c->runs);
    free(c->arms);
    free(c->config_text);
    cod_run_config_clear(&c->config);
    free(c);
}

cod_status cod_comparison_train(cod_comparison *c)
{
    COD_TRY(cod_compare_tune(c));
    COD_TRY(look_at_all(c));
    for (size_t i = 0; i < c->run_count; i++)
        COD_TRY(train_one(c, &c->runs[i], i + 1));
    return COD_OK;
}

cod_status cod_comparison_preview(cod_comparison *c, FILE *out)
{
    size_t finished = 0, left = 0;
    double wall_s = 0;
    COD_TRY(look_at_all(c));
    if (c->candidate_count > 0)
        fprintf(out, "compare.tune: each of %zu arms is trained with each of %zu candidates first\n", c->arm_count,
                c->candidate_count);
    for (size_t i = 0; i < c->run_count; i++) {
        cod_compare_run *run = &c->runs[i];
        char steps[64] = "as many steps as the budget gives";
        if (run->same != NULL)
            continue;
        if (run->steps > 0)
            snprintf(steps, sizeof steps, "%lld steps", (long long)run->steps);
        if (run->state == COD_COMPARE_FINISHED) {
            COD_TRY(cod_compare_read_summary(c, run));
            wall_s += cod_compare_number(run, "wall_s");
            finished++;
        } else {
            left++;
        }
        fprintf(out, "%s: %s, %s\n", cod_shown(run->name).text, steps,
                run->state == COD_COMPARE_FINISHED ? "finished" : "to be trained");
    }
    fprintf(out, "%zu runs are finished, %zu are to be trained", finished, left);
    if (finished > 0 && left > 0) {
        char time[32];
        describe_time(wall_s, finished, left, time, sizeof time);
        fprintf(out, "; if they take as long, in %s", time);
    }
    fprintf(out, "\n");
    return COD_OK;
}

void cod_comparison_print(const cod_comparison *c, FILE *out)
{
    cod_compare_print_table(c, out);
    cod_compare_print_tuned(c, out);
}

cod_status cod_comparison_write(const cod_comparison *c, char folder[COD_COMPARE_PATH])
{
    snprintf(folder, COD_COMPARE_PATH, "%s/%s-compare", c->config.root.output, c->config.root.name);
    COD_TRY(cod_folder_create(folder));
    return cod_compare_write_json(c, folder);
}

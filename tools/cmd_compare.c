/* `codistill compare`: one configuration trained in several ways, side by side. */
#include "tools/cmd.h"

#include "io/file.h"
#include "report/report.h"
#include "tools/compare.h"
#include "tools/display.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: codistill compare CONFIG.yaml [--strategies LIST] [--seeds LIST] [key.path=value ...]\n\n"
    "Trains the configuration once for each arm of its section `compare`, each seed and each link rate, at equal "
    "budget,\n"
    "prints a table and writes compare.json and a report, report.html, to OUTPUT/NAME-compare. Runs that are finished\n"
    "already are not repeated; one made with another configuration is refused, and not mixed with the others. A run "
    "that\n"
    "fails is noted, and the others go on. A signal is handed on to the run under way, which saves and ends; the same\n"
    "command goes on from there. With compare.tune each arm is trained with each of its candidates first, and its "
    "runs\n"
    "have the one that is best on held-out data.\n\n"
    "  --strategies LIST  instead of compare.arms: strategies such as single,allreduce,local_sgd; codistill_rows "
    "stands\n"
    "                     for distil, merge, both and neither; `single` also runs with as many times the steps as "
    "there\n"
    "                     are groups (single_long)\n"
    "  --seeds LIST       instead of compare.seeds: such as 1,2,3\n";

static cod_status add_runs(comparison *c)
{
    c->runs = calloc(c->arm_count * c->seed_count * c->rate_count + 1, sizeof *c->runs);
    COD_REQUIRE_MEMORY(c->runs);
    for (size_t r = 0; r < c->rate_count; r++)
        for (size_t s = 0; s < c->seed_count; s++)
            for (size_t a = 0; a < c->arm_count; a++) {
                compare_run *run = &c->runs[c->run_count];
                const bool alone = c->arms[a].kind->single_rank;
                *run = (compare_run){.arm = a, .rate = r, .seed = c->seeds[s]};
                const bool plain = !compare_is_in_laboratory(c, run);
                snprintf(run->name, sizeof run->name, "%s-%s%s%s-seed%lld", c->config.root.name, c->arms[a].name,
                         plain ? "" : "-", plain ? "" : c->rates[r], (long long)run->seed);
                if (alone && r > 0)
                    run->same = &c->runs[s * c->arm_count + a];
                c->run_count++;
            }
    return COD_OK;
}

/** Before anything is trained: folders of other configurations, as far as steps are known by then. */
static cod_status look_at_all(comparison *c)
{
    const int kind = c->config.compare.budget;
    for (size_t i = 0; i < c->run_count; i++) {
        compare_run *run = &c->runs[i];
        const bool known = kind == COD_BUDGET_STEPS || kind == COD_BUDGET_SAMPLES || c->arms[run->arm].own_steps;
        if (!known || run->state == COMPARE_FAILED)
            continue;
        COD_TRY(compare_decide_steps(c, run));
        COD_TRY(compare_look_at(c, run));
    }
    return COD_OK;
}

static cod_status train_one(comparison *c, compare_run *run, size_t number)
{
    if (run->same != NULL) {
        run->state = run->same->state;
        memcpy(run->message, run->same->message, sizeof run->message);
        return run->state == COMPARE_FINISHED ? compare_read_summary(c, run) : COD_OK;
    }
    if (run->steps == 0 && run->state != COMPARE_FAILED) {
        COD_TRY(compare_decide_steps(c, run));
        if (run->state != COMPARE_FAILED)
            COD_TRY(compare_look_at(c, run));
    }
    if (compare_is_asked() && run->state == COMPARE_MISSING)
        return compare_stopped(c, run);
    fprintf(stderr, "== %s (%zu of %zu)%s\n", run->name, number, c->run_count,
            run->state == COMPARE_FINISHED ? ": done before" : "");
    if (run->state == COMPARE_MISSING)
        COD_TRY(compare_train(c, run));
    if (run->state == COMPARE_FINISHED)
        return compare_read_summary(c, run);
    fprintf(stderr, "== %s failed: %s\n", run->name, run->message);
    return COD_OK;
}

/** The failure that tells of the runs that failed, if there are any. */
static cod_status report_failures(const comparison *c)
{
    size_t failed = 0;
    const compare_run *first = NULL;
    for (size_t i = 0; i < c->run_count; i++)
        if (c->runs[i].state != COMPARE_FINISHED) {
            first = failed++ == 0 ? &c->runs[i] : first;
        }
    if (failed == 0)
        return COD_OK;
    return cod_fail(COD_ERR_PEER, "%zu of %zu runs failed, the first '%s': %s; the same command tries them again",
                    failed, c->run_count, first->name, first->message);
}

static cod_status write_result(const comparison *c)
{
    char folder[COMPARE_PATH];
    snprintf(folder, sizeof folder, "%s/%s-compare", c->config.root.output, c->config.root.name);
    COD_TRY(cod_folder_create(folder));
    COD_TRY(compare_write_json(c, folder));
    printf("\nwritten to %s/compare.json\n", folder);
    COD_TRY(cod_report_write(folder));
    printf("the report: %s/report.html\n", folder);
    return COD_OK;
}

/** What is there so far, after an interruption, which stays the failure. */
static cod_status write_part(const comparison *c)
{
    char interruption[COMPARE_MESSAGE];
    snprintf(interruption, sizeof interruption, "%s", cod_error_message());
    COD_TRY(write_result(c));
    return cod_fail(COD_ERR_INTERRUPTED, "%s", interruption);
}

static cod_status compare(comparison *c, const char *strategies, const char *seeds)
{
    COD_TRY(cod_run_config_load(c->arguments.path, c->arguments.overrides, c->arguments.count, &c->config));
    COD_TRY(compare_read(c, strategies, seeds));
    COD_TRY(add_runs(c));
    compare_catch_signals();
    cod_status status = compare_tune(c);
    if (status == COD_OK)
        status = look_at_all(c);
    for (size_t i = 0; i < c->run_count && status == COD_OK; i++)
        status = train_one(c, &c->runs[i], i + 1);
    if (status == COD_ERR_INTERRUPTED)
        return write_part(c);
    COD_TRY(status);
    compare_print_table(c);
    compare_print_tuned(c);
    COD_TRY(write_result(c));
    return report_failures(c);
}

int cod_cmd_compare(int argc, char **argv)
{
    comparison c = {0};
    const char *strategies = "", *seeds = "";
    const cod_argument own[] = {{.name = "strategies", .text = &strategies}, {.name = "seeds", .text = &seeds}};
    int code = cod_config_arguments_parse(argc, argv, help, own, 2, &c.arguments);
    if (code < 0) {
        cod_display_open();
        const cod_status status = compare(&c, strategies, seeds);
        code = cod_cmd_end(status);
    }
    for (size_t i = 0; i < c.run_count; i++)
        cod_json_free(c.runs[i].summary);
    free(c.runs);
    free(c.arms);
    free(c.config_text);
    cod_run_config_clear(&c.config);
    cod_config_arguments_clear(&c.arguments);
    return code;
}

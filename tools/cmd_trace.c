/* `codistill trace`: one trace of those of a run's ranks. */
#include "tools/cmd.h"

#include "core/log.h"
#include "io/file.h"
#include "io/json.h"
#include "io/trace_merge.h"
#include "tools/arguments.h"
#include "tools/print.h"
#include "train/config.h"

#include <getopt.h> /* optind */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] =
    "usage: codistill trace RUN [-o FILE]\n\n"
    "Makes one trace of those that the ranks of a training run have written, for ui.perfetto.dev or "
    "chrome://tracing. RUN is the run's folder, which has them as RANK.NAME if it was trained with log.trace=NAME, "
    "such as log.trace=trace.json. Each rank is a process, named after its rank, its group and its host, and each of "
    "its threads a track.\n\n"
    "Ranks of one host share a clock. Clocks of other hosts are aligned to that of the first rank by what was "
    "measured when tracing began, in 32 barriers of all ranks: to about the time of a message. Groups that are jobs "
    "of their own (`train --group`) have measured only inside their job, and stand beside each other by their wall "
    "clocks. A trace that ends in the middle, as that of a rank that was killed or still runs, is read as far as it "
    "goes.\n\n"
    "  -o, --output FILE\twhere the trace goes (RUN/trace.json)\n"
    "  --help\n";

/** A run and the traces in its folder. */
typedef struct traced_run {
    const char *folder, *name; /**< name: of log.trace */
    int ranks;                 /**< of the run; 0 = not known */
    cod_trace_part *parts;
    size_t count;
} traced_run;

/** Ranks of the run by its summary, if it has ended; 0 = not known. */
static int ranks_of_summary(cod_arena *arena, const char *folder)
{
    enum { MOST = 1 << 26 };
    const char *path = cod_path_join(arena, folder, "summary.json");
    void *text = NULL;
    size_t bytes;
    cod_json_value *summary = NULL;
    double ranks = 0;
    if (path != NULL && cod_file_exists(path) && cod_file_read(path, MOST, &text, &bytes) == COD_OK &&
        cod_json_parse(text, bytes, &summary) == COD_OK)
        ranks = cod_json_get_number(cod_json_get(summary, "ranks"), 0);
    cod_json_free(summary);
    free(text);
    return ranks >= 1 && ranks < INT_MAX ? (int)ranks : 0;
}

static cod_status read_config(cod_arena *arena, traced_run *run)
{
    cod_run_config config = {0};
    const char *path = cod_path_join(arena, run->folder, "config.yaml");
    COD_REQUIRE_MEMORY(path);
    COD_REQUIRE(cod_file_exists(path),
                "'%s' is no folder of a training run, which has a config.yaml; of a run it is OUTPUT/NAME",
                run->folder);
    COD_TRY(cod_run_config_load_saved(path, &config));
    run->name = cod_arena_strdup(arena, config.log.trace[0] != '\0' ? config.log.trace : "trace.json");
    run->ranks = ranks_of_summary(arena, run->folder);
    if (run->ranks == 0)
        run->ranks = cod_run_config_ranks(&config);
    cod_run_config_clear(&config);
    COD_REQUIRE_MEMORY(run->name);
    return COD_OK;
}

static int by_rank(const void *a, const void *b)
{
    const cod_trace_part *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/** Finds RANK.NAME of all ranks. */
static cod_status find_parts(cod_arena *arena, traced_run *run)
{
    char suffix[4096];
    cod_string_list names;
    snprintf(suffix, sizeof suffix, ".%s", run->name);
    COD_TRY(cod_folder_list(run->folder, "", suffix, arena, &names));
    run->parts = cod_arena_alloc(arena, (names.count + 1) * sizeof *run->parts);
    COD_REQUIRE_MEMORY(run->parts);
    for (size_t i = 0; i < names.count; i++) {
        uint64_t rank;
        if (!cod_file_number(names.items[i], "", 1, suffix, INT_MAX, &rank))
            continue;
        const char *path = cod_path_join(arena, run->folder, names.items[i]);
        COD_REQUIRE_MEMORY(path);
        run->parts[run->count++] = (cod_trace_part){.path = path, .rank = (int)rank};
    }
    qsort(run->parts, run->count, sizeof *run->parts, by_rank);
    COD_REQUIRE(run->count > 0,
                "'%s' has no traces: train the run with log.trace=trace.json, by which each rank writes "
                "RANK.trace.json there",
                run->folder);
    return COD_OK;
}

static void tell_missing(const traced_run *run)
{
    char missing[256] = "";
    size_t at = 0, used = 0, count = 0;
    for (int rank = 0; rank < run->ranks; rank++) {
        if (at < run->count && run->parts[at].rank == rank) {
            at++;
            continue;
        }
        count++;
        if (used < sizeof missing - 16)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%d", used > 0 ? ", " : "", rank);
    }
    if (count > 0)
        cod_log_warn("%zu of %d ranks have no %s here, and are missing in the trace: %s%s", count, run->ranks,
                     run->name, missing, used >= sizeof missing - 16 ? ", ..." : "");
}

static void tell_part(const cod_trace_part *part)
{
    if (part->cut)
        cod_log_warn("'%s' ends in the middle, as its rank was killed or still runs: %zu events are read", part->path,
                     part->events);
    if (part->damaged > 0)
        cod_log_warn("'%s': %zu lines are no events and are left out", part->path, part->damaged);
    if (part->group < 0)
        cod_log_warn("'%s' says nothing of its rank, as those of earlier versions: its wall clock stands", part->path);
}

/** "2 ranks on 2 hosts, 1234 events; clocks of other hosts moved by at most 1.2 ms, known to 0.05 ms" */
static void tell_result(const traced_run *run, const char *output)
{
    size_t events = 0, hosts = 0;
    double moved = 0, spread = 0;
    char clocks[128] = "";
    for (size_t i = 0; i < run->count; i++) {
        const cod_trace_part *part = &run->parts[i];
        bool first = true;
        for (size_t k = 0; k < i; k++)
            first = first && strcmp(run->parts[k].host, part->host) != 0;
        tell_part(part);
        events += part->events;
        hosts += first;
        moved = fmax(moved, fabs(part->moved_us));
        spread = part->moved_us != 0 ? fmax(spread, part->clock_spread_us) : spread;
    }
    if (moved > 0)
        snprintf(clocks, sizeof clocks, ", whose clocks are moved by at most %.3g ms, known to %.2g ms", 1e-3 * moved,
                 1e-3 * spread);
    cod_print(stdout, "written to %s: %zu rank%s on %zu host%s%s; %zu events; open it at ui.perfetto.dev\n", output,
              run->count, run->count == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s", clocks, events);
}

static cod_status check_output(const char *input, const char *output)
{
    struct stat first, second;
    COD_REQUIRE(stat(input, &first) != 0 || stat(output, &second) != 0 || first.st_dev != second.st_dev ||
                    first.st_ino != second.st_ino,
                "%s: the output would replace a rank's trace; name another file", output);
    return COD_OK;
}

static cod_status merge(cod_arena *arena, const char *folder, const char *output)
{
    traced_run run = {.folder = folder};
    COD_TRY(read_config(arena, &run));
    COD_TRY(find_parts(arena, &run));
    if (output == NULL)
        output = cod_path_join(arena, folder, "trace.json");
    COD_REQUIRE_MEMORY(output);
    for (size_t i = 0; i < run.count; i++)
        COD_TRY(check_output(run.parts[i].path, output));
    COD_TRY(cod_trace_merge(run.parts, run.count, output));
    tell_missing(&run);
    tell_result(&run, output);
    return COD_OK;
}

int cod_cmd_trace(int argc, char **argv)
{
    const char *output = NULL;
    cod_arena arena = {0};
    const cod_argument own[] = {{.name = "output", .letter = 'o', .text = &output, .words = COD_WORDS_FILES}};
    const int code = cod_arguments_parse(argc, argv, help, own, 1, NULL, NULL);
    if (code >= 0)
        return code;
    if (argc == optind)
        return cod_cmd_usage(argv[0], "RUN is missing: the folder of a training run");
    if (argc - optind > 1)
        return cod_cmd_usage(argv[0], "one RUN is wanted, not also '%s'", argv[optind + 1]);
    const cod_status status = merge(&arena, argv[optind], output);
    cod_arena_clear(&arena);
    return cod_cmd_end(status);
}

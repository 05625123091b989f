/* `codistill bench exchange`: the exchange alone in shared memory, or by a script training over slow links. */
#include "tools/bench/exchange.h"

#include "io/json.h"
#include "io/script.h"
#include "tools/arguments.h"
#include "tools/bench/bench.h"
#include "tools/cmd.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: mpirun -n RANKS codistill bench exchange [options] [option=value ...]\n"
    "       codistill bench exchange --net [options]\n\n"
    "Measures what the exchange costs. The ranks of this host form groups, compute for a fixed time in each step, "
    "and exchange weights that change by 0.03 of their size between two publications. Prints the time of a step "
    "without and with the exchange, the time that the exchange takes of the training thread and of the progress "
    "thread, the time from a publication to its use, and the bytes. option=value sets an option of section "
    "`exchange`, such as codec=int8.\n\n"
    "  --weights N\tnumber of weights (1500000)\n"
    "  --period N\tsteps from one publication to the next (50)\n"
    "  --publications N\tpublications of each group (20)\n"
    "  --groups N\tnumber of groups (2)\n"
    "  --step-ms X\tmilliseconds of computing in a step (10)\n"
    "  --sleep\tsleep in a step instead of computing, as a host does while its GPU computes\n"
    "  --one-clock\tranks run on several hosts that share one clock, as in tools/netlab.sh\n"
    "  --json\tprint one JSON object\n"
    "  --net\ttrain over links of several speeds instead, with codistill and with allreduce; --net --help explains "
    "this\n"
    "  --help\n";

typedef struct arguments {
    cod_bench_exchange_options options;
    const char *weights, *period, *publications, *groups, *step_ms;
    bool json;
} arguments;

/** Replaces this process by the script, which lies in the source tree that this program was built in. */
static int run_script(int argc, char **argv)
{
    static const char script[] = "tools/bench/exchange_net.sh";
    char self[4096], path[COD_SCRIPT_PATH];
    const cod_status status = cod_script_find(script, path, self);
    if (status != COD_OK)
        return cod_cmd_failed(cod_fail_prefix(status, "--net"));
    char **args = calloc((size_t)argc + 4, sizeof *args);
    if (args == NULL)
        return cod_cmd_failed(cod_fail(COD_ERR_MEMORY, "no memory for %d arguments", argc));
    int used = 0;
    args[used++] = path;
    args[used++] = "--codistill";
    args[used++] = self;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--net") != 0)
            args[used++] = argv[i];
    execv(path, args);
    free(args);
    return cod_cmd_failed(cod_fail(COD_ERR_IO, "cannot start %s", path));
}

cod_status cod_bench_exchange_set(cod_exchange_options *exchange, const char *text, cod_arena *arena)
{
    const char *equals = strchr(text, '=');
    COD_REQUIRE(equals != NULL, "'%s' is not option=value", text);
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    const cod_option *option = cod_option_find(&cod_exchange_option_table, key);
    COD_REQUIRE(option != NULL, "exchange has no option '%s'; `codistill config` lists them", key);
    const char *value = equals + 1;
    if (cod_option_set(option, exchange, &value, 1, arena) != COD_OK)
        return cod_fail_prefix(COD_ERR_ARGUMENT, "%s", key);
    return COD_OK;
}

/** Reads the options; returns the exit code, or -1 to go on. */
static int parse(int argc, char **argv, arguments *a, cod_arena *arena)
{
    enum { MOST_WEIGHTS = 1000000000, MOST_PERIOD = 1000000, MOST_PUBLICATIONS = 100000, MOST_GROUPS = 4096 };
    cod_bench_exchange_options *o = &a->options;
    const cod_argument own[] = {
        {.name = "weights", .text = &a->weights},     {.name = "period", .text = &a->period},
        {.name = "groups", .text = &a->groups},       {.name = "publications", .text = &a->publications},
        {.name = "json", .flag = &a->json},           {.name = "step-ms", .text = &a->step_ms},
        {.name = "one-clock", .flag = &o->one_clock}, {.name = "sleep", .flag = &o->sleep}};
    long weights = 1500000, period = 50, publications = 20, groups = 2;
    int code = cod_arguments_parse(argc, argv, help, own, sizeof own / sizeof own[0], NULL, NULL);
    code = code < 0 ? cod_argument_number(argv[0], "weights", a->weights, 1, MOST_WEIGHTS, &weights) : code;
    code = code < 0 ? cod_argument_number(argv[0], "period", a->period, 1, MOST_PERIOD, &period) : code;
    code = code < 0 ? cod_argument_number(argv[0], "publications", a->publications, 1, MOST_PUBLICATIONS, &publications)
                    : code;
    code = code < 0 ? cod_argument_number(argv[0], "groups", a->groups, 2, MOST_GROUPS, &groups) : code;
    char *end = "";
    o->step_ms = a->step_ms != NULL ? strtod(a->step_ms, &end) : 10;
    if (code < 0 && (end == a->step_ms || *end != '\0' || !(o->step_ms > 0 && o->step_ms <= 1e5)))
        code = cod_cmd_usage(argv[0], "--step-ms: '%s' is not a number above 0 and up to 1e5", a->step_ms);
    if (code >= 0)
        return code;
    cod_status status = cod_options_set_defaults(&cod_exchange_option_table, &o->exchange, arena);
    for (int i = optind; i < argc && status == COD_OK; i++)
        status = cod_bench_exchange_set(&o->exchange, argv[i], arena);
    o->exchange.period = period;
    o->exchange.anew = true;
    o->weights = weights;
    o->publications = publications;
    o->groups = (int)groups;
    return status == COD_OK ? -1 : cod_cmd_failed(status);
}

static cod_status print_json(const cod_comm *comm, const cod_bench_exchange_options *o,
                             const cod_bench_exchange_result *r)
{
    cod_json json = {.indent = 2};
    char *text;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"step_alone_ms", r->alone_ms},
                   {"step_alone_p99_ms", r->alone_p99_ms},
                   {"step_ms", r->step_ms},
                   {"step_p99_ms", r->step_p99_ms},
                   {"exchange_ms_per_step", r->exchange_ms},
                   {"progress_ms_per_step", r->progress_ms},
                   {"processors", r->processors},
                   {"publication_to_use_ms", r->use_ms},
                   {"publication_to_use_p99_ms", r->use_p99_ms},
                   {"staleness_steps", r->staleness_steps},
                   {"bandwidth_bytes_per_s", r->bandwidth},
                   {"published_bytes_per_step", r->published_bytes},
                   {"ratio", r->ratio},
                   {"publications", r->published},
                   {"takeovers", r->taken},
                   {"lost", r->lost},
                   {"rejected", r->rejected}};
    cod_json_open(&json, NULL, '{');
    cod_json_string(&json, "library", cod_comm_library(comm));
    cod_json_integer(&json, "ranks", cod_comm_size(comm));
    cod_json_integer(&json, "groups", o->groups);
    cod_json_integer(&json, "weights", o->weights);
    cod_json_integer(&json, "period", o->exchange.period);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        cod_json_number(&json, numbers[i].key, numbers[i].value);
    cod_json_close(&json);
    COD_TRY(cod_json_end(&json, &text));
    puts(text);
    free(text);
    return COD_OK;
}

static void print_text(const cod_comm *comm, const cod_bench_exchange_options *o, const cod_bench_exchange_result *r)
{
    printf("%s, %d groups of %d, %lld weights, a publication every %lld steps\n", cod_comm_library(comm), o->groups,
           cod_comm_size(comm) / o->groups, (long long)o->weights, (long long)o->exchange.period);
    printf("step alone        %9.2f ms, 99th percentile %.2f\n", r->alone_ms, r->alone_p99_ms);
    printf("step with it      %9.2f ms, 99th percentile %.2f (%+.1f %%)\n", r->step_ms, r->step_p99_ms,
           100 * (r->step_ms / r->alone_ms - 1));
    printf("in the exchange   %9.3f ms a step\n", r->exchange_ms);
    printf("progress thread   %9.3f ms of processor time a step; the rank uses %.2f processors\n", r->progress_ms,
           r->processors);
    printf("published         %9.0f bytes a step by all ranks, %.1f times fewer than f32\n", r->published_bytes,
           r->ratio);
    printf("publication to use%9.1f ms, 99th percentile %.1f; %.0f steps; %.1f MB/s of f32\n", r->use_ms, r->use_p99_ms,
           r->staleness_steps, 1e-6 * r->bandwidth);
    printf("taken over %.0f times by all ranks, lost %.0f, rejected %.0f\n", r->taken, r->lost, r->rejected);
}

static cod_status measure(const arguments *a)
{
    cod_comm *comm = NULL;
    cod_bench_exchange_result result;
    COD_TRY(cod_comm_init(NULL, &comm));
    cod_status status = cod_bench_exchange_run(comm, &a->options, &result);
    if (cod_comm_rank(comm) == 0 && a->json)
        COD_THEN(status, print_json(comm, &a->options, &result));
    else if (status == COD_OK && cod_comm_rank(comm) == 0)
        print_text(comm, &a->options, &result);
    const cod_status ended = cod_comm_finalize(comm);
    return status == COD_OK ? ended : status;
}

int cod_bench_exchange(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--net") == 0)
            return run_script(argc, argv);
    arguments a = {0};
    cod_arena arena = {0};
    int code = parse(argc, argv, &a, &arena);
    if (code < 0) {
        const cod_status status = measure(&a);
        code = cod_cmd_end(status);
    }
    cod_arena_clear(&arena);
    return code;
}

/* `codistill plan`: what would run where, without running it. */
#include "tools/cmd.h"

#include "comm/binding.h"
#include "core/rng.h"
#include "core/trace.h"
#include "infer/upscaler.h"
#include "nn/compile.h"
#include "nn/optimiser.h"
#include "train/config.h"
#include "train/strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: codistill plan CONFIG.yaml [key.path=value ...]\n\n"
    "Starts nothing: prints the map of ranks to groups, processors and threads, the memory of a rank, the bytes that "
    "move a step "
    "and a\n"
    "publication, and the step time, predicted from three steps timed in this process on random data.\n";

typedef struct planned {
    const cod_backend *backend;
    cod_device *device;
    cod_dtype activation;
    cod_model model;
    cod_weights weights;
    cod_executable *executable;
    double step_ms;
} planned;

/** The binding of one of `ranks` on this machine, as `codistill train` would start them here. */
static cod_binding bind_here(int ranks, int rank, bool *known)
{
    cod_binding binding = {.kind = COD_BINDING_CROWDED, .threads = 1};
    cod_seat *seats = calloc((size_t)ranks, sizeof *seats);
    *known = seats != NULL;
    for (int r = 0; *known && r < ranks; r++)
        seats[r].given = cod_processors_allowed();
    if (*known)
        binding = cod_binding_decide(seats, ranks, rank, cod_processors_quota(), COD_TOPOLOGY_FOLDER);
    free(seats);
    return binding;
}

static int threads_of_rank(const cod_run_config *config)
{
    const int ranks = cod_run_config_ranks(config);
    bool known;
    if (config->cluster.threads > 0)
        return (int)config->cluster.threads;
    return bind_here(ranks > 0 ? ranks : 1, 0, &known).threads;
}

/** Where each rank would compute if all were on this machine. */
static void print_processors(const cod_run_config *config)
{
    enum { SHOWN = 64 };
    const int ranks = cod_run_config_ranks(config);
    bool known = true;
    char text[128];
    if (ranks == 0 || config->cluster.bind == COD_BIND_NONE) {
        puts(ranks == 0 ? "each node's cores are divided among its ranks" : "ranks are not confined to cores");
        return;
    }
    puts("on this machine alone:");
    for (int r = 0; known && r < ranks && r < SHOWN; r++) {
        const cod_binding binding = bind_here(ranks, r, &known);
        const int threads = config->cluster.threads > 0 ? (int)config->cluster.threads : binding.threads;
        cod_processors_format(&binding.set, text, sizeof text);
        printf("  rank %d: processors %s%s, %d thread%s\n", r, text,
               binding.kind == COD_BINDING_CROWDED ? ", shared with other ranks" : "", threads,
               threads == 1 ? "" : "s");
    }
    if (ranks > SHOWN)
        printf("  ... and %d ranks more\n", ranks - SHOWN);
}

static cod_status build(const cod_run_config *config, const cod_group_config *group, planned *p)
{
    const int threads = threads_of_rank(config);
    p->backend = cod_backend_find(config->train.backend);
    COD_TRY(p->backend->open(&(cod_device_options){.threads = threads}, &p->device));
    COD_TRY(cod_precision_dtype((cod_precision)config->train.precision, p->backend, p->device, &p->activation));
    COD_TRY(cod_model_build(group->kind, group->architecture, &p->model));
    const cod_value target = cod_graph_input_like(p->model.graph, "target", p->model.output);
    const cod_value loss =
        cod_graph_loss(p->model.graph, "task", p->model.output, target, (cod_loss_spec){.kind = COD_LOSS_L1});
    COD_TRY(cod_weights_init(&p->weights, p->backend, p->device, p->model.graph, COD_F32, true));
    COD_TRY(cod_weights_fill_initial(&p->weights, 1));
    const cod_input_shape input = {"input", {config->data.batch, config->data.patch, config->data.patch, 3}};
    const cod_program_spec spec = {.name = "plain", .trains = "model", .losses = {loss}};
    const cod_compile_options options = {.activation = p->activation, .inputs = &input, .input_count = 1};
    return cod_compile(p->model.graph, &p->weights, &options, &spec, 1, &p->executable);
}

static cod_status predict(planned *p)
{
    cod_program *program = cod_executable_program(p->executable, "plain");
    p->step_ms = INFINITY;
    for (int i = 0; i < 4; i++) {
        const double start = cod_clock_s();
        COD_TRY(cod_program_run(program, NULL, NULL));
        p->step_ms = fmin(p->step_ms, 1e3 * (cod_clock_s() - start));
    }
    return COD_OK;
}

static bool is_one_group(const cod_run_config *config)
{
    return config->strategy->one_group || config->strategy->single_rank || config->group_count == 0;
}

static void print_map(const cod_run_config *config)
{
    int rank = 0;
    printf("strategy %s: %s\n", config->strategy->name, config->strategy->help);
    const int ranks = cod_run_config_ranks(config);
    if (ranks == 0)
        puts("one group a node, as many ranks as the launcher starts");
    else if (is_one_group(config))
        printf("  group 0: ranks 0 to %d\n", ranks - 1);
    for (size_t g = 0; !is_one_group(config) && g < config->group_count; g++) {
        printf("  group %zu: ranks %d to %d\n", g, rank, rank + config->groups[g].ranks - 1);
        rank += config->groups[g].ranks;
    }
}

static void print_figures(const cod_run_config *config, const cod_group_config *group, const planned *p)
{
    const double weights = 4.0 * (double)cod_weights_count(&p->weights),
                 gradients = 4.0 * (double)p->weights.layout.trainable;
    const double moments = config->train.optimiser == COD_OPT_SGD ? gradients : 2 * gradients;
    const int size = config->strategy->one_group ? cod_run_config_ranks(config) : group->ranks;
    printf("model %s: %zu parameters; %s activations; %s\n", p->model.kind->name, p->weights.layout.trainable,
           cod_dtype_name(p->activation), p->backend->describe(p->device));
    printf("  memory of a rank: weights %.1f MB, gradients %.1f MB, optimiser %.1f MB, activations %.1f MB\n",
           weights / 1e6, gradients / 1e6, moments / 1e6, (double)cod_executable_bytes(p->executable) / 1e6);
    printf("  a step: %lld pictures a rank, about %.1f ms in this process, teachers not counted",
           (long long)(config->data.batch * config->train.accumulate), p->step_ms * (double)config->train.accumulate);
    if (size > 1)
        printf("; %.1f MB a rank all-reduced inside the group", 2 * gradients * (size - 1) / size / 1e6);
    const double total = p->step_ms * (double)config->train.accumulate * (double)config->train.steps / 1e3;
    printf("\n  all %lld steps: about %.0f min\n", (long long)config->train.steps, total / 60);
    printf("  a publication: %.2f MB as f32, about %.2f MB as int8\n", weights / 1e6, weights / 3.97e6);
}

/** Builds and times what a group trains. */
static cod_status plan_group(const cod_run_config *config, const cod_group_config *group)
{
    planned p = {0};
    cod_status status = build(config, group, &p);
    if (status == COD_OK)
        status = predict(&p);
    if (status == COD_OK)
        print_figures(config, group, &p);
    cod_executable_destroy(p.executable);
    if (p.weights.backend != NULL)
        cod_weights_clear(&p.weights);
    cod_model_clear(&p.model);
    if (p.device != NULL)
        p.backend->close(p.device);
    return status;
}

static bool same_plan(const cod_group_config *a, const cod_group_config *b)
{
    return a->architecture == b->architecture && a->ranks == b->ranks;
}

/** Each model that differs by configuration once. */
static cod_status plan(const cod_run_config *config)
{
    print_map(config);
    print_processors(config);
    if (is_one_group(config)) {
        putchar('\n');
        return plan_group(config, &config->whole);
    }
    for (size_t g = 0; g < config->group_count; g++) {
        size_t first = 0;
        while (!same_plan(&config->groups[first], &config->groups[g]))
            first++;
        if (first < g)
            continue;
        printf("\ngroup %zu", g);
        for (size_t i = g + 1; i < config->group_count; i++)
            if (same_plan(&config->groups[i], &config->groups[g]))
                printf(", %zu", i);
        printf(": ");
        COD_TRY(plan_group(config, &config->groups[g]));
    }
    return COD_OK;
}

int cod_cmd_plan(int argc, char **argv)
{
    const char **overrides = calloc((size_t)argc + 1, sizeof *overrides), *path = NULL;
    size_t count = 0;
    if (overrides == NULL)
        return COD_EXIT_FAILED;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            free(overrides);
            return COD_EXIT_OK;
        }
        if (strchr(argv[i], '=') != NULL)
            overrides[count++] = argv[i];
        else if (path == NULL && argv[i][0] != '-')
            path = argv[i];
        else {
            free(overrides);
            return cod_cmd_usage(argv[0], "'%s' is neither an option nor key=value", argv[i]);
        }
    }
    if (path == NULL) {
        free(overrides);
        return cod_cmd_usage(argv[0], "a configuration file is missing");
    }
    cod_run_config config = {0};
    cod_status status = cod_run_config_load(path, overrides, count, &config);
    if (status == COD_OK)
        status = plan(&config);
    const int code = status == COD_OK ? COD_EXIT_OK : cod_cmd_failed(status);
    cod_run_config_clear(&config);
    free(overrides);
    return code;
}

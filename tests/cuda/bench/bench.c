#include "bench/bench.h"

#include "core/queue.h"
#include "core/rng.h"

#include <stdlib.h>

enum { SEED = 3 };

static bool is_classifier(const bench *b)
{
    return b->model.task == COD_TASK_CLASSIFICATION;
}

static cod_status compile(bench *b, const bench_case *which, bool taught)
{
    cod_graph *graph = b->model.graph;
    const cod_loss_spec task = {.kind = is_classifier(b) ? COD_LOSS_CROSS_ENTROPY : COD_LOSS_L1};
    const cod_loss_spec lesson = {.kind = is_classifier(b) ? COD_LOSS_KL : COD_LOSS_L1, .weight = 0.1F};
    const cod_value target = cod_graph_input_like(graph, "target", b->model.output);
    b->loss = cod_graph_loss(graph, "task", b->model.output, target, task);
    if (taught)
        b->lesson = cod_graph_loss(graph, "lesson", b->model.output,
                                   cod_graph_input_like(graph, "teacher", b->model.output), lesson);
    const cod_input_shape input = {"input", which->input};
    const cod_compile_options options = {.activation = which->activation, .inputs = &input, .input_count = 1};
    const cod_program_spec specs[] = {
        {.name = "step", .trains = "model", .losses = {b->loss}},
        {.name = "distil", .trains = "model", .losses = {b->loss, b->lesson}, .awaited = taught ? "teacher" : NULL}};
    return net_init(&b->net, which->backend, graph, &options, specs, taught ? 2 : 1, SEED);
}

/** Filled by a picture enlarged by repeating its pixels, with noise. */
static void enlarge(const double *input, cod_shape from, double *target, cod_shape to, cod_rng *rng)
{
    const int64_t scale = to.h / from.h;
    size_t at = 0;
    for (int64_t n = 0; n < to.n; n++)
        for (int64_t y = 0; y < to.h; y++)
            for (int64_t x = 0; x < to.w; x++)
                for (int64_t c = 0; c < to.c; c++) {
                    const int64_t pixel = (n * from.h + y / scale) * from.w + x / scale;
                    target[at++] = input[pixel * from.c + c] + 0.1 * cod_rng_normal(rng);
                }
}

/** One-hot: the class is the largest of as many elements of the input as there are classes. */
static void classify(const double *input, size_t elements, double *target, cod_shape to)
{
    const size_t classes = (size_t)to.c, apart = elements / classes > 0 ? elements / classes : 1;
    for (size_t n = 0; n < (size_t)to.n; n++) {
        size_t best = 0;
        for (size_t k = 1; k < classes && k * apart < elements; k++)
            if (input[n * elements + k * apart] > input[n * elements + best * apart])
                best = k;
        target[n * classes + best] = 1;
    }
}

cod_status bench_batch(const bench *b, int number, double **input, double **target)
{
    const cod_shape from = cod_executable_input(b->net.executable, "input").shape;
    const cod_shape to = cod_executable_input(b->net.executable, "target").shape;
    const size_t count = (size_t)cod_shape_count(from);
    cod_rng rng = cod_rng_open(SEED, 0, 0, (uint64_t)(number % BENCH_BATCHES), COD_RNG_TEST, 0);
    *input = net_new(count);
    *target = net_new((size_t)cod_shape_count(to));
    for (size_t i = 0; i < count; i++)
        (*input)[i] = cod_rng_uniform(&rng);
    if (is_classifier(b))
        classify(*input, count / (size_t)from.n, *target, to);
    else
        enlarge(*input, from, *target, to, &rng);
    return COD_OK;
}

static cod_status fill(bench *b)
{
    double *input, *target;
    COD_TRY(bench_batch(b, 0, &input, &target));
    cod_status status = net_write(&b->net, cod_executable_input(b->net.executable, "input"), input);
    COD_THEN(status, net_write(&b->net, cod_executable_input(b->net.executable, "target"), target));
    free(input);
    free(target);
    return status;
}

cod_status bench_open(bench *b, const bench_case *which, bool taught)
{
    const cod_optimiser_options options = {
        .kind = which->optimiser, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    *b = (bench){0};
    COD_TRY(net_model(which->model, which->options, &b->arena, &b->model));
    COD_TRY(compile(b, which, taught));
    COD_TRY(cod_weights_fill_initial(&b->net.weights, SEED));
    COD_TRY(fill(b));
    return cod_optimiser_create(&b->net.weights, 0, &options, &b->optimiser);
}

void bench_close(bench *b)
{
    cod_optimiser_destroy(b->optimiser);
    net_clear(&b->net);
    cod_model_clear(&b->model);
    cod_arena_clear(&b->arena);
    *b = (bench){0};
}

cod_status bench_step(bench *b, const char *program, double rate)
{
    cod_program *found = cod_executable_program(b->net.executable, program);
    COD_REQUIRE(found != NULL, "no program '%s'", program);
    return cod_optimiser_run(b->optimiser, found, rate, ++b->steps);
}

cod_status bench_finish(const bench *b)
{
    return cod_queue_finish(b->net.backend, b->net.device, NULL);
}

/*
 * A training step on the GPU, timed: forward, backward, Adam, as replayed recordings without the host.
 *
 * usage: bench_cuda_step MODEL "OPTIONS" N H W C, such as bench_cuda_step srresnet "" 16 24 24 3. Prints one line of JSON.
 */
#include "core/queue.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "cuda/cuda.h"
#include "nn/net.h"
#include "nn/optimiser.h"

#include <stdio.h>
#include <stdlib.h>

enum { WARM = 5, ROUNDS = 25, STEPS = 10 };

typedef struct bench {
    test_net net;
    cod_optimiser *optimiser;
    cod_value loss;
    int64_t steps;
} bench;

static cod_status step(bench *b)
{
    COD_TRY(net_run(&b->net, "step"));
    return cod_optimiser_step(b->optimiser, 1e-4, ++b->steps);
}

static cod_status timed(bench *b, int steps, double *ms)
{
    const double begin = cod_clock_s();
    for (int i = 0; i < steps; i++)
        COD_TRY(step(b));
    COD_TRY(cod_queue_finish(b->net.backend, b->net.device, NULL));
    *ms = 1e3 * (cod_clock_s() - begin) / steps;
    return COD_OK;
}

static cod_status make(bench *b, cod_model *model, cod_shape input)
{
    const cod_value target = cod_graph_input_like(model->graph, "target", model->output);
    const cod_loss_spec kind = {.kind = model->task == COD_TASK_CLASSIFICATION ? COD_LOSS_KL : COD_LOSS_L1};
    b->loss = cod_graph_loss(model->graph, "task", model->output, target, kind);
    const cod_input_shape shape = {"input", input};
    const cod_compile_options options = {.activation = COD_BF16, .inputs = &shape, .input_count = 1};
    const cod_program_spec spec = {.name = "step", .trains = "model", .losses = {b->loss}};
    const cod_optimiser_options adam = {.kind = COD_OPT_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    COD_TRY(net_init(&b->net, &cod_cuda_backend, model->graph, &options, &spec, 1, 1));
    return cod_optimiser_create(&b->net.weights, 0, &adam, &b->optimiser);
}

static cod_status run(char **argv)
{
    cod_arena arena = {0};
    cod_model model;
    bench b = {0};
    double first_ms, warm_ms, ms[ROUNDS];
    float loss;
    size_t free_bytes, total_bytes;
    const cod_shape input = {atoll(argv[3]), atoll(argv[4]), atoll(argv[5]), atoll(argv[6])};
    const double begin = cod_clock_s();
    COD_TRY(net_model(argv[1], argv[2], &arena, &model));
    COD_TRY(make(&b, &model, input));
    COD_TRY(timed(&b, 1, &first_ms));
    const double ready_s = cod_clock_s() - begin;
    COD_TRY(timed(&b, WARM, &warm_ms));
    for (int i = 0; i < ROUNDS; i++)
        COD_TRY(timed(&b, STEPS, &ms[i]));
    COD_TRY(cod_executable_loss(b.net.executable, b.loss, &loss));
    COD_TRY(b.net.backend->memory(b.net.device, &free_bytes, &total_bytes));
    printf("{\"model\": \"%s\", \"options\": \"%s\", \"batch\": %lld, \"step_ms\": %.4f, \"first_step_s\": %.2f, "
           "\"card_used_mib\": %.0f, \"loss\": %g, \"device\": \"%s\"}\n",
           argv[1], argv[2], (long long)input.n, cod_median(ms, ROUNDS), ready_s,
           (double)(total_bytes - free_bytes) / (1 << 20), (double)loss, b.net.backend->describe(b.net.device));
    cod_optimiser_destroy(b.optimiser);
    net_clear(&b.net);
    cod_model_clear(&model);
    cod_arena_clear(&arena);
    return COD_OK;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: bench_cuda_step MODEL OPTIONS N H W C\n");
        return 2;
    }
    const cod_status status = run(argv);
    if (status == COD_OK)
        return 0;
    fprintf(stderr, "bench_cuda_step: %s\n", cod_error_message());
    return status == COD_ERR_UNSUPPORTED ? 77 : 1;
}

/* The first steps' losses from weights and batches that others can have, too. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

static const double rate = 1e-4;

static cod_status write_file(const char *folder, const char *name, const float *values, size_t count)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return cod_fail(COD_ERR_IO, "cannot write '%s'; is '%s' a folder?", path, folder);
    const bool written = fwrite(values, sizeof *values, count, file) == count;
    return fclose(file) == 0 && written ? COD_OK : cod_fail(COD_ERR_IO, "cannot write '%s'", path);
}

static cod_status write_doubles(const char *folder, const char *name, const double *values, size_t count)
{
    float *floats = malloc((count + 1) * sizeof *floats);
    COD_REQUIRE_MEMORY(floats);
    for (size_t i = 0; i < count; i++)
        floats[i] = (float)values[i];
    const cod_status status = write_file(folder, name, floats, count);
    free(floats);
    return status;
}

/** weights.f32: the parameters in PyTorch's layout, one after the other; weights.json names them. */
static cod_status write_weights(const bench *b, const char *folder)
{
    const size_t count = cod_weights_count(&b->net.weights);
    float *ours = calloc(count + 1, sizeof *ours), *torch = calloc(count + 1, sizeof *torch);
    char path[4096];
    size_t used = 0;
    snprintf(path, sizeof path, "%s/weights.json", folder);
    FILE *file = fopen(path, "w");
    cod_status status = file != NULL && ours != NULL && torch != NULL ? cod_weights_download(&b->net.weights, ours)
                                                                      : cod_fail(COD_ERR_IO, "cannot write '%s'", path);
    for (size_t i = 0; status == COD_OK && i < cod_graph_param_count(b->net.graph); i++) {
        const cod_param *param = cod_graph_param(b->net.graph, i);
        int64_t dims[4];
        cod_param_to_torch(param, ours + param->offset, torch + used, dims);
        fprintf(file, "%s{\"name\": \"%s\", \"offset\": %zu, \"shape\": [", i == 0 ? "[" : ",\n", param->name, used);
        for (int d = 0; d < param->rank; d++)
            fprintf(file, "%s%lld", d == 0 ? "" : ", ", (long long)dims[d]);
        fprintf(file, "]}");
        used += (size_t)cod_shape_count(param->shape);
    }
    if (file != NULL && (fputs("]\n", file) < 0 || fclose(file) != 0) && status == COD_OK)
        status = cod_fail(COD_ERR_IO, "cannot write '%s'", path);
    COD_THEN(status, write_file(folder, "weights.f32", torch, used));
    free(ours);
    free(torch);
    return status;
}

static size_t count_of(const bench *b, const char *input)
{
    return (size_t)cod_shape_count(cod_executable_input(b->net.executable, input).shape);
}

/** inputI.f32 and targetI.f32, NHWC. */
static cod_status write_batch(const bench *b, const char *folder, int number, const double *input, const double *target)
{
    char name[32];
    snprintf(name, sizeof name, "input%d.f32", number);
    COD_TRY(write_doubles(folder, name, input, count_of(b, "input")));
    snprintf(name, sizeof name, "target%d.f32", number);
    return write_doubles(folder, name, target, count_of(b, "target"));
}

static cod_status train(bench *b, double *inputs[BENCH_BATCHES], double *targets[BENCH_BATCHES], int steps)
{
    float loss;
    printf("{\"losses\": [");
    for (int i = 0; i < steps; i++) {
        const int number = i % BENCH_BATCHES;
        COD_TRY(net_write(&b->net, cod_executable_input(b->net.executable, "input"), inputs[number]));
        COD_TRY(net_write(&b->net, cod_executable_input(b->net.executable, "target"), targets[number]));
        COD_TRY(bench_step(b, "step", rate));
        COD_TRY(cod_executable_loss(b->net.executable, b->loss, &loss));
        printf("%s%.9g", i == 0 ? "" : ", ", (double)loss);
    }
    printf("], \"rate\": %g, \"batches\": %d}\n", rate, BENCH_BATCHES);
    return COD_OK;
}

cod_status bench_losses(const bench_case *which, int steps, const char *folder)
{
    bench b;
    double *inputs[BENCH_BATCHES] = {NULL}, *targets[BENCH_BATCHES] = {NULL};
    cod_status status = bench_open(&b, which, false);
    for (int i = 0; status == COD_OK && i < BENCH_BATCHES; i++) {
        status = bench_batch(&b, i, &inputs[i], &targets[i]);
        if (folder != NULL)
            COD_THEN(status, write_batch(&b, folder, i, inputs[i], targets[i]));
    }
    if (folder != NULL)
        COD_THEN(status, write_weights(&b, folder));
    COD_THEN(status, train(&b, inputs, targets, steps));
    for (int i = 0; i < BENCH_BATCHES; i++) {
        free(inputs[i]);
        free(targets[i]);
    }
    bench_close(&b);
    return status;
}

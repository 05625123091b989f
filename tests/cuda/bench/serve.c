/* Steps on request, so that another program can take turns with this one. */
#include "bench/bench.h"

#include "core/trace.h"

#include <stdio.h>
#include <string.h>

static const double rate = 1e-4;
static const double turn_s = 0.06; /**< that an answer's steps take, or one step */

enum { MOST_STEPS = 200 };

/** What the device's memory has free. */
static cod_status free_mib(const bench_case *which, double *mib)
{
    cod_device *device;
    size_t free_bytes = 0, total_bytes;
    COD_TRY(which->backend->open(NULL, &device));
    const cod_status status =
        which->backend->memory != NULL ? which->backend->memory(device, &free_bytes, &total_bytes) : COD_OK;
    which->backend->close(device);
    *mib = (double)free_bytes / (1 << 20);
    return status;
}

/** @param[out] host_ms  of that, until the host had queued the steps */
static cod_status timed(bench *b, int steps, double *ms, double *host_ms)
{
    const double begin = cod_clock_s();
    for (int i = 0; i < steps; i++)
        COD_TRY(bench_step(b, "step", rate));
    *host_ms = 1e3 * (cod_clock_s() - begin) / steps;
    COD_TRY(bench_finish(b));
    *ms = 1e3 * (cod_clock_s() - begin) / steps;
    return COD_OK;
}

static cod_status answer(bench *b, const bench_case *which, const char *line, int steps)
{
    double ms, host_ms;
    if (strcmp(line, "ops\n") == 0)
        return bench_ops(b, which);
    COD_REQUIRE(strcmp(line, "step\n") == 0, "'%.*s' is neither step nor ops", (int)strcspn(line, "\n"), line);
    COD_TRY(timed(b, steps, &ms, &host_ms));
    printf("{\"ms\": %.5f, \"host_ms\": %.5f, \"steps\": %d}\n", ms, host_ms, steps);
    return COD_OK;
}

/** Of buffers and plans; 0 where the backend does not count them. */
static double own_mib(const bench *b)
{
    const cod_backend *backend = b->net.backend;
    return backend->allocated != NULL ? (double)backend->allocated(b->net.device) / (1 << 20) : 0;
}

static cod_status serve(bench *b, const bench_case *which)
{
    char line[64];
    double before, after, ms, host_ms;
    COD_TRY(free_mib(which, &before));
    const double begin = cod_clock_s();
    COD_TRY(bench_open(b, which, false));
    COD_TRY(timed(b, 1, &ms, &host_ms));
    const double ready_s = cod_clock_s() - begin;
    COD_TRY(free_mib(which, &after));
    COD_TRY(timed(b, 2, &ms, &host_ms));
    const double wanted = 1e3 * turn_s / ms;
    const int steps = wanted < 1 ? 1 : wanted > MOST_STEPS ? MOST_STEPS : (int)wanted;
    printf("{\"model\": \"%s\", \"batch\": %lld, \"optimiser\": \"%s\", \"first_step_s\": %.3f, \"memory_mib\": %.3f, "
           "\"taken_mib\": %.3f, \"device\": \"%s\"}\n",
           which->model, (long long)which->input.n, cod_optimiser_names[which->optimiser], ready_s, own_mib(b),
           before - after, b->net.backend->describe(b->net.device));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        COD_TRY(answer(b, which, line, steps));
        fflush(stdout);
    }
    return COD_OK;
}

cod_status bench_serve(const bench_case *which)
{
    bench b = {0};
    const cod_status status = serve(&b, which);
    bench_close(&b);
    return status;
}

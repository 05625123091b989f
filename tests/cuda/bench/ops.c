/* A step's ops one by one: each is run many times in a row as one recording, so that the host's part does not count. */
#include "bench/bench.h"

#include "core/queue.h"
#include "core/statistics.h"
#include "core/trace.h"

#include <stdio.h>

enum { RUNS = 10, ROUNDS = 5 };

static void print_row(const char *kind, const char *name, double ms, double gflop, double gbytes)
{
    printf("{\"kind\": \"%s\", \"name\": \"%s\", \"ms\": %.6f, \"gflop\": %.9f, \"gbyte\": %.9f}", kind, name, ms,
           gflop, gbytes);
}

static cod_status run_op(cod_program *program, size_t index)
{
    for (int i = 0; i < RUNS; i++)
        COD_TRY(cod_program_run_op(program, index));
    return COD_OK;
}

static cod_status record(bench *b, cod_program *program, size_t index, cod_recording **recording)
{
    const cod_backend *backend = b->net.backend;
    *recording = NULL;
    if (!cod_backend_records(backend))
        return COD_OK;
    COD_TRY(backend->capture_begin(b->net.device, NULL));
    const cod_status status = run_op(program, index);
    const cod_status ended = backend->capture_end(b->net.device, NULL, recording);
    return status != COD_OK ? status : ended;
}

/** @param[out] ms  of one run: the median of some rounds after one that does not count */
static cod_status time_op(bench *b, cod_program *program, size_t index, double *ms)
{
    double times[ROUNDS + 1];
    cod_recording *recording;
    COD_TRY(record(b, program, index, &recording));
    cod_status status = COD_OK;
    for (int r = 0; r <= ROUNDS && status == COD_OK; r++) {
        const double begin = cod_clock_s();
        status = recording != NULL ? b->net.backend->recording_run(recording, NULL) : run_op(program, index);
        COD_THEN(status, bench_finish(b));
        times[r] = 1e3 * (cod_clock_s() - begin) / RUNS;
    }
    if (recording != NULL)
        b->net.backend->recording_destroy(recording);
    *ms = cod_median(times + 1, ROUNDS);
    return status;
}

/** Packing, and the update: launched by themselves, while in steps they are a part of the recording. */
static cod_status time_rest(bench *b, cod_program *program, double *pack_ms, double *update_ms)
{
    double begin = cod_clock_s();
    for (int i = 0; i < RUNS; i++) {
        cod_weights_changed(&b->net.weights, COD_ALL_SETS);
        COD_TRY(cod_program_prepare(program));
    }
    COD_TRY(bench_finish(b));
    *pack_ms = 1e3 * (cod_clock_s() - begin) / RUNS;
    begin = cod_clock_s();
    for (int i = 0; i < RUNS; i++)
        COD_TRY(cod_optimiser_step(b->optimiser, 1e-8, ++b->steps));
    COD_TRY(bench_finish(b));
    *update_ms = 1e3 * (cod_clock_s() - begin) / RUNS;
    return COD_OK;
}

/** Times an update reads or writes all weights: gradients and weights, and each moment both ways. */
static double update_passes(cod_optimiser_kind kind)
{
    return kind == COD_OPT_SGD ? 5 : 7;
}

cod_status bench_ops(bench *b, const bench_case *which)
{
    cod_program *program = cod_executable_program(b->net.executable, "step");
    cod_op op;
    double ms, pack_ms, update_ms;
    const double weights_gbyte = 4e-9 * (double)b->net.weights.layout.trainable;
    COD_TRY(bench_step(b, "step", 1e-8));
    COD_TRY(cod_program_prepare(program));
    COD_TRY(bench_finish(b));
    printf("{\"ops\": [");
    for (size_t i = 0; cod_program_op(program, i, &op); i++) {
        COD_TRY(time_op(b, program, i, &ms));
        print_row(cod_op_kind_name(op.kind), op.name != NULL ? op.name : "", ms,
                  1e-9 * cod_program_op_flops(program, i), 1e-9 * cod_program_op_bytes(program, i));
        printf(", ");
    }
    COD_TRY(time_rest(b, program, &pack_ms, &update_ms));
    print_row("pack weights", "", pack_ms, 0, 1.5 * weights_gbyte); /* reads f32, writes bf16 */
    printf(", ");
    print_row(cod_optimiser_names[which->optimiser], "", update_ms, 0, update_passes(which->optimiser) * weights_gbyte);
    printf("]}\n");
    return COD_OK;
}

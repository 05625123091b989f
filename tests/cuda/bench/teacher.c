/* What a teacher costs: its prediction of the mini-batch, handed to the student, and the loss toward it. */
#include "bench/bench.h"

#include "core/branch.h"
#include "core/statistics.h"
#include "core/trace.h"

#include <stdio.h>

enum { ROUNDS = 9, STEPS = 4 };

/** A second network of the same architecture on the student's device, for inference alone. */
typedef struct teacher {
    cod_arena arena;
    cod_model model;
    cod_weights weights;
    cod_executable *executable;
    cod_branch branch;     /**< it predicts beside the student's forward pass */
    cod_plan *take, *give; /**< the student's input to the teacher's, and its prediction to the student */
} teacher;

static cod_status copy_plan(const bench *b, cod_view from, cod_view to, cod_plan **plan)
{
    const cod_op op = {.kind = COD_OP_ADD, .attr = {.alpha = 1}, .inputs = {from}, .outputs = {to}, .name = "copy"};
    return b->net.backend->plan_create(b->net.device, &op, plan);
}

static cod_status teacher_open(teacher *t, const bench *b, const bench_case *which)
{
    *t = (teacher){0};
    COD_TRY(net_model(which->model, which->options, &t->arena, &t->model));
    COD_TRY(cod_weights_init(&t->weights, b->net.backend, b->net.device, t->model.graph, COD_F32, false));
    COD_TRY(cod_weights_fill_initial(&t->weights, 1));
    const cod_input_shape input = {"input", which->input};
    COD_TRY(cod_branch_init(&t->branch, b->net.backend, b->net.device));
    const cod_compile_options options = {
        .activation = which->activation, .inputs = &input, .input_count = 1, .queue = t->branch.queue};
    const cod_program_spec spec = {.name = "predict", .outputs = {t->model.output}};
    COD_TRY(cod_compile(t->model.graph, &t->weights, &options, &spec, 1, &t->executable));
    COD_TRY(copy_plan(b, cod_executable_input(b->net.executable, "input"), cod_executable_input(t->executable, "input"),
                      &t->take));
    return copy_plan(b, cod_executable_output(t->executable, t->model.output),
                     cod_executable_input(b->net.executable, "teacher"), &t->give);
}

static void teacher_close(teacher *t, const bench *b)
{
    if (t->take != NULL)
        b->net.backend->plan_destroy(t->take);
    if (t->give != NULL)
        b->net.backend->plan_destroy(t->give);
    cod_executable_destroy(t->executable);
    if (t->weights.backend != NULL)
        cod_weights_clear(&t->weights);
    cod_branch_clear(&t->branch);
    cod_model_clear(&t->model);
    cod_arena_clear(&t->arena);
}

static cod_status predict(teacher *t, const bench *b)
{
    cod_event *predicted;
    COD_TRY(cod_branch_fork(&t->branch));
    COD_TRY(b->net.backend->plan_run(t->take, t->branch.queue));
    COD_TRY(cod_program_run(cod_executable_program(t->executable, "predict"), NULL, NULL));
    COD_TRY(b->net.backend->plan_run(t->give, t->branch.queue));
    COD_TRY(cod_branch_join(&t->branch, &predicted));
    cod_program_await(cod_executable_program(b->net.executable, "distil"), predicted);
    return COD_OK;
}

/** @param t  NULL = steps without a teacher */
static cod_status timed(bench *b, teacher *t, double *ms)
{
    const double begin = cod_clock_s();
    for (int i = 0; i < STEPS; i++) {
        if (t != NULL)
            COD_TRY(predict(t, b));
        COD_TRY(bench_step(b, t != NULL ? "distil" : "step", 1e-4));
    }
    COD_TRY(bench_finish(b));
    *ms = 1e3 * (cod_clock_s() - begin) / STEPS;
    return COD_OK;
}

static cod_status measure(bench *b, teacher *t, const bench_case *which)
{
    double plain[ROUNDS + 1], taught[ROUNDS + 1];
    for (int r = 0; r <= ROUNDS; r++) {
        COD_TRY(timed(b, NULL, &plain[r]));
        COD_TRY(timed(b, t, &taught[r]));
    }
    printf("{\"model\": \"%s\", \"batch\": %lld, \"step_ms\": %.5f, \"taught_ms\": %.5f}\n", which->model,
           (long long)which->input.n, cod_median(plain + 1, ROUNDS), cod_median(taught + 1, ROUNDS));
    return COD_OK;
}

cod_status bench_teacher(const bench_case *which)
{
    bench b;
    teacher t = {0};
    cod_status status = bench_open(&b, which, true);
    COD_THEN(status, teacher_open(&t, &b, which));
    COD_THEN(status, measure(&b, &t, which));
    teacher_close(&t, &b);
    bench_close(&b);
    return status;
}

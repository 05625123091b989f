#include "tools/bench/ops.h"

#include "core/statistics.h"
#include "core/trace.h"
#include "cpu/bench.h"
#include "cpu/cpu.h"

#include <stdio.h>
#include <string.h>

static const char packing[] = "pack weights", optimiser[] = "optimiser (adam)";

/** Whether any of the op's views is bf16: then so are its products, where the processor has them. */
static bool has_bf16(const cod_op *op)
{
    for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++)
        if (op->inputs[i].buffer != NULL && op->inputs[i].dtype == COD_BF16)
            return true;
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        if (op->outputs[i].buffer != NULL && op->outputs[i].dtype == COD_BF16)
            return true;
    return false;
}

cod_status cod_bench_peak_measure(const cod_bench_training *t, cod_bench_peak *peak)
{
    *peak = (cod_bench_peak){0};
    if (t->session.backend != &cod_cpu_backend)
        return COD_OK;
    COD_TRY(cod_cpu_bench_peak(t->session.device, COD_F32, &peak->f32_gflops));
    if (t->session.backend->supports(t->session.device, COD_BF16))
        COD_TRY(cod_cpu_bench_peak(t->session.device, COD_BF16, &peak->bf16_gflops));
    return cod_cpu_bench_bandwidth(t->session.device, &peak->memory_gbytes);
}

/** Waits for what was queued since `*begin_s`, and takes its time; `*begin_s` becomes now. */
static cod_status take_time(cod_bench_training *t, double *begin_s, double *ms)
{
    COD_TRY(cod_bench_training_finish(t));
    const double end_s = cod_clock_s();
    *ms = 1e3 * (end_s - *begin_s);
    *begin_s = end_s;
    return COD_OK;
}

/** One step op by op; times[i][slot] receives the time of row i. */
static cod_status run_step(cod_bench_training *t, double (*times)[COD_BENCH_MAX_REPEATS], int slot)
{
    cod_op op;
    double begin_s = cod_clock_s();
    size_t row = 0;
    for (const cod_bench_sub_step *s = t->steps; s < t->steps + t->step_count; s++) {
        COD_TRY(cod_program_prepare(s->program));
        COD_TRY(take_time(t, &begin_s, &times[row++][slot]));
        for (size_t i = 0; cod_program_op(s->program, i, &op); i++) {
            COD_TRY(cod_program_run_op(s->program, i));
            COD_TRY(take_time(t, &begin_s, &times[row++][slot]));
        }
        if (s->set < 0)
            continue;
        COD_TRY(cod_bench_training_update(t, s->set));
        COD_TRY(take_time(t, &begin_s, &times[row++][slot]));
    }
    return COD_OK;
}

static cod_status run_steps(cod_bench_training *t, double (*times)[COD_BENCH_MAX_REPEATS], int repeats, double *steps)
{
    for (int r = -1; r < repeats; r++) {
        const double begin = cod_clock_s();
        COD_TRY(run_step(t, times, r < 0 ? 0 : r));
        steps[r < 0 ? 0 : r] = 1e3 * (cod_clock_s() - begin);
    }
    return COD_OK;
}

static void sum_kinds(cod_bench_ops *ops)
{
    for (size_t i = 0; i < ops->op_count; i++) {
        const cod_bench_row *op = &ops->ops[i];
        cod_bench_row *kind = ops->kinds;
        while (kind < ops->kinds + ops->kind_count && strcmp(kind->kind, op->kind) != 0)
            kind++;
        if (kind == ops->kinds + ops->kind_count) {
            *kind = (cod_bench_row){.kind = op->kind};
            ops->kind_count++;
        }
        cod_bench_row *const sums[] = {kind, &ops->total};
        for (size_t s = 0; s < 2; s++) {
            sums[s]->calls += op->calls;
            sums[s]->gflop += op->gflop;
            sums[s]->gbyte += op->gbyte;
        }
        kind->ms += op->ms;
    }
}

/** Rows of one sub-step: packing what its program reads, its ops, and the update. */
static size_t rows_of(const cod_bench_sub_step *s)
{
    cod_op op;
    size_t count = 1 + (s->set >= 0);
    for (size_t i = 0; cod_program_op(s->program, i, &op); i++)
        count++;
    return count;
}

/** Writes the rows of a sub-step, without times. */
static void describe(const cod_bench_training *t, const cod_bench_sub_step *s, cod_bench_row *row)
{
    cod_op op;
    const char *program = t->step_count > 1 ? s->name : NULL;
    /* Packing reads the weights; Adam reads gradients, weights and two moments, and writes all but the gradients. */
    const double gbyte = s->set >= 0 ? 4e-9 * (double)t->session.weights.sets[s->set].range.count : 0;
    *row++ = (cod_bench_row){.kind = packing, .name = "", .program = program, .gbyte = gbyte};
    for (size_t i = 0; cod_program_op(s->program, i, &op); i++)
        *row++ = (cod_bench_row){.kind = cod_op_kind_name(op.kind),
                                 .name = op.name != NULL ? op.name : "",
                                 .program = program,
                                 .bf16 = has_bf16(&op),
                                 .gflop = 1e-9 * cod_program_op_flops(s->program, i),
                                 .gbyte = 1e-9 * cod_program_op_bytes(s->program, i)};
    if (s->set >= 0)
        *row = (cod_bench_row){.kind = optimiser, .name = "", .program = program, .gbyte = 7 * gbyte};
}

cod_status cod_bench_ops_measure(cod_bench_training *t, int repeats, cod_bench_ops *ops)
{
    size_t count = 0;
    *ops = (cod_bench_ops){.total.kind = "step"};
    COD_REQUIRE(repeats >= 1 && repeats <= COD_BENCH_MAX_REPEATS, "1 to %d repeats", COD_BENCH_MAX_REPEATS);
    for (size_t s = 0; s < t->step_count; s++)
        count += rows_of(&t->steps[s]);
    ops->op_count = count;
    ops->ops = cod_arena_alloc(&ops->arena, count * sizeof *ops->ops);
    ops->kinds = cod_arena_alloc(&ops->arena, count * sizeof *ops->kinds);
    double(*times)[COD_BENCH_MAX_REPEATS] = cod_arena_alloc(&ops->arena, count * sizeof *times);
    COD_REQUIRE_MEMORY(ops->ops);
    COD_REQUIRE_MEMORY(ops->kinds);
    COD_REQUIRE_MEMORY(times);
    double steps[COD_BENCH_MAX_REPEATS];
    COD_TRY(run_steps(t, times, repeats, steps));
    cod_bench_row *row = ops->ops;
    for (size_t s = 0; s < t->step_count; row += rows_of(&t->steps[s]), s++)
        describe(t, &t->steps[s], row);
    for (size_t i = 0; i < count; i++) {
        ops->ops[i].calls = 1;
        ops->ops[i].ms = cod_median(times[i], (size_t)repeats);
    }
    sum_kinds(ops);
    ops->total.ms = cod_median(steps, (size_t)repeats);
    ops->step_min_ms = steps[0]; /* the median has sorted them */
    ops->step_max_ms = steps[repeats - 1];
    return COD_OK;
}

void cod_bench_ops_clear(cod_bench_ops *ops)
{
    cod_arena_clear(&ops->arena);
    *ops = (cod_bench_ops){0};
}

void cod_bench_ops_compare(cod_bench_ops *ops, const cod_bench_peak *peak)
{
    for (size_t i = 0; i < ops->op_count; i++) {
        cod_bench_row *row = &ops->ops[i];
        const bool bf16 = row->bf16 && peak->bf16_gflops > 0;
        const double work = row->gflop > 0 ? row->gflop : row->gbyte;
        const double rate = row->gflop == 0 ? peak->memory_gbytes : bf16 ? peak->bf16_gflops : peak->f32_gflops;
        row->floor_ms = rate > 0 ? 1e3 * work / rate : 0;
        ops->total.floor_ms += row->floor_ms;
        for (size_t k = 0; k < ops->kind_count; k++)
            if (strcmp(ops->kinds[k].kind, row->kind) == 0)
                ops->kinds[k].floor_ms += row->floor_ms;
    }
}

static void print_row(const cod_bench_row *row, double step_ms)
{
    char label[64], gflops[16] = "-", share[16] = "-";
    snprintf(label, sizeof label, "%s%s%s%s%s", row->program != NULL ? row->program : "",
             row->program != NULL ? ": " : "", row->kind, row->name != NULL ? " " : "",
             row->name != NULL ? row->name : "");
    if (row->gflop > 0)
        snprintf(gflops, sizeof gflops, "%.1f", 1e3 * row->gflop / row->ms);
    if (row->floor_ms > 0)
        snprintf(share, sizeof share, "%.0f%%", 100 * row->floor_ms / row->ms);
    printf("%-52s %5d %9.2f %5.1f%% %9s %7.1f %8s\n", label, row->calls, row->ms, 100 * row->ms / step_ms, gflops,
           1e3 * row->gbyte / row->ms, share);
}

static void print_rows(const char *title, const cod_bench_row *rows, size_t count, double step_ms)
{
    printf("%-52s %5s %9s %6s %9s %7s %8s\n", title, "calls", "ms", "share", "GFLOP/s", "GB/s", "of peak");
    for (size_t i = 0; i < count; i++)
        print_row(&rows[i], step_ms);
}

void cod_bench_ops_print(const cod_bench_ops *ops, bool each)
{
    if (each) {
        print_rows("op", ops->ops, ops->op_count, ops->total.ms);
        printf("\n");
    }
    print_rows("kind", ops->kinds, ops->kind_count, ops->total.ms);
    print_row(&ops->total, ops->total.ms);
}

static void row_json(const cod_bench_row *row, cod_json *json)
{
    cod_json_open(json, NULL, '{');
    cod_json_string(json, "kind", row->kind);
    if (row->name != NULL)
        cod_json_string(json, "name", row->name);
    if (row->program != NULL)
        cod_json_string(json, "program", row->program);
    cod_json_integer(json, "calls", row->calls);
    cod_json_number(json, "ms", row->ms);
    cod_json_number(json, "gflops", 1e3 * row->gflop / row->ms);
    cod_json_number(json, "gbytes", 1e3 * row->gbyte / row->ms);
    cod_json_number(json, "of_peak", row->floor_ms / row->ms);
    cod_json_close(json);
}

void cod_bench_ops_json(const cod_bench_ops *ops, cod_json *json)
{
    cod_json_open(json, "kinds", '[');
    for (size_t i = 0; i < ops->kind_count; i++)
        row_json(&ops->kinds[i], json);
    cod_json_close(json);
    cod_json_open(json, "ops", '[');
    for (size_t i = 0; i < ops->op_count; i++)
        row_json(&ops->ops[i], json);
    cod_json_close(json);
}

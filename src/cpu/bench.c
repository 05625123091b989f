#include "cpu/bench.h"

#include "core/memory.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "cpu/tune_internal.h"

#include <string.h>

enum { MAX_REPEATS = 101 };

static cpu_conv_problem problem_of(const cod_op *op)
{
    const bool forward = op->kind == COD_OP_CONV2D, data = op->kind == COD_OP_CONV2D_BACKWARD_DATA;
    const cod_view *x = data ? &op->outputs[0] : &op->inputs[0];
    const cod_view *y = forward ? &op->outputs[0] : data ? &op->inputs[0] : &op->inputs[1];
    const cod_view *w = forward || data ? &op->inputs[1] : &op->outputs[0];
    const int64_t r = cod_op_shuffle(&op->attr);
    const cod_shape dense = {y->shape.n, y->shape.h / r, y->shape.w / r, y->shape.c * r * r};
    return (cpu_conv_problem){
        .direction = forward ? CPU_CONV_FORWARD
                     : data  ? CPU_CONV_BACKWARD_DATA
                             : CPU_CONV_BACKWARD_WEIGHTS,
        .x = {x->shape, x->shape.c, x->dtype, true},
        .y = {dense, dense.c, y->dtype, true},
        .kernel_h = w->shape.h,
        .kernel_w = w->shape.w,
        .stride_h = op->attr.stride_h,
        .stride_w = op->attr.stride_w,
        .pad_h = op->attr.pad_h,
        .pad_w = op->attr.pad_w,
        .bias = forward && op->inputs[2].buffer != NULL,
        .lanes = 1,
    };
}

static cod_status time_runs(cpu_conv *conv, const cpu_conv_info *info, char *memory, int repeats, double *ms)
{
    double times[MAX_REPEATS];
    void *const x = memory, *const packed = memory + cod_align_up(info->x_bytes);
    void *const y = (char *)packed + cod_align_up(info->packed_bytes), *const bias =
                                                                           (char *)y + cod_align_up(info->y_bytes);
    void *const scratch = (char *)bias + cod_align_up(info->packed_bytes);
    for (int i = -2; i < repeats; i++) {
        const double begin = cod_clock_s();
        COD_TRY(cpu_conv_execute(conv, 0, x, packed, bias, y, scratch));
        times[i < 0 ? 0 : i] = 1e3 * (cod_clock_s() - begin);
    }
    *ms = cod_median(times, (size_t)repeats);
    return COD_OK;
}

cod_status cod_cpu_bench_convolution(cod_device *device, const cod_op *op, int repeats, double *ms)
{
    const cpu_conv_problem problem = problem_of(op);
    cpu_conv *conv = NULL;
    COD_REQUIRE(repeats >= 1 && repeats <= MAX_REPEATS, "1 to %d repeats", MAX_REPEATS);
    COD_TRY(cpu_use_threads(device->threads));
    COD_TRY(cpu_conv_create(device->onednn, &problem, &conv));
    const cpu_conv_info info = cpu_conv_get_info(conv);
    const size_t bytes = cod_align_up(info.x_bytes) + 2 * cod_align_up(info.packed_bytes) + cod_align_up(info.y_bytes) +
                         info.scratch_bytes;
    void *memory = NULL;
    cod_status status = cod_aligned_alloc(&memory, bytes);
    if (status == COD_OK) {
        memset(memory, 0, bytes); /* pages that were never written share one of zeros */
        status = time_runs(conv, &info, memory, repeats, ms);
    }
    cod_aligned_free(memory);
    cpu_conv_destroy(conv);
    return status;
}

/** As cpu_plan_convolution() has it timed. */
static cod_op without_residual(const cod_op *op)
{
    cod_op plain = *op;
    if (op->kind == COD_OP_CONV2D)
        plain.inputs[4] = (cod_view){.buffer = NULL};
    return plain;
}

uint64_t cod_cpu_bench_choice_key(const cod_device *device, const cod_op *op)
{
    char text[1024];
    size_t rule;
    const cpu_candidate *fitting[COD_CPU_MOST_CHOICES];
    const cod_op plain = without_residual(op);
    const size_t count = cpu_candidates_of(device, &plain, fitting, &rule);
    return cpu_tune_key(device, &plain, fitting, count, text, sizeof text);
}

cod_status cod_cpu_bench_tune(cod_device *device, const cod_op *op, cod_cpu_choice *choice)
{
    const cpu_candidate *fitting[COD_CPU_MOST_CHOICES];
    const cod_op plain = without_residual(op);
    cpu_verdict verdict = {0};
    *choice = (cod_cpu_choice){0};
    choice->count = cpu_candidates_of(device, &plain, fitting, &choice->rule);
    const cpu_tuned *before = cpu_tuned_last(device, cod_cpu_bench_choice_key(device, op));
    for (size_t i = 0; i < choice->count; i++) {
        choice->names[i] = fitting[i]->name;
        if (before != NULL && strcmp(before->name, fitting[i]->name) == 0)
            choice->before = fitting[i]->name;
    }
    COD_TRY(cpu_use_threads(device->threads));
    if (choice->count > 1)
        COD_TRY(cpu_tune_anew(device, &plain, fitting, choice->count, choice->rule, &verdict));
    memcpy(choice->seconds, verdict.seconds, sizeof choice->seconds);
    choice->chosen = verdict.chosen;
    choice->rounds = verdict.rounds;
    choice->agreed = verdict.agreed;
    choice->noise = verdict.noise;
    choice->is_doubtful = cpu_is_doubtful(&verdict);
    return COD_OK;
}

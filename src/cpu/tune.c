/*
 * The autotuner: of the implementations that can do a convolution, the one that a rule chooses, unless timing them on
 * the shape has shown once that another one is faster.
 */
#include "cpu/tune_internal.h"

#include "core/hash.h"
#include "core/option.h"
#include "core/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Of a process; what is left over at its end waits for the next start. */
static const double budget_s = 0.6;

/** The processor's name, once. */
static const char *processor(void)
{
    static char name[128];
    char line[512];
    FILE *file = name[0] == '\0' ? fopen("/proc/cpuinfo", "re") : NULL;
    while (file != NULL && name[0] == '\0' && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL)
            snprintf(name, sizeof name, "%.127s", strchr(line, ':') + 2);
    if (file != NULL)
        fclose(file);
    name[strcspn(name, "\n")] = '\0';
    return name;
}

/**
 * The candidates' names are part of it, so that a new implementation is timed where an older version knew the best of
 * fewer.
 */
static void describe(const cod_device *device, const cod_op *op, const cpu_candidate *const *candidates, size_t count,
                     char *text, size_t bytes)
{
    char names[128] = "";
    for (size_t i = 0; i < count; i++)
        cod_names_add(names, sizeof names, candidates[i]->name);
    const cod_view *a = &op->inputs[0], *b = &op->inputs[1], *c = &op->outputs[0];
#define VIEW(v) (v)->shape.n, (v)->shape.h, (v)->shape.w, (v)->shape.c, (v)->pixel_stride, cod_dtype_name((v)->dtype)
#define FORMAT  "%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 "/%" PRId64 " %s"
    snprintf(text, bytes,
             "%s " FORMAT ", " FORMAT " -> " FORMAT ", stride %dx%d, pad %dx%d%s%s; of %s, on %.3g of it; %s; %s",
             cod_op_kind_name(op->kind), VIEW(a), VIEW(b), VIEW(c), op->attr.stride_h, op->attr.stride_w,
             op->attr.pad_h, op->attr.pad_w, op->accumulate ? ", added" : "",
             op->kind == COD_OP_CONV2D && op->attr.int8_range > 0 ? ", int8" : "", names,
             cpu_trial_share(op, device->threads), device->description, processor());
#undef FORMAT
#undef VIEW
}

/** What the file says of a choice, behind what it was chosen for. */
static void explain(const cpu_candidate *const *candidates, size_t count, size_t rule, const cpu_verdict *v, char *text,
                    size_t bytes)
{
    double load = 0;
    size_t used = strlen(text);
    for (size_t i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s %s%s %.3g us", i == 0 ? ";" : ",", candidates[i]->name,
                                 i == rule ? " (by rule)" : "", 1e6 * v->seconds[i]);
    if (used < bytes && getloadavg(&load, 1) == 1)
        snprintf(text + used, bytes - used, "; faster in %d of %d rounds, noise %.0f %%, load %.2f", v->agreed,
                 v->rounds, 100 * v->noise, load);
}

uint64_t cpu_tune_key(const cod_device *device, const cod_op *op, const cpu_candidate *const *candidates, size_t count,
                      char *text, size_t bytes)
{
    describe(device, op, candidates, count, text, bytes);
    return cod_hash(text, strlen(text), 0);
}

cod_status cpu_tune_anew(cod_device *device, const cod_op *op, const cpu_candidate *const *candidates, size_t count,
                         size_t rule, cpu_verdict *verdict)
{
    char text[1024];
    const uint64_t key = cpu_tune_key(device, op, candidates, count, text, sizeof text);
    COD_TRY(cpu_trial(device, op, candidates, count, rule, verdict));
    explain(candidates, count, rule, verdict, text, sizeof text);
    const cpu_tuned *before = cpu_tuned_last(device, key);
    const char *name = candidates[verdict->chosen]->name;
    double expected_s = verdict->expected_s;
    /* A choice that took longer in training than in its trial, and stands, may go on to take as long. */
    if (before != NULL && before->is_doubtful && strcmp(before->name, name) == 0)
        expected_s = fmax(expected_s, before->expected_s);
    cpu_tuned_note(device, key, name, expected_s, cpu_is_doubtful(verdict), text);
    return COD_OK;
}

cod_status cpu_tune(cod_device *device, const cod_op *op, const cpu_candidate *const *candidates, size_t count,
                    size_t *chosen)
{
    char text[1024];
    cpu_verdict verdict;
    const cpu_tuned *tuned = cpu_tuned_find(device, cpu_tune_key(device, op, candidates, count, text, sizeof text));
    for (size_t i = 0; i < count && tuned != NULL; i++) {
        if (strcmp(tuned->name, candidates[i]->name) == 0) {
            *chosen = i;
            return COD_OK;
        }
    }
    if (device->tune_spent_s > budget_s)
        return COD_OK;
    const double begin = cod_clock_s();
    COD_TRY(cpu_tune_anew(device, op, candidates, count, *chosen, &verdict));
    device->tune_spent_s += cod_clock_s() - begin;
    *chosen = verdict.chosen;
    return COD_OK;
}

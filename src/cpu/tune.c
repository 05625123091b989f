/*
 * The autotuner: times the implementations that can do a convolution on its shape, once, and remembers the fastest in
 * a file of the user's cache, one line for each shape, choice of implementations, processor, instruction set, number
 * of threads and library version.
 */
#include "cpu/cpu_internal.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/option.h"
#include "core/regular_file.h"
#include "core/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST_PICTURES = 4, LEAST_LINES = 16, MOST_PIXELS = 16384, MOST_RUNS = 3, MOST_REMEMBERED = 1 << 16 };
static const double budget_s = 1.0, enough_s = 0.02, hopeless = 1.5;

struct cpu_tuned {
    cpu_tuned *next;
    uint64_t key;
    char name[16];
};

void cpu_tune_clear(cod_device *device)
{
    while (device->tuned != NULL) {
        cpu_tuned *next = device->tuned->next;
        free(device->tuned);
        device->tuned = next;
    }
}

static void remember(cod_device *device, uint64_t key, const char *name)
{
    cpu_tuned *tuned = calloc(1, sizeof *tuned);
    if (tuned == NULL)
        return; /* it is timed again, no more */
    tuned->key = key;
    snprintf(tuned->name, sizeof tuned->name, "%s", name);
    tuned->next = device->tuned;
    device->tuned = tuned;
}

/* The file: "KEY NAME and words for people". Lines are only ever appended, so that processes may write at once. */

static bool cache_path(char *path, size_t bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[2048];
    const bool given = cache != NULL && cache[0] == '/';
    if (!given && (home == NULL || home[0] != '/'))
        return false;
    snprintf(folder, sizeof folder, "%s%s", given ? cache : home, given ? "" : "/.cache");
    mkdir(folder, 0777);
    snprintf(path, bytes, "%.2000s/codistill", folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return false;
    snprintf(path, bytes, "%.2000s/codistill/convolutions.txt", folder);
    return true;
}

static void read_cache(cod_device *device)
{
    char path[4096], line[512];
    if (!cache_path(path, sizeof path))
        return;
    FILE *file = cod_regular_stream(path);
    if (file == NULL && errno == EINVAL)
        cod_log_warn("'%s' is no regular file: convolutions are timed anew, and what is found is not kept", path);
    if (file == NULL)
        return;
    for (int i = 0; i < MOST_REMEMBERED && fgets(line, sizeof line, file) != NULL; i++) {
        uint64_t key;
        char name[16];
        if (sscanf(line, "%16" SCNx64 " %15s", &key, name) == 2)
            remember(device, key, name);
    }
    fclose(file);
}

static void append_cache(uint64_t key, const char *name, const char *description)
{
    char path[4096], line[512];
    const int length = snprintf(line, sizeof line, "%016" PRIx64 " %s  %.400s\n", key, name, description);
    const int file = cache_path(path, sizeof path) ? cod_regular_open(path, O_WRONLY | O_APPEND | O_CREAT) : -1;
    if (file < 0)
        return;
    if (write(file, line, (size_t)length) != length)
        cod_log_debug("cpu: '%s' could not be written", path);
    close(file);
}

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
    snprintf(text, bytes, "%s " FORMAT ", " FORMAT " -> " FORMAT ", stride %dx%d, pad %dx%d%s%s; of %s; %s; %s",
             cod_op_kind_name(op->kind), VIEW(a), VIEW(b), VIEW(c), op->attr.stride_h, op->attr.stride_w,
             op->attr.pad_h, op->attr.pad_w, op->accumulate ? ", added" : "",
             op->kind == COD_OP_CONV2D && op->attr.int8_range > 0 ? ", int8" : "", names, device->description,
             processor());
#undef FORMAT
#undef VIEW
}

/* Timing, on memory of its own. */

typedef struct trial {
    cod_op op;
    cod_buffer buffers[COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS];
    size_t count;
} trial;

static cod_status give_memory(trial *t, cod_view *view)
{
    if (!cpu_present(view))
        return COD_OK;
    cod_buffer *buffer = &t->buffers[t->count++];
    const int64_t elements = view->shape.n * view->shape.h * view->shape.w * view->pixel_stride;
    buffer->bytes = (size_t)elements * cod_dtype_bytes(view->dtype);
    COD_TRY(cod_aligned_alloc(&buffer->host, buffer->bytes));
    view->buffer = buffer;
    view->offset = 0;
    return COD_OK;
}

static bool is_weights(const cod_op *op, bool output, size_t i)
{
    return op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? output : !output && i > 0;
}

static bool keeps_size(const cod_op *op)
{
    const cod_shape w = (op->kind == COD_OP_CONV2D_BACKWARD_WEIGHTS ? &op->outputs[0] : &op->inputs[1])->shape;
    return op->attr.stride_h == 1 && 2 * op->attr.pad_h == w.h - 1;
}

/** A part of the batch, and the upper part of large pictures, is enough to tell which is faster. */
static cod_status trial_init(trial *t, const cod_op *op, int threads)
{
    const int64_t pictures = 2 * threads > LEAST_PICTURES ? 2 * threads : LEAST_PICTURES;
    const cod_shape x = (op->kind == COD_OP_CONV2D_BACKWARD_DATA ? &op->outputs[0] : &op->inputs[0])->shape;
    const int64_t lines = cpu_greatest(MOST_PIXELS / x.w, LEAST_LINES);
    const bool cut = keeps_size(op) && lines < x.h;
    *t = (trial){.op = *op};
    for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
        const bool output = i >= COD_OP_MAX_INPUTS;
        const size_t k = output ? i - COD_OP_MAX_INPUTS : i;
        cod_view *view = output ? &t->op.outputs[k] : &t->op.inputs[k];
        if (!is_weights(op, output, k)) {
            view->shape.n = cpu_least(view->shape.n, pictures);
            if (cut)
                view->shape.h = view->shape.h / x.h * lines; /* shuffled pictures are a multiple as high */
        }
        COD_TRY(give_memory(t, view));
    }
    return COD_OK;
}

static void trial_clear(trial *t)
{
    for (size_t i = 0; i < t->count; i++)
        cod_aligned_free(t->buffers[i].host);
}

/** The shortest of some runs; fewer where they are long or have no chance against `best_s`. */
static cod_status time_plan(cod_plan *plan, double best_s, double *seconds)
{
    double spent = 0;
    if (plan->prepare != NULL)
        COD_TRY(plan->prepare(plan));
    for (int i = 0; i < MOST_RUNS; i++) {
        const double begin = cod_clock_s();
        COD_TRY(plan->run(plan));
        const double taken = cod_clock_s() - begin;
        *seconds = i == 0 || taken < *seconds ? taken : *seconds;
        spent += taken;
        if (i > 0 && (spent > enough_s || *seconds > hopeless * best_s))
            break;
    }
    return COD_OK;
}

static cod_status time_candidate(cod_device *device, const trial *t, const cpu_candidate *candidate, double best_s,
                                 double *seconds)
{
    cod_plan *plan;
    COD_TRY(cpu_plan_create(device, &t->op, candidate->create, &plan));
    const cod_status status = time_plan(plan, best_s, seconds);
    cpu_plan_destroy(plan);
    return status;
}

static cod_status time_all(cod_device *device, const cod_op *op, const cpu_candidate *const *candidates, size_t count,
                           const cpu_candidate **fastest)
{
    trial t;
    double best_s = 1e30;
    const size_t scratch = device->scratch_bytes;
    cod_status status = trial_init(&t, op, device->threads);
    for (size_t i = 0; i < count && status == COD_OK; i++) {
        double seconds = 1e30;
        status = time_candidate(device, &t, candidates[i], best_s, &seconds);
        if (seconds < best_s) {
            best_s = seconds;
            *fastest = candidates[i];
        }
    }
    trial_clear(&t);
    /* What a loser needed is given back. */
    if (status == COD_OK && device->scratch_bytes > scratch) {
        cod_aligned_free(device->scratch);
        device->scratch = NULL;
        device->scratch_bytes = 0;
        status = cpu_device_need_scratch(device, scratch);
    }
    return status;
}

cod_status cpu_tune(cod_device *device, const cod_op *op, const cpu_candidate *const *candidates, size_t count,
                    const cpu_candidate **chosen)
{
    char text[1024];
    describe(device, op, candidates, count, text, sizeof text);
    const uint64_t key = cod_hash(text, strlen(text), 0);
    if (!device->tune_read) {
        device->tune_read = true;
        read_cache(device);
    }
    for (const cpu_tuned *tuned = device->tuned; tuned != NULL; tuned = tuned->next) {
        for (size_t i = 0; i < count && tuned->key == key; i++) {
            if (strcmp(tuned->name, candidates[i]->name) == 0) {
                *chosen = candidates[i];
                return COD_OK;
            }
        }
    }
    if (device->tune_spent_s > budget_s)
        return COD_OK;
    const double begin = cod_clock_s();
    COD_TRY(time_all(device, op, candidates, count, chosen));
    device->tune_spent_s += cod_clock_s() - begin;
    remember(device, key, (*chosen)->name);
    append_cache(key, (*chosen)->name, text);
    return COD_OK;
}

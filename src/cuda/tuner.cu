#include "cuda/tuner.cuh"

#include "cuda/conv.cuh"
#include "cuda/library.cuh"

extern "C" {
#include "core/log.h"
}

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/* Seconds for an op, and for all of a device: beyond that, the cost model decides. */
static const double op_budget_s = 5;
static const unsigned long default_budget_s = 120;

static const unsigned long default_workspace_mb = 256;

static const char *mode_name()
{
    const char *name = getenv("COD_CUDA_CONVOLUTION");
    if (name != nullptr && name[0] != '\0')
        return name;
#ifdef COD_CUDA_EMULATED
    return "fixed";
#else
    return "auto";
#endif
}

cod_status cuda_tuner_check_mode()
{
    const char *name = mode_name();
    COD_REQUIRE(strcmp(name, "auto") == 0 || strcmp(name, "own") == 0 || strcmp(name, "fixed") == 0,
                "COD_CUDA_CONVOLUTION is '%s'; it must be auto, own or fixed", name);
    return COD_OK;
}

cuda_mode cuda_tuner_mode(const cod_plan *plan)
{
    const char *name = mode_name();
    if (strcmp(name, "fixed") == 0 || plan->device->no_autotune || plan->ops[0].deterministic)
        return CUDA_MODE_FIXED;
    return strcmp(name, "own") == 0 ? CUDA_MODE_OWN : CUDA_MODE_AUTO;
}

void cuda_candidates_add(cuda_candidates *list, const char *name, const cuda_candidate &candidate)
{
    if (list->count == CUDA_MOST_CANDIDATES)
        return;
    list->items[list->count] = candidate;
    snprintf(list->names[list->count], CUDA_NAME_BYTES, "%s", name);
    list->count++;
}

/** What the variable says; what it is by default where it says nothing, or nothing that makes sense. */
static unsigned long setting(const char *variable, const char *unit, unsigned long usual)
{
    enum { MOST = 1 << 20 };
    const char *text = getenv(variable);
    char *end = nullptr;
    const unsigned long given = text != nullptr ? strtoul(text, &end, 10) : 0;
    const bool valid = text != nullptr && text[0] >= '0' && text[0] <= '9' && *end == '\0' && given <= MOST;
    if (text != nullptr && text[0] != '\0' && !valid)
        cod_log_warn("%s is '%s', which is no number of %s up to %d; %lu holds", variable, text, unit, MOST, usual);
    return valid ? given : usual;
}

cod_status cuda_tuner_of(cod_device *device, cuda_tuner **out)
{
    char path[4096];
    if (device->tuner == nullptr) {
        cuda_tuner *tuner = static_cast<cuda_tuner *>(calloc(1, sizeof *tuner));
        COD_REQUIRE_MEMORY(tuner);
        cuda_choices_path(path, sizeof path);
        const cod_status status = cuda_choices_open(path, &tuner->choices);
        if (status != COD_OK) {
            free(tuner);
            return status;
        }
        tuner->workspace_bytes = setting("COD_CUDA_WORKSPACE_MB", "MiB", default_workspace_mb) << 20;
        tuner->budget_s = static_cast<double>(setting("COD_CUDA_TUNE_S", "seconds", default_budget_s));
        cuda_libraries_describe(tuner->libraries, sizeof tuner->libraries);
        device->tuner = tuner;
    }
    *out = device->tuner;
    return COD_OK;
}

void cuda_tuner_destroy(cuda_tuner *tuner)
{
    if (tuner == nullptr)
        return;
    cudnn_close(tuner->cudnn);
    cublaslt_close(tuner->cublaslt);
    cuda_choices_close(tuner->choices);
    free(tuner);
}

/* Keys. */

/** Appends; what does not fit is cut off, and `*length` stays below `bytes`. */
static void append(char *text, size_t bytes, size_t *length, const char *format, ...) COD_PRINTF(4, 5);
static void append(char *text, size_t bytes, size_t *length, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int more = vsnprintf(text + *length, bytes - *length, format, arguments);
    va_end(arguments);
    *length += more < 0 ? 0 : static_cast<size_t>(more);
    if (*length >= bytes)
        *length = bytes - 1;
}

/**
 * "input 0 16x24x24x64/64 bf16@16": shape, elements from pixel to pixel, type, and what its address is a multiple of.
 */
static void append_view(char *text, size_t bytes, size_t *length, const char *what, size_t number, const cod_view *view)
{
    if (view->buffer == nullptr)
        return;
    const uintptr_t address = reinterpret_cast<uintptr_t>(cuda_view_of(view).data) | 16;
    append(text, bytes, length, "; %s %zu %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 "/%" PRId64 " %s@%d", what,
           number, view->shape.n, view->shape.h, view->shape.w, view->shape.c, view->pixel_stride,
           cod_dtype_name(view->dtype), static_cast<int>(address & (~address + 1)));
}

void cuda_tuner_key(const cod_plan *plan, const char *libraries, char *key, size_t bytes)
{
    const cod_op *op = plan->ops;
    const cod_op_attr *attr = &op->attr;
    const bool convolution = op->kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS, forward = op->kind == COD_OP_CONV2D;
    size_t length = 0;
    append(key, bytes, &length, "%s", cod_op_kind_name(op->kind));
    for (size_t i = 0; i < COD_OP_MAX_INPUTS; i++)
        append_view(key, bytes, &length, "input", i, &op->inputs[i]);
    for (size_t i = 0; i < COD_OP_MAX_OUTPUTS; i++)
        append_view(key, bytes, &length, "output", i, &op->outputs[i]);
    if (convolution)
        append(key, bytes, &length, "; stride %dx%d, pad %dx%d, shuffle %d", attr->stride_h, attr->stride_w,
               attr->pad_h, attr->pad_w, static_cast<int>(cod_op_shuffle(attr)));
    const bool linear = op->kind == COD_OP_LINEAR || op->kind == COD_OP_LINEAR_BACKWARD_DATA;
    const bool activated = forward || linear || conv_is_joined(op);
    if (activated)
        append(key, bytes, &length, "; activation %d", static_cast<int>(attr->activation));
    if (activated && attr->activation == COD_ACT_LEAKY_RELU)
        append(key, bytes, &length, " %.9g", static_cast<double>(attr->leak));
    append(key, bytes, &length, "%s%s; %s; %s; workspace %zu", op->accumulate ? "; added" : "",
           forward && attr->int8_range > 0 ? "; int8" : "", plan->device->gpu, libraries,
           plan->device->tuner != nullptr ? plan->device->tuner->workspace_bytes : 0);
}

/* Choices. */

struct search {
    const cod_plan *plan;
    const cuda_candidates *list;
    cuda_trial trial;
    bool begun;
};

static cod_status time_candidate(void *context, size_t candidate, double best_us, double *us)
{
    search *s = static_cast<search *>(context);
    const char *name = s->list->names[candidate];
    const cuda_tuner *tuner = s->plan->device->tuner;
    if (tuner->spent_s >= tuner->budget_s)
        return cod_fail(COD_ERR_INTERRUPTED, "%.0f s were spent on other ops", tuner->budget_s);
    if (!s->begun) {
        s->begun = true; /* to be cleared where it fails half-way, too */
        COD_TRY(cuda_trial_init(&s->trial, s->plan));
    }
    const cod_status status = cuda_trial_time(&s->trial, &s->list->items[candidate], name, best_us, us);
    if (status == COD_OK)
        cod_log_debug("cuda: %s: %.1f us", name, *us);
    else
        cod_log_debug("cuda: %s: %s", name, cod_error_message());
    return status;
}

/** Candidate 0 where nothing can be timed: no memory for a trial, or no time left. */
static cod_status choose(cod_plan *plan, const char *key, const cuda_candidates *list, size_t *chosen)
{
    cuda_tuner *tuner = plan->device->tuner;
    const char *kind = cod_op_kind_name(plan->ops[0].kind),
               *name = plan->ops[0].name != nullptr ? plan->ops[0].name : "";
    cuda_tuned found = {};
    search s = {plan, list, {}, false};
    const cuda_tuning tuning = {key, list->names, list->count, op_budget_s, time_candidate, &s};
    const cod_status status = cuda_tune(tuner->choices, &tuning, &found);
    tuner->spent_s += found.seconds;
    if (s.begun)
        cuda_trial_clear(&s.trial);
    *chosen = status == COD_OK ? found.chosen : 0;
    if (status == COD_ERR_UNSUPPORTED || status == COD_ERR_MEMORY || status == COD_ERR_INTERRUPTED) {
        cod_log_debug("cuda: %s '%s' is not timed: %s", kind, name, cod_error_message());
        return COD_OK;
    }
    COD_TRY(status);
    if (!found.remembered)
        cod_log_debug("cuda: %s '%s': %s takes %.1f us, %s %.1f; %zu timed, %zu unfit, in %.2f s", kind, name,
                      list->names[found.chosen], found.us, list->names[0], found.first_us, found.timed, found.unfit,
                      found.seconds);
    return COD_OK;
}

cod_status cuda_tuner_make(cod_plan *plan, const char *key, const cuda_candidates *list)
{
    size_t chosen = 0;
    COD_TRY(choose(plan, key, list, &chosen));
    const cod_status status = list->items[chosen].make(plan, &list->items[chosen]);
    if (status == COD_OK || chosen == 0)
        return status;
    cod_log_warn("cuda: %s cannot be made (%s); %s is taken", list->names[chosen], cod_error_message(), list->names[0]);
    cuda_plan_clear(plan);
    return list->items[0].make(plan, &list->items[0]);
}

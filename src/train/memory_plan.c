#include "train/memory_plan.h"

#include <stdio.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/** Moments and moving averages of all sets that are trained, as they will be where they are not made yet. */
static void read_optimisers(const cod_train_session *session, cod_memory_plan *plan)
{
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++) {
        size_t moments, average;
        if (!session->recipe.sets[s].trained)
            continue;
        const cod_set_range range = cod_graph_set_range(session->recipe.model.graph, s);
        const cod_optimiser_options options = cod_train_session_optimiser(session, s);
        cod_optimiser_memory(&range, &options, &moments, &average);
        plan->moments += moments;
        plan->average += average;
    }
}

bool cod_memory_plan_read(const cod_train_session *session, cod_memory_plan *out)
{
    const cod_backend *backend = session->backend;
    *out = (cod_memory_plan){.programs = session->memory};
    if (backend == NULL || backend->memory == NULL ||
        backend->memory(session->device, &out->free_bytes, &out->total_bytes) != COD_OK)
        return false;
    const cod_layout layout = cod_graph_layout(session->recipe.model.graph); /* also where there are no weights yet */
    out->weights = (layout.trainable + layout.state) * sizeof(float);
    out->gradients = layout.trainable * sizeof(float);
    read_optimisers(session, out);
    if (backend->allocated != NULL && session->compiled_bytes > 0) {
        const size_t named =
            out->weights + out->gradients + out->moments + out->average + out->programs.arena + out->programs.io;
        out->plans = session->compiled_bytes - least(named, session->compiled_bytes);
        const size_t now = backend->allocated(session->device);
        out->beside = now - least(session->compiled_bytes, now);
    }
    return true;
}

static double megabytes(size_t bytes)
{
    return 1e-6 * (double)bytes;
}

/** The parts that are known, separated by commas. @return their sum */
static size_t format_parts(const cod_memory_plan *plan, char *text, size_t room)
{
    const struct {
        const char *name;
        size_t bytes;
    } parts[] = {{"weights", plan->weights},
                 {"gradients", plan->gradients},
                 {"moments", plan->moments},
                 {"moving average", plan->average},
                 {"activations", plan->programs.arena},
                 {"inputs and outputs", plan->programs.io},
                 {"packed weights and scratch", plan->plans},
                 {"teachers and exchange", plan->beside}};
    size_t sum = 0, used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].bytes > 0 && used < room)
            used += (size_t)snprintf(text + used, room - used, "%s%s %.1f", used > 0 ? ", " : "", parts[i].name,
                                     megabytes(parts[i].bytes));
        sum += parts[i].bytes;
    }
    return sum;
}

void cod_memory_plan_format(const cod_memory_plan *plan, char text[COD_MEMORY_PLAN_TEXT])
{
    char parts[COD_MEMORY_PLAN_TEXT - 128];
    const size_t sum = format_parts(plan, parts, sizeof parts);
    snprintf(text, COD_MEMORY_PLAN_TEXT, "%s: %.1f in all; %.1f of %.1f are free", parts, megabytes(sum),
             megabytes(plan->free_bytes), megabytes(plan->total_bytes));
}

cod_status cod_memory_plan_explain(const cod_train_session *session, cod_status status)
{
    cod_memory_plan plan;
    char parts[COD_MEMORY_PLAN_TEXT];
    if (status != COD_ERR_MEMORY || cod_error_said_elsewhere() || !cod_memory_plan_read(session, &plan))
        return status;
    format_parts(&plan, parts, sizeof parts);
    return cod_fail(
        status,
        "%s; training needs in the device's memory, in MB: %s%s; %.1f of %.1f are free. A smaller data.batch, "
        "with train.accumulate in return, %strain.precision=bf16 or fewer ranks on the device need less",
        cod_error_message(), parts, plan.plans == 0 ? ", and what plans keep for themselves" : "",
        megabytes(plan.free_bytes), megabytes(plan.total_bytes),
        session->config->train.recompute == COD_RECOMPUTE_NONE ? "train.recompute=cheap, " : "");
}

#include "listener.h"

#include "train_job.h"

#include "core/hash.h"
#include "train/group_average.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLAGS = 3, MEMORY = 5 };

typedef struct listener {
    cod_strategy base;
    const listener_plan *plan;
    cod_group_average average;
    int64_t step, heard; /**< heard: steps that it was told of, over all processes */
    int ranks;
    uint64_t before[COD_GRAPH_MAX_SETS]; /**< hashes of the sets */
    uint64_t joined;                     /**< of the set that was updated with its gradients, behind that */
    int64_t updates[COD_GRAPH_MAX_SETS]; /**< in this process */
    int64_t first_step;                  /**< of this process */
    bool *covered;                       /**< [trainable] */
    int covering;                        /**< the set whose gradients come; -1 = none */
    float memory[MEMORY];
    cod_value extra; /**< loss of the program "taught" */
} listener;

/** Notes a hook, and fails where the plan says so. */
static cod_status hear(listener *l, const char *hook, const char *detail)
{
    const listener_plan *plan = l->plan;
    job_note("%s%s%s%s ", hook, *detail ? "(" : "", detail, *detail ? ")" : "");
    if (plan->fails == NULL || strcmp(plan->fails, hook) != 0 || plan->fail_rank != job_self->rank ||
        l->step < plan->fail_step)
        return COD_OK;
    return cod_fail(COD_ERR_IO, "planted in %s", hook);
}

static cod_status hear_number(listener *l, const char *hook, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    return hear(l, hook, text);
}

static cod_status check(bool holds, const char *what, int64_t step)
{
    return holds ? COD_OK : cod_fail(COD_ERR_NUMERIC, "contract: %s, step %lld", what, (long long)step);
}

static const char *set_name(const cod_train_context *context, int set)
{
    return context->session->recipe.sets[set].name;
}

static cod_status hash_set(const cod_train_context *context, int set, uint64_t *hash)
{
    const cod_weights *weights = &context->session->weights;
    const cod_layout layout = cod_weights_layout_of(weights, cod_set_of(set));
    const size_t bytes = (layout.trainable + layout.state) * sizeof(float);
    float *values = malloc(bytes + 1);
    COD_REQUIRE_MEMORY(values);
    const cod_status status = cod_weights_download_sets(weights, cod_set_of(set), values);
    *hash = cod_hash(values, bytes, 0);
    free(values);
    return status;
}

static cod_status hash_sets(const cod_train_context *context, uint64_t *hashes)
{
    for (int s = 0; s < (int)cod_graph_set_count(context->session->weights.graph); s++)
        COD_TRY(hash_set(context, s, &hashes[s]));
    return COD_OK;
}

/** Whether a set's update is queued with the program of its gradients: of `bystander`, alone in its group. */
static bool is_joined(const listener *l, const cod_train_context *context)
{
    return context->config->strategy->only_averages && l->ranks == 1;
}

/** Changes one of a set's trainable values, counted from its end where below zero. */
static cod_status change_value(const cod_train_context *context, int set, int64_t index, float change)
{
    cod_weights *weights = &context->session->weights;
    const cod_layout layout = cod_weights_layout_of(weights, cod_set_of(set));
    float *values = malloc((layout.trainable + layout.state) * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    cod_status status = cod_weights_download_sets(weights, cod_set_of(set), values);
    if (status == COD_OK) {
        values[index] += change;
        status = cod_weights_upload_sets(weights, cod_set_of(set), values);
    }
    free(values);
    return status;
}

static cod_status add_losses(cod_strategy *strategy, cod_train_session *session)
{
    listener *l = (listener *)strategy;
    const cod_sub_step *distils = cod_recipe_distilling(&session->recipe);
    COD_TRY(hear(l, "add_losses", ""));
    if (!l->plan->teaches)
        return COD_OK;
    COD_TRY(check(session->executable == NULL && distils != NULL, "add_losses() comes first", 0));
    const cod_recipe *recipe = &session->recipe;
    const cod_loss_spec spec = {.kind = COD_LOSS_MSE, .weight = session->loss_factor};
    l->extra = cod_graph_loss(recipe->model.graph, "extra", recipe->model.output, recipe->target, spec);
    cod_program_spec taught = distils->program;
    taught.name = "taught";
    for (size_t i = 0; i < COD_PROGRAM_MAX_LOSSES; i++)
        if (taught.losses[i] == 0) {
            taught.losses[i] = l->extra;
            break;
        }
    return cod_train_session_add(session, &taught);
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    listener *l = (listener *)strategy;
    l->ranks = cod_group_size(context->group);
    l->covering = -1;
    strategy->flag_count = FLAGS;
    l->covered = calloc(context->session->weights.layout.trainable, sizeof *l->covered);
    COD_REQUIRE_MEMORY(l->covered);
    COD_TRY(check(context->session->executable != NULL && context->loader == NULL && context->step == 0,
                  "start() finds programs, and no loader yet", 0));
    COD_TRY(hear(l, "start", ""));
    job_note("\n");
    return COD_OK;
}

static cod_status before_step(cod_strategy *strategy, cod_train_context *context)
{
    listener *l = (listener *)strategy;
    l->step = context->step;
    if (l->plan->meanwhile != NULL && job_self->rank == l->plan->meanwhile_rank)
        l->plan->meanwhile(l->step);
    COD_TRY(check(context->loader != NULL, "there is a loader", l->step));
    COD_TRY(check(l->heard == l->step, "no step is left out", l->step));
    const cod_recipe *recipe = &context->session->recipe;
    for (int s = 0; s < (int)cod_graph_set_count(recipe->model.graph); s++) {
        const int64_t due = cod_recipe_updates(recipe, s, l->step, 0) - cod_recipe_updates(recipe, s, l->first_step, 0);
        COD_TRY(check(l->updates[s] == due, "optimisers count the updates that there were", l->step));
    }
    if (is_joined(l, context))
        COD_TRY(hash_sets(context, l->before));
    return hear_number(l, "before_step", context->step);
}

static cod_status choose(cod_strategy *strategy, cod_train_context *context, const char **program)
{
    listener *l = (listener *)strategy;
    const cod_sub_step *distils = cod_recipe_distilling(&context->session->recipe);
    COD_TRY(check(strcmp(*program, distils->program.name) == 0, "the recipe's program stands there", l->step));
    if (l->plan->chooses != NULL)
        *program = l->plan->chooses;
    else if (l->plan->teaches && context->step % 2 == 1)
        *program = "taught";
    return hear(l, "choose", *program);
}

/** Continues a hash with what programs will read in a dense view. */
static cod_status hash_view(const cod_train_session *session, const cod_view *view, uint64_t *hash)
{
    const size_t bytes = cod_view_span_bytes(view);
    void *values = malloc(bytes);
    COD_REQUIRE_MEMORY(values);
    const cod_status status =
        session->backend->download(session->device, NULL, values, view->buffer, view->offset, bytes);
    *hash = cod_hash(values, bytes, *hash);
    free(values);
    return status;
}

static cod_status before_batch(cod_strategy *strategy, cod_train_context *context)
{
    listener *l = (listener *)strategy;
    const cod_train_session *session = context->session;
    char text[40] = "";
    uint64_t hash = 0;
    if (!l->plan->notes_data)
        return hear(l, "before_batch", text);
    COD_TRY(hash_view(session, &session->truth, &hash));
    COD_TRY(hash_view(session, &session->input, &hash));
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    return hear(l, "before_batch", text);
}

static cod_status gradient_ready(cod_strategy *strategy, cod_train_context *context, int set, cod_bucket bucket,
                                 cod_event *complete)
{
    listener *l = (listener *)strategy;
    const cod_set_range *range = &context->session->weights.sets[set].range;
    COD_TRY(check(l->covering < 0 || l->covering == set, "gradients are of one set", l->step));
    COD_TRY(check(bucket.first >= range->first && bucket.first + bucket.count <= range->first + range->count,
                  "a bucket is of its set", l->step));
    for (size_t i = bucket.first; i < bucket.first + bucket.count; i++) {
        COD_TRY(check(!l->covered[i], "buckets do not overlap", l->step));
        l->covered[i] = true;
    }
    if (l->covering < 0)
        COD_TRY(hear(l, "gradient_ready", set_name(context, set)));
    l->covering = set;
    return cod_group_average_start(&l->average, context, bucket, complete);
}

static cod_status before_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    listener *l = (listener *)strategy;
    const cod_weights *weights = &context->session->weights;
    const cod_set_range *range = &weights->sets[set].range;
    COD_TRY(hear(l, "before_update", set_name(context, set)));
    if (is_joined(l, context)) {
        COD_TRY(hash_set(context, set, &l->joined));
        return check(l->joined != l->before[set], "the update is done with the gradients", l->step);
    }
    COD_TRY(check(l->covering == set, "the set's gradients have come", l->step));
    for (size_t i = 0; i < range->count; i++)
        COD_TRY(check(l->covered[range->first + i], "buckets cover the set", l->step));
    memset(l->covered, 0, weights->layout.trainable * sizeof *l->covered);
    l->covering = -1;
    COD_TRY(hash_sets(context, l->before));
    return cod_group_average_wait(&l->average, context);
}

static cod_status after_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    listener *l = (listener *)strategy;
    COD_TRY(hear(l, "after_update", set_name(context, set)));
    l->updates[set]++;
    for (int s = 0; s < (int)cod_graph_set_count(context->session->weights.graph); s++) {
        uint64_t hash;
        COD_TRY(hash_set(context, s, &hash));
        if (s == set && is_joined(l, context))
            COD_TRY(check(hash == l->joined, "a set is updated once", l->step));
        const bool frozen = l->plan->spoils != NULL && hash == l->before[s]; /* NaN stays NaN */
        COD_TRY(check(frozen || (hash != l->before[s]) == (s == set), "the set that it is of changes, and no other",
                      l->step));
    }
    return COD_OK;
}

static cod_status after_step(cod_strategy *strategy, cod_train_context *context)
{
    listener *l = (listener *)strategy;
    const listener_plan *plan = l->plan;
    const int64_t done = context->step + 1;
    COD_TRY(check(context->step == l->step, "it is the step just done", l->step));
    COD_TRY(hear(l, "after_step", ""));
    l->heard++;
    for (int i = 0; i < MEMORY; i++)
        l->memory[i] = sinf((float)(done * (i + 1))) + (float)job_self->rank;
    if (plan->stop_after == done && plan->stop_rank == job_self->rank)
        job_self->stop = 1;
    const cod_train_session *session = context->session;
    if (plan->spoils != NULL && plan->spoil_after == done && plan->spoil_rank == job_self->rank)
        COD_TRY(change_value(context, cod_graph_set_index(session->recipe.model.graph, plan->spoils), 0, NAN));
    if (done == context->steps)
        for (size_t p = cod_graph_param_count(session->recipe.model.graph); p-- > 0;) {
            const cod_param *param = cod_graph_param(session->recipe.model.graph, p);
            if (param->set != 0 || param->is_state)
                continue;
            return change_value(context, 0, (int64_t)param->offset, plan->tilt[cod_group_index(context->group)]);
        }
    return COD_OK;
}

/** A flag that counts ranks, one that tells the step, one that tells who. */
static void flags_out(cod_strategy *strategy, double *out)
{
    const listener *l = (const listener *)strategy;
    job_note("flags_out%s\n", out[0] == 0 && out[1] == 0 && out[2] == 0 ? "" : "(which were not zeroed)");
    out[0] = 1;
    out[1] = (double)l->step;
    out[2] = job_self->rank;
}

static cod_status flags_in(cod_strategy *strategy, cod_train_context *context, const double *in)
{
    listener *l = (listener *)strategy;
    double ranks = 0;
    for (int r = 0; r < l->ranks; r++)
        ranks += cod_group_world_rank(context->group, cod_group_index(context->group), r);
    COD_TRY(check(in[0] == l->ranks && in[2] == ranks, "flags are sums over the group", l->step));
    const int64_t of = (int64_t)in[1] / l->ranks;
    COD_TRY(check((double)(of * l->ranks) == in[1], "ranks speak of one step", l->step));
    return hear_number(l, "flags_in", of);
}

static cod_status validated(cod_strategy *strategy, cod_train_context *context, double figure)
{
    listener *l = (listener *)strategy;
    COD_TRY(
        check(cod_group_rank(context->group) == 0 && figure >= 0 && figure <= 100, "the leader's accuracy", l->step));
    return hear_number(l, "validated", context->step);
}

static cod_status save(cod_strategy *strategy, cod_checkpoint *checkpoint)
{
    listener *l = (listener *)strategy;
    COD_TRY(cod_checkpoint_add_number(checkpoint, "heard", (double)l->heard));
    COD_TRY(cod_checkpoint_add_f32(checkpoint, "memory", l->memory, MEMORY));
    COD_TRY(hear_number(l, "save", l->heard));
    job_note("\n");
    return COD_OK;
}

static cod_status load(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file)
{
    listener *l = (listener *)strategy;
    double heard;
    COD_TRY(cod_checkpoint_number(file, "heard", &heard));
    COD_TRY(cod_checkpoint_read(file, "memory", l->memory, sizeof l->memory));
    l->heard = l->first_step = (int64_t)heard;
    COD_TRY(check(l->heard == context->step, "the step is known", context->step));
    for (int i = 0; i < MEMORY; i++)
        COD_TRY(check(l->memory[i] == sinf((float)(l->heard * (i + 1))) + (float)job_self->rank,
                      "what was saved is there", context->step));
    COD_TRY(hear_number(l, "load", l->heard));
    job_note("\n");
    return COD_OK;
}

static cod_status finish(cod_strategy *strategy, cod_train_context *context)
{
    listener *l = (listener *)strategy;
    COD_TRY(hear(l, "finish", ""));
    for (int s = 0; s < (int)cod_graph_set_count(context->session->weights.graph); s++) {
        uint64_t hash;
        COD_TRY(hash_set(context, s, &hash));
        double ends[2] = {(double)(hash >> 16), -(double)(hash >> 16)};
        COD_TRY(cod_group_reduce(context->group, ends, 2, COD_REDUCE_MAX));
        COD_TRY(check(ends[0] == -ends[1], "ranks of a group have equal weights", context->step));
    }
    return COD_OK;
}

static void stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    out->waited_s = ((const listener *)strategy)->average.waited_s;
    out->merges = (uint64_t)((const listener *)strategy)->step;
}

static void destroy(cod_strategy *strategy)
{
    listener *l = (listener *)strategy;
    job_note("destroy");
    cod_group_average_clear(&l->average);
    free(l->covered);
    free(l);
}

/* Without stats(): hooks that are NULL do nothing. */
static const cod_strategy_peers peers = {.flags_out = flags_out, .flags_in = flags_in, .validated = validated};
static const cod_strategy_teaching teaching = {
    .add_losses = add_losses, .choose = choose, .before_batch = before_batch};
static const cod_strategy_ops ops = {
    .start = start,
    .before_step = before_step,
    .gradient_ready = gradient_ready,
    .before_update = before_update,
    .after_update = after_update,
    .after_step = after_step,
    .save = save,
    .load = load,
    .finish = finish,
    .stats = stats,
    .destroy = destroy,
    .teaching = &teaching,
    .peers = &peers,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    static const listener_plan nothing;
    (void)run;
    listener *l = calloc(1, sizeof *l);
    COD_REQUIRE_MEMORY(l);
    l->plan = job_self->job->plan != NULL ? job_self->job->plan : &nothing;
    l->base = (cod_strategy){&ops, .agree_within = l->plan->agree_within, .in_step_every = l->plan->in_step_every};
    *out = &l->base;
    return hear(l, "create", "");
}

void listener_register(void)
{
    static const cod_strategy_kind kinds[] = {
        {.name = "listener", .help = "listens", .keeps_state = true, .averages = true, .create = create},
        {.name = "eavesdropper", .help = "listens", .keeps_state = true, .averages = true, .create = create},
        {.name = "bystander",
         .help = "listens",
         .keeps_state = true,
         .averages = true,
         .only_averages = true,
         .create = create}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        cod_strategy_register(&kinds[i]);
}

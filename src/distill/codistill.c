#include "distill/codistill.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "distill/exchange.h"
#include "distill/merge.h"
#include "distill/replay.h"
#include "distill/teacher.h"
#include "io/file.h"
#include "train/group_average.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM_DISTILL "distill"
#define TEACHER_INPUT   "teacher"
#define WEIGHT_SCALAR   "distill_weight"

enum { DEFAULT_STALENESS_PERIODS = 20, TIMES_KEPT = 512 };

static cod_distill_options distill_options;
static cod_exchange_options exchange_options;

static const char *const losses[] = {"l1", "mse", "charbonnier", NULL};
#define FIELD(name) offsetof(cod_distill_options, name)
static const cod_option options[] = {
    {"weight", COD_OPTION_FLOAT, FIELD(weight), "0.1", 0, 1000, NULL,
     "weight of the distillation loss beside the task loss, after the ramp; 0 = no teachers"},
    {"loss", COD_OPTION_CHOICE, FIELD(loss), "l1", 0, 0, losses,
     "distance between the teacher's picture and the student's"},
    {"burn_in", COD_OPTION_INT, FIELD(burn_in), "1000", 0, 1e12, NULL,
     "steps before distillation starts: early teachers know nothing"},
    {"ramp", COD_OPTION_INT, FIELD(ramp), "1000", 0, 1e12, NULL, "steps over which the weight then rises to its value"},
    {"every", COD_OPTION_INT, FIELD(every), "1", 1, 1e9, NULL,
     "distil in every N-th step only, which costs a N-th of the teacher's forward"},
    {"batch_fraction", COD_OPTION_FLOAT, FIELD(batch_fraction), "1", 0.001, 1, NULL,
     "part of the mini-batch that teachers predict and distillation looks at: a half costs half a teacher's forward"},
    {"teacher_precision", COD_OPTION_CHOICE, FIELD(teacher_precision), "auto", 0, 0, cod_upscaler_precision_names,
     "type of a teacher's activations: auto is train.precision's; int8 computes convolutions on 8-bit integers, with "
     "ranges "
     "observed on a mini-batch at each switch"},
    {"fade", COD_OPTION_BOOL, FIELD(fade), "true", 0, 0, NULL, "the weight falls with the learning rate"},
    {"gate", COD_OPTION_BOOL, FIELD(gate), "false", 0, 0, NULL,
     "leave the teacher out where its own task loss on the mini-batch is above the student's of late"},
};
#undef FIELD
const cod_option_table cod_distill_option_table = {"distill", "Use of pulled checkpoints as teachers", options,
                                                   sizeof options / sizeof options[0], sizeof(cod_distill_options)};

typedef struct peer {
    cod_teacher *teacher;
    uint64_t version; /**< loaded; 0 = none */
    uint64_t merged;  /**< the last one merged */
    int64_t step;     /**< the peer's, of that version */
    int64_t since;    /**< own step from which the weight ramps in; -1 = no teacher */
    bool mergeable;
    int unmerged; /**< versions in a row that came and went without a merge; -1 = that was said */
} peer;

typedef struct codistill {
    cod_strategy base;
    cod_group_average average;
    cod_exchange *exchange;
    cod_merger *merger;
    cod_value loss;
    int64_t taught; /**< pictures of the mini-batch */
    peer *peers;
    int peer_count;
    float *snapshot; /**< [trainable + state] */
    double share;    /**< a peer's part of a merge */
    peer *teaching;  /**< of this step, or NULL */
    double weight, student_loss;
    cod_strategy_stats stats;
    double exchange_s, teacher_ms[TIMES_KEPT]; /**< the latest */
    uint64_t teacher_runs, steps;
    int64_t now; /**< the step under way */
} codistill;

static cod_status build(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    static const cod_loss_kind kinds[] = {COD_LOSS_L1, COD_LOSS_MSE, COD_LOSS_CHARBONNIER};
    cod_graph *graph = context->model->graph;
    if (distill_options.weight == 0)
        return COD_OK;
    const cod_value teacher = cod_graph_input_like(graph, TEACHER_INPUT, context->model->output);
    c->taught = (int64_t)ceil(distill_options.batch_fraction * (double)context->batch);
    c->loss = cod_graph_loss(graph, "distill", context->model->output, teacher,
                             (cod_loss_spec){.kind = kinds[distill_options.loss],
                                             .weight = context->loss_factor,
                                             .scalar = WEIGHT_SCALAR,
                                             .first_items = c->taught});
    context->programs[context->program_count++] =
        (cod_program_spec){.name = PROGRAM_DISTILL, .trains = "model", .losses = {context->task_loss, c->loss}};
    return COD_OK;
}

/** What each group trains, told by its first rank. */
static cod_status gather_models(cod_train_context *context, cod_exchange_model *models)
{
    cod_group *world = cod_comm_world(context->comm);
    const cod_exchange_model mine = {.count = context->weights->layout.trainable,
                                     .state_count = context->weights->layout.state,
                                     .hash = cod_graph_fingerprint(context->model->graph)};
    cod_exchange_model *all = calloc((size_t)cod_group_size(world), sizeof *all);
    COD_REQUIRE_MEMORY(all);
    cod_status status = cod_group_gather(world, &mine, sizeof mine, all);
    for (int g = 0; status == COD_OK && g < cod_group_count(context->group); g++)
        models[g] = all[cod_group_world_rank(context->group, g, 0)];
    free(all);
    return status;
}

/** Weights can be merged where architectures are equal and the start was common. */
static cod_status make_merger(codistill *c, cod_train_context *context, const cod_exchange_model *models)
{
    const int mine = cod_group_index(context->group);
    int mergeable = 0;
    if (exchange_options.merge == COD_MERGE_NONE)
        return COD_OK;
    for (int i = 0; i < c->peer_count; i++) {
        const int group = cod_exchange_peer_group(c->exchange, i);
        c->peers[i].mergeable = models[group].hash == models[mine].hash;
        mergeable += c->peers[i].mergeable;
        if (!c->peers[i].mergeable && cod_group_rank(context->group) == 0)
            cod_log_info("group %d: group %d trains another model, so its weights are not merged", mine, group);
    }
    c->share = 1.0 / (mergeable + 1);
    return mergeable > 0 ? cod_merger_create(context->weights, &c->merger) : COD_OK;
}

static cod_status make_peers(codistill *c, cod_train_context *context, const cod_exchange_model *models)
{
    c->peer_count = cod_exchange_peer_count(c->exchange);
    c->peers = calloc((size_t)c->peer_count + 1, sizeof *c->peers);
    COD_REQUIRE_MEMORY(c->peers);
    for (int i = 0; i < c->peer_count; i++) {
        const int group = cod_exchange_peer_group(c->exchange, i);
        const cod_teacher_spec spec = {.peer = cod_run_config_group(context->config, group),
                                       .target = TEACHER_INPUT,
                                       .pictures = c->taught,
                                       .precision = (cod_precision)distill_options.teacher_precision};
        c->peers[i].since = -1;
        if (c->loss != 0)
            COD_TRY(cod_teacher_create(context, &spec, &c->peers[i].teacher));
    }
    COD_TRY(cod_aligned_alloc((void **)&c->snapshot, cod_weights_count(context->weights) * sizeof(float)));
    return make_merger(c, context, models);
}

static cod_status start_replay(codistill *c, cod_train_context *context)
{
    cod_exchange_event *events = NULL;
    size_t count = 0;
    COD_TRY(cod_replay_read(exchange_options.replay, cod_group_index(context->group), &events, &count));
    const cod_status status = cod_exchange_replay(c->exchange, events, count);
    free(events);
    return status;
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    const cod_root_options *root = &context->config->root;
    cod_exchange_options exchange = exchange_options;
    exchange.deterministic = exchange.deterministic || context->config->train.deterministic;
    exchange.anew = context->config->checkpoint.resume == COD_RESUME_NEVER;
    if (exchange.directory[0] == '\0')
        exchange.directory = cod_path_join(cod_config_arena(context->config->config),
                                           cod_run_config_folder(context->config), "exchange");
    COD_REQUIRE_MEMORY(exchange.directory);
    context->in_step = exchange.deterministic; /* a repeated run's groups may be far apart */
    cod_exchange_model *models = calloc((size_t)cod_group_count(context->group), sizeof *models);
    COD_REQUIRE_MEMORY(models);
    cod_group *world = cod_comm_world(context->comm);
    cod_status status = cod_group_agree(world, gather_models(context, models), NULL);
    const uint64_t run = cod_hash(root->name, strlen(root->name), (uint64_t)root->seed);
    if (status == COD_OK)
        status = cod_exchange_create(context->comm, context->group, &exchange, models, run, &c->exchange);
    if (status == COD_OK)
        status = cod_group_agree(world, make_peers(c, context, models), NULL);
    if (status == COD_OK && exchange.replay[0] != '\0')
        status = cod_group_agree(world, start_replay(c, context), NULL);
    free(models);
    return status;
}

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/** 1 for a teacher below its age limit; past it, falling to 0 over a quarter of that age, not by a jump. */
static double freshness(const peer *p, int64_t step)
{
    const int64_t steps = exchange_options.max_staleness_steps;
    const double limit = (double)(steps > 0 ? steps : DEFAULT_STALENESS_PERIODS * exchange_options.period);
    return clamp01((1.25 * limit - (double)(step - p->step)) / (0.25 * limit));
}

/** Weight of a teacher at this step: burn-in, ramp, fade, age. */
static double weight_of(const peer *p, const cod_train_context *context)
{
    if (p->since < 0 || context->step < distill_options.burn_in)
        return 0;
    const int64_t from = p->since > distill_options.burn_in ? p->since : distill_options.burn_in;
    double weight = distill_options.weight * freshness(p, context->step);
    if (distill_options.ramp > 0)
        weight *= clamp01((double)(context->step - from + 1) / (double)distill_options.ramp);
    if (distill_options.fade)
        weight *= context->rate / context->config->train.rate;
    return weight;
}

static cod_status before_step(cod_strategy *strategy, cod_train_context *context, const char **program)
{
    codistill *c = (codistill *)strategy;
    c->now = context->step;
    c->teaching = NULL;
    c->weight = 0;
    *program = COD_PROGRAM_PLAIN;
    if (c->loss == 0 || c->peer_count == 0 || context->step % distill_options.every != 0)
        return COD_OK;
    /* One teacher a step, in turn: many peers cost no more than one. */
    for (int i = 0; i < c->peer_count && c->teaching == NULL; i++) {
        peer *p = &c->peers[(context->step + i) % c->peer_count];
        const double weight = weight_of(p, context);
        if (weight > 0) {
            c->teaching = p;
            c->weight = weight;
        }
    }
    if (c->teaching == NULL)
        return COD_OK;
    c->stats.distill_weight = c->weight;
    *program = PROGRAM_DISTILL;
    return cod_executable_set_scalar(context->executable, WEIGHT_SCALAR, (float)c->weight);
}

static cod_status before_batch(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    float loss;
    if (c->teaching == NULL)
        return COD_OK;
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    COD_TRY(cod_teacher_run(c->teaching->teacher, &loss));
    cod_trace_end(trace, "step", "teacher");
    c->teacher_ms[c->teacher_runs++ % TIMES_KEPT] = 1e3 * (cod_clock_s() - begin);
    if (!distill_options.gate)
        return COD_OK;
    return cod_executable_set_scalar(context->executable, WEIGHT_SCALAR, loss > c->student_loss ? 0 : (float)c->weight);
}

static cod_status gradient_ready(cod_strategy *strategy, cod_train_context *context, cod_bucket bucket)
{
    return cod_group_average_start(&((codistill *)strategy)->average, context, bucket);
}

static cod_status before_update(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    float task, distill;
    COD_TRY(cod_group_average_wait(&c->average, context));
    COD_TRY(cod_executable_loss(context->executable, context->task_loss, &task));
    c->student_loss = c->student_loss == 0 ? task : 0.99 * c->student_loss + 0.01 * task;
    c->stats.distill_loss = NAN;
    if (c->teaching != NULL) {
        COD_TRY(cod_executable_loss(context->executable, c->loss, &distill));
        c->stats.distill_loss = distill;
    }
    return COD_OK;
}

/** Averages the normalisation statistics over the group: each rank saw other pictures. */
static cod_status average_statistics(cod_train_context *context, float *values)
{
    cod_weights *weights = context->weights;
    const size_t count = weights->layout.state;
    const int size = cod_group_size(context->group);
    if (count == 0 || size == 1)
        return COD_OK;
    double *sums = malloc(count * sizeof *sums);
    COD_REQUIRE_MEMORY(sums);
    float *state = values + weights->layout.trainable;
    for (size_t i = 0; i < count; i++)
        sums[i] = state[i];
    const cod_status status = cod_group_reduce(context->group, sums, count, COD_REDUCE_SUM);
    for (size_t i = 0; i < count; i++)
        state[i] = (float)(sums[i] / size);
    free(sums);
    COD_TRY(status);
    return weights->backend->upload(weights->device, NULL, weights->values, weights->layout.trainable * sizeof(float),
                                    state, count * sizeof(float));
}

static cod_status publish(codistill *c, cod_train_context *context, int64_t done)
{
    cod_weights *weights = context->weights;
    const size_t bytes = cod_weights_count(weights) * sizeof(float);
    COD_TRY(cod_weights_download(weights, c->snapshot));
    COD_TRY(average_statistics(context, c->snapshot));
    cod_buffer *ema = exchange_options.publish == COD_PUBLISH_EMA ? cod_optimiser_ema(context->optimiser) : NULL;
    if (ema != NULL)
        COD_TRY(context->backend->download(context->device, NULL, c->snapshot, ema, 0, bytes));
    const float *state = weights->layout.state > 0 ? c->snapshot + weights->layout.trainable : NULL;
    COD_TRY(cod_exchange_publish(c->exchange, c->snapshot, state, done));
    c->stats.publications++;
    const cod_train_event event = {.kind = "publish",
                                   .peer = cod_group_index(context->group),
                                   .version = (uint64_t)(done / exchange_options.period),
                                   .peer_step = done,
                                   .alpha = NAN};
    return cod_train_tell(context, &event);
}

/** Counts versions that one's own were never beside: groups that far apart only distil. */
static void count_unmerged(peer *p, const cod_train_context *context, int64_t peer_step)
{
    enum { SAID_AFTER = 8 };
    if (p->unmerged < 0)
        return;
    p->unmerged = p->merged == p->version ? 0 : p->unmerged + 1;
    if (p->unmerged < SAID_AFTER)
        return;
    p->unmerged = -1;
    if (cod_group_rank(context->group) == 0)
        cod_log_warn("group %d is at step %lld and a peer at %lld: too far apart to merge weights, so they only distil",
                     cod_group_index(context->group), (long long)context->step, (long long)peer_step);
}

static cod_status tell(const codistill *c, const peer *p, const cod_train_context *context, const char *kind,
                       double alpha)
{
    const cod_train_event event = {.kind = kind,
                                   .peer = cod_exchange_peer_group(c->exchange, (int)(p - c->peers)),
                                   .version = p->version,
                                   .peer_step = p->step,
                                   .alpha = alpha};
    return cod_train_tell(context, &event);
}

/** A version that the exchange has newly decoded becomes the teacher. */
static cod_status adopt(peer *p, const cod_exchange_checkpoint *checkpoint, int64_t step)
{
    const bool absent = p->since < 0 || freshness(p, step) == 0;
    p->version = checkpoint->version;
    p->step = checkpoint->step;
    p->since = absent ? step : p->since; /* one that had faded out comes back by the ramp */
    return p->teacher != NULL ? cod_teacher_load(p->teacher, checkpoint->values) : COD_OK;
}

/** Merges each version once, as soon as one's own publication of the same number exists: a faster peer's comes earlier. */
static cod_status merge(codistill *c, peer *p, const cod_exchange_checkpoint *checkpoint,
                        const cod_train_context *context)
{
    if (!p->mergeable || checkpoint->own == NULL || p->merged == p->version)
        return COD_OK;
    const int64_t late = context->step - checkpoint->step, delay = late > 0 ? late / exchange_options.period : 0;
    const double alpha = exchange_options.merge_alpha > 0 ? exchange_options.merge_alpha : cod_merge_alpha(delay);
    p->merged = p->version;
    c->stats.merges++;
    COD_TRY(tell(c, p, context, "merge", alpha));
    return cod_merger_apply(c->merger, checkpoint->values, checkpoint->own, alpha, c->share);
}

/** Uses what the exchange holds: the same on every rank of the group, at the same step. */
static cod_status take_over(codistill *c, cod_train_context *context)
{
    for (int i = 0; i < c->peer_count; i++) {
        peer *p = &c->peers[i];
        cod_exchange_checkpoint checkpoint;
        cod_exchange_read_checkpoint(c->exchange, i, &checkpoint);
        if (checkpoint.values == NULL)
            continue;
        if (checkpoint.version != p->version) {
            if (p->mergeable && p->version > 0)
                count_unmerged(p, context, checkpoint.step);
            COD_TRY(adopt(p, &checkpoint, context->step));
            COD_TRY(tell(c, p, context, "switch", NAN));
            c->stats.teacher_switches++;
        }
        COD_TRY(merge(c, p, &checkpoint, context));
    }
    return COD_OK;
}

static cod_status after_update(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    const int64_t done = context->step + 1;
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    if (cod_exchange_publish_due(c->exchange, done))
        COD_TRY(publish(c, context, done));
    COD_TRY(cod_exchange_advance(c->exchange, done));
    COD_TRY(take_over(c, context));
    cod_trace_end(trace, "exchange", "advance");
    c->exchange_s += cod_clock_s() - begin;
    c->steps++;
    return COD_OK;
}

static void flags_out(cod_strategy *strategy, double out[COD_STRATEGY_FLAGS])
{
    _Static_assert((int)COD_EXCHANGE_FLAGS <= (int)COD_STRATEGY_FLAGS, "the exchange's flags must fit");
    cod_exchange_flags_out(((codistill *)strategy)->exchange, out);
}

static cod_status flags_in(cod_strategy *strategy, cod_train_context *context, const double in[COD_STRATEGY_FLAGS])
{
    return cod_exchange_flags_in(((codistill *)strategy)->exchange, context->step, in);
}

static cod_status save(cod_strategy *strategy, cod_checkpoint *checkpoint)
{
    codistill *c = (codistill *)strategy;
    const cod_exchange_array *arrays;
    size_t count;
    COD_TRY(cod_exchange_state(c->exchange, &arrays, &count));
    for (size_t i = 0; i < count; i++)
        COD_TRY(cod_checkpoint_add_bytes(checkpoint, arrays[i].name, arrays[i].data, arrays[i].bytes));
    for (int i = 0; i < c->peer_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "peer%d.since", i);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)c->peers[i].since));
        snprintf(name, sizeof name, "peer%d.merged", i);
        COD_TRY(cod_checkpoint_add_number(checkpoint, name, (double)c->peers[i].merged));
        snprintf(name, sizeof name, "peer%d.ranges", i);
        const float *ranges = cod_teacher_ranges(c->peers[i].teacher, &count);
        if (ranges != NULL)
            COD_TRY(cod_checkpoint_add_bytes(checkpoint, name, ranges, count * sizeof *ranges));
    }
    return cod_checkpoint_add_number(checkpoint, "student_loss", c->student_loss);
}

/** A teacher on integers goes on with the ranges it had; there are none where it was of another type. */
static cod_status load_ranges(cod_teacher *teacher, int index, const cod_st_file *file)
{
    char name[32];
    size_t count;
    snprintf(name, sizeof name, "peer%d.ranges", index);
    if (cod_teacher_ranges(teacher, &count) == NULL || cod_st_tensor_find(file, name) == NULL)
        return COD_OK;
    float *ranges = malloc(count * sizeof *ranges);
    COD_REQUIRE_MEMORY(ranges);
    const cod_status status = cod_checkpoint_read(file, name, ranges, count * sizeof *ranges);
    if (status == COD_OK)
        cod_teacher_set_ranges(teacher, ranges);
    free(ranges);
    return status;
}

static cod_status load_peer(codistill *c, int index, const cod_st_file *file)
{
    peer *p = &c->peers[index];
    cod_exchange_checkpoint checkpoint;
    char name[32];
    double since, merged;
    snprintf(name, sizeof name, "peer%d.since", index);
    COD_TRY(cod_checkpoint_number(file, name, &since));
    snprintf(name, sizeof name, "peer%d.merged", index);
    COD_TRY(cod_checkpoint_number(file, name, &merged));
    cod_exchange_read_checkpoint(c->exchange, index, &checkpoint);
    if (checkpoint.values != NULL)
        COD_TRY(adopt(p, &checkpoint, (int64_t)since));
    COD_TRY(load_ranges(p->teacher, index, file));
    p->since = (int64_t)since;
    p->merged = (uint64_t)merged;
    return COD_OK;
}

static cod_status load(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file)
{
    codistill *c = (codistill *)strategy;
    const cod_exchange_array *arrays;
    size_t count;
    (void)context;
    if (exchange_options.replay[0] != '\0')
        return cod_fail(COD_ERR_UNSUPPORTED, "exchange.replay repeats a run from its beginning; it cannot be resumed");
    COD_TRY(cod_exchange_state(c->exchange, &arrays, &count));
    for (size_t i = 0; i < count; i++)
        COD_TRY(cod_checkpoint_read(file, arrays[i].name, arrays[i].data, arrays[i].bytes));
    COD_TRY(cod_exchange_restored(c->exchange));
    COD_TRY(cod_checkpoint_number(file, "student_loss", &c->student_loss));
    for (int i = 0; i < c->peer_count; i++)
        COD_TRY(load_peer(c, i, file));
    return COD_OK;
}

static cod_status finish(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    (void)context;
    cod_exchange *exchange = c->exchange;
    c->exchange = NULL;
    return cod_exchange_destroy(exchange);
}

static void stats(cod_strategy *strategy, cod_strategy_stats *out)
{
    codistill *c = (codistill *)strategy;
    cod_exchange_counters counters;
    cod_exchange_read_counters(c->exchange, &counters);
    *out = c->stats;
    out->pulled_bytes = counters.pulled_bytes;
    out->published_bytes = counters.published_bytes;
    out->pulls = counters.pulled;
    out->rejected = counters.rejected + counters.lost;
    if (c->teacher_runs > 0) {
        double times[TIMES_KEPT];
        memcpy(times, c->teacher_ms, sizeof times);
        out->teacher_ms = cod_median(times, c->teacher_runs < TIMES_KEPT ? (size_t)c->teacher_runs : TIMES_KEPT);
    }
    out->exchange_ms = c->steps ? 1e3 * c->exchange_s / (double)c->steps : 0;
    out->teacher_step = out->staleness_steps = -1;
    const peer *p = c->teaching != NULL                            ? c->teaching
                    : c->peer_count > 0 && c->peers[0].version > 0 ? &c->peers[0]
                                                                   : NULL;
    if (p != NULL) {
        out->teacher_step = p->step;
        out->staleness_steps = c->now - p->step;
    }
}

static void destroy(cod_strategy *strategy)
{
    codistill *c = (codistill *)strategy;
    for (int i = 0; i < c->peer_count; i++)
        cod_teacher_destroy(c->peers[i].teacher);
    cod_merger_destroy(c->merger);
    cod_aligned_free(c->snapshot);
    free(c->peers);
    free(c);
}

static const cod_strategy_ops ops = {
    .build = build,
    .start = start,
    .before_step = before_step,
    .before_batch = before_batch,
    .gradient_ready = gradient_ready,
    .before_update = before_update,
    .after_update = after_update,
    .flags_out = flags_out,
    .flags_in = flags_in,
    .save = save,
    .load = load,
    .finish = finish,
    .stats = stats,
    .destroy = destroy,
};

static cod_status create(cod_strategy **out)
{
    codistill *c = calloc(1, sizeof *c);
    COD_REQUIRE_MEMORY(c);
    c->base.ops = &ops;
    *out = &c->base;
    return COD_OK;
}

static void check(const cod_run_config *run)
{
    const cod_exchange_options *e = &exchange_options;
    if (e->publish == COD_PUBLISH_EMA && run->train.ema == 0)
        cod_config_problem_key(run->config, "exchange.publish",
                               "the moving average can be published only where there is one: set train.ema above 0");
    if ((e->deterministic || run->train.deterministic) && e->lag_steps >= e->period)
        cod_config_problem_key(run->config, "exchange.lag_steps", "%lld steps are not below exchange.period, %lld",
                               (long long)e->lag_steps, (long long)e->period);
    if (e->replay[0] != '\0' && (e->deterministic || run->train.deterministic))
        cod_config_problem_key(run->config, "exchange.replay",
                               "a deterministic run repeats itself; a record is for asynchronous ones");
    bool own = strcmp(run->whole.model.init, "own") == 0;
    for (size_t i = 0; i < run->group_count; i++)
        own = own || strcmp(run->groups[i].model.init, "own") == 0;
    if (e->merge != COD_MERGE_NONE && own)
        cod_config_problem_key(run->config, "model.init",
                               "merging weights needs a common start: `shared` or a file, or exchange.merge: none");
}

void cod_strategy_register_codistill(void)
{
    static const cod_config_table tables[] = {{&cod_distill_option_table, &distill_options},
                                              {&cod_exchange_option_table, &exchange_options}};
    static const cod_strategy_kind kind = {
        .name = "codistill",
        .help = "groups exchange compressed checkpoints by one-sided gets, merge them and distil from them",
        .keeps_state = true,
        .tables = tables,
        .table_count = 2,
        .check = check,
        .create = create};
    cod_strategy_register(&kind);
}

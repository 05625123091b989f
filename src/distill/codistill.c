#include "distill/codistill_internal.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/statistics.h"
#include "core/trace.h"
#include "distill/control.h"
#include "distill/inputs.h"
#include "distill/models.h"
#include "distill/teaching.h"
#include "distill/toward.h"
#include "exchange/replay.h"
#include "io/file.h"
#include "train/group_average.h"
#include "train/task.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM_DISTILL "distill"
#define PROGRAM_TASK    "task" /**< what the recipe computes, added to the gradients of distilling on other inputs */
#define WEIGHT_SCALAR   "distill_weight"

enum { LOSS_TASK, LOSS_DISTILL }; /* read back; losses toward teachers from the second on */
enum { TIMES_KEPT = 512 };
enum { FLAG_OFF, OWN_FLAGS }; /* the exchange's are behind them */

typedef struct codistill {
    cod_strategy base;
    cod_group_average average;
    cod_exchange *exchange;
    cod_peers peers;
    cod_sets sets;                          /**< that travel */
    cod_toward toward;                      /**< none = nothing is distilled */
    const cod_exchange_options *configured; /**< section `exchange`; start() completes a copy */
    cod_distill_options distill;            /**< as configured, but for what is auto */
    int64_t taught;                         /**< pictures of the mini-batch */
    cod_teaching teaching;
    cod_distill_inputs inputs;
    cod_readback *losses; /**< of the last steps */
    int64_t mini_batch;   /**< of the step */
    cod_control control;  /**< on the group's first rank */
    bool lost;            /**< to the control */
    cod_strategy_stats stats;
    double exchange_s, teacher_s, teacher_ms[TIMES_KEPT]; /**< the latest */
    uint64_t teacher_runs, steps, lessons;
    int64_t now; /**< the step under way */
} codistill;

/** Programs for the marked sub-step, with the recipe's losses and those toward teachers. */
static cod_status add_programs(const codistill *c, cod_train_session *session, const cod_program_spec *marked)
{
    cod_program_spec distill = *marked, task = *marked;
    size_t losses = 0;
    distill.name = PROGRAM_DISTILL;
    if (c->distill.inputs == COD_DISTILL_INPUTS_BATCH) {
        while (losses < COD_PROGRAM_MAX_LOSSES && distill.losses[losses] != 0)
            losses++;
        COD_REQUIRE(losses + c->toward.count <= COD_PROGRAM_MAX_LOSSES,
                    "'%s' has %zu losses and distilling %zu, but a program %d at most", marked->name, losses,
                    c->toward.count, COD_PROGRAM_MAX_LOSSES);
        distill.awaited = CODISTILL_TEACHER_INPUT;
    } else {
        COD_REQUIRE(
            marked->given[0] == 0,
            "distill.inputs: '%s' is given what was computed from the mini-batch, so it cannot be distilled on other "
            "inputs; set distill.inputs=batch",
            marked->name);
        memset(distill.losses, 0, sizeof distill.losses);
        task.name = PROGRAM_TASK;
        task.accumulate = true;
        COD_TRY(cod_train_session_add(session, &task));
    }
    for (size_t i = 0; i < c->toward.count; i++)
        distill.losses[losses++] = c->toward.items[i].loss;
    return cod_train_session_add(session, &distill);
}

static cod_status add_losses(cod_strategy *strategy, cod_train_session *session)
{
    codistill *c = (codistill *)strategy;
    const cod_model *model = &session->recipe.model;
    const cod_sub_step *marked = cod_recipe_distilling(&session->recipe);
    const cod_train_task_kind *task = cod_train_task_find(model->task);
    const cod_loss_kind kind = cod_toward_kind(c->distill.loss, task->distill);
    if (isnan(c->distill.weight))
        c->distill.weight = task->distill_weight;
    if (c->distill.average == COD_DISTILL_AVERAGE_AUTO)
        c->distill.average = kind == COD_LOSS_KL ? COD_DISTILL_AVERAGE_PROBABILITIES : COD_DISTILL_AVERAGE_OUTPUTS;
    if (c->distill.weight == 0 || marked == NULL)
        return COD_OK;
    const cod_value teacher = cod_graph_input_like(model->graph, CODISTILL_TEACHER_INPUT, model->output);
    c->taught = (int64_t)ceil(c->distill.batch_fraction * (double)session->sample.n);
    const cod_loss_spec spec = {
        .kind = kind, .temperature = (float)c->distill.temperature, .scalar = WEIGHT_SCALAR, .first_items = c->taught};
    if (c->distill.loss == COD_DISTILL_LOSS_FEATURES)
        COD_TRY(cod_toward_add_features(&c->toward, session, teacher, spec));
    else
        cod_toward_add_outputs(&c->toward, session, teacher, spec);
    return add_programs(c, session, &marked->program);
}

static cod_status make_peers(codistill *c, cod_train_context *context, const cod_exchange_model *models)
{
    c->base.flag_count = OWN_FLAGS + cod_exchange_flag_count(c->exchange);
    const cod_train_session *session = context->session;
    const cod_teacher_spec spec = {
        .target = CODISTILL_TEACHER_INPUT,
        .pictures = c->taught,
        .precision = (cod_precision)c->distill.teacher_precision,
        .mixes = c->distill.teachers_per_step > 1,
        .temperature = c->distill.average == COD_DISTILL_AVERAGE_PROBABILITIES ? (float)c->distill.temperature : 0};
    COD_TRY(cod_exchange_use_device(c->exchange, session->backend, session->device));
    COD_TRY(cod_peers_init(&c->peers, context, c->exchange, c->configured, models, c->toward.count > 0 ? &spec : NULL));
    if (c->toward.count > 0)
        COD_TRY(cod_readback_create(session->backend, session->device, NULL, COD_TEACHER_SLOTS,
                                    LOSS_DISTILL + c->toward.count, &c->losses));
    if (c->toward.count > 0)
        COD_TRY(cod_distill_inputs_init(&c->inputs, c->distill.inputs, session,
                                        cod_executable_input(session->executable, CODISTILL_TEACHER_INPUT)));
    return cod_teaching_init(&c->teaching, &c->distill, &c->peers, context);
}

static cod_status read_control(codistill *c, const cod_train_context *context)
{
    const cod_task_figure *figure = &context->session->config->task->figures[0];
    if (c->toward.count == 0 || c->distill.control[0] == '\0' || cod_group_rank(context->group) != 0)
        return COD_OK;
    const cod_status status = cod_control_read(c->distill.control, figure->key, figure->less_is_better, &c->control);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "distill.control");
}

static cod_status start_replay(codistill *c, cod_train_context *context)
{
    cod_exchange_event *events = NULL;
    size_t count = 0;
    COD_TRY(cod_replay_read(c->configured->replay, cod_group_index(context->group), &events, &count));
    const cod_status status = cod_exchange_replay(c->exchange, events, count);
    free(events);
    return status;
}

/** What a rank of this group will hold, said once. */
static cod_status tell_memory(const codistill *c, const cod_train_context *context,
                              const cod_exchange_options *exchange, const cod_exchange_model *models)
{
    const int groups = cod_group_count(context->group), mine = cod_group_index(context->group);
    int *ranks = calloc((size_t)groups, sizeof *ranks);
    COD_REQUIRE_MEMORY(ranks);
    for (int g = 0; g < groups; g++)
        ranks[g] = cod_group_members_of(context->group, g).size;
    const int together = cod_exchange_holders(c->exchange);
    const cod_exchange_sizes sizes = cod_exchange_plan(exchange, models, ranks, groups, mine, together);
    free(ranks);
    char advice[512];
    if (cod_comm_rank(context->comm) == 0 && cod_exchange_falls_behind(exchange, sizes.peers, advice, sizeof advice))
        cod_log_warn("group %d: %s", mine, advice);
    if (cod_group_rank(context->group) == 0 && c->peers.count > 0)
        cod_log_info("group %d: a rank holds %.1f MB for the exchange: checkpoints of %d peer%s %.1f, own publications "
                     "%.1f, encoded versions %.1f at most%s",
                     mine, 1e-6 * (double)sizes.memory_bytes, sizes.peers, sizes.peers == 1 ? "" : "s",
                     1e-6 * (double)sizes.held_bytes, 1e-6 * (double)sizes.own_bytes, 1e-6 * (double)sizes.slot_bytes,
                     together > 1 ? "; the first two are its part of what the group's ranks of its node hold together"
                                  : "");
    return COD_OK;
}

/** Bytes of a run that repeats itself, or another, must not follow from measured times. */
static void tell_pinned_coder(const cod_train_context *context, const cod_exchange_options *exchange)
{
    const bool repeats = exchange->deterministic || exchange->replay[0] != '\0';
    if (repeats && exchange->codec == COD_EXCHANGE_AUTO && cod_group_rank(context->group) == 0)
        cod_log_info("group %d: exchange.codec=auto stays with zstd, as the run must repeat, whatever is measured",
                     cod_group_index(context->group));
}

static cod_status start_exchange(codistill *c, cod_train_context *context, const cod_exchange_options *exchange,
                                 const cod_exchange_model *models)
{
    cod_group *world = cod_comm_world(context->comm);
    const cod_root_options *root = &context->config->root;
    /* Versions count them: another period is another run. */
    const uint64_t periods = (uint64_t)cod_exchange_spacing(exchange) << 40;
    uint64_t run = cod_hash(root->name, strlen(root->name), (uint64_t)root->seed ^ periods);
    /* What must repeat is of no run in particular: its bytes are those of every run of this configuration. */
    if (root->nonce[0] != '\0' && !exchange->deterministic && exchange->replay[0] == '\0')
        run = cod_hash(root->nonce, strlen(root->nonce), run);
    COD_TRY(cod_exchange_create(context->comm, context->group, exchange, models, run, &c->exchange));
    COD_TRY(cod_group_agree(world, make_peers(c, context, models), NULL));
    COD_TRY(cod_group_agree(world, read_control(c, context), NULL));
    COD_TRY(cod_group_agree(world, tell_memory(c, context, exchange, models), NULL));
    tell_pinned_coder(context, exchange);
    if (cod_recipe_distilling(&context->session->recipe) == NULL && cod_group_rank(context->group) == 0)
        cod_log_info("group %d: recipe '%s' has no sub-step that distils; peers' weights are merged at most",
                     cod_group_index(context->group), context->session->recipe.kind->name);
    return exchange->replay[0] != '\0' ? cod_group_agree(world, start_replay(c, context), NULL) : COD_OK;
}

static cod_status start(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    c->sets = cod_recipe_travelling(&context->session->recipe);
    cod_exchange_options exchange = *c->configured;
    exchange.deterministic = exchange.deterministic || context->config->train.deterministic;
    exchange.seed = (uint64_t)context->config->root.seed;
    exchange.anew = context->config->checkpoint.resume == COD_RESUME_NEVER;
    exchange.last_step = context->steps;
    if (exchange.directory[0] == '\0')
        exchange.directory = cod_path_join(cod_config_arena(context->config->config),
                                           cod_run_config_folder(context->config), "exchange");
    COD_REQUIRE_MEMORY(exchange.directory);
    strategy->in_step_every = exchange.deterministic ? 1 : 0; /* a repeated run's groups may be far apart */
    cod_exchange_model *models = NULL;
    cod_status status = cod_exchange_models_read(context->config, cod_group_count(context->group), &models);
    status = cod_group_agree(cod_comm_world(context->comm), status, NULL);
    COD_THEN(status, start_exchange(c, context, &exchange, models));
    free(models);
    return status;
}

static cod_status before_step(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    c->now = context->step;
    c->mini_batch = 0;
    if (c->toward.count > 0)
        cod_teaching_begin(&c->teaching);
    return COD_OK;
}

static cod_status choose(cod_strategy *strategy, cod_train_context *context, const char **program)
{
    codistill *c = (codistill *)strategy;
    if (c->toward.count == 0)
        return COD_OK;
    const bool due = cod_teaching_choose(&c->teaching, context);
    if (due && c->teaching.count == 0)
        c->stats.distill_weight = 0; /* of too old an age, say */
    if (c->teaching.count > 0)
        *program = c->inputs.kind == COD_DISTILL_INPUTS_BATCH ? PROGRAM_DISTILL : PROGRAM_TASK;
    return COD_OK;
}

static cod_status teach(codistill *c, cod_train_context *context)
{
    const cod_train_session *session = context->session;
    const double begin = cod_clock_s(), trace = cod_trace_begin();
    COD_TRY(cod_teaching_predict(&c->teaching, context, &c->stats.distill_weight));
    const double took_s = cod_clock_s() - begin;
    if (cod_backend_runs_at_once(session->backend)) { /* elsewhere this is the time that queueing takes */
        cod_trace_end(trace, "step", "teacher");
        c->teacher_s += took_s;
        c->teacher_ms[c->teacher_runs++ % TIMES_KEPT] = 1e3 * took_s;
    }
    return cod_executable_set_scalar(session->executable, WEIGHT_SCALAR, (float)c->stats.distill_weight);
}

/** Teachers predict the mini-batch beside the student's forward pass, which waits for them where their loss begins. */
static cod_status teach_beside(codistill *c, cod_train_context *context)
{
    cod_event *predicted;
    COD_TRY(teach(c, context));
    COD_TRY(cod_branch_join(&c->peers.branch, &predicted));
    cod_program_await(cod_train_program(context->session->executable, PROGRAM_DISTILL, c->mini_batch++), predicted);
    return COD_OK;
}

/** Distils on other inputs; the task's program then adds its gradients. */
static cod_status teach_elsewhere(codistill *c, cod_train_context *context)
{
    cod_program *program = cod_train_program(context->session->executable, PROGRAM_DISTILL, c->mini_batch);
    const int64_t place = context->step * context->config->train.accumulate + c->mini_batch++;
    cod_rng rng = cod_rng_open((uint64_t)context->config->root.seed, (uint32_t)cod_group_index(context->group),
                               (uint32_t)cod_group_rank(context->group), (uint64_t)place, COD_RNG_MIXUP, 0);
    COD_TRY(cod_distill_inputs_replace(&c->inputs, &context->mini_batch, &rng));
    COD_TRY(teach(c, context));
    COD_TRY(cod_branch_wait(&c->peers.branch)); /* what they predict is turned next */
    COD_TRY(cod_distill_inputs_turn(&c->inputs));
    COD_TRY(cod_program_run(program, NULL, NULL));
    return cod_distill_inputs_restore(&c->inputs);
}

static cod_status before_batch(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    if (c->toward.count == 0)
        return COD_OK;
    COD_TRY(cod_teaching_measure(&c->teaching, context->step));
    if (c->teaching.count == 0)
        return COD_OK;
    return c->inputs.kind == COD_DISTILL_INPUTS_BATCH ? teach_beside(c, context) : teach_elsewhere(c, context);
}

static cod_status gradient_ready(cod_strategy *strategy, cod_train_context *context, int set, cod_bucket bucket,
                                 cod_event *complete)
{
    (void)set;
    return cod_group_average_start(&((codistill *)strategy)->average, context, bucket, complete);
}

static cod_status before_update(cod_strategy *strategy, cod_train_context *context, int set)
{
    (void)set;
    return cod_group_average_wait(&((codistill *)strategy)->average, context);
}

/** Queues what brings the lesson's losses, and takes note of those that have come: on a device, the lesson's before. */
static cod_status note_losses(codistill *c, const cod_train_context *context)
{
    const cod_train_session *session = context->session;
    const cod_teaching *teaching = &c->teaching;
    const int64_t step = context->step, read = step - teaching->delay * teaching->lesson_every;
    const size_t slot = cod_teaching_slot(teaching, step), come = cod_teaching_slot(teaching, read);
    const cod_view task = cod_executable_loss_view(session->executable, cod_recipe_compared_loss(&session->recipe));
    double student;
    c->stats.distill_loss = NAN;
    if (c->toward.count == 0 || !cod_teaching_is_due(teaching, step))
        return COD_OK;
    cod_readback_open(c->losses, slot);
    COD_TRY(cod_readback_put(c->losses, slot, LOSS_TASK, &task));
    if (teaching->count > 0)
        COD_TRY(cod_toward_put(&c->toward, session, c->losses, slot, LOSS_DISTILL));
    COD_TRY(cod_readback_close(c->losses, slot));
    cod_teaching_remember(&c->teaching, step);
    if (c->lessons++ < (uint64_t)teaching->delay) /* nothing has come in this process */
        return COD_OK;
    COD_TRY(cod_readback_get(c->losses, come, LOSS_TASK, &student));
    COD_TRY(cod_toward_get(&c->toward, c->losses, come, LOSS_DISTILL, &c->stats.distill_loss));
    return cod_teaching_note(&c->teaching, read, student);
}

/**
 * Averages the normalisation statistics over the group: each rank saw other pictures. Waits for the device, as the
 * bytes go through MPI.
 */
static cod_status average_statistics(const codistill *c, cod_train_context *context)
{
    cod_weights *weights = &context->session->weights;
    const size_t count = cod_weights_layout_of(weights, c->sets).state;
    const int size = cod_group_size(context->group);
    if (count == 0 || size == 1)
        return COD_OK;
    float *state = malloc(count * sizeof *state);
    double *sums = malloc(count * sizeof *sums);
    cod_status status = state != NULL && sums != NULL ? cod_weights_download_states(weights, c->sets, state)
                                                      : cod_fail(COD_ERR_MEMORY, "out of memory for statistics");
    for (size_t i = 0; i < count && status == COD_OK; i++)
        sums[i] = state[i];
    COD_THEN(status, cod_group_reduce(context->group, sums, count, COD_REDUCE_SUM));
    for (size_t i = 0; i < count && status == COD_OK; i++)
        state[i] = (float)(sums[i] / size);
    COD_THEN(status, cod_weights_upload_states(weights, c->sets, state));
    free(state);
    free(sums);
    return status;
}

/**
 * Copies what is published: weights, or their moving averages where sets have one, and the statistics. On a device the
 * copies are queued behind the step's update: it computes nothing meanwhile, once a period, but needs no room for a
 * second copy of the weights.
 */
static cod_status fill_snapshot(const codistill *c, const cod_train_session *session, const cod_exchange_part *part,
                                uint64_t *fingerprint)
{
    cod_buffer *averages[COD_GRAPH_MAX_SETS] = {NULL};
    for (int s = 0; s < COD_GRAPH_MAX_SETS && c->configured->publish == COD_PUBLISH_EMA; s++)
        averages[s] = session->optimisers[s] != NULL ? cod_optimiser_ema(session->optimisers[s]) : NULL;
    if (part->wants_fingerprint)
        *fingerprint =
            cod_weights_fingerprint(&session->weights, c->sets, averages, part->fragment.first, part->fragment.count);
    return cod_weights_copy_out(&session->weights, c->sets, averages, part->values, part->first, part->count);
}

static cod_status publish(codistill *c, cod_train_context *context, int64_t done)
{
    cod_exchange_part part;
    uint64_t fingerprint = 0;
    COD_TRY(cod_exchange_snapshot(c->exchange, done, &part));
    if (part.fragment.first + part.fragment.count >
        cod_weights_layout_of(&context->session->weights, c->sets).trainable)
        COD_TRY(average_statistics(c, context));
    COD_TRY(fill_snapshot(c, context->session, &part, &fingerprint));
    COD_TRY(cod_exchange_publish(c->exchange, done, fingerprint));
    c->stats.publications++;
    const cod_train_event event = {.kind = "publish",
                                   .peer = cod_group_index(context->group),
                                   .version = (uint64_t)(done / cod_exchange_spacing(c->configured)),
                                   .peer_step = done,
                                   .alpha = NAN};
    return cod_train_tell(context, &event);
}

static cod_status after_step(cod_strategy *strategy, cod_train_context *context)
{
    codistill *c = (codistill *)strategy;
    const int64_t done = context->step + 1;
    COD_TRY(note_losses(c, context));
    const double begin = cod_clock_s(), processor = cod_clock_thread_s(), trace = cod_trace_begin();
    if (cod_exchange_publish_due(c->exchange, done))
        COD_TRY(publish(c, context, done));
    COD_TRY(cod_exchange_advance(c->exchange, done));
    COD_TRY(cod_peers_take_over(&c->peers, context));
    cod_trace_end(trace, "exchange", "advance");
    c->exchange_s += cod_clock_s() - begin;
    c->stats.exchange_processor_s += cod_clock_thread_s() - processor;
    c->steps++;
    return COD_OK;
}

static void flags_out(cod_strategy *strategy, double *out)
{
    const codistill *c = (const codistill *)strategy;
    cod_exchange_flags_out(c->exchange, out + OWN_FLAGS);
    out[FLAG_OFF] = c->lost && c->distill.auto_off;
}

static cod_status flags_in(cod_strategy *strategy, cod_train_context *context, const double *in)
{
    codistill *c = (codistill *)strategy;
    if (in[FLAG_OFF] > 0 && c->teaching.off_step < 0)
        c->teaching.off_step = context->step;
    return cod_exchange_flags_in(c->exchange, context->step, in + OWN_FLAGS);
}

/** Before burn_in ends there is nothing that could have lost. */
static cod_status validated(cod_strategy *strategy, cod_train_context *context, double figure)
{
    codistill *c = (codistill *)strategy;
    const cod_task_figure *kind = &context->session->config->task->figures[0];
    if (c->control.count == 0 || c->lost || context->step <= c->distill.burn_in ||
        !cod_control_note(&c->control, context->step, figure))
        return COD_OK;
    c->lost = true;
    cod_log_warn("group %d: three evaluations running are behind those of %s, which does not distil (%s %.*f, there "
                 "%.*f, after %lld steps); %s",
                 cod_group_index(context->group), c->distill.control, kind->label, kind->digits, figure, kind->digits,
                 cod_control_at(&c->control, context->step), (long long)context->step,
                 c->distill.auto_off ? "distillation is ramped away (distill.auto_off)"
                                     : "distill.auto_off=true would ramp distillation away");
    return COD_OK;
}

/* The exchange's state is in the trainer's checkpoints. */

static cod_status keep_array(void *checkpoint, const char *name, const void *data, size_t bytes)
{
    return cod_checkpoint_add_bytes(checkpoint, name, data, bytes);
}

static const void *find_array(const void *file, const char *name, size_t *bytes)
{
    const cod_st_tensor *tensor = cod_st_tensor_find(file, name);
    *bytes = tensor != NULL ? tensor->bytes : 0;
    return tensor != NULL ? tensor->data : NULL;
}

static cod_status save(cod_strategy *strategy, cod_checkpoint *checkpoint)
{
    codistill *c = (codistill *)strategy;
    COD_TRY(cod_exchange_save(c->exchange, keep_array, checkpoint));
    COD_TRY(cod_peers_save(&c->peers, checkpoint));
    COD_TRY(cod_checkpoint_add_number(checkpoint, "behind", (double)c->control.behind));
    COD_TRY(cod_checkpoint_add_number(checkpoint, "off_step", (double)c->teaching.off_step));
    return cod_checkpoint_add_number(checkpoint, "student_loss", c->teaching.student_loss);
}

static cod_status load(cod_strategy *strategy, cod_train_context *context, const cod_st_file *file)
{
    codistill *c = (codistill *)strategy;
    (void)context;
    if (c->configured->replay[0] != '\0')
        return cod_fail(COD_ERR_UNSUPPORTED, "exchange.replay repeats a run from its beginning; it cannot be resumed");
    COD_TRY(cod_exchange_load(c->exchange, find_array, file));
    COD_TRY(cod_checkpoint_number(file, "student_loss", &c->teaching.student_loss));
    COD_TRY(cod_checkpoint_whole(file, "behind", 0, &c->control.behind));
    COD_TRY(cod_checkpoint_whole(file, "off_step", -1, &c->teaching.off_step));
    c->lost = c->teaching.off_step >= 0;
    return cod_peers_load(&c->peers, file);
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
    out->teacher_switches = c->peers.switches;
    out->merges = c->peers.merges;
    out->pulled_bytes = counters.pulled_bytes;
    out->published_bytes = counters.published_bytes;
    out->pulls = counters.pulled;
    out->rejected = counters.rejected + counters.lost;
    out->entropy = cod_exchange_entropy(c->exchange);
    if (c->teacher_runs > 0) {
        double times[TIMES_KEPT];
        memcpy(times, c->teacher_ms, sizeof times);
        out->teacher_ms = cod_median(times, c->teacher_runs < TIMES_KEPT ? (size_t)c->teacher_runs : TIMES_KEPT);
    }
    out->teacher_s = c->teacher_s;
    out->waited_s = c->average.waited_s;
    out->exchange_ms = c->steps ? 1e3 * c->exchange_s / (double)c->steps : 0;
    out->teacher_step = out->staleness_steps = -1;
    const cod_peer *p = c->teaching.count > 0 ? c->teaching.chosen[0] : NULL;
    if (p == NULL && c->peers.count > 0 && c->peers.items[0].version > 0)
        p = &c->peers.items[0];
    if (p != NULL) {
        out->teacher_step = p->age.step;
        out->staleness_steps = c->now - p->age.step;
    }
}

static bool peer_stats(cod_strategy *strategy, int index, cod_peer_stats *out)
{
    codistill *c = (codistill *)strategy;
    if (index >= c->peers.count)
        return false;
    cod_peers_read(&c->peers, index, out);
    out->staleness_steps = c->now - out->step;
    return true;
}

static void destroy(cod_strategy *strategy)
{
    codistill *c = (codistill *)strategy;
    cod_group_average_clear(&c->average);
    cod_teaching_clear(&c->teaching);
    cod_readback_destroy(c->losses);
    cod_distill_inputs_clear(&c->inputs);
    cod_control_clear(&c->control);
    cod_peers_clear(&c->peers);
    free(c);
}

static const cod_strategy_teaching teaching_ops = {
    .add_losses = add_losses, .choose = choose, .before_batch = before_batch};

static const cod_strategy_peers peers_ops = {
    .flags_out = flags_out, .flags_in = flags_in, .validated = validated, .stats = peer_stats};

static const cod_strategy_ops ops = {
    .start = start,
    .before_step = before_step,
    .gradient_ready = gradient_ready,
    .before_update = before_update,
    .after_step = after_step,
    .save = save,
    .load = load,
    .finish = finish,
    .stats = stats,
    .destroy = destroy,
    .teaching = &teaching_ops,
    .peers = &peers_ops,
};

static cod_status create(const cod_run_config *run, cod_strategy **out)
{
    codistill *c = calloc(1, sizeof *c);
    COD_REQUIRE_MEMORY(c);
    c->base.ops = &ops;
    c->configured = cod_run_config_section(run, &cod_exchange_option_table);
    c->distill = *(const cod_distill_options *)cod_run_config_section(run, &cod_distill_option_table);
    *out = &c->base;
    return COD_OK;
}

/** Groups that are jobs of their own reach each other by files only, and never wait for each other. */
static cod_status check_apart(const cod_run_config *run)
{
    const cod_exchange_options *e = cod_run_config_section(run, &cod_exchange_option_table);
    COD_REQUIRE(e->transport == COD_TRANSPORT_FILE,
                "groups that are jobs of their own exchange through a shared folder: set exchange.transport=file");
    COD_REQUIRE(
        !e->deterministic && !run->train.deterministic && e->replay[0] == '\0',
        "groups that are jobs of their own never wait for each other: leave out --group, or train.deterministic, "
        "exchange.deterministic and exchange.replay");
    return COD_OK;
}

static void check(const cod_run_config *run)
{
    codistill_check(run, cod_run_config_section(run, &cod_distill_option_table),
                    cod_run_config_section(run, &cod_exchange_option_table));
}

void cod_strategy_register_codistill(void)
{
    static const cod_option_table *const tables[] = {&cod_distill_option_table, &cod_exchange_option_table};
    static const cod_strategy_kind kind = {
        .name = "codistill",
        .help = "groups exchange compressed checkpoints by one-sided gets, merge them and distil from them",
        .keeps_state = true,
        .averages = true,
        .only_averages = true,
        .tables = tables,
        .table_count = 2,
        .check = check,
        .check_apart = check_apart,
        .create = create};
    cod_strategy_register(&kind);
}

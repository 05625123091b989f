#include "distill/teacher.h"

#include "core/queue.h"
#include "infer/int8.h"
#include "nn/readback.h"
#include "train/prior.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COPY_INPUT, COPY_TRUTH, COPY_PREDICTION, COPY_ASIDE, COPY_COUNT };

struct cod_teacher {
    const cod_backend *backend;
    cod_device *device;
    cod_queue *queue;              /**< of all its work, but for taking over weights */
    cod_view input, truth, target; /**< the student's, as far as they are predicted */
    cod_dtype activation;
    bool deterministic;
    cod_model model;
    cod_weights weights;
    size_t trainable;   /**< values of a checkpoint before its states */
    cod_buffer *pinned; /**< a checkpoint on its way; NULL = it goes straight to the backend's memory */
    cod_event *taken;   /**< the pinned memory may be written again */
    cod_value loss;
    const float *prior; /**< the student's, as its loss is what the teacher's is held against; borrowed, or NULL */
    cod_readback *losses;
    cod_buffer *aside;    /**< a prediction to be mixed in, as f32; NULL = it mixes with none */
    cod_scalars *scalars; /**< the share that `mix` reads */
    size_t share;
    bool mixes_probabilities;
    cod_plan *mix;
    cod_executable *executable;
    cod_program *plain, *rounded; /**< rounded: on integers, by ranges that `plain` observes; NULL = none */
    cod_plan *copies[COPY_COUNT]; /**< between the student's inputs and the teacher's */
    cod_replay taking;            /**< of the copies from the student */
    cod_replay mixing;            /**< of the copy aside and of `mix` */
    bool observed;                /**< these weights' ranges */
    float *ranges; /**< [node count] of these weights, zeros = not observed, or not come yet; NULL = not on integers */
    cod_buffer *observing; /**< pinned, where observed ranges come to */
    cod_event *come;
    bool coming; /**< nobody has looked at them yet */
};

static cod_view first_of(cod_view view, int64_t pictures)
{
    view.shape.n = pictures;
    return view;
}

static cod_status plan_copy(const cod_teacher *teacher, cod_view from, cod_view to, cod_plan **plan)
{
    const cod_op op = {
        .kind = COD_OP_ADD, .attr = {.alpha = 1}, .inputs = {from}, .outputs = {to}, .name = "teacher_copy"};
    return teacher->backend->plan_create(teacher->device, &op, plan);
}

static cod_view aside_of(const cod_teacher *teacher)
{
    return cod_view_dense(teacher->aside, 0, COD_F32, teacher->target.shape);
}

static cod_status plan_copies(cod_teacher *teacher)
{
    cod_executable *executable = teacher->executable;
    COD_TRY(plan_copy(teacher, teacher->input, cod_executable_input(executable, COD_INPUT_DATA),
                      &teacher->copies[COPY_INPUT]));
    COD_TRY(plan_copy(teacher, teacher->truth, cod_executable_input(executable, COD_INPUT_TRUTH),
                      &teacher->copies[COPY_TRUTH]));
    const cod_view prediction = cod_executable_output(executable, teacher->model.output);
    COD_TRY(plan_copy(teacher, prediction, teacher->target, &teacher->copies[COPY_PREDICTION]));
    return teacher->aside != NULL ? plan_copy(teacher, prediction, aside_of(teacher), &teacher->copies[COPY_ASIDE])
                                  : COD_OK;
}

static cod_status compile(cod_teacher *teacher)
{
    const cod_value output = teacher->model.output;
    const bool rounds = teacher->ranges != NULL && cod_int8_layers(teacher->model.graph, teacher->ranges);
    const cod_input_shape input = {COD_INPUT_DATA, teacher->input.shape};
    const cod_compile_options options = {.activation = teacher->activation,
                                         .inputs = &input,
                                         .input_count = 1,
                                         .deterministic = teacher->deterministic,
                                         .queue = teacher->queue,
                                         .int8_ranges = rounds ? teacher->ranges : NULL};
    const cod_program_spec specs[] = {
        {.name = "teacher", .losses = {teacher->loss}, .outputs = {output}, .observes = rounds},
        {.name = "teacher_int8", .losses = {teacher->loss}, .outputs = {output}}};
    COD_TRY(
        cod_compile(teacher->model.graph, &teacher->weights, &options, specs, rounds ? 2 : 1, &teacher->executable));
    teacher->plain = cod_executable_program(teacher->executable, specs[0].name);
    teacher->rounded = cod_executable_program(teacher->executable, specs[1].name);
    return cod_prior_write(teacher->backend, teacher->device, teacher->queue,
                           cod_executable_input(teacher->executable, COD_PRIOR_INPUT), teacher->prior);
}

/** Where the ranges of the program on integers come to the host. */
static cod_status observing_init(cod_teacher *teacher)
{
    const cod_view ranges = cod_executable_int8_view(teacher->executable);
    if (ranges.buffer == NULL)
        return COD_OK;
    COD_TRY(cod_event_create(teacher->backend, teacher->device, &teacher->come));
    return teacher->backend->host_buffer_create(teacher->device, cod_view_span_bytes(&ranges), &teacher->observing);
}

/**
 * Sums of outputs with weights of the moment are what an exponential average does to a buffer, by the others' share.
 */
static cod_status mix_init(cod_teacher *teacher, float temperature)
{
    const size_t bytes = (size_t)cod_shape_count(teacher->target.shape) * sizeof(float);
    COD_TRY(teacher->backend->buffer_create(teacher->device, bytes, &teacher->aside));
    COD_TRY(cod_scalars_create(teacher->backend, teacher->device, &teacher->scalars));
    COD_TRY(cod_scalars_reserve(teacher->scalars, 1, &teacher->share));
    const cod_view scalar = cod_scalars_view(teacher->scalars, teacher->share, 1);
    teacher->mixes_probabilities = temperature > 0;
    const cod_op op = {.kind = teacher->mixes_probabilities ? COD_OP_MIX : COD_OP_EMA,
                       .attr.temperature = temperature,
                       .inputs = {aside_of(teacher), scalar},
                       .outputs = {teacher->target},
                       .name = "teacher_mix"};
    return teacher->backend->plan_create(teacher->device, &op, &teacher->mix);
}

/** The weights are others: their ranges are to be observed. */
static void forget_ranges(cod_teacher *teacher)
{
    if (teacher->ranges != NULL)
        memset(teacher->ranges, 0, cod_graph_node_count(teacher->model.graph) * sizeof *teacher->ranges);
    teacher->observed = teacher->coming = false;
}

static cod_status build(cod_teacher *teacher, const cod_train_session *session, const cod_teacher_spec *spec)
{
    const cod_recipe *recipe = &session->recipe;
    const cod_node *task = cod_graph_producer(recipe->model.graph, cod_recipe_compared_loss(recipe));
    cod_model *model = &teacher->model;
    teacher->input = first_of(session->input, spec->pictures);
    teacher->truth = first_of(session->truth, spec->pictures);
    teacher->target = first_of(cod_executable_input(session->executable, spec->target), spec->pictures);
    teacher->deterministic = session->config->train.deterministic;
    teacher->activation = session->activation;
    if (spec->precision != COD_PRECISION_AUTO)
        COD_TRY(cod_precision_dtype(spec->precision, teacher->backend, teacher->device, &teacher->activation));
    COD_TRY(cod_model_build(spec->peer->kind, spec->peer->architecture, model));
    const int64_t channels = cod_graph_producer(model->graph, model->output)->channels, all = session->truth.shape.c;
    cod_value truth = cod_graph_input_like_of(model->graph, COD_INPUT_TRUTH, model->output, all);
    if (all != channels)
        truth = cod_graph_slice(model->graph, truth, recipe->task_channel, channels);
    teacher->prior = cod_prior_of(session, session->group);
    teacher->loss = cod_prior_task_loss(
        session->priors, model->graph, "teacher_task", model->output, truth,
        (cod_loss_spec){.kind = task->attr.loss, .epsilon = task->attr.epsilon, .smoothing = task->attr.smoothing});
    COD_TRY(cod_weights_init(&teacher->weights, session->backend, session->device, model->graph, COD_F32, false));
    teacher->trainable = spec->trainable > 0 ? spec->trainable : teacher->weights.layout.trainable;
    if (spec->precision == COD_PRECISION_INT8) {
        teacher->ranges = calloc(cod_graph_node_count(model->graph), sizeof *teacher->ranges);
        COD_REQUIRE_MEMORY(teacher->ranges);
    }
    /* A backend that runs at once copies in any case: not twice, where checkpoints hold the model alone. */
    if (!cod_backend_runs_at_once(teacher->backend) || teacher->trainable != teacher->weights.layout.trainable)
        COD_TRY(teacher->backend->host_buffer_create(
            teacher->device, cod_weights_count(&teacher->weights) * sizeof(float), &teacher->pinned));
    COD_TRY(cod_event_create(teacher->backend, teacher->device, &teacher->taken));
    COD_TRY(
        cod_readback_create(teacher->backend, teacher->device, teacher->queue, COD_TEACHER_SLOTS, 1, &teacher->losses));
    if (spec->mixes)
        COD_TRY(mix_init(teacher, spec->temperature));
    COD_TRY(compile(teacher));
    forget_ranges(teacher);
    COD_TRY(plan_copies(teacher));
    return observing_init(teacher);
}

cod_status cod_teacher_create(const cod_train_session *session, const cod_teacher_spec *spec, cod_teacher **out)
{
    cod_teacher *teacher = calloc(1, sizeof *teacher);
    COD_REQUIRE_MEMORY(teacher);
    teacher->backend = session->backend;
    teacher->device = session->device;
    teacher->queue = spec->queue;
    const cod_status status = build(teacher, session, spec);
    if (status != COD_OK) {
        cod_teacher_destroy(teacher);
        return cod_fail_prefix(status, "teacher");
    }
    *out = teacher;
    return COD_OK;
}

void cod_teacher_destroy(cod_teacher *teacher)
{
    if (teacher == NULL)
        return;
    cod_replay_clear(teacher->backend, &teacher->taking);
    cod_replay_clear(teacher->backend, &teacher->mixing);
    for (int i = 0; i < COPY_COUNT; i++)
        if (teacher->copies[i] != NULL)
            teacher->backend->plan_destroy(teacher->copies[i]);
    cod_executable_destroy(teacher->executable); /* waits for copies of ranges to the pinned memory */
    cod_event_destroy(teacher->backend, teacher->come);
    if (teacher->observing != NULL)
        teacher->backend->host_buffer_destroy(teacher->device, teacher->observing);
    if (teacher->mix != NULL)
        teacher->backend->plan_destroy(teacher->mix);
    if (teacher->aside != NULL)
        teacher->backend->buffer_destroy(teacher->device, teacher->aside);
    cod_scalars_destroy(teacher->scalars);
    cod_event_destroy(teacher->backend, teacher->taken);
    cod_readback_destroy(teacher->losses);
    if (teacher->weights.backend != NULL)
        cod_weights_clear(&teacher->weights); /* waits for copies from the pinned memory */
    if (teacher->pinned != NULL)
        teacher->backend->host_buffer_destroy(teacher->device, teacher->pinned);
    cod_model_clear(&teacher->model);
    free(teacher->ranges);
    free(teacher);
}

size_t cod_teacher_range_count(const cod_teacher *teacher)
{
    return teacher != NULL && teacher->rounded != NULL ? cod_graph_node_count(teacher->model.graph) : 0;
}

/** Looks at observed ranges that have come. @return COD_ERR_NUMERIC where what a layer met is not finite */
static cod_status read_ranges(cod_teacher *teacher)
{
    bool come = false;
    if (teacher->coming)
        COD_TRY(cod_event_query(teacher->backend, teacher->come, &come));
    if (!come)
        return COD_OK;
    teacher->coming = false;
    cod_executable_int8_table(teacher->executable, teacher->observing->host, teacher->ranges);
    for (size_t i = 0; i < cod_graph_node_count(teacher->model.graph); i++)
        if (isnan(teacher->ranges[i]))
            return cod_fail(COD_ERR_NUMERIC, "the input of '%s' is not finite",
                            cod_graph_node(teacher->model.graph, i)->name);
    return COD_OK;
}

cod_status cod_teacher_ranges(cod_teacher *teacher, const float **ranges)
{
    if (teacher->coming)
        COD_TRY(cod_event_wait(teacher->backend, teacher->come));
    *ranges = teacher->ranges;
    return read_ranges(teacher);
}

cod_status cod_teacher_set_ranges(cod_teacher *teacher, const float *ranges)
{
    bool any = false;
    for (size_t i = 0; i < cod_teacher_range_count(teacher); i++)
        any = any || ranges[i] > 0;
    forget_ranges(teacher);
    if (!any)
        return COD_OK;
    COD_TRY(cod_executable_set_int8_ranges(teacher->executable, ranges));
    memcpy(teacher->ranges, ranges, cod_teacher_range_count(teacher) * sizeof *ranges);
    teacher->observed = true;
    return COD_OK;
}

/**
 * Takes over what a part of a checkpoint, from value `first` on, has of `count` values that begin at value `at` of the
 * checkpoint and at `to` of the weights: through pinned memory, where there is some, so that nobody waits for the
 * device.
 */
static cod_status take(cod_teacher *teacher, cod_buffer *values, size_t first, size_t at, size_t count, size_t to)
{
    const size_t end = first + values->bytes / sizeof(float), from = first > at ? first : at,
                 until = end < at + count ? end : at + count;
    if (from >= until)
        return COD_OK;
    to += from - at;
    if (values->host == NULL || teacher->pinned == NULL)
        return cod_weights_take(&teacher->weights, to, until - from, values, from - first);
    memcpy((float *)teacher->pinned->host + to, (const float *)values->host + (from - first),
           (until - from) * sizeof(float));
    return cod_weights_take(&teacher->weights, to, until - from, teacher->pinned, to);
}

cod_status cod_teacher_load(cod_teacher *teacher, cod_buffer *values, size_t first)
{
    const cod_layout *layout = &teacher->weights.layout;
    forget_ranges(teacher);
    COD_TRY(cod_event_wait(teacher->backend, teacher->taken));
    COD_TRY(take(teacher, values, first, 0, layout->trainable, 0));
    COD_TRY(take(teacher, values, first, teacher->trainable, layout->state, layout->trainable));
    return cod_event_record(teacher->backend, teacher->taken, NULL);
}

size_t cod_teacher_count(const cod_teacher *teacher)
{
    return cod_weights_count(&teacher->weights);
}

cod_status cod_teacher_save(const cod_teacher *teacher, float *values)
{
    return cod_weights_download(&teacher->weights, values);
}

cod_status cod_teacher_restore(cod_teacher *teacher, const float *values)
{
    return cod_weights_upload(&teacher->weights, values);
}

/** Two plans in the teacher's queue, one after the other. */
typedef struct plan_pair {
    const cod_teacher *teacher;
    cod_plan *first, *second;
} plan_pair;

static cod_status run_pair(void *context)
{
    const plan_pair *pair = context;
    COD_TRY(pair->teacher->backend->plan_run(pair->first, pair->teacher->queue));
    return pair->teacher->backend->plan_run(pair->second, pair->teacher->queue);
}

static cod_status replay_pair(const cod_teacher *teacher, cod_plan *first, cod_plan *second, cod_replay *replay)
{
    plan_pair pair = {teacher, first, second};
    return cod_queue_replay(teacher->backend, teacher->device, teacher->queue, run_pair, &pair, replay);
}

/** Runs the program on integers or, where these weights' ranges are not known, the one that observes them. */
static cod_status predict(cod_teacher *teacher)
{
    if (teacher->observed)
        return cod_program_run(teacher->rounded, NULL, NULL);
    COD_TRY(cod_program_run(teacher->plain, NULL, NULL));
    if (teacher->rounded == NULL)
        return COD_OK;
    const cod_view ranges = cod_executable_int8_view(teacher->executable);
    COD_TRY(teacher->backend->copy(teacher->device, teacher->queue, teacher->observing, 0, ranges.buffer, ranges.offset,
                                   cod_view_span_bytes(&ranges)));
    teacher->observed = teacher->coming = true;
    return cod_event_record(teacher->backend, teacher->come, teacher->queue);
}

cod_status cod_teacher_run(cod_teacher *teacher, size_t slot)
{
    COD_TRY(replay_pair(teacher, teacher->copies[COPY_INPUT], teacher->copies[COPY_TRUTH], &teacher->taking));
    COD_TRY(predict(teacher));
    COD_TRY(read_ranges(teacher));
    const cod_view loss = cod_executable_loss_view(teacher->executable, teacher->loss);
    if (slot == COD_TEACHER_NO_SLOT)
        return COD_OK;
    cod_readback_open(teacher->losses, slot);
    COD_TRY(cod_readback_put(teacher->losses, slot, 0, &loss));
    return cod_readback_close(teacher->losses, slot);
}

cod_status cod_teacher_loss(cod_teacher *teacher, size_t slot, double *loss)
{
    COD_TRY(cod_readback_get(teacher->losses, slot, 0, loss));
    return read_ranges(teacher);
}

cod_status cod_teacher_give(cod_teacher *teacher, float share)
{
    if (share == 1)
        return teacher->backend->plan_run(teacher->copies[COPY_PREDICTION], teacher->queue);
    COD_REQUIRE(teacher->mix != NULL, "this teacher mixes with none");
    cod_scalars_set(teacher->scalars, teacher->share, teacher->mixes_probabilities ? share : 1 - share);
    COD_TRY(cod_scalars_flush(teacher->scalars, teacher->queue));
    return replay_pair(teacher, teacher->copies[COPY_ASIDE], teacher->mix, &teacher->mixing);
}

#include "distill/inputs.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum { TURNS = 16 };

/** Values of one of N. */
static size_t one(cod_view view)
{
    return (size_t)(cod_shape_count(view.shape) / view.shape.n);
}

static cod_status copy_view(const cod_distill_inputs *inputs, cod_view to, cod_view from)
{
    const cod_train_session *session = inputs->session;
    return session->backend->copy(session->device, NULL, to.buffer, to.offset, from.buffer, from.offset,
                                  cod_view_span_bytes(&to));
}

/** Plans to turn the input and the prediction. What is not turned yet lies from `offset` on, one after the other. */
static cod_status plan_turns(cod_distill_inputs *inputs, const cod_view *views, size_t offset)
{
    const cod_train_session *session = inputs->session;
    for (size_t i = 0; i < 2; i++) {
        const cod_view straight = cod_view_dense(inputs->memory, offset, COD_F32, views[i].shape);
        const cod_op op = {.kind = COD_OP_TURN,
                           .inputs = {straight, inputs->turns_there},
                           .outputs = {views[i]},
                           .name = "distill_turn"};
        inputs->pairs[i].straight = straight;
        inputs->pairs[i].turned = views[i];
        COD_TRY(session->backend->plan_create(session->device, &op, &inputs->pairs[i].plan));
    }
    return COD_OK;
}

/** The mini-batch aside, then the turns, then a picture before it is turned. */
static cod_status make_memory(cod_distill_inputs *inputs, cod_view prediction)
{
    const cod_train_session *session = inputs->session;
    const cod_view views[] = {session->input, prediction};
    const int64_t n = session->input.shape.n;
    const size_t input = cod_view_span_bytes(&views[0]), predicted = cod_view_span_bytes(&views[1]);
    const size_t turns = inputs->turns != NULL ? (size_t)n * sizeof *inputs->turns : 0;
    const size_t turns_at = cod_align_up(input), straight_at = turns_at + cod_align_up(turns);
    const size_t straight = predicted > input ? predicted : input;
    COD_TRY(cod_slots_init(&inputs->slots, session->backend, session->device, input + turns));
    COD_TRY(
        session->backend->buffer_create(session->device, turns > 0 ? straight_at + straight : input, &inputs->memory));
    inputs->aside = cod_view_dense(inputs->memory, 0, COD_F32, session->input.shape);
    inputs->turns_there = cod_view_dense(inputs->memory, turns_at, COD_I32, (cod_shape){1, 1, 1, n});
    return turns > 0 ? plan_turns(inputs, views, straight_at) : COD_OK;
}

cod_status cod_distill_inputs_init(cod_distill_inputs *inputs, int kind, const cod_train_session *session,
                                   cod_view prediction)
{
    *inputs = (cod_distill_inputs){.kind = kind, .session = session};
    const cod_shape input = session->input.shape, truth = session->truth.shape;
    if (kind == COD_DISTILL_INPUTS_BATCH)
        return COD_OK;
    COD_REQUIRE(kind != COD_DISTILL_INPUTS_MIXUP || input.n > 1,
                "distill.inputs: mixup mixes examples of a mini-batch; set data.batch above 1");
    COD_REQUIRE(kind != COD_DISTILL_INPUTS_NO_REFERENCE || (truth.h >= input.h && truth.w >= input.w),
                "distill.inputs: no_reference crops %lldx%lld pixels out of a truth of %lldx%lld", (long long)input.w,
                (long long)input.h, (long long)truth.w, (long long)truth.h);
    inputs->others = malloc((size_t)cod_shape_count(input) * sizeof *inputs->others);
    COD_REQUIRE_MEMORY(inputs->others);
    if (kind == COD_DISTILL_INPUTS_NO_REFERENCE) {
        inputs->turns = calloc((size_t)input.n, sizeof *inputs->turns);
        COD_REQUIRE_MEMORY(inputs->turns);
    }
    return make_memory(inputs, prediction);
}

void cod_distill_inputs_clear(cod_distill_inputs *inputs)
{
    const cod_train_session *session = inputs->session;
    for (size_t i = 0; i < 2; i++)
        if (inputs->pairs[i].plan != NULL)
            session->backend->plan_destroy(inputs->pairs[i].plan);
    cod_slots_clear(&inputs->slots);
    if (inputs->memory != NULL)
        session->backend->buffer_destroy(session->device, inputs->memory);
    free(inputs->others);
    free(inputs->turns);
    *inputs = (cod_distill_inputs){0};
}

/** Each with the one that lies `shift` behind it, so that none meets itself. */
static void mix(cod_distill_inputs *inputs, const cod_mini_batch *batch, cod_rng *rng)
{
    const size_t n = (size_t)inputs->session->input.shape.n, values = one(inputs->session->input);
    const size_t shift = 1 + cod_rng_below(rng, (uint32_t)n - 1);
    for (size_t i = 0; i < n; i++) {
        const float share = (float)cod_rng_uniform(rng);
        const float *a = batch->input + i * values, *b = batch->input + (i + shift) % n * values;
        for (size_t k = 0; k < values; k++)
            inputs->others[i * values + k] = share * a[k] + (1 - share) * b[k];
    }
}

/** Cuts a picture of the input's size out of each truth, and draws how the student will see it. */
static void crop(cod_distill_inputs *inputs, const cod_mini_batch *batch, cod_rng *rng)
{
    const cod_shape from = inputs->session->truth.shape, to = inputs->session->input.shape;
    for (int64_t n = 0; n < to.n; n++) {
        const int64_t left = cod_rng_below(rng, (uint32_t)(from.w - to.w + 1));
        const int64_t top = cod_rng_below(rng, (uint32_t)(from.h - to.h + 1));
        for (int64_t y = 0; y < to.h; y++)
            for (int64_t x = 0; x < to.w; x++) /* a truth of more channels begins with the picture itself */
                memcpy(inputs->others + ((n * to.h + y) * to.w + x) * to.c,
                       batch->truth + ((n * from.h + top + y) * from.w + left + x) * from.c,
                       (size_t)to.c * sizeof(float));
        inputs->turns[n] = 1 + (int32_t)cod_rng_below(rng, TURNS - 1);
    }
}

cod_status cod_distill_inputs_replace(cod_distill_inputs *inputs, const cod_mini_batch *batch, cod_rng *rng)
{
    const cod_view input = inputs->session->input, views[] = {input, inputs->turns_there};
    const void *const sources[] = {inputs->others, inputs->turns};
    COD_TRY(copy_view(inputs, inputs->aside, input));
    if (inputs->turns == NULL)
        mix(inputs, batch, rng);
    else
        crop(inputs, batch, rng);
    return cod_slots_write(&inputs->slots, views, sources, inputs->turns == NULL ? 1 : 2);
}

cod_status cod_distill_inputs_turn(cod_distill_inputs *inputs)
{
    for (size_t i = 0; i < 2 && inputs->turns != NULL; i++) {
        COD_TRY(copy_view(inputs, inputs->pairs[i].straight, inputs->pairs[i].turned));
        COD_TRY(inputs->session->backend->plan_run(inputs->pairs[i].plan, NULL));
    }
    return COD_OK;
}

cod_status cod_distill_inputs_restore(cod_distill_inputs *inputs)
{
    return copy_view(inputs, inputs->session->input, inputs->aside);
}

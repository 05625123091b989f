#include "distill/inputs.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MIRROR_X = 1, MIRROR_Y = 2, TRANSPOSE = 4, INVERT = 8, TURNS = 16 };

static size_t floats(cod_view view)
{
    return (size_t)cod_shape_count(view.shape);
}

/** Values of one of N. */
static size_t one(cod_view view)
{
    return floats(view) / (size_t)view.shape.n;
}

static cod_status read_view(const cod_distill_inputs *inputs, cod_view view, float *values)
{
    const cod_train_session *session = inputs->session;
    return session->backend->download(session->device, NULL, values, view.buffer, view.offset,
                                      floats(view) * sizeof *values);
}

static cod_status write_view(const cod_distill_inputs *inputs, cod_view view, const float *values)
{
    const cod_train_session *session = inputs->session;
    return session->backend->upload(session->device, NULL, view.buffer, view.offset, values,
                                    floats(view) * sizeof *values);
}

static cod_status allocate(float **values, cod_view view)
{
    return cod_aligned_alloc((void **)values, floats(view) * sizeof **values);
}

cod_status cod_distill_inputs_init(cod_distill_inputs *inputs, int kind, const cod_train_session *session,
                                   cod_view prediction)
{
    *inputs = (cod_distill_inputs){.kind = kind, .session = session, .prediction = prediction};
    const cod_shape input = session->input.shape, truth = session->truth.shape;
    if (kind == COD_DISTILL_INPUTS_BATCH)
        return COD_OK;
    COD_REQUIRE(kind != COD_DISTILL_INPUTS_MIXUP || input.n > 1,
                "distill.inputs: mixup mixes examples of a mini-batch; set data.batch above 1");
    COD_REQUIRE(kind != COD_DISTILL_INPUTS_NO_REFERENCE || (truth.h >= input.h && truth.w >= input.w),
                "distill.inputs: no_reference crops %lldx%lld pixels out of a truth of %lldx%lld", (long long)input.w,
                (long long)input.h, (long long)truth.w, (long long)truth.h);
    COD_TRY(allocate(&inputs->batch, session->input));
    COD_TRY(allocate(&inputs->others, session->input));
    if (kind == COD_DISTILL_INPUTS_MIXUP)
        return COD_OK;
    inputs->turns = calloc((size_t)input.n, sizeof *inputs->turns);
    COD_REQUIRE_MEMORY(inputs->turns);
    COD_TRY(allocate(&inputs->truth, session->truth));
    return allocate(&inputs->turned, prediction);
}

void cod_distill_inputs_clear(cod_distill_inputs *inputs)
{
    cod_aligned_free(inputs->batch);
    cod_aligned_free(inputs->others);
    cod_aligned_free(inputs->truth);
    cod_aligned_free(inputs->turned);
    free(inputs->turns);
    *inputs = (cod_distill_inputs){0};
}

/** Each with the one that lies `shift` behind it, so that none meets itself. */
static void mix(cod_distill_inputs *inputs, cod_rng *rng)
{
    const size_t n = (size_t)inputs->session->input.shape.n, values = one(inputs->session->input);
    const size_t shift = 1 + cod_rng_below(rng, (uint32_t)n - 1);
    for (size_t i = 0; i < n; i++) {
        const float share = (float)cod_rng_uniform(rng);
        const float *a = inputs->batch + i * values, *b = inputs->batch + (i + shift) % n * values;
        for (size_t k = 0; k < values; k++)
            inputs->others[i * values + k] = share * a[k] + (1 - share) * b[k];
    }
}

/** Cuts a picture of the input's size out of each truth, and draws how the student will see it. */
static cod_status crop(cod_distill_inputs *inputs, cod_rng *rng)
{
    const cod_shape from = inputs->session->truth.shape, to = inputs->session->input.shape;
    COD_TRY(read_view(inputs, inputs->session->truth, inputs->truth));
    for (int64_t n = 0; n < to.n; n++) {
        const int64_t left = cod_rng_below(rng, (uint32_t)(from.w - to.w + 1));
        const int64_t top = cod_rng_below(rng, (uint32_t)(from.h - to.h + 1));
        for (int64_t y = 0; y < to.h; y++)
            memcpy(inputs->others + (n * to.h + y) * to.w * to.c,
                   inputs->truth + ((n * from.h + top + y) * from.w + left) * from.c,
                   (size_t)(to.w * to.c) * sizeof(float));
        inputs->turns[n] = 1 + cod_rng_below(rng, TURNS - 1);
        if (to.h != to.w)
            inputs->turns[n] &= ~(uint32_t)TRANSPOSE;
    }
    return COD_OK;
}

cod_status cod_distill_inputs_replace(cod_distill_inputs *inputs, cod_rng *rng)
{
    const cod_train_session *session = inputs->session;
    COD_TRY(read_view(inputs, session->input, inputs->batch));
    if (inputs->kind == COD_DISTILL_INPUTS_MIXUP)
        mix(inputs, rng);
    else
        COD_TRY(crop(inputs, rng));
    return write_view(inputs, session->input, inputs->others);
}

/** Turns each picture of [N,H,W,C] by its own turn. */
static void turn_all(const uint32_t *turns, cod_shape shape, const float *from, float *to)
{
    for (int64_t n = 0; n < shape.n; n++)
        for (int64_t y = 0; y < shape.h; y++)
            for (int64_t x = 0; x < shape.w; x++) {
                const uint32_t turn = turns[n];
                const int64_t column = turn & MIRROR_X ? shape.w - 1 - x : x,
                              row = turn & MIRROR_Y ? shape.h - 1 - y : y;
                const int64_t pixel = turn & TRANSPOSE ? column * shape.w + row : row * shape.w + column;
                const float *in = from + (n * shape.h * shape.w + pixel) * shape.c;
                float *out = to + ((n * shape.h + y) * shape.w + x) * shape.c;
                for (int64_t c = 0; c < shape.c; c++)
                    out[c] = turn & INVERT ? 1 - in[c] : in[c];
            }
}

cod_status cod_distill_inputs_turn(cod_distill_inputs *inputs)
{
    const cod_view input = inputs->session->input;
    if (inputs->kind != COD_DISTILL_INPUTS_NO_REFERENCE)
        return COD_OK;
    float *seen = inputs->truth; /* it has served, and is no smaller */
    turn_all(inputs->turns, input.shape, inputs->others, seen);
    COD_TRY(write_view(inputs, input, seen));
    float *predicted = inputs->truth;
    COD_TRY(read_view(inputs, inputs->prediction, predicted));
    turn_all(inputs->turns, inputs->prediction.shape, predicted, inputs->turned);
    return write_view(inputs, inputs->prediction, inputs->turned);
}

cod_status cod_distill_inputs_restore(cod_distill_inputs *inputs)
{
    return write_view(inputs, inputs->session->input, inputs->batch);
}

#include "sequence.h"

#include "core/rng.h"

#include <stdlib.h>
#include <string.h>

/* Tensors. */

enum { BEFORE = 64 /* bytes of a buffer that lie before its view */ };

static cod_status add_tensor(sequence *s, const char *name, cod_dtype dtype, cod_shape shape, sequence_fill fill,
                             cod_view *out)
{
    cod_buffer *buffer = NULL;
    cod_view view = cod_view_dense(NULL, BEFORE, dtype, shape);
    COD_REQUIRE(s->tensor_count < SEQUENCE_TENSORS, "too many tensors");
    COD_TRY(s->on.backend->buffer_create(s->on.device, BEFORE + cod_view_span_bytes(&view), &buffer));
    view.buffer = buffer;
    s->tensors[s->tensor_count].view = view;
    s->tensors[s->tensor_count].fill = fill;
    s->tensors[s->tensor_count].name = name;
    s->tensor_count++;
    *out = view;
    return COD_OK;
}

static cod_status add_picture(sequence *s, const char *name, cod_shape shape, cod_view *out)
{
    return add_tensor(s, name, COD_BF16, shape, FILL_PICTURE, out);
}

static cod_status add_vector(sequence *s, const char *name, int64_t channels, sequence_fill fill, cod_view *out)
{
    return add_tensor(s, name, COD_F32, (cod_shape){1, 1, 1, channels}, fill, out);
}

static void mark_outputs(sequence *s)
{
    for (size_t t = 0; t < s->tensor_count; t++)
        for (size_t i = 0; i < s->count; i++)
            for (size_t k = 0; k < COD_OP_MAX_OUTPUTS; k++)
                if (s->ops[i].outputs[k].buffer == s->tensors[t].view.buffer)
                    s->tensors[t].output = true;
}

static double exact_value(cod_rng *rng, sequence_fill fill, double pixels)
{
    switch (fill) {
    case FILL_WEIGHTS:
        return cod_rng_below(rng, 64) == 0 ? (cod_rng_below(rng, 2) == 0 ? -1 : 1) : 0;
    case FILL_SCALE:
        return 1 + cod_rng_below(rng, 2);
    case FILL_SHIFT:
        return (double)cod_rng_below(rng, 3) - 1;
    case FILL_SLOPE: {
        static const double slopes[] = {-1, 0, 2};
        return slopes[cod_rng_below(rng, 3)];
    }
    case FILL_SUMS:
        return pixels * ((double)cod_rng_below(rng, 3) - 1);
    default:
        return (double)cod_rng_below(rng, 5) - 2;
    }
}

static double random_value(cod_rng *rng, sequence_fill fill, double pixels)
{
    const double normal = cod_rng_normal(rng);
    switch (fill) {
    case FILL_WEIGHTS:
        return normal / 24;
    case FILL_SCALE:
        return 1 + normal / 8;
    case FILL_SUMS:
        return pixels * normal / 8;
    case FILL_SLOPE:
        return 0.25 + normal / 16;
    default:
        return normal;
    }
}

static cod_status fill_tensor(sequence *s, size_t t, const sequence_case *which, bool exact, uint64_t seed)
{
    const cod_view *view = &s->tensors[t].view;
    const size_t size = cod_dtype_bytes(view->dtype), bytes = cod_view_span_bytes(view);
    const double pixels = (double)(which->from.n * which->from.h * which->from.w);
    const double level = strcmp(s->tensors[t].name, "bias") == 0 ? which->bias_level : 0;
    cod_rng rng = cod_rng_open(seed, 7, 0, 0, COD_RNG_TEST, (uint32_t)t);
    char *values = malloc(bytes);
    COD_REQUIRE_MEMORY(values);
    for (size_t i = 0; i < bytes / size; i++) {
        const sequence_fill fill = s->tensors[t].fill;
        const float value =
            (float)(level + (exact ? exact_value(&rng, fill, pixels) : random_value(&rng, fill, pixels)));
        const uint16_t bf16 = cod_bf16_from_f32(value);
        memcpy(values + i * size, view->dtype == COD_BF16 ? (const void *)&bf16 : (const void *)&value, size);
    }
    const cod_status status = s->on.backend->upload(s->on.device, NULL, view->buffer, view->offset, values, bytes);
    free(values);
    return status;
}

/* Ops. */

static cod_status add_slope(sequence *s, const char *name, cod_activation activation, bool by_channel, int64_t channels,
                            sequence_fill fill, cod_view *out)
{
    return activation == COD_ACT_PRELU ? add_vector(s, name, by_channel ? channels : 1, fill, out) : COD_OK;
}

static cod_status add_apply(sequence *s, const sequence_case *which)
{
    cod_op *op = &s->ops[s->count++];
    const int64_t c = which->from.c;
    *op = (cod_op){.kind = which->backward ? COD_OP_NORM_BACKWARD_APPLY : COD_OP_NORM_APPLY, .name = "apply"};
    COD_TRY(add_picture(s, "apply x", which->from, &op->inputs[0]));
    if (which->backward)
        COD_TRY(add_picture(s, "apply g", which->from, &op->inputs[1]));
    COD_TRY(add_vector(s, "apply gamma", c, FILL_SCALE, &op->inputs[which->backward ? 2 : 1]));
    COD_TRY(add_vector(s, "apply mean", c, FILL_SHIFT, &op->inputs[3]));
    COD_TRY(add_vector(s, "apply inv_std", c, FILL_SCALE, &op->inputs[4]));
    if (which->backward) {
        COD_TRY(add_tensor(s, "apply sums", COD_F32, (cod_shape){1, 1, 2, c}, FILL_SUMS, &op->inputs[5]));
    } else {
        op->attr.activation = which->apply;
        op->attr.leak = 2;
        COD_TRY(add_vector(s, "apply beta", c, FILL_SHIFT, &op->inputs[2]));
        COD_TRY(add_slope(s, "apply slope", which->apply, which->by_channel, c, FILL_SLOPE, &op->inputs[5]));
        if (which->residual)
            COD_TRY(add_picture(s, "apply residual", which->from, &op->inputs[6]));
    }
    return add_picture(s, "apply y", which->from, &op->outputs[0]);
}

static cod_status add_conv(sequence *s, const sequence_case *which)
{
    const cod_view read = s->count > 0 ? s->ops[0].outputs[0] : (cod_view){.buffer = NULL};
    cod_op *op = &s->ops[s->count++];
    const int64_t in = which->from.c, out = which->outputs;
    cod_shape to = which->from;
    to.c = out;
    *op = (cod_op){.kind = which->backward ? COD_OP_CONV2D_BACKWARD_DATA : COD_OP_CONV2D,
                   .accumulate = which->accumulate,
                   .attr = {.stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1},
                   .name = "conv"};
    op->inputs[0] = read;
    if (read.buffer == NULL)
        COD_TRY(add_picture(s, "conv x", which->from, &op->inputs[0]));
    const cod_shape w = {which->backward ? in : out, 3, 3, which->backward ? out : in};
    COD_TRY(add_tensor(s, "weights", COD_F32, w, FILL_WEIGHTS, &op->inputs[1]));
    if (which->bias)
        COD_TRY(add_vector(s, "bias", out, FILL_SHIFT, &op->inputs[2]));
    return add_picture(s, "conv y", to, &op->outputs[0]);
}

static cod_status add_statistics(sequence *s, const cod_view *y)
{
    cod_op *op = &s->ops[s->count++];
    const int64_t c = y->shape.c;
    *op =
        (cod_op){.kind = COD_OP_NORM_STATISTICS, .attr = {.epsilon = 1e-5F, .momentum = 0.125F}, .name = "statistics"};
    op->inputs[0] = *y;
    COD_TRY(add_vector(s, "mean", c, FILL_STATISTICS, &op->outputs[0]));
    COD_TRY(add_vector(s, "inv_std", c, FILL_STATISTICS, &op->outputs[1]));
    COD_TRY(add_vector(s, "running mean", c, FILL_STATISTICS, &op->outputs[2]));
    return add_vector(s, "running variance", c, FILL_STATISTICS, &op->outputs[3]);
}

static cod_status add_reduce(sequence *s, const sequence_case *which, const cod_view *dy)
{
    cod_op *op = &s->ops[s->count++];
    const int64_t c = dy->shape.c;
    *op = (cod_op){.kind = COD_OP_NORM_BACKWARD_REDUCE,
                   .accumulate = which->accumulate,
                   .attr = {.activation = which->reduce, .leak = 2},
                   .name = "reduce"};
    op->inputs[1] = *dy;
    COD_TRY(add_picture(s, "reduce x", dy->shape, &op->inputs[0]));
    COD_TRY(add_vector(s, "reduce gamma", c, FILL_SCALE, &op->inputs[2]));
    COD_TRY(add_vector(s, "reduce beta", c, FILL_SHIFT, &op->inputs[3]));
    COD_TRY(add_vector(s, "reduce mean", c, FILL_SHIFT, &op->inputs[4]));
    COD_TRY(add_vector(s, "reduce inv_std", c, FILL_SCALE, &op->inputs[5]));
    COD_TRY(add_slope(s, "reduce slope", which->reduce, which->by_channel, c, FILL_SLOPE, &op->inputs[6]));
    if (which->in_place)
        op->outputs[0] = *dy;
    else if (which->both || which->reduce != COD_ACT_NONE)
        COD_TRY(add_picture(s, "g", dy->shape, &op->outputs[0]));
    COD_TRY(add_tensor(s, "sums", COD_F32, (cod_shape){1, 1, 2, c}, FILL_STATISTICS, &op->outputs[1]));
    COD_TRY(add_vector(s, "dgamma", c, FILL_STATISTICS, &op->outputs[2]));
    COD_TRY(add_vector(s, "dbeta", c, FILL_STATISTICS, &op->outputs[3]));
    return add_slope(s, "dslope", which->reduce, which->by_channel, c, FILL_STATISTICS, &op->outputs[4]);
}

static cod_status add_all(sequence *s, const sequence_case *which, bool exact, uint64_t seed)
{
    if (which->applies)
        COD_TRY(add_apply(s, which));
    COD_TRY(add_conv(s, which));
    const cod_view y = s->ops[s->count - 1].outputs[0];
    if (which->reduces)
        COD_TRY(which->backward ? add_reduce(s, which, &y) : add_statistics(s, &y));
    mark_outputs(s);
    for (size_t t = 0; t < s->tensor_count; t++)
        COD_TRY(fill_tensor(s, t, which, exact, seed));
    return COD_OK;
}

cod_status sequence_init(sequence *s, cod_test_device on, const sequence_case *which, bool exact, uint64_t seed)
{
    *s = (sequence){.on = on};
    const cod_status status = add_all(s, which, exact, seed);
    if (status != COD_OK)
        sequence_clear(s);
    return status;
}

void sequence_clear(sequence *s)
{
    for (size_t t = 0; t < s->tensor_count; t++)
        s->on.backend->buffer_destroy(s->on.device, s->tensors[t].view.buffer);
    *s = (sequence){.count = 0};
}

/* Runs. */

static cod_status run_plan(sequence *s, cod_plan *plan)
{
    cod_status status = s->on.backend->plans_prepare(s->on.device, &plan, 1, NULL);
    COD_THEN(status, s->on.backend->plan_run(plan, NULL));
    s->on.backend->plan_destroy(plan);
    return status;
}

cod_status sequence_run_fused(sequence *s)
{
    cod_plan *plan = NULL;
    const size_t fused = s->on.backend->op_fuses(s->on.device, s->ops, s->count);
    COD_REQUIRE(fused == s->count, "%zu of %zu ops are fused", fused, s->count);
    COD_TRY(s->on.backend->plan_create_fused(s->on.device, s->ops, s->count, &plan));
    return run_plan(s, plan);
}

cod_status sequence_run_apart(sequence *s)
{
    for (size_t i = 0; i < s->count; i++) {
        cod_plan *plan = NULL;
        COD_TRY(s->on.backend->plan_create(s->on.device, &s->ops[i], &plan));
        COD_TRY(run_plan(s, plan));
    }
    return COD_OK;
}

/* Results. */

size_t sequence_tensor(const sequence *s, const char *name)
{
    size_t t = 0;
    while (t < s->tensor_count && strcmp(s->tensors[t].name, name) != 0)
        t++;
    return t;
}

cod_status sequence_read(sequence *s, size_t tensor, double **out)
{
    COD_REQUIRE(tensor < s->tensor_count, "there is no such tensor");
    const cod_view *view = &s->tensors[tensor].view;
    const size_t size = cod_dtype_bytes(view->dtype), bytes = cod_view_span_bytes(view);
    char *span = malloc(bytes);
    double *values = malloc(bytes / size * sizeof *values);
    cod_status status = span != NULL && values != NULL ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    COD_THEN(status, s->on.backend->download(s->on.device, NULL, span, view->buffer, view->offset, bytes));
    for (size_t i = 0; i < bytes / size && status == COD_OK; i++) {
        float value;
        uint16_t bf16;
        memcpy(view->dtype == COD_BF16 ? (void *)&bf16 : (void *)&value, span + i * size, size);
        values[i] = (double)(view->dtype == COD_BF16 ? cod_f32_from_bf16(bf16) : value);
    }
    free(span);
    if (status != COD_OK)
        free(values);
    else
        *out = values;
    return status;
}

cod_status sequence_compare(sequence *actual, sequence *expected, cod_tolerance tolerance, cod_tolerance statistics)
{
    cod_status status = COD_OK;
    for (size_t t = 0; t < expected->tensor_count && status == COD_OK; t++) {
        double *is = NULL, *should = NULL;
        if (!expected->tensors[t].output)
            continue;
        status = sequence_read(actual, t, &is);
        COD_THEN(status, sequence_read(expected, t, &should));
        COD_THEN(status, cod_test_compare(expected->tensors[t].name, is, should,
                                          cod_shape_count(expected->tensors[t].view.shape),
                                          expected->tensors[t].fill == FILL_STATISTICS ? statistics : tolerance));
        free(is);
        free(should);
    }
    return status;
}

#include "support/ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cod_test_absent(const cod_backend *backend)
{
    cod_device *device = NULL;
    if (backend->open(NULL, &device) == COD_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", cod_error_message());
        return true;
    }
    backend->close(device);
    return false;
}

cod_view cod_test_view_of(cod_dtype dtype, cod_shape shape, int64_t gap)
{
    cod_view view = cod_view_dense(NULL, 0, dtype, shape);
    view.pixel_stride += gap;
    return view;
}

cod_op cod_test_layer_op(const cod_test_layer *layer, cod_op_kind kind, cod_test_layout layout, int factor)
{
    const int64_t r = factor > 0 ? factor : 1, beyond = 2 * layer->pad - layer->kernel;
    const cod_shape of_x = {layer->n, layer->h, layer->w, layer->in},
                    of_y = {layer->n, r * ((layer->h + beyond) / layer->stride + 1),
                            r * ((layer->w + beyond) / layer->stride + 1), layer->out / (r * r)};
    const cod_view x = cod_test_view_of(layout.x, of_x, layout.gap_x),
                   y = cod_test_view_of(layout.y, of_y, layout.gap_y);
    const cod_view w = cod_test_view_of(COD_F32, (cod_shape){layer->out, layer->kernel, layer->kernel, layer->in}, 0);
    const cod_view b = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, layer->out}, 0);
    const bool data = kind == COD_OP_CONV2D_BACKWARD_DATA, weights = kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    cod_op op = {.kind = kind,
                 .name = "layer",
                 .attr = {.stride_h = layer->stride,
                          .stride_w = layer->stride,
                          .pad_h = layer->pad,
                          .pad_w = layer->pad,
                          .factor = factor},
                 .inputs = {data ? y : x, weights ? y : w},
                 .outputs = {data      ? x
                             : weights ? w
                                       : y}};
    if (weights)
        op.outputs[1] = b;
    else if (!data)
        op.inputs[2] = b;
    return op;
}

void cod_test_without_bias(cod_op *op)
{
    *(op->kind == COD_OP_CONV2D ? &op->inputs[2] : &op->outputs[1]) = (cod_view){0};
}

cod_view *cod_test_view(cod_op *op, size_t slot)
{
    return slot < COD_OP_MAX_INPUTS ? &op->inputs[slot] : &op->outputs[slot - COD_OP_MAX_INPUTS];
}

static cod_status make_buffers_and_plan(cod_test_op *test)
{
    const cod_backend *backend = test->on.backend;
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        cod_view *view = cod_test_view(&test->op, slot);
        view->buffer = NULL;
        if (cod_shape_count(view->shape) == 0)
            continue;
        /*
         * A slice begins inside its first pixel; 64 bytes before it, as a view of an arena has; nothing behind its last
         * element.
         */
        const size_t size = cod_dtype_bytes(view->dtype);
        view->offset = 64 + (size_t)(view->pixel_stride - view->shape.c) / 2 * size;
        const size_t bytes = view->offset + cod_view_span_bytes(view);
        COD_TRY(backend->buffer_create(test->on.device, bytes, &test->buffers[slot]));
        view->buffer = test->buffers[slot];
    }
    return backend->plan_create(test->on.device, &test->op, &test->plan);
}

cod_status cod_test_op_init(cod_test_op *test, cod_test_device on, const cod_op *description)
{
    *test = (cod_test_op){.on = on, .op = *description};
    const cod_status status = make_buffers_and_plan(test);
    if (status != COD_OK)
        cod_test_op_clear(test);
    return status;
}

void cod_test_op_clear(cod_test_op *test)
{
    if (test->plan != NULL)
        test->on.backend->plan_destroy(test->plan);
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
        if (test->buffers[slot] != NULL)
            test->on.backend->buffer_destroy(test->on.device, test->buffers[slot]);
    *test = (cod_test_op){.plan = NULL};
}

static void element_write(char *address, cod_dtype dtype, double value)
{
    const float f32 = (float)value;
    const int32_t i32 = (int32_t)value;
    const uint16_t bf16 = cod_bf16_from_f32(f32);
    const uint8_t u8 = (uint8_t)i32;
    const void *source = dtype == COD_F64   ? (const void *)&value
                         : dtype == COD_F32 ? (const void *)&f32
                         : dtype == COD_I32 ? (const void *)&i32
                         : dtype == COD_U8  ? (const void *)&u8
                                            : (const void *)&bf16;
    memcpy(address, source, cod_dtype_bytes(dtype));
}

static double element_read(const char *address, cod_dtype dtype)
{
    union {
        double f64;
        float f32;
        int32_t i32;
        uint16_t bf16;
        uint8_t u8;
    } value = {0};
    memcpy(&value, address, cod_dtype_bytes(dtype));
    return dtype == COD_F64   ? value.f64
           : dtype == COD_F32 ? (double)value.f32
           : dtype == COD_I32 ? (double)value.i32
           : dtype == COD_U8  ? (double)value.u8
                              : (double)cod_f32_from_bf16(value.bf16);
}

/** Writes `source` to the bytes of the view, or reads `target` from them where that is NULL. */
static void convert(const cod_view *view, char *span, const double *source, double *target)
{
    for (int64_t i = 0; i < cod_shape_count(view->shape); i++) {
        char *address =
            span + (size_t)(i / view->shape.c * view->pixel_stride + i % view->shape.c) * cod_dtype_bytes(view->dtype);
        if (source != NULL)
            element_write(address, view->dtype, source[i]);
        else
            target[i] = element_read(address, view->dtype);
    }
}

/** Moves the view's bytes between the device and `dense`. */
static cod_status transfer(cod_test_op *test, size_t slot, const double *source, double *target)
{
    const cod_view *view = cod_test_view(&test->op, slot);
    const cod_backend *backend = test->on.backend;
    const size_t bytes = cod_view_span_bytes(view);
    COD_REQUIRE(view->buffer != NULL, "slot %zu is absent", slot);
    char *span = malloc(bytes + 1);
    COD_REQUIRE_MEMORY(span);
    cod_status status = backend->download(test->on.device, NULL, span, view->buffer, view->offset, bytes);
    if (status == COD_OK)
        convert(view, span, source, target);
    if (source != NULL)
        COD_THEN(status, backend->upload(test->on.device, NULL, view->buffer, view->offset, span, bytes));
    free(span);
    return status;
}

cod_status cod_test_op_write(cod_test_op *test, size_t slot, const double *dense)
{
    return transfer(test, slot, dense, NULL);
}

cod_status cod_test_op_read(cod_test_op *test, size_t slot, double *dense)
{
    return transfer(test, slot, NULL, dense);
}

cod_status cod_test_op_randomise(cod_test_op *test, uint64_t seed, bool smooth)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        if (test->buffers[slot] == NULL)
            continue;
        double *values = cod_test_random_values(&test->op, slot, seed, smooth);
        const cod_status status = cod_test_op_write(test, slot, values);
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

cod_status cod_test_op_run(cod_test_op *test)
{
    COD_TRY(test->on.backend->plans_prepare(test->on.device, &test->plan, 1, NULL));
    return test->on.backend->plan_run(test->plan, NULL);
}

cod_status cod_test_compare(const char *what, const double *actual, const double *expected, int64_t count,
                            cod_tolerance tolerance)
{
    double largest = 0, worst = 0;
    int64_t worst_at = -1, wrong = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < count; i++) {
        const double difference = fabs(actual[i] - expected[i]);
        const double allowed = tolerance.relative * fabs(expected[i]) + tolerance.scaled * largest;
        if (difference <= allowed)
            continue;
        wrong++;
        if (worst_at < 0 || !(difference - allowed <= worst)) {
            worst = difference - allowed;
            worst_at = i;
        }
    }
    if (wrong == 0)
        return COD_OK;
    return cod_fail(COD_ERR_NUMERIC, "%s: %" PRId64 " of %" PRId64 " differ; worst at %" PRId64 ": %.9g, not %.9g",
                    what, wrong, count, worst_at, actual[worst_at], expected[worst_at]);
}

static cod_status compare_slot(cod_test_op *expected, cod_test_op *tested, size_t slot, cod_tolerance tolerance)
{
    const int64_t count = cod_shape_count(cod_test_view(&expected->op, slot)->shape);
    double *values = calloc((size_t)count * 2 + 1, sizeof *values);
    COD_REQUIRE_MEMORY(values);
    char what[64];
    snprintf(what, sizeof what, "output %zu", slot - COD_OP_MAX_INPUTS);
    cod_status status = cod_test_op_read(expected, slot, values);
    COD_THEN(status, cod_test_op_read(tested, slot, values + count));
    COD_THEN(status, cod_test_compare(what, values + count, values, count, tolerance));
    free(values);
    return status;
}

cod_status cod_test_parity(cod_test_device expected, cod_test_device tested, const cod_op *description, uint64_t seed,
                           cod_tolerance tolerance)
{
    cod_test_op a = {.plan = NULL}, b = {.plan = NULL};
    cod_status status = cod_test_op_init(&a, expected, description);
    COD_THEN(status, cod_test_op_init(&b, tested, description));
    COD_THEN(status, cod_test_op_randomise(&a, seed, false));
    COD_THEN(status, cod_test_op_randomise(&b, seed, false));
    COD_THEN(status, cod_test_op_run(&a));
    COD_THEN(status, cod_test_op_run(&b));
    for (size_t slot = COD_OP_MAX_INPUTS; slot < COD_TEST_SLOTS && status == COD_OK; slot++)
        if (a.buffers[slot] != NULL)
            status = compare_slot(&a, &b, slot, tolerance);
    cod_test_op_clear(&a);
    cod_test_op_clear(&b);
    if (status != COD_OK && status != COD_ERR_UNSUPPORTED)
        return cod_fail_prefix(status, "%s, seed %" PRIu64, cod_op_kind_name(description->kind), seed);
    return status;
}

enum { PARAM = COD_OP_MAX_INPUTS, AVERAGE = PARAM + 3, SCALARS = 1, RATES = 4 };

/** What EMA makes of the parameters of `update`, which has run. */
static cod_status average_behind(cod_test_op *update, const double *before, double decay, double *after)
{
    const cod_view param = update->op.outputs[0];
    const cod_op description = {.kind = COD_OP_EMA,
                                .inputs = {param, {.dtype = COD_F32, .shape = {1, 1, 1, 1}, .pixel_stride = 1}},
                                .outputs = {param},
                                .name = "ema"};
    cod_test_op ema = {.plan = NULL};
    cod_status status = cod_test_op_init(&ema, update->on, &description);
    COD_THEN(status, cod_test_op_read(update, PARAM, after));
    COD_THEN(status, cod_test_op_write(&ema, 0, after));
    COD_THEN(status, cod_test_op_write(&ema, SCALARS, &decay));
    COD_THEN(status, cod_test_op_write(&ema, PARAM, before));
    COD_THEN(status, cod_test_op_run(&ema));
    COD_THEN(status, cod_test_op_read(&ema, PARAM, after));
    cod_test_op_clear(&ema);
    return status;
}

cod_status cod_test_average(cod_test_device on, int64_t count, uint64_t seed)
{
    cod_op op = cod_test_random_op(COD_OP_OPTIMISER, COD_F32, COD_F32, seed);
    cod_test_op with = {.plan = NULL}, without = {.plan = NULL};
    double *before = calloc((size_t)count * 3, sizeof *before), scalars[RATES];
    COD_REQUIRE_MEMORY(before);
    double *const expected = before + count, *const actual = expected + count;
    op.outputs[3] = op.outputs[0];
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
        if (slot == 0 || (slot >= PARAM && slot <= AVERAGE && cod_test_view(&op, slot)->shape.c > 0)) {
            cod_test_view(&op, slot)->shape = (cod_shape){1, 1, 1, count};
            cod_test_view(&op, slot)->pixel_stride = count;
        }
    cod_status status = cod_test_op_init(&with, on, &op);
    op.outputs[3] = (cod_view){.buffer = NULL};
    COD_THEN(status, cod_test_op_init(&without, on, &op));
    COD_THEN(status, cod_test_op_randomise(&with, seed, false));
    COD_THEN(status, cod_test_op_randomise(&without, seed, false));
    COD_THEN(status, cod_test_op_read(&with, AVERAGE, before));
    COD_THEN(status, cod_test_op_read(&with, SCALARS, scalars));
    COD_THEN(status, cod_test_op_run(&with));
    COD_THEN(status, cod_test_op_run(&without));
    COD_THEN(status, average_behind(&without, before, scalars[3], expected));
    COD_THEN(status, cod_test_op_read(&with, AVERAGE, actual));
    COD_THEN(status, cod_test_compare("average", actual, expected, count, (cod_tolerance){0, 0}));
    cod_test_op_clear(&with);
    cod_test_op_clear(&without);
    free(before);
    return status == COD_OK ? status : cod_fail_prefix(status, "seed %" PRIu64, seed);
}

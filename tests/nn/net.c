#include "nn/net.h"

#include "core/rng.h"
#include "support/late.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double *net_new(size_t count)
{
    double *values = calloc(count + 1, sizeof *values);
    if (values == NULL)
        abort();
    return values;
}

/** Any element type, as doubles, from the buffer's byte `offset` on. */
static cod_status transfer(const test_net *net, cod_buffer *buffer, size_t offset, cod_dtype dtype, size_t count,
                           double *values, bool write)
{
    const size_t bytes = count * cod_dtype_bytes(dtype);
    void *raw = calloc(bytes + 1, 1);
    COD_REQUIRE_MEMORY(raw);
    float *f32 = raw;
    double *f64 = raw;
    for (size_t i = 0; write && i < count; i++) {
        if (dtype == COD_F64)
            f64[i] = values[i];
        else
            f32[i] = (float)values[i];
    }
    const cod_status status = write ? net->backend->upload(net->device, NULL, buffer, offset, raw, bytes)
                                    : net->backend->download(net->device, NULL, raw, buffer, offset, bytes);
    for (size_t i = 0; !write && i < count; i++)
        values[i] = dtype == COD_F64 ? f64[i] : (double)f32[i];
    free(raw);
    return status;
}

cod_status net_read(const test_net *net, cod_view view, double *out)
{
    COD_REQUIRE(view.buffer != NULL && cod_view_is_dense(&view), "not a dense view");
    return transfer(net, view.buffer, view.offset, view.dtype, (size_t)cod_shape_count(view.shape), out, false);
}

cod_status net_write(const test_net *net, cod_view view, const double *values)
{
    COD_REQUIRE(view.buffer != NULL && cod_view_is_dense(&view), "not a dense view");
    return transfer(net, view.buffer, view.offset, view.dtype, (size_t)cod_shape_count(view.shape), (double *)values,
                    true);
}

cod_status net_read_values(const test_net *net, double *values)
{
    return transfer(net, net->weights.values, 0, net->weights.dtype, cod_weights_count(&net->weights), values, false);
}

cod_status net_write_values(test_net *net, const double *values)
{
    cod_weights_changed(&net->weights, COD_ALL_SETS);
    return transfer(net, net->weights.values, 0, net->weights.dtype, cod_weights_count(&net->weights), (double *)values,
                    true);
}

cod_status net_read_grads(const test_net *net, double *grads)
{
    return transfer(net, net->weights.grads, 0, net->weights.dtype, net->weights.layout.trainable, grads, false);
}

cod_status net_write_grads(const test_net *net, const double *grads)
{
    return transfer(net, net->weights.grads, 0, net->weights.dtype, net->weights.layout.trainable, (double *)grads,
                    true);
}

/** Matrices keep the size of activations; vectors stay near their initial value. */
static cod_status random_weights(test_net *net, uint64_t seed)
{
    double *values = net_new(cod_weights_count(&net->weights));
    for (size_t i = 0; i < cod_graph_param_count(net->graph); i++) {
        const cod_param *param = cod_graph_param(net->graph, i);
        const double fan_in = (double)(param->shape.h * param->shape.w * param->shape.c);
        cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, (uint32_t)i);
        for (int64_t k = 0; k < cod_shape_count(param->shape); k++)
            values[param->offset + (size_t)k] = param->rank > 1
                                                    ? cod_rng_normal(&rng) / sqrt(fan_in)
                                                    : param->init.scale + 0.2 * (2 * cod_rng_uniform(&rng) - 1);
    }
    const cod_status status = net_write_values(net, values);
    free(values);
    return status;
}

cod_status net_random_inputs(test_net *net, uint64_t seed)
{
    for (size_t i = 0; i < cod_graph_node_count(net->graph); i++) {
        const cod_node *node = cod_graph_node(net->graph, i);
        const cod_view view =
            node->kind == COD_NODE_INPUT ? cod_executable_input(net->executable, node->name) : (cod_view){0};
        if (view.buffer == NULL)
            continue;
        const size_t count = (size_t)cod_shape_count(view.shape);
        double *values = net_new(count);
        cod_rng rng = cod_rng_open(seed, 1, 0, 0, COD_RNG_TEST, (uint32_t)i);
        for (size_t k = 0; k < count; k++)
            values[k] = cod_rng_normal(&rng);
        const cod_status status = net_write(net, view, values);
        free(values);
        COD_TRY(status);
    }
    return COD_OK;
}

cod_status net_init(test_net *out, const cod_backend *backend, cod_graph *graph, const cod_compile_options *options,
                    const cod_program_spec *specs, size_t count, uint64_t seed)
{
    backend = cod_late_chosen(backend);
    *out = (test_net){.backend = backend, .graph = graph};
    COD_TRY(backend->open(NULL, &out->device));
    const cod_dtype dtype = options->activation == COD_F64 ? COD_F64 : COD_F32;
    COD_TRY(cod_weights_init(&out->weights, backend, out->device, graph, dtype, true));
    COD_TRY(random_weights(out, seed));
    COD_TRY(cod_compile(graph, &out->weights, options, specs, count, &out->executable));
    return net_random_inputs(out, seed);
}

void net_clear(test_net *net)
{
    cod_executable_destroy(net->executable);
    if (net->weights.backend != NULL)
        cod_weights_clear(&net->weights);
    if (net->device != NULL)
        net->backend->close(net->device);
    *net = (test_net){0};
}

cod_status net_run(test_net *net, const char *program)
{
    cod_program *found = cod_executable_program(net->executable, program);
    COD_REQUIRE(found != NULL, "no program '%s'", program);
    return cod_program_run(found, NULL, NULL);
}

/** The sum of the program's losses, each with its constant factor. */
static cod_status total_loss(test_net *net, const cod_program_spec *spec, double *total)
{
    COD_TRY(net_run(net, spec->name));
    *total = 0;
    for (size_t i = 0; i < COD_PROGRAM_MAX_LOSSES; i++) {
        double value;
        if (spec->losses[i] == 0)
            continue;
        COD_TRY(net_read(net, cod_executable_output(net->executable, spec->losses[i]), &value));
        *total += cod_graph_producer(net->graph, spec->losses[i])->attr.alpha * value;
    }
    return COD_OK;
}

/** Difference quotient of the loss with respect to one element, with the given step. */
static cod_status quotient(test_net *net, const cod_program_spec *spec, double *values, size_t at, double step,
                           double *out)
{
    const double value = values[at];
    double losses[2] = {0, 0};
    cod_status status = COD_OK;
    for (int side = 0; side < 2 && status == COD_OK; side++) {
        values[at] = value + (side ? step : -step);
        status = net_write_values(net, values);
        COD_THEN(status, total_loss(net, spec, &losses[side]));
    }
    values[at] = value;
    *out = (losses[1] - losses[0]) / (2 * step);
    return status;
}

static cod_status check_param(test_net *net, const cod_program_spec *spec, const cod_param *param, double *values,
                              const double *grads, uint64_t seed, net_check *check)
{
    enum { ELEMENTS = 3 };
    static const double STEP = 2e-6;
    const size_t count = (size_t)cod_shape_count(param->shape);
    cod_rng rng = cod_rng_open(seed, 2, 0, 0, COD_RNG_TEST, (uint32_t)param->offset);
    for (size_t e = 0; e < ELEMENTS && e < count; e++) {
        const size_t at = param->offset + cod_rng_below(&rng, (uint32_t)count);
        double wide, narrow;
        COD_TRY(quotient(net, spec, values, at, STEP, &wide));
        COD_TRY(quotient(net, spec, values, at, STEP / 2, &narrow));
        check->tried++;
        if (fabs(wide - narrow) > 2e-7 * fabs(wide) + 2e-9)
            continue; /* a kink lies within the step */
        check->smooth++;
        /* 1e-9: the loss's rounding error divided by the step. */
        if (!(fabs(wide - grads[at]) <= 1e-6 * fabs(wide) + 3e-9))
            return cod_fail(COD_ERR_NUMERIC, "seed %llu, '%s' element %zu: gradient %.10g, differences say %.10g",
                            (unsigned long long)seed, param->name, at - param->offset, grads[at], wide);
    }
    return COD_OK;
}

cod_status net_check_gradients(test_net *net, const cod_program_spec *spec, uint64_t seed, net_check *check)
{
    double *values = net_new(cod_weights_count(&net->weights)), *grads = net_new(net->weights.layout.trainable), loss;
    const int set = cod_graph_set_index(net->graph, spec->trains);
    *check = (net_check){0};
    cod_status status = net_read_values(net, values);
    COD_THEN(status, total_loss(net, spec, &loss));
    COD_THEN(status, net_read_grads(net, grads));
    for (size_t i = 0; i < cod_graph_param_count(net->graph) && status == COD_OK; i++) {
        const cod_param *param = cod_graph_param(net->graph, i);
        if (param->set == set && !param->is_state)
            status = check_param(net, spec, param, values, grads, seed, check);
    }
    COD_THEN(status, net_write_values(net, values));
    if (status == COD_OK && 2 * check->smooth < check->tried)
        status = cod_fail(COD_ERR_NUMERIC, "seed %llu: only %zu of %zu elements are smooth", (unsigned long long)seed,
                          check->smooth, check->tried);
    free(values);
    free(grads);
    return status;
}

/**
 * The half of a normalisation that stands for the whole where ops are counted; the kind itself where it is no whole.
 */
static cod_op_kind half_of(cod_op_kind kind)
{
    return kind == COD_OP_NORM_TRAIN      ? COD_OP_NORM_APPLY
           : kind == COD_OP_NORM_BACKWARD ? COD_OP_NORM_BACKWARD_APPLY
                                          : kind;
}

size_t net_count_kind(const test_net *net, const char *program, cod_op_kind kind)
{
    const cod_program *found = cod_executable_program(net->executable, program);
    const size_t plans = net_plans(net, program);
    size_t count = 0;
    for (size_t i = 0; i < plans; i++)
        for (size_t k = 0; k < cod_program_op_parts(found, i); k++) {
            cod_op op;
            cod_program_op_part(found, i, k, &op);
            count += op.kind == kind || op.kind == half_of(kind);
        }
    return count;
}

size_t net_count_plans(const test_net *net, const char *program, cod_op_kind kind, size_t parts)
{
    const cod_program *found = cod_executable_program(net->executable, program);
    cod_op op;
    size_t count = 0;
    for (size_t i = 0; cod_program_op(found, i, &op); i++)
        count += op.kind == kind && cod_program_op_parts(found, i) == parts;
    return count;
}

size_t net_find_plan(const test_net *net, const char *program, const char *name, cod_op *op)
{
    for (size_t i = 0; cod_program_op(cod_executable_program(net->executable, program), i, op); i++)
        if (strcmp(op->name, name) == 0)
            return i;
    return SIZE_MAX;
}

size_t net_plans(const test_net *net, const char *program)
{
    cod_op op;
    size_t count = 0;
    while (cod_program_op(cod_executable_program(net->executable, program), count, &op))
        count++;
    return count;
}

cod_status net_model(const char *kind_name, const char *options, cod_arena *arena, cod_model *out)
{
    const cod_model_kind *kind = cod_model_kind_find(kind_name);
    COD_REQUIRE(kind != NULL, "no model '%s'", kind_name);
    void *values = cod_arena_alloc(arena, kind->table->struct_bytes);
    char *text = cod_arena_strdup(arena, options), *rest = NULL;
    COD_TRY(cod_options_set_defaults(kind->table, values, arena));
    for (char *key = strtok_r(text, " ", &rest); key != NULL; key = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(key, '=');
        COD_REQUIRE(value != NULL, "'%s' is not key=value", key);
        *value++ = 0;
        const cod_option *option = cod_option_find(kind->table, key);
        COD_REQUIRE(option != NULL, "model '%s' has no option '%s'", kind_name, key);
        const char *items[16];
        size_t count = 0;
        for (char *after = NULL, *item = strtok_r(value, ",", &after);
             item != NULL && count < sizeof items / sizeof items[0]; item = strtok_r(NULL, ",", &after))
            items[count++] = item;
        COD_TRY(cod_option_set(option, values, items, count, arena));
    }
    return cod_model_build(kind, values, out);
}

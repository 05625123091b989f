#include "student.h"

#include "core/memory.h"
#include "core/queue.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void student_open(student *s, const cod_backend *backend, const char *architecture)
{
    *s = (student){0};
    const bool classifies = strcmp(architecture, CLASSES) == 0;
    assert_ok(net_model(classifies ? "mlp" : "srresnet", architecture, &s->arena, &s->model));
    cod_graph *graph = s->model.graph;
    const cod_value target = cod_graph_input_like(graph, "target", s->model.output);
    const cod_value task =
        cod_graph_loss(graph, "task", s->model.output, target, (cod_loss_spec){.kind = COD_LOSS_L1, .weight = 1});
    const cod_value teacher = cod_graph_input_like(graph, "teacher", s->model.output);
    const cod_value distill =
        cod_graph_loss(graph, "distill", s->model.output, teacher,
                       (cod_loss_spec){.kind = COD_LOSS_L1, .weight = 1, .scalar = "distill_weight"});
    const cod_program_spec specs[] = {
        {.name = "distill", .trains = "model", .losses = {task, distill}},
        {.name = "infer", .losses = {task}, .outputs = {s->model.output}},
    };
    const cod_input_shape input = {"input", {2, 6, 6, 3}};
    const cod_compile_options options = {.activation = COD_F32, .inputs = &input, .input_count = 1};
    assert_ok(net_init(&s->net, backend, graph, &options, specs, 2, 3));
    s->session = (cod_train_session){.config = &s->config,
                                     .backend = s->net.backend,
                                     .device = s->net.device,
                                     .activation = COD_F32,
                                     .recipe = {.model = s->model, .task_loss = task},
                                     .executable = s->net.executable,
                                     .input = cod_executable_input(s->net.executable, "input"),
                                     .truth = cod_executable_input(s->net.executable, "target")};
}

void student_close(student *s)
{
    net_clear(&s->net);
    cod_model_clear(&s->model);
    cod_arena_clear(&s->arena);
}

cod_status run_teacher(cod_teacher *teacher, float *loss)
{
    double value;
    *loss = NAN;
    COD_TRY(cod_teacher_run(teacher, 1));
    COD_TRY(cod_teacher_loss(teacher, 1, &value));
    *loss = (float)value;
    return COD_OK;
}

float *floats_new(size_t count)
{
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    return values;
}

cod_buffer held(const float *values, size_t count)
{
    return (cod_buffer){.host = (float *)values, .bytes = count * sizeof *values};
}

cod_buffer *there(const cod_weights *weights, const float *values, size_t count)
{
    cod_buffer *buffer = NULL;
    if (values == NULL)
        return NULL;
    assert_ok(weights->backend->buffer_create(weights->device, count * sizeof *values, &buffer));
    assert_ok(weights->backend->upload(weights->device, NULL, buffer, 0, values, buffer->bytes));
    return buffer;
}

cod_status load_teacher(cod_teacher *teacher, const cod_weights *weights, const float *values)
{
    static unsigned turn;
    const size_t count = cod_weights_count(weights);
    cod_buffer here = held(values, count);
    if (cod_backend_runs_at_once(weights->backend) || turn++ % 2 == 0)
        return cod_teacher_load(teacher, &here, 0);
    cod_buffer *copy = there(weights, values, count);
    const cod_status status = cod_teacher_load(teacher, copy, 0);
    weights->backend->buffer_destroy(weights->device, copy);
    return status;
}

cod_group_config architecture_of(const student *s)
{
    return (cod_group_config){.kind = s->model.kind, .architecture = s->model.options};
}

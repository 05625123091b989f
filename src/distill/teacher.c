#include "distill/teacher.h"

#include <stdlib.h>

enum { COPY_INPUT, COPY_TRUTH, COPY_PREDICTION, COPY_COUNT };

struct cod_teacher {
    const cod_backend *backend;
    cod_device *device;
    cod_model model;
    cod_weights weights;
    cod_value loss;
    cod_executable *executable;
    cod_program *program;
    cod_plan *copies[COPY_COUNT]; /**< between the student's inputs and the teacher's */
};

static cod_view first_of(cod_view view, int64_t pictures)
{
    view.shape.n = pictures;
    return view;
}

static cod_status plan_copy(cod_teacher *teacher, int which, cod_view from, cod_view to)
{
    const cod_op op = {
        .kind = COD_OP_ADD, .attr = {.alpha = 1}, .inputs = {from}, .outputs = {to}, .name = "teacher_copy"};
    return teacher->backend->plan_create(teacher->device, &op, &teacher->copies[which]);
}

static cod_status build(cod_teacher *teacher, cod_train_context *context, const cod_group_config *peer,
                        const char *target, int64_t pictures)
{
    const cod_node *task = cod_graph_producer(context->model->graph, context->task_loss);
    cod_model *model = &teacher->model;
    COD_TRY(cod_model_build(peer->kind, peer->architecture, model));
    const cod_value truth = cod_graph_input_like(model->graph, "target", model->output);
    teacher->loss = cod_graph_loss(model->graph, "teacher_task", model->output, truth,
                                   (cod_loss_spec){.kind = task->attr.loss, .epsilon = task->attr.epsilon});
    COD_TRY(cod_weights_init(&teacher->weights, context->backend, context->device, model->graph, COD_F32, false));
    const cod_input_shape input = {"input", first_of(context->input, pictures).shape};
    const cod_compile_options options = {.activation = context->activation,
                                         .inputs = &input,
                                         .input_count = 1,
                                         .deterministic = context->config->train.deterministic};
    const cod_program_spec spec = {.name = "teacher", .losses = {teacher->loss}, .outputs = {model->output}};
    COD_TRY(cod_compile(model->graph, &teacher->weights, &options, &spec, 1, &teacher->executable));
    teacher->program = cod_executable_program(teacher->executable, "teacher");
    COD_TRY(plan_copy(teacher, COPY_INPUT, first_of(context->input, pictures),
                      cod_executable_input(teacher->executable, "input")));
    COD_TRY(plan_copy(teacher, COPY_TRUTH, first_of(context->truth, pictures),
                      cod_executable_input(teacher->executable, "target")));
    return plan_copy(teacher, COPY_PREDICTION, cod_executable_output(teacher->executable, model->output),
                     first_of(cod_executable_input(context->executable, target), pictures));
}

cod_status cod_teacher_create(cod_train_context *context, const cod_group_config *peer, const char *target,
                              int64_t pictures, cod_teacher **out)
{
    cod_teacher *teacher = calloc(1, sizeof *teacher);
    COD_REQUIRE_MEMORY(teacher);
    teacher->backend = context->backend;
    teacher->device = context->device;
    const cod_status status = build(teacher, context, peer, target, pictures);
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
    for (int i = 0; i < COPY_COUNT; i++)
        if (teacher->copies[i] != NULL)
            teacher->backend->plan_destroy(teacher->copies[i]);
    cod_executable_destroy(teacher->executable);
    cod_weights_clear(&teacher->weights);
    cod_model_clear(&teacher->model);
    free(teacher);
}

cod_status cod_teacher_load(cod_teacher *teacher, const float *values)
{
    return cod_weights_upload(&teacher->weights, values);
}

cod_status cod_teacher_run(cod_teacher *teacher, float *loss)
{
    COD_TRY(teacher->backend->plan_run(teacher->copies[COPY_INPUT], NULL));
    COD_TRY(teacher->backend->plan_run(teacher->copies[COPY_TRUTH], NULL));
    COD_TRY(cod_program_run(teacher->program, NULL, NULL));
    COD_TRY(teacher->backend->plan_run(teacher->copies[COPY_PREDICTION], NULL));
    return cod_executable_loss(teacher->executable, teacher->loss, loss);
}

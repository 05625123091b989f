#include "train/prior.h"

#include <stdlib.h>
#include <string.h>

/** logits + prior, where there is one. */
static cod_value adjust(cod_graph *graph, cod_value logits, cod_value prior)
{
    return prior != 0 ? cod_graph_add(graph, logits, prior) : logits;
}

static cod_value input(const float *priors, cod_graph *graph, const char *name, cod_value logits)
{
    return priors != NULL ? cod_graph_input_like(graph, name, logits) : 0;
}

cod_value cod_prior_task_loss(const float *priors, cod_graph *graph, const char *name, cod_value output,
                              cod_value target, cod_loss_spec spec)
{
    const cod_value prior = input(priors, graph, COD_PRIOR_INPUT, output);
    return cod_graph_loss(graph, name, adjust(graph, output, prior), target, spec);
}

cod_value cod_prior_distill_loss(const float *priors, cod_graph *graph, const char *name, cod_value output,
                                 cod_value teacher, cod_loss_spec spec)
{
    const cod_value prior = input(priors, graph, COD_PRIOR_TEACHER_INPUT, output);
    return cod_graph_loss(graph, name, adjust(graph, output, prior), adjust(graph, teacher, prior), spec);
}

size_t cod_prior_classes(const cod_train_session *session)
{
    return (size_t)cod_graph_producer(session->recipe.model.graph, session->recipe.model.output)->channels;
}

const float *cod_prior_of(const cod_train_session *session, int group)
{
    return session->priors != NULL ? session->priors + (size_t)group * cod_prior_classes(session) : NULL;
}

/** `row` for each row of an input. @param[out] values  [N, classes] */
static void repeat(cod_view input, const float *row, float *values)
{
    const size_t rows = (size_t)input.shape.n, classes = (size_t)input.shape.c;
    for (size_t i = 0; i < rows; i++)
        memcpy(values + i * classes, row, classes * sizeof *values);
}

cod_status cod_prior_write(const cod_backend *backend, cod_device *device, cod_queue *queue, cod_view input,
                           const float *row)
{
    if (row == NULL)
        return COD_OK;
    const size_t bytes = cod_view_span_bytes(&input);
    float *values = malloc(bytes);
    COD_REQUIRE_MEMORY(values);
    repeat(input, row, values);
    const cod_status status = backend->upload(device, queue, input.buffer, input.offset, values, bytes);
    free(values);
    return status;
}

cod_status cod_prior_input_init(cod_prior_input *input, const cod_backend *backend, cod_device *device, cod_view view)
{
    *input = (cod_prior_input){.view = view};
    input->rows = calloc((size_t)cod_shape_count(view.shape), sizeof *input->rows);
    COD_REQUIRE_MEMORY(input->rows);
    COD_TRY(cod_slots_init(&input->slots, backend, device, cod_view_span_bytes(&view)));
    return cod_prior_write(backend, device, NULL, view, input->rows);
}

void cod_prior_input_clear(cod_prior_input *input)
{
    cod_slots_clear(&input->slots);
    free(input->rows);
    *input = (cod_prior_input){0};
}

cod_status cod_prior_input_write(cod_prior_input *input, const float *row)
{
    if (input->rows == NULL || memcmp(input->rows, row, (size_t)input->view.shape.c * sizeof *row) == 0)
        return COD_OK;
    const void *const rows = input->rows;
    repeat(input->view, row, input->rows);
    return cod_slots_write(&input->slots, &input->view, &rows, 1);
}

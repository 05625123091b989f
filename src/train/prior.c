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

cod_status cod_prior_write(const cod_backend *backend, cod_device *device, cod_view input, const float *row)
{
    if (row == NULL)
        return COD_OK;
    const size_t rows = (size_t)input.shape.n, classes = (size_t)input.shape.c;
    float *values = malloc(rows * classes * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    for (size_t i = 0; i < rows; i++)
        memcpy(values + i * classes, row, classes * sizeof *values);
    const cod_status status =
        backend->upload(device, NULL, input.buffer, input.offset, values, rows * classes * sizeof *values);
    free(values);
    return status;
}

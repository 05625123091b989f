/* Evaluates the group's model on held-out data during training, and keeps the best model. */
#include "infer/model_file.h"
#include "train/memory_plan.h"
#include "train/trainer_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/** The model alone, without the losses and the other networks of the step. */
static cod_status attach(trainer *t)
{
    const cod_train_session *session = &t->session;
    const cod_model *model = &session->recipe.model;
    if (t->eval_weights.backend != NULL)
        return COD_OK;
    COD_TRY(cod_model_build(model->kind, model->options, &t->eval_model));
    COD_TRY(cod_weights_init(&t->eval_weights, session->backend, session->device, t->eval_model.graph, COD_F32, false));
    return t->task->kind->attach(t->task, &t->eval_model, &t->eval_weights, session->activation);
}

/** The group learns of a bad loss two steps late: what it spoiled must be taken for no model. */
static cod_status check_finite(trainer *t)
{
    const size_t count = cod_weights_count(&t->eval_weights);
    float *values = malloc(count * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    cod_status status = cod_weights_download(&t->eval_weights, values);
    for (size_t i = 0; i < count && status == COD_OK; i++)
        if (!isfinite(values[i]))
            status = trainer_report_not_finite(t, "weights", t->context.step);
    free(values);
    return status;
}

cod_status trainer_refresh_eval(trainer *t)
{
    const cod_train_session *session = &t->session;
    COD_TRY(cod_memory_plan_explain(session, attach(t)));
    cod_buffer *ema = t->config->eval.ema && t->context.step > 0 ? cod_optimiser_ema(session->optimisers[0]) : NULL;
    COD_TRY(cod_weights_copy_set(&t->eval_weights, 0, &session->weights, 0, ema));
    return check_finite(t);
}

static cod_status evaluate(trainer *t, cod_split split, int64_t limit, int64_t shown, bool predictions,
                           cod_task_quality *mean)
{
    const cod_task_evaluation what = {.split = split,
                                      .limit = limit,
                                      .shown = shown,
                                      .folder = t->folder,
                                      .group = cod_group_index(t->group),
                                      .step = t->context.step,
                                      .metrics = t->metrics,
                                      .predictions = predictions};
    *mean = cod_task_quality_unknown();
    if (t->task->sizes[split] == 0)
        return COD_OK;
    return cod_memory_plan_explain(&t->session, t->task->kind->evaluate(t->task, &what, mean));
}

cod_status trainer_evaluate(trainer *t, cod_split split, int64_t limit, int64_t shown, cod_task_quality *mean)
{
    return evaluate(t, split, limit, shown, false, mean);
}

cod_status trainer_evaluate_own(trainer *t, cod_split split, int64_t limit, int64_t shown, cod_task_quality *mean)
{
    return evaluate(t, split, limit, shown, t->config->eval.predictions, mean);
}

cod_status trainer_save_model(trainer *t, const char *path)
{
    return cod_model_save_weights(path, &t->eval_model, &t->eval_weights, t->task->metadata, t->task->metadata_count);
}

cod_status trainer_save_identity(const trainer *t, cod_checkpoint *checkpoint)
{
    const cod_model *model = &t->session.recipe.model;
    const bool averages = t->config->eval.ema && cod_optimiser_ema(t->session.optimisers[0]) != NULL;
    cod_st_text texts[COD_MODEL_METADATA_COUNT];
    COD_TRY(cod_model_metadata(model->kind, model->options, &checkpoint->arena, texts));
    for (size_t i = 0; i < COD_MODEL_METADATA_COUNT; i++)
        COD_TRY(cod_checkpoint_add_text(checkpoint, texts[i].key, texts[i].value));
    for (size_t i = 0; i < t->task->metadata_count; i++)
        COD_TRY(cod_checkpoint_add_text(checkpoint, t->task->metadata[i].key, t->task->metadata[i].value));
    return cod_checkpoint_add_text(checkpoint, COD_VALUES_METADATA, averages ? "ema" : "values");
}

cod_status trainer_validate(trainer *t, int64_t limit, cod_task_quality *mean)
{
    COD_TRY(trainer_refresh_eval(t));
    COD_TRY(trainer_evaluate_own(t, COD_SPLIT_VAL, limit, t->config->log.samples, mean));
    t->last_quality = *mean;
    if (cod_guards_spoilt(&t->guards) != NULL || cod_task_compare(t->task->kind, mean, &t->best_quality) <= 0)
        return COD_OK;
    t->best_quality = *mean;
    char path[4096];
    COD_TRY(cod_folder_create(t->checkpoints));
    snprintf(path, sizeof path, "%s/best.%s.safetensors", t->checkpoints, t->part);
    return trainer_save_model(t, path);
}

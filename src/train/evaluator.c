#include "train/evaluator_internal.h"

#include "infer/model_file.h"
#include "io/file.h"
#include "train/memory_plan.h"
#include "train/not_finite_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void trainer_evaluator_clear(trainer_evaluator *evaluator)
{
    if (evaluator->weights.backend != NULL)
        cod_weights_clear(&evaluator->weights);
    cod_model_clear(&evaluator->model);
}

/** The model alone, without the losses and the other networks of the step. */
static cod_status attach(trainer_evaluator *evaluator, const cod_train_session *session)
{
    const cod_model *model = &session->recipe.model;
    cod_train_task *task = evaluator->task;
    cod_weights *weights = &evaluator->weights;
    if (weights->backend != NULL)
        return COD_OK;
    COD_TRY(cod_model_build(model->kind, model->options, &evaluator->model));
    COD_TRY(cod_weights_init(weights, session->backend, session->device, evaluator->model.graph, COD_F32, false));
    return task->kind->attach(task, &evaluator->model, weights, session->activation);
}

/** The moving average of the model's weights, if that is what is evaluated. */
static cod_buffer *evaluated_average(const cod_train_session *session)
{
    return session->config->eval.ema ? cod_optimiser_ema(session->optimisers[0]) : NULL;
}

/** The group learns of a bad loss two steps late: what it spoiled must be taken for no model. */
static cod_status check_finite(const trainer_evaluator *evaluator, const cod_train_context *context)
{
    const size_t count = cod_weights_count(&evaluator->weights);
    float *values = malloc(count * sizeof *values);
    COD_REQUIRE_MEMORY(values);
    cod_status status = cod_weights_download(&evaluator->weights, values);
    for (size_t i = 0; i < count && status == COD_OK; i++)
        if (!isfinite(values[i]))
            status = trainer_report_not_finite(context->session, "weights", context->step);
    free(values);
    return status;
}

/** Copies the model's weights (or their moving average), which must be finite, to the evaluator's. */
static cod_status refresh(trainer_evaluator *evaluator, const cod_train_context *context)
{
    const cod_train_session *session = context->session;
    COD_TRY(cod_memory_plan_explain(session, attach(evaluator, session)));
    cod_buffer *average = context->step > 0 ? evaluated_average(session) : NULL;
    COD_TRY(cod_weights_copy_set(&evaluator->weights, 0, &session->weights, 0, average));
    return check_finite(evaluator, context);
}

static cod_status evaluate(const trainer_evaluator *evaluator, const cod_train_context *context,
                           cod_task_evaluation what, cod_task_quality *mean)
{
    cod_train_task *task = evaluator->task;
    *mean = cod_task_quality_unknown();
    if (what.set == 0 && task->sizes[what.split] == 0)
        return COD_OK;
    what.folder = evaluator->folder;
    what.group = context->session->group;
    what.step = context->step;
    what.metrics = context->metrics;
    return cod_memory_plan_explain(context->session, task->kind->evaluate(task, &what, mean));
}

cod_status trainer_evaluate(const trainer_evaluator *evaluator, const cod_train_context *context, cod_split split,
                            bool own, cod_task_quality *mean)
{
    const cod_task_evaluation what = {.split = split, .predictions = own && context->config->eval.predictions};
    return evaluate(evaluator, context, what, mean);
}

cod_status trainer_measure_baseline(trainer_evaluator *evaluator, const cod_train_context *context, int64_t limit)
{
    cod_train_task *task = evaluator->task;
    const size_t size = task->sizes[COD_SPLIT_VAL], count = limit > 0 && (size_t)limit < size ? (size_t)limit : size;
    if (cod_comm_rank(context->comm) != 0 || count == evaluator->baseline_count)
        return COD_OK;
    COD_TRY(task->kind->measure_baseline(task, COD_SPLIT_VAL, (int64_t)count, &evaluator->baseline));
    evaluator->baseline_count = count;
    return COD_OK;
}

/** On the held-out data, as `what` says, and on as many items of each set. */
static cod_status evaluate_all(const trainer_evaluator *evaluator, const cod_train_context *context,
                               cod_task_evaluation what, cod_task_results *results)
{
    *results = cod_task_results_unknown();
    COD_TRY(evaluate(evaluator, context, what, &results->held_out));
    for (size_t set = 1; set <= evaluator->task->set_count; set++) {
        const cod_task_evaluation one = {.split = COD_SPLIT_VAL, .set = set, .limit = what.limit};
        COD_TRY(evaluate(evaluator, context, one, &results->sets[set - 1]));
    }
    return COD_OK;
}

cod_status trainer_evaluate_all(const trainer_evaluator *evaluator, const cod_train_context *context,
                                cod_task_results *results)
{
    return evaluate_all(evaluator, context, (cod_task_evaluation){.split = COD_SPLIT_VAL}, results);
}

cod_status trainer_validate(trainer_evaluator *evaluator, const cod_train_context *context, int64_t limit, bool usable,
                            cod_task_results *results)
{
    const cod_run_config *config = context->config;
    char path[4096];
    COD_TRY(refresh(evaluator, context));
    COD_TRY(evaluate_all(evaluator, context,
                         (cod_task_evaluation){.split = COD_SPLIT_VAL,
                                               .limit = limit,
                                               .shown = config->log.samples,
                                               .predictions = config->eval.predictions},
                         results));
    const cod_task_quality *judged = cod_task_judged(evaluator->task, results);
    evaluator->last = *results;
    COD_TRY(trainer_measure_baseline(evaluator, context, limit));
    evaluator->improved = usable && cod_task_compare(evaluator->task->kind, judged, &evaluator->best) > 0;
    if (!evaluator->improved)
        return COD_OK;
    evaluator->best = *judged;
    COD_TRY(cod_folder_create(evaluator->checkpoints));
    snprintf(path, sizeof path, "%s/best.group-%d.safetensors", evaluator->checkpoints, context->session->group);
    return trainer_save_model(evaluator, path);
}

cod_status trainer_save_model(const trainer_evaluator *evaluator, const char *path)
{
    const cod_train_task *task = evaluator->task;
    return cod_model_save_weights(path, &evaluator->model, &evaluator->weights, task->metadata, task->metadata_count);
}

cod_status trainer_save_identity(const trainer_evaluator *evaluator, const cod_train_session *session,
                                 cod_checkpoint *checkpoint)
{
    const cod_model *model = &session->recipe.model;
    const cod_train_task *task = evaluator->task;
    cod_st_text texts[COD_MODEL_METADATA_COUNT];
    COD_TRY(cod_model_metadata(model->kind, model->options, &checkpoint->arena, texts));
    for (size_t i = 0; i < COD_MODEL_METADATA_COUNT; i++)
        COD_TRY(cod_checkpoint_add_text(checkpoint, texts[i].key, texts[i].value));
    for (size_t i = 0; i < task->metadata_count; i++)
        COD_TRY(cod_checkpoint_add_text(checkpoint, task->metadata[i].key, task->metadata[i].value));
    return cod_checkpoint_add_text(checkpoint, COD_VALUES_METADATA,
                                   evaluated_average(session) != NULL ? "ema" : "values");
}

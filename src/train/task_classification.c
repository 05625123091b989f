/* Classification: accuracy, likelihood and calibration on labelled examples. */
#include "infer/classifier.h"
#include "train/predictions.h"
#include "train/task_internal.h"

#include <stdlib.h>

enum { EVAL_BATCH = 128 };

typedef struct classification {
    cod_train_task base;
    cod_labelled *data;
    cod_labelled *sets[COD_DATA_MAX_SETS];
    cod_split splits[COD_DATA_MAX_SETS]; /**< of each set, that which has its examples */
    cod_classifier *classifier;
    char *description; /**< of the data, for model files */
} classification;

/** Shares of classes, where they are to be corrected for and differ. */
static cod_status read_priors(const cod_run_config *config, const cod_dataset_place *place, classification *c)
{
    const size_t count = (size_t)place->groups * cod_labelled_classes(c->data);
    if (!config->train.prior_correction)
        return COD_OK;
    c->base.priors = malloc((count + 1) * sizeof *c->base.priors);
    COD_REQUIRE_MEMORY(c->base.priors);
    COD_TRY(cod_labelled_priors(c->data, &config->data, place, c->base.priors));
    for (size_t i = 0; i < count; i++)
        if (c->base.priors[i] != 0)
            return COD_OK;
    free(c->base.priors);
    c->base.priors = NULL;
    return COD_OK;
}

static cod_status open_data(cod_run_config *config, const cod_dataset_place *place, classification *c)
{
    COD_TRY(cod_labelled_open(&config->data, place, &c->data));
    const cod_shape shape = cod_labelled_shape(c->data);
    const cod_classifier_sizes sizes = {shape.h, shape.w, shape.c, (int64_t)cod_labelled_classes(c->data)};
    COD_TRY(cod_run_config_fit(config, &sizes));
    COD_TRY(cod_classifier_data_write(c->data, config->data.kind, config->data.size, &c->description));
    const cod_labelled_counts counts = cod_labelled_count(c->data);
    for (int s = 0; s < COD_SPLITS; s++)
        c->base.sizes[s] = counts.split[s];
    c->base.broken = counts.broken;
    c->base.held_out_key = cod_labelled_held_out_key(c->data);
    c->base.samples = cod_labelled_samples(c->data);
    c->base.metadata[c->base.metadata_count++] = (cod_st_text){COD_DATA_METADATA, c->description};
    return read_priors(config, place, c);
}

static void close_task(cod_train_task *task)
{
    classification *c = (classification *)task;
    cod_classifier_destroy(c->classifier);
    cod_labelled_close(c->data);
    for (size_t i = 0; i < COD_DATA_MAX_SETS; i++)
        cod_labelled_close(c->sets[i]);
    free(c->description);
    free(c->base.priors);
    free(c);
}

static cod_status open_task(cod_run_config *config, const cod_dataset_place *place, cod_train_task **out)
{
    classification *c = calloc(1, sizeof *c);
    COD_REQUIRE_MEMORY(c);
    c->base.kind = config->task;
    const cod_status status = open_data(config, place, c);
    if (status != COD_OK) {
        close_task(&c->base);
        return status;
    }
    *out = &c->base;
    return COD_OK;
}

/** Examples as `codistill eval` opens them for the trained model, by the same description of its data. */
static cod_status open_sets(cod_train_task *task, const cod_run_config *config, bool report)
{
    classification *c = (classification *)task;
    (void)report;
    for (size_t i = 0; i < config->data.val_sets.count; i++) {
        const cod_saved_model saved = {.data = c->description};
        const cod_status status =
            cod_classifier_data_open(&saved, cod_task_begin_set(task, config, i), &c->splits[i], &c->sets[i]);
        if (status != COD_OK)
            return cod_task_fail_set(task, i, status);
        task->sets[i].size = cod_labelled_size(c->sets[i], c->splits[i]);
        task->set_count++;
    }
    return COD_OK;
}

static cod_status attach(cod_train_task *task, const cod_model *model, cod_weights *weights, cod_dtype activation)
{
    classification *c = (classification *)task;
    return cod_classifier_create(model, weights, activation, cod_labelled_shape(c->data), EVAL_BATCH, &c->classifier);
}

static cod_status evaluate(cod_train_task *task, const cod_task_evaluation *what, cod_task_quality *mean)
{
    classification *c = (classification *)task;
    cod_classification result;
    const size_t set = what->set;
    COD_TRY(cod_classifier_evaluate(c->classifier, set > 0 ? c->sets[set - 1] : c->data,
                                    set > 0 ? c->splits[set - 1] : what->split, (size_t)what->limit, &result));
    *mean = (cod_task_quality){{100 * result.accuracy, result.cross_entropy, 100 * result.calibration_error}};
    const cod_status status = what->predictions && set == 0
                                  ? cod_predictions_write(what->folder, what->split, what->group, what->step, &result)
                                  : COD_OK;
    cod_classification_clear(&result);
    return status;
}

/** Always to say the most frequent class. */
static cod_status measure_baseline(cod_train_task *task, cod_split split, int64_t limit, cod_task_quality *mean)
{
    const classification *c = (const classification *)task;
    const size_t classes = cod_labelled_classes(c->data), all = cod_labelled_size(c->data, split);
    const size_t size = limit > 0 && (size_t)limit < all ? (size_t)limit : all;
    size_t *counts = calloc(classes, sizeof *counts), most = 0;
    COD_REQUIRE_MEMORY(counts);
    for (size_t i = 0; i < size; i++) {
        const size_t count = ++counts[cod_labelled_class(c->data, split, i)];
        most = count > most ? count : most;
    }
    free(counts);
    *mean = cod_task_quality_unknown();
    mean->values[0] = 100.0 * (double)most / (double)size;
    return COD_OK;
}

const cod_train_task_kind cod_task_classification = {
    .task = COD_TASK_CLASSIFICATION,
    .figures =
        {{.key = "accuracy", .label = "accuracy", .unit = "%", .digits = 2, .baseline = "majority_accuracy"},
         {.key = "cross_entropy", .label = "cross-entropy", .unit = "nats", .digits = 4, .less_is_better = true},
         {.key = "calibration_error", .label = "calibration error", .unit = "%", .digits = 2, .less_is_better = true}},
    .figure_count = 3,
    .baseline = "always the most frequent class",
    .items = "examples",
    .loss = COD_LOSS_CROSS_ENTROPY,
    .distill = COD_LOSS_KL,
    .distill_weight = 1,
    .open = open_task,
    .open_sets = open_sets,
    .attach = attach,
    .evaluate = evaluate,
    .measure_baseline = measure_baseline,
    .close = close_task,
};

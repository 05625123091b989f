#include "infer/classifier.h"

#include "infer/infer_internal.h"

#include "infer/stream.h"

#include <math.h>
#include <stdlib.h>

#define PROGRAM "predict"

struct cod_classifier {
    const cod_model *model;
    cod_weights *weights;
    cod_executable *executable;
    cod_shape example;
    int64_t batch;
    cod_stream stream; /**< of batches [batch, H, W, C] to logits [batch, K] */
};

/** Predictions bin by bin of their confidence. */
typedef struct calibration {
    double confidence[COD_CALIBRATION_BINS];
    size_t count[COD_CALIBRATION_BINS], right[COD_CALIBRATION_BINS];
} calibration;

/** Sums on the way to a result. */
typedef struct sums {
    size_t right;
    double loss;
    calibration calibration;
} sums;

void cod_classification_clear(cod_classification *result)
{
    free(result->confusion);
    free(result->predicted);
    *result = (cod_classification){0};
}

static cod_status init(cod_classifier *c, cod_dtype activation)
{
    cod_shape shape = c->example;
    shape.n = c->batch;
    const cod_input_shape input = {"input", shape};
    cod_compile_memory memory = {0};
    const cod_compile_options options = {
        .activation = activation, .inputs = &input, .input_count = 1, .memory = &memory};
    const cod_program_spec spec = {.name = PROGRAM, .outputs = {c->model->output}};
    COD_TRY(infer_explain_memory(c->weights, &memory,
                                 cod_compile(c->model->graph, c->weights, &options, &spec, 1, &c->executable),
                                 "Another process's share of the device, or the processor (--device cpu), may do"));
    const cod_view in = cod_executable_input(c->executable, "input");
    const cod_view out = cod_executable_output(c->executable, c->model->output);
    COD_REQUIRE(out.shape.h * out.shape.w == 1, "the model's output is not logits");
    return cod_stream_init(&c->stream, c->weights->backend, c->weights->device, in, out);
}

cod_status cod_classifier_create(const cod_model *model, cod_weights *weights, cod_dtype activation, cod_shape example,
                                 int64_t batch, cod_classifier **out)
{
    *out = NULL;
    COD_REQUIRE(model->kind->task == COD_TASK_CLASSIFICATION, "model '%s' is no classifier", model->kind->name);
    cod_classifier *c = calloc(1, sizeof *c);
    COD_REQUIRE_MEMORY(c);
    *c = (cod_classifier){.model = model, .weights = weights, .example = example, .batch = batch};
    const cod_status status = init(c, activation);
    if (status != COD_OK) {
        cod_classifier_destroy(c);
        return status;
    }
    *out = c;
    return COD_OK;
}

void cod_classifier_destroy(cod_classifier *classifier)
{
    if (classifier == NULL)
        return;
    cod_stream_clear(&classifier->stream);
    cod_executable_destroy(classifier->executable);
    free(classifier);
}

static void calibration_add(calibration *c, double confidence, bool right)
{
    /* Bins are (b/B, (b + 1)/B], as in the paper. */
    const double place = ceil(confidence * COD_CALIBRATION_BINS) - 1; /* NaN is counted in the first bin */
    const int bin = !(place > 0) ? 0 : place < COD_CALIBRATION_BINS ? (int)place : COD_CALIBRATION_BINS - 1;
    c->confidence[bin] += confidence;
    c->count[bin]++;
    c->right[bin] += right;
}

static double calibration_mean(const calibration *c)
{
    double gap = 0, count = 0;
    for (int b = 0; b < COD_CALIBRATION_BINS; b++) {
        gap += fabs((double)c->right[b] - c->confidence[b]);
        count += (double)c->count[b];
    }
    return count > 0 ? gap / count : NAN;
}

double cod_calibration_error(const float *confidence, const bool *right, size_t count)
{
    calibration c = {0};
    for (size_t i = 0; i < count; i++)
        calibration_add(&c, (double)confidence[i], right[i]);
    return calibration_mean(&c);
}

/** Takes the logits [classes] of the `index`-th example into account. */
static void judge(const float *logits, size_t index, uint32_t truth, sums *s, cod_classification *result)
{
    const size_t classes = result->classes;
    size_t best = 0;
    double sum = 0;
    for (size_t k = 1; k < classes; k++)
        best = logits[k] > logits[best] ? k : best;
    for (size_t k = 0; k < classes; k++)
        sum += exp((double)logits[k] - (double)logits[best]);
    s->loss += log(sum) - ((double)logits[truth] - (double)logits[best]);
    s->right += best == truth;
    calibration_add(&s->calibration, 1 / sum, best == truth);
    result->predicted[index] = (float)best;
    result->confidence[index] = (float)(1 / sum);
    result->truth[index] = (float)truth;
    if (result->confusion != NULL)
        result->confusion[truth * classes + best]++;
}

/** An evaluation under way: its batches are the steps of a stream. */
typedef struct batch_steps {
    const cod_classifier *classifier;
    const cod_labelled *labelled;
    cod_split split;
    sums *sums;
    cod_classification *result;
} batch_steps;

/** One past a batch's last example of the result. */
static size_t batch_end(const batch_steps *steps, size_t first)
{
    const size_t batch = (size_t)steps->classifier->batch, count = steps->result->count;
    return count - first < batch ? count : first + batch;
}

/** Which of the split's examples is the result's `i`-th. */
static size_t example_index(const batch_steps *steps, size_t i)
{
    return i * cod_labelled_size(steps->labelled, steps->split) / steps->result->count;
}

/** In the last batch, what is left of one before comes along. */
static cod_status batch_fill(void *context, size_t step, float *inputs)
{
    const batch_steps *steps = context;
    const size_t values = (size_t)cod_shape_count(steps->classifier->example);
    const size_t first = step * (size_t)steps->classifier->batch, end = batch_end(steps, first);
    for (size_t i = first; i < end; i++, inputs += values)
        COD_TRY(cod_labelled_read(steps->labelled, steps->split, example_index(steps, i), inputs));
    return COD_OK;
}

static cod_status batch_run(void *context, size_t step)
{
    const batch_steps *steps = context;
    (void)step;
    return cod_program_run(cod_executable_program(steps->classifier->executable, PROGRAM), NULL, NULL);
}

static cod_status batch_store(void *context, size_t step, const float *logits)
{
    const batch_steps *steps = context;
    const size_t first = step * (size_t)steps->classifier->batch, end = batch_end(steps, first);
    for (size_t i = first; i < end; i++, logits += steps->result->classes)
        judge(logits, i, cod_labelled_class(steps->labelled, steps->split, example_index(steps, i)), steps->sums,
              steps->result);
    return COD_OK;
}

/** One block for what is said of each example; freed with the result. */
static cod_status allocate(cod_classification *result)
{
    const size_t classes = result->classes;
    result->predicted = malloc((3 * result->count + 1) * sizeof *result->predicted);
    COD_REQUIRE_MEMORY(result->predicted);
    result->confidence = result->predicted + result->count;
    result->truth = result->confidence + result->count;
    if (classes <= COD_CONFUSION_MAX_CLASSES) {
        result->confusion = calloc(classes * classes, sizeof *result->confusion);
        COD_REQUIRE_MEMORY(result->confusion);
    }
    return COD_OK;
}

cod_status cod_classifier_evaluate(cod_classifier *classifier, const cod_labelled *labelled, cod_split split,
                                   size_t limit, cod_classification *result)
{
    const size_t available = cod_labelled_size(labelled, split), classes = cod_labelled_classes(labelled);
    const cod_shape example = cod_labelled_shape(labelled);
    *result = (cod_classification){.count = limit > 0 && limit < available ? limit : available, .classes = classes};
    COD_REQUIRE(cod_shape_equal(example, classifier->example) &&
                    (int64_t)classes == cod_model_sizes(classifier->model->kind, classifier->model->options)->classes,
                "examples of %lldx%lldx%lld in %zu classes do not fit the classifier", (long long)example.h,
                (long long)example.w, (long long)example.c, classes);
    const size_t batch = (size_t)classifier->batch;
    sums s = {0};
    batch_steps steps = {classifier, labelled, split, &s, result};
    const cod_stream_steps stream = {&steps, batch_fill, batch_run, batch_store};
    cod_status status = allocate(result);
    COD_THEN(status, cod_stream_run(&classifier->stream, &stream, (result->count + batch - 1) / batch));
    if (status != COD_OK) {
        cod_classification_clear(result);
        return status;
    }
    const double count = result->count > 0 ? (double)result->count : NAN;
    result->accuracy = (double)s.right / count;
    result->cross_entropy = s.loss / count;
    result->calibration_error = calibration_mean(&s.calibration);
    return COD_OK;
}

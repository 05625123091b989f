/**
 * @file
 * A training step without a data set, for benches: the session of a configured run (train/session.h) with one batch of
 * random pictures. With the recipe `supervised` the loss is L1, or a classifier's cross-entropy; the optimisers are
 * Adam.
 */
#ifndef COD_TOOLS_BENCH_TRAINING_H
#define COD_TOOLS_BENCH_TRAINING_H

#include "infer/upscaler.h"
#include "tools/arguments.h"
#include "train/strategy.h"

typedef struct cod_bench_training_options {
    const char *model, *device, *backend; /**< as cluster.device and train.backend */
    const char *recipe;                   /**< as train.recipe; NULL = supervised */
    int64_t batch, patch;                 /**< patch: side of the low-resolution crops, or of a classifier's pictures */
    cod_precision precision;
    int threads;
    bool no_autotune; /**< as in cod_device_options */
    /** how many pictures of the batch the program `distil` takes from its input `teacher`; 0 = there is none */
    int64_t taught;
    /** [setting_count] "option=value" of the model, or "section.option=value" of the recipe; borrowed */
    char **settings;
    int setting_count;
} cod_bench_training_options;

/** The numbers among a bench's arguments, as they were given; NULL = not. */
typedef struct cod_bench_numbers {
    const char *batch, *patch, *threads, *repeats;
} cod_bench_numbers;

/** What benches of a step ask alike: an initialiser's rows of cod_argument, and their lines of help. */
#define COD_BENCH_STEP_ARGUMENTS(training, numbers, precision_name)                                                    \
    {.name = "model", .text = &(training)->model, .words = COD_WORDS_KINDS},                                           \
        {.name = "recipe", .text = &(training)->recipe, .words = COD_WORDS_RECIPES},                                   \
        {.name = "batch", .text = &(numbers)->batch}, {.name = "patch", .text = &(numbers)->patch},                    \
        {.name = "precision", .text = (precision_name), .choices = cod_precision_names},                               \
    {                                                                                                                  \
        .name = "threads", .text = &(numbers)->threads                                                                 \
    }
#define COD_BENCH_STEP_HELP                                                                                            \
    "  --recipe NAME\twhat a step computes, as in train.recipe, with all its sub-steps (supervised)\n"                 \
    "  --model NAME\tarchitecture (srresnet)\n"                                                                        \
    "  --batch N\tpictures in a step (16)\n"                                                                           \
    "  --patch N\tside of the low-resolution crop, or of a classifier's pictures, in pixels (24)\n"                    \
    "  --precision P\tauto, f32 or bf16 (auto)\n"                                                                      \
    "  --threads N\tnumber of threads (1)\n"

/** Reads them, or takes 16, 24, 1 and 7. @return as cod_argument_number() */
int cod_bench_numbers_read(const char *command, const cod_bench_numbers *numbers, cod_bench_training_options *options,
                           int *repeats);

/** Takes --precision's value. @return as cod_argument_number() */
int cod_bench_precision_read(const char *command, const char *name, cod_precision *precision);

/** Looks whether --device is one that there is. @return as cod_argument_number() */
int cod_bench_device_check(const char *command, const cod_bench_training_options *options);

/** A program of a step, and the set that is updated after it. */
typedef struct cod_bench_sub_step {
    const char *name;
    cod_program *program;
    int set; /**< -1 = none */
} cod_bench_sub_step;

/** Zeroed = none. */
typedef struct cod_bench_training {
    cod_run_config config;
    cod_train_session session;
    cod_strategy *strategy;                         /**< that adds the program `distil` */
    cod_bench_sub_step steps[COD_RECIPE_MAX_STEPS]; /**< [step_count] those of the recipe's step 0, in their order */
    size_t step_count;
    cod_program *program, *distil; /**< the first sub-step's, without and with a teacher's prediction; NULL = none */
    int64_t updates[COD_GRAPH_MAX_SETS]; /**< done, of each set */
    cod_arena arena;
} cod_bench_training;

/** @param[out] training  new; cod_bench_training_close(), also after a failure */
COD_MUST_CHECK cod_status cod_bench_training_open(const cod_bench_training_options *options,
                                                  cod_bench_training *training);
void cod_bench_training_close(cod_bench_training *training);

/** All sub-steps, with Adam at rate 1e-4, as in training; done when it returns. */
COD_MUST_CHECK cod_status cod_bench_training_step(cod_bench_training *training);
/** Updates one set, after a program's ops were run one by one. */
COD_MUST_CHECK cod_status cod_bench_training_update(cod_bench_training *training, int set);
/** Waits until what was queued is done, for clocks. */
COD_MUST_CHECK cod_status cod_bench_training_finish(cod_bench_training *training);
/** The model's loss before its last update: how far it was from the truth. */
COD_MUST_CHECK cod_status cod_bench_training_loss(cod_bench_training *training, float *loss);

/**
 * Fills f32 inputs of an executable with random values from 0 to 1, each a function of its place among `names` alone.
 */
COD_MUST_CHECK cod_status cod_bench_fill_inputs(const cod_backend *backend, cod_device *device,
                                                cod_executable *executable, const char *const *names,
                                                size_t name_count);

/**
 * Writes into `folder` the weights as they are, of the model (model.safetensors) and of other sets that are trained
 * (SET.safetensors), and the batch (batch.safetensors: input, target, NHWC).
 */
COD_MUST_CHECK cod_status cod_bench_training_export(cod_bench_training *training, const char *folder);

#endif

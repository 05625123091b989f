/**
 * @file
 * A training step without a data set, for benches: the session of a configured run (train/session.h) with one batch of random pictures;
 * the loss is L1, a classifier's cross-entropy, the optimiser Adam.
 */
#ifndef COD_TOOLS_BENCH_TRAINING_H
#define COD_TOOLS_BENCH_TRAINING_H

#include "infer/upscaler.h"
#include "train/strategy.h"

typedef struct cod_bench_training_options {
    const char *model, *device, *backend; /**< as cluster.device and train.backend */
    int64_t batch, patch;                 /**< patch: side of the low-resolution crops, or of a classifier's pictures */
    cod_precision precision;
    int threads;
    bool no_autotune; /**< as in cod_device_options */
    int64_t
        taught; /**< how many pictures of the batch the program `distil` takes from its input `teacher`; 0 = there is none */
    char **settings; /**< [setting_count] "option=value" of the model; borrowed */
    int setting_count;
} cod_bench_training_options;

/** The numbers among a bench's arguments, as they were given; NULL = not. */
typedef struct cod_bench_numbers {
    const char *batch, *patch, *threads, *repeats;
} cod_bench_numbers;

/** Reads them, or takes 16, 24, 1 and 7. @return as cod_argument_number() */
int cod_bench_numbers_read(const char *command, const cod_bench_numbers *numbers, cod_bench_training_options *options,
                           int *repeats);

/** Looks whether --device is one that there is. @return as cod_argument_number() */
int cod_bench_device_check(const char *command, const cod_bench_training_options *options);

/** Zeroed = none. */
typedef struct cod_bench_training {
    cod_run_config config;
    cod_train_session session;
    cod_strategy *strategy;        /**< that adds the program `distil` */
    cod_program *program, *distil; /**< without, and with a teacher's prediction; NULL = none */
    int64_t steps;                 /**< done */
    cod_arena arena;
} cod_bench_training;

/** @param[out] training  new; cod_bench_training_close(), also after a failure */
COD_MUST_CHECK cod_status cod_bench_training_open(const cod_bench_training_options *options,
                                                  cod_bench_training *training);
void cod_bench_training_close(cod_bench_training *training);

/** Forward, backward, Adam with rate 1e-4, as in training; done when it returns. */
COD_MUST_CHECK cod_status cod_bench_training_step(cod_bench_training *training);
/** The update alone, after the program's ops were run one by one. */
COD_MUST_CHECK cod_status cod_bench_training_update(cod_bench_training *training);
/** Waits until what was queued is done, for clocks. */
COD_MUST_CHECK cod_status cod_bench_training_finish(cod_bench_training *training);
/** The loss before the last update. */
COD_MUST_CHECK cod_status cod_bench_training_loss(cod_bench_training *training, float *loss);

/** Fills f32 inputs of an executable with random values from 0 to 1, each a function of its place among `names` alone. */
COD_MUST_CHECK cod_status cod_bench_fill_inputs(const cod_backend *backend, cod_device *device,
                                                cod_executable *executable, const char *const *names,
                                                size_t name_count);

/** Writes the weights as they are (model.safetensors) and the batch (batch.safetensors: input, target, NHWC) into `folder`. */
COD_MUST_CHECK cod_status cod_bench_training_export(cod_bench_training *training, const char *folder);

#endif

/**
 * @file
 * Small models with random weights for the tests of infer.
 */
#ifndef COD_TESTS_INFER_MODELS_H
#define COD_TESTS_INFER_MODELS_H

#include "infer/model_file.h"

/**
 * A backend's opened device, closed by test_device_close(); fails the test when there is none of that name.
 * COD_TEST_LATE counts.
 */
cod_device *test_device_open(const char *backend);
void test_device_close(const char *backend, cod_device *device);

/**
 * A model of a registered kind; `settings` are its options, NULL key at the end. All its values, statistics too, are
 * random.
 */
cod_saved_model test_model(const char *kind, const cod_st_text *settings, uint64_t seed);

/** Settings of a classifier. */
#define TEST_SIZES(height, width, channels, classes)                                                                   \
    {"height", #height}, {"width", #width}, {"channels", #channels},                                                   \
    {                                                                                                                  \
        "classes", #classes                                                                                            \
    }

/** A small srresnet with normalisation. */
cod_saved_model test_srresnet(uint64_t seed);

/** One of every op that the kinds do not use: strided convolution, pools, concat, scaled add, a norm that cannot be
 * folded, a shared convolution, sigmoid, tanh, per-channel PReLU, flatten, linear. Its kind cannot be saved. */
cod_saved_model test_odd_model(uint64_t seed);

/** Runs the model on `input` [shape] by a compiled inference program; returns the new output (free()) and its shape. */
float *test_run(const char *backend, cod_dtype activation, const cod_saved_model *saved, cod_shape shape,
                const float *input, cod_shape *output_shape);

/** New array of `count` values, uniform in 0 … 1. */
float *test_noise(size_t count, uint64_t seed);

/** Largest absolute difference; NaN counts as infinite. */
double test_difference(const float *a, const float *b, size_t count);

#endif

/**
 * @file
 * Runs one program on many inputs, one after another: bands, tiles, batches.
 *
 * On a backend with queues, the host prepares the next input and uses the previous result while the device computes,
 * and copies run at the same time (core/slots.h). A backend that runs at once does one step after another.
 */
#ifndef COD_INFER_STREAM_H
#define COD_INFER_STREAM_H

#include "core/slots.h"
#include "nn/compile.h"

/** Zeroed = none. */
typedef struct cod_stream {
    const cod_backend *backend;
    cod_device *device;
    cod_view input, output;
    cod_slots sent, received; /**< for backends with queues */
    float *low, *high;        /**< for the others: input and output on the host */
} cod_stream;

/** The three parts of a step. Steps are filled, run and stored in their order. A part that fails ends the run. */
typedef struct cod_stream_steps {
    void *context;
    cod_status (*fill)(void *context, size_t step, float *input); /**< writes the input [as the view has it] */
    cod_status (*run)(void *context, size_t step);                /**< queues the program */
    cod_status (*store)(void *context, size_t step,
                        const float *output); /**< uses the output; may be called a step later */
} cod_stream_steps;

/**
 * @param input, output  of the program; dense f32, on `device`, which is borrowed
 * @return COD_ERR_ARGUMENT where they are not. cod_stream_clear() also after a failure
 */
COD_MUST_CHECK cod_status cod_stream_init(cod_stream *stream, const cod_backend *backend, cod_device *device,
                                          cod_view input, cod_view output);
void cod_stream_clear(cod_stream *stream);
/** Bytes held for copying. */
size_t cod_stream_bytes(const cod_stream *stream);

/** Runs steps 0 … `count` - 1; all are stored when it returns. */
COD_MUST_CHECK cod_status cod_stream_run(cod_stream *stream, const cod_stream_steps *steps, size_t count);
/** Fills the input of one step, for a program that is queued later; neither runs nor stores. */
COD_MUST_CHECK cod_status cod_stream_load(cod_stream *stream, const cod_stream_steps *steps, size_t step);

#endif

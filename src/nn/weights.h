/**
 * @file
 * A model's weights on a device: one flat buffer of values, and one of gradients where they are wanted.
 */
#ifndef COD_NN_WEIGHTS_H
#define COD_NN_WEIGHTS_H

#include "nn/graph.h"

typedef struct cod_weights {
    const cod_backend *backend;
    cod_device *device; /**< borrowed */
    cod_graph *graph;   /**< borrowed */
    cod_dtype dtype;    /**< the parameter type: F32, or F64 for checks */
    cod_layout layout;
    cod_buffer *values;     /**< [trainable + state]; [trainable] where states lie apart */
    cod_buffer *grads;      /**< [trainable]; NULL without gradients */
    cod_buffer *states;     /**< [state] after cod_weights_place(); else NULL */
    bool placed;            /**< values and gradients are borrowed */
    uint64_t version;       /**< raised by whoever changes values, so that programs pack them anew */
    uint64_t state_version; /**< raised by programs that move the running statistics: what folds them does so anew */
} cod_weights;

/** Makes zeroed buffers for the graph's parameters; end with cod_weights_clear(). */
COD_MUST_CHECK cod_status cod_weights_init(cod_weights *weights, const cod_backend *backend, cod_device *device,
                                           cod_graph *graph, cod_dtype dtype, bool with_grads);
void cod_weights_clear(cod_weights *weights);

/** Fills the parameters with their initial values: a function of (seed, parameter's index) alone, equal on every rank. */
COD_MUST_CHECK cod_status cod_weights_fill_initial(cod_weights *weights, uint64_t seed);

/**
 * Puts trainable values and gradients into the caller's memory, which other processes may share, before programs are compiled;
 * states stay the weights' own, apart.
 *
 * @param values  [trainable] borrowed until cod_weights_clear(), as grads [trainable], which are there if they were
 * @param fill    copies the values there are; else they are the caller's to fill
 */
COD_MUST_CHECK cod_status cod_weights_place(cod_weights *weights, cod_buffer *values, cod_buffer *grads, bool fill);

/** Elements of values: trainable + state. */
static inline size_t cod_weights_count(const cod_weights *weights)
{
    return weights->layout.trainable + weights->layout.state;
}

/** Where the states lie, from byte `offset` of a buffer on. */
static inline cod_buffer *cod_weights_states(const cod_weights *weights, size_t *offset)
{
    *offset = weights->states != NULL ? 0 : weights->layout.trainable * cod_dtype_bytes(weights->dtype);
    return weights->states != NULL ? weights->states : weights->values;
}

/** Copies all values out or in, [cod_weights_count()] of the parameter type. */
COD_MUST_CHECK cod_status cod_weights_download(const cod_weights *weights, void *values);
COD_MUST_CHECK cod_status cod_weights_upload(cod_weights *weights, const void *values);

/**
 * Converts one parameter between our layout (as in the flat buffer) and PyTorch's: OHWI <-> OIHW, and the columns of a
 * linear layer behind a flatten from H,W,C to C,H,W order. `dims` [param->rank] receives PyTorch's dimensions.
 */
void cod_param_to_torch(const cod_param *param, const float *ours, float *torch, int64_t dims[4]);
void cod_param_from_torch(const cod_param *param, const float *torch, float *ours);

#endif

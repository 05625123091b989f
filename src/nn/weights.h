/**
 * @file
 * A graph's weights on a device: one flat buffer of values, and one of gradients if requested, divided into the graph's
 * parameter sets. Each set has its own range, its own states and its own version.
 */
#ifndef COD_NN_WEIGHTS_H
#define COD_NN_WEIGHTS_H

#include "nn/graph.h"

/** One parameter set of the weights. */
typedef struct cod_weights_set {
    cod_set_range range;
    uint64_t version;       /**< of the trainable values; programs pack them again after it has changed */
    uint64_t updated;       /**< the last version that one optimiser wrote completely and alone; 0 = none */
    uint64_t state_version; /**< of the states; programs fold them again after it has changed */
} cod_weights_set;

typedef struct cod_weights {
    const cod_backend *backend;
    cod_device *device; /**< borrowed */
    cod_graph *graph;   /**< borrowed */
    cod_dtype dtype;    /**< the parameter type: F32, or F64 for checks */
    cod_layout layout;
    cod_buffer *values;                       /**< [trainable + state]; [trainable] if states have a separate buffer */
    cod_buffer *grads;                        /**< [trainable]; NULL without gradients */
    cod_buffer *states;                       /**< [state] after cod_weights_place(); else NULL */
    bool placed;                              /**< values and gradients are borrowed */
    cod_weights_set sets[COD_GRAPH_MAX_SETS]; /**< [cod_graph_set_count()] */
} cod_weights;

/**
 * Raises versions. To be called after changing trainable values of these sets by other means than the functions below.
 */
void cod_weights_changed(cod_weights *weights, cod_sets sets);
/** The same for states. */
void cod_weights_states_changed(cod_weights *weights, cod_sets sets);

/** Makes zeroed buffers for the graph's parameters; end with cod_weights_clear(). */
COD_MUST_CHECK cod_status cod_weights_init(cod_weights *weights, const cod_backend *backend, cod_device *device,
                                           cod_graph *graph, cod_dtype dtype, bool with_grads);
void cod_weights_clear(cod_weights *weights);

/**
 * Fills the parameters with their initial values: a function of (seed, index of the parameter) only, and thus equal on
 * every rank.
 */
COD_MUST_CHECK cod_status cod_weights_fill_initial(cod_weights *weights, uint64_t seed);

/**
 * Moves trainable values and gradients to the caller's memory, which other processes may share, before programs are
 * compiled. States move to a separate buffer of the weights.
 *
 * @param values  [trainable] borrowed until cod_weights_clear(), as is grads [trainable], which is given if the weights
 *                have gradients
 * @param fill    copies the current values; otherwise the caller fills them
 */
COD_MUST_CHECK cod_status cod_weights_place(cod_weights *weights, cod_buffer *values, cod_buffer *grads, bool fill);

/** Elements of values: trainable + state. */
static inline size_t cod_weights_count(const cod_weights *weights)
{
    return weights->layout.trainable + weights->layout.state;
}

/** The buffer of a set's states, from byte `offset` on. */
static inline cod_buffer *cod_weights_states(const cod_weights *weights, int set, size_t *offset)
{
    const size_t apart = weights->states != NULL ? weights->layout.trainable : 0;
    *offset = (weights->sets[set].range.state_first - apart) * cod_dtype_bytes(weights->dtype);
    return weights->states != NULL ? weights->states : weights->values;
}

/**
 * Numbers of trainable elements and of states of some sets; their sum is the number of values that the next functions
 * copy.
 */
cod_layout cod_weights_layout_of(const cod_weights *weights, cod_sets sets);

/**
 * Copies some sets' values out or in: [cod_weights_layout_of()] of the parameter type, trainable values set after set,
 * then states set after set.
 */
COD_MUST_CHECK cod_status cod_weights_download_sets(const cod_weights *weights, cod_sets sets, void *values);
COD_MUST_CHECK cod_status cod_weights_upload_sets(cod_weights *weights, cod_sets sets, const void *values);
/** The same for the states only. */
COD_MUST_CHECK cod_status cod_weights_download_states(const cod_weights *weights, cod_sets sets, void *states);
COD_MUST_CHECK cod_status cod_weights_upload_states(cod_weights *weights, cod_sets sets, const void *states);

/**
 * Copies a set's values on the device, as work of its default queue, to a set of the same shape of other weights on it.
 *
 * @param average  NULL, or values to copy in place of the weights: [trainable + state] of the set, such as a moving
 *                 average
 */
COD_MUST_CHECK cod_status cod_weights_copy_set(cod_weights *to, int to_set, const cod_weights *from, int set,
                                               cod_buffer *average);

/**
 * Queues copies of some sets' values to the start of a buffer, such as pinned memory: of `count` values from `first`
 * on, as cod_weights_download_sets() counts them.
 *
 * @param averages  [COD_GRAPH_MAX_SETS] NULL, or a buffer whose values are copied in place of a set's trainable values
 */
COD_MUST_CHECK cod_status cod_weights_copy_out(const cod_weights *weights, cod_sets sets, cod_buffer *const *averages,
                                               cod_buffer *target, size_t first, size_t count);

/**
 * A fingerprint of the values that cod_weights_copy_out() would copy, f32 in host memory: differs if one of them does.
 */
uint64_t cod_weights_fingerprint(const cod_weights *weights, cod_sets sets, cod_buffer *const *averages, size_t first,
                                 size_t count);

/**
 * Queues the copy of `count` of the values of cod_weights_upload() from `first` on, from value `from` of a buffer on,
 * such as pinned memory, which may be written again once an event recorded after the copy is reached. Not for weights
 * with a separate buffer of states.
 */
COD_MUST_CHECK cod_status cod_weights_take(cod_weights *weights, size_t first, size_t count, cod_buffer *source,
                                           size_t from);

/** The values of all sets, [cod_weights_count()]. */
COD_MUST_CHECK static inline cod_status cod_weights_download(const cod_weights *weights, void *values)
{
    return cod_weights_download_sets(weights, COD_ALL_SETS, values);
}

COD_MUST_CHECK static inline cod_status cod_weights_upload(cod_weights *weights, const void *values)
{
    return cod_weights_upload_sets(weights, COD_ALL_SETS, values);
}

/**
 * Converts one parameter between our layout (as in the flat buffer) and PyTorch's: OHWI <-> OIHW, and the columns of a
 * linear layer behind a flatten, or a weight's singular vector, from H,W,C to C,H,W order. `dims` [param->rank]
 * receives PyTorch's dimensions.
 */
void cod_param_to_torch(const cod_param *param, const float *ours, float *torch, int64_t dims[4]);
void cod_param_from_torch(const cod_param *param, const float *torch, float *ours);

#endif

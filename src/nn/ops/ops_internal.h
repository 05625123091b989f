/**
 * @file
 * Kinds of nodes: all that the compiler knows of each. A family of ops has one file in nn/ops, with the functions that
 * add its nodes to a graph (declared in graph.h), the shape of their outputs, and their forward and backward pass.
 * ops/rules.c lists them all.
 */
#ifndef COD_NN_OPS_INTERNAL_H
#define COD_NN_OPS_INTERNAL_H

#include "nn/graph_internal.h"
#include "nn/lower_internal.h"

/** How large the output is beside the first input, along height and width. */
typedef enum node_scale {
    NODE_SAME,
    NODE_ENLARGES, /**< attr.factor times as large */
    NODE_REDUCES   /**< by attr.factor */
} node_scale;

typedef struct node_rules {
    /**
     * Shape of the output, in which the channels are ignored; `out` is `x` before the call, enlarged
     * where `scale` is NODE_ENLARGES. NULL: it stays so.
     *
     * @param x  of the first input; zeros where there is none
     */
    cod_status (*shape)(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out);
    /** Emits the ops that compute the output. NULL: nothing to compute in the forward pass. */
    void (*forward)(lowering *lower, const cod_node *node, lower_group *group);
    /**
     * Contributes to the gradients of inputs and parameters. NULL: nothing to contribute.
     *
     * @param dy  tensor of the gradient by the output of the group
     */
    void (*backward)(lowering *lower, const cod_node *node, const lower_group *group, int dy);
    /** Gradients flow to the first so many inputs, and to parameters. NULL: to none. */
    int (*differentiable)(const cod_node *node);
    /**
     * Adds the node that computes the gradient by the input from `dy`; 0 where this node has none. NULL: this kind has
     * none.
     */
    cod_value (*gradient)(cod_graph *graph, const cod_node *node, cod_value dy);
    /**
     * How many pixels to each side of its own place in the first input an output pixel depends on. Negative: the node's
     * settings move its place. NULL: it may depend on the whole picture.
     *
     * @param kernel  shape of the weight; zeros where there is none
     */
    int (*taps)(const cod_op_attr *attr, cod_shape kernel);
    node_scale scale;
    cod_op_kind op; /**< of the forward pass, where that is one op */
    /** An output of full precision needs inputs of full precision, as in a sum. */
    bool keeps_precision;
    /** The output is the input seen in another way, and has its precision. */
    bool is_view;
} node_rules;

/** The rules of a kind; static. */
const node_rules *node_rules_of(cod_node_kind kind);
/** The rules of a kind whose forward pass runs this op, and which have `taps`; NULL: there is none. */
const node_rules *node_rules_of_op(cod_op_kind op);

/** For `differentiable`: all inputs. */
int node_all_inputs(const cod_node *node);
/** For `differentiable`: the first input alone. */
int node_first_input(const cod_node *node);
/** For `taps`: each output pixel is computed from the input pixel at its place. */
int node_no_taps(const cod_op_attr *attr, cod_shape kernel);
/** For `forward`: the op `rules.op` of one or two inputs. */
void node_forward_plain(lowering *lower, const cod_node *node, lower_group *group);

/**
 * Height or width of what a window that moves over `in` pixels makes.
 *
 * @return COD_ERR_ARGUMENT, naming the node, where the window does not fit
 */
cod_status node_window(const cod_node *node, int64_t in, int64_t kernel, int pad, int stride, int64_t *out);
/** For `shape`: as the value that the node is `like`. */
cod_status node_shape_like(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out);
/** For `shape`: as the first input, whose batch, height and width all others must have. */
cod_status node_shape_of_all(const ir_context *context, const cod_node *node, cod_shape x, cod_shape *out);

/**
 * The gradient by the first input as one op of `dy` and, unless 0, of the tensor `with`; added to where there is one
 * already.
 */
void node_backward_plain(lowering *lower, const cod_node *node, cod_op_kind kind, int dy, int with);
/**
 * The same with an op that cannot add: where there is a gradient already, into a tensor of its own, which is then
 * added.
 */
void node_backward_written(lowering *lower, const cod_node *node, cod_op_kind kind, int dy, int with);
/**
 * The gradient by each input as a part of `dy`, one behind another along channels; `reshaped`: each is all of it, in
 * its own shape.
 */
void node_backward_views(lowering *lower, const cod_node *node, int dy, bool reshaped);

/** The weight of a convolution or linear layer as ops read it. */
int node_layer_weight(lowering *lower, const cod_node *node);
/** Emits a layer's gradients of weight and bias by `weights`, whose outputs are given here. */
void node_backward_layer(lowering *lower, const cod_node *node, ir_instr weights);

/** The states of spectral normalisation, for a convolution's weight of this shape. */
void spectrum_use(cod_graph *graph, const char *layer, cod_shape weight, cod_node *node);
/** The spectrally normalised weight. */
int spectrum_weight(lowering *lower, const cod_node *node);
/** Emits the gradient `dw` of the weight from that of the normalised weight. */
void spectrum_backward(lowering *lower, const cod_node *node, int normalised, int dw, bool adds);

/**
 * Lets the parts of concatenations be written in place, as channel slices of the whole. Not in bands, where all slices
 * of a tensor have its delay: a convolution that reads one slice and writes another would have to wait for itself.
 */
void concat_reserve(lowering *lower);

/** Emits a loss, together with its gradients where the program minimises it. */
void loss_emit(lowering *lower, const cod_node *node);

extern const node_rules node_input, node_conv2d, node_linear, node_norm, node_activation, node_add, node_affine,
    node_concat, node_slice, node_pixel_shuffle, node_pixel_unshuffle, node_resize, node_pool, node_flatten,
    node_stop_gradient, node_mean, node_conv2d_backward, node_activation_backward, node_resize_backward, node_loss;

#endif

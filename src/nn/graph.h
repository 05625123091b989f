/**
 * @file
 * Static graphs: what a network computes, without sizes of batches or images and without a device.
 *
 * A graph is built once by calls such as cod_graph_conv2d(); compile.h turns it into programs. Nodes are stored in the
 * order of the calls, which is an order of execution. Errors stick: a failed call returns value 0, every later call
 * on value 0 does nothing, and cod_graph_status() reports the first failure; so models read without error handling.
 */
#ifndef COD_NN_GRAPH_H
#define COD_NN_GRAPH_H

#include "core/backend.h"
#include "core/memory.h"

typedef struct cod_graph cod_graph;

/** A tensor of the graph; 0 is none. */
typedef int cod_value;

typedef enum cod_node_kind {
    COD_NODE_INPUT,
    COD_NODE_CONV2D,
    COD_NODE_LINEAR,
    COD_NODE_NORM,
    COD_NODE_ACTIVATION,
    COD_NODE_ADD,    /**< alpha·a + beta·b */
    COD_NODE_AFFINE, /**< alpha·x + a constant for each channel */
    COD_NODE_CONCAT, /**< along channels */
    COD_NODE_SLICE,  /**< some channels of an input */
    COD_NODE_PIXEL_SHUFFLE,
    COD_NODE_PIXEL_UNSHUFFLE,
    COD_NODE_RESIZE,
    COD_NODE_POOL,
    COD_NODE_FLATTEN,             /**< {N,H,W,C} -> {N,1,1,H·W·C}, in NHWC order */
    COD_NODE_STOP_GRADIENT,       /**< the value, as a constant */
    COD_NODE_MEAN,                /**< each channel's mean over N, H and W, at every pixel */
    COD_NODE_CONV2D_BACKWARD,     /**< dy -> dx; see cod_graph_gradient() */
    COD_NODE_ACTIVATION_BACKWARD, /**< dy, y -> dx */
    COD_NODE_RESIZE_BACKWARD,     /**< dy -> dx */
    COD_NODE_LOSS,
} cod_node_kind;

enum { COD_NODE_KINDS = COD_NODE_LOSS + 1 };

/** How a parameter starts. */
typedef enum cod_init_kind {
    COD_INIT_CONSTANT, /**< `scale` */
    COD_INIT_UNIFORM,  /**< uniform within ±`scale` */
    COD_INIT_NORMAL,   /**< normal with deviation `scale` */
} cod_init_kind;

typedef struct cod_init {
    cod_init_kind kind;
    double scale;
} cod_init;

/** A trainable tensor or a state (running statistics). */
typedef struct cod_param {
    const char *name; /**< PyTorch's, such as "body.0.conv1.weight" */
    cod_shape shape;  /**< conv {O,KH,KW,I}, linear {O,1,1,I}, vectors {1,1,1,C} */
    int rank;         /**< dimensions in PyTorch: 4, 2 or 1 */
    bool is_state;    /**< lies behind the trainable ones, is not trained */
    int set;          /**< index of its parameter set */
    cod_init init;
    const double *start; /**< [elements of `shape`] what it starts at; NULL = as `init` says */
    size_t offset;       /**< elements from the start of the flat buffer; valid after cod_graph_layout() */
    cod_shape
        flattened; /**< linear after a flatten: the H, W, C of its input, for conversion to PyTorch's C, H, W order */
} cod_param;

enum { COD_NODE_MAX_INPUTS = 8, COD_NODE_MAX_PARAMS = 5 };

typedef struct cod_node {
    cod_node_kind kind;
    const char *name;
    cod_op_attr attr;
    int input_count;
    cod_value inputs[COD_NODE_MAX_INPUTS]; /**< LOSS: prediction, target (total variation: prediction) */
    /**
     * Indices of parameters or -1. CONV2D, LINEAR: weight, bias; CONV2D also u and v of spectral normalisation.
     * CONV2D_BACKWARD: those of its CONV2D, but the bias. NORM: gamma, beta, mean, var. ACTIVATION: slope.
     */
    int params[COD_NODE_MAX_PARAMS];
    cod_value output;
    int64_t channels;      /**< of the output */
    const double *shift;   /**< AFFINE: [channels] */
    cod_value like;        /**< INPUT, *_BACKWARD: has the shape of this value; 0 = given at compilation */
    int weight_scalar;     /**< LOSS: index of the scalar its gradient is multiplied with, or -1 */
    int64_t first_channel; /**< SLICE: of its input's */
    int64_t first_items;   /**< LOSS: how many of the batch it looks at; 0 = all */
    /** LOSS: gradient flows to the target too. */
    bool target_gradient;
} cod_node;

COD_MUST_CHECK cod_status cod_graph_create(cod_graph **out);
void cod_graph_destroy(cod_graph *graph);

/** The first failure of any call on the graph, with its message recorded; COD_OK when there was none. */
COD_MUST_CHECK cod_status cod_graph_status(const cod_graph *graph);

/** Fails the graph, unless it has failed before; the reason is this thread's recorded one. For models whose options do not fit. */
void cod_graph_fail(cod_graph *graph, cod_status status);

/**
 * Parameters made from now on belong to this set ("generator", "discriminator"); the first set is "model". A set is trained,
 * frozen, published and saved as a whole, and is a scope of names: equal names in two sets are two parameters.
 */
void cod_graph_use_set(cod_graph *graph, const char *name);
size_t cod_graph_set_count(const cod_graph *graph);
const char *cod_graph_set_name(const cod_graph *graph, int set);
/** Index of a set, or -1. */
int cod_graph_set_index(const cod_graph *graph, const char *name);

enum { COD_GRAPH_MAX_SETS = 32 };

/** Some of a graph's sets: bit i stands for set i. */
typedef uint32_t cod_sets;

#define COD_ALL_SETS ((cod_sets)-1)

static inline cod_sets cod_set_of(int set)
{
    return (cod_sets)1 << set;
}

/** An f32 image or vector input; its N, H, W are given at compilation. */
cod_value cod_graph_input(cod_graph *graph, const char *name, int64_t channels);
/** An f32 input of the shape that `like` has: a target. */
cod_value cod_graph_input_like(cod_graph *graph, const char *name, cod_value like);
/** The same with so many channels. */
cod_value cod_graph_input_like_of(cod_graph *graph, const char *name, cod_value like, int64_t channels);

typedef struct cod_conv2d_spec {
    int64_t out_channels;
    int kernel, stride, padding; /**< stride 0 means 1; square */
    bool no_bias;
    bool zero_init; /**< weight and bias start at zero */
    double
        init_gain; /**< > 0: weight is normal with deviation gain·sqrt(2/fan_in) and bias zero (Kaiming normal); 0: PyTorch's default */
    /**
     * The weight divided by its largest singular value (Miyato et al. 2018), under the names of torch.nn.utils.spectral_norm: parameter
     * "NAME.weight_orig", states "NAME.weight_u" and "NAME.weight_v". A run of a program that trains the set moves u and v by one step
     * of the power iteration, however often the program uses the layer; other programs take that step from u without keeping it.
     */
    bool spectral_norm;
    const double *weights; /**< {O,KH,KW,I} what the weight starts at, copied; NULL = random as above */
    const double *biases;  /**< {O} likewise */
} cod_conv2d_spec;

/**
 * Makes "NAME.weight" and "NAME.bias", unless `spec` says otherwise; a name used before in the set shares its parameters, which
 * must have the same shape.
 */
cod_value cod_graph_conv2d(cod_graph *graph, const char *name, cod_value x, cod_conv2d_spec spec);
cod_value cod_graph_linear(cod_graph *graph, const char *name, cod_value x, int64_t out_features, bool no_bias);
/** Batch normalisation with PyTorch's names weight, bias, running_mean, running_var; epsilon 1e-5, momentum 0.1. */
cod_value cod_graph_norm(cod_graph *graph, const char *name, cod_value x);
/** ReLU, leaky ReLU (slope `leak`), sigmoid or tanh. */
cod_value cod_graph_activation(cod_graph *graph, cod_value x, cod_activation activation, float leak);
/** PReLU with one slope ("NAME.weight", 0.25), or one a channel. */
cod_value cod_graph_prelu(cod_graph *graph, const char *name, cod_value x, bool per_channel);
cod_value cod_graph_add(cod_graph *graph, cod_value a, cod_value b);
/** alpha·a + beta·b. */
cod_value cod_graph_scaled_add(cod_graph *graph, float alpha, cod_value a, float beta, cod_value b);
/** scale·x + shift[c] in each channel c, which nothing trains or saves. @param shift  [channels of x], copied */
cod_value cod_graph_affine(cod_graph *graph, cod_value x, double scale, const double *shift);
cod_value cod_graph_concat(cod_graph *graph, const cod_value *parts, int count);
/** `channels` channels of an input, from `first` on. No gradient flows through it. */
cod_value cod_graph_slice(cod_graph *graph, cod_value input, int64_t first, int64_t channels);
cod_value cod_graph_pixel_shuffle(cod_graph *graph, cod_value x, int factor);
/** The inverse: squares of factor x factor pixels become channels; height and width are to be multiples of `factor`. */
cod_value cod_graph_pixel_unshuffle(cod_graph *graph, cod_value x, int factor);
cod_value cod_graph_resize(cod_graph *graph, cod_value x, int factor, cod_resize_mode mode);
cod_value cod_graph_pool(cod_graph *graph, cod_value x, cod_pool_kind kind, int kernel, int stride, int padding);
/** Max pooling without padding, whose last window may stand over the edge, so that no pixel is left out: PyTorch's ceil_mode, and Caffe's. */
cod_value cod_graph_max_pool_ceil(cod_graph *graph, cod_value x, int kernel, int stride);
cod_value cod_graph_global_pool(cod_graph *graph, cod_value x);
/** `h` and `w` are the input's, which must be known to size the linear layer after it. */
cod_value cod_graph_flatten(cod_graph *graph, cod_value x, int64_t h, int64_t w);
cod_value cod_graph_stop_gradient(cod_graph *graph, cod_value x);
/**
 * {N,H,W,C} -> {N,H,W,C}: at every pixel its channel's mean over N, H and W, of the batch that one run of a program sees:
 * not of other ranks' or other micro-batches'. Relativistic losses take it of logits, as BCE(real - mean(fake), 1) does
 * (Jolicoeur-Martineau 2019).
 */
cod_value cod_graph_mean(cod_graph *graph, cod_value x);

typedef struct cod_loss_spec {
    cod_loss_kind kind;
    float epsilon;       /**< Charbonnier; 0 means 1e-3 */
    float temperature;   /**< KL; 0 means 1 */
    float smoothing;     /**< CROSS_ENTROPY: label smoothing, 0 … 1 */
    float weight;        /**< constant factor of the gradient; 0 means 1 */
    const char *scalar;  /**< a further factor, settable between steps by this name; NULL = none */
    int64_t first_items; /**< only the first so many of the batch count, in the mean too; 0 = all */
    /** Gradient flows to the target too, which then is another value than the prediction. */
    bool target_gradient;
} cod_loss_spec;

/**
 * A loss; no gradient flows to `target` unless `spec` asks for it. Its value is reported unweighted. core/backend.h has the
 * formulas.
 *
 * @param target  of the prediction's shape; 0 for COD_LOSS_TV, which has none
 */
cod_value cod_graph_loss(cod_graph *graph, const char *name, cod_value prediction, cod_value target,
                         cod_loss_spec spec);

/**
 * The gradient by `x` of a loss whose gradient by `y` is `dy`, as a value of x's shape that losses can read; with ones for dy, the
 * gradient of the sum of y's elements. The gradient of such a loss flows to dy and to the weights of convolutions between x and y. It
 * does not flow to what activations made: their slopes are constants almost everywhere.
 *
 * Fails the graph, naming the operation, where others are between x and y than convolutions, ReLU, leaky ReLU (slope above 0),
 * enlargements and sums without factors; and where y does not depend on x.
 */
cod_value cod_graph_gradient(cod_graph *graph, cod_value y, cod_value dy, cod_value x);

/** Reading a graph. */
size_t cod_graph_node_count(const cod_graph *graph);
const cod_node *cod_graph_node(const cod_graph *graph, size_t index);
/** The node that makes `value`. */
const cod_node *cod_graph_producer(const cod_graph *graph, cod_value value);

/** Which pixels of its first input a pixel of a node's output depends on. */
typedef struct cod_node_reach {
    bool whole;   /**< on all of them, or on none at a fixed place; `taps` says nothing then */
    int taps;     /**< on so many to each side of the one at its own place */
    double scale; /**< height and width of the output, in those of the input */
} cod_node_reach;

cod_node_reach cod_graph_reach(const cod_graph *graph, const cod_node *node);

size_t cod_graph_param_count(const cod_graph *graph);
const cod_param *cod_graph_param(const cod_graph *graph, size_t index);
size_t cod_graph_scalar_count(const cod_graph *graph);
const char *cod_graph_scalar_name(const cod_graph *graph, size_t index);

/** Where parameters lie in the flat buffer: sets one after another, each tensor at a multiple of 16 elements, states behind all. */
typedef struct cod_layout {
    size_t trainable; /**< elements of the trainable part, gaps included */
    size_t state;     /**< elements behind it */
} cod_layout;

/** Assigns every parameter's offset; to be called once the graph is complete (compilation and weights do it). */
cod_layout cod_graph_layout(cod_graph *graph);

/** Where a set lies in the flat buffer, in elements; gaps between tensors belong to it. */
typedef struct cod_set_range {
    size_t first, count;             /**< trainable */
    size_t state_first, state_count; /**< states; state_first is at least the layout's trainable */
} cod_set_range;

/** After cod_graph_layout(). */
cod_set_range cod_graph_set_range(const cod_graph *graph, int set);

/** 64-bit fingerprint of names, shapes and order of these sets' parameters: equal for models that can exchange weights. */
uint64_t cod_graph_fingerprint(const cod_graph *graph, cod_sets sets);

#endif

/**
 * @file
 * Static graphs: the operations of a network, without sizes of batches or images and without a device.
 *
 * A graph is built once by calls such as cod_graph_conv2d(); compile.h turns it into programs. Nodes are stored in the
 * order of the calls, which is a valid order of execution. After a failure, a call returns value 0, later calls on
 * value 0 do nothing, and cod_graph_status() reports the first failure; models therefore need no error handling.
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
    bool is_state;    /**< not trained; stored after the trainable parameters */
    int set;          /**< index of its parameter set */
    cod_init init;
    const double *start; /**< [elements of `shape`] initial values; NULL = `init` decides */
    size_t offset;       /**< elements from the start of the flat buffer; valid after cod_graph_layout() */
    cod_shape flattened; /**< linear layer after a flatten: H, W, C of its input, for conversion to PyTorch's C, H, W */
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
     * CONV2D_BACKWARD: those of its CONV2D, without the bias. NORM: gamma, beta, mean, var. ACTIVATION: slope.
     */
    int params[COD_NODE_MAX_PARAMS];
    cod_value output;
    int64_t channels;      /**< of the output */
    const double *shift;   /**< AFFINE: [channels] */
    cod_value like;        /**< INPUT, *_BACKWARD: value with the same shape; 0 = the shape is given at compilation */
    int weight_scalar;     /**< LOSS: index of the scalar that multiplies its gradient, or -1 */
    int64_t first_channel; /**< SLICE: first channel of its input */
    int64_t first_items;   /**< LOSS: number of examples of the batch that count; 0 = all */
    /** LOSS: gradient also flows to the target. */
    bool target_gradient;
} cod_node;

COD_MUST_CHECK cod_status cod_graph_create(cod_graph **out);
void cod_graph_destroy(cod_graph *graph);

/** The first failure of any call on the graph, with its message recorded; COD_OK when there was none. */
COD_MUST_CHECK cod_status cod_graph_status(const cod_graph *graph);

/** Fails the graph, unless it has failed before, with this thread's recorded message. For models with wrong options. */
void cod_graph_fail(cod_graph *graph, cod_status status);

/**
 * Parameters made from now on belong to this set ("generator", "discriminator"); the first set is "model". A set is
 * trained, frozen, published and saved as a whole. It is also a scope of names: equal names in two sets are two
 * parameters.
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
/** An f32 input with the shape of `like`, such as a target. */
cod_value cod_graph_input_like(cod_graph *graph, const char *name, cod_value like);
/** The same, with `channels` channels. */
cod_value cod_graph_input_like_of(cod_graph *graph, const char *name, cod_value like, int64_t channels);

typedef struct cod_conv2d_spec {
    int64_t out_channels;
    int kernel, stride, padding; /**< stride 0 means 1; square */
    bool no_bias;
    bool zero_init;   /**< weight and bias start at zero */
    double init_gain; /**< > 0: normal weights of deviation gain·sqrt(2/fan_in), zero bias; 0: PyTorch's default */
    /**
     * The weight divided by its largest singular value (Miyato et al. 2018), under the names of
     * torch.nn.utils.spectral_norm: parameter "NAME.weight_orig", states "NAME.weight_u" and "NAME.weight_v". Each run
     * of a program that trains the set moves u and v by one step of the power iteration, however often the program uses
     * the layer. Other programs also compute that step from u, but do not store it.
     */
    bool spectral_norm;
    const double *weights; /**< {O,KH,KW,I} initial weights, copied; NULL = random as above */
    const double *biases;  /**< {O} initial bias, copied; NULL = as above */
} cod_conv2d_spec;

/**
 * Makes "NAME.weight" and "NAME.bias", unless `spec` says otherwise; a name that the set already has shares its
 * parameters, which must have the same shape.
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
/**
 * scale·x + shift[c] in each channel c; scale and shift are neither trained nor saved. @param shift [channels of x],
 * copied
 */
cod_value cod_graph_affine(cod_graph *graph, cod_value x, double scale, const double *shift);
cod_value cod_graph_concat(cod_graph *graph, const cod_value *parts, int count);
/** `channels` channels of an input, from `first` on. No gradient flows through it. */
cod_value cod_graph_slice(cod_graph *graph, cod_value input, int64_t first, int64_t channels);
cod_value cod_graph_pixel_shuffle(cod_graph *graph, cod_value x, int factor);
/** The inverse: squares of factor x factor pixels become channels; height and width must be multiples of `factor`. */
cod_value cod_graph_pixel_unshuffle(cod_graph *graph, cod_value x, int factor);
cod_value cod_graph_resize(cod_graph *graph, cod_value x, int factor, cod_resize_mode mode);
cod_value cod_graph_pool(cod_graph *graph, cod_value x, cod_pool_kind kind, int kernel, int stride, int padding);
/**
 * Max pooling without padding, whose last window may extend beyond the edge so that every pixel counts: PyTorch's
 * ceil_mode, also Caffe's.
 */
cod_value cod_graph_max_pool_ceil(cod_graph *graph, cod_value x, int kernel, int stride);
cod_value cod_graph_global_pool(cod_graph *graph, cod_value x);
/** Flattens an input of height `h` and width `w`, which are needed for the size of the next linear layer. */
cod_value cod_graph_flatten(cod_graph *graph, cod_value x, int64_t h, int64_t w);
cod_value cod_graph_stop_gradient(cod_graph *graph, cod_value x);
/**
 * {N,H,W,C} -> {N,H,W,C}: each pixel becomes its channel's mean over N, H and W of the batch of one run of a program,
 * without other ranks' or other micro-batches. Relativistic losses take it of logits, as BCE(real - mean(fake), 1) does
 * (Jolicoeur-Martineau 2019).
 */
cod_value cod_graph_mean(cod_graph *graph, cod_value x);

typedef struct cod_loss_spec {
    cod_loss_kind kind;
    float epsilon;       /**< Charbonnier; 0 means 1e-3 */
    float temperature;   /**< KL; 0 means 1 */
    float smoothing;     /**< CROSS_ENTROPY: label smoothing, 0 … 1 */
    float weight;        /**< constant factor of the gradient; 0 means 1 */
    const char *scalar;  /**< name of a further factor, which can be set between steps; NULL = none */
    int64_t first_items; /**< number of examples, from the first on, that count, also in the mean; 0 = all */
    /** Gradient also flows to the target, which must then be another value than the prediction. */
    bool target_gradient;
} cod_loss_spec;

/**
 * A loss; no gradient flows to `target` unless `spec` asks for it. Its value is reported unweighted. core/backend.h has
 * the formulas.
 *
 * @param target  of the prediction's shape; 0 for COD_LOSS_TV, which has none
 */
cod_value cod_graph_loss(cod_graph *graph, const char *name, cod_value prediction, cod_value target,
                         cod_loss_spec spec);

/**
 * The gradient with respect to `x` of a loss whose gradient with respect to `y` is `dy`, as a value of x's shape that
 * losses can use. With ones for dy it is the gradient of the sum of y's elements. The gradient of such a loss flows to
 * dy and to the weights of convolutions between x and y. It does not flow through the slopes of activations, which are
 * constant almost everywhere.
 *
 * Fails the graph if y does not depend on x; or, naming the operation, if there is any operation between x and y other
 * than convolutions, ReLU, leaky ReLU (slope above 0), enlargements and sums without factors.
 */
cod_value cod_graph_gradient(cod_graph *graph, cod_value y, cod_value dy, cod_value x);

/** Reading a graph. */
size_t cod_graph_node_count(const cod_graph *graph);
const cod_node *cod_graph_node(const cod_graph *graph, size_t index);
/** The node that makes `value`. */
const cod_node *cod_graph_producer(const cod_graph *graph, cod_value value);

/** Which pixels of its first input a pixel of a node's output depends on. */
typedef struct cod_node_reach {
    bool whole;   /**< on any of them; `taps` has no meaning then */
    int taps;     /**< on so many to each side of the one at its own place */
    double scale; /**< height and width of the output, in those of the input */
} cod_node_reach;

cod_node_reach cod_graph_reach(const cod_graph *graph, const cod_node *node);

size_t cod_graph_param_count(const cod_graph *graph);
const cod_param *cod_graph_param(const cod_graph *graph, size_t index);
size_t cod_graph_scalar_count(const cod_graph *graph);
const char *cod_graph_scalar_name(const cod_graph *graph, size_t index);

/**
 * Layout of the flat buffer: sets one after another, each tensor at a multiple of 16 elements, and all states at the
 * end.
 */
typedef struct cod_layout {
    size_t trainable; /**< elements of the trainable part, gaps included */
    size_t state;     /**< elements behind it */
} cod_layout;

/** Assigns every parameter's offset; to be called once the graph is complete (compilation and weights do it). */
cod_layout cod_graph_layout(cod_graph *graph);

/** Range of a set in the flat buffer, in elements, including gaps between tensors. */
typedef struct cod_set_range {
    size_t first, count;             /**< trainable */
    size_t state_first, state_count; /**< states; state_first is at least the layout's trainable */
} cod_set_range;

/** After cod_graph_layout(). */
cod_set_range cod_graph_set_range(const cod_graph *graph, int set);

/**
 * 64-bit fingerprint of names, shapes and order of these sets' parameters: equal for models that can exchange weights.
 */
uint64_t cod_graph_fingerprint(const cod_graph *graph, cod_sets sets);

#endif

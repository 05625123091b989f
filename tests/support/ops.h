/**
 * @file
 * Random ops for tests: descriptions without memory, binding them to a backend, and comparing what they give.
 *
 * A *description* is a cod_op whose views have shape, type and stride but no buffer; a view whose shape is zero is
 * absent. A *slot* numbers the views of an op: inputs first, then from COD_OP_MAX_INPUTS on the outputs.
 */
#ifndef COD_TESTS_SUPPORT_OPS_H
#define COD_TESTS_SUPPORT_OPS_H

#include "core/backend.h"

enum { COD_TEST_SLOTS = COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS };

/**
 * Kinds below this one take numbers of any type; those from it on work on bits, and have tests of their own
 * (support/chunks.h).
 */
enum { COD_TEST_KINDS = COD_OP_QUANTISE };

/** A backend with its opened device. */
typedef struct cod_test_device {
    const cod_backend *backend;
    cod_device *device;
} cod_test_device;

/** Whether this machine cannot have the backend's device; prints why. The test then exits with 77. */
bool cod_test_absent(const cod_backend *backend);

/** The main() of tests that all need the backend's device. */
#define TEST_DEVICE(backend)                                                                                           \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        return cod_test_absent(&(backend)) ? 77 : cod_test_run();                                                      \
    }

/** An op with memory of its own: one buffer for each view, and a plan. */
typedef struct cod_test_op {
    cod_test_device on;
    cod_op op;
    cod_buffer *buffers[COD_TEST_SLOTS];
    cod_plan *plan;
} cod_test_op;

/** |actual - expected| may be relative·|expected| + scaled·(largest |expected| of the view). NaN never passes. */
typedef struct cod_tolerance {
    double relative, scaled;
} cod_tolerance;

/** Without memory, and with `gap` elements between pixels. */
cod_view cod_test_view_of(cod_dtype dtype, cod_shape shape, int64_t gap);

/** A convolution from `in` to `out` channels, of a square kernel. */
typedef struct cod_test_layer {
    int64_t n, h, w, in, out, kernel;
    int stride, pad;
} cod_test_layer;

/** How a layer's pictures lie in memory; gaps as above. */
typedef struct cod_test_layout {
    cod_dtype x, y;
    int64_t gap_x, gap_y;
} cod_test_layout;

/**
 * The layer's CONV2D or one of its gradients: with a bias, or its gradient, which cod_test_without_bias() takes away
 * again, and without an activation. `factor`: of the shuffle behind it; 0 = none.
 */
cod_op cod_test_layer_op(const cod_test_layer *layer, cod_op_kind kind, cod_test_layout layout, int factor);
void cod_test_without_bias(cod_op *op);

/** The slot's view. */
cod_view *cod_test_view(cod_op *op, size_t slot);

/**
 * Whether the slot of this kind holds an activation ('a'), a parameter ('p'), i32 ('i'), an f32 scalar ('f'); 0 for no
 * view.
 */
char cod_test_slot_class(cod_op_kind kind, size_t slot);

/**
 * A random valid description: shapes, strides of pixels, attributes, optional views and `accumulate` all follow from
 * the seed. Scalars and losses are f32, or f64 where `parameter` is.
 */
cod_op cod_test_random_op(cod_op_kind kind, cod_dtype activation, cod_dtype parameter, uint64_t seed);
/** The shape of a pooling's output. */
cod_shape cod_test_pooled(const cod_op_attr *attr, cod_shape x);

/** Whether the kind is half of a normalisation, which only backends that fuse need to have. */
bool cod_test_is_norm_half(cod_op_kind kind);

/** Makes every view of a description dense. */
void cod_test_make_dense(cod_op *description);

/**
 * New array (free() it) of values that suit the slot: variances are positive, classes and pooling indices valid.
 * `smooth` keeps the inputs of piecewise functions away from their kinks, for difference quotients.
 */
double *cod_test_random_values(const cod_op *description, size_t slot, uint64_t seed, bool smooth);

/** Gives each present view a buffer of its own at an odd offset, and creates the plan; end with cod_test_op_clear(). */
COD_MUST_CHECK cod_status cod_test_op_init(cod_test_op *test, cod_test_device on, const cod_op *description);
void cod_test_op_clear(cod_test_op *test);

/** Writes or reads the slot's view; `dense` in NHWC order. */
COD_MUST_CHECK cod_status cod_test_op_write(cod_test_op *test, size_t slot, const double *dense);
COD_MUST_CHECK cod_status cod_test_op_read(cod_test_op *test, size_t slot, double *dense);

/** Writes random values into every slot, outputs included. */
COD_MUST_CHECK cod_status cod_test_op_randomise(cod_test_op *test, uint64_t seed, bool smooth);

/** Prepares and runs the plan. */
COD_MUST_CHECK cod_status cod_test_op_run(cod_test_op *test);

/** COD_ERR_NUMERIC, with the worst element, unless the values agree. */
COD_MUST_CHECK cod_status cod_test_compare(const char *what, const double *actual, const double *expected,
                                           int64_t count, cod_tolerance tolerance);

/**
 * Runs the description on both devices with the same random values and compares all outputs; messages name the seed.
 */
COD_MUST_CHECK cod_status cod_test_parity(cod_test_device expected, cod_test_device tested, const cod_op *description,
                                          uint64_t seed, cod_tolerance tolerance);

/** COD_ERR_NUMERIC unless an OPTIMISER with an average has the bits of one without and EMA behind it. */
COD_MUST_CHECK cod_status cod_test_average(cod_test_device on, int64_t count, uint64_t seed);

#endif

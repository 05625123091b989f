/**
 * What is asked of cuDNN and cuBLASLt, as far as they answer without a GPU: descriptors of every kind of op, and, by
 * the properties of an H100 that is not there, cuDNN's lists of engines and their plans.
 */
#include "cuda/conv_plan.cuh"
#include "cuda/cublaslt.cuh"
#include "cuda/cudnn.cuh"
#include "cuda/nccl.cuh"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>

extern "C" {
#include "core/trace.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

/** As cuDNN's own device property descriptor writes it. */
static const char h100[] =
    "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"deviceVer\": 900, "
    "\"driverVer\": 13000, \"multiProcessorCount\": 132, \"regsPerBlock\": 65536, \"smClockRateKHz\": 1980000, "
    "\"memClockRateKHz\": 2619000, \"l2CacheSize\": 52428800, \"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, "
    "\"maxSharedMemoryPerBlockOptin\": 232448, \"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, "
    "\"pciDeviceId\": 0, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, "
    "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"totalGlobalMem\": 85000000000, \"cudaDeviceId\": 0, "
    "\"deviceName\": \"NVIDIA H100 80GB HBM3\"}";

/** Memory that nobody reads: descriptors look at addresses alone. */
static cuda_buffer nowhere = {{nullptr, 0}, reinterpret_cast<void *>(1 << 20)};

static cod_view view(cod_dtype dtype, cod_shape shape, int64_t gap)
{
    cod_view out = cod_view_dense(&nowhere.base, 0, dtype, shape);
    out.pixel_stride += gap;
    return out;
}

struct layer {
    int64_t n, h, in, out, kernel;
    int stride;
};

static const layer layers[] = {{16, 24, 64, 64, 3, 1}, {16, 24, 64, 256, 3, 1}, {16, 24, 3, 64, 9, 1},
                               {16, 96, 64, 3, 9, 1},  {64, 56, 256, 64, 1, 1}, {64, 56, 128, 128, 3, 2},
                               {64, 224, 3, 64, 7, 2}};

enum { PLAIN, ACTIVATED, ADDED };

static cod_op convolution(const layer &l, cod_op_kind kind, cod_dtype dtype, int variant)
{
    const int pad = static_cast<int>(l.kernel / 2);
    const int64_t size = (l.h + 2 * pad - l.kernel) / l.stride + 1;
    const cod_view x = view(dtype, {l.n, l.h, l.h, l.in}, 0), y = view(dtype, {l.n, size, size, l.out}, 0);
    const cod_view w = view(COD_F32, {l.out, l.kernel, l.kernel, l.in}, 0), b = view(COD_F32, {1, 1, 1, l.out}, 0);
    const bool data = kind == COD_OP_CONV2D_BACKWARD_DATA, weights = kind == COD_OP_CONV2D_BACKWARD_WEIGHTS;
    cod_op op = {};
    op.kind = kind;
    op.accumulate = variant == ADDED;
    op.attr.stride_h = op.attr.stride_w = l.stride;
    op.attr.pad_h = op.attr.pad_w = pad;
    op.inputs[0] = data ? y : x;
    op.inputs[1] = weights ? y : w;
    op.outputs[0] = data ? x : weights ? w : y;
    if (kind != COD_OP_CONV2D)
        return op;
    if (variant != PLAIN) {
        op.inputs[2] = b;
        op.attr.activation = variant == ACTIVATED ? COD_ACT_RELU : COD_ACT_LEAKY_RELU;
        op.attr.leak = 0.25f;
    }
    if (variant == ADDED)
        op.inputs[4] = y;
    return op;
}

/* cuDNN. */

TEST(descriptors_are_what_cudnn_takes)
{
    static const int counts[] = {1, 3, 4};
    for (const layer &l : layers) {
        for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
            for (int variant = 0; variant < 6; variant++) {
                const cod_dtype dtype = variant < 3 ? COD_BF16 : COD_F32;
                const cod_op op = convolution(l, static_cast<cod_op_kind>(kind), dtype, variant % 3);
                cudnnBackendDescriptor_t operations[CUDNN_MOST_OPERATIONS];
                cudnn_bag bag = {cudnn_library(), nullptr, 0, 0, COD_OK};
                assert_ok(cudnn_fits(&op));
                const int count = cudnn_describe(&bag, &op, variant == ACTIVATED, operations);
                assert_ok(bag.status);
                assert_int_equal(count, kind == COD_OP_CONV2D ? counts[variant % 3] : 1);
                cudnn_bag_clear(&bag);
            }
        }
    }
}

/** A shape that no convolution has is found, and said by whom. */
TEST(wrong_shapes_are_refused_by_cudnn)
{
    cod_op op = convolution(layers[0], COD_OP_CONV2D, COD_BF16, PLAIN);
    op.outputs[0].shape.h++;
    cudnnBackendDescriptor_t operations[CUDNN_MOST_OPERATIONS];
    cudnn_bag bag = {cudnn_library(), nullptr, 0, 0, COD_OK};
    assert_int_equal(cudnn_describe(&bag, &op, false, operations), 0);
    assert_int_not_equal(bag.status, COD_OK);
    cod_test_assert_contains(cod_error_message(), "operation of a convolution: cuDNN: cudnnBackendFinalize");
    cudnn_bag_clear(&bag);
}

TEST(ops_that_do_not_fit_are_named)
{
    cod_op op = convolution(layers[0], COD_OP_CONV2D, COD_BF16, ADDED);
    op.attr.activation = COD_ACT_PRELU;
    assert_fails(COD_ERR_UNSUPPORTED, "neither ReLU nor leaky", cudnn_fits(&op));
    op.attr.activation = COD_ACT_NONE;
    op.inputs[4].dtype = COD_F32;
    assert_fails(COD_ERR_UNSUPPORTED, "two types", cudnn_fits(&op));
    op.attr.factor = 2;
    assert_fails(COD_ERR_UNSUPPORTED, "shuffles", cudnn_fits(&op));
    op.attr.int8_range = 1;
    assert_fails(COD_ERR_UNSUPPORTED, "8-bit", cudnn_fits(&op));
    op.kind = COD_OP_LINEAR;
    assert_fails(COD_ERR_UNSUPPORTED, "no convolution", cudnn_fits(&op));
}

/** The descriptor of a GPU that is not there; false where this cuDNN does not know such. */
static bool describe_h100(cudnn_bag *bag, cudnn_target *target)
{
    target->handle = nullptr;
    target->properties = cudnn_create(bag, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    cudnn_set(bag, target->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof h100 - 1,
              h100);
    cudnn_finalize(bag, target->properties, "properties of a device");
    return bag->status == COD_OK;
}

/** None of the engines may have a note that speaks against it. */
static void check_notes(cudnn_bag *bag, const cudnn_shape *shape, cod_dtype dtype)
{
    for (int i = 0; i < shape->count; i++) {
        cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
        cudnnBackendDescriptor_t engine = cudnn_create(bag, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        int64_t count = 0;
        assert_ok(COD_CUDNN(bag->calls, cudnnBackendGetAttribute(shape->engines[i].config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine)));
        assert_ok(COD_CUDNN(bag->calls, cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                 CUDNN_TYPE_NUMERICAL_NOTE,
                                                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes)));
        for (int64_t k = 0; k < count; k++) {
            assert_int_not_equal(notes[k], CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
            assert_false(dtype == COD_F32 && notes[k] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        }
    }
}

/** Engines are made from their names, without heuristics. */
static void check_wanted(cudnn_bag *bag, const cudnn_target *target, const cod_op *op, const cudnn_shape *all)
{
    enum { STEP = 3 };
    for (int i = 0; i < all->count; i += STEP) {
        cudnn_shape *shape = nullptr;
        assert_ok(cudnn_shape_create(bag->calls, target, op, "key", all->engines[i].name, &shape));
        assert_int_equal(shape->count, 1);
        assert_string_equal(shape->engines[0].name, all->engines[i].name);
        assert_int_equal(shape->engines[0].rounded_bias, all->engines[i].rounded_bias);
        assert_int_equal(shape->offered[CUDNN_TAKEN], 0); /* nothing was asked */
        cudnn_shape_destroy(shape);
    }
}

/** A name that this cuDNN does not know is answered with all engines. */
static void check_unknown(cudnn_bag *bag, const cudnn_target *target, const cod_op *op, int all)
{
    static const char *const names[] = {"cudnn-e99999", "cudnn-e", "cudnn-e0-k3", "own-64x64", "cudnn-b16-e99999"};
    for (const char *name : names) {
        cudnn_shape *shape = nullptr;
        assert_ok(cudnn_shape_create(bag->calls, target, op, "key", name, &shape));
        assert_int_equal(shape->count, all);
        cudnn_shape_destroy(shape);
    }
}

/** All that is offered is counted once, and what is taken is what is listed. */
static void check_offer(const cudnn_shape *shape)
{
    char text[256], expected[64];
    int all = 0;
    for (int count : shape->offered)
        all += count;
    assert_int_equal(shape->offered[CUDNN_TAKEN], shape->count);
    assert_int_equal(shape->offered[CUDNN_UNREADABLE], 0);
    cudnn_shape_describe(shape, text, sizeof text);
    snprintf(expected, sizeof expected, "%d engines: %d taken", all, shape->count);
    assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
    printf("    %s\n", text);
}

/** @param build  how many engines are made ready, too, which takes time */
static int list(cudnn_bag *bag, const cudnn_target *target, const cod_op *op, int build)
{
    cudnn_shape *shape = nullptr;
    int rounded = 0;
    assert_ok(cudnn_shape_create(bag->calls, target, op, "key", nullptr, &shape));
    check_notes(bag, shape, op->inputs[0].dtype);
    for (int i = 0; i < shape->count; i++) {
        rounded += shape->engines[i].rounded_bias;
        for (int k = 0; k < i; k++)
            assert_string_not_equal(shape->engines[i].name, shape->engines[k].name);
    }
    for (int i = 0; i < shape->count && i < build; i++) {
        assert_ok(cudnn_engine_build(shape, target, i));
        assert_non_null(shape->engines[i].plan);
        assert_true(shape->engines[i].workspace_bytes >= 0);
    }
    const int count = shape->count;
    check_offer(shape);
    if (count > 0)
        check_wanted(bag, target, op, shape);
    printf("    %s %s%s: %d engines, %d of them with a bias in bf16; the first: %s\n", cod_op_kind_name(op->kind),
           cod_dtype_name(op->inputs[0].dtype), op->accumulate ? ", added" : "", count, rounded,
           count > 0 ? shape->engines[0].name : "none");
    cudnn_shape_destroy(shape);
    return count;
}

/** Ends the test as skipped where cuDNN cannot be told of a GPU that is not there. */
static void describe_h100_or_skip(cudnn_bag *bag, cudnn_target *target)
{
    if (describe_h100(bag, target))
        return;
    printf("    %s\n", cod_error_message());
    cudnn_bag_clear(bag);
    skip();
}

TEST(engines_are_listed_for_a_gpu_that_is_not_there)
{
    cudnn_bag bag = {cudnn_library(), nullptr, 0, 0, COD_OK};
    cudnn_target target;
    describe_h100_or_skip(&bag, &target);
    for (int number = 0; number < 3; number++) {
        const layer &l = layers[number];
        const cod_op forward = convolution(l, COD_OP_CONV2D, COD_BF16, PLAIN),
                     relu = convolution(l, COD_OP_CONV2D, COD_BF16, ACTIVATED),
                     data = convolution(l, COD_OP_CONV2D_BACKWARD_DATA, COD_BF16, PLAIN),
                     added = convolution(l, COD_OP_CONV2D_BACKWARD_DATA, COD_BF16, ADDED),
                     weights = convolution(l, COD_OP_CONV2D_BACKWARD_WEIGHTS, COD_BF16, PLAIN);
        printf("    %dx%dx%dx%d -> %d, kernel %d\n", (int)l.n, (int)l.h, (int)l.h, (int)l.in, (int)l.out,
               (int)l.kernel);
        assert_true(list(&bag, &target, &forward, number == 0 ? 2 : 0) > 0);
        assert_true(list(&bag, &target, &relu, number == 0 ? 1 : 0) > 0);
        assert_true(list(&bag, &target, &data, 0) > 0);
        assert_true(list(&bag, &target, &added, number == 0 ? 1 : 0) > 0);
        if (number == 0)
            check_unknown(&bag, &target, &data, list(&bag, &target, &data, 0));
        list(&bag, &target, &weights, 0); /* with f32 dw: compiled at run time, if at all */
    }
    for (int kind = COD_OP_CONV2D; kind <= COD_OP_CONV2D_BACKWARD_WEIGHTS; kind++) {
        const cod_op op = convolution(layers[0], static_cast<cod_op_kind>(kind), COD_F32, PLAIN);
        assert_true(list(&bag, &target, &op, 2) > 0);
    }
    cudnn_bag_clear(&bag);
}

/** Plans that threads left as text become plans, with the workspaces of those that are made at once. */
TEST(engines_are_built_on_several_threads)
{
    cudnn_bag bag = {cudnn_library(), nullptr, 0, 0, COD_OK};
    cudnn_target target;
    describe_h100_or_skip(&bag, &target);
    const cod_op op = convolution(layers[1], COD_OP_CONV2D, COD_BF16, ACTIVATED);
    cudnn_shape *apart = nullptr, *together = nullptr;
    int texts = 0;
    assert_ok(cudnn_shape_create(bag.calls, &target, &op, "key", nullptr, &apart));
    assert_ok(cudnn_shape_create(bag.calls, &target, &op, "key", nullptr, &together));
    double begin = cod_clock_s();
    cudnn_engines_build_ahead(together, &op, &target, -1, 0);
    for (int i = 0; i < together->count; i++)
        assert_null(together->engines[i].built); /* no time for any */
    cudnn_engines_build_ahead(together, &op, &target, -1, 30);
    const double ahead_s = cod_clock_s() - begin;
    for (int i = 0; i < together->count; i++)
        texts += together->engines[i].built != nullptr;
    begin = cod_clock_s();
    for (int i = 0; i < together->count; i++)
        assert_ok(cudnn_engine_build(together, &target, i));
    const double restored_s = cod_clock_s() - begin;
    begin = cod_clock_s();
    for (int i = 0; i < apart->count; i++) {
        assert_ok(cudnn_engine_build(apart, &target, i));
        assert_non_null(together->engines[i].plan);
        assert_null(together->engines[i].built);
        assert_int_equal(together->engines[i].workspace_bytes, apart->engines[i].workspace_bytes);
    }
    printf("    %d of %d engines as text: %.2f s, made of it in %.2f s; one after another: %.2f s\n", texts,
           together->count, ahead_s, restored_s, cod_clock_s() - begin);
    assert_true(texts > 0);
    cudnn_shape_destroy(apart);
    cudnn_shape_destroy(together);
    cudnn_bag_clear(&bag);
}

/* cuBLASLt. */

/** What a product computes, by plain loops: element (i, k) of cuBLASLt's matrix lies at i + k·leading. */
static float element(const linear_matrix &matrix, int64_t i, int64_t k)
{
    const float *data = static_cast<const float *>(matrix.data);
    return matrix.transposed ? data[k + i * matrix.leading] : data[i + k * matrix.leading];
}

static int64_t rows_of(const linear_matrix &matrix)
{
    return matrix.transposed ? matrix.columns : matrix.rows;
}

static int64_t columns_of(const linear_matrix &matrix)
{
    return matrix.transposed ? matrix.rows : matrix.columns;
}

/** Element (row, channel) of a dense or strided view in f32. */
static float value_at(const cod_view &matrix, int64_t row, int64_t channel)
{
    const cuda_buffer *buffer = reinterpret_cast<const cuda_buffer *>(matrix.buffer);
    return static_cast<const float *>(buffer->memory)[row * matrix.pixel_stride + channel];
}

enum { N = 3, I = 5, O = 4, GAP = 2 };

static cod_op linear(cod_op_kind kind, const cod_view &x, const cod_view &w, const cod_view &y)
{
    const bool data = kind == COD_OP_LINEAR_BACKWARD_DATA, weights = kind == COD_OP_LINEAR_BACKWARD_WEIGHTS;
    cod_op op = {};
    op.kind = kind;
    op.inputs[0] = data ? y : x;
    op.inputs[1] = weights ? y : w;
    op.outputs[0] = data ? x : weights ? w : y;
    return op;
}

/** The formulas of core/backend.h's table, of which products must be. */
static float expected_at(cod_op_kind kind, const cod_view &x, const cod_view &w, const cod_view &y, int64_t row,
                         int64_t channel)
{
    float sum = 0;
    if (kind == COD_OP_LINEAR)
        for (int64_t i = 0; i < I; i++)
            sum += value_at(x, row, i) * value_at(w, channel, i);
    else if (kind == COD_OP_LINEAR_BACKWARD_DATA)
        for (int64_t o = 0; o < O; o++)
            sum += value_at(y, row, o) * value_at(w, o, channel);
    else
        for (int64_t n = 0; n < N; n++)
            sum += value_at(y, n, row) * value_at(x, n, channel);
    return sum;
}

/** cuBLASLt's epilogue sums the columns of b: they must be dy's channels. It cannot add to what is there. */
static void check_bias_gradient(cod_op op, const linear_product &p, const cod_view &dy)
{
    linear_product described;
    for (int64_t channel = 0; channel < O; channel++) {
        float sum = 0, expected = 0;
        for (int64_t n = 0; n < N; n++) {
            sum += element(p.b, n, channel);
            expected += value_at(dy, n, channel);
        }
        assert_true(sum == expected);
    }
    assert_null(p.bias_gradient);
    op.outputs[1] = view(COD_F32, {1, 1, 1, O}, 0);
    assert_ok(linear_describe(&op, &described));
    assert_ptr_equal(described.bias_gradient, nowhere.memory);
    op.accumulate = true;
    assert_ok(linear_describe(&op, &described));
    assert_null(described.bias_gradient);
}

TEST(products_are_those_of_the_ops)
{
    float values[3][64];
    cuda_buffer buffers[3];
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 64; i++)
            values[k][i] = static_cast<float>((i * 7 + k * 3) % 11 - 5);
        buffers[k] = {{nullptr, sizeof values[k]}, values[k]};
    }
    cod_view x = cod_view_dense(&buffers[0].base, 0, COD_F32, {N, 1, 1, I});
    cod_view w = cod_view_dense(&buffers[1].base, 0, COD_F32, {O, 1, 1, I});
    cod_view y = cod_view_dense(&buffers[2].base, 0, COD_F32, {N, 1, 1, O});
    x.pixel_stride += GAP;
    y.pixel_stride += 2 * GAP;
    for (int kind = COD_OP_LINEAR; kind <= COD_OP_LINEAR_BACKWARD_WEIGHTS; kind++) {
        const cod_op op = linear(static_cast<cod_op_kind>(kind), x, w, y);
        const cod_view *target = &op.outputs[0];
        linear_product p;
        assert_ok(linear_describe(&op, &p));
        assert_true(p.d.rows == target->shape.c && p.d.columns == target->shape.n);
        assert_true(rows_of(p.a) == p.d.rows && columns_of(p.b) == p.d.columns && columns_of(p.a) == rows_of(p.b));
        if (kind == COD_OP_LINEAR_BACKWARD_WEIGHTS)
            check_bias_gradient(op, p, y);
        assert_ptr_equal(p.d.data, values[kind == COD_OP_LINEAR ? 2 : kind == COD_OP_LINEAR_BACKWARD_DATA ? 0 : 1]);
        for (int64_t row = 0; row < target->shape.n; row++) {
            for (int64_t channel = 0; channel < target->shape.c; channel++) {
                float sum = 0;
                for (int64_t k = 0; k < columns_of(p.a); k++)
                    sum += element(p.a, channel, k) * element(p.b, k, row);
                assert_true(sum == expected_at(op.kind, x, w, y, row, channel));
            }
        }
    }
}

TEST(descriptors_are_what_cublaslt_takes)
{
    const cublaslt_calls *calls = cublaslt_library();
    if (calls->absent[0] != '\0') {
        printf("    cuBLASLt: %s\n", calls->absent);
        skip();
    }
    for (int kind = COD_OP_LINEAR; kind <= COD_OP_LINEAR_BACKWARD_WEIGHTS; kind++) {
        for (int variant = 0; variant < 8; variant++) {
            const cod_dtype dtype = variant & 1 ? COD_BF16 : COD_F32;
            const cod_view x = view(dtype, {100, 1, 1, 784}, 16), w = view(COD_F32, {1000, 1, 1, 784}, 0);
            const cod_view y = view(dtype, {100, 1, 1, 1000}, 0), b = view(COD_F32, {1, 1, 1, 1000}, 0);
            cod_op op = linear(static_cast<cod_op_kind>(kind), x, w, y);
            if (kind == COD_OP_LINEAR && variant & 2)
                op.inputs[2] = b;
            op.attr.activation = variant & 4 ? COD_ACT_RELU : COD_ACT_NONE;
            linear_product product;
            linear_descriptors descriptors;
            assert_ok(linear_describe(&op, &product));
            assert_int_equal(product.packed, dtype == COD_BF16 && kind != COD_OP_LINEAR_BACKWARD_WEIGHTS);
            assert_int_equal(product.rounded_bias, dtype == COD_BF16 && product.bias != nullptr);
            assert_ok(linear_descriptors_create(calls, &product, product.bias, &descriptors));
            assert_true(descriptors.operation != nullptr && descriptors.d != nullptr);
            linear_descriptors_destroy(calls, &descriptors);
            assert_null(descriptors.operation);
        }
    }
}

/** An attribute of a descriptor, read by a function that the backend itself has no use for. */
template <typename T>
static T attribute_of(const cublaslt_calls *calls, cublasLtMatmulDesc_t operation,
                      cublasLtMatmulDescAttributes_t attribute)
{
    Dl_info info;
    T value = {};
    size_t written = 0;
    assert_int_not_equal(dladdr(reinterpret_cast<void *>(calls->cublasLtCreate), &info), 0);
    void *handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(handle);
    const auto get =
        reinterpret_cast<decltype(&::cublasLtMatmulDescGetAttribute)>(dlsym(handle, "cublasLtMatmulDescGetAttribute"));
    assert_non_null(get);
    assert_int_equal(get(operation, attribute, &value, sizeof value, &written), CUBLAS_STATUS_SUCCESS);
    dlclose(handle);
    return value;
}

/** A weight gradient with db: the library sums it where it is told to, else nothing stands behind the product. */
TEST(bias_gradients_are_described)
{
    const cublaslt_calls *calls = cublaslt_library();
    const cod_view x = view(COD_BF16, {100, 1, 1, 784}, 0), w = view(COD_F32, {10, 1, 1, 784}, 0),
                   y = view(COD_BF16, {100, 1, 1, 10}, 0);
    cod_op op = linear(COD_OP_LINEAR_BACKWARD_WEIGHTS, x, w, y);
    linear_product product;
    linear_descriptors descriptors;
    if (calls->absent[0] != '\0')
        skip();
    op.outputs[1] = view(COD_F32, {1, 1, 1, 10}, 0);
    assert_ok(linear_describe(&op, &product));
    assert_false(product.sums_bias);
    for (int sums = 0; sums < 2; sums++) {
        product.sums_bias = sums != 0;
        assert_ok(linear_descriptors_create(calls, &product, nullptr, &descriptors));
        const auto epilogue =
            attribute_of<cublasLtEpilogue_t>(calls, descriptors.operation, CUBLASLT_MATMUL_DESC_EPILOGUE);
        const auto *target = attribute_of<void *>(calls, descriptors.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
        assert_int_equal(epilogue, sums ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_DEFAULT);
        assert_ptr_equal(target, sums ? nowhere.memory : nullptr);
        linear_descriptors_destroy(calls, &descriptors);
    }
}

/** A data gradient with ReLU's behind it: the product is plain, or has a mask. */
TEST(gated_gradients_are_described)
{
    const cublaslt_calls *calls = cublaslt_library();
    const cod_view x = view(COD_BF16, {100, 1, 1, 784}, 0), w = view(COD_F32, {10, 1, 1, 784}, 0),
                   y = view(COD_BF16, {100, 1, 1, 10}, 0);
    cod_op op = linear(COD_OP_LINEAR_BACKWARD_DATA, x, w, y);
    linear_product product;
    linear_descriptors descriptors;
    op.inputs[CONV_GATE] = x;
    op.attr.activation = COD_ACT_RELU;
    assert_ok(linear_describe(&op, &product));
    assert_true(product.gated && product.mask == nullptr && !product.relu);
    product.mask_leading = 896;
    for (int masked = 0; masked < 2; masked++) {
        product.mask = masked ? nowhere.memory : nullptr;
        assert_ok(linear_descriptors_create(calls, &product, nullptr, &descriptors));
        assert_true(descriptors.operation != nullptr && descriptors.d != nullptr);
        linear_descriptors_destroy(calls, &descriptors);
    }
}

TEST(linear_layers_that_do_not_fit_are_named)
{
    const cod_view x = view(COD_BF16, {100, 1, 1, 784}, 0), w = view(COD_F32, {10, 1, 1, 784}, 0),
                   y = view(COD_F32, {100, 1, 1, 10}, 0);
    linear_product product;
    cod_op op = linear(COD_OP_LINEAR, x, w, y);
    assert_ok(linear_describe(&op, &product));
    op.attr.activation = COD_ACT_TANH;
    assert_fails(COD_ERR_UNSUPPORTED, "is not ReLU", linear_describe(&op, &product));
    op = linear(COD_OP_LINEAR_BACKWARD_DATA, x, w, y);
    assert_fails(COD_ERR_UNSUPPORTED, "reads f32 and writes bf16", linear_describe(&op, &product));
    op = linear(COD_OP_LINEAR_BACKWARD_WEIGHTS, x, w, y);
    assert_fails(COD_ERR_UNSUPPORTED, "two types", linear_describe(&op, &product));
    op.kind = COD_OP_CONV2D;
    assert_fails(COD_ERR_UNSUPPORTED, "no linear layer", linear_describe(&op, &product));
}

TEST(versions_are_told)
{
    char text[640], version[64];
    snprintf(version, sizeof version, "cuDNN %s", cudnn_library()->version);
    cuda_libraries_describe(text, sizeof text);
    assert_int_equal(strncmp(text, version, strlen(version)), 0);
    assert_int_equal(strncmp(version, "cuDNN 9.", 8), 0);
    cod_test_assert_contains(text, "cuBLASLt");
}

#ifdef COD_HAVE_NCCL
#include <nccl.h>

/* What nccl.cuh declares is what the header has. */
static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId) && NCCL_UNIQUE_ID_BYTES == COD_COLLECTIVE_NAME_BYTES, "ids");
static_assert(NCCL_FLOAT32 == static_cast<int>(ncclFloat32) && NCCL_SUM == static_cast<int>(ncclSum), "numbers");
static_assert(NCCL_SUCCESS == static_cast<int>(ncclSuccess) && NCCL_IN_PROGRESS == static_cast<int>(ncclInProgress),
              "results");

template <typename F> struct same_shape;
template <typename R, typename... A> struct same_shape<R (*)(A...)> {
    /** As many arguments, each of a size that is passed alike. */
    template <typename S, typename... B> static constexpr bool as(S (*)(B...))
    {
        return sizeof(R) == sizeof(S) && sizeof...(A) == sizeof...(B) && ((sizeof(A) == sizeof(B)) && ...);
    }
};
#define SAME(ours, theirs) static_assert(same_shape<decltype(nccl_calls::ours)>::as(&::theirs), #theirs)
SAME(get_version, ncclGetVersion);
SAME(get_unique_id, ncclGetUniqueId);
SAME(comm_init_rank, ncclCommInitRank);
SAME(comm_destroy, ncclCommDestroy);
SAME(comm_abort, ncclCommAbort);
SAME(comm_get_async_error, ncclCommGetAsyncError);
SAME(all_reduce, ncclAllReduce);
SAME(get_error_string, ncclGetErrorString);
SAME(get_last_error, ncclGetLastError);

TEST(nccl_has_what_is_called)
{
    const nccl_calls *calls = nccl_library();
    assert_string_equal(calls->absent, "");
    assert_int_equal(strncmp(calls->version, "2.", 2), 0);
    assert_string_equal(calls->get_error_string(NCCL_SUCCESS), "no error");
}
#endif

int main()
{
    if (cudnn_library()->absent[0] != '\0') {
        printf("skipped: cuDNN: %s\n", cudnn_library()->absent);
        return 77;
    }
    return cod_test_run();
}

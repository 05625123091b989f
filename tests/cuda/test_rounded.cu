/* Copies of weights in bf16 that plans share (src/cuda/rounded.cuh). */
#include "cuda/conv_library.cuh"
#include "cuda/rounded.cuh"

extern "C" {
#include "emulated/emulated.h"
#include "pair.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

enum { ROWS = 6, COLUMNS = 24, VALUES = ROWS * COLUMNS };

/** Weights and a bias in one buffer, as layers of a network have them. */
struct layer {
    cod_buffer *buffer;
    cod_view weights, bias;
};

static cod_view vector_at(cod_buffer *buffer, size_t first, int64_t rows, int64_t columns)
{
    return cod_view_dense(buffer, first * sizeof(float), COD_F32, {rows, 1, 1, columns});
}

static void layer_open(layer *out)
{
    assert_ok(test_cuda.backend->buffer_create(test_cuda.device, (VALUES + ROWS) * sizeof(float), &out->buffer));
    out->weights = vector_at(out->buffer, 0, ROWS, COLUMNS);
    out->bias = vector_at(out->buffer, VALUES, 1, ROWS);
}

static void fill(const layer *of, float first)
{
    float values[VALUES + ROWS];
    for (int i = 0; i < VALUES + ROWS; i++)
        values[i] = first + 0.37f * static_cast<float>(i);
    assert_ok(test_cuda.backend->upload(test_cuda.device, nullptr, of->buffer, 0, values, sizeof values));
}

/** A plan that reads rounded weights, and does nothing. */
struct reader {
    cod_op op;
    cod_plan plan;
    library_parts parts;
};

static void reader_open(reader *out, const cod_view *weights, const cod_view *bias)
{
    *out = {};
    out->plan.device = test_cuda.device;
    out->plan.ops = &out->op;
    assert_ok(library_parts_create(&out->plan, 0, weights, bias, &out->parts));
}

static void expect_copy(const uint16_t *copy, int count, float first, int offset)
{
    uint16_t read[VALUES];
    const cudaStream_t stream = test_cuda.device->stream;
    assert_ok(COD_CUDA(
        cudaMemcpyAsync(read, copy, static_cast<size_t>(count) * sizeof *copy, cudaMemcpyDeviceToHost, stream)));
    assert_ok(COD_CUDA(cudaStreamSynchronize(stream)));
    for (int i = 0; i < count; i++)
        assert_int_equal(read[i], cod_bf16_from_f32(first + 0.37f * static_cast<float>(i + offset)));
}

/** Plans of a layer's two directions share one copy, which one launch writes, once; a view of other elements has another. */
static void plans_of_one_layer_share_a_copy(void **)
{
    layer l;
    reader forward, data, part;
    layer_open(&l);
    const size_t before = test_cuda.device->allocated;
    reader_open(&forward, &l.weights, &l.bias);
    const size_t alone = test_cuda.device->allocated;
    reader_open(&data, &l.weights, nullptr);
    assert_ptr_equal(data.parts.weights, forward.parts.weights);
    assert_null(data.parts.bias);
    assert_int_equal(test_cuda.device->allocated, alone);
    const cod_view half = vector_at(l.buffer, 0, ROWS / 2, COLUMNS);
    reader_open(&part, &half, nullptr);
    assert_ptr_not_equal(part.parts.weights, forward.parts.weights);
    cod_plan *plans[] = {&forward.plan, &data.plan, &part.plan};
    for (int round = 0; round < 2; round++) {
        const float first = -20.5f + static_cast<float>(round);
        fill(&l, first);
        cod_emulated_launches(nullptr);
        assert_ok(cuda_pack_plans(plans, 3, test_cuda.device->stream));
        assert_int_equal(cod_emulated_launches(nullptr), 1);
        expect_copy(forward.parts.weights, VALUES, first, 0);
        expect_copy(forward.parts.bias, ROWS, first, VALUES);
        expect_copy(part.parts.weights, VALUES / 2, first, 0);
    }
    cuda_plan_clear(&forward.plan); /* the other one keeps the copy of the weights */
    fill(&l, 3);
    assert_ok(cuda_pack_plans(&plans[1], 1, test_cuda.device->stream));
    expect_copy(data.parts.weights, VALUES, 3, 0);
    cuda_plan_clear(&data.plan);
    cuda_plan_clear(&part.plan);
    assert_int_equal(test_cuda.device->allocated, before);
    assert_null(test_cuda.device->rounded);
    test_cuda.backend->buffer_destroy(test_cuda.device, l.buffer);
}

/** More copies than a launch has room for: two launches. As many plans of one copy: one. */
static void expect_launches(bool shared)
{
    enum { MANY = 300 };
    static reader readers[MANY];
    cod_plan *plans[MANY];
    layer l;
    layer_open(&l);
    fill(&l, -1);
    for (size_t i = 0; i < MANY; i++) {
        const cod_view weights =
            shared ? l.weights : vector_at(l.buffer, i % VALUES, 1, 1 + static_cast<int64_t>(i / VALUES));
        reader_open(&readers[i], &weights, nullptr);
        plans[i] = &readers[i].plan;
    }
    cod_emulated_launches(nullptr);
    assert_ok(cuda_pack_plans(plans, MANY, test_cuda.device->stream));
    assert_int_equal(cod_emulated_launches(nullptr), shared ? 1 : 2);
    for (int i = 0; i < MANY; i++) {
        expect_copy(readers[i].parts.weights, shared ? VALUES : 1 + i / VALUES, -1, shared ? 0 : i % VALUES);
        cuda_plan_clear(&readers[i].plan);
    }
    assert_null(test_cuda.device->rounded);
    test_cuda.backend->buffer_destroy(test_cuda.device, l.buffer);
}

static void many_copies_take_a_launch_for_each_256(void **)
{
    expect_launches(false);
}

static void many_plans_of_one_copy_take_one_launch(void **)
{
    expect_launches(true);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_one_layer_share_a_copy),
        cmocka_unit_test(many_copies_take_a_launch_for_each_256),
        cmocka_unit_test(many_plans_of_one_copy_take_one_launch),
    };
    return cmocka_run_group_tests(tests, test_pair_open, test_pair_close);
}

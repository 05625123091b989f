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

/**
 * Plans of a layer's two directions share one copy, which one launch writes, once; a view of other elements has
 * another.
 */
TEST(plans_of_one_layer_share_a_copy)
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
        assert_ok(cuda_pack_plans(plans, 3, false, test_cuda.device->stream));
        assert_int_equal(cod_emulated_launches(nullptr), 1);
        expect_copy(forward.parts.weights, VALUES, first, 0);
        expect_copy(forward.parts.bias, ROWS, first, VALUES);
        expect_copy(part.parts.weights, VALUES / 2, first, 0);
    }
    cuda_plan_clear(&forward.plan); /* the other one keeps the copy of the weights */
    fill(&l, 3);
    assert_ok(cuda_pack_plans(&plans[1], 1, false, test_cuda.device->stream));
    expect_copy(data.parts.weights, VALUES, 3, 0);
    cuda_plan_clear(&data.plan);
    cuda_plan_clear(&part.plan);
    assert_int_equal(test_cuda.device->allocated, before);
    assert_null(test_cuda.device->rounded);
    test_cuda.backend->buffer_destroy(test_cuda.device, l.buffer);
}

enum { BEFORE = 3, BEHIND = 5, SET = BEFORE + VALUES + ROWS + BEHIND };

/** A layer amid other parameters of a set, with copies; and updates of the set, or of parts of it. */
struct trained {
    cod_buffer *values, *grads, *m, *v, *average, *scalars, *norm;
    reader forward, data;
};

static cod_view stretch(cod_buffer *buffer, size_t first, size_t count)
{
    return vector_at(buffer, first, 1, static_cast<int64_t>(count));
}

static void write_values(cod_buffer *buffer, size_t count, float first, float step)
{
    float values[SET];
    for (size_t i = 0; i < count; i++)
        values[i] = first + step * static_cast<float>(i);
    assert_ok(test_cuda.backend->upload(test_cuda.device, nullptr, buffer, 0, values, count * sizeof *values));
}

/** The weights begin `before` parameters behind the set's first one. */
static void trained_open(trained *out, size_t before)
{
    cod_buffer **const buffers[] = {&out->values, &out->grads, &out->m, &out->v, &out->average};
    for (cod_buffer **buffer : buffers)
        assert_ok(test_cuda.backend->buffer_create(test_cuda.device, SET * sizeof(float), buffer));
    assert_ok(test_cuda.backend->buffer_create(test_cuda.device, 4 * sizeof(float), &out->scalars));
    assert_ok(test_cuda.backend->buffer_create(test_cuda.device, sizeof(float), &out->norm));
    write_values(out->values, SET, -7.3f, 0.113f);
    write_values(out->grads, SET, 2.9f, -0.031f);
    write_values(out->scalars, 4, 0.3f, 0.1f);
    write_values(out->norm, 1, 5, 0);
    const cod_view weights = vector_at(out->values, before, ROWS, COLUMNS);
    const cod_view bias = stretch(out->values, before + VALUES, ROWS);
    reader_open(&out->forward, &weights, &bias);
    reader_open(&out->data, &weights, nullptr);
}

static void trained_close(trained *of)
{
    cuda_plan_clear(&of->forward.plan);
    cuda_plan_clear(&of->data.plan);
    assert_null(test_cuda.device->rounded);
    cod_buffer *const buffers[] = {of->values, of->grads, of->m, of->v, of->average, of->scalars, of->norm};
    for (cod_buffer *buffer : buffers)
        test_cuda.backend->buffer_destroy(test_cuda.device, buffer);
}

static cod_plan *new_update(const trained *of, cod_optimiser_kind kind, size_t first, size_t count)
{
    cod_op op = {};
    cod_plan *plan;
    op.kind = COD_OP_OPTIMISER;
    op.name = "update";
    op.attr.optimiser = kind;
    op.attr.momentum = 0.9f;
    op.attr.beta1 = 0.9f;
    op.attr.beta2 = 0.99f;
    op.attr.epsilon = 1e-8f;
    op.attr.weight_decay = 0.01f;
    op.attr.max_norm = 2;
    op.inputs[0] = stretch(of->grads, first, count);
    op.inputs[1] = stretch(of->scalars, 0, 4);
    op.inputs[2] = stretch(of->norm, 0, 1);
    op.outputs[0] = stretch(of->values, first, count);
    op.outputs[1] = stretch(of->m, first, count);
    if (kind != COD_OPT_SGD)
        op.outputs[2] = stretch(of->v, first, count);
    op.outputs[3] = stretch(of->average, first, count);
    assert_ok(test_cuda.backend->plan_create(test_cuda.device, &op, &plan));
    return plan;
}

/** Whether a copy is what rounding gives of the `count` parameters from `first` on, as they are now. */
static bool is_rounded(const trained *of, const uint16_t *copy, size_t first, size_t count)
{
    uint16_t read[VALUES];
    float values[SET];
    const cudaStream_t stream = test_cuda.device->stream;
    assert_ok(COD_CUDA(cudaMemcpyAsync(read, copy, count * sizeof *copy, cudaMemcpyDeviceToHost, stream)));
    assert_ok(test_cuda.backend->download(test_cuda.device, nullptr, values, of->values, 0, sizeof values));
    for (size_t i = 0; i < count; i++)
        if (read[i] != cod_bf16_from_f32(values[first + i]))
            return false;
    return true;
}

static bool are_rounded(const trained *of, size_t before)
{
    return is_rounded(of, of->forward.parts.weights, before, VALUES) &&
           is_rounded(of, of->forward.parts.bias, before + VALUES, ROWS);
}

static size_t launches_of_prepare(trained *of, bool updated)
{
    cod_plan *plans[] = {&of->forward.plan, &of->data.plan};
    cod_emulated_launches(nullptr);
    assert_ok(cuda_pack_plans(plans, 2, updated, test_cuda.device->stream));
    return cod_emulated_launches(nullptr);
}

/**
 * With clipping and an average, with vectors that copies divide and without, in parts, and from a recording made before
 * the copies.
 */
TEST(updates_write_copies)
{
    static const cod_optimiser_kind kinds[] = {COD_OPT_SGD, COD_OPT_ADAM, COD_OPT_ADAMW};
    const cod_backend *b = test_cuda.backend;
    for (const cod_optimiser_kind kind : kinds) {
        for (size_t before = 0; before <= BEFORE; before++) {
            trained t;
            cod_recording *recording;
            trained_open(&t, before);
            cod_plan *whole = new_update(&t, kind, 0, SET);
            cod_plan *parts[] = {new_update(&t, kind, 0, 50), new_update(&t, kind, 50, SET - 50)};
            assert_int_equal(launches_of_prepare(&t, true), 1); /* no update has written them yet */
            for (int round = 0; round < 3; round++) {
                assert_ok(b->plan_run(whole, nullptr));
                assert_true(are_rounded(&t, before));
                assert_int_equal(launches_of_prepare(&t, true), 0);
                assert_ok(b->plan_run(parts[0], nullptr));
                assert_ok(b->plan_run(parts[1], nullptr));
                assert_true(are_rounded(&t, before));
            }
            assert_ok(b->capture_begin(test_cuda.device, nullptr));
            assert_ok(b->plan_run(whole, nullptr));
            assert_ok(b->capture_end(test_cuda.device, nullptr, &recording));
            cuda_plan_clear(&t.forward.plan);
            cuda_plan_clear(&t.data.plan);
            assert_ok(b->recording_run(recording, nullptr)); /* while there are no copies */
            const cod_view weights = vector_at(t.values, before, ROWS, COLUMNS);
            const cod_view bias = stretch(t.values, before + VALUES, ROWS);
            reader_open(&t.forward, &weights, &bias);
            reader_open(&t.data, &weights, nullptr);
            assert_int_equal(launches_of_prepare(&t, true), 1);
            assert_true(are_rounded(&t, before));
            assert_ok(b->recording_run(recording, nullptr));
            assert_int_equal(launches_of_prepare(&t, true), 0);
            assert_true(are_rounded(&t, before));
            b->recording_destroy(recording);
            b->plan_destroy(whole);
            b->plan_destroy(parts[0]);
            b->plan_destroy(parts[1]);
            trained_close(&t);
        }
    }
}

/**
 * What a merge, a load or an average does: it writes weights, and the plans are prepared without a word of an update.
 */
TEST(other_writes_are_rounded)
{
    trained t;
    trained_open(&t, BEFORE);
    cod_plan *whole = new_update(&t, COD_OPT_ADAM, 0, SET);
    assert_int_equal(launches_of_prepare(&t, false), 1);
    for (int round = 0; round < 2; round++) {
        assert_ok(test_cuda.backend->plan_run(whole, nullptr));
        assert_int_equal(launches_of_prepare(&t, true), 0);
        write_values(t.values, SET, 3.1f, 0.7f + static_cast<float>(round));
        assert_int_equal(launches_of_prepare(&t, true), 0);
        assert_false(are_rounded(&t, BEFORE)); /* the planted fault: it is called an update */
        assert_int_equal(launches_of_prepare(&t, false), 1);
        assert_true(are_rounded(&t, BEFORE));
    }
    test_cuda.backend->plan_destroy(whole);
    trained_close(&t);
}

/** Of copies that overlap an update writes the one that was there first; the others are rounded each time. */
TEST(copies_that_overlap_are_rounded)
{
    trained t;
    reader half;
    trained_open(&t, BEFORE);
    const cod_view part = vector_at(t.values, BEFORE, ROWS / 2, COLUMNS);
    reader_open(&half, &part, nullptr);
    cod_plan *whole = new_update(&t, COD_OPT_ADAMW, 0, SET), *plans[] = {&half.plan};
    for (int round = 0; round < 2; round++) {
        assert_ok(cuda_pack_plans(plans, 1, true, test_cuda.device->stream));
        assert_int_equal(launches_of_prepare(&t, true), round == 0);
        assert_true(is_rounded(&t, half.parts.weights, BEFORE, VALUES / 2));
        assert_ok(test_cuda.backend->plan_run(whole, nullptr));
        assert_true(is_rounded(&t, t.forward.parts.weights, BEFORE, VALUES));
        assert_false(is_rounded(&t, half.parts.weights, BEFORE, VALUES / 2));
    }
    cuda_plan_clear(&half.plan);
    test_cuda.backend->plan_destroy(whole);
    trained_close(&t);
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
    assert_ok(cuda_pack_plans(plans, MANY, false, test_cuda.device->stream));
    assert_int_equal(cod_emulated_launches(nullptr), shared ? 1 : 2);
    for (int i = 0; i < MANY; i++) {
        expect_copy(readers[i].parts.weights, shared ? VALUES : 1 + i / VALUES, -1, shared ? 0 : i % VALUES);
        cuda_plan_clear(&readers[i].plan);
    }
    assert_null(test_cuda.device->rounded);
    test_cuda.backend->buffer_destroy(test_cuda.device, l.buffer);
}

TEST(many_copies_take_a_launch_for_each_256)
{
    expect_launches(false);
}

TEST(many_plans_of_one_copy_take_one_launch)
{
    expect_launches(true);
}

/** The launches that one plan takes after what is said to be an update: none where the update wrote its copy. */
static size_t launches_behind_update(reader *of)
{
    cod_plan *plans[] = {&of->plan};
    cod_emulated_launches(nullptr);
    assert_ok(cuda_pack_plans(plans, 1, true, test_cuda.device->stream));
    return cod_emulated_launches(nullptr);
}

/** An update counts floats one after another: where weights have gaps, or are bf16, it writes no copy. */
TEST(copies_of_other_than_dense_floats_are_rounded)
{
    layer l;
    reader reads;
    layer_open(&l);
    cod_view parted = vector_at(l.buffer, 0, ROWS, COLUMNS / 2), narrow = vector_at(l.buffer, 0, ROWS, COLUMNS);
    parted.pixel_stride = COLUMNS;
    narrow.dtype = COD_BF16;
    const cod_view *const views[] = {&parted, &narrow, &l.weights};
    for (int i = 0; i < 3; i++) {
        fill(&l, 5.5f);
        reader_open(&reads, views[i], nullptr);
        assert_int_equal(launches_behind_update(&reads), 1);
        assert_int_equal(launches_behind_update(&reads), i < 2);
        for (int row = 0; i == 0 && row < ROWS; row++)
            expect_copy(reads.parts.weights + row * COLUMNS / 2, COLUMNS / 2, 5.5f, row * COLUMNS);
        cuda_plan_clear(&reads.plan);
    }
    test_cuda.backend->buffer_destroy(test_cuda.device, l.buffer);
}

/** An update writes as many copies as its list has room for; those that come later are rounded each time. */
TEST(copies_past_the_list_are_rounded)
{
    enum { MANY = ROUNDED_LISTED + 2 };
    static reader readers[MANY];
    cod_buffer *buffer;
    assert_ok(test_cuda.backend->buffer_create(test_cuda.device, MANY * sizeof(float), &buffer));
    for (size_t i = 0; i < MANY; i++) {
        const cod_view weight = vector_at(buffer, i, 1, 1);
        reader_open(&readers[i], &weight, nullptr);
        if (i >= MANY - 4) {
            assert_int_equal(launches_behind_update(&readers[i]), 1);
            assert_int_equal(launches_behind_update(&readers[i]), i >= ROUNDED_LISTED);
        }
    }
    for (int i = 0; i < MANY; i++)
        cuda_plan_clear(&readers[i].plan);
    assert_null(test_cuda.device->rounded);
    test_cuda.backend->buffer_destroy(test_cuda.device, buffer);
}

TEST_GROUP(test_pair_open, test_pair_close)

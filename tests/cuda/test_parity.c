#include "support/test.h"

#include "core/rng.h"
#include "cuda/cuda.h"
#include "emulated/emulated.h"
#include "pair.h"
#include "support/parity.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/** Random ops of each kind against `ref`; on the emulated GPU in several orders of threads and blocks. */

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 15 };
#else
enum { SEEDS = 60 };
#endif

/** A single slope's gradient is one sum of both signs. */
static cod_tolerance tolerance_of(cod_op_kind kind, cod_dtype dtype)
{
    return cod_parity_tolerance(kind == COD_OP_ACTIVATION_BACKWARD ? COD_OP_MEAN : kind, dtype);
}

/** In an order of blocks and threads that follows from the seed. Halves of normalisations: test_norm_halves.c. */
static const cod_parity cuda = {
    &test_ref, &test_cuda, tolerance_of, cod_test_is_norm_half, cod_emulated_set_seed, cod_emulated_faults,
};

TEST(kinds_agree_with_ref_in_f32)
{
    cod_parity_kinds(&cuda, COD_F32, SEEDS);
}

TEST(kinds_agree_with_ref_in_bf16)
{
    cod_parity_kinds(&cuda, COD_BF16, SEEDS);
}

/** Another shape, with `gap` elements between pixels; absent views stay so. */
static void set_shape(cod_view *view, cod_shape shape, int64_t gap)
{
    if (cod_shape_count(view->shape) == 0)
        return;
    view->shape = shape;
    view->pixel_stride = shape.c + gap;
}

/** Gaps between pixels: none, one that leaves vectors whole, one that does not. */
static int64_t gap_of(uint64_t seed)
{
    return seed % 4 == 1 ? 16 : seed % 4 == 2 ? 6 : 0;
}

/** Activations get this shape, vectors by channel its channels; a single slope stays single. */
static void set_shapes(cod_op *op, cod_shape shape, uint64_t seed)
{
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
        const char letter = cod_test_slot_class(op->kind, slot);
        cod_view *view = cod_test_view(op, slot);
        if (letter == 'a')
            set_shape(view, shape, gap_of(seed));
        else if (cod_shape_count(view->shape) > 1)
            set_shape(view, (cod_shape){1, 1, 1, shape.c}, 0);
    }
}

/** Several blocks by pixels and by channels; whole vectors, some of which are left, and none. */
TEST(large_shapes_agree_with_ref)
{
    static const int64_t channels[] = {3, 8, 24, 64, 72, 136};
    static const cod_op_kind same[] = {COD_OP_NORM_TRAIN,    COD_OP_NORM_INFERENCE,
                                       COD_OP_NORM_BACKWARD, COD_OP_NORM_INFERENCE_BACKWARD,
                                       COD_OP_ACTIVATION,    COD_OP_ACTIVATION_BACKWARD,
                                       COD_OP_ADD,           COD_OP_MEAN,
                                       COD_OP_FILL,          COD_OP_LOSS};
    for (uint64_t seed = 0; seed < SEEDS / 2; seed++) {
        for (size_t k = 0; k < sizeof same / sizeof same[0]; k++) {
            const cod_dtype dtype = seed % 2 ? COD_F32 : COD_BF16;
            cod_op op = cod_test_random_op(same[k], dtype, COD_F32, seed);
            const bool rows = op.attr.loss == COD_LOSS_KL || op.attr.loss == COD_LOSS_CROSS_ENTROPY;
            if (op.outputs[0].shape.c == 1 && same[k] != COD_OP_LOSS) /* slopes by channel look like single ones */
                continue;
            if (same[k] == COD_OP_LOSS && seed % 5 == 0) { /* seldom drawn with a gradient and with vectors */
                op.attr.loss = COD_LOSS_TV;
                op.outputs[1] = op.inputs[0];
                op.inputs[1] = op.outputs[2] = (cod_view){.buffer = NULL};
            }
            if (same[k] != COD_OP_LOSS || !rows || op.attr.loss == COD_LOSS_TV)
                set_shapes(&op, (cod_shape){3, 13, 17, channels[seed / 2 % 6]}, seed / 3);
            cod_parity_op(&cuda, &op, dtype, seed);
        }
    }
}

/** A block for each row, a warp, and parts of one. */
TEST(rows_of_classes_agree_with_ref)
{
    static const int64_t classes[] = {1, 3, 10, 33, 128, 129, 1000};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const cod_dtype dtype = seed % 2 ? COD_F32 : COD_BF16;
        cod_op op = cod_test_random_op(COD_OP_LOSS, dtype, COD_F32, seed);
        op.attr.loss = seed / 2 % 2 ? COD_LOSS_KL : COD_LOSS_CROSS_ENTROPY;
        op.inputs[1] = op.inputs[0]; /* total variation, which has no target, may have been drawn */
        set_shapes(&op, (cod_shape){seed % 3 == 0 ? 70 : 3, 1, 1, classes[seed % 7]}, seed / 4);
        cod_parity_op(&cuda, &op, dtype, seed);
    }
}

TEST(pools_of_vectors_agree_with_ref)
{
    static const int64_t channels[] = {8, 16, 72};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const cod_dtype dtype = seed % 2 ? COD_F32 : COD_BF16;
        const bool backward = seed / 2 % 2;
        cod_op op = cod_test_random_op(backward ? COD_OP_POOL_BACKWARD : COD_OP_POOL, dtype, COD_F32, seed);
        const cod_op_attr *attr = &op.attr;
        const cod_shape x = {3, 7, 13, channels[seed % 3]};
        const cod_shape y = cod_test_pooled(attr, x);
        const int64_t gap = gap_of(seed / 4);
        set_shape(&op.inputs[0], backward ? y : x, gap);
        set_shape(&op.inputs[1], y, gap);
        set_shape(&op.outputs[0], backward ? x : y, gap);
        set_shape(&op.outputs[1], y, gap);
        cod_parity_op(&cuda, &op, dtype, seed);
    }
}

TEST(enlargements_of_vectors_agree_with_ref)
{
    static const cod_op_kind enlarging[] = {COD_OP_PIXEL_SHUFFLE, COD_OP_PIXEL_UNSHUFFLE, COD_OP_RESIZE,
                                            COD_OP_RESIZE_BACKWARD};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const cod_dtype dtype = seed % 2 ? COD_F32 : COD_BF16;
        const size_t k = seed / 2 % 4;
        cod_op op = cod_test_random_op(enlarging[k], dtype, COD_F32, seed);
        const int64_t r = op.attr.factor, c = seed % 3 == 0 ? 40 : 8;
        const cod_shape small = {2, 5, 7, k < 2 ? c * r * r : c}, large = {2, 5 * r, 7 * r, c};
        set_shape(&op.inputs[0], k % 2 ? large : small, gap_of(seed / 8));
        set_shape(&op.outputs[0], k % 2 ? small : large, gap_of(seed / 8));
        cod_parity_op(&cuda, &op, dtype, seed);
    }
}

/** Views of different types, and casts. */
TEST(mixed_types_agree_with_ref)
{
    static const cod_op_kind mixed[] = {COD_OP_ADD,        COD_OP_LOSS,          COD_OP_RESIZE,
                                        COD_OP_ACTIVATION, COD_OP_NORM_BACKWARD, COD_OP_POOL};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cod_op op = cod_test_random_op(mixed[seed % 6], COD_BF16, COD_F32, seed);
        const bool rows = op.attr.loss == COD_LOSS_KL || op.attr.loss == COD_LOSS_CROSS_ENTROPY;
        if (seed % 6 == 0 || (seed % 6 == 1 && !rows))
            set_shapes(&op, (cod_shape){3, 13, 17, 8}, seed / 6);
        op.inputs[0].dtype = COD_F32;
        cod_parity_op(&cuda, &op, COD_BF16, seed);
    }
}

/** Arrays that begin at, between and at different distances from 16-byte boundaries. */
TEST(parameters_at_any_place_agree_with_ref)
{
    static const cod_op_kind updates[] = {COD_OP_GRAD_NORM, COD_OP_OPTIMISER, COD_OP_EMA};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (size_t k = 0; k < 3; k++) {
            cod_op op = cod_test_random_op(updates[k], COD_F32, COD_F32, seed);
            const int64_t count = seed % 3 == 0 ? (int64_t)seed / 3 % 9 + 1 : 4990 + (int64_t)seed % 8;
            for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++) {
                const bool scalar = slot == 1 || slot == 2 || (k == 0 && slot == COD_OP_MAX_INPUTS);
                const uint64_t place = seed / 4 % 4 + (seed % 5 == 0 ? slot % 2 : 0);
                if (!scalar) /* half of the gap lies before the array */
                    set_shape(cod_test_view(&op, slot), (cod_shape){1, 1, 1, count}, 2 * (int64_t)place);
            }
            cod_parity_op(&cuda, &op, COD_F32, seed);
        }
    }
}

/** Means of thousands of deviations, another in each channel; and a first pixel that lies far away from all others. */
TEST(large_means_keep_the_variance)
{
    enum { CHANNELS = 12, COUNT = 700 * CHANNELS };
    static const cod_tolerance tolerances[] = {{1e-4, 1e-4}, {1e-6, 1e-6}, {2e-5, 2e-5}};
    static double x[COUNT], results[2][3][COUNT];
    for (int outlier = 0; outlier < 2; outlier++) {
        cod_op op = {.kind = COD_OP_NORM_TRAIN, .attr = {.epsilon = 1e-5f}, .name = "norm"};
        op.inputs[0] = op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){7, 10, 10, CHANNELS});
        op.inputs[1] = op.inputs[2] = op.outputs[1] = op.outputs[2] =
            cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, CHANNELS});
        cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_TEST, 0);
        for (int i = 0; i < COUNT; i++)
            x[i] = (double)(float)(cod_rng_normal(&rng) + 1000 * (i % CHANNELS - 5));
        for (int i = 0; i < CHANNELS && outlier; i++)
            x[i] += 20;
        for (int on = 0; on < 2; on++)
            cod_test_run_values(on == 0 ? test_ref : test_cuda, &op, (const double *const[COD_OP_MAX_INPUTS]){x},
                                (double *const[]){results[on][0], results[on][1], results[on][2]}, 3);
        for (int out = 0; out < 3; out++)
            assert_ok(cod_test_compare("norm", results[1][out], results[0][out], out == 0 ? COUNT : CHANNELS,
                                       tolerances[out]));
    }
}

/** Squares that f32 cannot hold, or takes for zeros. */
TEST(norms_of_any_size_agree_with_ref)
{
    enum { COUNT = 3000 };
    static const double sizes[][2] = {{1e30, 1e30}, {1e-30, 1e-30}, {1e-40, 1e-40}, {1e30, 1},     {1e-30, 1e-3},
                                      {1e-16, 1},   {1e14, 1e13},   {0, 0},         {INFINITY, 1}, {NAN, 1e30}};
    static double grad[COUNT];
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        cod_op op = {.kind = COD_OP_GRAD_NORM, .name = "norm"};
        op.inputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, COUNT});
        op.outputs[0] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 1, 1});
        double expected, actual;
        for (int i = 0; i < COUNT; i++)
            grad[i] = sizes[s][i % 7 == 0 ? 0 : 1] * (1 + i % 3);
        cod_test_run_values(test_ref, &op, (const double *const[COD_OP_MAX_INPUTS]){grad}, (double *const[]){&expected},
                            1);
        cod_test_run_values(test_cuda, &op, (const double *const[COD_OP_MAX_INPUTS]){grad}, (double *const[]){&actual},
                            1);
        const bool same = isfinite(expected) ? fabs(actual - expected) <= 1e-6 * expected
                          : isnan(expected)  ? isnan(actual)
                                             : actual == expected;
        if (!same)
            fail_msg("sizes %g and %g: norm %g, not %g", sizes[s][0], sizes[s][1], actual, expected);
    }
}

TEST(large_logits_agree_with_ref)
{
    cod_parity_large_logits(&cuda, 1e-6, 1e-44);
}

TEST(losses_show_nan)
{
    cod_parity_losses_show_nan(test_cuda);
}

/** Bytes with a table of what they count as; the values are copied, so that the bits are `ref`'s. */
TEST(turned_bytes_are_those_of_ref)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cod_op op = cod_test_random_op(COD_OP_TURN, COD_F32, COD_F32, seed);
        op.inputs[0].dtype = COD_U8;
        op.inputs[2] = cod_view_dense(NULL, 0, COD_F32, (cod_shape){1, 1, 256, op.inputs[0].shape.c});
        cod_emulated_set_seed(seed);
        assert_ok(cod_test_parity(test_ref, test_cuda, &op, seed, (cod_tolerance){0}));
        cod_test_assert_none(cod_emulated_faults, "seed %" PRIu64, seed);
    }
}

/** Kernels read mapped memory of the host where it is. */
TEST(plans_read_pinned_memory)
{
    enum { COUNT = 100000 };
    const cod_backend *b = test_cuda.backend;
    const cod_shape shape = {1, 1, 1, COUNT};
    static float back[COUNT];
    cod_buffer *pinned, *target;
    cod_plan *plan;
    assert_true(b->maps_host_buffers);
    assert_ok(b->host_buffer_create(test_cuda.device, COUNT * sizeof(float), &pinned));
    assert_ok(b->buffer_create(test_cuda.device, COUNT * sizeof(float), &target));
    const cod_op op = {.kind = COD_OP_ADD,
                       .attr.alpha = 1,
                       .inputs = {cod_view_dense(pinned, 0, COD_F32, shape)},
                       .outputs = {cod_view_dense(target, 0, COD_F32, shape)}};
    assert_ok(b->plan_create(test_cuda.device, &op, &plan));
    for (int round = 0; round < 3; round++) { /* each time other values at one address */
        for (int i = 0; i < COUNT; i++)
            ((float *)pinned->host)[i] = (float)(i + round) / 7;
        assert_ok(b->plan_run(plan, NULL));
        assert_ok(b->download(test_cuda.device, NULL, back, target, 0, sizeof back));
        assert_memory_equal(back, pinned->host, sizeof back);
    }
    b->plan_destroy(plan);
    b->buffer_destroy(test_cuda.device, target);
    b->host_buffer_destroy(test_cuda.device, pinned);
}

/** All outputs of an op, one after the other; @return how many numbers. */
static size_t read_outputs(cod_test_op *test, double *out, size_t room)
{
    size_t at = 0;
    for (size_t slot = COD_OP_MAX_INPUTS; slot < COD_TEST_SLOTS; slot++) {
        const size_t count = (size_t)cod_shape_count(cod_test_view(&test->op, slot)->shape);
        if (test->buffers[slot] == NULL)
            continue;
        assert_true(at + count <= room);
        assert_ok(cod_test_op_read(test, slot, out + at));
        at += count;
    }
    return at;
}

/** A plan gives the same bits each time, in whatever order its blocks and threads run. */
TEST(sums_do_not_depend_on_the_order)
{
    enum { CHANNELS = 24, COUNT = 3 * 13 * 17 * CHANNELS, ROOM = 3 * COUNT, RUNS = 4 };
    static const cod_op_kind summing[] = {COD_OP_NORM_TRAIN, COD_OP_NORM_BACKWARD, COD_OP_ACTIVATION_BACKWARD,
                                          COD_OP_MEAN,       COD_OP_LOSS,          COD_OP_GRAD_NORM};
    static double results[2][ROOM];
    for (size_t k = 0; k < sizeof summing / sizeof summing[0]; k++) {
        cod_op op = cod_test_random_op(summing[k], COD_F32, COD_F32, 5);
        cod_test_op test;
        op.accumulate = false;
        if (summing[k] == COD_OP_GRAD_NORM)
            set_shape(&op.inputs[0], (cod_shape){1, 1, 1, COUNT}, 0);
        else
            set_shapes(&op, (cod_shape){3, 13, 17, CHANNELS}, 0);
        if (summing[k] == COD_OP_LOSS) {
            op.attr.loss = COD_LOSS_MSE;
            op.inputs[1] = op.inputs[0];
        }
        assert_ok(cod_test_op_init(&test, test_cuda, &op));
        for (size_t run = 0; run < RUNS; run++) {
            cod_emulated_set_seed(run);
            assert_ok(cod_test_op_randomise(&test, 1, false)); /* outputs, too: nothing is left of the run before */
            assert_ok(cod_test_op_run(&test));
            const size_t count = read_outputs(&test, results[run > 0], ROOM);
            for (size_t i = 0; i < count && run > 0; i++)
                if (!(results[0][i] == results[1][i]))
                    fail_msg("%s, run %zu, number %zu: %.9g, not %.9g", cod_op_kind_name(summing[k]), run, i,
                             results[1][i], results[0][i]);
        }
        cod_test_op_clear(&test);
    }
}

TEST(averages_have_the_bits_of_ema)
{
    static const int64_t counts[] = {1, 30, 4990, 4993};
    for (uint64_t seed = 0; seed < 20; seed++)
        assert_ok(cod_test_average(test_cuda, counts[seed % 4], seed));
}

/** put() writes its words behind the queue's work, and nothing beside them. */
TEST(put_writes_its_words_alone)
{
    enum { ROOM = 2 * COD_PUT_BYTES, OFFSET = 52 };
    static const size_t sizes[] = {0, 4, 36, COD_PUT_BYTES - 4, COD_PUT_BYTES};
    const cod_backend *backend = test_cuda.backend;
    unsigned char before[ROOM], source[COD_PUT_BYTES], after[ROOM];
    cod_buffer *buffer = NULL;
    assert_ok(backend->buffer_create(test_cuda.device, ROOM, &buffer));
    memset(before, 0xA5, sizeof before);
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (unsigned char)(i * 7 + 1);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        assert_ok(backend->upload(test_cuda.device, NULL, buffer, 0, before, ROOM));
        assert_ok(backend->put(test_cuda.device, NULL, buffer, OFFSET, source, sizes[s]));
        assert_ok(backend->download(test_cuda.device, NULL, after, buffer, 0, ROOM));
        assert_memory_equal(after, before, OFFSET);
        assert_memory_equal(after + OFFSET, source, sizes[s]);
        assert_memory_equal(after + OFFSET + sizes[s], before, ROOM - OFFSET - sizes[s]);
    }
    assert_fails(COD_ERR_ARGUMENT, "put() of 6 bytes", backend->put(test_cuda.device, NULL, buffer, 0, source, 6));
    assert_fails(COD_ERR_ARGUMENT, "at offset 2", backend->put(test_cuda.device, NULL, buffer, 2, source, 4));
    backend->buffer_destroy(test_cuda.device, buffer);
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)

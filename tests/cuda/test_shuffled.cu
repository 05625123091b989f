/**
 * 3x3 convolutions of 64 channels that shuffle pixels, by warpgroups: to the bits of `ref`, with faults planted in the
 * kernel, and when the kernel is taken.
 */
#include "cuda/conv_device.cuh"

#include <cstdlib>

/** What the planted kernel does wrong beside `missing`. */
static enum { NOTHING, NEIGHBOURS_TRANSPOSED, NAN_SWALLOWED } wrong;

static int planted_output(int channel, int outputs, int factor)
{
    const int cells = factor * factor, output = conv_output_of(channel, outputs, factor), cell = output % cells;
    return wrong == NEIGHBOURS_TRANSPOSED ? output - cell + cell % factor * factor + cell / factor : output;
}

static float planted_finish(cod_activation kind, float x, float slope)
{
    return wrong == NAN_SWALLOWED && !(x > 0) && slope == 0 ? 0 : finish(kind, x, slope);
}

#define conv_output_of           planted_output
#define finish                   planted_finish
#define conv3_shuffled_fits      planted_shuffled_fits
#define conv3_shuffled_is_better planted_shuffled_is_better
#define conv3_shuffled_make      planted_shuffled_make
#include "planted_conv3.cuh"

#include "cuda/conv3_plan.cu"
#include "cuda/conv3_shuffled.cu"
#include "cuda/conv3_tiles.cu"

#include "exact.cuh"

#include <cmath>

/** Multiprocessors of the emulated GPU, which leave a block several tiles, and those of an H100. */
enum { FEW = 4, H100 = 132 };

struct shuffled {
    cod_shape x;
    int64_t outputs;
    int factor;
    cod_activation activation;
    int64_t slopes;   /**< 2 = one for each channel of the picture */
    bool bias, apart; /**< apart: what goes into the activation is kept */
};

/** Pictures smaller than a tile, with edges within it, and of several tiles. */
static const shuffled cases[] = {
    {{1, 1, 1, 64}, 256, 2, COD_ACT_PRELU, 1, true, true},
    {{2, 5, 7, 64}, 256, 2, COD_ACT_PRELU, 2, true, true},
    {{3, 9, 3, 64}, 256, 2, COD_ACT_PRELU, 2, false, false},
    {{1, 17, 11, 64}, 256, 2, COD_ACT_LEAKY_RELU, 0, false, true},
    {{1, 7, 19, 64}, 128, 2, COD_ACT_RELU, 0, true, false},
    {{2, 6, 5, 64}, 256, 4, COD_ACT_PRELU, 2, true, true},
    {{1, 3, 66, 64}, 128, 2, COD_ACT_NONE, 0, true, false},
    {{2, 8, 8, 64}, 256, 2, COD_ACT_NONE, 0, false, false},
};

static cod_op op_of(const shuffled &c)
{
    const cod_test_layer layer = {c.x.n, c.x.h, c.x.w, c.x.c, c.outputs, 3, 1, 1};
    cod_op op = cod_test_layer_op(&layer, COD_OP_CONV2D, {COD_BF16, COD_BF16, 0, 0}, c.factor);
    if (!c.bias)
        cod_test_without_bias(&op);
    op.attr.activation = c.activation;
    op.attr.leak = 0.25f;
    if (c.slopes > 0)
        op.inputs[CONV_SLOPE] = cod_test_view_of(COD_F32, {1, 1, 1, c.slopes > 1 ? op.outputs[0].shape.c : 1}, 0);
    if (c.apart)
        op.outputs[CONV_ACTIVATED] = op.outputs[0];
    return op;
}

static cod_status make_planted(cod_plan *plan, const cuda_candidate *)
{
    return planted_shuffled_make(plan);
}

/** Both devices' ops with the same integers; the GPU's has run. `x`: NULL, or what is in the first element of x. */
static cod_status run(const shuffled &c, uint64_t seed, const double *x, cod_test_op *expected, cod_test_op *actual)
{
    static const cuda_candidate planted = {make_planted, nullptr, 0};
    const cod_op op = op_of(c);
    cod_op alone = op;
    cod_emulated_set_seed(seed);
    assert_ok(cod_test_op_init(actual, test_cuda, &op));
    if (c.apart) {
        alone.attr.activation = COD_ACT_NONE;
        alone.inputs[CONV_SLOPE] = {};
    }
    assert_ok(cod_test_op_init(expected, test_ref, &alone));
    cod_test_op *const both[] = {expected, actual};
    for (cod_test_op *each : both) {
        write_integers(each, seed);
        if (x == nullptr)
            continue;
        double *values = values_of(each, 0);
        values[0] = *x;
        assert_ok(cod_test_op_write(each, 0, values));
        free(values);
    }
    assert_ok(cod_test_op_run(expected));
    if (c.apart)
        apply_join(expected, actual);
    assert_ok(remake(actual, &planted));
    return cod_test_op_run(actual);
}

/** Whether the planted kernel gives what `ref` gives, without a fault. */
static bool agrees(const shuffled &c, uint64_t seed)
{
    cod_test_op expected, actual;
    char message[256];
    cod_status status = run(c, seed, nullptr, &expected, &actual);
    const size_t faults = cod_emulated_faults(message, sizeof message);
    COD_THEN(status, compare_outputs(&expected, &actual));
    cod_test_op_clear(&expected);
    cod_test_op_clear(&actual);
    return status == COD_OK && faults == 0;
}

TEST(all_shapes_agree)
{
    static const int multiprocessors[] = {FEW, H100};
    uint64_t seed = 0;
    for (const int many : multiprocessors) {
        test_cuda.device->multiprocessors = many;
        for (const shuffled &c : cases)
            if (!agrees(c, ++seed))
                fail_msg("%d multiprocessors, case %d: %s", many, static_cast<int>(&c - cases), cod_error_message());
    }
    test_cuda.device->multiprocessors = FEW;
}

/** Each barrier, fence and wait is needed, in blocks whose groups have several tiles. */
TEST(a_missing_barrier_is_found)
{
    static const shuffled several = {{1, 17, 16, 64}, 128, 2, COD_ACT_RELU, 0, true, false};
    test_cuda.device->multiprocessors = 1;
    assert_true(agrees(several, 1));
    for (missing = 0; missing < BARRIERS + WAITS; missing++) {
        bool found = false;
        for (uint64_t seed = 0; seed < 4 && !found; seed++)
            found = !agrees(several, seed);
        if (!found)
            fail_msg("barrier %d is missing, and no order of threads shows it", missing);
    }
    missing = -1;
    test_cuda.device->multiprocessors = FEW;
}

TEST(wrong_places_are_found)
{
    wrong = NEIGHBOURS_TRANSPOSED;
    assert_false(agrees(cases[1], 1));
    wrong = NOTHING;
}

/** How many elements of the outputs are NaN on one device alone, or differ. */
static int differences(cod_test_op *expected, cod_test_op *actual, int *nans)
{
    int found = 0;
    for (size_t slot = COD_OP_MAX_INPUTS; slot < COD_TEST_SLOTS; slot++) {
        if (actual->buffers[slot] == nullptr)
            continue;
        double *theirs = values_of(expected, slot), *ours = values_of(actual, slot);
        for (int64_t i = 0; i < cod_shape_count(cod_test_view(&actual->op, slot)->shape); i++) {
            *nans += std::isnan(theirs[i]);
            found += std::isnan(theirs[i]) ? !std::isnan(ours[i]) : ours[i] != theirs[i];
        }
        free(theirs);
        free(ours);
    }
    return found;
}

/** NaN passes, and minus infinity becomes ReLU's 0. */
static int differences_with(const shuffled &c, double x, int *nans)
{
    cod_test_op expected, actual;
    assert_ok(run(c, 3, &x, &expected, &actual));
    const int found = differences(&expected, &actual, nans);
    no_faults("NaN");
    cod_test_op_clear(&expected);
    cod_test_op_clear(&actual);
    return found;
}

TEST(activations_select)
{
    static const shuffled relu = cases[4], prelu = cases[1];
    int nans = 0;
    assert_int_equal(differences_with(relu, -INFINITY, &nans), 0);
    assert_int_equal(differences_with(prelu, NAN, &nans), 0);
    assert_true(nans > 0);
    assert_int_equal(differences_with(relu, NAN, &nans), 0);
    wrong = NAN_SWALLOWED;
    assert_true(differences_with(relu, NAN, &nans) > 0);
    wrong = NOTHING;
}

/** Whether the kernel is taken where nothing is timed, for tensors that are not there. */
static bool is_taken(int capability, int64_t images, int64_t height, int *tile_h, int *tile_w)
{
    cod_device h100 = *test_cuda.device;
    h100.multiprocessors = H100;
    h100.capability = capability;
    const shuffled c = {{images, height, height, 64}, 256, 2, COD_ACT_PRELU, 1, true, true};
    cuda_buffer nowhere = {};
    cod_op op = op_of(c);
    nowhere.memory = reinterpret_cast<void *>(256);
    for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
        if (cod_shape_count(cod_test_view(&op, slot)->shape) > 0)
            cod_test_view(&op, slot)->buffer = &nowhere.base;
    op.inputs[4].buffer = nullptr;
    cod_plan plan = {};
    conv3_choice choice;
    plan.device = &h100;
    plan.ops = &op;
    plan.count = 1;
    if (planted_shuffled_fits(&plan)) {
        assert_true(choose(&plan, &choice));
        *tile_h = choice.work.tile_h;
        *tile_w = choice.work.tile_w;
    } else {
        *tile_h = *tile_w = 0;
    }
    return planted_shuffled_is_better(&plan);
}

/** The upsamplers of SRResNet on an H100, by batch; a batch of 64 runs in slices of 16, one of 256 in such of 64. */
TEST(large_batches_take_it)
{
    static const struct {
        int capability, images, height;
        bool taken;
        int tile_h, tile_w; /**< 0 = there is no such kernel */
    } expected[] = {{90, 16, 24, false, 6, 8}, {90, 16, 48, true, 8, 8},  {90, 64, 24, true, 8, 8},
                    {90, 64, 48, true, 8, 8},  {80, 64, 48, false, 0, 0}, {100, 64, 48, false, 0, 0}};
    for (const auto &e : expected) {
        int tile_h, tile_w;
        assert_int_equal(is_taken(e.capability, e.images, e.height, &tile_h, &tile_w), e.taken);
        assert_int_equal(tile_h, e.tile_h);
        assert_int_equal(tile_w, e.tile_w);
    }
}

TEST_GROUP(test_pair_open, test_pair_close)
TEST_DEVICE(cod_cuda_backend)

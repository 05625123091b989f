/** Kernels of conv3.cuh: by products of either kind, on GPUs with less shared memory, and with a barrier missing. */
#include "cuda/conv3.cuh"
#include "cuda/wgmma.cuh"

extern "C" {
#include "emulated/emulated.h"
#include "pair.h"
#include "sequence.h"
}

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

/** Lines that the planted kernels ask L2 for, and how often. */
static std::map<const unsigned char *, int> lines_asked;

static void planted_prefetch_line(const void *address)
{
    lines_asked[static_cast<const unsigned char *>(address)]++;
}

#define prefetch_line(address) planted_prefetch_line(address)
#define conv3_kernels_of_64    planted_kernels_of_64
#define conv3_kernels_of_any   planted_kernels_of_any
#define cuda_conv3_fuses       planted_fuses
#define cuda_make_conv3        planted_make
const conv3_kernel *planted_kernels_of_64();
const conv3_kernel *planted_kernels_of_any();
cuda_recogniser planted_fuses;
cuda_maker planted_make;
#include "planted_conv3.cuh"

#include "cuda/conv3_64.cu"
#include "cuda/conv3_any.cu"

/** Whether only kernels by warpgroups are there. */
static bool by_warpgroups;
static const conv3_kernel no_kernels[1] = {};
#define planted_kernels_of_64()  (by_warpgroups ? no_kernels : planted_kernels_of_64())
#define planted_kernels_of_any() (by_warpgroups ? no_kernels : planted_kernels_of_any())

#include "cuda/conv3_tiles.cu"

#include "cuda/conv3_plan.cu"

#include "cuda/conv3.cu"

extern "C" {
#include "support/test.h" /* last: cmocka defines `fail` */
}

/** Multiprocessors that leave each block several tiles of a small batch, and large ones. */
enum { FEW = 4 };

static sequence_case trunk()
{
    sequence_case c = {};
    c.from = {8, 24, 24, 64};
    c.outputs = 64;
    c.applies = c.reduces = true;
    c.apply = c.reduce = COD_ACT_PRELU;
    return c;
}

/** Whether the planted kernels give what the ops give one after another. */
static bool planted_agrees(const sequence_case &c, uint64_t seed)
{
    sequence fused, apart;
    cod_plan *plan = nullptr;
    char message[256];
    test_cuda.device->multiprocessors = FEW;
    cod_emulated_set_seed(seed);
    assert_ok(sequence_init(&fused, test_cuda, &c, true, seed));
    assert_ok(sequence_init(&apart, test_cuda, &c, true, seed));
    assert_ok(sequence_run_apart(&apart));
    assert_ok(cuda_plan_create(test_cuda.device, fused.ops, fused.count, planted_make, "planted", &plan));
    assert_ok(test_cuda.backend->plans_prepare(test_cuda.device, &plan, 1, nullptr));
    const cod_status status = test_cuda.backend->plan_run(plan, nullptr);
    test_cuda.backend->plan_destroy(plan);
    const size_t faults = cod_emulated_faults(message, sizeof message);
    const bool agrees =
        status == COD_OK && faults == 0 && sequence_compare(&fused, &apart, {0, 0}, {2e-6, 2e-6}) == COD_OK;
    sequence_clear(&fused);
    sequence_clear(&apart);
    return agrees;
}

TEST(a_missing_barrier_is_found)
{
    for (int wide = 0; wide < 2; wide++) { /* the first ones have warpgroups alone */
        test_cuda.device->capability = wide ? 90 : 80;
        missing = -1;
        assert_true(planted_agrees(trunk(), 1) && planted_agrees(trunk(), 2));
        for (missing = wide ? 0 : OF_WARPGROUPS; missing < BARRIERS + (wide ? WAITS : 0); missing++) {
            bool found = false;
            for (uint64_t seed = 0; seed < 4 && !found; seed++)
                found = !planted_agrees(trunk(), seed);
            if (!found)
                fail_msg("barrier %d is missing, and no order of threads shows it", missing);
        }
    }
    missing = -1;
    test_cuda.device->capability = 90;
}

/** Pictures smaller than a tile, with edges within it, and of several tiles; each kind of load and store. */
TEST(warpgroups_take_all_shapes)
{
    static const cod_shape pictures[] = {{1, 1, 1, 64}, {2, 5, 7, 64}, {3, 25, 3, 64}, {1, 23, 41, 64}};
    by_warpgroups = true;
    for (int number = 0; number < 16; number++) {
        sequence_case c = trunk();
        c.from = pictures[number / 2 % 4];
        c.outputs = number % 3 == 0 ? 128 : 64;
        c.backward = number % 2 != 0;
        c.applies = number % 5 != 1;
        c.reduces = !c.applies || number % 5 != 2;
        c.bias = !c.backward;
        c.residual = c.by_channel = number / 4 % 2 != 0;
        c.accumulate = c.backward && number / 2 % 2 != 0;
        if (!planted_agrees(c, (uint64_t)number))
            fail_msg("case %d: %s", number, cod_error_message());
    }
    by_warpgroups = false;
}

/** Runs the planted kernels, which note the lines that they ask L2 for. */
static void ask_lines(sequence *s, const sequence_case *which)
{
    cod_plan *plan = nullptr;
    char message[256];
    missing = -1;
    lines_asked.clear();
    assert_ok(sequence_init(s, test_cuda, which, true, 1));
    assert_ok(cuda_plan_create(test_cuda.device, s->ops, s->count, planted_make, "planted", &plan));
    assert_ok(test_cuda.backend->plans_prepare(test_cuda.device, &plan, 1, nullptr));
    assert_ok(test_cuda.backend->plan_run(plan, nullptr));
    test_cuda.backend->plan_destroy(plan);
    assert_int_equal(cod_emulated_faults(message, sizeof message), 0);
}

/** Takes a tensor's lines out of those asked for. @return whether each was asked for once */
static bool take_lines(const cod_view *view)
{
    const unsigned char *first = cuda_view_of(view).data;
    const int64_t bytes = cod_shape_count(view->shape) * 2;
    bool once = true;
    for (int64_t at = 0; at < bytes; at += LINE_BYTES) {
        const auto found = lines_asked.find(first + at);
        once = once && found != lines_asked.end() && found->second == 1;
        if (found != lines_asked.end())
            lines_asked.erase(found);
    }
    return once;
}

/** A gradient asks L2 for all that it reads of the forward pass, and for nothing else; the forward pass for nothing. */
TEST(gradients_ask_for_what_the_forward_pass_made)
{
    static const int64_t heights[] = {24, 13}, images[] = {2, 16}, outputs[] = {64, 128};
    for (size_t i = 0; i < 2; i++) {
        sequence s;
        sequence_case c = trunk();
        c.from = {images[i], heights[i], 24, 64};
        c.outputs = outputs[i];
        ask_lines(&s, &c);
        assert_true(lines_asked.empty());
        sequence_clear(&s);
        c.backward = true;
        ask_lines(&s, &c);
        assert_true(take_lines(&s.ops[0].inputs[0]) && take_lines(&s.ops[2].inputs[0]) && lines_asked.empty());
        sequence_clear(&s);
        c.applies = false;
        ask_lines(&s, &c);
        assert_true(take_lines(&s.ops[1].inputs[0]) && lines_asked.empty());
        sequence_clear(&s);
    }
}

/** Where lines do not begin with pixels, too, they are the tensors'. */
TEST(lines_asked_for_are_within_the_tensors)
{
    sequence s;
    sequence_case c = trunk();
    c.from = {3, 7, 11, 48};
    c.outputs = 96;
    c.backward = true;
    ask_lines(&s, &c);
    const cuda_view x = cuda_view_of(&s.ops[0].inputs[0]), before = cuda_view_of(&s.ops[2].inputs[0]);
    assert_true(lines_asked.size() > 0);
    for (const auto &[line, times] : lines_asked)
        assert_true((line >= x.data && line < x.data + x.pixels * x.channels * 2) ||
                    (line >= before.data && line < before.data + before.pixels * before.channels * 2));
    sequence_clear(&s);
}

/** What fits: of A100 and of GPUs with 99 KiB; less of either, until nothing does. */
TEST(less_shared_memory_has_other_kernels)
{
    static const size_t kilobytes[] = {227, 163, 99, 48};
    const size_t all = test_cuda.device->shared_bytes;
    for (size_t i = 0; i < sizeof kilobytes / sizeof kilobytes[0]; i++) {
        for (int backward = 0; backward < 2; backward++) {
            sequence fused, apart;
            char message[256];
            sequence_case c = trunk();
            c.from = {2, 13, 24, i < 2 ? 128 : 64};
            c.backward = backward;
            assert_ok(sequence_init(&fused, test_cuda, &c, true, i));
            assert_ok(sequence_init(&apart, test_cuda, &c, true, i));
            test_cuda.device->shared_bytes = kilobytes[i] << 10;
            assert_ok(sequence_run_fused(&fused));
            test_cuda.device->shared_bytes = all;
            assert_ok(sequence_run_apart(&apart));
            assert_int_equal(cod_emulated_faults(message, sizeof message), 0);
            assert_ok(sequence_compare(&fused, &apart, {0, 0}, {2e-6, 2e-6}));
            sequence_clear(&fused);
            sequence_clear(&apart);
        }
    }
    sequence s;
    const sequence_case c = trunk();
    assert_ok(sequence_init(&s, test_cuda, &c, true, 1));
    test_cuda.device->shared_bytes = 20 << 10;
    assert_int_equal(test_cuda.backend->op_fuses(test_cuda.device, s.ops, s.count), 1);
    test_cuda.device->shared_bytes = all;
    assert_int_equal(test_cuda.backend->op_fuses(test_cuda.device, s.ops, s.count), 3);
    sequence_clear(&s);
}

/**
 * What is chosen for the trunk of SRResNet on an H100: small tiles for a small batch, in one round; large ones for a
 * large one.
 */
TEST(tiles_follow_from_the_batch)
{
    static const struct {
        int capability, images;
        bool wgmma;
        int rows, tile_h, tile_w, tiles, blocks, groups[2]; /**< forward and backward */
    } expected[] = {{80, 16, false, 96, 3, 24, 128, 128, {1, 1}},   {80, 64, false, 96, 12, 8, 384, 132, {3, 3}},
                    {80, 256, false, 192, 8, 24, 768, 132, {2, 2}}, {90, 16, false, 96, 3, 24, 128, 128, {1, 1}},
                    {90, 64, true, 192, 6, 24, 256, 132, {2, 2}},   {90, 256, true, 192, 8, 24, 768, 132, {3, 2}}};
    cod_device h100 = *test_cuda.device;
    h100.multiprocessors = 132;
    for (const auto &e : expected) {
        h100.capability = e.capability;
        for (int backward = 0; backward < 2; backward++) {
            sequence s;
            sequence_case c = trunk();
            c.backward = backward;
            assert_ok(sequence_init(&s, test_cuda, &c, true, 1));
            for (size_t i = 0; i < s.count; i++)
                for (size_t slot = 0; slot < COD_TEST_SLOTS; slot++)
                    if (cod_test_view(&s.ops[i], slot)->dtype == COD_BF16)
                        cod_test_view(&s.ops[i], slot)->shape.n = e.images;
            conv3_ops ops;
            conv3_choice choice;
            assert_int_equal(read_ops(s.ops, s.count, &ops), 3);
            assert_true(choose(&h100, &ops, CONV3_BY_ALL, &choice));
            assert_int_equal(choice.kernel.wgmma, e.wgmma);
            assert_int_equal(choice.kernel.rows, e.rows);
            assert_int_equal(choice.work.tile_h, e.tile_h);
            assert_int_equal(choice.work.tile_w, e.tile_w);
            assert_int_equal(choice.work.tiles, e.tiles);
            assert_int_equal(conv3_blocks(&h100, &choice.work, &choice.kernel), e.blocks);
            assert_int_equal(choice.groups, e.groups[backward]);
            if (choice.groups == 1) /* the next launch's block finds room beside it */
                assert_in_range(choice.work.places.end, 1, 113 << 10);
            sequence_clear(&s);
        }
    }
}

/**
 * The kernels of the largest tiles, which have most registers, by either kind of products; and those of any number of
 * channels.
 */
TEST(large_tiles_store_all_kinds)
{
    static const struct {
        int capability;
        int64_t channels;
        bool reduces, backward;
    } cases[] = {{80, 64, false, false}, {80, 64, true, false}, {80, 64, true, true},
                 {90, 64, false, false}, {90, 64, true, false}, {90, 64, true, true},
                 {90, 96, false, false}, {90, 96, true, false}, {90, 96, true, true}};
    test_cuda.device->multiprocessors = FEW;
    for (const auto &tried : cases) {
        test_cuda.device->capability = tried.capability;
        sequence fused, apart;
        char message[256];
        sequence_case c = trunk();
        conv3_ops ops;
        conv3_choice choice;
        c.from.c = tried.channels;
        c.reduces = tried.reduces;
        c.backward = tried.backward;
        cod_emulated_set_seed(1);
        assert_ok(sequence_init(&fused, test_cuda, &c, true, 1));
        assert_ok(sequence_init(&apart, test_cuda, &c, true, 1));
        assert_true(read_ops(fused.ops, fused.count, &ops) > 1 &&
                    choose(test_cuda.device, &ops, CONV3_BY_ALL, &choice));
        assert_int_equal(choice.kernel.rows, 192);
        assert_int_equal(choice.kernel.wgmma, tried.capability == 90 && tried.channels == 64);
        assert_ok(sequence_run_fused(&fused));
        assert_ok(sequence_run_apart(&apart));
        assert_int_equal(cod_emulated_faults(message, sizeof message), 0);
        assert_ok(sequence_compare(&fused, &apart, {0, 0}, {2e-6, 2e-6}));
        sequence_clear(&fused);
        sequence_clear(&apart);
    }
}

/**
 * The weight gradient of a layer of small integers, whose sums are exact in any order, on a GPU with so much shared
 * memory.
 */
static void check_gradient(int64_t channels, size_t kilobytes)
{
    const cod_shape picture = {8, 24, 24, channels}, filter = {channels, 3, 3, channels};
    const size_t all = test_cuda.device->shared_bytes, count = (size_t)cod_shape_count(filter);
    cod_op op = {};
    op.kind = COD_OP_CONV2D_BACKWARD_WEIGHTS;
    op.attr.stride_h = op.attr.stride_w = op.attr.pad_h = op.attr.pad_w = 1;
    op.inputs[0] = op.inputs[1] = cod_view_dense(nullptr, 0, COD_BF16, picture);
    op.outputs[0] = cod_view_dense(nullptr, 0, COD_F32, filter);
    cod_test_op tests[2] = {};
    std::vector<double> gradients[2] = {std::vector<double>(count), std::vector<double>(count)};
    test_cuda.device->shared_bytes = kilobytes << 10;
    for (int i = 0; i < 2; i++) {
        assert_ok(cod_test_op_init(&tests[i], i == 0 ? test_ref : test_cuda, &op));
        for (size_t slot = 0; slot < 2; slot++) {
            std::vector<double> values((size_t)cod_shape_count(picture));
            for (size_t at = 0; at < values.size(); at++)
                values[at] = (double)(at * at % (7 + 4 * slot)) - 3;
            assert_ok(cod_test_op_write(&tests[i], slot, values.data()));
        }
        assert_ok(cod_test_op_run(&tests[i]));
        assert_ok(cod_test_op_read(&tests[i], COD_OP_MAX_INPUTS, gradients[i].data()));
        cod_test_op_clear(&tests[i]);
    }
    test_cuda.device->shared_bytes = all;
    char message[256];
    assert_int_equal(cod_emulated_faults(message, sizeof message), 0);
    assert_true(gradients[0] == gradients[1]);
}

TEST(gradients_have_kernels_by_width_and_memory)
{
    check_gradient(48, 227);
    check_gradient(64, 99);
}

TEST_GROUP(test_pair_open, test_pair_close)

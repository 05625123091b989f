/**
 * What plans decide on the host, for devices and sizes that are not here: tiles of products, walks over views and over
 * flat arrays.
 */
#include "cuda/conv_library.cuh"
#include "cuda/conv_plan.cuh"
#include "cuda/update.cuh"
#include "cuda/walk.cuh"

#include <initializer_list>

extern "C" {
#include "pair.h"
#include "support/test.h" /* last: cmocka defines `fail` */
}

#include <vector>

static cod_device device_of(int multiprocessors, int shared_kilobytes)
{
    cod_device device = {};
    device.multiprocessors = multiprocessors;
    device.shared_bytes = static_cast<size_t>(shared_kilobytes) << 10;
    return device;
}

/* Products. */

static cuda_buffer nowhere = {{}, reinterpret_cast<void *>(0x10000)}; /* nothing reads or writes it */

static cod_view view_of(cod_dtype dtype, cod_shape shape)
{
    return cod_view_dense(&nowhere.base, 0, dtype, shape);
}

/** A convolution of {images, size, size, c} pictures; forward or, with their sizes, its data gradient. */
static cod_op convolution_of(bool backward, int64_t images, int64_t size, int64_t c, int64_t k, int stride)
{
    const cod_shape x = {images, size, size, c}, y = {images, size / stride, size / stride, k};
    cod_op op = {};
    op.kind = backward ? COD_OP_CONV2D_BACKWARD_DATA : COD_OP_CONV2D;
    op.attr.stride_h = op.attr.stride_w = stride;
    op.attr.pad_h = op.attr.pad_w = 1;
    op.inputs[0] = view_of(COD_BF16, backward ? y : x);
    op.inputs[1] = view_of(COD_F32, {k, 3, 3, c});
    op.outputs[0] = view_of(COD_BF16, backward ? x : y);
    return op;
}

static cod_op linear_of(cod_dtype dtype, int64_t rows, int64_t inputs, int64_t outputs)
{
    cod_op op = {};
    op.kind = COD_OP_LINEAR;
    op.inputs[0] = view_of(dtype, {rows, 1, 1, inputs});
    op.inputs[1] = view_of(COD_F32, {outputs, 1, 1, inputs});
    op.outputs[0] = view_of(dtype, {rows, 1, 1, outputs});
    return op;
}

/** The kernel that the cost model takes, which is the first candidate of those for any shape. */
static const conv_product_kernel *chosen(cod_device device, cod_op op)
{
    cod_plan plan = {};
    cuda_candidates list = {};
    plan.device = &device;
    plan.ops = &op;
    conv_own_candidates(&plan, &list);
    const cod_op_attr attr = conv_attributes(&op);
    const conv_product_kernel *kernels = conv_product_kernels(conv_multiplied_type(&op, &attr)), *first = nullptr;
    for (size_t i = 0; i < list.count; i++) {
        if (list.items[i].number < 0)
            continue;
        const conv_product_kernel *kernel = &kernels[list.items[i].number];
        assert_true(kernel->shared_bytes <= device.shared_bytes);
        first = first != nullptr ? first : kernel;
    }
    assert_non_null(first);
    return first;
}

static void check_tile(const cod_device &device, const cod_op &op, int rows, int columns)
{
    const conv_product_kernel *kernel = chosen(device, op);
    if (kernel->rows != rows || kernel->columns != columns)
        fail_msg("tiles of %dx%d, not %dx%d", kernel->rows, kernel->columns, rows, columns);
}

/* By hand: rounds over 132 multiprocessors x a tile's operations / the kernel's speed / how full 8 warps are. */
TEST(products_take_the_cheapest_tile)
{
    const cod_device h100 = device_of(132, 227);
    check_tile(h100, linear_of(COD_BF16, 100000, 1024, 1024), 128, 128); /* 48 rounds: 786, then 865, 1038 thousand */
    check_tile(h100, linear_of(COD_BF16, 100, 1024, 1024), 32, 32);      /* one round: 5120, then 10923, 13653 */
    check_tile(h100, linear_of(COD_BF16, 100000, 1024, 16), 128, 16);    /* 41 thousand, then 55, 61 */
    check_tile(h100, linear_of(COD_BF16, 1, 1024, 1), 32, 32);           /* 5120, then 10923, 13653 */
    check_tile(h100, linear_of(COD_F32, 100, 1024, 1024), 64, 64);       /* the only one */
    check_tile(h100, convolution_of(false, 16, 12, 64, 64, 1), 32, 32);  /* 2304 rows: 5120, then 10923 */
}

/** A stride of 2 makes four phases of as many rows each. */
TEST(phases_count_as_blocks)
{
    const cod_device h100 = device_of(132, 227);
    check_tile(h100, convolution_of(true, 16, 24, 64, 64, 2), 64, 64); /* 4 x 2304 rows: 10923, then 12800, 18204 */
    check_tile(h100, convolution_of(true, 16, 12, 64, 64, 1), 32, 32);
}

/**
 * Two to the 30 rows and 20 columns: 2^36 blocks of the largest tile. In 32 bits they would be none, and cost nothing.
 */
TEST(blocks_are_counted_in_64_bits)
{
    const cod_device h100 = device_of(132, 227), one = device_of(1, 227);
    const int64_t rows = (int64_t)1 << 29, columns = (int64_t)1 << 20;
    check_tile(h100, linear_of(COD_BF16, rows, 64, columns), 128, 128);
    check_tile(one, linear_of(COD_BF16, rows, 64, columns), 128, 128);
}

/** A T4's 64 KB hold the smallest tiles alone, and a kernel of each type; 99 KB all but the largest. */
TEST(products_fit_in_shared_memory)
{
    cod_op int8 = convolution_of(false, 16, 12, 64, 64, 1);
    int8.attr.int8_range = 4;
    const cod_device t4 = device_of(40, 64), ada = device_of(142, 99);
    check_tile(t4, linear_of(COD_BF16, 100000, 1024, 1024), 32, 32);
    check_tile(t4, linear_of(COD_F32, 100000, 1024, 1024), 64, 64);
    check_tile(t4, int8, 128, 16);
    assert_true(chosen(ada, linear_of(COD_BF16, 100000, 1024, 1024))->rows == 128);
}

/* Walks over views. */

static cuda_view pixels_of(cod_dtype dtype, int64_t pixels, int channels, int64_t gap)
{
    cuda_view view = {};
    view.data = reinterpret_cast<unsigned char *>(0x10000);
    view.pixels = pixels;
    view.channels = channels;
    view.stride = channels + gap;
    view.count = pixels * channels;
    view.dtype = dtype;
    return view;
}

/** Of two views; that the blocks have each pixel once and the columns all channels, and that a GPU takes the grid. */
static cuda_walk walk_of(const cod_device &device, cuda_view a, cuda_view b, cuda_walk_rule rule)
{
    cuda_view absent = {};
    const cuda_walk walk = cuda_walk_of(&device, {&a, &absent, &b, &absent}, rule);
    const int64_t lanes = cuda_lanes_width(walk.lanes);
    assert_int_equal(walk.pixels * walk.channels, a.count);
    assert_int_equal(walk.columns * lanes, walk.channels);
    assert_true(walk.width >= 1 && walk.rows >= 1 && walk.width * walk.rows <= CUDA_THREADS);
    assert_true(static_cast<int64_t>(walk.tiles) * walk.width >= walk.columns);
    assert_true(static_cast<int64_t>(walk.tiles - 1) * walk.width < walk.columns);
    assert_true(walk.share >= walk.rows && walk.share % walk.rows == 0);
    assert_true(walk.blocks * walk.share >= walk.pixels && (walk.blocks - 1) * walk.share < walk.pixels);
    const dim3 grid = cuda_walk_grid(walk);
    assert_true(grid.x == walk.blocks && grid.x <= 0x7FFFFFFFu && grid.y <= 65535 && grid.z <= 65535);
    assert_true(static_cast<int64_t>(grid.y) * grid.z >= walk.tiles);
    assert_true(walk.tiles > 65535 || grid.z == 1);
    return walk;
}

static cuda_walk walk_of_one(const cod_device &device, const cuda_view &view, cuda_walk_rule rule)
{
    return walk_of(device, view, cuda_view(), rule);
}

TEST(accesses_are_as_wide_as_views_allow)
{
    const cod_device h100 = device_of(132, 227);
    const cuda_walk_rule by_channel = {.by_channel = true}, mixed = {.by_channel = true, .mixed = true};
    const cuda_view f32 = pixels_of(COD_F32, 100, 24, 0), bf16 = pixels_of(COD_BF16, 100, 24, 0);
    assert_int_equal(walk_of(h100, f32, f32, by_channel).lanes, LANES_F32);
    assert_int_equal(walk_of(h100, bf16, bf16, by_channel).lanes, LANES_BF16);
    assert_int_equal(walk_of(h100, f32, bf16, by_channel).lanes, LANES_ANY);
    assert_int_equal(walk_of(h100, f32, bf16, mixed).lanes, LANES_MIXED);
    /* A width, a gap or a place that is no multiple of an access. */
    assert_int_equal(walk_of_one(h100, pixels_of(COD_F32, 100, 12, 0), by_channel).lanes, LANES_F32);
    assert_int_equal(walk_of_one(h100, pixels_of(COD_BF16, 100, 12, 0), by_channel).lanes, LANES_ANY);
    assert_int_equal(walk_of_one(h100, pixels_of(COD_F32, 100, 24, 4), by_channel).lanes, LANES_F32);
    assert_int_equal(walk_of(h100, f32, pixels_of(COD_F32, 100, 24, 2), by_channel).lanes, LANES_ANY);
    cuda_view shifted = bf16;
    shifted.data += 8;
    assert_int_equal(walk_of(h100, bf16, shifted, by_channel).lanes, LANES_ANY);
}

TEST(dense_views_become_rows_of_elements)
{
    const cod_device h100 = device_of(132, 227);
    assert_int_equal(walk_of_one(h100, pixels_of(COD_F32, 40, 3, 0), {}).channels, 8);
    assert_int_equal(walk_of_one(h100, pixels_of(COD_F32, 4, 3, 0), {}).channels, 4);
    assert_int_equal(walk_of_one(h100, pixels_of(COD_F32, 7, 3, 0), {}).channels, 1);
    const cuda_walk fours = walk_of_one(h100, pixels_of(COD_BF16, 4, 3, 0), {});
    assert_int_equal(fours.lanes, LANES_ANY); /* bf16 needs eights */
    assert_int_equal(walk_of_one(h100, pixels_of(COD_F32, 40, 3, 1), {}).channels, 3);
    assert_int_equal(walk_of(h100, pixels_of(COD_F32, 40, 3, 0), pixels_of(COD_F32, 40, 3, 1), {}).channels, 3);
    assert_int_equal(walk_of_one(h100, pixels_of(COD_F32, 40, 3, 0), {.by_channel = true}).channels, 3);
}

/** What walk_of() checks, at all kinds of sizes; small ones have one block. */
TEST(walks_cover_each_pixel_once)
{
    static const int64_t pixels[] = {1, 2, 255, 256, 257, 9409, 1000003};
    static const int channels[] = {1, 2, 3, 4, 8, 31, 64, 100, 256, 257, 1000, 4096, 100000};
    const cod_device devices[] = {device_of(1, 64), device_of(4, 227), device_of(132, 227)};
    for (const cod_device &device : devices)
        for (const int64_t p : pixels)
            for (const int c : channels)
                for (int rule = 0; rule < 4; rule++) {
                    const cuda_view view = pixels_of(rule % 2 == 0 ? COD_F32 : COD_BF16, p, c, 0);
                    const cuda_walk walk =
                        walk_of_one(device, view, {.by_channel = rule > 0, .mixed = true, .sums = rule > 1});
                    if (rule > 1) /* one block adds the sums of these */
                        assert_true(walk.blocks <= 2u * static_cast<unsigned>(device.multiprocessors));
                    if (rule < 2 && p * c <= 256)
                        assert_int_equal(walk.blocks * walk.tiles, 1);
                }
}

TEST(walks_beyond_32_bits)
{
    const cod_device h100 = device_of(132, 227);
    const int64_t large = ((int64_t)1 << 33) + 1;
    assert_int_equal(walk_of_one(h100, pixels_of(COD_F32, large, 1, 0), {}).blocks, (large + 1023) / 1024);
    assert_int_equal(walk_of_one(h100, pixels_of(COD_BF16, large, 8, 0), {}).blocks, (large + 1023) / 1024);
    assert_true(walk_of_one(h100, pixels_of(COD_F32, large, 64, 0), {.by_channel = true, .sums = true}).blocks <= 264);
    assert_true(walk_of_one(h100, pixels_of(COD_BF16, large, 3, 5), {.by_channel = true}).pixels == large);
}

TEST(walks_over_more_tiles_than_a_grid_has)
{
    const cod_device h100 = device_of(132, 227);
    for (const int channels : {2097120, 2097152, 16776960, 16777216, 1 << 30})
        for (const bool sums : {false, true})
            for (const int64_t gap : {0, 1}) /* vectors or not */
                walk_of_one(h100, pixels_of(COD_F32, 2, channels, gap), {.by_channel = true, .sums = sums});
}

enum { MANY_CHANNELS = 65535 * 32 + 4 };

/** Each of their 17 million threads is a fibre: five seconds, and minutes with a sanitizer. */
static void skip_where_fibres_are_slow()
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
}

/** Sums, and what is done with them, where a tile has 32 channels. */
TEST(many_channels_are_those_of_ref)
{
    cod_op op = {};
    skip_where_fibres_are_slow();
    op.kind = COD_OP_NORM_STATISTICS;
    op.attr.epsilon = 1e-5f;
    op.inputs[0] = {nullptr, 0, COD_F32, {2, 1, 1, MANY_CHANNELS}, MANY_CHANNELS};
    op.outputs[0] = op.outputs[1] = {nullptr, 0, COD_F32, {1, 1, 1, MANY_CHANNELS}, MANY_CHANNELS};
    assert_ok(cod_test_parity(test_ref, test_cuda, &op, 1, {1e-4, 1e-6}));
}

/** Gradients of biases beside a library's product: each channel of dy once. */
TEST(many_biases_have_gradients)
{
    cod_device *device = test_cuda.device;
    skip_where_fibres_are_slow();
    std::vector<float> values(MANY_CHANNELS);
    void *memory = nullptr;
    const size_t bytes = values.size() * sizeof values[0];
    for (size_t i = 0; i < values.size(); i++)
        values[i] = static_cast<float>(i);
    assert_ok(cuda_memory_create(device, 2 * bytes, &memory));
    assert_ok(cuda_memory_write(device, memory, values.data(), bytes));
    library_bias bias = {};
    bias.dy = pixels_of(COD_F32, 1, MANY_CHANNELS, 0);
    bias.dy.data = static_cast<unsigned char *>(memory);
    bias.db = static_cast<float *>(memory) + MANY_CHANNELS;
    bias.blocks = library_bias_blocks(device, 1);
    assert_ok(library_bias_run(device, bias, device->stream));
    std::vector<float> sums(MANY_CHANNELS);
    assert_ok(COD_CUDA(cudaMemcpyAsync(sums.data(), bias.db, bytes, cudaMemcpyDeviceToHost, device->stream)));
    assert_ok(COD_CUDA(cudaStreamSynchronize(device->stream)));
    assert_memory_equal(sums.data(), values.data(), bytes);
    cudaFree(memory);
}

/* Walks over flat arrays. */

static const float *place(int past)
{
    return reinterpret_cast<const float *>(0x10000) + past;
}

/** Counts how often each element is met, as kernels go over them. */
static void check_cover(const update_walk &walk)
{
    std::vector<int> met(static_cast<size_t>(walk.count));
    for (int64_t i = 0; i < walk.vectors * UPDATE_LANES; i++)
        met[static_cast<size_t>(walk.head + i)]++;
    for (int64_t i = 0; lone_element(walk, i) < walk.count; i++)
        met[static_cast<size_t>(lone_element(walk, i))]++;
    for (const int times : met)
        assert_int_equal(times, 1);
}

TEST(updates_meet_each_element_once)
{
    for (int64_t count = 1; count < 40; count++)
        for (int past = 0; past < 4; past++)
            for (int other = 0; other < 4; other++) {
                const update_walk walk = cuda_update_walk_of({place(past), nullptr, place(other), nullptr}, count, 8);
                check_cover(walk);
                assert_int_equal(walk.blocks, 1);
                if (past != other)
                    assert_int_equal(walk.vectors, 0);
                else if (count >= 8)
                    assert_true(walk.vectors >= 1 && (past + walk.head) % 4 == 0 && walk.head < 4);
            }
    check_cover(cuda_update_walk_of({place(3), place(3), place(3), place(3)}, 100003, 8));
}

TEST(updates_have_no_more_blocks_than_they_need)
{
    const int64_t large = ((int64_t)1 << 34) + 3;
    assert_int_equal(cuda_update_walk_of({place(0), nullptr, nullptr, nullptr}, 512, 100).blocks, 1);
    assert_int_equal(cuda_update_walk_of({place(0), nullptr, nullptr, nullptr}, 4 * 1024, 100).blocks, 3);
    assert_int_equal(cuda_update_walk_of({place(0), place(1), nullptr, nullptr}, 1024, 100).blocks, 2);
    assert_int_equal(cuda_update_walk_of({place(0), nullptr, nullptr, nullptr}, 1 << 20, 100).blocks, 100);
    const update_walk walk = cuda_update_walk_of({place(1), place(1), nullptr, nullptr}, large, 2112);
    assert_int_equal(walk.blocks, 2112);
    assert_int_equal(walk.head, 3);
    assert_int_equal(walk.vectors, large / 4);
    assert_int_equal(lone_element(walk, 2), 2);
    assert_true(lone_element(walk, 3) == large);
}

TEST_GROUP(test_pair_open, test_pair_close)

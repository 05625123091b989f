/** How the kernel of 3x3 weight gradients, its tiles and its splits are chosen, for devices that are not here. */
#include "cuda/conv_gradient3.cuh"

extern "C" {
#include "support/test.h" /* last: cmocka defines `fail` */
}

/** Layers of C -> K channels on bf16 pictures. */
static conv_gradient layers_of(int images, int height, int width, int c, int k)
{
    conv_gradient g = {};
    g.x = {nullptr, c, height, width, 1, c, COD_BF16, true};
    g.dy = {nullptr, k, height, width, 1, k, COD_BF16, true};
    g.h = {height, 3, 1, 1, false, false};
    g.w = {width, 3, 1, 1, false, false};
    g.images = images;
    g.rows = k;
    return g;
}

static cod_device device_of(int multiprocessors, int shared_kilobytes)
{
    cod_device device = {};
    device.multiprocessors = multiprocessors;
    device.shared_bytes = static_cast<size_t>(shared_kilobytes) << 10;
    return device;
}

/** An H100 gets one block a multiprocessor, all of them at once, and no pixel that is not there. */
TEST(trunks_fill_a_device_in_one_round)
{
    const cod_device h100 = device_of(132, 227);
    for (int images = 16; images <= 256; images *= 4) {
        const gradient3_choice choice = gradient3_choose(&h100, layers_of(images, 24, 24, 64, 64), 33);
        assert_int_equal(choice.kernel.channels, 64);
        assert_int_equal(choice.kernel.stages, 3);
        assert_int_equal(choice.blocks.x, 1);
        assert_int_equal(choice.blocks.y, 4);
        assert_int_equal(choice.blocks.z, 33);
        assert_int_equal(choice.operands.tile.rows * choice.operands.tile.columns * choice.operands.tiles,
                         images * 24 * 24);
        assert_true(choice.shared_bytes <= h100.shared_bytes);
    }
}

/** One layer is split more, but no split is without tiles. */
TEST(single_layers_are_split)
{
    const cod_device h100 = device_of(132, 227);
    const gradient3_choice large = gradient3_choose(&h100, layers_of(256, 24, 24, 64, 64), 1),
                           small = gradient3_choose(&h100, layers_of(1, 8, 8, 64, 64), 1);
    assert_true(large.blocks.y > 60 && large.blocks.y <= 132);
    assert_true(small.blocks.y >= 1 && static_cast<int>(small.blocks.y) <= small.operands.tiles);
}

TEST(narrow_layers_have_narrow_blocks)
{
    const cod_device h100 = device_of(132, 227);
    static const int channels[] = {16, 32, 48, 64};
    for (const int c : channels)
        assert_int_equal(gradient3_choose(&h100, layers_of(64, 24, 24, c, c), 33).kernel.channels, c);
    const gradient3_choice wide = gradient3_choose(&h100, layers_of(16, 24, 24, 128, 128), 33);
    assert_int_equal(wide.blocks.x, 4);
    assert_int_equal(wide.operands.column_tiles, 2);
}

/** Less shared memory means fewer stages; partial sums stay within 256 MB. */
TEST(devices_with_less_memory_get_what_fits)
{
    const cod_device small = device_of(84, 99), least = device_of(84, 20);
    const gradient3_choice choice = gradient3_choose(&small, layers_of(16, 24, 24, 64, 64), 33);
    assert_int_equal(choice.kernel.channels, 64);
    assert_int_equal(choice.kernel.stages, 2);
    assert_true(choice.shared_bytes <= small.shared_bytes);
    assert_int_equal(gradient3_choose(&least, layers_of(16, 24, 24, 64, 64), 33).kernel.channels, 0);
    const gradient3_choice many = gradient3_choose(&small, layers_of(16, 24, 24, 512, 512), 20);
    assert_true(many.operands.partial_count * many.blocks.y * many.blocks.z <= (int64_t)1 << 26);
}

/**
 * Other kernels, strides, types and channels, and pictures that fill less than half of the tiles, are left to the
 * kernel of any shape.
 */
TEST(other_layers_are_left_alone)
{
    const cod_device h100 = device_of(132, 227);
    for (int change = 0; change < 9; change++) {
        conv_gradient g = layers_of(16, change == 7 ? 1 : 24, 24, change == 5 ? 24 : 64, change == 6 ? 40 : 64);
        g.h.kernel = change == 1 ? 5 : 3;
        g.w.stride = change == 2 ? 2 : 1;
        g.x.dtype = change == 3 ? COD_F32 : COD_BF16;
        g.dy.wide = change != 4;
        g.w.folded = change == 8;
        g.h.outputs = change == 7 ? 1 : 24;
        g.w.outputs = change == 7 ? 1 : 24;
        assert_true((gradient3_choose(&h100, g, 3).kernel.channels > 0) == (change == 0));
    }
}

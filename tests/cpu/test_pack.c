#include "support/test.h"

#include "core/memory.h"
#include "core/rng.h"
#include "cpu/cpu.h"
#include "cpu/cpu_internal.h"
#include "devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/**
 * Packed weights: every element where the layout says, with the bits of the rounded weight, zeros between them; packed
 * at once, or by the update that writes the weights.
 */

/** Blocks within which elements lie side by side, from outside to inside: 'o' or 'i', and how many. */
typedef struct layout {
    const char *outer; /**< the order of O, H, W and I outside of the blocks, outermost first */
    struct {
        char dimension;
        int64_t size;
    } blocks[4];
} layout;

static const layout layouts[] = {
    {"oihw", {{'i', 16}, {'o', 64}, {'i', 2}}},
    {"ohwi", {{'i', 16}, {'o', 16}, {'i', 2}}},
    {"oihw", {{'o', 16}, {'i', 16}, {'o', 2}}},
    {"oihw", {{'i', 16}, {'o', 16}}},
    {"iohw", {{'o', 8}, {'i', 8}}},
    {"owih", {{'o', 16}}},
    {"ohwi", {{'i', 8}}},
    {"oihw", {{'o', 4}, {'i', 4}, {'o', 4}}},
    {"ihwo", {{'\0', 0}}}, /* not blocked */
};
static const cod_shape shapes[] = {{1, 1, 1, 1},    {64, 1, 1, 64}, {130, 1, 1, 300}, {17, 3, 3, 33},
                                   {300, 1, 1, 15}, {5, 7, 5, 3},   {31, 2, 3, 520}};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], SHAPES = sizeof shapes / sizeof shapes[0] };

static int64_t block_of(const layout *l, char dimension)
{
    int64_t size = 1;
    for (int k = 0; k < 4 && l->blocks[k].size > 0; k++)
        size *= l->blocks[k].dimension == dimension ? l->blocks[k].size : 1;
    return size;
}

/** How often the layout repeats its blocks along a dimension, padding included. */
static int64_t outer_count(const layout *l, cod_shape shape, char dimension)
{
    const int64_t count = dimension == 'o'   ? shape.n
                          : dimension == 'h' ? shape.h
                          : dimension == 'w' ? shape.w
                                             : shape.c;
    const int64_t block = block_of(l, dimension);
    return (count + block - 1) / block;
}

static int64_t outer_stride(const layout *l, cod_shape shape, char dimension)
{
    int64_t stride = block_of(l, 'o') * block_of(l, 'i');
    for (const char *d = strchr(l->outer, dimension) + 1; *d != '\0'; d++)
        stride *= outer_count(l, shape, *d);
    return stride;
}

static int64_t place(const layout *l, cod_shape shape, char dimension, int64_t index)
{
    int64_t at = 0, inner = 1;
    for (int k = 3; k >= 0; k--) {
        if (l->blocks[k].size == 0)
            continue;
        if (l->blocks[k].dimension == dimension) {
            at += index % l->blocks[k].size * inner;
            index /= l->blocks[k].size;
        }
        inner *= l->blocks[k].size;
    }
    return at + index * outer_stride(l, shape, dimension);
}

static int64_t elements_of(const layout *l, cod_shape shape)
{
    return outer_stride(l, shape, l->outer[0]) * outer_count(l, shape, l->outer[0]);
}

static cpu_pack *new_pack(const layout *l, const float *weights, cod_shape shape, cod_dtype dtype, bool flips)
{
    cpu_packing *packing;
    cpu_pack *pack = NULL;
    const cod_shape packed = flips ? (cod_shape){shape.c, shape.h, shape.w, shape.n} : shape;
    const cpu_weights source = (flips ? cpu_weights_flipped : cpu_weights_of)(weights, shape);
    assert_ok(cpu_packing_create(packed, dtype, &packing));
    packing->h_stride = outer_stride(l, packed, 'h');
    packing->w_stride = outer_stride(l, packed, 'w');
    for (int64_t o = 0; o < packed.n; o++)
        packing->o_at[o] = place(l, packed, 'o', o);
    for (int64_t i = 0; i < packed.c; i++)
        packing->i_at[i] = place(l, packed, 'i', i);
    assert_ok(cpu_pack_create(test_cpu.device, packing, &source,
                              (size_t)elements_of(l, packed) * cod_dtype_bytes(dtype), &pack));
    return pack;
}

/** What a pack of these weights holds. */
static void *expected_of(const layout *l, const float *weights, cod_shape shape, cod_dtype dtype, bool flips)
{
    const cod_shape packed = flips ? (cod_shape){shape.c, shape.h, shape.w, shape.n} : shape;
    char *expected = calloc((size_t)elements_of(l, packed), cod_dtype_bytes(dtype));
    for (int64_t o = 0; o < packed.n; o++)
        for (int64_t y = 0; y < shape.h; y++)
            for (int64_t x = 0; x < shape.w; x++)
                for (int64_t i = 0; i < packed.c; i++) {
                    const int64_t plain = ((o * shape.h + y) * shape.w + x) * shape.c + i;
                    const int64_t turned = ((i * shape.h + shape.h - 1 - y) * shape.w + shape.w - 1 - x) * shape.c + o;
                    const float value = weights[flips ? turned : plain];
                    const uint16_t rounded = cod_bf16_from_f32(value);
                    const int64_t at = place(l, packed, 'o', o) + place(l, packed, 'i', i) +
                                       y * outer_stride(l, packed, 'h') + x * outer_stride(l, packed, 'w');
                    if (dtype == COD_BF16)
                        memcpy(expected + 2 * at, &rounded, 2);
                    else
                        memcpy(expected + 4 * at, &value, 4);
                }
    return expected;
}

static bool holds(const cpu_pack *pack, const layout *l, const float *weights, cod_shape shape, cod_dtype dtype,
                  bool flips)
{
    const cod_shape packed = flips ? (cod_shape){shape.c, shape.h, shape.w, shape.n} : shape;
    void *expected = expected_of(l, weights, shape, dtype, flips);
    const bool same =
        memcmp(cpu_pack_memory(pack), expected, (size_t)elements_of(l, packed) * cod_dtype_bytes(dtype)) == 0;
    free(expected);
    return same;
}

static void fill(float *values, int64_t count, uint64_t seed)
{
    cod_rng rng = cod_rng_open(seed, 0, 0, 0, COD_RNG_TEST, 0);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(cod_rng_uniform(&rng) - 0.5);
}

static void check_layout(const layout *l, cod_shape shape, cod_dtype dtype, bool flips)
{
    float *weights = malloc((size_t)cod_shape_count(shape) * sizeof *weights);
    fill(weights, cod_shape_count(shape), 7);
    cpu_pack *pack = new_pack(l, weights, shape, dtype, flips);
    for (int again = 0; again < 2; again++) {
        cpu_pack_renew(pack);
        if (!holds(pack, l, weights, shape, dtype, flips))
            fail_msg("layout %d, shape %d, %s%s", (int)(l - layouts), (int)shape.n, cod_dtype_name(dtype),
                     flips ? ", flipped" : "");
        weights[0] += 1;
    }
    cpu_pack_destroy(pack);
    free(weights);
}

TEST(every_element_lies_where_its_layout_says)
{
    for (int l = 0; l < LAYOUTS; l++)
        for (int s = 0; s < SHAPES; s++)
            for (int variant = 0; variant < 4; variant++)
                check_layout(&layouts[l], shapes[s], variant & 1 ? COD_BF16 : COD_F32, (variant & 2) != 0);
}

/** Some parameters, and two packs of each of three weights among them. */
typedef struct updated {
    cod_test_op update;
    float *params;
    cpu_pack *packs[6];
} updated;

static const cod_shape tensors[] = {{130, 3, 3, 70}, {40, 1, 1, 450}, {3, 1, 1, 5}};
static const int64_t tensors_at[] = {100, 82000, 100007};
enum { PARAMS = 100100, TENSORS = 3 };

static void updated_init(updated *u)
{
    const cod_view flat = cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, PARAMS}, 0);
    const cod_op op = {.kind = COD_OP_OPTIMISER,
                       .attr = {.optimiser = COD_OPT_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f},
                       .inputs = {flat, cod_test_view_of(COD_F32, (cod_shape){1, 1, 1, 4}, 0)},
                       .outputs = {flat, flat, flat}};
    assert_ok(cod_test_op_init(&u->update, test_cpu, &op));
    assert_ok(cod_test_op_randomise(&u->update, 3, false));
    u->params = cod_view_host(&u->update.op.outputs[0]);
    for (int i = 0; i < 2 * TENSORS; i++)
        u->packs[i] = new_pack(&layouts[i], u->params + tensors_at[i / 2], tensors[i / 2], COD_BF16, i % 2 != 0);
}

static void updated_clear(updated *u)
{
    for (int i = 0; i < 2 * TENSORS; i++)
        cpu_pack_destroy(u->packs[i]);
    cod_test_op_clear(&u->update);
}

/** Whether a pack is said to be current; it then holds the weights as they are now. */
static bool is_current(const updated *u, int i)
{
    const bool current = cpu_pack_is_current(u->packs[i]);
    if (current)
        assert_true(
            holds(u->packs[i], &layouts[i], u->params + tensors_at[i / 2], tensors[i / 2], COD_BF16, i % 2 != 0));
    return current;
}

TEST(an_update_renews_what_was_used_since_the_last_one)
{
    updated u;
    updated_init(&u);
    assert_ok(cod_test_op_run(&u.update)); /* nothing was used before it */
    for (int i = 0; i < 2 * TENSORS; i++)
        assert_false(is_current(&u, i));
    assert_ok(cod_test_op_run(&u.update)); /* all were asked for */
    for (int i = 0; i < 2 * TENSORS; i++)
        assert_int_equal(is_current(&u, i), i < 4); /* weights as few as the last ones are not worth it */
    assert_ok(cod_test_op_run(&u.update));
    assert_true(is_current(&u, 1));
    assert_ok(cod_test_op_run(&u.update)); /* only that one was asked for */
    assert_true(is_current(&u, 1));
    assert_false(is_current(&u, 0) || is_current(&u, 2) || is_current(&u, 3));
    updated_clear(&u);
}

TEST(an_update_that_packs_computes_what_one_without_computes)
{
    updated u;
    updated_init(&u);
    double *with = malloc(PARAMS * sizeof *with), *without = malloc(PARAMS * sizeof *without);
    for (int i = 0; i < 2 * TENSORS; i++)
        (void)cpu_pack_is_current(u.packs[i]);
    assert_ok(cod_test_op_run(&u.update));
    assert_true(is_current(&u, 0));
    assert_ok(cod_test_op_read(&u.update, COD_OP_MAX_INPUTS, with));
    assert_ok(cod_test_op_randomise(&u.update, 3, false));
    for (int i = 0; i < 2 * TENSORS; i++) {
        cpu_pack_destroy(u.packs[i]);
        u.packs[i] = NULL;
    }
    assert_ok(cod_test_op_run(&u.update));
    assert_ok(cod_test_op_read(&u.update, COD_OP_MAX_INPUTS, without));
    assert_memory_equal(with, without, PARAMS * sizeof *with);
    free(with);
    free(without);
    updated_clear(&u);
}

/** Weights of which an update writes a part, as where one bucket ends within them. */
TEST(weights_that_are_updated_in_part_are_not_current)
{
    updated u;
    updated_init(&u);
    cpu_pack *across = new_pack(&layouts[0], u.params + PARAMS - 64, (cod_shape){64, 1, 1, 64}, COD_F32, false);
    (void)across; /* never read: it is only in the way */
    cpu_pack *before = new_pack(&layouts[0], u.params - 64, (cod_shape){64, 1, 1, 64}, COD_F32, false);
    for (int i = 0; i < 2 * TENSORS; i++)
        (void)cpu_pack_is_current(u.packs[i]);
    (void)cpu_pack_is_current(across);
    cpu_packed_weights of_update = {0};
    assert_ok(cod_test_op_run(&u.update));
    assert_true(is_current(&u, 0) && is_current(&u, 3));
    assert_false(cpu_pack_is_current(across));
    cpu_pack_renew(u.packs[0]);
    assert_true(is_current(&u, 0)); /* until an update begins within its weights */
    while (cpu_packs_next(test_cpu.device, u.params + tensors_at[0] + 64, 64, &of_update)) {
    }
    assert_false(cpu_pack_is_current(u.packs[0]));
    cpu_pack_destroy(across);
    cpu_pack_destroy(before);
    updated_clear(&u);
}

TEST_GROUP(test_devices_open, test_devices_close)

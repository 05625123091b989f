#include "support/test.h"

#include "core/backend.h"
#include "core/duration.h"
#include "core/fingerprint.h"
#include "core/hash.h"
#include "core/int8_blocks.h"
#include "core/option.h"
#include "core/rng.h"
#include "core/statistics.h"
#include "core/whole.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(durations_are_hours_minutes_and_seconds)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0:00:00"},    {0.5, "0:00:01"},    {59.4, "0:00:59"},
                 {2400, "0:40:00"}, {3599.6, "1:00:00"}, {360000, "100:00:00"},
                 {-3, "0:00:00"},   {NAN, "0:00:00"},    {INFINITY, "277777777:46:40"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(cod_duration(cases[i].seconds).text, cases[i].text);
}

/** Known answers published with Random123 (kat_vectors, philox4x32 10). */
TEST(philox_gives_the_published_numbers)
{
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
        {{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
         {0xa4093822u, 0x299f31d0u},
         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        cod_philox4x32(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].expected, sizeof out);
    }
}

TEST(streams_replay_and_differ)
{
    cod_rng a = cod_rng_open(7, 1, 2, 3, COD_RNG_CROP, 4), b = cod_rng_open(7, 1, 2, 3, COD_RNG_CROP, 4);
    cod_rng other = cod_rng_open(7, 1, 2, 4, COD_RNG_CROP, 4);
    int equal = 0;
    for (int i = 0; i < 1000; i++) {
        const uint32_t number = cod_rng_u32(&a);
        assert_int_equal(number, cod_rng_u32(&b));
        equal += number == cod_rng_u32(&other);
    }
    assert_true(equal < 3);
}

TEST(filling_gives_the_numbers_of_single_calls)
{
    enum { MOST = 400 };
    uint32_t filled[MOST];
    cod_rng a = cod_rng_open(7, 1, 2, 3, COD_RNG_TEST, 4), b = a;
    for (size_t count = 0; count < MOST; count += 37) {
        cod_rng_fill(&a, filled, count);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(filled[i], cod_rng_u32(&b));
    }
    assert_int_equal(cod_rng_u32(&a), cod_rng_u32(&b));
}

/** Numbers made at a time are those made one by one, to the bit: weights of a seed stay what they were. */
TEST(many_floats_have_the_bits_of_single_ones)
{
    enum { MOST = 300000 };
    static float normal[MOST], uniform[MOST];
    static const size_t counts[] = {0, 1, 255, 256, 257, 1000, MOST};
    cod_rng a = cod_rng_open(7, 1, 2, 3, COD_RNG_TEST, 4), b = a;
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        const double scale = 0.1 / (double)(c + 1);
        cod_rng_fill_normal(&a, scale, normal, counts[c]);
        cod_rng_fill_uniform(&a, scale, uniform, counts[c]);
        for (size_t i = 0; i < counts[c]; i++) {
            const float one = (float)(scale * cod_rng_normal(&b));
            assert_memory_equal(&normal[i], &one, sizeof one);
        }
        for (size_t i = 0; i < counts[c]; i++) {
            const float one = (float)(scale * (2 * cod_rng_uniform(&b) - 1));
            assert_memory_equal(&uniform[i], &one, sizeof one);
        }
        assert_int_equal(cod_rng_u32(&a), cod_rng_u32(&b)); /* and what follows begins within a block */
    }
}

TEST(distributions_have_their_moments)
{
    cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_TEST, 0);
    enum { COUNT = 100000 };
    double sum = 0, squares = 0, uniform = 0;
    int counts[7] = {0};
    for (int i = 0; i < COUNT; i++) {
        const double normal = cod_rng_normal(&rng);
        sum += normal;
        squares += normal * normal;
        uniform += cod_rng_uniform(&rng);
        counts[cod_rng_below(&rng, 7)]++;
    }
    /* Five standard deviations of each estimate. */
    assert_true(fabs(sum / COUNT) < 5 / sqrt(COUNT));
    assert_true(fabs(squares / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
    assert_true(fabs(uniform / COUNT - 0.5) < 5 * sqrt(1.0 / 12 / COUNT));
    for (int i = 0; i < 7; i++)
        assert_true(fabs(counts[i] - COUNT / 7.0) < 5 * sqrt(COUNT / 7.0));
}

TEST(permutation_holds_every_index_once)
{
    cod_rng rng = cod_rng_open(1, 0, 0, 0, COD_RNG_SHUFFLE, 0);
    uint32_t order[100];
    bool seen[100] = {false};
    cod_rng_permutation(&rng, order, 100);
    for (int i = 0; i < 100; i++) {
        assert_true(order[i] < 100 && !seen[order[i]]);
        seen[order[i]] = true;
    }
}

TEST(bf16_rounds_to_even_and_keeps_nan)
{
    assert_int_equal(cod_bf16_from_f32(1.0f), 0x3F80);
    assert_int_equal(cod_bf16_from_f32(1.00390625f), 0x3F80); /* halfway, even below */
    assert_int_equal(cod_bf16_from_f32(1.01171875f), 0x3F82); /* halfway, even above */
    assert_int_equal(cod_bf16_from_f32(INFINITY), 0x7F80);
    assert_true(isnan(cod_f32_from_bf16(cod_bf16_from_f32(NAN))));
    assert_true(cod_f32_from_bf16(cod_bf16_from_f32(-2.5f)) == -2.5f);
}

TEST(arena_keeps_pointers_and_alignment)
{
    cod_arena arena = {0};
    char *first = cod_arena_strdup(&arena, "first");
    for (int i = 0; i < 1000; i++) {
        unsigned char *memory = cod_arena_alloc(&arena, (size_t)i * 7);
        assert_int_equal((uintptr_t)memory % COD_ALIGNMENT, 0);
        memset(memory, 0xAB, (size_t)i * 7);
    }
    assert_string_equal(first, "first");
    cod_arena_clear(&arena);
}

TEST(blocks_of_integers_round_to_their_scale_and_keep_nan)
{
    enum { COUNT = 700, BAD = 300 }; /* the second of three blocks */
    float values[COUNT], decoded[COUNT];
    unsigned char coded[2 * COUNT];
    for (int kind = 0; kind < 6; kind++) {
        const cod_int8_blocks blocks = {.log2 = COD_INT8_BLOCK_LOG2, .bf16_scales = kind % 2 == 0};
        const float bad = kind < 2 ? NAN : kind < 4 ? INFINITY : FLT_MAX;
        const uint64_t bytes = cod_int8_blocks_bytes(&blocks, COUNT);
        assert_int_equal(bytes, COUNT + 3 * (blocks.bf16_scales ? 2 : 4));
        memset(coded, 0xAB, sizeof coded);
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)((i * 37) % 255 - 127) / 8;
        values[BAD] = bad;
        cod_int8_blocks_pack(&blocks, values, COUNT, coded);
        assert_int_equal(coded[bytes], 0xAB);
        cod_int8_blocks_unpack(&blocks, coded, COUNT, decoded);
        for (int i = 0; i < COUNT; i++) {
            if (i / 256 != BAD / 256)
                assert_true(decoded[i] == values[i]);
            else if (isfinite(bad))
                assert_true(fabsf(decoded[i] - values[i]) <= FLT_MAX / 127);
            else
                assert_true(isnan(decoded[i]));
        }
    }
}

TEST(large_allocations_are_zero_and_start_a_huge_page)
{
    enum { HUGE_PAGE = 2 << 20, BYTES = 2 * HUGE_PAGE + 1 };
    void *memory = NULL;
    for (int round = 0; round < 3; round++) { /* the second time, the heap may have the memory that was given back */
        assert_ok(cod_aligned_alloc(&memory, BYTES));
        assert_int_equal((uintptr_t)memory % HUGE_PAGE, 0);
        for (int i = 0; i < BYTES; i++)
            assert_int_equal(((unsigned char *)memory)[i], 0);
        memset(memory, 0xAB, BYTES);
        cod_aligned_free(memory);
    }
}

TEST(an_impossible_allocation_fails_with_a_reason)
{
    void *memory = NULL;
    assert_fails(COD_ERR_MEMORY, "too large", cod_aligned_alloc(&memory, SIZE_MAX));
}

typedef struct sample_options {
    bool flag;
    int64_t steps;
    double rate;
    const char *name;
    int mode;
    cod_int_list sizes;
    cod_string_list roots;
    double weight;
    cod_float_list shares;
} sample_options;

static const char *const modes[] = {"fast", "exact", NULL};
static const cod_option sample_table_options[] = {
    {"flag", COD_OPTION_BOOL, offsetof(sample_options, flag), "true", 0, 0, NULL, "a flag"},
    {"steps", COD_OPTION_INT, offsetof(sample_options, steps), "100", 1, 1e9, NULL, "steps"},
    {"rate", COD_OPTION_FLOAT, offsetof(sample_options, rate), "1e-3", 0, 1, NULL, "rate"},
    {"name", COD_OPTION_STRING, offsetof(sample_options, name), "run one", 0, 0, NULL, "name"},
    {"mode", COD_OPTION_CHOICE, offsetof(sample_options, mode), "exact", 0, 0, modes, "mode"},
    {"sizes", COD_OPTION_INT_LIST, offsetof(sample_options, sizes), "8, 16", 1, 64, NULL, "sizes"},
    {"roots", COD_OPTION_STRING_LIST, offsetof(sample_options, roots), "", 0, 0, NULL, "roots"},
    {"weight", COD_OPTION_FLOAT, offsetof(sample_options, weight), "auto", 0, 9, cod_option_auto, "weight"},
    {"shares", COD_OPTION_FLOAT_LIST, offsetof(sample_options, shares), "0.2, 1", 0, 1, NULL, "shares"},
};
static const cod_option_table sample_table = {"sample", "a sample", sample_table_options, 9, sizeof(sample_options)};

TEST(options_default_format_and_read_back)
{
    cod_arena arena = {0};
    sample_options options;
    assert_ok(cod_options_set_defaults(&sample_table, &options, &arena));
    assert_true(options.flag && options.steps == 100 && options.rate == 1e-3 && options.mode == 1);
    assert_int_equal(options.sizes.count, 2);
    assert_int_equal(options.sizes.items[1], 16);
    assert_int_equal(options.roots.count, 0);
    assert_string_equal(cod_option_format(&sample_table_options[2], &options, &arena), "0.001");
    assert_string_equal(cod_option_format(&sample_table_options[3], &options, &arena), "\"run one\"");
    assert_string_equal(cod_option_format(&sample_table_options[5], &options, &arena), "[8, 16]");
    assert_string_equal(cod_option_format(&sample_table_options[6], &options, &arena), "[]");
    assert_true(isnan(options.weight));
    assert_string_equal(cod_option_format(&sample_table_options[7], &options, &arena), "auto");
    assert_ok(cod_option_set(&sample_table_options[7], &options, (const char *[]){"0.5"}, 1, &arena));
    assert_true(options.weight == 0.5);
    assert_true(options.shares.count == 2 && options.shares.items[0] == 0.2 && options.shares.items[1] == 1);
    assert_string_equal(cod_option_format(&sample_table_options[8], &options, &arena), "[0.2, 1]");
    static const struct {
        const char *text, *formatted;
    } lists[] = {{"4", "[4]"}, {"4,5", "[4, 5]"}, {"[4, 5,6]", "[4, 5, 6]"}, {"[]", "[]"}, {"", "[]"}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        assert_ok(cod_option_set_text(&sample_table_options[5], &options, lists[i].text, &arena));
        assert_string_equal(cod_option_format(&sample_table_options[5], &options, &arena), lists[i].formatted);
    }
    assert_fails(COD_ERR_ARGUMENT, "'[4' is not",
                 cod_option_set_text(&sample_table_options[5], &options, "[4,5", &arena));
    assert_ok(cod_option_set_text(&sample_table_options[1], &options, "7", &arena));
    assert_int_equal(options.steps, 7);
    cod_arena_clear(&arena);
}

TEST(options_refuse_what_does_not_fit)
{
    cod_arena arena = {0};
    sample_options options;
    assert_ok(cod_options_set_defaults(&sample_table, &options, &arena));
#define TRY(key, text) cod_option_set(cod_option_find(&sample_table, key), &options, (const char *[]){text}, 1, &arena)
    assert_fails(COD_ERR_ARGUMENT, "'0' is not a whole number from 1 to 1000000000", TRY("steps", "0"));
    assert_fails(COD_ERR_ARGUMENT, "'1.5' is not a whole number", TRY("steps", "1.5"));
    assert_fails(COD_ERR_ARGUMENT, "'ten' is not a whole number", TRY("steps", "ten"));
    assert_fails(COD_ERR_ARGUMENT, "'nan' is not a number from 0 to 1", TRY("rate", "nan"));
    assert_fails(COD_ERR_ARGUMENT, "'auto' is not a number from 0 to 1", TRY("rate", "auto"));
    assert_fails(COD_ERR_ARGUMENT, "'-1' is not a number from 0 to 9, or auto", TRY("weight", "-1"));
    assert_fails(COD_ERR_ARGUMENT, "did you mean 'exact'?", TRY("mode", "exat"));
    assert_fails(COD_ERR_ARGUMENT, "one of: fast, exact", TRY("mode", "zzzzzzzz"));
    assert_fails(COD_ERR_ARGUMENT, "true or false", TRY("flag", "maybe"));
    assert_fails(COD_ERR_ARGUMENT, "a list of whole numbers from 1 to 64", TRY("sizes", "65"));
    assert_fails(COD_ERR_ARGUMENT, "'1.1' is not a list of numbers from 0 to 1", TRY("shares", "1.1"));
#undef TRY
    assert_int_equal(options.steps, 100);
    cod_arena_clear(&arena);
}

TEST(suggestions_are_near_or_absent)
{
    const char *const keys[] = {"burn_in", "period", "weight"};
    assert_string_equal(cod_suggest("burnin", keys, 3), "burn_in");
    assert_string_equal(cod_suggest("peroid", keys, 3), "period");
    assert_null(cod_suggest("temperature", keys, 3));
}

TEST(failures_carry_reason_place_and_context)
{
    assert_int_equal(cod_fail(COD_ERR_IO, "cannot read '%s'", "x"), COD_ERR_IO);
    assert_string_equal(cod_error_message(), "cannot read 'x'");
    cod_test_assert_contains(cod_error_place(), "test_core.c");
    assert_int_equal(cod_fail_prefix(COD_ERR_IO, "%s.yaml", "demo"), COD_ERR_IO);
    assert_string_equal(cod_error_message(), "demo.yaml: cannot read 'x'");
}

TEST(ops_with_wrong_shapes_are_refused)
{
    cod_buffer buffer = {.host = NULL, .bytes = 1 << 20};
    cod_op op = {.kind = COD_OP_CONV2D, .name = "head", .attr = {.stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1}};
    op.inputs[0] = cod_view_dense(&buffer, 0, COD_F32, (cod_shape){1, 8, 9, 3});
    op.inputs[1] = cod_view_dense(&buffer, 0, COD_F32, (cod_shape){4, 3, 3, 3});
    op.outputs[0] = cod_view_dense(&buffer, 0, COD_F32, (cod_shape){1, 8, 9, 4});
    assert_ok(cod_op_check(&op));
    assert_true(cod_op_flops(&op) == 2.0 * 8 * 9 * 4 * 27);
    op.outputs[0].shape.c = 5;
    assert_fails(COD_ERR_ARGUMENT, "conv2d 'head': shapes", cod_op_check(&op));
    op.outputs[0].shape.c = op.outputs[0].pixel_stride = 4;
    op.inputs[0].offset = buffer.bytes - 4;
    assert_fails(COD_ERR_ARGUMENT, "past its buffer", cod_op_check(&op));
}

/** One by one and by vectors alike, at any place; each value's bits and place count. */
/** A kind that was added to the enumeration, but not to the table of traits, has no name. */
TEST(every_kind_of_op_has_traits)
{
    for (int kind = 0; kind < COD_OP_KIND_COUNT; kind++) {
        const cod_op_traits *traits = cod_op_traits_of((cod_op_kind)kind);
        assert_non_null(traits->name);
        assert_int_equal(traits->accumulated & traits->updated, 0);
        for (int other = 0; other < kind; other++)
            assert_string_not_equal(traits->name, cod_op_kind_name((cod_op_kind)other));
    }
}

TEST(a_fingerprint_is_the_sum_of_its_pairs)
{
    enum { MOST = 41 };
    float values[MOST + 1];
    for (int i = 0; i <= MOST; i++)
        values[i] = (float)(i % 7) / 3 - 1;
    for (size_t first = 0; first < 2; first++) {
        for (size_t count = 0; count + first <= MOST; count++) {
            float *v = values + first;
            uint64_t sum = 0;
            for (size_t pair = 0; 2 * pair < count; pair++) {
                uint64_t bits = 0;
                memcpy(&bits, v + 2 * pair, 2 * pair + 1 < count ? 8 : 4);
                sum += cod_fingerprint_part(bits, (uint32_t)pair);
            }
            const uint64_t print = cod_fingerprint(v, count);
            assert_true(print == cod_fingerprint_of_sum(sum) && print != COD_FINGERPRINT_NONE);
            for (size_t i = 0; i < count; i++) {
                const float kept = v[i];
                v[i] = nextafterf(kept, 2);
                assert_true(cod_fingerprint(v, count) != print);
                v[i] = kept;
            }
            for (size_t i = 2; i < count; i++) { /* two that are not equal change places */
                const float kept = v[i];
                v[i] = v[i - 2], v[i - 2] = kept;
                assert_true(cod_fingerprint(v, count) != print);
                v[i - 2] = v[i], v[i] = kept;
            }
        }
    }
}

TEST(hash_is_xxh3)
{
    assert_int_equal(cod_hash("", 0, 0), 0x2D06800538D394C2u);
    assert_true(cod_hash("abc", 3, 0) != cod_hash("abc", 3, 1));
}

TEST(the_median_is_the_middle_value)
{
    double odd[] = {3, -1, 2}, even[] = {4, 1, 3, 2}, one[] = {5};
    assert_true(cod_median(odd, 3) == 2);
    assert_true(cod_median(even, 4) == 3);
    assert_true(cod_median(one, 1) == 5);
    assert_true(isnan(cod_median(one, 0)));
}

TEST(whole_numbers_are_told_from_what_may_be_anything)
{
    static const double wrong[] = {-1, 0.5, 1e300, -1e300, 0x1p53 + 2, INFINITY, -INFINITY, NAN},
                        right[] = {0, -0.0, 7, 0x1p53};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (cod_is_whole(wrong[i], 0, COD_WHOLE_MOST))
            fail_msg("%g passes for a whole number from 0 to 2^53", wrong[i]);
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        if (!cod_is_whole(right[i], 0, COD_WHOLE_MOST))
            fail_msg("%g does not pass for a whole number from 0 to 2^53", right[i]);
    /* The text of 2^53 + 1 reads as 2^53, a whole number, and no larger one. */
    assert_true(strtod("9007199254740993", NULL) == COD_WHOLE_MOST);
    assert_true(cod_is_whole(-1, -1, 0) && !cod_is_whole(3, 0, 2));
}

#include "support/test.h"

#include "codec/coder.h"

#include <math.h>
#include <string.h>

/** Much as a core has them for `delta`: what shortening and lengthening alone take, not what comes before it. */
static const cod_coder_figures measured[COD_CODEC_ENTROPIES] = {
    [COD_CODEC_PLAIN] = {.bytes_per_s = INFINITY, .ratio = 6},
    [COD_CODEC_LZ4] = {.bytes_per_s = 8e9, .ratio = 7.5},
    [COD_CODEC_ZSTD] = {.bytes_per_s = 2.5e9, .ratio = 11.31},
};

static double way(cod_codec_entropy coder, double link)
{
    return 1 / measured[coder].bytes_per_s + 1 / (measured[coder].ratio * link);
}

TEST(what_is_chosen_has_the_shortest_way)
{
    bool seen[COD_CODEC_ENTROPIES] = {false};
    for (double link = 1e3; link < 1e13; link *= 1.2)
        for (int current = 0; current < COD_CODEC_ENTROPIES; current++) {
            const cod_codec_entropy chosen = cod_coder_choose(measured, link, (cod_codec_entropy)current);
            const double stays = way((cod_codec_entropy)current, link);
            seen[chosen] = true;
            assert_true((int)chosen == current || way(chosen, link) < 0.9 * stays);
            for (int other = 0; other < COD_CODEC_ENTROPIES; other++)
                assert_true(way((cod_codec_entropy)other, link) >= 0.9 * way(chosen, link) &&
                            ((int)chosen == current || way((cod_codec_entropy)other, link) >= way(chosen, link)));
        }
    assert_true(seen[COD_CODEC_PLAIN] && seen[COD_CODEC_ZSTD]);
    assert_int_equal(cod_coder_choose(measured, 1.25e6, COD_CODEC_PLAIN), COD_CODEC_ZSTD); /* 10 Mbit/s */
    assert_int_equal(cod_coder_choose(measured, 125e6, COD_CODEC_PLAIN), COD_CODEC_ZSTD);  /* 1 Gbit/s */
}

/** LZ4 where it is so fast that its bytes do not matter, and none would send more. */
TEST(lz4_is_chosen_between_the_others)
{
    const cod_coder_figures coders[COD_CODEC_ENTROPIES] = {{INFINITY, 4}, {8e9, 7.5}, {0.9e9, 11.31}};
    assert_int_equal(cod_coder_choose(coders, 20e6, COD_CODEC_LZ4), COD_CODEC_ZSTD);
    assert_int_equal(cod_coder_choose(coders, 300e6, COD_CODEC_ZSTD), COD_CODEC_LZ4);
    assert_int_equal(cod_coder_choose(coders, 20e9, COD_CODEC_LZ4), COD_CODEC_PLAIN);
}

TEST(what_is_not_known_changes_nothing)
{
    cod_coder_figures unknown[COD_CODEC_ENTROPIES];
    memcpy(unknown, measured, sizeof unknown);
    unknown[COD_CODEC_LZ4] = (cod_coder_figures){0};
    const double links[] = {0, -1, NAN};
    for (int current = 0; current < COD_CODEC_ENTROPIES; current++) {
        assert_int_equal(cod_coder_choose(unknown, 1e3, (cod_codec_entropy)current), current);
        for (int i = 0; i < 3; i++)
            assert_int_equal(cod_coder_choose(measured, links[i], (cod_codec_entropy)current), current);
    }
}

static void note(cod_coder *coder, int trials, double link)
{
    const cod_codec_trial trial = {
        .values_bytes = 65536, .seconds = {0, 65536 / 8e9, 65536 / 2.5e9}, .stored = {10923, 8738, 5795}};
    for (int i = 0; i < trials; i++) {
        cod_coder_note_trial(coder, &trial);
        cod_coder_note_pull(coder, 10000, 10000 / link);
    }
}

TEST(a_link_that_changes_changes_the_choice)
{
    cod_coder coder;
    cod_coder_init(&coder);
    assert_true(!cod_coder_decide(&coder) && isnan(cod_coder_link(&coder)));
    note(&coder, 3, 1e10);
    assert_true(!cod_coder_decide(&coder) && coder.current == COD_CODEC_ZSTD); /* three chunks say little */
    note(&coder, 16, 1e10);
    assert_true(cod_coder_decide(&coder) && coder.current == COD_CODEC_PLAIN);
    assert_true(!cod_coder_decide(&coder));
    int keys = 0;
    do {
        note(&coder, 16, 1e7);
        keys++;
    } while (!cod_coder_decide(&coder) && keys < 10);
    assert_true(coder.current == COD_CODEC_ZSTD && keys < 10);
    assert_true(cod_coder_link(&coder) < 1e8);
}

/** A trial says of every coder what using it makes, and leaves the codec as it was. */
TEST(a_trial_tells_what_each_coder_makes)
{
    enum { CHUNK = 4096 };
    static float values[2 * CHUNK], again[CHUNK];
    static unsigned char bytes[8 * CHUNK * sizeof(float)];
    const cod_codec_range range = {.count = 2 * CHUNK, .exact_from = UINT64_MAX},
                          half = {.count = CHUNK, .exact_from = UINT64_MAX};
    const cod_codec_key key = {1, 2, 3};
    cod_codec_trial trial;
    for (int i = 0; i < 2 * CHUNK; i++)
        values[i] = sinf(0.37f * (float)(i * i % 1009)) * (i % 7 == 0 ? 1.0f : 0.05f);
    for (int entropy = 0; entropy < COD_CODEC_ENTROPIES; entropy++) {
        const cod_codec_options options = {.coding = COD_CHUNK_STEP,
                                           .entropy = (cod_codec_entropy)entropy,
                                           .quality_db = 43,
                                           .rounding = 0.5f,
                                           .chunk_values = CHUNK};
        cod_codec codec;
        assert_ok(cod_codec_init(&codec, &options));
        cod_codec_begin(&codec, &range, &key);
        assert_ok(cod_codec_encode(&codec, values, NULL, 1, bytes, sizeof bytes, NULL));
        assert_ok(cod_codec_try_coders(&codec, &trial));
        assert_true(trial.values_bytes == CHUNK * sizeof(float) && trial.seconds[COD_CODEC_PLAIN] == 0);
        assert_true(trial.seconds[COD_CODEC_LZ4] > 0 && trial.seconds[COD_CODEC_ZSTD] > 0);
        assert_true(trial.stored[entropy] == codec.bytes - COD_CHUNK_HEADER_BYTES);
        assert_true(trial.stored[COD_CODEC_ZSTD] < trial.stored[COD_CODEC_PLAIN]);
        assert_ok(cod_codec_encode(&codec, values, NULL, 1, bytes, sizeof bytes, NULL));
        assert_true(cod_codec_finished(&codec));
        cod_codec_begin(&codec, &half, &key);
        const uint64_t first = COD_CHUNK_HEADER_BYTES + trial.stored[entropy];
        assert_ok(cod_codec_decode(&codec, bytes, first, NULL, 1, again));
        cod_codec_clear(&codec);
    }
}

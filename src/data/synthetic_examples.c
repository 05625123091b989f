/* Generated examples of any shape: each class has its own pattern in noise, so that a model can learn them. */
#include "core/hash.h"
#include "core/rng.h"
#include "data/examples_internal.h"

enum { KEY = 0x53594E, PATTERN = 1 << 24 };

static void draw(const cod_examples *examples, size_t index, uint8_t *out)
{
    const size_t values = cod_example_values(examples);
    cod_rng pattern = cod_rng_open(0, 0, 0, PATTERN + examples->labels[index], COD_RNG_PICTURE, 0);
    cod_rng noise = cod_rng_open(0, 0, 0, index, COD_RNG_PICTURE, 1);
    for (size_t i = 0; i < values; i++)
        out[i] = (uint8_t)(64 + (cod_rng_u32(&pattern) & 63) + (cod_rng_u32(&noise) & 127));
}

cod_status cod_synthetic_examples_make(const cod_data_options *options, bool report, cod_examples *out)
{
    const size_t count = (size_t)options->synthetic_count, classes = (size_t)options->synthetic_classes;
    const int64_t *sides = options->synthetic_shape.items;
    COD_REQUIRE(count >= classes, "data.synthetic_count: %zu examples cannot be of %zu classes", count, classes);
    out->height = sides[0];
    out->width = sides[1];
    out->channels = sides[2];
    const size_t bytes = count * cod_example_values(out), limit = (size_t)options->cache_mb << 20;
    COD_REQUIRE(bytes <= limit,
                "data.synthetic_shape: %zu examples of %lldx%lldx%lld take %zu MiB; data.cache_mb is %zu", count,
                (long long)sides[0], (long long)sides[1], (long long)sides[2], bytes >> 20, limit >> 20);
    COD_TRY(cod_examples_reserve(out, count, classes));
    for (size_t i = 0; i < count; i++)
        out->labels[i] = (uint32_t)(i * classes / count);
    const uint64_t facts[5] = {count, classes, (uint64_t)sides[0], (uint64_t)sides[1], (uint64_t)sides[2]};
    if (!cod_block_open(&out->block, cod_hash(facts, sizeof facts, KEY), report)) {
        COD_TRY(cod_block_reserve(&out->block, bytes, report));
        for (size_t i = 0; i < count; i++)
            draw(out, i, out->block.base + i * cod_example_values(out));
        COD_TRY(cod_block_complete(&out->block));
    }
    out->bytes = out->block.base;
    out->held = count;
    return COD_OK;
}

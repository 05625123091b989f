#include "core/rng.h"

#include "core/wide.h"

static uint32_t multiply_high(uint32_t a, uint32_t b, uint32_t *low)
{
    const uint64_t product = (uint64_t)a * b;
    *low = (uint32_t)product;
    return (uint32_t)(product >> 32);
}

void cod_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint32_t low0, low1;
        const uint32_t high0 = multiply_high(0xD2511F53u, c0, &low0);
        const uint32_t high1 = multiply_high(0xCD9E8D57u, c2, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/** splitmix64's finaliser: spreads the parts of a name over all bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

cod_rng cod_rng_open(uint64_t seed, uint32_t group, uint32_t rank, uint64_t step, cod_rng_purpose purpose,
                     uint32_t item)
{
    const uint64_t who = mix(seed + 0x9E3779B97F4A7C15u * (1 + (((uint64_t)group << 32) | rank)));
    const uint64_t key = mix(who ^ ((uint64_t)purpose << 56) ^ step);
    return (cod_rng){
        .key = {(uint32_t)key, (uint32_t)(key >> 32)},
        .counter = {0, item, (uint32_t)purpose, (uint32_t)step},
        .used = 4,
    };
}

uint32_t cod_rng_u32(cod_rng *rng)
{
    if (rng->used == 4) {
        cod_philox4x32(rng->counter, rng->key, rng->block);
        rng->counter[0]++;
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

/** So many blocks at once, lane by lane, so that compilers use vectors. */
enum { LANES = 16 };

COD_WIDE static void philox_lanes(cod_rng *rng, uint32_t *out)
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES], k0 = rng->key[0], k1 = rng->key[1];
    for (uint32_t l = 0; l < LANES; l++)
        c0[l] = rng->counter[0] + l, c1[l] = rng->counter[1], c2[l] = rng->counter[2], c3[l] = rng->counter[3];
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < LANES; l++) {
            const uint64_t product0 = (uint64_t)0xD2511F53u * c0[l], product1 = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l] = (uint32_t)(product1 >> 32) ^ c1[l] ^ k0;
            c1[l] = (uint32_t)product1;
            c2[l] = (uint32_t)(product0 >> 32) ^ c3[l] ^ k1;
            c3[l] = (uint32_t)product0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < LANES; l++)
        out[4 * l] = c0[l], out[4 * l + 1] = c1[l], out[4 * l + 2] = c2[l], out[4 * l + 3] = c3[l];
    rng->counter[0] += LANES;
}

void cod_rng_fill(cod_rng *rng, uint32_t *numbers, size_t count)
{
    size_t i = 0;
    for (; i < count && rng->used < 4; i++)
        numbers[i] = cod_rng_u32(rng);
    for (; i + 4 * LANES <= count; i += 4 * LANES)
        philox_lanes(rng, numbers + i);
    for (; i < count; i++)
        numbers[i] = cod_rng_u32(rng);
}

uint32_t cod_rng_below(cod_rng *rng, uint32_t bound)
{
    /* Lemire 2019: multiply, and reject the few values that would make some results likelier. */
    const uint32_t threshold = (0u - bound) % bound;
    for (;;) {
        uint32_t low;
        const uint32_t high = multiply_high(cod_rng_u32(rng), bound, &low);
        if (low >= threshold)
            return high;
    }
}

double cod_rng_uniform(cod_rng *rng)
{
    const uint64_t high = cod_rng_u32(rng) >> 5, low = cod_rng_u32(rng) >> 6;
    return (double)((high << 26) | low) * 0x1p-53;
}

void cod_rng_permutation(cod_rng *rng, uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) {
        const uint32_t j = cod_rng_below(rng, (uint32_t)i);
        const uint32_t swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
}

#include "codec/gradient_codec.h"

#include "core/memory.h"

#include <math.h>
#include <string.h>

enum { BIT_BLOCK = 256, BIT_BLOCK_BYTES = 2 * sizeof(float) + BIT_BLOCK / 8 };

static const cod_codec_options int8_options = {
    .coding = COD_CHUNK_INT8, .entropy = COD_CODEC_PLAIN, .bf16_scales = true, .chunk_values = 16384};

static cod_codec_range whole(size_t count)
{
    return (cod_codec_range){.count = count, .exact_from = count};
}

static size_t kept_of(double fraction, size_t count)
{
    const size_t kept = (size_t)(fraction * (double)count + 0.5);
    return kept < 1 ? (count > 0) : kept < count ? kept : count;
}

uint64_t cod_gradient_codec_bytes(cod_gradient_coding coding, double fraction, size_t count)
{
    const cod_codec_range range = whole(count);
    switch (coding) {
    case COD_GRADIENT_NONE:
        return count * sizeof(float);
    case COD_GRADIENT_INT8:
        return cod_codec_bound(&int8_options, &range);
    case COD_GRADIENT_TOPK:
        return kept_of(fraction, count) * (sizeof(uint32_t) + sizeof(float));
    case COD_GRADIENT_ONEBIT:
        return (uint64_t)((count + BIT_BLOCK - 1) / BIT_BLOCK) * BIT_BLOCK_BYTES;
    }
    return 0;
}

cod_status cod_gradient_codec_init(cod_gradient_codec *codec, cod_gradient_coding coding, double fraction, size_t count,
                                   uint64_t run)
{
    *codec = (cod_gradient_codec){.coding = coding,
                                  .count = count,
                                  .kept = kept_of(fraction, count),
                                  .bytes = cod_gradient_codec_bytes(coding, fraction, count),
                                  .run = run};
    COD_REQUIRE(count <= UINT32_MAX, "a message of %zu values is too large", count);
    if (coding == COD_GRADIENT_TOPK)
        return cod_aligned_alloc((void **)&codec->magnitudes, count * sizeof(float));
    return coding == COD_GRADIENT_INT8 ? cod_codec_init(&codec->int8, &int8_options) : COD_OK;
}

void cod_gradient_codec_clear(cod_gradient_codec *codec)
{
    cod_codec_clear(&codec->int8);
    cod_aligned_free(codec->magnitudes);
    *codec = (cod_gradient_codec){0};
}

static cod_status require_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return cod_fail(COD_ERR_NUMERIC, "value %zu of %zu is NaN or infinite", i, count);
    return COD_OK;
}

/**
 * Cuts v[low…high], from the largest down, as Hoare does: nothing up to the place returned, below `high`, is less than
 * what follows.
 */
static size_t partition(float *v, size_t low, size_t high)
{
    const float pivot = v[low + (high - low) / 2];
    for (size_t i = low, j = high;; i++, j--) {
        while (v[i] > pivot)
            i++;
        while (v[j] < pivot)
            j--;
        if (i >= j)
            return j;
        const float swapped = v[i];
        v[i] = v[j];
        v[j] = swapped;
    }
}

/** The k-th largest of `v` (k from 1), which are put in another order. */
static float select_largest(float *v, size_t count, size_t k)
{
    size_t low = 0, high = count - 1;
    while (low < high) {
        const size_t split = partition(v, low, high);
        if (k - 1 <= split)
            high = split;
        else
            low = split + 1;
    }
    return v[k - 1];
}

/** Places in rising order, then the values. Of equal magnitudes the first ones go. */
static void encode_largest(cod_gradient_codec *codec, const float *values, unsigned char *message, float *decoded)
{
    const size_t count = codec->count, kept = codec->kept;
    size_t larger = 0, used = 0;
    if (count == 0)
        return;
    for (size_t i = 0; i < count; i++)
        codec->magnitudes[i] = fabsf(values[i]);
    const float threshold = select_largest(codec->magnitudes, count, kept);
    for (size_t i = 0; i < count; i++)
        larger += fabsf(values[i]) > threshold;
    size_t equal = kept - larger;
    for (size_t i = 0; i < count; i++) {
        const float magnitude = fabsf(values[i]);
        const bool sent = magnitude > threshold || (magnitude == threshold && equal > 0);
        if (decoded != NULL)
            decoded[i] = sent ? values[i] : 0;
        if (!sent)
            continue;
        const uint32_t place = (uint32_t)i;
        equal -= magnitude == threshold;
        memcpy(message + used * sizeof place, &place, sizeof place);
        memcpy(message + kept * sizeof place + used * sizeof(float), &values[i], sizeof(float));
        used++;
    }
}

static cod_status decode_largest(const cod_gradient_codec *codec, const unsigned char *message, float *decoded)
{
    uint64_t least = 0;
    memset(decoded, 0, codec->count * sizeof *decoded);
    for (size_t k = 0; k < codec->kept; k++) {
        uint32_t place;
        float value;
        memcpy(&place, message + k * sizeof place, sizeof place);
        memcpy(&value, message + codec->kept * sizeof place + k * sizeof value, sizeof value);
        if (place < least || place >= codec->count || !isfinite(value))
            return cod_fail(COD_ERR_FORMAT, "entry %zu of a top-k message is for value %u of %zu", k, (unsigned)place,
                            codec->count);
        decoded[place] = value;
        least = (uint64_t)place + 1;
    }
    return COD_OK;
}

static void decode_bits(const unsigned char *block, size_t count, float *decoded)
{
    float mean[2];
    memcpy(mean, block, sizeof mean);
    for (size_t i = 0; i < count; i++)
        decoded[i] = mean[(block[sizeof mean + i / 8] >> (i % 8)) & 1];
}

/** A block: the mean of the values below zero, that of the others, a bit a value that says which. */
static void encode_bits(const float *values, size_t count, unsigned char *block)
{
    double sum[2] = {0, 0};
    size_t counts[2] = {0, 0};
    memset(block, 0, BIT_BLOCK_BYTES);
    for (size_t i = 0; i < count; i++) {
        const int side = values[i] >= 0;
        sum[side] += (double)values[i];
        counts[side]++;
        block[2 * sizeof(float) + i / 8] |= (unsigned char)(side << (i % 8));
    }
    for (int side = 0; side < 2; side++) {
        const float mean = counts[side] > 0 ? (float)(sum[side] / (double)counts[side]) : 0;
        memcpy(block + (size_t)side * sizeof mean, &mean, sizeof mean);
    }
}

static size_t block_values(const cod_gradient_codec *codec, size_t first)
{
    return codec->count - first < BIT_BLOCK ? codec->count - first : BIT_BLOCK;
}

static cod_status encode_int8(cod_gradient_codec *codec, const float *values, uint64_t version, unsigned char *message,
                              float *decoded)
{
    const cod_codec_range range = whole(codec->count);
    const cod_codec_key key = {.run = codec->run, .version = version};
    memset(message, 0, codec->bytes);
    cod_codec_begin(&codec->int8, &range, &key);
    COD_TRY(cod_codec_encode(&codec->int8, values, NULL, UINT64_MAX, message, codec->bytes, decoded));
    COD_REQUIRE(codec->int8.bytes == codec->bytes, "a message has %llu coded bytes, not %llu",
                (unsigned long long)codec->int8.bytes, (unsigned long long)codec->bytes);
    return COD_OK;
}

cod_status cod_gradient_codec_encode(cod_gradient_codec *codec, const float *values, uint64_t version,
                                     unsigned char *message, float *decoded)
{
    const size_t count = codec->count;
    if (codec->coding == COD_GRADIENT_INT8)
        return encode_int8(codec, values, version, message, decoded);
    if (codec->coding == COD_GRADIENT_NONE) {
        memcpy(message, values, count * sizeof *values);
        if (decoded != NULL)
            memcpy(decoded, values, count * sizeof *values);
        return COD_OK;
    }
    COD_TRY(require_finite(values, count));
    if (codec->coding == COD_GRADIENT_TOPK) {
        encode_largest(codec, values, message, decoded);
        return COD_OK;
    }
    for (size_t i = 0, b = 0; i < count; i += BIT_BLOCK, b++) {
        encode_bits(values + i, block_values(codec, i), message + b * BIT_BLOCK_BYTES);
        if (decoded != NULL)
            decode_bits(message + b * BIT_BLOCK_BYTES, block_values(codec, i), decoded + i);
    }
    return COD_OK;
}

cod_status cod_gradient_codec_decode(cod_gradient_codec *codec, const unsigned char *message, uint64_t version,
                                     float *decoded)
{
    const cod_codec_range range = whole(codec->count);
    const cod_codec_key key = {.run = codec->run, .version = version};
    switch (codec->coding) {
    case COD_GRADIENT_NONE:
        memcpy(decoded, message, codec->count * sizeof *decoded);
        return COD_OK;
    case COD_GRADIENT_INT8:
        cod_codec_begin(&codec->int8, &range, &key);
        return cod_codec_decode(&codec->int8, message, codec->bytes, NULL, UINT64_MAX, decoded);
    case COD_GRADIENT_TOPK:
        return decode_largest(codec, message, decoded);
    case COD_GRADIENT_ONEBIT:
        for (size_t i = 0, b = 0; i < codec->count; i += BIT_BLOCK, b++)
            decode_bits(message + b * BIT_BLOCK_BYTES, block_values(codec, i), decoded + i);
        return require_finite(decoded, codec->count) == COD_OK
                   ? COD_OK
                   : cod_fail(COD_ERR_FORMAT, "a mean of a 1-bit message is not finite");
    }
    return COD_OK;
}

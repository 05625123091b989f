/*
 * STEP: values as whole multiples of one step for each chunk. The error is uniform in ±step/2, so step = √12 ·
 * 10^(-dB/20) · rms of the *weights* gives the requested signal-to-noise ratio, whatever the reference. The closer the
 * reference, the smaller the multiples, and the fewer bytes an entropy coder needs. Codes of 2, 4 or 8 bits are packed
 * into bytes first: a Huffman code spends at least one bit on a byte, so four or two values share it.
 */
#include "codec/codec_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LANES = COD_CHUNK_STEP_LANES, BLOCK = COD_CHUNK_STEP_BLOCK, MAX_STEPS = COD_CHUNK_STEP_MOST };

/** Sums of squares, by lanes in an order of our own: the ranks of a group must find the same step. */
typedef struct moments {
    double weights, change;
} moments;

typedef float lanes __attribute__((vector_size(4 * LANES)));

/** One block's, in f32: `delta` is known where this is inlined, so that no loop has a branch. */
static inline void add_block(const float *values, const float *reference, size_t count, bool delta, moments *m)
{
    lanes weights = {0}, change = {0}, held = {0};
    for (size_t i = 0; i < count; i += LANES) {
        lanes w = {0};
        if (count - i >= LANES) {
            memcpy(&w, values + i, sizeof w);
            if (delta)
                memcpy(&held, reference + i, sizeof held);
        } else {
            held = w;
            memcpy(&w, values + i, (count - i) * sizeof *values);
            if (delta)
                memcpy(&held, reference + i, (count - i) * sizeof *values);
        }
        weights += w * w;
        change += (w - held) * (w - held);
    }
    for (int k = 0; k < LANES; k++) {
        m->weights += (double)weights[k];
        m->change += (double)change[k];
    }
}

static moments measure(const float *values, const float *reference, size_t count)
{
    moments m = {0};
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        if (reference != NULL)
            add_block(values + at, reference + at, n, true, &m);
        else
            add_block(values + at, NULL, n, false, &m);
    }
    return m;
}

/** The largest magnitude of a change. */
static double largest_change(const float *values, const float *reference, size_t count)
{
    float largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmaxf(largest, fabsf(reference != NULL ? values[i] - reference[i] : values[i]));
    return (double)largest;
}

/** No clipping: the step was made so large that no quotient is beyond MAX_STEPS. */
static inline int16_t rounded(float quotient, float rounding)
{
    return (int16_t)(int)(quotient + copysignf(rounding, quotient));
}

static void quantise(const float *restrict values, const float *restrict reference, size_t count, float inverse,
                     float rounding, int16_t *restrict steps)
{
    if (reference != NULL)
        for (size_t i = 0; i < count; i++)
            steps[i] = rounded((values[i] - reference[i]) * inverse, rounding);
    else
        for (size_t i = 0; i < count; i++)
            steps[i] = rounded(values[i] * inverse, 0.5f);
}

/** Counts in 16 bits, as wide as the steps. */
static size_t count_beyond(const int16_t *steps, size_t count, int limit)
{
    const int16_t high = (int16_t)limit, low = (int16_t)-limit;
    size_t beyond = 0;
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        uint16_t found = 0;
        for (size_t i = 0; i < n; i++)
            found = (uint16_t)(found + ((steps[at + i] > high) | (steps[at + i] < low)));
        beyond += found;
    }
    return beyond;
}

float codec_step_quantise(const float *values, const float *reference, size_t count, const cod_codec_options *options,
                          const codec_scratch *scratch, coding *how)
{
    const coding blocks = {.kind = COD_CHUNK_INT8, .bf16_scales = true, .parameter = COD_INT8_BLOCK_LOG2};
    moments m = measure(values, reference, count);
    *how = (coding){.kind = COD_CHUNK_STEP, .delta = reference != NULL && m.change < m.weights};
    if (reference != NULL && !how->delta) {
        m = measure(values, NULL, count);
        reference = NULL;
    }
    double step = sqrt(12 * m.weights / (double)count) * pow(10, -options->quality_db / 20);
    if (step < sqrt(m.change) / MAX_STEPS) /* no change can be larger than this, and hardly a chunk has one so large */
        step = fmax(step, largest_change(values, reference, count) / MAX_STEPS);
    if (!(step >= COD_CHUNK_LEAST_STEP && step <= FLT_MAX)) {
        *how = blocks;
        return 0;
    }
    quantise(values, reference, count, (float)(1 / step), options->rounding, scratch->steps);
    const uint64_t escapes = count_beyond(scratch->steps, count, cod_chunk_largest_step(3));
    if (COD_CHUNK_STEP_PREFIX_BYTES + count + 2 * escapes > cod_chunk_step_bound(count))
        *how = blocks;
    return (float)step;
}

/** The shortest codes that few values exceed: an escaped one takes two bytes more. */
static unsigned choose_bits(const int16_t *steps, size_t count)
{
    for (unsigned bits_log2 = 1; bits_log2 < 3; bits_log2++)
        if (count_beyond(steps, count, cod_chunk_largest_step(bits_log2)) <= count / COD_CHUNK_STEP_FEW)
            return bits_log2;
    return 3;
}

static void pack_codes(unsigned bits_log2, unsigned char *codes, size_t count, unsigned char *out)
{
    if (bits_log2 == 3) {
        memcpy(out, codes, count);
        return;
    }
    const size_t each = (size_t)8 >> bits_log2, bits = (size_t)1 << bits_log2, whole = count / each;
    /* A byte's codes are read as one word: compilers make vectors of that. */
    if (bits_log2 == 2)
        for (size_t i = 0; i < whole; i++) {
            uint16_t two;
            memcpy(&two, codes + 2 * i, sizeof two);
            out[i] = (unsigned char)(two | two >> 4);
        }
    else
        for (size_t i = 0; i < whole; i++) {
            uint32_t four;
            memcpy(&four, codes + 4 * i, sizeof four);
            out[i] = (unsigned char)(four | four >> 6 | four >> 12 | four >> 18);
        }
    unsigned last = 0;
    for (size_t i = whole * each; i < count; i++)
        last |= (unsigned)codes[i] << (i % each * bits);
    if (whole * each < count)
        out[whole] = (unsigned char)last;
}

static void unpack_codes(unsigned bits_log2, const unsigned char *in, size_t count, unsigned char *codes)
{
    if (bits_log2 == 3) {
        memcpy(codes, in, count);
        return;
    }
    const size_t each = (size_t)8 >> bits_log2, bits = (size_t)1 << bits_log2, whole = count / each;
    if (bits_log2 == 2)
        for (size_t i = 0; i < whole; i++) {
            const uint16_t two = (uint16_t)((in[i] | in[i] << 4) & 0x0F0F);
            memcpy(codes + 2 * i, &two, sizeof two);
        }
    else
        for (size_t i = 0; i < whole; i++) {
            const uint32_t byte = in[i], four = (byte | byte << 6 | byte << 12 | byte << 18) & 0x03030303u;
            memcpy(codes + 4 * i, &four, sizeof four);
        }
    for (size_t i = whole * each; i < count; i++)
        codes[i] = (unsigned char)(in[whole] >> (i % each * bits) & ((1u << bits) - 1));
}

static void codes_of_steps(const int16_t *restrict steps, size_t count, int largest, unsigned char *restrict codes)
{
    const uint16_t escape = (uint16_t)(2 * largest + 1);
    for (size_t i = 0; i < count; i++) {
        const uint16_t code = (uint16_t)(steps[i] + largest);
        codes[i] = (unsigned char)(code < escape ? code : escape);
    }
}

static void steps_of_codes(const unsigned char *restrict codes, size_t count, int largest, int16_t *restrict steps)
{
    for (size_t i = 0; i < count; i++)
        steps[i] = (int16_t)(codes[i] - largest);
}

uint64_t codec_step_write(const codec_scratch *scratch, size_t count, float step, coding *how)
{
    const unsigned bits_log2 = choose_bits(scratch->steps, count);
    const int largest = cod_chunk_largest_step(bits_log2), escape = 2 * largest + 1;
    unsigned char *escaped = scratch->payload + COD_CHUNK_STEP_PREFIX_BYTES + cod_chunk_code_bytes(bits_log2, count),
                  *at = escaped;
    how->parameter = bits_log2;
    codes_of_steps(scratch->steps, count, largest, scratch->codes);
    for (const unsigned char *code = scratch->codes;
         (code = memchr(code, escape, count - (size_t)(code - scratch->codes))) != NULL; code++, at += 2)
        cod_store_u16(at, (uint16_t)scratch->steps[code - scratch->codes]);
    memcpy(scratch->payload, &step, sizeof step);
    cod_store_u32(scratch->payload + 4, (uint32_t)((at - escaped) / 2));
    pack_codes(bits_log2, scratch->codes, count, scratch->payload + COD_CHUNK_STEP_PREFIX_BYTES);
    return (uint64_t)(at - scratch->payload);
}

void codec_step_apply(const codec_scratch *scratch, size_t count, float step, const float *reference, float *values)
{
    if (reference != NULL)
        for (size_t i = 0; i < count; i++)
            values[i] = reference[i] + (float)scratch->steps[i] * step;
    else
        for (size_t i = 0; i < count; i++)
            values[i] = (float)scratch->steps[i] * step;
}

const char *codec_step_read(const coding *how, const unsigned char *payload, uint64_t bytes, size_t count,
                            const codec_scratch *scratch, float *step)
{
    const int largest = cod_chunk_largest_step(how->parameter), escape = 2 * largest + 1;
    const uint64_t fixed = COD_CHUNK_STEP_PREFIX_BYTES + cod_chunk_code_bytes(how->parameter, count);
    if (bytes < fixed || (bytes - fixed) / 2 != cod_load_u32(payload + 4) || (bytes - fixed) % 2 != 0)
        return "its length does not fit its codes";
    memcpy(step, payload, sizeof *step);
    unpack_codes(how->parameter, payload + COD_CHUNK_STEP_PREFIX_BYTES, count, scratch->codes);
    steps_of_codes(scratch->codes, count, largest, scratch->steps);
    const unsigned char *escaped = payload + fixed, *end = payload + bytes;
    for (const unsigned char *at = scratch->codes;
         (at = memchr(at, escape, count - (size_t)(at - scratch->codes))) != NULL; at++) {
        if (escaped == end)
            return "more codes are escaped than said";
        scratch->steps[at - scratch->codes] = (int16_t)cod_load_u16(escaped);
        escaped += 2;
    }
    return escaped == end ? NULL : "fewer codes are escaped than said";
}

/**
 * @file
 * The decoders of what a peer sends, as a fuzzer feeds them.
 *
 * An input is three bytes and the data. Byte 0: bit 0 the decoder (0 chunks, 1 a window's header), bit 1 checksums are put right
 * first, so that what lies behind them is reached, bit 2 there is a reference for deltas, bits 3-4 which values are exact (none, all,
 * the second half, the last three). Bytes 1 and 2, little-endian: the number of values, modulo 2048.
 */
#ifndef COD_TESTS_DISTILL_FUZZ_DECODERS_H
#define COD_TESTS_DISTILL_FUZZ_DECODERS_H

#include <stddef.h>
#include <stdint.h>

enum {
    FUZZ_HEADER = 1,
    FUZZ_SEAL = 2,
    FUZZ_REFERENCE = 4,
    FUZZ_EXACT_ALL = 8,
    FUZZ_EXACT_HALF = 16,
    FUZZ_EXACT_LAST = 24
};
enum { FUZZ_CHUNK_VALUES = 256, FUZZ_VALUES = 2048 };

#include "codec/codec.h"
#include "distill/slot.h"

extern const cod_codec_key fuzz_key;
extern const cod_slot_identity fuzz_identity;
extern const cod_slot_layout fuzz_layout;

/** The range and the reference ([FUZZ_VALUES], or NULL) that the first bytes of an input ask for. */
cod_codec_range fuzz_range(const uint8_t *input);
const float *fuzz_reference(const uint8_t *input);

/** Inputs so far that were taken: chunks, headers. A corpus of another format would test nothing. */
extern size_t fuzz_taken[2];

/** libFuzzer's entry: aborts where a decoder does what it must not. @return 0 */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

#endif

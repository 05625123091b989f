#include "core/fingerprint.h"

#include <string.h>

/* Both values of a pair are read as one word, whose low half is the first. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "put the pair together by shifts on a big-endian machine");

uint64_t cod_fingerprint(const float *values, size_t count)
{
    const size_t pairs = count / 2;
    uint64_t sum = 0, bits = 0;
    for (size_t i = 0; i < pairs; i++) {
        memcpy(&bits, values + 2 * i, sizeof bits);
        sum += cod_fingerprint_part(bits, i);
    }
    if (count % 2 != 0) {
        bits = 0;
        memcpy(&bits, values + count - 1, sizeof *values);
        sum += cod_fingerprint_part(bits, pairs);
    }
    return cod_fingerprint_of_sum(sum);
}

/**
 * @file
 * The numbers of a saved exchange, which its parts write and read in one order.
 */
#ifndef COD_EXCHANGE_NUMBERS_INTERNAL_H
#define COD_EXCHANGE_NUMBERS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/** Numbers of a checkpoint in a fixed order, being written or read. */
typedef struct exchange_numbers {
    uint64_t *next;
    bool restoring;
} exchange_numbers;

static inline void exchange_pack_u64(exchange_numbers *numbers, uint64_t *field)
{
    if (numbers->restoring)
        *field = *numbers->next++;
    else
        *numbers->next++ = *field;
}

static inline void exchange_pack_i64(exchange_numbers *numbers, int64_t *field)
{
    uint64_t bits = (uint64_t)*field;
    exchange_pack_u64(numbers, &bits);
    *field = (int64_t)bits;
}

#endif

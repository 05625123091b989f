/**
 * @file
 * Whole numbers that arrive as doubles: from JSON, from a checkpoint's text, from flags.
 *
 * Casting a double to an integer type that cannot hold it is undefined in C, so numbers from outside are checked first.
 */
#ifndef COD_CORE_WHOLE_H
#define COD_CORE_WHOLE_H

#include <math.h>
#include <stdbool.h>

/** A double holds every whole number up to this one. The text of 2^53 + 1 reads as 2^53. */
#define COD_WHOLE_MOST 0x1p53

/** Whether a number is a whole one from `least` to `most`; NaN and the infinities are none. */
static inline bool cod_is_whole(double number, double least, double most)
{
    return number >= least && number <= most && number == floor(number);
}

#endif

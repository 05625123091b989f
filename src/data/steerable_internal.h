/**
 * @file
 * The steerable pyramid of a plane, in the frequency domain: one band of high frequencies, and at each of two levels
 * six bands of orientations (Simoncelli & Freeman 1995; Portilla & Simoncelli 2000, section 2).
 *
 * The bands are those of `buildSFpyr(plane, 2, 5)` of matlabPyrTools. As there (`rcosFn`, `pointOp`), filters are read
 * from tables by linear interpolation.
 */
#ifndef COD_DATA_STEERABLE_INTERNAL_H
#define COD_DATA_STEERABLE_INTERNAL_H

#include "data/plane_internal.h"

enum { COD_STEERABLE_LEVELS = 2, COD_STEERABLE_BANDS = 6 };

typedef struct cod_steerable {
    cod_plane high; /**< of the plane's own size */
    /** The first level has the plane's own size, the second one half of it, rounded up. */
    cod_plane band[COD_STEERABLE_LEVELS][COD_STEERABLE_BANDS];
} cod_steerable;

/** @param[out] pyramid  new; cod_steerable_clear(), also after a failure */
COD_MUST_CHECK cod_status cod_steerable_init(const cod_plane *plane, cod_steerable *pyramid);
void cod_steerable_clear(cod_steerable *pyramid);

#endif

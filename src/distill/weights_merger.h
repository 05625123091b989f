/**
 * @file
 * Merges peers' values into the weights of a session (exchange/merge.h), whose versions rise.
 */
#ifndef COD_DISTILL_WEIGHTS_MERGER_H
#define COD_DISTILL_WEIGHTS_MERGER_H

#include "exchange/merge.h"
#include "nn/weights.h"

typedef struct cod_weights_merger cod_weights_merger;

/**
 * Makes a merger for these sets of the weights, which are borrowed.
 *
 * @param ends  [count] as of cod_merger_create(): values are counted as cod_weights_layout_of() does
 */
COD_MUST_CHECK cod_status cod_weights_merger_create(cod_weights *weights, cod_sets sets, const size_t *ends,
                                                    size_t count, cod_weights_merger **out);
void cod_weights_merger_destroy(cod_weights_merger *merger);

/** As cod_merger_apply(). */
COD_MUST_CHECK cod_status cod_weights_merger_apply(cod_weights_merger *merger, const cod_merge *merges, size_t count);

#endif

#include "distill/weights_merger.h"

#include <stdlib.h>

struct cod_weights_merger {
    cod_weights *weights;
    cod_sets sets;
    cod_merger *merger;
};

/** Trainable values of one set after the other, then their states. */
static cod_status make(cod_weights_merger *m, const size_t *ends, size_t count)
{
    const cod_weights *weights = m->weights;
    cod_merge_values values[2 * COD_GRAPH_MAX_SETS];
    cod_merge_target target = {.backend = weights->backend, .device = weights->device, .values = values};
    for (int state = 0; state < 2; state++) {
        for (int s = 0; s < (int)cod_graph_set_count(weights->graph); s++) {
            const cod_set_range *range = &weights->sets[s].range;
            size_t at;
            cod_buffer *states = cod_weights_states(weights, s, &at);
            if ((m->sets & cod_set_of(s)) != 0)
                values[target.count++] =
                    state ? (cod_merge_values){.buffer = states, .offset = at, .count = range->state_count}
                          : (cod_merge_values){.buffer = weights->values,
                                               .offset = range->first * sizeof(float),
                                               .count = range->count};
        }
        target.trainable = state ? target.trainable : target.count;
    }
    return cod_merger_create(&target, ends, count, &m->merger);
}

cod_status cod_weights_merger_create(cod_weights *weights, cod_sets sets, const size_t *ends, size_t count,
                                     cod_weights_merger **out)
{
    cod_weights_merger *m = calloc(1, sizeof *m);
    COD_REQUIRE_MEMORY(m);
    *m = (cod_weights_merger){.weights = weights, .sets = sets};
    const cod_status status = make(m, ends, count);
    if (status != COD_OK) {
        free(m);
        return status;
    }
    *out = m;
    return COD_OK;
}

void cod_weights_merger_destroy(cod_weights_merger *m)
{
    if (m != NULL)
        cod_merger_destroy(m->merger);
    free(m);
}

cod_status cod_weights_merger_apply(cod_weights_merger *m, const cod_merge *merges, size_t count)
{
    if (count == 0)
        return COD_OK;
    COD_TRY(cod_merger_apply(m->merger, merges, count));
    cod_weights_changed(m->weights, m->sets);
    cod_weights_states_changed(m->weights, m->sets);
    return COD_OK;
}

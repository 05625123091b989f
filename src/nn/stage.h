/**
 * @file
 * Stages: a graph cut into runs of nodes, each computed by a rank of its own (pipeline parallelism).
 *
 * A stage begins with a layer that has weights, a convolution or a linear layer, so that ops fused in the whole graph
 * are also fused in its stages. Every value computed before a cut and read after it crosses the cut, such as a block's
 * input in addition to its output. The graph's own inputs do not cross: every stage that reads them receives them.
 */
#ifndef COD_NN_STAGE_H
#define COD_NN_STAGE_H

#include "nn/graph.h"

/** Nodes [first, end). All zero: the whole graph. */
typedef struct cod_stage {
    size_t first, end;
} cod_stage;

/** Whether the stage is less than the whole graph. */
static inline bool cod_stage_is_part(const cod_stage *stage)
{
    return stage->end > 0;
}

/** Whether a stage may begin with this node. */
bool cod_stage_may_begin(const cod_graph *graph, size_t node);

/** A part of the flat buffer, in elements. */
typedef struct cod_stage_range {
    size_t first, count;
} cod_stage_range;

/**
 * The stage's part of the trainable elements, or of the states; the parts of successive stages follow each other.
 *
 * @param layout  what cod_graph_layout() returned
 * @return COD_ERR_ARGUMENT if a layer of the stage shares a parameter with a layer of another stage
 */
COD_MUST_CHECK cod_status cod_stage_find_range(const cod_graph *graph, const cod_layout *layout, const cod_stage *stage,
                                               bool state, cod_stage_range *out);

#endif

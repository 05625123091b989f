/* What one program keeps of its forward pass, and another resumes. */
#include "nn/lower_internal.h"

/** Marks the needed nodes from which `to` is made, back to `from`. */
static void mark_span(const lowering *lower, cod_span span, bool *nodes)
{
    const size_t end = span.to != 0 ? lower_producer(lower, span.to) + 1 : 0;
    if (end > 0)
        nodes[end - 1] = true;
    for (size_t i = end; i-- > 0;) {
        const cod_node *node = lower_node(lower, i);
        for (int k = 0; nodes[i] && k < node->input_count; k++) {
            const size_t producer = lower_producer(lower, node->inputs[k]);
            if (node->inputs[k] != span.from && lower_node(lower, producer)->kind != COD_NODE_INPUT)
                nodes[producer] = true;
        }
    }
}

void lower_mark_spans(lowering *lower)
{
    for (size_t i = 0; i < COD_PROGRAM_MAX_SPANS; i++) {
        mark_span(lower, lower->spec->keeps[i], lower->keeps);
        mark_span(lower, lower->spec->resumes[i], lower->resumes);
    }
}

static cod_status keep_node(lowering *lower, size_t index)
{
    const lower_group *group = &lower->groups[index];
    const cod_node *node = lower_node(lower, index);
    const bool dense = node->kind == COD_NODE_CONV2D || node->kind == COD_NODE_LINEAR;
    COD_REQUIRE(!dense || node->params[2] < 0,
                "program '%s': '%s' has a spectrally normalised weight, and cannot be kept", lower->spec->name,
                node->name);
    const ir_kept here = {.known = true,
                          .wide = lower->wide[group->output],
                          .by_batch = node->kind == COD_NODE_NORM && lower_uses_batch(lower, node),
                          .norm = group->norm,
                          .shuffle = group->shuffle,
                          .activation = group->activation,
                          .residual = group->residual,
                          .output = group->output,
                          .offsets = {lower->context->output_offset[group->output], SIZE_MAX, SIZE_MAX}};
    ir_kept *kept = &lower->context->kept[index];
    if (!kept->known)
        *kept = here;
    COD_REQUIRE(kept->wide == here.wide && kept->by_batch == here.by_batch && kept->norm == here.norm &&
                    kept->shuffle == here.shuffle && kept->activation == here.activation &&
                    kept->residual == here.residual && kept->output == here.output,
                "program '%s' computes '%s' in another way than another program that keeps or resumes it",
                lower->spec->name, node->name);
    return COD_OK;
}

cod_status lower_keep(lowering *lower)
{
    for (size_t i = 0; i < cod_graph_node_count(lower->context->graph); i++)
        if (lower->groups[i].live && lower_is_kept(lower, i))
            COD_TRY(keep_node(lower, i));
    return COD_OK;
}

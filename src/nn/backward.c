/* The backward pass: reverse-mode differentiation over the emitted groups. */
#include "nn/ops/ops_internal.h"

static void backward_node(lowering *lower, size_t index)
{
    const lower_group *group = &lower->groups[index];
    const int dy = lower->grad[group->output];
    if (dy == 0 || !lower->needs_grad[group->output])
        return;
    if (group->rules->backward != NULL)
        group->rules->backward(lower, lower_node(lower, index), group, dy);
    lower->consumed[group->output] = true;
}

void lower_backward(lowering *lower)
{
    const size_t nodes = cod_graph_node_count(lower->context->graph),
                 params = cod_graph_param_count(lower->context->graph);
    for (size_t i = 0; i < nodes; i++) {
        lower->node = i;
        if (lower->groups[i].live && lower_node(lower, i)->kind == COD_NODE_LOSS)
            loss_emit(lower, lower_node(lower, i));
    }
    if (!lower->training)
        return;
    lower_seed_gradients(lower);
    for (size_t i = nodes; i-- > 0;) {
        lower->node = i;
        if (lower->groups[i].live)
            backward_node(lower, i);
    }
    lower_give_gradients(lower);
    /* Parameters that no loss depends on: fill their gradients with zeros and signal their buckets. */
    for (size_t p = 0; p < params; p++) {
        const cod_param *info = cod_graph_param(lower->context->graph, p);
        bool adds;
        if (info->set != lower->set || info->is_state || lower->param_grad[p] != 0 || info->offset < lower->own.first ||
            info->offset - lower->own.first >= lower->own.count)
            continue;
        const int grad = lower_param_contribution(lower, (int)p, &adds);
        if (adds) /* nothing to add: as complete as it was before the run */
            lower->program->grad_ready[p] = -1;
        else
            lower_emit(lower, (ir_instr){.kind = COD_OP_FILL, .outputs = {grad}, .name = "zero"});
    }
}

/* Which nodes a program needs, which are fused, and which values keep full precision. */
#include "nn/ops/ops_internal.h"

/**
 * Whether a normalisation of running statistics may be folded into a convolution: into weights that get no gradient.
 */
static bool may_fold(const lowering *lower, const cod_node *conv, int reader)
{
    const cod_node *norm = reader >= 0 ? lower_node(lower, (size_t)reader) : NULL;
    return conv->kind == COD_NODE_CONV2D && conv->params[2] < 0 && norm != NULL && norm->kind == COD_NODE_NORM &&
           !lower_uses_batch(lower, norm) &&
           cod_graph_param(lower->context->graph, (size_t)conv->params[0])->set != lower->set;
}

static void mark_needed(lowering *lower)
{
    for (size_t i = 0; i < COD_PROGRAM_MAX_GIVEN; i++)
        if (lower->spec->given[i] != 0)
            lower->given[lower->spec->given[i]] = true;
    for (size_t i = 0; i < COD_PROGRAM_MAX_LOSSES; i++)
        if (lower->spec->losses[i])
            lower->needed[lower_producer(lower, lower->spec->losses[i])] = true;
    for (size_t i = 0; i < COD_PROGRAM_MAX_OUTPUTS; i++)
        if (lower->spec->outputs[i])
            lower->needed[lower_producer(lower, lower->spec->outputs[i])] = true;
    for (size_t i = 0; i < COD_PROGRAM_MAX_SPANS; i++)
        if (lower->spec->keeps[i].to != 0)
            lower->needed[lower_producer(lower, lower->spec->keeps[i].to)] = true;
    for (size_t i = cod_graph_node_count(lower->context->graph); i-- > 0;) {
        const cod_node *node = lower_node(lower, i);
        for (int k = 0; lower->needed[i] && k < node->input_count; k++)
            if (!lower->given[node->inputs[k]])
                lower->needed[lower_producer(lower, node->inputs[k])] = true;
    }
}

/** The one needed node that reads `value`, or -1 when there are several or the value is an output. */
static int only_reader(const lowering *lower, cod_value value)
{
    int reader = -1;
    if (lower_is_output(lower, value))
        return -1;
    for (size_t i = lower_producer(lower, value) + 1; i < cod_graph_node_count(lower->context->graph); i++) {
        const cod_node *node = lower_node(lower, i);
        for (int k = 0; lower->needed[i] && k < node->input_count; k++) {
            if (node->inputs[k] != value)
                continue;
            if (reader >= 0)
                return -1;
            reader = (int)i;
        }
    }
    return reader;
}

/** Whether an activation may join the op before it: its gradient must not need what fusing leaves out. */
static bool may_fuse_activation(const lowering *lower, cod_node_kind head, const cod_op_attr *attr)
{
    if (head == COD_NODE_NORM) /* backward recomputes what stood before the activation */
        return attr->activation == COD_ACT_RELU || attr->activation == COD_ACT_LEAKY_RELU ||
               attr->activation == COD_ACT_PRELU;
    if (!lower->training)
        return true;
    return attr->activation == COD_ACT_RELU || (attr->activation == COD_ACT_LEAKY_RELU && attr->leak > 0);
}

/** Whether what reads a convolution is a pixel shuffle of whole vectors, which it can store by itself. */
static bool may_fuse_shuffle(const lowering *lower, int reader)
{
    enum { VECTOR = 16 };
    const cod_node *node = reader >= 0 ? lower_node(lower, (size_t)reader) : NULL;
    return node != NULL && node->kind == COD_NODE_PIXEL_SHUFFLE && node->channels % VECTOR == 0;
}

/** What the sum `reader` adds to `value`, where the op at `index` can add it: a plain sum of something made before. */
static cod_value residual_of(const lowering *lower, size_t index, int reader, cod_value value)
{
    const cod_node *sum = reader >= 0 ? lower_node(lower, (size_t)reader) : NULL;
    if (sum == NULL || sum->kind != COD_NODE_ADD || sum->attr.alpha != 1 || sum->attr.beta != 1)
        return 0;
    const cod_value other = sum->inputs[sum->inputs[0] == value];
    return lower_producer(lower, other) < index ? other : 0;
}

/**
 * Whether a sum may join the op; in training a convolution's takes as long as the pass, and backward reads the
 * activation alone.
 */
static bool may_fuse_sum(const lowering *lower, const cod_node *node)
{
    return node->kind == COD_NODE_NORM || (node->kind == COD_NODE_CONV2D && !lower->training);
}

static void fuse(lowering *lower, size_t index)
{
    const cod_node *node = lower_node(lower, index);
    lower_group *group = &lower->groups[index];
    const bool dense = node->kind == COD_NODE_CONV2D || node->kind == COD_NODE_LINEAR;
    if (lower->context->options->no_fusion || (!dense && node->kind != COD_NODE_NORM))
        return;
    int reader = only_reader(lower, group->output);
    if (may_fold(lower, node, reader)) {
        group->norm = reader;
        group->output = lower_node(lower, (size_t)reader)->output;
        lower->groups[reader].live = false;
        reader = only_reader(lower, group->output);
    }
    if (node->kind == COD_NODE_CONV2D && may_fuse_shuffle(lower, reader)) {
        group->shuffle = reader;
        group->output = lower_node(lower, (size_t)reader)->output;
        lower->groups[reader].live = false;
        reader = only_reader(lower, group->output);
    }
    if (reader >= 0 && lower_node(lower, (size_t)reader)->kind == COD_NODE_ACTIVATION &&
        may_fuse_activation(lower, node->kind, &lower_node(lower, (size_t)reader)->attr)) {
        group->activation = reader;
        group->output = lower_node(lower, (size_t)reader)->output;
        lower->groups[reader].live = false;
        reader = only_reader(lower, group->output);
    }
    if (may_fuse_sum(lower, node))
        group->residual = residual_of(lower, index, reader, group->output);
    if (group->residual != 0) {
        group->output = lower_node(lower, (size_t)reader)->output;
        lower->groups[reader].live = false;
    }
}

static void mark_wide(lowering *lower)
{
    const size_t count = cod_graph_node_count(lower->context->graph);
    for (size_t i = 0; i < COD_PROGRAM_MAX_SPANS; i++) /* in all programs alike, also where no loss reads it */
        lower->wide[lower->spec->keeps[i].to] = lower->wide[lower->spec->resumes[i].to] = true;
    lower->wide[0] = false;
    for (size_t i = count; i-- > 0;) {
        const cod_node *node = lower_node(lower, i);
        lower->wide[node->output] = lower->wide[node->output] || lower->given[node->output];
        if (!lower->needed[i])
            continue;
        if (node->kind == COD_NODE_INPUT || node->kind == COD_NODE_LOSS || lower_is_asked_for(lower, node->output))
            lower->wide[node->output] = true;
        for (int k = 0; k < node->input_count; k++)
            if (node->kind == COD_NODE_LOSS || (lower->groups[i].rules->keeps_precision && lower->wide[node->output]))
                lower->wide[node->inputs[k]] = true;
    }
    /* Views forward: what is wide below stays wide above. */
    for (size_t i = 0; i < count; i++) {
        const cod_node *node = lower_node(lower, i);
        if (lower->needed[i] && lower->groups[i].rules->is_view && lower->wide[node->inputs[0]])
            lower->wide[node->output] = true;
    }
}

static void mark_gradients(lowering *lower)
{
    for (size_t i = 0; i < cod_graph_node_count(lower->context->graph); i++) {
        const cod_node *node = lower_node(lower, i);
        const node_rules *rules = lower->groups[i].rules;
        if (!lower->needed[i] || rules->differentiable == NULL)
            continue;
        bool wanted = false;
        for (int k = 0; k < COD_NODE_MAX_PARAMS; k++) {
            const cod_param *param =
                node->params[k] >= 0 ? cod_graph_param(lower->context->graph, (size_t)node->params[k]) : NULL;
            wanted = wanted || (param != NULL && !param->is_state && param->set == lower->set);
        }
        for (int k = 0; k < rules->differentiable(node); k++)
            wanted = wanted || lower->needs_grad[node->inputs[k]];
        lower->needs_grad[node->output] = wanted;
    }
}

void lower_select(lowering *lower)
{
    mark_needed(lower);
    lower_mark_spans(lower);
    lower_mark_passing(lower);
    const size_t count = cod_graph_node_count(lower->context->graph);
    for (size_t i = 0; i < count; i++)
        lower->groups[i] = (lower_group){
            .rules = node_rules_of(lower_node(lower, i)->kind),
            .live = lower->needed[i] && (lower_is_own(lower, i) || lower_node(lower, i)->kind == COD_NODE_INPUT),
            .norm = -1,
            .shuffle = -1,
            .activation = -1,
            .output = lower_node(lower, i)->output};
    for (size_t i = 0; i < count; i++)
        if (lower->groups[i].live)
            fuse(lower, i);
    mark_wide(lower);
    if (lower->training)
        mark_gradients(lower);
}

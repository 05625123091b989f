/* From graph to instructions: the forward pass. */
#include "nn/lower_internal.h"

#include "core/int8_range.h"

int lower_new_tensor(lowering *lower, cod_shape shape, cod_dtype dtype)
{
    const int tensor = ir_add_tensor(lower->program, (ir_tensor){.shape = shape, .dtype = dtype});
    lower->out_of_memory = lower->out_of_memory || tensor == 0;
    return tensor;
}

int lower_placed_tensor(lowering *lower, cod_shape shape, cod_dtype dtype, ir_place place, size_t offset)
{
    const int tensor =
        ir_add_tensor(lower->program, (ir_tensor){.shape = shape, .dtype = dtype, .place = place, .offset = offset});
    lower->out_of_memory = lower->out_of_memory || tensor == 0;
    return tensor;
}

void lower_emit(lowering *lower, ir_instr instr)
{
    instr.node = lower->node;
    if (lower->silent)
        return;
    if (!lower->out_of_memory && ir_add_instr(lower->program, instr) < 0)
        lower->out_of_memory = true;
}

int lower_param(lowering *lower, int param)
{
    if (param < 0)
        return 0;
    if (lower->param[param] == 0) {
        const cod_param *info = cod_graph_param(lower->context->graph, (size_t)param);
        const cod_dtype dtype = lower->context->param_dtype;
        const int tensor = lower->param[param] =
            lower_placed_tensor(lower, info->shape, dtype, IR_VALUES, info->offset * cod_dtype_bytes(dtype));
        lower->program->tensors[tensor].sets = cod_set_of(info->set);
        lower->program->tensors[tensor].of_states = info->is_state;
    }
    return lower->param[param];
}

int lower_narrow(lowering *lower, cod_value value)
{
    if (!lower->wide[value] || lower->context->options->activation == ir_wide_dtype(lower->context))
        return lower->tensor[value];
    if (lower->cast[value] == 0) {
        const bool silent = lower->silent;
        lower->silent = false; /* casts are not kept */
        lower->cast[value] =
            lower_new_tensor(lower, lower->context->shapes[value], lower->context->options->activation);
        lower_emit(lower, (ir_instr){.kind = COD_OP_ADD,
                                     .attr = {.alpha = 1},
                                     .inputs = {lower->tensor[value]},
                                     .outputs = {lower->cast[value]},
                                     .name = "cast"});
        lower->silent = silent;
    }
    return lower->cast[value];
}

cod_dtype lower_value_dtype(const lowering *lower, cod_value value)
{
    return lower->wide[value] ? ir_wide_dtype(lower->context) : lower->context->options->activation;
}

/** The tensor that the op making `value` writes: a place of its own, or a slice of the concatenation that wants it. */
static int output_tensor(lowering *lower, cod_value value)
{
    if (lower->tensor[value] != 0)
        return lower->tensor[value]; /* reserved by a concatenation, or passes a cut */
    const cod_shape shape = lower->context->shapes[value];
    if (lower_is_output(lower, value))
        lower->tensor[value] = lower_placed_tensor(lower, shape, lower_value_dtype(lower, value), IR_IO,
                                                   lower->context->output_offset[value]);
    else
        lower->tensor[value] = lower_saved_tensor(lower, shape, lower_value_dtype(lower, value), 0);
    return lower->tensor[value];
}

int lower_view(lowering *lower, int root, int64_t channel, cod_shape shape, bool reshaped)
{
    ir_tensor view = lower->program->tensors[root];
    view.root = root;
    view.channel = channel;
    view.shape = shape;
    view.reshaped = reshaped;
    const int tensor = ir_add_tensor(lower->program, view);
    lower->out_of_memory = lower->out_of_memory || tensor == 0;
    return tensor;
}

void lower_copy(lowering *lower, int from, int to)
{
    lower_emit(lower,
               (ir_instr){.kind = COD_OP_ADD, .attr = {.alpha = 1}, .inputs = {from}, .outputs = {to}, .name = "copy"});
}

/** The node that heads the fused group whose last value is `value`, if an op writes that value; else -1. */
static int op_that_makes(const lowering *lower, cod_value value)
{
    for (size_t i = lower_producer(lower, value) + 1; i-- > 0;) {
        if (!lower->groups[i].live || lower->groups[i].output != value)
            continue;
        const cod_node_kind kind = lower_node(lower, i)->kind;
        const bool writes = kind != COD_NODE_INPUT && kind != COD_NODE_FLATTEN && kind != COD_NODE_STOP_GRADIENT;
        return writes ? (int)i : -1;
    }
    return -1;
}

/**
 * Lets the parts of concatenations be written in place, as channel slices of the whole: walks backwards, so that a
 * concatenation within another is sliced first. Not in bands, where all slices of a tensor have its delay: a convolution that reads
 * one slice and writes another would have to wait for itself.
 */
static void reserve_concatenations(lowering *lower)
{
    if (lower->context->options->bands)
        return;
    for (size_t i = cod_graph_node_count(lower->context->graph); i-- > 0;) {
        const cod_node *node = lower_node(lower, i);
        if (!lower->groups[i].live || node->kind != COD_NODE_CONCAT)
            continue;
        lower->node = i;
        const int whole = output_tensor(lower, node->output);
        int64_t channel = 0;
        for (int k = 0; k < node->input_count; k++) {
            const cod_value part = node->inputs[k];
            const cod_shape shape = lower->context->shapes[part];
            if (lower->tensor[part] == 0 && op_that_makes(lower, part) >= 0 && !lower_is_output(lower, part) &&
                lower_value_dtype(lower, part) == lower_value_dtype(lower, node->output))
                lower->tensor[part] = lower_view(lower, whole, channel, shape, false);
            channel += shape.c;
        }
    }
}

static void forward_slice(lowering *lower, const cod_node *node)
{
    const cod_shape shape = lower->context->shapes[node->output];
    const int from = lower_view(lower, lower->tensor[node->inputs[0]], node->first_channel, shape, false);
    lower_copy(lower, from, output_tensor(lower, node->output));
}

static void forward_concat(lowering *lower, const cod_node *node)
{
    const int whole = output_tensor(lower, node->output);
    int64_t channel = 0;
    for (int k = 0; k < node->input_count; k++) {
        const int part = lower->tensor[node->inputs[k]];
        const ir_tensor *tensor = &lower->program->tensors[part];
        const cod_shape shape = lower->context->shapes[node->inputs[k]];
        if (tensor->root != whole || tensor->channel != channel)
            lower_copy(lower, part, lower_view(lower, whole, channel, shape, false));
        channel += shape.c;
    }
}

/** A value that is another value seen differently: no op, unless it must lie in a place of its own. */
static void forward_alias(lowering *lower, const cod_node *node)
{
    const int from = lower->tensor[node->inputs[0]];
    const bool slice = lower->program->tensors[from].root != from;
    if (!lower_is_output(lower, node->output) && lower->tensor[node->output] == 0 && !slice) {
        lower->tensor[node->output] = lower_view(lower, from, 0, lower->context->shapes[node->output], true);
        return;
    }
    const int to = output_tensor(lower, node->output);
    lower_copy(lower, from, lower_view(lower, to, 0, lower->context->shapes[node->inputs[0]], true));
}

static void use_activation(lowering *lower, const lower_group *group, ir_instr *instr, int slope_slot)
{
    if (group->activation < 0)
        return;
    const cod_node *activation = lower_node(lower, (size_t)group->activation);
    instr->attr.activation = activation->attr.activation;
    instr->attr.leak = activation->attr.leak;
    instr->inputs[slope_slot] = lower_param(lower, activation->params[0]);
}

static int set_of(const lowering *lower, int param)
{
    return cod_graph_param(lower->context->graph, (size_t)param)->set;
}

/** A tensor that lasts until the parameters and states that it is made of change. */
static int prepared_tensor(lowering *lower, cod_shape shape, cod_sets sets)
{
    ir_context *context = lower->context;
    const int tensor = lower_placed_tensor(lower, shape, context->param_dtype, IR_IO, context->io_bytes);
    lower->program->tensors[tensor].sets = sets;
    lower->program->tensors[tensor].of_states = true;
    context->io_bytes += cod_align_up((size_t)cod_shape_count(shape) * cod_dtype_bytes(context->param_dtype));
    return tensor;
}

/**
 * The spectrally normalised weight. In a program that trains it the states move in every run, because each run lets the next one see
 * that they have; in others they stay.
 */
static int normalised_weight(lowering *lower, const cod_node *node)
{
    const cod_graph *graph = lower->context->graph;
    lower_spectrum *spectrum = &lower->spectra[node->params[0]];
    if (spectrum->weight != 0)
        return spectrum->weight;
    const int set = set_of(lower, node->params[0]), u = lower_param(lower, node->params[2]);
    const bool moves = set == lower->set;
    const cod_sets sets = cod_set_of(set);
    spectrum->weight = prepared_tensor(lower, cod_graph_param(graph, (size_t)node->params[0])->shape, sets);
    spectrum->sigma = prepared_tensor(lower, (cod_shape){1, 1, 1, 1}, sets);
    spectrum->u = moves ? u : prepared_tensor(lower, cod_graph_param(graph, (size_t)node->params[2])->shape, sets);
    spectrum->v = moves ? lower_param(lower, node->params[3])
                        : prepared_tensor(lower, cod_graph_param(graph, (size_t)node->params[3])->shape, sets);
    lower_emit(lower, (ir_instr){.kind = COD_OP_SPECTRAL_NORM,
                                 .prepare = true,
                                 .inputs = {lower_param(lower, node->params[0]), u},
                                 .outputs = {spectrum->weight, spectrum->sigma, spectrum->u, spectrum->v},
                                 .name = node->name});
    return spectrum->weight;
}

/** Weights and bias with a normalisation folded in, computed when the parameters change. */
static void fold_norm(lowering *lower, const cod_node *conv, const cod_node *norm, int *weight, int *bias)
{
    const cod_sets sets = cod_set_of(set_of(lower, conv->params[0])) | cod_set_of(set_of(lower, norm->params[0]));
    *weight = prepared_tensor(lower, cod_graph_param(lower->context->graph, (size_t)conv->params[0])->shape, sets);
    *bias = prepared_tensor(lower, (cod_shape){1, 1, 1, conv->channels}, sets);
    lower_emit(lower, (ir_instr){.kind = COD_OP_FOLD_NORM,
                                 .attr = norm->attr,
                                 .prepare = true,
                                 .inputs = {lower_param(lower, conv->params[0]), lower_param(lower, conv->params[1]),
                                            lower_param(lower, norm->params[0]), lower_param(lower, norm->params[1]),
                                            lower_param(lower, norm->params[2]), lower_param(lower, norm->params[3])},
                                 .outputs = {*weight, *bias},
                                 .name = norm->name});
}

static int residual_tensor(const lowering *lower, const lower_group *group)
{
    return group->residual != 0 ? lower->tensor[group->residual] : 0;
}

/** The executable's ranges from `first` on. */
static int range_tensor(lowering *lower, size_t first, size_t count)
{
    const ir_context *context = lower->context;
    return lower_placed_tensor(lower, (cod_shape){1, 1, 1, (int64_t)count}, COD_F32, IR_IO,
                               context->range_offset + first * sizeof(float));
}

/** Counts the magnitudes of what a convolution reads, together with those of others that share its range. */
static void observe(lowering *lower, size_t range, int x)
{
    const cod_shape all = {1, (int64_t)lower->context->range_count, 1, COD_MAGNITUDES}, one = {1, 1, 1, COD_MAGNITUDES};
    const bool another = lower->range_counts[range] != 0;
    if (lower->counts == 0)
        lower->counts = lower_new_tensor(lower, all, COD_I32);
    if (!another) {
        const int row = lower->range_counts[range] = lower_view(lower, lower->counts, 0, one, false);
        lower->program->tensors[row].row = (int64_t)range;
    }
    lower_emit(lower, (ir_instr){.kind = COD_OP_MAGNITUDES,
                                 .accumulate = another,
                                 .inputs = {x},
                                 .outputs = {lower->range_counts[range]},
                                 .name = "magnitudes"});
}

/** A convolution that has a range is computed on 8-bit integers or, where the program observes, what it reads is counted. */
static void use_range(lowering *lower, size_t node, ir_instr *instr)
{
    const ir_context *context = lower->context;
    const size_t range = context->range_index[node];
    if (range == SIZE_MAX)
        return;
    if (lower->spec->observes) {
        observe(lower, range, instr->inputs[0]);
        return;
    }
    instr->attr.int8_range = context->options->int8_ranges[node];
    instr->inputs[5] = range_tensor(lower, range, 1);
}

/** Chooses all ranges, when all convolutions have been counted. */
static cod_status choose_ranges(lowering *lower)
{
    const size_t count = lower->context->range_count;
    for (size_t i = 0; i < count; i++)
        COD_REQUIRE(lower->range_counts[i] != 0, "program '%s' observes ranges, but not those of all convolutions",
                    lower->spec->name);
    if (count > 0)
        lower_emit(lower, (ir_instr){.kind = COD_OP_RANGES,
                                     .inputs = {lower->counts},
                                     .outputs = {range_tensor(lower, 0, count)},
                                     .name = "ranges"});
    return COD_OK;
}

/** The weight of a convolution or linear layer as ops read it. */
static int layer_weight(lowering *lower, const cod_node *node)
{
    return node->params[2] >= 0 ? normalised_weight(lower, node) : lower_param(lower, node->params[0]);
}

static void forward_dense(lowering *lower, const cod_node *node, lower_group *group)
{
    int weight = layer_weight(lower, node);
    int bias = lower_param(lower, node->params[1]);
    if (group->norm >= 0)
        fold_norm(lower, node, lower_node(lower, (size_t)group->norm), &weight, &bias);
    group->pre_x = lower_narrow(lower, node->inputs[0]);
    group->weight = weight;
    ir_instr instr = {.kind = node->kind == COD_NODE_CONV2D ? COD_OP_CONV2D : COD_OP_LINEAR,
                      .attr = node->attr,
                      .inputs = {group->pre_x, weight, bias, 0, residual_tensor(lower, group)},
                      .outputs = {output_tensor(lower, group->output)},
                      .name = node->name};
    if (instr.kind == COD_OP_CONV2D && !lower->training)
        use_range(lower, (size_t)(group - lower->groups), &instr);
    if (group->shuffle >= 0)
        instr.attr.factor = lower_node(lower, (size_t)group->shuffle)->attr.factor;
    use_activation(lower, group, &instr, 3);
    lower_emit(lower, instr);
}

static void forward_norm(lowering *lower, const cod_node *node, lower_group *group)
{
    const int x = group->pre_x = lower->tensor[node->inputs[0]];
    const int gamma = lower_param(lower, node->params[0]), beta = lower_param(lower, node->params[1]);
    const int mean = lower_param(lower, node->params[2]), var = lower_param(lower, node->params[3]);
    const int y = output_tensor(lower, group->output);
    const int residual = residual_tensor(lower, group);
    ir_instr instr = {.attr = node->attr, .name = node->name};
    if (!lower_uses_batch(lower, node)) {
        instr.kind = COD_OP_NORM_INFERENCE;
        const int inputs[] = {x, gamma, beta, mean, var};
        for (int i = 0; i < 5; i++)
            instr.inputs[i] = inputs[i];
        instr.outputs[0] = y;
        instr.inputs[6] = residual;
        use_activation(lower, group, &instr, 5);
    } else {
        const cod_shape vector = {1, 1, 1, node->channels};
        const size_t index = (size_t)(group - lower->groups);
        group->mean = lower_saved_tensor(lower, vector, lower->context->param_dtype, 1);
        group->inv_std = lower_saved_tensor(lower, vector, lower->context->param_dtype, 2);
        instr.kind = COD_OP_NORM_TRAIN;
        const int set = set_of(lower, node->params[0]);
        const bool moves = lower->keeps[index] || (set == lower->set && !lower->resumes[index]);
        lower->program->moved |= moves ? cod_set_of(set) : 0;
        const int outputs[] = {y, group->mean, group->inv_std, moves ? mean : 0, moves ? var : 0};
        for (int i = 0; i < 5; i++)
            instr.outputs[i] = outputs[i];
        instr.inputs[0] = x, instr.inputs[1] = gamma, instr.inputs[2] = beta, instr.inputs[4] = residual;
        use_activation(lower, group, &instr, 3);
    }
    lower_emit(lower, instr);
}

/** Ops with tensors in and one tensor out. */
static void forward_plain(lowering *lower, const cod_node *node, lower_group *group, cod_op_kind kind)
{
    group->pre_x = lower->tensor[node->inputs[0]];
    ir_instr instr = {.kind = kind,
                      .attr = node->attr,
                      .inputs = {group->pre_x, node->input_count > 1 ? lower->tensor[node->inputs[1]] : 0},
                      .outputs = {output_tensor(lower, group->output)},
                      .name = node->name};
    if (node->kind == COD_NODE_ACTIVATION)
        instr.inputs[1] = lower_param(lower, node->params[0]);
    if (node->kind == COD_NODE_POOL && node->attr.pool == COD_POOL_MAX)
        instr.outputs[1] = group->index = lower_saved_tensor(lower, lower->context->shapes[node->output], COD_I32, 1);
    lower_emit(lower, instr);
}

/** A gradient as a value of the graph. */
static void forward_gradient(lowering *lower, const cod_node *node, lower_group *group, cod_op_kind kind)
{
    const bool conv = kind == COD_OP_CONV2D_BACKWARD_DATA, slopes = kind == COD_OP_ACTIVATION_BACKWARD;
    const int dy = conv ? lower_narrow(lower, node->inputs[0]) : lower->tensor[node->inputs[0]];
    group->pre_x = dy;
    group->weight = conv ? layer_weight(lower, node) : 0;
    ir_instr instr = {.kind = kind,
                      .attr = node->attr,
                      .inputs = {dy, group->weight},
                      .outputs = {output_tensor(lower, group->output)},
                      .name = node->name};
    if (slopes)
        instr.inputs[0] = lower->tensor[node->inputs[1]], instr.inputs[1] = dy;
    lower_emit(lower, instr);
}

static void forward_node(lowering *lower, size_t index)
{
    const cod_node *node = lower_node(lower, index);
    lower_group *group = &lower->groups[index];
    switch (node->kind) {
    case COD_NODE_INPUT:
        lower->tensor[node->output] =
            lower_placed_tensor(lower, lower->context->shapes[node->output], ir_wide_dtype(lower->context), IR_IO,
                                lower->context->input_offset[index]);
        return;
    case COD_NODE_CONV2D:
    case COD_NODE_LINEAR:
        forward_dense(lower, node, group);
        return;
    case COD_NODE_NORM:
        forward_norm(lower, node, group);
        return;
    case COD_NODE_ACTIVATION:
        forward_plain(lower, node, group, COD_OP_ACTIVATION);
        return;
    case COD_NODE_ADD:
        forward_plain(lower, node, group, COD_OP_ADD);
        return;
    case COD_NODE_AFFINE:
        lower_affine(lower, node, lower->tensor[node->inputs[0]], output_tensor(lower, group->output));
        return;
    case COD_NODE_MEAN:
        forward_plain(lower, node, group, COD_OP_MEAN);
        return;
    case COD_NODE_PIXEL_SHUFFLE:
        forward_plain(lower, node, group, COD_OP_PIXEL_SHUFFLE);
        return;
    case COD_NODE_PIXEL_UNSHUFFLE:
        forward_plain(lower, node, group, COD_OP_PIXEL_UNSHUFFLE);
        return;
    case COD_NODE_RESIZE:
        forward_plain(lower, node, group, COD_OP_RESIZE);
        return;
    case COD_NODE_POOL:
        forward_plain(lower, node, group, COD_OP_POOL);
        return;
    case COD_NODE_CONCAT:
        forward_concat(lower, node);
        return;
    case COD_NODE_SLICE:
        forward_slice(lower, node);
        return;
    case COD_NODE_FLATTEN:
    case COD_NODE_STOP_GRADIENT:
        forward_alias(lower, node);
        return;
    case COD_NODE_CONV2D_BACKWARD:
        forward_gradient(lower, node, group, COD_OP_CONV2D_BACKWARD_DATA);
        return;
    case COD_NODE_ACTIVATION_BACKWARD:
        forward_gradient(lower, node, group, COD_OP_ACTIVATION_BACKWARD);
        return;
    case COD_NODE_RESIZE_BACKWARD:
        forward_gradient(lower, node, group, COD_OP_RESIZE_BACKWARD);
        return;
    case COD_NODE_LOSS: /* emitted with the backward pass: a loss and its gradient are one op */
        return;
    }
}

/** Makes the tables of a lowering, sized for the graph. */
static cod_status allocate_tables(lowering *lower)
{
    const size_t nodes = cod_graph_node_count(lower->context->graph),
                 params = cod_graph_param_count(lower->context->graph) + 1;
    const size_t values = lower->context->value_count;
    lower->groups = cod_arena_alloc(&lower->arena, nodes * sizeof *lower->groups);
    bool **const flags[] = {&lower->needed, &lower->wide,  &lower->needs_grad, &lower->consumed, &lower->taken,
                            &lower->handed, &lower->given, &lower->keeps,      &lower->resumes};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        *flags[i] = cod_arena_alloc(&lower->arena, values + nodes);
        COD_REQUIRE_MEMORY(*flags[i]);
    }
    int **const tables[] = {&lower->tensor,     &lower->cast,      &lower->grad,        &lower->param,
                            &lower->param_grad, &lower->pass_grad, &lower->range_counts};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        *tables[i] = cod_arena_alloc(&lower->arena, (values + params) * sizeof(int));
        COD_REQUIRE_MEMORY(*tables[i]);
    }
    lower->spectra = cod_arena_alloc(&lower->arena, params * sizeof *lower->spectra);
    COD_REQUIRE_MEMORY(lower->groups);
    COD_REQUIRE_MEMORY(lower->spectra);
    return COD_OK;
}

static cod_status check_needed_shapes(const lowering *lower)
{
    for (size_t i = 0; i < cod_graph_node_count(lower->context->graph); i++) {
        const cod_node *node = lower_node(lower, i);
        if (lower->needed[i] && lower->context->shapes[node->output].n == 0)
            return cod_fail(COD_ERR_ARGUMENT, "program '%s' needs '%s', but an input's shape was not given",
                            lower->spec->name, node->name);
    }
    return COD_OK;
}

/** Values of other programs lie where these leave their outputs. */
static void place_given(lowering *lower)
{
    for (cod_value v = 1; (size_t)v < lower->context->value_count; v++)
        if (lower->given[v])
            lower->tensor[v] = lower_placed_tensor(lower, lower->context->shapes[v], lower_value_dtype(lower, v), IR_IO,
                                                   lower->context->output_offset[v]);
}

static cod_status lower_all(lowering *lower)
{
    COD_TRY(allocate_tables(lower));
    lower_select(lower);
    COD_TRY(check_needed_shapes(lower));
    COD_TRY(lower_place_passing(lower));
    place_given(lower);
    COD_TRY(lower_keep(lower));
    reserve_concatenations(lower);
    const size_t nodes = cod_graph_node_count(lower->context->graph);
    for (size_t i = 0; i < nodes; i++) {
        lower->node = i;
        if (!lower->groups[i].live)
            continue;
        lower->silent = lower->resumes[i] && lower_is_kept(lower, i);
        forward_node(lower, i);
    }
    lower->silent = false;
    if (lower->spec->observes)
        COD_TRY(choose_ranges(lower));
    lower->program->backward = lower->program->instr_count;
    lower_backward(lower);
    return lower->out_of_memory ? cod_fail(COD_ERR_MEMORY, "out of memory while compiling '%s'", lower->spec->name)
                                : COD_OK;
}

cod_status ir_lower(ir_context *context, const cod_program_spec *spec, ir_program *out)
{
    lowering lower = {.context = context, .spec = spec, .program = out, .set = -1};
    COD_REQUIRE(!spec->observes || (spec->trains == NULL && !context->options->bands),
                "program '%s' observes ranges: it cannot train, nor run in bands", spec->name);
    if (spec->trains != NULL) {
        lower.set = cod_graph_set_index(context->graph, spec->trains);
        COD_REQUIRE(lower.set >= 0, "program '%s' trains '%s', which is no parameter set of the graph", spec->name,
                    spec->trains);
        COD_REQUIRE(spec->losses[0] != 0, "program '%s' trains '%s' but has no loss", spec->name, spec->trains);
        lower.training = true;
    }
    const cod_layout layout = cod_graph_layout(context->graph);
    COD_TRY(cod_stage_find_range(context->graph, &layout, &spec->stage, false, &lower.own));
    lower.stage = cod_stage_is_part(&spec->stage) ? spec->stage : (cod_stage){0, cod_graph_node_count(context->graph)};
    lower.by_batch = spec->batch_statistics | (lower.training ? cod_set_of(lower.set) : 0);
    const cod_status status = lower_all(&lower);
    cod_arena_clear(&lower.arena);
    return status;
}

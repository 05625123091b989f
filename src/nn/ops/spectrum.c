/* Spectral normalisation of a layer's weight: states, the normalised weight, and its gradient. */
#include "nn/ops/ops_internal.h"

void spectrum_use(cod_graph *graph, const char *layer, cod_shape weight, cod_node *node)
{
    /* Singular vectors of the largest singular value, as far as they are known; they start anywhere. */
    const cod_init anywhere = {COD_INIT_NORMAL, 1};
    node->params[2] =
        graph_use_param(graph, (graph_param_spec){layer, "weight_u", {1, 1, 1, weight.n}, 1, true, anywhere});
    node->params[3] = graph_use_param(
        graph, (graph_param_spec){layer, "weight_v", {1, weight.h, weight.w, weight.c}, 1, true, anywhere});
}

/*
 * In a program that trains the weight, the states move in every run, because each run lets the next one see that they
 * have; in other programs they stay.
 */
int spectrum_weight(lowering *lower, const cod_node *node)
{
    lower_spectrum *spectrum = &lower->spectra[node->params[0]];
    if (spectrum->weight != 0)
        return spectrum->weight;
    const int set = lower_param_set(lower, node->params[0]), u = lower_param(lower, node->params[2]);
    const bool moves = set == lower->set;
    const cod_sets sets = cod_set_of(set);
    spectrum->weight = lower_prepared_tensor(lower, lower_param_shape(lower, node->params[0]), sets);
    spectrum->sigma = lower_prepared_tensor(lower, (cod_shape){1, 1, 1, 1}, sets);
    spectrum->u = moves ? u : lower_prepared_tensor(lower, lower_param_shape(lower, node->params[2]), sets);
    spectrum->v = moves ? lower_param(lower, node->params[3])
                        : lower_prepared_tensor(lower, lower_param_shape(lower, node->params[3]), sets);
    lower_emit(lower, (ir_instr){.kind = COD_OP_SPECTRAL_NORM,
                                 .prepare = true,
                                 .inputs = {lower_param(lower, node->params[0]), u},
                                 .outputs = {spectrum->weight, spectrum->sigma, spectrum->u, spectrum->v},
                                 .name = node->name});
    return spectrum->weight;
}

void spectrum_backward(lowering *lower, const cod_node *node, int normalised, int dw, bool adds)
{
    const lower_spectrum *spectrum = &lower->spectra[node->params[0]];
    lower_emit_gradients(lower,
                         (ir_instr){.kind = COD_OP_SPECTRAL_NORM_BACKWARD,
                                    .inputs = {normalised, spectrum->weight, spectrum->sigma, spectrum->u, spectrum->v},
                                    .outputs = {dw},
                                    .name = node->name},
                         (const bool[COD_OP_MAX_OUTPUTS]){adds});
}

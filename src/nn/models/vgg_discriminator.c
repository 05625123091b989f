#include "nn/discriminator.h"

#include "nn/models/models_internal.h"

#include <stdio.h>

static const float leak = 0.2f;

bool cod_vgg_discriminator_fits(int64_t side)
{
    for (int blocks = COD_VGG_DISCRIMINATOR_MIN_BLOCKS; blocks <= COD_VGG_DISCRIMINATOR_MAX_BLOCKS; blocks++)
        if (side == (int64_t)COD_VGG_DISCRIMINATOR_END << blocks)
            return true;
    return false;
}

/** Convolution `index` of a block: 3x3, then 4x4, which halves the picture. All but the very first are normalised. */
static cod_value convolution(cod_graph *graph, cod_value x, int block, int index, int64_t channels)
{
    char name[32];
    const bool first = block == 0 && index == 0;
    snprintf(name, sizeof name, "conv%d_%d", block, index);
    x = cod_graph_conv2d(
        graph, name, x,
        (cod_conv2d_spec){
            .out_channels = channels, .kernel = 3 + index, .stride = 1 + index, .padding = 1, .no_bias = !first});
    snprintf(name, sizeof name, "bn%d_%d", block, index);
    if (!first)
        x = cod_graph_norm(graph, name, x);
    return cod_graph_activation(graph, x, COD_ACT_LEAKY_RELU, leak);
}

cod_value cod_vgg_discriminator(cod_graph *graph, cod_value pictures, cod_vgg_discriminator_spec spec)
{
    if (!cod_vgg_discriminator_fits(spec.side)) {
        cod_graph_fail(graph, cod_fail(COD_ERR_ARGUMENT, "no discriminator for pictures of %lld pixels a side",
                                       (long long)spec.side));
        return 0;
    }
    cod_value x = pictures;
    int64_t side = spec.side;
    for (int block = 0; side > COD_VGG_DISCRIMINATOR_END; block++, side /= 2)
        for (int i = 0; i < 2; i++)
            x = convolution(graph, x, block, i, spec.features << (block < 3 ? block : 3));
    x = cod_graph_linear(graph, "linear1", classifier_vectors(graph, x, side, side), spec.hidden, false);
    x = cod_graph_activation(graph, x, COD_ACT_LEAKY_RELU, leak);
    return cod_graph_linear(graph, "linear2", x, 1, false);
}

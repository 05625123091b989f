#include "nn/discriminator.h"

#include "nn/models/models_internal.h"

#include <stdio.h>

enum { CONVOLUTIONS = 8 };

static const float leak = 0.2f;

cod_value cod_srgan_discriminator(cod_graph *graph, cod_value pictures, cod_srgan_discriminator_spec spec)
{
    char name[32];
    cod_value x = pictures;
    int64_t height = spec.height, width = spec.width;
    int layer = 0; /* of nn.Sequential */
    for (int i = 0; i < CONVOLUTIONS; i++) {
        const int stride = 1 + i % 2;
        snprintf(name, sizeof name, "features.%d", layer++);
        x = cod_graph_conv2d(
            graph, name, x,
            (cod_conv2d_spec){
                .out_channels = spec.features << i / 2, .kernel = 3, .stride = stride, .padding = 1, .no_bias = i > 0});
        if (i > 0) {
            snprintf(name, sizeof name, "features.%d", layer++);
            x = cod_graph_norm(graph, name, x);
        }
        x = cod_graph_activation(graph, x, COD_ACT_LEAKY_RELU, leak);
        layer++;
        height = (height - 1) / stride + 1;
        width = (width - 1) / stride + 1;
    }
    x = cod_graph_linear(graph, "classifier.0", classifier_vectors(graph, x, height, width), spec.hidden, false);
    x = cod_graph_activation(graph, x, COD_ACT_LEAKY_RELU, leak);
    return cod_graph_linear(graph, "classifier.2", x, 1, false);
}

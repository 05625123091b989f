#include "nn/discriminator.h"

#include <stdio.h>

enum { LEVELS = 3 };

typedef struct builder {
    cod_graph *graph;
    int layer; /**< number of the next convolution */
} builder;

/** The next convolution; the first and the last one have a bias, those between them are normalised. */
static cod_value conv(builder *b, cod_value x, int64_t channels, int kernel, int stride, bool normalised)
{
    char name[16];
    snprintf(name, sizeof name, "conv%d", b->layer++);
    return cod_graph_conv2d(b->graph, name, x,
                            (cod_conv2d_spec){.out_channels = channels,
                                              .kernel = kernel,
                                              .stride = stride,
                                              .padding = 1,
                                              .no_bias = normalised,
                                              .spectral_norm = normalised});
}

static cod_value lrelu(builder *b, cod_value x)
{
    return cod_graph_activation(b->graph, x, COD_ACT_LEAKY_RELU, 0.2f);
}

cod_value cod_unet_discriminator(cod_graph *graph, cod_value pictures, int64_t features)
{
    builder b = {.graph = graph};
    cod_value levels[LEVELS], x = lrelu(&b, conv(&b, pictures, features, 3, 1, false));
    for (int i = 0; i < LEVELS; i++) {
        levels[i] = x;
        x = lrelu(&b, conv(&b, x, features << (i + 1), 4, 2, true));
    }
    for (int i = LEVELS; i-- > 0;) {
        x = cod_graph_resize(graph, x, 2, COD_RESIZE_BILINEAR);
        x = cod_graph_add(graph, lrelu(&b, conv(&b, x, features << i, 3, 1, true)), levels[i]);
    }
    for (int i = 0; i < 2; i++)
        x = lrelu(&b, conv(&b, x, features, 3, 1, true));
    return conv(&b, x, 1, 3, 1, false);
}

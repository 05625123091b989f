#include "gan/perceptual.h"

#include "infer/perceptual_input.h"

#include <stdbool.h>
#include <stdio.h>

#define NETWORK "VGG-19"

const char *const cod_perceptual_input_names[] = {"auto", "torchvision", "caffe", NULL};

/** The layer behind `layer`; block COD_VGG_BLOCKS + 1 behind the last one. */
static cod_vgg_layer next_layer(cod_vgg_layer layer)
{
    if (layer.convolution < cod_vgg_convolutions(layer.block))
        return (cod_vgg_layer){layer.block, layer.convolution + 1};
    return (cod_vgg_layer){layer.block + 1, 1};
}

static const cod_st_tensor *find(const cod_st_file *file, cod_vgg_layer layer, const char *what)
{
    char name[48];
    snprintf(name, sizeof name, "features.%d.%s", cod_vgg_index(layer), what);
    return cod_st_tensor_find(file, name);
}

static bool has(const cod_st_file *file, cod_vgg_layer layer)
{
    return find(file, layer, "weight") != NULL && find(file, layer, "bias") != NULL;
}

/** Channels of a layer's output. */
static int64_t channels_of(cod_vgg_layer layer)
{
    return layer.block <= 4 ? (int64_t)COD_VGG_CHANNELS << (layer.block - 1) : 8 * COD_VGG_CHANNELS;
}

static cod_status check_shapes(const cod_st_file *file, cod_vgg_layer last)
{
    int64_t before = 3;
    for (cod_vgg_layer at = {1, 1}; cod_vgg_index(at) <= cod_vgg_index(last); at = next_layer(at)) {
        const int64_t channels = channels_of(at), shape[4] = {channels, before, 3, 3};
        COD_TRY(cod_perceptual_check_shape(find(file, at, "weight"), NETWORK, 4, shape));
        COD_TRY(cod_perceptual_check_shape(find(file, at, "bias"), NETWORK, 1, shape));
        before = channels;
    }
    return COD_OK;
}

static cod_status check_layers(const cod_st_file *file, cod_vgg_layer last)
{
    cod_vgg_layer missing = {1, 1}, held = {0, 0};
    while (missing.block <= COD_VGG_BLOCKS && has(file, missing)) {
        held = missing;
        missing = next_layer(missing);
    }
    if (held.block == 0)
        return cod_fail(COD_ERR_FORMAT, "the file holds no layer of VGG-19 under torchvision's names: "
                                        "'features.0.weight' and 'features.0.bias' would be the first");
    if (missing.block <= COD_VGG_BLOCKS && cod_vgg_index(missing) <= cod_vgg_index(last))
        return cod_fail(COD_ERR_FORMAT,
                        "the file holds VGG-19 from conv1_1 to conv%d_%d, but conv%d_%d is compared; conv%d_%d would "
                        "be 'features.%d.weight' and 'features.%d.bias'",
                        held.block, held.convolution, last.block, last.convolution, missing.block, missing.convolution,
                        cod_vgg_index(missing), cod_vgg_index(missing));
    return check_shapes(file, last);
}

cod_status cod_perceptual_examine(const char *path, cod_vgg_layer layer, int wanted, cod_vgg_input *input)
{
    cod_st_file *file = NULL;
    COD_TRY(cod_st_open(path, &file));
    cod_status status = check_layers(file, layer);
    if (status == COD_OK && wanted == COD_PERCEPTUAL_INPUT_AUTO)
        status = cod_perceptual_input_find(file, input);
    else if (status == COD_OK)
        *input = (cod_vgg_input)(wanted - COD_PERCEPTUAL_INPUT_FIRST);
    cod_st_close(file);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

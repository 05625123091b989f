#include "infer/squeezenet_file.h"

#include "infer/perceptual_input.h"

#include <stdio.h>

#define NETWORK "SqueezeNet 1.1"

static const cod_st_tensor *find(const cod_st_file *file, const cod_squeezenet_part *part, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%.47s.%s", part->name, what);
    return cod_st_tensor_find(file, name);
}

static cod_status check_part(const cod_st_file *file, int layer, int last, const cod_squeezenet_part *part)
{
    const int64_t shape[4] = {part->outputs, part->inputs, part->kernel, part->kernel};
    const cod_st_tensor *weight = find(file, part, "weight"), *bias = find(file, part, "bias");
    if (weight == NULL || bias == NULL)
        return cod_fail(COD_ERR_FORMAT,
                        "the file holds " NETWORK " up to layer %d, but layer %d is compared; layer %d lacks "
                        "'%s.%s'",
                        layer - 1, last, layer, part->name, weight == NULL ? "weight" : "bias");
    COD_TRY(cod_perceptual_check_shape(weight, NETWORK, 4, shape));
    return cod_perceptual_check_shape(bias, NETWORK, 1, shape);
}

static cod_status check_layers(const cod_st_file *file, int last, cod_squeezenet_names names)
{
    cod_squeezenet_part parts[COD_SQUEEZENET_PARTS];
    for (int layer = 1; layer <= last; layer++) {
        const int count = cod_squeezenet_parts(names, layer, parts);
        for (int i = 0; i < count; i++)
            COD_TRY(check_part(file, layer, last, &parts[i]));
    }
    return COD_OK;
}

static cod_status examine(const cod_st_file *file, int layer, cod_squeezenet_names *names, cod_vgg_input *input)
{
    if (cod_st_tensor_find(file, "conv1.weight") != NULL)
        *names = COD_SQUEEZENET_CAFFE;
    else if (cod_st_tensor_find(file, "features.0.weight") != NULL)
        *names = COD_SQUEEZENET_TORCHVISION;
    else
        return cod_fail(COD_ERR_FORMAT, "the file holds no layer of " NETWORK ": 'features.0.weight' (torchvision) or "
                                        "'conv1.weight' (Caffe) would be the first");
    COD_TRY(check_layers(file, layer, *names));
    return cod_perceptual_input_find(file, input);
}

cod_status cod_squeezenet_examine(const char *path, int layer, cod_squeezenet_names *names, cod_vgg_input *input)
{
    cod_st_file *file = NULL;
    COD_TRY(cod_st_open(path, &file));
    const cod_status status = examine(file, layer, names, input);
    cod_st_close(file);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "%s", path);
}

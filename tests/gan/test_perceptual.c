/* What is said of a file for the perceptual network. */
#include "support/folder.h"
#include "support/test.h"

#include "gan/known_squeezenet.h"
#include "gan/known_vgg.h"
#include "gan/perceptual.h"
#include "infer/squeezenet_file.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>

static const cod_vgg_layer conv2_2 = {2, 2}, conv5_4 = {5, 4};

static cod_status examine(const char *path, cod_vgg_layer layer, cod_vgg_input *input)
{
    return cod_perceptual_examine(path, layer, COD_PERCEPTUAL_INPUT_AUTO, input);
}

TEST(layers_are_told_apart)
{
    cod_vgg_input input;
    const char *path = cod_test_at("vgg.safetensors");
    assert_fails(COD_ERR_IO, "vgg.safetensors", examine(path, conv2_2, &input));
    assert_ok(cod_file_write(path, "no tensors", 10));
    assert_fails(COD_ERR_FORMAT, "vgg.safetensors", examine(path, conv2_2, &input));
    known_vgg_write(path, (cod_vgg_layer){3, 1}, KNOWN_WHOLE, NULL, NULL);
    assert_ok(examine(path, conv2_2, &input));
    assert_ok(examine(path, (cod_vgg_layer){3, 1}, &input));
    assert_fails(COD_ERR_FORMAT,
                 "the file holds VGG-19 from conv1_1 to conv3_1, but conv5_4 is compared; conv3_2 would be "
                 "'features.12.weight' and 'features.12.bias'",
                 examine(path, conv5_4, &input));
    known_vgg_write(path, conv2_2, KNOWN_WITHOUT_FIRST_BIAS, NULL, NULL);
    assert_fails(COD_ERR_FORMAT, "the file holds no layer of VGG-19", examine(path, conv2_2, &input));
    known_vgg_write(path, conv2_2, KNOWN_NARROW, NULL, NULL);
    assert_fails(COD_ERR_FORMAT, "tensor 'features.0.weight' is [32, 3, 3, 3], VGG-19's is [64, 3, 3, 3]",
                 examine(path, conv2_2, &input));
}

TEST(metadata_say_how_pictures_are_presented)
{
    static const struct {
        const char *key, *value;
        cod_vgg_input input;
    } cases[] = {{NULL, NULL, COD_VGG_TORCHVISION},
                 {"format", "pt", COD_VGG_TORCHVISION},
                 {"input", "torchvision", COD_VGG_TORCHVISION},
                 {"input", "caffe", COD_VGG_CAFFE},
                 {"source", "BGR 0..255 minus 103.939/116.779/123.68", COD_VGG_CAFFE}};
    const char *path = cod_test_at("said.safetensors");
    cod_vgg_input input;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        known_vgg_write(path, (cod_vgg_layer){1, 1}, KNOWN_WHOLE, cases[i].key, cases[i].value);
        assert_ok(examine(path, (cod_vgg_layer){1, 1}, &input));
        assert_int_equal(input, cases[i].input);
    }
    assert_ok(cod_perceptual_examine(path, (cod_vgg_layer){1, 1}, COD_PERCEPTUAL_INPUT_FIRST + COD_VGG_TORCHVISION,
                                     &input)); /* the caller knows better */
    assert_int_equal(input, COD_VGG_TORCHVISION);
    known_vgg_write(path, (cod_vgg_layer){1, 1}, KNOWN_WHOLE, "input", "yuv");
    assert_fails(COD_ERR_FORMAT, "presented as 'yuv'; torchvision and caffe are known",
                 examine(path, (cod_vgg_layer){1, 1}, &input));
}

/** The file among the shared data, where it is there, has conv2_2 but not conv5_4, and is of Caffe's convention. */
TEST(the_shared_file_is_understood)
{
    const char *data = getenv("COD_DATA");
    char path[4096];
    cod_vgg_input input;
    snprintf(path, sizeof path, "%s/weights/vgg19_conv1_1_to_conv3_4.safetensors", data != NULL ? data : "");
    if (!cod_file_exists(path))
        skip();
    assert_ok(examine(path, conv2_2, &input));
    assert_int_equal(input, COD_VGG_CAFFE);
    assert_fails(COD_ERR_FORMAT, "from conv1_1 to conv3_4, but conv5_4 is compared", examine(path, conv5_4, &input));
}

/** The same of SqueezeNet, by both namings. */
TEST(squeezenet_is_told_too)
{
    cod_squeezenet_names names;
    cod_vgg_input input;
    const char *path = cod_test_at("squeeze.safetensors");
    known_squeezenet_write(path, COD_SQUEEZENET_CAFFE, 3, KNOWN_SQUEEZENET_WHOLE, "caffe");
    assert_ok(cod_squeezenet_examine(path, 3, &names, &input));
    assert_int_equal(names, COD_SQUEEZENET_CAFFE);
    assert_int_equal(input, COD_VGG_CAFFE);
    assert_fails(
        COD_ERR_FORMAT,
        "squeeze.safetensors: the file holds SqueezeNet 1.1 up to layer 3, but layer 5 is compared; layer 4 lacks "
        "'fire4/squeeze1x1.weight'",
        cod_squeezenet_examine(path, 5, &names, &input));
    known_squeezenet_write(path, COD_SQUEEZENET_TORCHVISION, 2, KNOWN_SQUEEZENET_WITHOUT_LAST_BIAS, NULL);
    assert_ok(cod_squeezenet_examine(path, 1, &names, &input));
    assert_int_equal(names, COD_SQUEEZENET_TORCHVISION);
    assert_int_equal(input, COD_VGG_TORCHVISION);
    assert_fails(COD_ERR_FORMAT, "up to layer 1, but layer 2 is compared; layer 2 lacks 'features.3.expand3x3.bias'",
                 cod_squeezenet_examine(path, 2, &names, &input));
    known_squeezenet_write(path, COD_SQUEEZENET_TORCHVISION, 1, KNOWN_SQUEEZENET_NARROW, NULL);
    assert_fails(COD_ERR_FORMAT, "tensor 'features.0.weight' is [32, 3, 3, 3], SqueezeNet 1.1's is [64, 3, 3, 3]",
                 cod_squeezenet_examine(path, 1, &names, &input));
    known_vgg_write(path, (cod_vgg_layer){1, 1}, KNOWN_WITHOUT_FIRST_BIAS, NULL, NULL);
    assert_fails(COD_ERR_FORMAT, "layer 1 lacks 'features.0.bias'", cod_squeezenet_examine(path, 1, &names, &input));
}

TEST_GROUP(cod_test_folder_make, cod_test_folder_remove)

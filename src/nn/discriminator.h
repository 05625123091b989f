/**
 * @file
 * Discriminators: networks that tell pictures of the data from those that a generator made. These functions add them to
 * a graph. They are not models, because a recipe trains them together with a model.
 */
#ifndef COD_NN_DISCRIMINATOR_H
#define COD_NN_DISCRIMINATOR_H

#include "nn/graph.h"

typedef struct cod_srgan_discriminator_spec {
    int64_t height, width; /**< of the pictures that it judges, pixels: its fully connected layers are for one size */
    int64_t features;      /**< channels of the first two convolutions; the published network has 64 */
    int64_t hidden;        /**< width of the first fully connected layer; the published network has 1024 */
} cod_srgan_discriminator_spec;

/**
 * SRGAN's discriminator (Ledig et al., "Photo-Realistic Single Image Super-Resolution Using a GAN", CVPR 2017, figure
 * 4), to logits that a picture is of the data: {N,H,W,C} -> {N,1,1,1}.
 *
 * Eight 3x3 convolutions with 1, 1, 2, 2, 4, 4, 8 and 8 times `features` channels, of which every second one halves
 * height and width (rounded up); batch normalisation behind all but the first; leaky ReLU of slope 0.2; two fully
 * connected layers. The sigmoid of the paper is part of the loss (COD_LOSS_BCE). Parameters have the names that two
 * nn.Sequential give them in PyTorch:
 *
 *     features.0                                  the first convolution, with a bias
 *     features.2, .5, .8, .11, .14, .17, .20      the others, without a bias, and their normalisations at the next number
 *     classifier.0, classifier.2                  the fully connected layers, on channels, rows and columns in PyTorch's order
 *
 * A second call in the same set of the graph judges other pictures with the same parameters.
 */
cod_value cod_srgan_discriminator(cod_graph *graph, cod_value pictures, cod_srgan_discriminator_spec spec);

/** Height and width of pictures for cod_unet_discriminator() are multiples of this. */
enum { COD_UNET_DISCRIMINATOR_MULTIPLE = 8 };

/**
 * Real-ESRGAN's discriminator (Wang et al., "Real-ESRGAN: Training Real-World Blind Super-Resolution with Pure
 * Synthetic Data", ICCV workshops 2021, figure 6), to logits that each pixel is of the data: {N,H,W,C} -> {N,H,W,1}.
 *
 * A U-Net: three 4x4 convolutions that halve height and width, to 2, 4 and 8 times `features` channels; three times an
 * enlargement by two (bilinear), a 3x3 convolution and the sum with what the same size had on the way down; three 3x3
 * convolutions. Leaky ReLU of slope 0.2 behind all but the last. Layers are called conv0 … conv9, as in BasicSR's
 * UNetDiscriminatorSN; conv1 … conv8 are spectrally normalised and have no bias.
 *
 * @param features  channels of the first convolution; the published network has 64
 */
cod_value cod_unet_discriminator(cod_graph *graph, cod_value pictures, int64_t features);

/** cod_vgg_discriminator() halves pictures until END pixels a side are left, in MIN_BLOCKS to MAX_BLOCKS blocks. */
enum { COD_VGG_DISCRIMINATOR_END = 4, COD_VGG_DISCRIMINATOR_MIN_BLOCKS = 2, COD_VGG_DISCRIMINATOR_MAX_BLOCKS = 7 };

typedef struct cod_vgg_discriminator_spec {
    int64_t side;     /**< height and width of the pictures that it judges, pixels */
    int64_t features; /**< channels of the first block; the published network has 64 */
    int64_t hidden;   /**< width of the first fully connected layer; the published network has 100 */
} cod_vgg_discriminator_spec;

/** Whether there is a network for pictures of so many pixels a side: 16, 32, 64, 128, 256, 512. */
bool cod_vgg_discriminator_fits(int64_t side);

/**
 * ESRGAN's discriminator (Wang et al., "ESRGAN: Enhanced Super-Resolution Generative Adversarial Networks", ECCV
 * workshops 2018), in the layout and with the names of BasicSR's VGGStyleDiscriminator, to logits that a picture is of
 * the data: {N,H,W,C} -> {N,1,1,1}.
 *
 * Each block has a 3x3 convolution and one of 4x4 that halves the picture, both with 1, 2, 4, 8, 8 … times `features`
 * channels. Batch normalisation follows all but the first convolution, then leaky ReLU of slope 0.2. Two fully
 * connected layers end it. BasicSR has it for 128 (five blocks) and 256 pixels (six); smaller and larger pictures take
 * fewer and more blocks.
 *
 *     conv0_0               the first convolution, with a bias
 *     convB_0, convB_1      those of block B, without a bias, and their normalisations bnB_0, bnB_1
 *     linear1, linear2      the fully connected layers, on channels, rows and columns in PyTorch's order
 *
 * A second call in the same set of the graph judges other pictures with the same parameters.
 */
cod_value cod_vgg_discriminator(cod_graph *graph, cod_value pictures, cod_vgg_discriminator_spec spec);

#endif

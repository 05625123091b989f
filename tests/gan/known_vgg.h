/**
 * @file
 * A file of VGG-19 with values that follow from a formula, so that PyTorch can make the same
 * (tests/golden/make_gan.py).
 */
#ifndef COD_TESTS_GAN_KNOWN_VGG_H
#define COD_TESTS_GAN_KNOWN_VGG_H

#include "io/safetensors.h"
#include "nn/vgg.h"

/** What may be wrong with the file. */
typedef enum known_fault { KNOWN_WHOLE, KNOWN_WITHOUT_FIRST_BIAS, KNOWN_NARROW } known_fault;

/**
 * Writes the layers from conv1_1 to `last` with the metadata {key, value}; key NULL = none. Fails the test where it
 * cannot.
 */
void known_vgg_write(const char *path, cod_vgg_layer last, known_fault fault, const char *key, const char *value);

#endif

/**
 * @file
 * A file of SqueezeNet 1.1 with values that follow from a formula.
 */
#ifndef COD_TESTS_GAN_KNOWN_SQUEEZENET_H
#define COD_TESTS_GAN_KNOWN_SQUEEZENET_H

#include "nn/squeezenet.h"

/** What may be wrong with the file. */
typedef enum known_squeezenet_fault {
    KNOWN_SQUEEZENET_WHOLE,
    KNOWN_SQUEEZENET_WITHOUT_LAST_BIAS,
    KNOWN_SQUEEZENET_NARROW /**< the first convolution has half of its channels */
} known_squeezenet_fault;

/**
 * Writes layers 1 … `last`, with the text "input" among the metadata where `input` is not NULL. Fails the test where it
 * cannot.
 */
void known_squeezenet_write(const char *path, cod_squeezenet_names names, int last, known_squeezenet_fault fault,
                            const char *input);

#endif

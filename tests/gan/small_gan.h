/**
 * @file
 * Adversarial recipes on the small networks of tests/golden/make_gan.py: gradient checks of their sub-steps in f64 on
 * `ref`, and their steps against PyTorch's in f64 and f32.
 */
#ifndef COD_TESTS_GAN_SMALL_GAN_H
#define COD_TESTS_GAN_SMALL_GAN_H

#include "nn/net.h"
#include "train/config.h"
#include "train/recipe.h"

enum { SMALL_GAN_PICTURES = 3 };

/** A recipe as configured by words "key=value …", of which the first are train.recipe and data.patch. */
typedef struct small_gan {
    cod_run_config config;
    cod_recipe recipe;
    test_net net;
} small_gan;

/**
 * Registers what a configuration needs, but for the recipe, and makes a folder with "vgg.safetensors" up to conv2_2 and
 * "squeeze.safetensors" up to layer 4.
 */
int small_gan_set_up(void **state);

/**
 * Loads the configuration of a generator of one block with a small discriminator; a perceptual file is of the network
 * that words name.
 */
COD_MUST_CHECK cod_status small_gan_configure(const char *words, cod_run_config *config);
/** Demands that the configuration is refused with `message`. */
void small_gan_refuse(const char *words, const char *message);

/** Builds the recipe; all functions from here on fail the test where something is amiss. End with small_gan_clear(). */
void small_gan_build(const char *words, small_gan *gan);
/** Compiles its programs, each with its losses among its outputs, and `more` ones; random weights, but for files. */
void small_gan_compile(small_gan *gan, const cod_program_spec *more, size_t count);
/** The same on a backend, in f64 (`ref` alone) or f32. */
void small_gan_compile_on(small_gan *gan, const cod_backend *backend, cod_dtype activation,
                          const cod_program_spec *more, size_t count);
void small_gan_clear(small_gan *gan);

const cod_sub_step *small_gan_step(const small_gan *gan, const char *name);
/** Generator passes of a step: of sub-steps that are due. */
size_t small_gan_passes(const small_gan *gan, int64_t step);

/**
 * Checks the gradient of the generator's sub-step with losses toward a teacher, which compare features as the content
 * loss does, against differences, and that they are of these layers. @param base  words, with gan.content
 */
void small_gan_check_lessons(const char *base, size_t layers);

/** Compares twenty steps in f64 of each case of tests/golden/RECIPE.bin. @param base  words for all of them */
void small_gan_compare(const char *recipe, const char *base, uint32_t cases);
/**
 * Compares the first steps in f32, on `ref` and `cpu`, with those in f64 from the same weights: losses, logits,
 * gradients and running statistics. Since those in f64 are PyTorch's, as small_gan_compare() shows, each step in f32
 * is, too.
 */
void small_gan_follow_f32(const char *recipe, const char *base);
/**
 * The same in f32, on `ref` and `cpu`, with PyTorch's results in f32; and demands that a weight of any loss that is 1 %
 * too large is seen.
 */
void small_gan_compare_f32(const char *recipe, const char *base);

#endif

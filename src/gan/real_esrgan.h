/**
 * @file
 * The recipe `real_esrgan`: super-resolution of pictures of unknown degradation (Wang et al., "Real-ESRGAN: Training Real-World Blind
 * Super-Resolution with Pure Synthetic Data", ICCV workshops 2021), as its authors' code has it.
 *
 * Sub-steps and losses are those of `srgan` (gan/srgan.h); the discriminator judges each pixel (cod_unet_discriminator()), and features
 * of five layers of VGG-19 are compared. The degradations are the data's; without any, the recipe learns their inverse of bicubic
 * reduction alone.
 *
 * The discriminator's power iteration takes one step in each of its updates, and its three passes of a step divide by one sigma; the
 * authors' code takes a step in each pass.
 */
#ifndef COD_GAN_REAL_ESRGAN_H
#define COD_GAN_REAL_ESRGAN_H

void cod_recipe_register_real_esrgan(void);

#endif

/**
 * @file
 * The recipe `real_esrgan`: super-resolution of pictures of unknown degradation (Wang et al., "Real-ESRGAN: Training
 * Real-World Blind Super-Resolution with Pure Synthetic Data", ICCV workshops 2021), as its authors' code has it.
 *
 * Sub-steps, losses and section `gan` are those of srgan.h, except that the discriminator judges each pixel
 * (cod_unet_discriminator()). `auto` stands for the values of the authors' code: five layers of VGG-19 before the
 * activation by L1, pixels by 1, the adversarial loss by 0.1; pixels and features are compared with truth that unsharp
 * masking has sharpened (data/sharpen.h), and the discriminator sees the plain truth. The degradations come from the
 * data (section `degradation`).
 *
 * The discriminator's power iteration takes one step in each of its updates, and its passes of a training step all
 * divide by one sigma; the authors' code takes a step in each pass.
 */
#ifndef COD_GAN_REAL_ESRGAN_H
#define COD_GAN_REAL_ESRGAN_H

void cod_recipe_register_real_esrgan(void);

#endif

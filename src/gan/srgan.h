/**
 * @file
 * The recipe `srgan`: super-resolution with a discriminator (Ledig et al., "Photo-Realistic Single Image
 * Super-Resolution Using a Generative Adversarial Network", CVPR 2017).
 *
 *     sub-step        trains          losses
 *     generator       model           content, [pixel], adversarial; through the frozen discriminator and perceptual network
 *     discriminator   discriminator   d_real and d_fake, of the truth and of what the generator gave in this step
 *
 * The generator comes first, so that the discriminator judges the pictures that the generator's sub-step has computed
 * before its update, as in BasicSR's SRGANModel. A sub-step `forward` computes the pictures where the generator's
 * sub-step does not: in steps of gan.warm_up, in which only the discriminator learns; after the generator's update with
 * train.accumulate, because the pictures of its mini-batches are not kept; and with gan.every, in steps in which the
 * generator does not learn.
 *
 * Every network normalises by the mini-batch in all sub-steps. The discriminator's running statistics move with its own
 * update alone, once for the truth and once for the generator's pictures; nothing reads them.
 *
 * It reads the section `gan`.
 */
#ifndef COD_GAN_SRGAN_H
#define COD_GAN_SRGAN_H

void cod_recipe_register_srgan(void);

#endif

/**
 * @file
 * The recipe `esrgan`: super-resolution with a relativistic average discriminator (Wang et al., "ESRGAN: Enhanced
 * Super-Resolution Generative Adversarial Networks", ECCV workshops 2018), as BasicSR's ESRGANModel computes it.
 *
 * With C(x) the discriminator's logit of a picture, truth r, generated pictures f, and means over the mini-batch:
 *
 *     adversarial.real   BCE(C(r) - mean C(f), 0)       adversarial.fake   BCE(C(f) - mean C(r), 1)
 *     d_real             BCE(C(r) - mean C(f), 1)       d_fake             BCE(C(f) - mean C(r), 0)
 *
 * Each loss counts by one half; metrics show them without that factor. The generator's gradient flows through both of
 * its losses, because the generated pictures are part of the mean. In the discriminator's losses the means are
 * constants. Both are as in BasicSR. With several ranks a mean is over the rank's own mini-batch.
 *
 * Sub-steps, content loss and section `gan` are those of srgan.h. `auto` stands for the published values: features of
 * conv5_4 before the activation by L1, pixels by 0.01, the adversarial loss by 0.005.
 */
#ifndef COD_GAN_ESRGAN_H
#define COD_GAN_ESRGAN_H

void cod_recipe_register_esrgan(void);

#endif

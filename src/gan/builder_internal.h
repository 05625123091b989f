/**
 * @file
 * The parts that all adversarial recipes share: the generator, the content loss, the sets and the sub-steps. A recipe
 * is a gan_recipe, which says what differs; gan_register() has what is the same.
 */
#ifndef COD_GAN_BUILDER_INTERNAL_H
#define COD_GAN_BUILDER_INTERNAL_H

#include "gan/options_internal.h"
#include "train/recipe.h"

typedef struct gan_builder {
    const cod_recipe_setting *setting;
    gan_settings settings;
    cod_recipe *recipe;
    cod_graph *graph;
    cod_value truth, made; /**< pictures that the discriminator judges: the data's and the generator's; {N,H,W,3} */
    cod_value pixel_truth, feature_truth; /**< truth for losses between pixels and for losses between features */
    cod_sub_step generator;               /**< sub-step to which losses are added until gan_end() */
    cod_sub_step discriminator;           /**< likewise, and figures */
    cod_sub_step penalty; /**< a separate update of the discriminator for its penalty; not used if it has no losses */
    cod_span spans[COD_PROGRAM_MAX_SPANS]; /**< of gan_keep() */
    size_t span_count;
    cod_value ones; /**< labels of gan_add_plain_losses(), of the logits' shape */
} gan_builder;

/** An adversarial recipe: what it has of its own. */
typedef struct gan_recipe {
    cod_recipe_kind kind; /**< its name and help; gan_register() fills in the rest */
    gan_published published;
    /** Reports sizes of pictures that the discriminator does not take. NULL = it takes all. */
    void (*check_patch)(const cod_run_config *run);
    /** Adds the discriminator on `truth` and `made`, to the set in use, and the losses on its output. */
    void (*add_discriminator)(gan_builder *b);
} gan_recipe;

/** cod_recipe_register(). @param recipe  borrowed for the life of the process; may be registered again */
void gan_register(gan_recipe *recipe);

/** Builds the group's model and the input of the truth. The set in use is then "discriminator". */
COD_MUST_CHECK cod_status gan_begin(const cod_recipe_setting *setting, const gan_published *published,
                                    cod_recipe *recipe, gan_builder *b);

/**
 * Computes the discriminator's `logits` of `pictures` only once: the generator's sub-step, which needs them, computes
 * them, and the discriminator's sub-step reuses them. Not to be used with spectral normalisation, because the two
 * sub-steps scale its weights differently.
 */
void gan_keep(gan_builder *b, cod_value pictures, cod_value logits);

/** An input of `like`'s shape that holds `value` everywhere. @param name  a literal */
cod_value gan_labels(gan_builder *b, const char *name, cod_value like, double value);

/** Adds a loss to a sub-step, with `weight` in its sum. @param name  a literal, for metrics */
void gan_add_loss(gan_builder *b, cod_sub_step *step, const char *name, cod_value prediction, cod_value target,
                  cod_loss_spec spec, double weight);

/** Adds a value, whose first element goes into metrics, to the discriminator's sub-step. @param name  a literal */
void gan_add_figure(gan_builder *b, const char *name, cod_value value);

/**
 * Adds the figures of all recipes, which are the means (cod_graph_mean()) of the discriminator's logits, and the guards
 * of their difference.
 */
void gan_add_means(gan_builder *b, cod_value mean_real, cod_value mean_fake);

/**
 * Adds the losses of Goodfellow et al. 2014 with the generator's non-saturating one, each a binary cross entropy of
 * logits: `d_real`, `d_fake` and `adversarial`, and the figures.
 */
void gan_add_plain_losses(gan_builder *b, cod_value real, cod_value fake);

/**
 * Adds the R1 penalty (Mescheder, Geiger & Nowozin, "Which Training Methods for GANs do actually Converge?", ICML 2018,
 * equation 9) of the truth as loss `r1`: gan.r1 / 2 times the mean over pictures of |g|², g being the gradient of a
 * picture's summed logits `real` by its elements. The loss is reported as the mean of g² over elements. After
 * gan_add_plain_losses().
 *
 * If gan.r1_every is 1, the penalty is part of the discriminator's sub-step. Otherwise it has a separate sub-step, with
 * gan.r1_every times the weight (Karras et al., "Analyzing and Improving the Image Quality of StyleGAN", CVPR 2020,
 * appendix B).
 */
void gan_add_r1(gan_builder *b, cod_value real);

/**
 * Adds the content losses and the pixel loss, and the perceptual network if features are compared. The recipe's task
 * loss is the loss of the last layer listed.
 */
COD_MUST_CHECK cod_status gan_add_content(gan_builder *b);

/** For cod_recipe_kind.add_features, if the content loss compares features. */
COD_MUST_CHECK cod_status gan_add_features_of(const cod_recipe_setting *setting, const gan_published *published,
                                              const cod_recipe *recipe, cod_value pictures, cod_value *features);

/** Completes the recipe: sets, sub-steps, and the guards of the generator's pictures. */
void gan_end(gan_builder *b);

#endif

/**
 * @file
 * Section `gan`, which all adversarial recipes share.
 */
#ifndef COD_GAN_OPTIONS_INTERNAL_H
#define COD_GAN_OPTIONS_INTERNAL_H

#include "data/sharpen.h"
#include "nn/schedule.h"
#include "nn/vgg.h"
#include "train/config.h"

enum { GAN_MAX_LAYERS = 8 };

/** Values of options left at `auto` in a recipe: those of its paper or of its authors' code. */
typedef struct gan_published {
    const char *content[GAN_MAX_LAYERS + 1]; /**< as gan.content lists them; NULL-terminated */
    bool before_activation;
    cod_loss_kind feature_loss;
    double pixel_weight; /**< beside a content loss between features */
    double adversarial_weight;
    bool l1_gt_usm, percep_gt_usm, gan_gt_usm;
    int64_t hidden;        /**< 0 = its discriminator has no fully connected layer */
    bool piecewise_linear; /**< cod_graph_gradient() can differentiate its discriminator */
} gan_published;

typedef struct gan_options {
    cod_string_list content;
    int before_activation, pooling, feature_loss;
    double content_weight, pixel_weight, adversarial_weight;
    int l1_gt_usm, percep_gt_usm, gan_gt_usm;
    const char *perceptual_file;
    int perceptual_input;
    int64_t features, hidden;
    double rate;
    int schedule;
    cod_int_list milestones;
    int64_t warm_up, every;
    double label_smoothing;
    double r1;
    int64_t r1_every;
    const char *discriminator_init;
    bool discriminator_travels;
} gan_options;

extern const cod_option_table gan_option_table;

/** A layer of a perceptual network whose features are compared. */
typedef struct gan_layer {
    cod_vgg_layer vgg; /**< of VGG-19 */
    int squeezenet;    /**< layer of SqueezeNet 1.1; 0 = it is of VGG-19 */
    double weight;
    const char *name; /**< "vgg54"; a literal */
    const char *loss; /**< "content.vgg54"; a literal */
} gan_layer;

/** The options of a run without `auto`. */
typedef struct gan_settings {
    const gan_options *options;       /**< the options that every recipe reads unchanged; borrowed */
    gan_layer layers[GAN_MAX_LAYERS]; /**< all of one network */
    size_t layer_count;               /**< 0 = the content loss compares pixels */
    bool before_activation;
    cod_loss_kind feature_loss;
    double pixel_weight; /**< 0 = no loss between pixels beside the content loss */
    double adversarial_weight;
    bool l1_gt_usm, percep_gt_usm, gan_gt_usm; /**< whether the losses in use take sharpened truth */
    cod_truth truth;                           /**< the truth that the losses take together */
    int64_t hidden;
    cod_schedule_kind schedule; /**< of the discriminator */
} gan_settings;

/** @return COD_ERR_ARGUMENT where gan.content names no layers */
COD_MUST_CHECK cod_status gan_settle(const cod_run_config *run, const gan_published *published, gan_settings *out);

/** For cod_recipe_kind.truth. */
cod_truth gan_truth(const cod_run_config *run, const gan_published *published);

/**
 * The factor by which the run's generator enlarges data.patch; 0 = unknown, because one of them has a problem that was
 * reported already.
 */
int gan_scale(const cod_run_config *run);

/** For cod_recipe_kind.check and .check_files. */
void gan_check(const cod_run_config *run, const gan_published *published);
void gan_check_files(const cod_run_config *run, const gan_published *published);

#endif

#include "gan/options_internal.h"

#include "gan/features_internal.h"
#include "gan/perceptual.h"
#include "train/recipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTENT "content."
/**
 * Names of the layers' losses, in order; vggBC stands for convB_C, squeezeN for layer N. A layer's name follows
 * "content.".
 */
static const char *const content_losses[] = {
    CONTENT "vgg11",    CONTENT "vgg12",    CONTENT "vgg21",    CONTENT "vgg22",    CONTENT "vgg31",
    CONTENT "vgg32",    CONTENT "vgg33",    CONTENT "vgg34",    CONTENT "vgg41",    CONTENT "vgg42",
    CONTENT "vgg43",    CONTENT "vgg44",    CONTENT "vgg51",    CONTENT "vgg52",    CONTENT "vgg53",
    CONTENT "vgg54",    CONTENT "squeeze1", CONTENT "squeeze2", CONTENT "squeeze3", CONTENT "squeeze4",
    CONTENT "squeeze5", CONTENT "squeeze6", CONTENT "squeeze7", CONTENT "squeeze8", CONTENT "squeeze9"};
enum {
    LAYERS = sizeof content_losses / sizeof content_losses[0],
    VGG_LAYERS = LAYERS - COD_SQUEEZENET_LAYERS,
    PREFIX = sizeof CONTENT - 1
};

enum { AUTO, FIRST };
static const char *const switches[] = {"auto", "false", "true", NULL};
static const char *const poolings[] = {"max", "average", NULL};
static const char *const feature_losses[] = {"auto", "mse", "l1", NULL};
static const cod_loss_kind feature_loss_kinds[] = {COD_LOSS_MSE, COD_LOSS_L1};
static const char *const schedules[] = {"train", "constant", "step", "cosine", NULL};

#define FIELD(name) offsetof(gan_options, name)
static const cod_option option_list[] = {
    {"content", COD_OPTION_STRING_LIST, FIELD(content), "auto", 0, 0, NULL,
     "What the content loss compares. pixel: pixels, by train.loss. A list of vggBC: features of VGG-19 after "
     "convolution C of block B; a factor before a name is its weight, as in [0.1*vgg12, vgg34]. A list of squeezeN: "
     "features of SqueezeNet 1.1 after its first convolution (squeeze1) or fire module N (2 to 9); the whole network "
     "needs a twentieth of vgg22's multiplications. auto: pixel in srgan (Ledig et al. also use vgg22 and vgg54), "
     "vgg54 in esrgan, [0.1*vgg12, 0.1*vgg22, vgg34, vgg44, vgg54] in real_esrgan."},
    {"content_weight", COD_OPTION_FLOAT, FIELD(content_weight), "1", 1e-30, 1e9, NULL,
     "Factor of the content loss. Ledig et al. scale features by 1/12.75, which is a factor of 0.00615 for mse."},
    {"before_activation", COD_OPTION_CHOICE, FIELD(before_activation), "auto", 0, 0, switches,
     "Compare features before the activation that follows the convolution. auto: false in srgan, true in esrgan and "
     "real_esrgan."},
    {"pooling", COD_OPTION_CHOICE, FIELD(pooling), "max", 0, 0, poolings,
     "Pooling between the blocks of VGG-19. max: as VGG-19 was trained; its gradient goes to one pixel of four, so "
     "that the generator learns a pattern of dots. average (Gatys et al. 2016): avoids that pattern."},
    {"feature_loss", COD_OPTION_CHOICE, FIELD(feature_loss), "auto", 0, 0, feature_losses,
     "Loss that compares features. auto: mse in srgan, l1 in esrgan and real_esrgan."},
    {"pixel_weight", COD_OPTION_FLOAT, FIELD(pixel_weight), "auto", 0, 1e9, cod_option_auto,
     "Factor of a pixel loss, by train.loss, in addition to the loss between features. 0 = none. auto: 0 in srgan, "
     "0.01 in esrgan, 1 in real_esrgan."},
    {"adversarial_weight", COD_OPTION_FLOAT, FIELD(adversarial_weight), "auto", 1e-30, 1e9, cod_option_auto,
     "Factor of the adversarial loss. auto: 0.001 in srgan, 0.005 in esrgan, 0.1 in real_esrgan."},
    {"l1_gt_usm", COD_OPTION_CHOICE, FIELD(l1_gt_usm), "auto", 0, 0, switches,
     "Compare pixels with truth sharpened by unsharp masking (see data.gt_usm). auto: true in real_esrgan, false in "
     "the others. If this, percep_gt_usm or gan_gt_usm is true, data.degradation degrades the sharpened picture."},
    {"percep_gt_usm", COD_OPTION_CHOICE, FIELD(percep_gt_usm), "auto", 0, 0, switches,
     "Compare features with those of the sharpened truth. auto: true in real_esrgan, false in the others."},
    {"gan_gt_usm", COD_OPTION_CHOICE, FIELD(gan_gt_usm), "auto", 0, 0, switches,
     "Show the discriminator the sharpened truth. auto: false."},
    {"perceptual_file", COD_OPTION_STRING, FIELD(perceptual_file), "", 0, 0, NULL,
     "Safetensors file with the weights of the network whose features are compared, up to the last compared layer: "
     "VGG-19 with torchvision's tensor names, or SqueezeNet 1.1 with torchvision's or Caffe's."},
    {"perceptual_input", COD_OPTION_CHOICE, FIELD(perceptual_input), "auto", 0, 0, cod_perceptual_input_names,
     "Input format that this network was trained with. torchvision: RGB, mean 0.485 0.456 0.406, deviation 0.229 "
     "0.224 0.225. caffe: BGR from 0 to 255, mean 103.939 116.779 123.68. auto: as the file's metadata says."},
    {"features", COD_OPTION_INT, FIELD(features), "64", 1, 1024, NULL,
     "Channels of the discriminator's first convolution. Its widest layers have eight times as many."},
    {"hidden", COD_OPTION_INT, FIELD(hidden), "0", 0, 65536, NULL,
     "Width of the discriminator's first fully connected layer. 0 = as published: 1024 in srgan, 100 in esrgan. "
     "real_esrgan has no such layer."},
    {"rate", COD_OPTION_FLOAT, FIELD(rate), "0", 0, 1e3, NULL,
     "Learning rate of the discriminator before its schedule changes it. 0 = train.rate."},
    {"schedule", COD_OPTION_CHOICE, FIELD(schedule), "train", 0, 0, schedules,
     "Learning rate schedule of the discriminator. train = the same as train.schedule."},
    {"milestones", COD_OPTION_INT_LIST, FIELD(milestones), "", 1, 1e12, NULL,
     "schedule step: steps at which the discriminator's rate is multiplied by train.gamma. Empty = train.milestones."},
    {"warm_up", COD_OPTION_INT, FIELD(warm_up), "0", 0, 1e12, NULL,
     "Steps at the start in which only the discriminator learns."},
    {"every", COD_OPTION_INT, FIELD(every), "1", 1, 1e6, NULL,
     "The generator learns in one step out of this many; the discriminator learns in every step."},
    {"label_smoothing", COD_OPTION_FLOAT, FIELD(label_smoothing), "0", 0, 0.49, NULL,
     "Amount by which the discriminator's target for true pictures is below 1 (one-sided label smoothing, Salimans et "
     "al. 2016). 0 = none."},
    {"r1", COD_OPTION_FLOAT, FIELD(r1), "0", 0, 1e9, NULL,
     "real_esrgan: factor gamma of the R1 penalty (Mescheder et al. 2018), gamma/2 times the mean over true pictures "
     "of |g|^2, where g is the gradient of the discriminator's summed logits with respect to the picture. 0 = no "
     "penalty."},
    {"r1_every", COD_OPTION_INT, FIELD(r1_every), "1", 1, 1e6, NULL,
     "Compute the R1 penalty in one step out of this many and multiply it by this number. Above 1, which needs r1, "
     "the discriminator gets a separate update for it (Karras et al. 2020)."},
    {"discriminator_init", COD_OPTION_STRING, FIELD(discriminator_init), "", 0, 0, NULL,
     "Safetensors file with the discriminator's first weights: discriminator.GROUP.safetensors of an earlier run, or "
     "BasicSR's net_d converted by codistill import. Empty = random weights."},
    {"discriminator_travels", COD_OPTION_BOOL, FIELD(discriminator_travels), "false", 0, 0, NULL,
     "true: discriminators are published, averaged and merged between groups like generators. false: each group keeps "
     "its own."},
};
#undef FIELD
const cod_option_table gan_option_table = {
    "gan", "A generator and its discriminator: recipes srgan, esrgan and real_esrgan.", option_list,
    sizeof option_list / sizeof option_list[0], sizeof(gan_options)};

/** Of VGG-19. */
static cod_vgg_layer layer_at(int index)
{
    cod_vgg_layer layer = {1, index + 1};
    for (; layer.convolution > cod_vgg_convolutions(layer.block); layer.block++)
        layer.convolution -= cod_vgg_convolutions(layer.block);
    return layer;
}

/** The index of "vggBC" or "squeezeN", or -1. */
static int find_layer(const char *name)
{
    for (int i = 0; i < LAYERS; i++)
        if (strcmp(content_losses[i] + PREFIX, name) == 0)
            return i;
    return -1;
}

static cod_status unknown_layer(const char *item)
{
    char names[16 * LAYERS] = "";
    for (int i = 0; i < LAYERS; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", content_losses[i] + PREFIX);
    return cod_fail(COD_ERR_ARGUMENT, "'%s' is not one of: pixel%s, nor a number, * and one of these layers", item,
                    names);
}

/** Reads "vgg54" or "0.1*vgg12" as the next layer. */
static cod_status add_layer(gan_settings *settings, const char *item)
{
    const char *star = strchr(item, '*'), *name = star != NULL ? star + 1 : item;
    char *end = NULL;
    const double weight = star != NULL ? strtod(item, &end) : 1;
    const int index = find_layer(name);
    if (index < 0 || (star != NULL && (end == item || end != star)))
        return unknown_layer(item);
    if (!(weight > 0) || !isfinite(weight))
        return cod_fail(COD_ERR_ARGUMENT, "'%s': the weight of a layer is a number above 0", item);
    for (size_t i = 0; i < settings->layer_count; i++)
        if (strcmp(settings->layers[i].name, name) == 0)
            return cod_fail(COD_ERR_ARGUMENT, "'%s' is listed twice", name);
    if (settings->layer_count > 0 && (settings->layers[0].squeezenet > 0) != (index >= VGG_LAYERS))
        return cod_fail(
            COD_ERR_ARGUMENT,
            "'%s' and '%s' are of two networks, but gan.perceptual_file holds one: list layers of VGG-19 or "
            "of SqueezeNet",
            settings->layers[0].name, name);
    if (settings->layer_count == GAN_MAX_LAYERS)
        return cod_fail(COD_ERR_ARGUMENT, "at most %d layers are compared", GAN_MAX_LAYERS);
    gan_layer *layer = &settings->layers[settings->layer_count++];
    *layer = (gan_layer){.weight = weight, .name = content_losses[index] + PREFIX, .loss = content_losses[index]};
    if (index < VGG_LAYERS)
        layer->vgg = layer_at(index);
    else
        layer->squeezenet = index - VGG_LAYERS + 1;
    return COD_OK;
}

static cod_status read_content(const cod_string_list *given, const gan_published *published, gan_settings *settings)
{
    const bool is_auto = given->count == 1 && strcmp(given->items[0], "auto") == 0;
    const char *const *items = is_auto ? published->content : given->items;
    size_t count = given->count;
    for (count = is_auto ? 0 : count; is_auto && items[count] != NULL;)
        count++;
    if (count == 0)
        return cod_fail(COD_ERR_ARGUMENT, "an empty list compares nothing; pixel compares pixels");
    if (count == 1 && strcmp(items[0], "pixel") == 0)
        return COD_OK;
    for (size_t i = 0; i < count; i++)
        COD_TRY(add_layer(settings, items[i]));
    return COD_OK;
}

static bool switched(int option, bool published)
{
    return option == AUTO ? published : (bool)(option - FIRST);
}

/** Which losses take sharpened truth, of those that there are. */
static void settle_truth(const gan_options *o, const gan_published *published, gan_settings *s)
{
    const bool pixels = s->layer_count == 0 || s->pixel_weight > 0, features = s->layer_count > 0;
    s->l1_gt_usm = pixels && switched(o->l1_gt_usm, published->l1_gt_usm);
    s->percep_gt_usm = features && switched(o->percep_gt_usm, published->percep_gt_usm);
    s->gan_gt_usm = switched(o->gan_gt_usm, published->gan_gt_usm);
    const bool sharp = s->l1_gt_usm || s->percep_gt_usm || s->gan_gt_usm;
    const bool plain = (pixels && !s->l1_gt_usm) || (features && !s->percep_gt_usm) || !s->gan_gt_usm;
    s->truth = sharp && plain ? COD_TRUTH_BOTH : sharp ? COD_TRUTH_SHARP : COD_TRUTH_PLAIN;
}

cod_status gan_settle(const cod_run_config *run, const gan_published *published, gan_settings *out)
{
    const gan_options *o = cod_run_config_section(run, &gan_option_table);
    *out = (gan_settings){
        .options = o,
        .before_activation = switched(o->before_activation, published->before_activation),
        .feature_loss = o->feature_loss == AUTO ? published->feature_loss : feature_loss_kinds[o->feature_loss - FIRST],
        .adversarial_weight = isnan(o->adversarial_weight) ? published->adversarial_weight : o->adversarial_weight,
        .hidden = o->hidden == 0 ? published->hidden : o->hidden,
        .schedule = o->schedule == AUTO ? cod_recipe_schedule(run).kind : (cod_schedule_kind)(o->schedule - FIRST)};
    COD_TRY(read_content(&o->content, published, out));
    out->pixel_weight = !isnan(o->pixel_weight) ? o->pixel_weight : out->layer_count > 0 ? published->pixel_weight : 0;
    settle_truth(o, published, out);
    return COD_OK;
}

cod_truth gan_truth(const cod_run_config *run, const gan_published *published)
{
    gan_settings settings;
    return gan_settle(run, published, &settings) == COD_OK ? settings.truth : COD_TRUTH_PLAIN;
}

static void check_content(const cod_run_config *run, const gan_published *published)
{
    gan_settings settings;
    if (gan_settle(run, published, &settings) != COD_OK)
        cod_config_problem_key(run->config, "gan.content", "%s", cod_error_message());
    else if (settings.layer_count > 0 && settings.options->perceptual_file[0] == '\0')
        cod_config_problem_key(run->config, "gan.content",
                               "'%s' compares features of %s: name its weights in gan.perceptual_file",
                               settings.layers[0].name, gan_network_name(&settings));
    else if (settings.options->pooling != 0 && (settings.layer_count == 0 || settings.layers[0].squeezenet > 0))
        cod_config_problem_key(run->config, "gan.pooling", "only VGG-19 can pool by averages, and gan.content is '%s'",
                               settings.layer_count == 0 ? "pixel" : settings.layers[0].name);
    else if (settings.layer_count == 0 && settings.pixel_weight > 0)
        cod_config_problem_key(run->config, "gan.pixel_weight",
                               "the content loss compares pixels already: set gan.content_weight");
}

int gan_scale(const cod_run_config *run)
{
    const cod_model_kind *kind = run->whole.kind;
    if (kind == NULL || kind->scale == NULL || run->whole.architecture == NULL ||
        cod_config_has_problem(run->config, "data.patch"))
        return 0;
    return kind->scale(run->whole.architecture);
}

/** Layers that halve sides need pictures of some. */
static void check_side(const cod_run_config *run, const gan_published *published)
{
    gan_settings settings;
    const char *layer = NULL;
    const int64_t patch = run->data.patch, scale = gan_scale(run);
    if (scale == 0 || gan_settle(run, published, &settings) != COD_OK || settings.layer_count == 0)
        return;
    const int64_t side = gan_network_side(&settings, &layer);
    if (patch * scale < side)
        cod_config_problem_key(
            run->config, "data.patch",
            "a patch of %lld enlarged %lld times is %lld pixels a side, but '%s' of gan.content needs "
            "%lld; a patch of %lld would do",
            (long long)patch, (long long)scale, (long long)(patch * scale), layer, (long long)side,
            (long long)((side + scale - 1) / scale));
}

void gan_check(const cod_run_config *run, const gan_published *published)
{
    const gan_options *o = cod_run_config_section(run, &gan_option_table);
    const cod_model_kind *kind = run->whole.kind;
    if (kind != NULL && kind->task != COD_TASK_SUPER_RESOLUTION)
        cod_config_problem_key(run->config, "train.recipe",
                               "the discriminator of recipe '%s' judges pictures; model '%s' makes none",
                               run->recipe->name, kind->name);
    check_content(run, published);
    check_side(run, published);
    if (run->data.gt_usm)
        cod_config_problem_key(run->config, "data.gt_usm",
                               "recipe '%s' has an option for each of its losses: set gan.l1_gt_usm, gan.percep_gt_usm "
                               "or gan.gan_gt_usm",
                               run->recipe->name);
    if (o->hidden > 0 && published->hidden == 0)
        cod_config_problem_key(run->config, "gan.hidden",
                               "the discriminator of recipe '%s' has no fully connected layer", run->recipe->name);
    if (o->r1 > 0 && !published->piecewise_linear)
        cod_config_problem_key(run->config, "gan.r1",
                               "the R1 penalty is for discriminators without batch normalisation, and that of recipe "
                               "'%s' has it; recipe real_esrgan can have the penalty",
                               run->recipe->name);
    if (o->r1_every > 1 && o->r1 == 0)
        cod_config_problem_key(run->config, "gan.r1_every",
                               "there is no R1 penalty to compute in one of %lld steps: set its gamma, gan.r1, above "
                               "0, or leave gan.r1_every out",
                               (long long)o->r1_every);
    if (o->warm_up >= run->train.steps)
        cod_config_problem_key(run->config, "gan.warm_up",
                               "%lld steps of the discriminator alone leave nothing of %lld steps",
                               (long long)o->warm_up, (long long)run->train.steps);
}

void gan_check_files(const cod_run_config *run, const gan_published *published)
{
    gan_settings settings;
    gan_network network;
    if (gan_settle(run, published, &settings) != COD_OK)
        return;
    const char *init = settings.options->discriminator_init;
    const char *perceptual = settings.options->perceptual_file;
    if (init[0] != '\0')
        (void)cod_run_config_has_file(run, "gan.discriminator_init", init);
    if (settings.layer_count > 0 && perceptual[0] != '\0' &&
        cod_run_config_has_file(run, "gan.perceptual_file", perceptual) &&
        gan_network_examine(&settings, &network) != COD_OK)
        cod_config_problem_key(run->config, "gan.perceptual_file", "%s", cod_error_message());
}

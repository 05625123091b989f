/* The section `distill`, and what must hold between sections. */
#include "distill/codistill_internal.h"

#include "nn/precision.h"
#include "train/recipe.h"

#include <string.h>

static const char *const losses[] = {"auto", "l1", "mse", "charbonnier", "kl", "features", NULL};
static const char *const averages[] = {"auto", "outputs", "probabilities", NULL};
static const char *const inputs[] = {"batch", "mixup", "no_reference", NULL};
#define FIELD(name) offsetof(cod_distill_options, name)
static const cod_option options[] = {
    {"weight", COD_OPTION_FLOAT, FIELD(weight), "auto", 0, 1000, cod_option_auto,
     "Weight of the distillation loss beside the task loss, after the ramp. 0 = no teachers. auto: 1 for class "
     "probabilities, 0.1 for pictures (docs/evidence.md)."},
    {"loss", COD_OPTION_CHOICE, FIELD(loss), "auto", 0, 0, losses,
     "Loss between the teacher's output and the student's. auto: l1 for pictures, kl (Kullback-Leibler divergence) "
     "for class probabilities. features: compares features of the frozen network of an adversarial recipe, with the "
     "layers and weights of section gan."},
    {"temperature", COD_OPTION_FLOAT, FIELD(temperature), "2", 0.1, 100, NULL,
     "kl: logits are divided by this before they become probabilities, and the loss is multiplied by its square "
     "(Hinton et al. 2015). Higher values give more weight to unlikely classes."},
    {"burn_in", COD_OPTION_INT, FIELD(burn_in), "1000", 0, 1e12, NULL,
     "Steps before distillation starts, because early teachers know nothing yet."},
    {"ramp", COD_OPTION_INT, FIELD(ramp), "1000", 0, 1e12, NULL,
     "Steps after burn_in over which the weight rises to its full value."},
    {"every", COD_OPTION_INT, FIELD(every), "1", 1, 1e9, NULL,
     "Distil in one step out of this many. Teachers then cost as many times less."},
    {"batch_fraction", COD_OPTION_FLOAT, FIELD(batch_fraction), "1", 0.001, 1, NULL,
     "Share of the mini-batch that teachers predict and the distillation loss compares. 0.5 halves the teacher's "
     "cost."},
    {"inputs", COD_OPTION_CHOICE, FIELD(inputs), "batch", 0, 0, inputs,
     "Inputs on which teachers and student are compared. batch: the mini-batch. mixup: mixtures of two examples of "
     "the mini-batch. no_reference: crops of the true pictures used as if they were low-resolution pictures; the "
     "student sees them flipped, rotated or inverted. mixup and no_reference cost another forward and backward pass "
     "of the student in each step that distils."},
    {"teacher_precision", COD_OPTION_CHOICE, FIELD(teacher_precision), "auto", 0, 0, cod_precision_names_with_int8,
     "Type of a teacher's activations. auto: as train.precision. int8: convolutions on 8-bit integers; their ranges "
     "are measured on a mini-batch each time the teacher's weights change."},
    {"fade", COD_OPTION_BOOL, FIELD(fade), "true", 0, 0, NULL, "Reduce the weight in proportion to the learning rate."},
    {"gate", COD_OPTION_BOOL, FIELD(gate), "false", 0, 0, NULL,
     "Leave a teacher out while its task loss on the mini-batch is above the student's recent one."},
    {"teachers_per_step", COD_OPTION_INT, FIELD(teachers_per_step), "1", 1, 1e6, NULL,
     "Number of teachers in each step; the peers take turns. With several, the student follows the mean of their "
     "predictions, and each costs a forward pass."},
    {"average", COD_OPTION_CHOICE, FIELD(average), "auto", 0, 0, averages,
     "What is averaged when a step has several teachers. outputs: logits or pictures. probabilities: class "
     "probabilities at `temperature`, as in Anil et al. 2018. auto: probabilities if the loss is kl, otherwise "
     "outputs."},
    {"control", COD_OPTION_STRING, FIELD(control), "", 0, 0, NULL,
     "Folder of a run that does not distil, such as one with strategy `single`. Each evaluation is compared with that "
     "run's, and a warning follows three evaluations in a row that are behind it. Empty = no control."},
    {"auto_off", COD_OPTION_BOOL, FIELD(auto_off), "true", 0, 0, NULL,
     "When that warning comes, lower the weight to zero over `ramp` steps."},
};
#undef FIELD
const cod_option_table cod_distill_option_table = {"distill", "How pulled checkpoints are used as teachers.", options,
                                                   sizeof options / sizeof options[0], sizeof(cod_distill_options)};

static void note_problem(void *config, const char *option, const char *message)
{
    cod_config_problem_key(config, option, "%s", message);
}

void codistill_check(const cod_run_config *run, const cod_distill_options *d, const cod_exchange_options *e)
{
    const cod_model_kind *model = run->whole.kind;
    if (d->loss == COD_DISTILL_LOSS_KL && model != NULL && model->task != COD_TASK_CLASSIFICATION)
        cod_config_problem_key(run->config, "distill.loss", "kl compares classes; model '%s' is for %s", model->name,
                               cod_task_name(model->task));
    if (d->loss == COD_DISTILL_LOSS_FEATURES && run->recipe != NULL && run->recipe->add_features == NULL)
        cod_config_problem_key(
            run->config, "distill.loss",
            "recipe '%s' has no frozen network whose features could be compared; train.recipe: srgan, "
            "esrgan and real_esrgan can have one",
            run->recipe->name);
    if (d->inputs == COD_DISTILL_INPUTS_NO_REFERENCE && model != NULL && model->task != COD_TASK_SUPER_RESOLUTION)
        cod_config_problem_key(run->config, "distill.inputs",
                               "no_reference takes crops of true pictures; model '%s' is for %s", model->name,
                               cod_task_name(model->task));
    if (d->average == COD_DISTILL_AVERAGE_PROBABILITIES && model != NULL &&
        (model->task != COD_TASK_CLASSIFICATION ||
         (d->loss != COD_DISTILL_LOSS_KL && d->loss != COD_DISTILL_LOSS_AUTO)))
        cod_config_problem_key(run->config, "distill.average",
                               "probabilities are of classes that loss kl compares; model '%s' is for %s, with loss "
                               "%s: set auto or outputs",
                               model->name, cod_task_name(model->task), losses[d->loss]);
    if (d->inputs == COD_DISTILL_INPUTS_MIXUP && run->data.batch == 1)
        cod_config_problem_key(run->config, "distill.inputs", "mixup mixes examples of a mini-batch; data.batch is 1");
    if (d->inputs != COD_DISTILL_INPUTS_BATCH && run->data.transfer == COD_TRANSFER_UINT8)
        cod_config_problem_key(
            run->config, "data.transfer",
            "uint8 leaves the host no mini-batch in f32, of which distill.inputs=%s makes others; set pinned or "
            "mapped, or distill.inputs=batch",
            inputs[d->inputs]);
    if (d->inputs != COD_DISTILL_INPUTS_BATCH && d->gate)
        cod_config_problem_key(run->config, "distill.gate",
                               "a gate compares task losses, and these inputs have no truth: distill.inputs: batch");
    if (d->inputs != COD_DISTILL_INPUTS_BATCH && d->batch_fraction < 1)
        cod_config_problem_key(
            run->config, "distill.batch_fraction",
            "these inputs are predicted whole; use distill.every to pay less, or distill.inputs: batch");
    if (e->publish == COD_PUBLISH_EMA && run->train.ema == 0)
        cod_config_problem_key(run->config, "exchange.publish",
                               "the moving average can be published only where there is one: set train.ema above 0");
    cod_exchange_options exchange = *e;
    exchange.deterministic = e->deterministic || run->train.deterministic;
    cod_exchange_check(&exchange, (int)run->group_count, note_problem, run->config);
    bool own = strcmp(run->whole.model.init, "own") == 0;
    for (size_t i = 0; i < run->group_count; i++)
        own = own || strcmp(run->groups[i].model.init, "own") == 0;
    if (e->merge != COD_MERGE_NONE && own)
        cod_config_problem_key(run->config, "model.init",
                               "merging weights needs a common start: `shared` or a file, or exchange.merge: none");
}

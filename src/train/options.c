#include "train/options.h"

#include "core/device.h"
#include "nn/optimiser.h"
#include "nn/precision.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const cod_option root_options[] = {
    {"name", COD_OPTION_STRING, offsetof(cod_root_options, name), "run", 0, 0, NULL,
     "name of the run; its folder is OUTPUT/NAME"},
    {"seed", COD_OPTION_INT, offsetof(cod_root_options, seed), "1", 0, 1e15, NULL,
     "seed of everything random; equal seeds give equal data order and initial weights"},
    {"output", COD_OPTION_STRING, offsetof(cod_root_options, output), "runs", 0, 0, NULL,
     "folder that holds the folders of runs"},
    {"nonce", COD_OPTION_STRING, offsetof(cod_root_options, nonce), "", 0, 0, NULL,
     "tells this run's checkpoints from those of other runs of its name and seed; drawn when its folder is made, and "
     "kept "
     "in config.yaml there. Groups with folders of their own need to be given the same one"},
};
const cod_option_table cod_root_option_table = {"", "The run as a whole", root_options, COUNT(root_options),
                                                sizeof(cod_root_options)};

static const char *const init_modes[] = {"strict", "partial", NULL};
static const cod_option model_options[] = {
    {"name", COD_OPTION_STRING, offsetof(cod_model_options, name), "srresnet", 0, 0, NULL,
     "the architecture; `codistill models` lists them"},
    {"init", COD_OPTION_STRING, offsetof(cod_model_options, init), "shared", 0, 0, NULL,
     "initial weights: `shared` (all groups start equal, which merging needs), `own` (each group its own), or a model "
     "file to "
     "fine-tune"},
    {"init_mode", COD_OPTION_CHOICE, offsetof(cod_model_options, init_mode), "strict", 0, 0, init_modes,
     "with a model file: every tensor must match, or only those that do are loaded"},
};
const cod_option_table cod_model_option_table = {"model", "The network that is trained", model_options,
                                                 COUNT(model_options), sizeof(cod_model_options)};

static const char *const losses[] = {"auto", "l1", "mse", "charbonnier", "cross_entropy", NULL};
const char *const cod_allreduce_names[] = {"auto", "flat", "hierarchical", "nccl", "direct", NULL};
const char *const cod_allreduce_codec_names[] = {"none", "int8", NULL};
static const char *const recomputes[] = {"none", "cheap", NULL};
static const char *const schedules[] = {"constant", "step", "cosine", NULL};
#define FIELD(name) offsetof(cod_train_options, name)
static const cod_option train_options[] = {
    {"recipe", COD_OPTION_STRING, FIELD(recipe), "supervised", 0, 0, NULL,
     "what a step computes: supervised, one network trained by the loss between its output and the truth; srgan, "
     "super-resolution with a discriminator; esrgan, with a relativistic one; real_esrgan, with one that judges each "
     "pixel; see section gan"},
    {"strategy", COD_OPTION_STRING, FIELD(strategy), "codistill", 0, 0, NULL,
     "how ranks co-operate; docs/strategies.md says what each does"},
    {"steps", COD_OPTION_INT, FIELD(steps), "10000", 1, 1e12, NULL, "updates of the weights"},
    {"backend", COD_OPTION_STRING, FIELD(backend), COD_BACKEND_AUTO, 0, 0, NULL,
     "for checks, a backend by its name, whatever cluster.device says; `codistill --version` lists them. auto: as "
     "cluster.device says"},
    {"precision", COD_OPTION_CHOICE, FIELD(precision), "auto", 0, 0, cod_precision_names,
     "type of activations; weights and sums are always f32. auto: bf16 where the device has it, as all GPUs do"},
    {"accumulate", COD_OPTION_INT, FIELD(accumulate), "1", 1, 4096, NULL,
     "mini-batches whose gradients are added up for one update"},
    {"loss", COD_OPTION_CHOICE, FIELD(loss), "auto", 0, 0, losses,
     "task loss between output and truth; auto: l1 for super-resolution, cross_entropy for classification, where mse "
     "is the "
     "squared distance to one-hot targets"},
    {"label_smoothing", COD_OPTION_FLOAT, FIELD(label_smoothing), "0", 0, 0.9, NULL,
     "cross_entropy: share of each target that is spread over all classes"},
    {"prior_correction", COD_OPTION_BOOL, FIELD(prior_correction), "false", 0, 0, NULL,
     "classification: where groups' shares of the classes differ (data.placement: dirichlet), correct task loss and "
     "distillation for them"},
    {"optimiser", COD_OPTION_CHOICE, FIELD(optimiser), "adam", 0, 0, cod_optimiser_names, "update rule"},
    {"rate", COD_OPTION_FLOAT, FIELD(rate), "1e-3", 1e-12, 1e3, NULL, "learning rate, before the schedule"},
    {"momentum", COD_OPTION_FLOAT, FIELD(momentum), "0.9", 0, 0.9999, NULL, "of sgd"},
    {"nesterov", COD_OPTION_BOOL, FIELD(nesterov), "false", 0, 0, NULL, "Nesterov's variant of sgd's momentum"},
    {"beta1", COD_OPTION_FLOAT, FIELD(beta1), "0.9", 0, 0.99999, NULL, "adam: decay of the mean gradient"},
    {"beta2", COD_OPTION_FLOAT, FIELD(beta2), "0.999", 0, 0.9999999, NULL, "adam: decay of the mean squared gradient"},
    {"epsilon", COD_OPTION_FLOAT, FIELD(epsilon), "1e-8", 1e-30, 1, NULL, "adam: added to the root"},
    {"weight_decay", COD_OPTION_FLOAT, FIELD(weight_decay), "0", 0, 10, NULL,
     "pull of the weights toward zero; decoupled in adamw"},
    {"clip_norm", COD_OPTION_FLOAT, FIELD(clip_norm), "0", 0, 1e9, NULL,
     "largest norm of the gradient; 0 = no clipping"},
    {"ema", COD_OPTION_FLOAT, FIELD(ema), "0", 0, 0.9999999, NULL,
     "decay of the moving average of the weights (0.999 is usual); 0 = none"},
    {"schedule", COD_OPTION_CHOICE, FIELD(schedule), "cosine", 0, 0, schedules, "learning rate over the run"},
    {"warmup", COD_OPTION_INT, FIELD(warmup), "0", 0, 1e9, NULL, "steps of linear rise at the start"},
    {"milestones", COD_OPTION_INT_LIST, FIELD(milestones), "", 1, 1e12, NULL,
     "schedule step: steps at which the rate is multiplied by gamma"},
    {"gamma", COD_OPTION_FLOAT, FIELD(gamma), "0.5", 0, 1, NULL, "schedule step: the factor"},
    {"final_factor", COD_OPTION_FLOAT, FIELD(final_factor), "0", 0, 1, NULL, "schedule cosine: last rate over first"},
    {"max_time", COD_OPTION_STRING, FIELD(max_time), "", 0, 0, NULL,
     "longest wall time, such as 90s, 10m, 1h30m or 01:30:00: then it saves and ends, to be resumed; empty = none"},
    {"deterministic", COD_OPTION_BOOL, FIELD(deterministic), "false", 0, 0, NULL,
     "results do not depend on timing: runs replay bit for bit; exchanges then wait for each other"},
    {"autotune", COD_OPTION_BOOL, FIELD(autotune), "true", 0, 0, NULL,
     "times implementations once and takes the fastest; false, or deterministic: fixed ones"},
    {"recompute", COD_OPTION_CHOICE, FIELD(recompute), "none", 0, 0, recomputes,
     "activation checkpointing (rematerialisation): cheap does not keep what normalisations, activations and sums made "
     "in the forward pass, but computes it again in the backward pass, wherever that lowers the peak of memory; "
     "results have the same bits. Unlike torch.utils.checkpoint it chooses the layers itself and never repeats a "
     "convolution. none keeps everything, which is fastest"},
    {"allreduce", COD_OPTION_CHOICE, FIELD(allreduce), "auto", 0, 0, cod_allreduce_names,
     "averaging inside a group: flat, one ring of all ranks in the host's memory; hierarchical, inside nodes first and "
     "then between one rank of each, in the host's memory, too; nccl, between the GPUs themselves, by NVIDIA's NCCL; "
     "direct, between the GPUs themselves, by an MPI that takes their memory (CUDA-aware); auto: nccl where each rank "
     "of "
     "a group has a GPU of its own, NCCL is there and the run need not repeat, else direct where MPI says that it is "
     "CUDA-aware, else hierarchical where a group has several ranks on each of several nodes, else flat"},
    {"allreduce_codec", COD_OPTION_CHOICE, FIELD(allreduce_codec), "none", 0, 0, cod_allreduce_codec_names,
     "coding of gradients averaged inside a group, with error feedback: none exact, int8 a quarter of the bytes, by a "
     "flat all-reduce"},
    {"bucket_kb", COD_OPTION_INT, FIELD(bucket_kb), "1024", 0, 1e6, NULL,
     "KiB of gradient that are averaged together while backward goes on; 0 = all at once"},
};
#undef FIELD
const cod_option_table cod_train_option_table = {"train", "Training", train_options, COUNT(train_options),
                                                 sizeof(cod_train_options)};

static const char *const bests[] = {"auto", "psnr", "ssim", "niqe", "pi", "lpips", NULL};
static const cod_option eval_options[] = {
    {"every", COD_OPTION_INT, offsetof(cod_eval_options, every), "500", 0, 1e12, NULL,
     "steps between evaluations on the held-out pictures; 0 = only at the end"},
    {"images", COD_OPTION_INT, offsetof(cod_eval_options, images), "0", 0, 1e6, NULL,
     "held-out pictures or examples used while training, at the end all are; 0 = 8 pictures, or all examples"},
    {"ema", COD_OPTION_BOOL, offsetof(cod_eval_options, ema), "true", 0, 0, NULL,
     "evaluate and save the moving average of the weights, where train.ema keeps one"},
    {"predictions", COD_OPTION_BOOL, offsetof(cod_eval_options, predictions), "false", 0, 0, NULL,
     "classification: keep what each group's model says of each held-out example at each evaluation, and of each test "
     "example at the end, in predictions/"},
    {"metrics", COD_OPTION_STRING, offsetof(cod_eval_options, metrics), "psnr, ssim", 0, 0, NULL,
     "super-resolution: figures of the held-out pictures, of psnr, ssim, niqe, pi (perceptual index: without "
     "eval.ma_model NIQE of the Y channel alone; beside it the RMSE of Y) and lpips, as `codistill eval --metrics` has "
     "them"},
    {"best", COD_OPTION_CHOICE, offsetof(cod_eval_options, best), "auto", 0, 0, bests,
     "super-resolution: the figure by which the best model is chosen: the checkpoint called best, the group or mean "
     "that "
     "becomes final.safetensors, and what `codistill compare` judges by; it is computed also where eval.metrics leaves "
     "it out. auto: the first one of psnr, ssim, niqe, pi, lpips that eval.metrics names"},
    {"niqe_model", COD_OPTION_STRING, offsetof(cod_eval_options, niqe_model), "", 0, 0, NULL,
     "niqe, pi: file with the model of natural pictures, niqe_pris_params.npz as BasicSR has it"},
    {"ma_model", COD_OPTION_STRING, offsetof(cod_eval_options, ma_model), "", 0, 0, NULL,
     "pi: safetensors file with the forests of Ma's score, which tools/ma_model.py makes of the authors' model.mat; "
     "empty = NIQE of the Y channel stands in the index's place"},
    {"lpips_network", COD_OPTION_STRING, offsetof(cod_eval_options, lpips_network), "", 0, 0, NULL,
     "lpips: safetensors file with SqueezeNet 1.1's features, by torchvision's or Caffe's names"},
    {"lpips_weights", COD_OPTION_STRING, offsetof(cod_eval_options, lpips_weights), "", 0, 0, NULL,
     "lpips: safetensors file with the linear weights, by the package lpips' names; empty = unweighted, every channel "
     "counts alike"},
    {"degraded", COD_OPTION_BOOL, offsetof(cod_eval_options, degraded), "false", 0, 0, NULL,
     "super-resolution with data.degradation: real_esrgan: validate on pictures that are degraded as those trained on, "
     "each in one way that is the same in all evaluations and runs; false: on those that MATLAB's bicubic made"},
};
const cod_option_table cod_eval_option_table = {"eval", "Evaluation while training", eval_options, COUNT(eval_options),
                                                sizeof(cod_eval_options)};

static const char *const resumes[] = {"auto", "never", "must", NULL};
static const cod_option checkpoint_options[] = {
    {"every", COD_OPTION_INT, offsetof(cod_checkpoint_options, every), "1000", 0, 1e12, NULL,
     "steps between checkpoints; 0 = only at the end"},
    {"keep", COD_OPTION_INT, offsetof(cod_checkpoint_options, keep), "2", 1, 1000, NULL,
     "newest checkpoints kept, beside the best"},
    {"resume", COD_OPTION_CHOICE, offsetof(cod_checkpoint_options, resume), "auto", 0, 0, resumes,
     "auto: go on from the newest checkpoint if there is one; never: start anew, without the checkpoints that are "
     "there; "
     "must: fail without one"},
    {"write_timeout_s", COD_OPTION_FLOAT, offsetof(cod_checkpoint_options, write_timeout_s), "20", 0.1, 1e6, NULL,
     "seconds that a file operation in the run's folder (checkpoint, metrics, log) may take before a warning names the "
     "file; a run that is asked to end while storage hangs then ends without it, so many seconds after it was asked"},
};
const cod_option_table cod_checkpoint_option_table = {"checkpoint", "Saving and resuming", checkpoint_options,
                                                      COUNT(checkpoint_options), sizeof(cod_checkpoint_options)};

static const cod_option log_options[] = {
    {"every", COD_OPTION_INT, offsetof(cod_log_options, every), "50", 1, 1e9, NULL, "steps between lines of metrics"},
    {"samples", COD_OPTION_INT, offsetof(cod_log_options, samples), "2", 0, 100, NULL,
     "held-out pictures shown side by side in samples/ at each evaluation"},
    {"tensorboard", COD_OPTION_BOOL, offsetof(cod_log_options, tensorboard), "true", 0, 0, NULL,
     "also write TensorBoard event files"},
    {"trace", COD_OPTION_STRING, offsetof(cod_log_options, trace), "", 0, 0, NULL,
     "name of a trace of every op for ui.perfetto.dev: each rank writes RANK.NAME in the run's folder, such as "
     "0.trace.json; empty = none"},
};
const cod_option_table cod_log_option_table = {"log", "Metrics, samples and traces", log_options, COUNT(log_options),
                                               sizeof(cod_log_options)};

const char *const cod_budget_names[] = {"steps", "samples", "time", "bytes", NULL};
#define FIELD(name) offsetof(cod_compare_options, name)
static const cod_option compare_options[] = {
    {"arms", COD_OPTION_STRING, FIELD(arms), "", 0, 0, NULL,
     "what is compared, a list: a strategy's name; codistill_rows, which stands for distil, merge, both and neither; "
     "or "
     "{name: …, strategy: …, set: [key.path=value, …]}; empty = single, allreduce and codistill_rows"},
    {"seeds", COD_OPTION_INT_LIST, FIELD(seeds), "", 0, 1e15, NULL,
     "each arm is trained once with each seed; empty = the run's seed"},
    {"budget", COD_OPTION_CHOICE, FIELD(budget), "steps", 0, 0, cod_budget_names,
     "what is equal for every arm: steps of each group, samples of all ranks together, time of training, or bytes "
     "between groups; an arm that sets train.steps itself keeps them"},
    {"budget_value", COD_OPTION_FLOAT, FIELD(budget_value), "0", 0, 1e15, NULL,
     "how many steps, samples, seconds or bytes; 0 = as many as the first arm uses with the first seed"},
    {"rates", COD_OPTION_STRING_LIST, FIELD(rates), "", 0, 0, NULL,
     "also in the network laboratory (tools/netlab.sh), a host a group: rates of the hosts' links such as 20mbit, and "
     "`none` for this machine as it is; empty = none"},
    {"baseline", COD_OPTION_STRING, FIELD(baseline), "", 0, 0, NULL,
     "the arm that the others are compared with; empty = allreduce, or where there is none the first"},
    {"tune", COD_OPTION_STRING, FIELD(tune), "", 0, 0, NULL,
     "candidates, a list: key.path=value, or a list of such; each arm is trained with each of them first, and its runs "
     "have "
     "the one that is best on held-out data; empty = nothing is tuned"},
    {"tune_seed", COD_OPTION_INT, FIELD(tune_seed), "0", 0, 1e15, NULL,
     "the seed that candidates are trained with; not one of `seeds`"},
};
#undef FIELD
const cod_option_table cod_compare_option_table = {
    "compare", "What `codistill compare` trains and compares; other commands leave it alone", compare_options,
    COUNT(compare_options), sizeof(cod_compare_options)};

/** "90", "1:30" or "1:30:00": each further part is 60 times as fine. */
static bool parse_clock(const char *text, double *seconds)
{
    *seconds = 0;
    for (int parts = 0; parts < 3; parts++) {
        char *end = NULL;
        const double number = strtod(text, &end);
        if (!isdigit((unsigned char)*text) || (parts > 0 && number >= 60))
            return false;
        *seconds = *seconds * 60 + number;
        if (*end == '\0')
            return true;
        if (*end != ':')
            return false;
        text = end + 1;
    }
    return false;
}

/** "90s", "1h30m": units from large to small, each once. */
static bool parse_units(const char *text, double *seconds)
{
    static const char units[] = "hms";
    static const double factors[] = {3600, 60, 1};
    size_t next = 0;
    *seconds = 0;
    while (*text != '\0') {
        char *end = NULL;
        const double number = strtod(text, &end);
        const char *unit = *end != '\0' && next < COUNT(factors) ? strchr(units + next, *end) : NULL;
        if (!isdigit((unsigned char)*text) || unit == NULL)
            return false;
        *seconds += number * factors[unit - units];
        next = (size_t)(unit - units) + 1;
        text = end + 1;
    }
    return true;
}

cod_status cod_duration_parse(const char *text, double *seconds)
{
    if ((parse_units(text, seconds) || parse_clock(text, seconds)) && isfinite(*seconds))
        return COD_OK;
    *seconds = 0;
    return cod_fail(COD_ERR_ARGUMENT, "'%s' is no time; write 90s, 10m, 1h30m or HH:MM:SS", text);
}

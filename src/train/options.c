#include "train/options.h"

#include "core/device.h"
#include "infer/evaluate.h"
#include "infer/named_model.h"
#include "nn/optimiser.h"
#include "nn/precision.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const cod_option root_options[] = {
    {"name", COD_OPTION_STRING, offsetof(cod_root_options, name), "run", 0, 0, NULL,
     "Name of the run. Its folder is OUTPUT/NAME."},
    {"seed", COD_OPTION_INT, offsetof(cod_root_options, seed), "1", 0, 1e15, NULL,
     "Seed of all random numbers. Runs with equal seeds have the same order of data and the same initial weights."},
    {"output", COD_OPTION_STRING, offsetof(cod_root_options, output), "runs", 0, 0, NULL,
     "Folder that contains the folders of all runs."},
    {"nonce", COD_OPTION_STRING, offsetof(cod_root_options, nonce), "", 0, 0, NULL,
     "Word that distinguishes this run's checkpoints from those of other runs with the same name and seed. Empty = "
     "drawn when the run's folder is made, and kept in its config.yaml. Set it only for groups that have separate "
     "folders: give all of them the same word."},
};
const cod_option_table cod_root_option_table = {"",
                                                "The run as a whole. `base: other.yaml` takes another configuration's "
                                                "values, as far as this one does not set them; its path is relative to "
                                                "the folder of the file that names it.",
                                                root_options, COUNT(root_options), sizeof(cod_root_options)};

static const char *const inits[] = {"shared", "own", COD_NAMED_MODELS, NULL};
static const char *const init_modes[] = {"strict", "partial", NULL};
static const cod_option model_options[] = {
    {"name", COD_OPTION_STRING, offsetof(cod_model_options, name), "srresnet", 0, 0, NULL,
     "Architecture of the network. `codistill models` lists the options of each."},
    {"init", COD_OPTION_STRING, offsetof(cod_model_options, init), "shared", 0, 0, inits,
     "Initial weights. shared: all groups start with the same random weights, which merging needs. own: each group "
     "starts with its own. Otherwise a model to fine-tune: a file (.safetensors, or PyTorch's .pth), the folder of a "
     "run, or one that comes along: sr-x4 or sr-x4-perceptual."},
    {"init_mode", COD_OPTION_CHOICE, offsetof(cod_model_options, init_mode), "strict", 0, 0, init_modes,
     "When `init` is a model file. strict: every tensor must match. partial: only tensors that match are loaded."},
};
const cod_option_table cod_model_option_table = {"model", "The network to train.", model_options, COUNT(model_options),
                                                 sizeof(cod_model_options)};

static const char *const losses[] = {"auto", "l1", "mse", "charbonnier", "cross_entropy", NULL};
const char *const cod_allreduce_names[] = {"auto", "flat", "hierarchical", "nccl", "direct", NULL};
const char *const cod_allreduce_codec_names[] = {"none", "int8", NULL};
static const char *const recomputes[] = {"none", "cheap", NULL};
static const char *const schedules[] = {"constant", "step", "cosine", NULL};
#define FIELD(name) offsetof(cod_train_options, name)
static const cod_option train_options[] = {
    {"recipe", COD_OPTION_STRING, FIELD(recipe), "supervised", 0, 0, NULL,
     "What a step computes. supervised: one network and the loss between its output and the truth. The others also "
     "train a discriminator; section gan describes them."},
    {"strategy", COD_OPTION_STRING, FIELD(strategy), "codistill", 0, 0, NULL,
     "How ranks work together. docs/strategies.md describes each strategy."},
    {"steps", COD_OPTION_INT, FIELD(steps), "10000", 1, 1e12, NULL,
     "Number of steps, each of which updates the weights once."},
    {"backend", COD_OPTION_STRING, FIELD(backend), COD_BACKEND_AUTO, 0, 0, NULL,
     "For checks: name of a backend that computes, in place of what cluster.device chooses; `codistill --version` "
     "lists the names. auto = cluster.device chooses."},
    {"precision", COD_OPTION_CHOICE, FIELD(precision), "auto", 0, 0, cod_precision_names,
     "Type of the activations. Weights and sums are always f32. auto: bf16 where the device computes with it, as all "
     "GPUs do; otherwise f32."},
    {"accumulate", COD_OPTION_INT, FIELD(accumulate), "1", 1, 4096, NULL,
     "Mini-batches whose gradients are added up for one update. Raise it for larger batches without more memory for "
     "activations."},
    {"loss", COD_OPTION_CHOICE, FIELD(loss), "auto", 0, 0, losses,
     "Task loss between output and truth. auto: l1 for super-resolution, cross_entropy for classification. For "
     "classification, mse is the squared distance to one-hot targets."},
    {"label_smoothing", COD_OPTION_FLOAT, FIELD(label_smoothing), "0", 0, 0.9, NULL,
     "cross_entropy: share of each target that is spread evenly over all classes."},
    {"prior_correction", COD_OPTION_BOOL, FIELD(prior_correction), "false", 0, 0, NULL,
     "Classification: correct the task loss and the distillation loss for the different shares of classes in the "
     "groups' data. Use it with data.placement: dirichlet."},
    {"optimiser", COD_OPTION_CHOICE, FIELD(optimiser), "adam", 0, 0, cod_optimiser_names, "Update rule."},
    {"rate", COD_OPTION_FLOAT, FIELD(rate), "1e-3", 1e-12, 1e3, NULL, "Learning rate before the schedule changes it."},
    {"momentum", COD_OPTION_FLOAT, FIELD(momentum), "0.9", 0, 0.9999, NULL, "sgd: momentum."},
    {"nesterov", COD_OPTION_BOOL, FIELD(nesterov), "false", 0, 0, NULL, "sgd: use Nesterov's form of momentum."},
    {"beta1", COD_OPTION_FLOAT, FIELD(beta1), "0.9", 0, 0.99999, NULL, "adam, adamw: decay of the mean gradient."},
    {"beta2", COD_OPTION_FLOAT, FIELD(beta2), "0.999", 0, 0.9999999, NULL,
     "adam, adamw: decay of the mean squared gradient."},
    {"epsilon", COD_OPTION_FLOAT, FIELD(epsilon), "1e-8", 1e-30, 1, NULL,
     "adam, adamw: small number added to the square root to avoid division by zero."},
    {"weight_decay", COD_OPTION_FLOAT, FIELD(weight_decay), "0", 0, 10, NULL,
     "Strength with which weights are pulled toward zero. adamw applies it directly to the weights, the others add it "
     "to the gradient. 0 = none."},
    {"clip_norm", COD_OPTION_FLOAT, FIELD(clip_norm), "0", 0, 1e9, NULL,
     "Largest norm of the gradient; a longer gradient is scaled down to it. 0 = no limit."},
    {"ema", COD_OPTION_FLOAT, FIELD(ema), "0", 0, 0.9999999, NULL,
     "Decay of the moving average of the weights; 0.999 is usual. 0 = no moving average."},
    {"schedule", COD_OPTION_CHOICE, FIELD(schedule), "cosine", 0, 0, schedules,
     "How the learning rate changes over the run. constant: not at all. step: multiplied by `gamma` at each of "
     "`milestones`. cosine: falls along half a cosine to `final_factor` times the rate."},
    {"warmup", COD_OPTION_INT, FIELD(warmup), "0", 0, 1e9, NULL,
     "Steps at the start in which the learning rate rises linearly. 0 = none."},
    {"milestones", COD_OPTION_INT_LIST, FIELD(milestones), "", 1, 1e12, NULL,
     "schedule step: steps at which the learning rate is multiplied by gamma."},
    {"gamma", COD_OPTION_FLOAT, FIELD(gamma), "0.5", 0, 1, NULL, "schedule step: factor at each milestone."},
    {"final_factor", COD_OPTION_FLOAT, FIELD(final_factor), "0", 0, 1, NULL,
     "schedule cosine: learning rate at the end, relative to `rate`."},
    {"max_time", COD_OPTION_STRING, FIELD(max_time), "", 0, 0, NULL,
     "Longest wall time of the run, such as 90s, 10m, 1h30m or 01:30:00. The run then saves a checkpoint and ends; "
     "the same command resumes it. Empty = no limit."},
    {"deterministic", COD_OPTION_BOOL, FIELD(deterministic), "false", 0, 0, NULL,
     "Make results independent of timing, so that repeated runs give the same bits. Groups then wait for each other's "
     "publications."},
    {"autotune", COD_OPTION_BOOL, FIELD(autotune), "true", 0, 0, NULL,
     "Time the available implementations of each operation once and use the fastest. false, or `deterministic`: use "
     "fixed ones."},
    {"recompute", COD_OPTION_CHOICE, FIELD(recompute), "none", 0, 0, recomputes,
     "Activation checkpointing (rematerialisation). none: keep all activations, which is fastest. cheap: discard "
     "results of normalisations, activations and sums in the forward pass and compute them again in the backward "
     "pass, wherever that lowers the peak of memory. Results have the same bits. Unlike torch.utils.checkpoint, it "
     "chooses the layers itself and never repeats a convolution."},
    {"allreduce", COD_OPTION_CHOICE, FIELD(allreduce), "auto", 0, 0, cod_allreduce_names,
     "How gradients are averaged inside a group. flat: one ring of all ranks, in host memory. hierarchical: first "
     "inside each node, then between one rank of each node, in host memory. nccl: between GPUs, by NVIDIA's NCCL. "
     "direct: between GPUs, by a CUDA-aware MPI. auto: nccl if each rank of the group has its own GPU, NCCL is "
     "available and the run need not repeat bit for bit; otherwise direct if MPI says that it is CUDA-aware; "
     "otherwise hierarchical if the group has several ranks on each of several nodes; otherwise flat."},
    {"allreduce_codec", COD_OPTION_CHOICE, FIELD(allreduce_codec), "none", 0, 0, cod_allreduce_codec_names,
     "Coding of the gradients that are averaged inside a group. none: exact. int8: a quarter of the bytes, by a flat "
     "allreduce; error feedback adds what rounding lost to the next step."},
    {"bucket_kb", COD_OPTION_INT, FIELD(bucket_kb), "1024", 0, 1e6, NULL,
     "KiB of gradients that are averaged together while the backward pass goes on. 0 = all gradients together after "
     "it."},
};
#undef FIELD
const cod_option_table cod_train_option_table = {"train", "What is trained, for how long, and how.", train_options,
                                                 COUNT(train_options), sizeof(cod_train_options)};

static const char *const bests[] = {"auto", "psnr", "ssim", "niqe", "pi", "lpips", NULL};
static const cod_option eval_options[] = {
    {"every", COD_OPTION_INT, offsetof(cod_eval_options, every), "500", 0, 1e12, NULL,
     "Steps between two evaluations on the validation data. 0 = only at the end."},
    {"images", COD_OPTION_INT, offsetof(cod_eval_options, images), "0", 0, 1e6, NULL,
     "Number of validation pictures or examples used while training; the evaluation at the end uses all. 0 = 8 "
     "pictures, or all examples."},
    {"patience", COD_OPTION_INT, offsetof(cod_eval_options, patience), "0", 0, 1e9, NULL,
     "Early stopping: training ends after this many evaluations in a row without a new best (see `best`), as if its "
     "last step had come. Groups that wait for each other end together, once this holds for each of them; others end "
     "one by one. The learning rate follows its schedule over train.steps all the same. 0 = off."},
    {"ema", COD_OPTION_BOOL, offsetof(cod_eval_options, ema), "true", 0, 0, NULL,
     "Evaluate and save the moving average of the weights, if train.ema keeps one."},
    {"predictions", COD_OPTION_BOOL, offsetof(cod_eval_options, predictions), "false", 0, 0, NULL,
     "Classification: save the predictions of each group's model in predictions/, for the validation examples at each "
     "evaluation and for the test examples at the end."},
    {"metrics", COD_OPTION_STRING, offsetof(cod_eval_options, metrics), "psnr, ssim", 0, 0, cod_metric_names,
     "Super-resolution: list of the metrics to compute: psnr, ssim, niqe, pi and lpips, as in `codistill eval "
     "--metrics`. pi (perceptual index) also gives the RMSE of Y; without eval.ma_model it is NIQE of the Y channel."},
    {"best", COD_OPTION_CHOICE, offsetof(cod_eval_options, best), "auto", 0, 0, bests,
     "Super-resolution: metric that chooses the checkpoint called best, the group or mean that becomes "
     "final.safetensors, and the winner in `codistill compare`. It is computed even if eval.metrics does not list it. "
     "auto: the first of psnr, ssim, niqe, pi, lpips that eval.metrics lists."},
    {"best_set", COD_OPTION_STRING, offsetof(cod_eval_options, best_set), "", 0, 0, NULL,
     "Name of the set in data.val_sets whose figure chooses the best checkpoint and the final model, and counts for "
     "patience. Empty = the held-out data of the section data, by which `codistill compare` judges in any case."},
    {"niqe_model", COD_OPTION_STRING, offsetof(cod_eval_options, niqe_model), "", 0, 0, NULL,
     "niqe, pi: file with the model of natural pictures, BasicSR's niqe_pris_params.npz."},
    {"ma_model", COD_OPTION_STRING, offsetof(cod_eval_options, ma_model), "", 0, 0, NULL,
     "pi: safetensors file with the forests of Ma's score; tools/ma_model.py makes it from the authors' model.mat. "
     "Empty = NIQE of the Y channel takes the place of the index."},
    {"lpips_network", COD_OPTION_STRING, offsetof(cod_eval_options, lpips_network), "", 0, 0, NULL,
     "lpips: safetensors file with SqueezeNet 1.1's features, with torchvision's or Caffe's tensor names."},
    {"lpips_weights", COD_OPTION_STRING, offsetof(cod_eval_options, lpips_weights), "", 0, 0, NULL,
     "lpips: safetensors file with the linear weights, with the tensor names of the Python package lpips. Empty = "
     "every channel has the same weight."},
    {"degraded", COD_OPTION_BOOL, offsetof(cod_eval_options, degraded), "false", 0, 0, NULL,
     "Super-resolution with data.degradation: real_esrgan. true: validate on pictures degraded in the same way as "
     "training pictures; each picture has one degradation, the same in all evaluations and runs. false: validate on "
     "pictures reduced by MATLAB's bicubic."},
};
const cod_option_table cod_eval_option_table = {"eval", "Evaluation during training.", eval_options,
                                                COUNT(eval_options), sizeof(cod_eval_options)};

static const char *const resumes[] = {"auto", "never", "must", NULL};
static const char *const resume_data[] = {"same", "any", NULL};
static const cod_option checkpoint_options[] = {
    {"every", COD_OPTION_INT, offsetof(cod_checkpoint_options, every), "1000", 0, 1e12, NULL,
     "Steps between two checkpoints. 0 = only at the end."},
    {"keep", COD_OPTION_INT, offsetof(cod_checkpoint_options, keep), "2", 1, 1000, NULL,
     "Number of newest checkpoints to keep, in addition to the best one."},
    {"resume", COD_OPTION_CHOICE, offsetof(cod_checkpoint_options, resume), "auto", 0, 0, resumes,
     "auto: resume from the newest checkpoint if there is one. never: start anew and remove existing checkpoints. "
     "must: resume, and fail if there is no checkpoint."},
    {"data", COD_OPTION_CHOICE, offsetof(cod_checkpoint_options, data), "same", 0, 0, resume_data,
     "Data that a run may resume with. same: those of the checkpoint, by the names, sizes and contents of the files "
     "and "
     "by what is held out; anything else is refused, because trained items would be judged. any: the data as they are "
     "now; the best figure so far is forgotten, as it is of other data."},
    {"write_timeout_s", COD_OPTION_FLOAT, offsetof(cod_checkpoint_options, write_timeout_s), "20", 0.1, 1e6, NULL,
     "Seconds that a file operation in the run's folder (checkpoint, metrics, log) may take before a warning names "
     "the file. A run that is asked to end while storage hangs stops waiting, and ends, after the same number of "
     "seconds."},
};
const cod_option_table cod_checkpoint_option_table = {"checkpoint", "Saving and resuming.", checkpoint_options,
                                                      COUNT(checkpoint_options), sizeof(cod_checkpoint_options)};

static const cod_option log_options[] = {
    {"every", COD_OPTION_INT, offsetof(cod_log_options, every), "50", 1, 1e9, NULL,
     "Steps between two lines of metrics. Each evaluation has a line of its own step, too."},
    {"samples", COD_OPTION_INT, offsetof(cod_log_options, samples), "2", 0, 100, NULL,
     "Validation pictures that each evaluation writes to samples/: low resolution, bicubic, model and truth side by "
     "side. 0 = none."},
    {"tensorboard", COD_OPTION_BOOL, offsetof(cod_log_options, tensorboard), "true", 0, 0, NULL,
     "Also write TensorBoard event files."},
    {"trace", COD_OPTION_STRING, offsetof(cod_log_options, trace), "", 0, 0, NULL,
     "Name of a trace of every operation, for ui.perfetto.dev. Each rank writes RANK.NAME in the run's folder: with "
     "trace.json, rank 0 writes 0.trace.json; `codistill trace` makes one of all. Empty = no trace."},
};
const cod_option_table cod_log_option_table = {"log", "Metrics, sample pictures and traces.", log_options,
                                               COUNT(log_options), sizeof(cod_log_options)};

const char *const cod_budget_names[] = {"steps", "samples", "time", "bytes", NULL};
#define FIELD(name) offsetof(cod_compare_options, name)
static const cod_option compare_options[] = {
    {"arms", COD_OPTION_STRING, FIELD(arms), "", 0, 0, NULL,
     "List of what is compared. Each arm is a strategy's name; codistill_rows, which stands for four arms (distil, "
     "merge, both and neither); or {name: …, strategy: …, set: [key.path=value, …]}. Empty = single, allreduce and "
     "codistill_rows."},
    {"seeds", COD_OPTION_INT_LIST, FIELD(seeds), "", 0, 1e15, NULL,
     "Seeds; each arm is trained once with each. Empty = the run's seed."},
    {"budget", COD_OPTION_CHOICE, FIELD(budget), "steps", 0, 0, cod_budget_names,
     "What is equal for all arms. steps: steps of each group. samples: training samples of all ranks together. time: "
     "training time. bytes: bytes sent between groups. An arm that sets train.steps itself keeps its own number of "
     "steps."},
    {"budget_value", COD_OPTION_FLOAT, FIELD(budget_value), "0", 0, 1e15, NULL,
     "Size of the budget: steps, samples, seconds or bytes. 0 = what the first arm uses with the first seed."},
    {"rates", COD_OPTION_STRING_LIST, FIELD(rates), "", 0, 0, NULL,
     "Link rates, such as 20mbit. Each arm is trained once for each rate in the network laboratory (tools/netlab.sh), "
     "where each group is a host with a link of that rate; `none` stands for this machine without a limit. Empty = "
     "only `none`."},
    {"baseline", COD_OPTION_STRING, FIELD(baseline), "", 0, 0, NULL,
     "Arm that the others are compared with. Empty = allreduce, or the first arm if there is no allreduce."},
    {"tune", COD_OPTION_STRING, FIELD(tune), "", 0, 0, NULL,
     "List of candidate settings, each key.path=value or a list of such. Each arm is first trained with each "
     "candidate; its runs then use the candidate that is best on validation data. Empty = no tuning."},
    {"tune_seed", COD_OPTION_INT, FIELD(tune_seed), "0", 0, 1e15, NULL,
     "Seed for training the candidates. It must not be in `seeds`."},
};
#undef FIELD
const cod_option_table cod_compare_option_table = {
    "compare", "What `codistill compare` trains and compares. Other commands ignore this section.", compare_options,
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

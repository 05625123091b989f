/**
 * @file
 * The settings of a run that belong to no lower module: the root's own keys and the sections model, train, eval,
 * checkpoint, log and compare.
 */
#ifndef COD_TRAIN_OPTIONS_H
#define COD_TRAIN_OPTIONS_H

#include "core/option.h"

typedef struct cod_root_options {
    const char *name, *output;
    int64_t seed;
    const char *nonce; /**< "" until it is read from the run's folder, and in runs made before nonces existed */
} cod_root_options;

/** Section `model`, without the chosen model's own options. */
typedef struct cod_model_options {
    const char *name, *init;
    int init_mode; /**< 0 strict, 1 partial */
} cod_model_options;

typedef struct cod_train_options {
    const char *recipe, *strategy, *backend;
    int precision; /**< cod_precision */
    int64_t steps, accumulate;
    int loss; /**< COD_TRAIN_LOSS_… */
    double label_smoothing;
    bool prior_correction;
    int optimiser; /**< cod_optimiser_kind */
    double rate, momentum, beta1, beta2, epsilon, weight_decay, clip_norm, ema;
    bool nesterov;
    int schedule; /**< cod_schedule_kind */
    int64_t warmup;
    cod_int_list milestones;
    double gamma, final_factor;
    const char *max_time;
    bool deterministic, autotune;
    int recompute; /**< cod_train_recompute */
    int64_t bucket_kb;
    int allreduce;       /**< cod_train_allreduce */
    int allreduce_codec; /**< cod_train_allreduce_codec */
} cod_train_options;

typedef enum cod_train_recompute { COD_RECOMPUTE_NONE, COD_RECOMPUTE_CHEAP } cod_train_recompute;

typedef enum cod_train_allreduce {
    COD_ALLREDUCE_AUTO,
    COD_ALLREDUCE_FLAT,
    COD_ALLREDUCE_HIERARCHICAL,
    COD_ALLREDUCE_NCCL,
    COD_ALLREDUCE_DIRECT
} cod_train_allreduce;

typedef enum cod_train_allreduce_codec { COD_ALLREDUCE_EXACT, COD_ALLREDUCE_INT8 } cod_train_allreduce_codec;

extern const char *const cod_allreduce_names[], *const cod_allreduce_codec_names[];

enum {
    COD_TRAIN_LOSS_AUTO,
    COD_TRAIN_LOSS_L1,
    COD_TRAIN_LOSS_MSE,
    COD_TRAIN_LOSS_CHARBONNIER,
    COD_TRAIN_LOSS_CROSS_ENTROPY,
};

typedef struct cod_eval_options {
    int64_t every, images, patience;
    bool ema, predictions, degraded;
    const char *metrics;  /**< for super-resolution, in the form of cod_metrics_parse() */
    int best;             /**< 0 auto, else 1 + index in cod_metric_names */
    const char *best_set; /**< a name of data.val_sets; "" = the held-out data */
    const char *niqe_model, *ma_model, *lpips_network, *lpips_weights;
} cod_eval_options;

typedef struct cod_checkpoint_options {
    int64_t every, keep;
    int resume; /**< 0 auto, 1 never, 2 must */
    int data;   /**< 0 same, 1 any */
    double write_timeout_s;
} cod_checkpoint_options;

enum { COD_RESUME_AUTO, COD_RESUME_NEVER, COD_RESUME_MUST };
enum { COD_RESUME_SAME_DATA, COD_RESUME_ANY_DATA };

typedef struct cod_log_options {
    int64_t every, samples;
    bool tensorboard;
    const char *trace;
} cod_log_options;

/** Section `compare`, which only `codistill compare` uses. */
typedef struct cod_compare_options {
    const char *arms; /**< where it is no list, which the command reads itself */
    cod_int_list seeds;
    int budget;          /**< COD_BUDGET_… */
    double budget_value; /**< 0 = what the first arm uses */
    cod_string_list rates;
    const char *baseline;
    const char *tune; /**< where it is no list, which the command reads itself */
    int64_t tune_seed;
} cod_compare_options;

enum { COD_BUDGET_STEPS, COD_BUDGET_SAMPLES, COD_BUDGET_TIME, COD_BUDGET_BYTES };

extern const char *const cod_budget_names[];

extern const cod_option_table cod_root_option_table, cod_model_option_table, cod_train_option_table,
    cod_eval_option_table, cod_checkpoint_option_table, cod_log_option_table, cod_compare_option_table;

/** Seconds of a time written as "90", "90s", "10m", "1.5h", "1h30m", "MM:SS" or "HH:MM:SS"; 0 for "". */
COD_MUST_CHECK cod_status cod_duration_parse(const char *text, double *seconds);

#endif

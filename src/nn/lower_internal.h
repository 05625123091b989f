/**
 * @file
 * The state of lowering one program: which nodes are fused, and which tensors stand for values and gradients.
 */
#ifndef COD_NN_LOWER_INTERNAL_H
#define COD_NN_LOWER_INTERNAL_H

#include "nn/ir_internal.h"

/** A node and the nodes fused after it, which run as one op. */
typedef struct lower_group {
    const struct node_rules *rules; /**< of the node, see ops/ops_internal.h */
    bool live;                      /**< the program needs it, and it is not fused into another */
    int norm;                       /**< node index of a normalisation folded into this convolution, or -1 */
    int shuffle;                    /**< node index of a pixel shuffle fused into this convolution, or -1 */
    int activation;                 /**< node index of an activation fused into this op, or -1 */
    cod_value residual;             /**< added to this op's output by a fused sum, or 0 */
    cod_value output;               /**< of the last node of the group */
    int pre_x;                      /**< tensor read by the op (after a cast) */
    int weight;                     /**< of a convolution or linear layer: tensor, as the op reads it */
    int mean, inv_std, index;       /**< saved for backward */
} lower_group;

/** Tensors of a spectrally normalised weight; see COD_OP_SPECTRAL_NORM. */
typedef struct lower_spectrum {
    int weight, sigma, u, v;
} lower_spectrum;

typedef struct lowering {
    ir_context *context;
    const cod_program_spec *spec;
    ir_program *program;
    bool training;       /**< gradients are needed */
    int set;             /**< trained set, or -1 */
    cod_sets by_batch;   /**< sets that normalise by the batch's statistics */
    cod_stage stage;     /**< nodes that the program computes */
    cod_stage_range own; /**< trainable elements of these nodes */
    bool *taken;         /**< [value] computed before the stage, and read in it or after it */
    bool *handed;        /**< [value] computed in the stage or before it, and read after it */
    int *pass_grad;      /**< [value] tensor of the gradient of a value that crosses a cut */
    size_t node;         /**< node for which instructions are being emitted */
    lower_group *groups; /**< [node] */
    bool *needed;        /**< [node] */
    bool *given;         /**< [value] output of another program, which is read */
    bool *keeps;         /**< [node] in a span that the program keeps */
    bool *resumes;       /**< [node] in a span that it resumes */
    bool silent;         /**< no instructions are emitted, because another program's run has done the work */
    bool *wide;          /**< [value] full precision, not the activation type */
    bool *needs_grad;    /**< [value] */
    bool *consumed;      /**< [value] its gradient was used and is not needed any more */
    int *tensor;         /**< [value] */
    int *cast;           /**< [value] in the activation type, for convolutions */
    int *grad;           /**< [value] */
    int *param;          /**< [param] */
    int *param_grad;     /**< [param] */
    int counts;          /**< tensor of counts of magnitudes, of all ranges that the program observes */
    int *range_counts;   /**< [range] its row of the counts; 0 = no convolution yet */
    /** [param] for spectrally normalised weights; `weight` 0 = not made yet */
    lower_spectrum *spectra;
    cod_arena arena;
    bool out_of_memory;
} lowering;

static inline const cod_node *lower_node(const lowering *lower, size_t index)
{
    return cod_graph_node(lower->context->graph, index);
}

/** Index of the node that makes `value`. */
size_t lower_producer(const lowering *lower, cod_value value);

/** Finds the values that cross the stage's ends, among those that the program needs. */
void lower_mark_passing(lowering *lower);
/** Assigns them places in the io buffer, the same in all programs. */
COD_MUST_CHECK cod_status lower_place_passing(lowering *lower);
/** Reads the gradients of values passed to the next stage from the io buffer. */
void lower_seed_gradients(lowering *lower);
/** Writes the gradients of values taken from the stage before to the io buffer. */
void lower_give_gradients(lowering *lower);

/** Decides which nodes are needed and which are fused. */
void lower_select(lowering *lower);
/** Whether a normalisation uses the batch's statistics, not the running ones. */
bool lower_uses_batch(const lowering *lower, const cod_node *norm);
/** Whether the program was asked for this value. */
bool lower_is_asked_for(const lowering *lower, cod_value value);
/** Whether a value has to lie in a place of its own: an output, or what is handed on. */
bool lower_is_output(const lowering *lower, cod_value value);

/** Whether this program computes a node, and not another stage's program. */
static inline bool lower_is_own(const lowering *lower, size_t index)
{
    return index >= lower->stage.first && index < lower->stage.end;
}

/** The type of a value: full precision or the activations'. */
cod_dtype lower_value_dtype(const lowering *lower, cod_value value);
/** A tensor at a given place. */
int lower_placed_tensor(lowering *lower, cod_shape shape, cod_dtype dtype, ir_place place, size_t offset);
/** A new arena tensor. */
int lower_new_tensor(lowering *lower, cod_shape shape, cod_dtype dtype);
/** A view of a tensor: `shape`'s channels from `channel` on, or, `reshaped`, all of it in another shape. */
int lower_view(lowering *lower, int root, int64_t channel, cod_shape shape, bool reshaped);
void lower_copy(lowering *lower, int from, int to);
/**
 * The tensor that the op making `value` writes: a place of its own, or a slice of the concatenation that it is part of.
 */
int lower_output(lowering *lower, cod_value value);
/** A tensor that lasts until the parameters and states that it is made of change. */
int lower_prepared_tensor(lowering *lower, cod_shape shape, cod_sets sets);
int lower_param(lowering *lower, int param);
cod_shape lower_param_shape(const lowering *lower, int param);
int lower_param_set(const lowering *lower, int param);
/** What a sum that is fused into the op adds, or 0. */
int lower_residual(const lowering *lower, const lower_group *group);
/** Lets the op apply the activation that is fused into it, whose slopes are its input `slope_slot`. */
void lower_use_activation(lowering *lower, const lower_group *group, ir_instr *instr, int slope_slot);
void lower_emit(lowering *lower, ir_instr instr);
/** The value's tensor in the activation type, cast once if it is wide. */
int lower_narrow(lowering *lower, cod_value value);

/**
 * Lets the op of node `node`, a convolution, run on 8-bit integers if it has a range. Where the program observes, what
 * it reads is counted instead, together with what others read that share its range.
 */
void lower_use_range(lowering *lower, size_t node, ir_instr *instr);
/** Emits the choice of all ranges, when all convolutions have been counted. */
COD_MUST_CHECK cod_status lower_choose_ranges(lowering *lower);

/** Marks the nodes of the program's spans. */
void lower_mark_spans(lowering *lower);
/**
 * Checks that all nodes in spans are computed as in the other programs of these spans; to be called when groups are
 * final.
 */
COD_MUST_CHECK cod_status lower_keep(lowering *lower);
/** Whether the result of node `index` is in the io buffer, shared by programs that keep or resume it. */
bool lower_is_kept(const lowering *lower, size_t index);
/** A tensor for the `which`-th saved value of the current node: a new one, or the kept one in the io buffer. */
int lower_saved_tensor(lowering *lower, cod_shape shape, cod_dtype dtype, int which);

/** The tensor to which the next contribution to the gradient of `value` goes, and whether it adds. */
int lower_contribution(lowering *lower, cod_value value, bool *adds);
/** Contributes `scale` times a tensor that exists already, where the gradient of `value` is wanted. */
void lower_contribute(lowering *lower, cod_value value, int tensor, float scale);
/** Where the gradient of a parameter goes, and whether it adds; 0 where it is not trained. */
int lower_param_contribution(lowering *lower, int param, bool *adds);
/** `wanted`, or a scratch tensor for an output that the op always writes but this program does not use. */
int lower_or_scratch(lowering *lower, int wanted, cod_shape shape, cod_dtype dtype);
/** The gradient of a parameter, as lower_param_contribution(), or scratch of its shape where it is not trained. */
int lower_param_gradient(lowering *lower, int param, bool *adds);
/**
 * Emits an op with several gradient outputs, of which only some add. An op has one `accumulate` flag, so the others are
 * set to zero first. Outputs that are not gradients, such as a loss's value, do not obey the flag.
 */
void lower_emit_gradients(lowering *lower, ir_instr instr, const bool adds[COD_OP_MAX_OUTPUTS]);

/** Emits the backward pass of everything that was emitted forward. */
void lower_backward(lowering *lower);

#endif

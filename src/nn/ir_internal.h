/**
 * @file
 * The compiler's intermediate form of one program: tensors with places, and instructions in the order of execution.
 */
#ifndef COD_NN_IR_INTERNAL_H
#define COD_NN_IR_INTERNAL_H

#include "nn/compile.h"

/** The memory of a tensor. */
typedef enum ir_place {
    IR_ARENA,   /**< valid within a run; the memory plan assigns its offset */
    IR_IO,      /**< inputs, outputs, losses, folded weights: valid for the executable's life */
    IR_SCALARS, /**< values that the host sets between runs */
    IR_VALUES,  /**< the weights' flat buffer */
    IR_GRADS,   /**< the flat gradient buffer */
    IR_PLACES
} ir_place;

typedef struct ir_tensor {
    cod_shape shape;
    cod_dtype dtype;
    ir_place place;
    size_t offset; /**< offset of the root in the place's buffer, in bytes */
    /**
     * A view of another tensor: its channels from `channel` on (or, for a reshape, all of it); the tensor's own index
     * if it is no view.
     */
    int root;
    int64_t channel;
    bool reshaped;
    int64_t row;    /**< of a view: its first row in the root */
    bool lasting;   /**< keeps its contents from run to run */
    cod_sets sets;  /**< sets to which the parameter or state belongs, or from which it is folded */
    bool of_states; /**< it is a state, or folded with states */
} ir_tensor;

/** A tensor of a program that runs in bands; see bands.c. */
typedef struct ir_image {
    int64_t rows, scale; /**< new rows in each step; rows for each unit. rows 0: not a picture */
    int64_t delay;       /**< delay behind the input, in units */
    int64_t kept;        /**< rows before the new ones */
    int64_t overlap;     /**< for a resize: useless rows above and below the new ones */
    bool repeats;        /**< outside the picture the border is repeated, instead of zeros */
} ir_image;

/** When an instruction of a program in bands runs. */
typedef enum ir_when {
    IR_EACH,  /**< in each step with rows of the picture for it */
    IR_KEEPS, /**< in each step */
    IR_FIRST, /**< in the first */
} ir_when;

typedef struct ir_instr {
    cod_op_kind kind;
    cod_op_attr attr;
    bool accumulate;
    bool prepare;                  /**< depends on parameters alone: runs when they have changed, not in every run */
    bool joins;                    /**< runs in one plan with the instruction before it */
    int inputs[COD_OP_MAX_INPUTS]; /**< tensors; 0 is none */
    int outputs[COD_OP_MAX_OUTPUTS];
    ir_when when;
    size_t node; /**< of the graph */
    const char *name;
} ir_instr;

/** A value that crosses a cut between stages; see cod_passing. */
typedef struct ir_passing {
    cod_value value;
    int tensor, gradient; /**< gradient 0 = none */
} ir_passing;

typedef struct ir_program {
    ir_tensor *tensors; /**< [0] is none */
    size_t tensor_count, tensor_capacity;
    ir_instr *instrs;
    size_t instr_count, instr_capacity;
    size_t backward; /**< index of the first instruction after the forward pass */
    size_t arena_bytes;
    ir_passing *taken, *handed; /**< by value */
    size_t taken_count, handed_count;
    int64_t band;     /**< units in a band; 0 = no bands; see bands.c */
    int64_t unit;     /**< rows of the input in a unit */
    ir_image *images; /**< [tensor, before bands were made]; NULL = no bands */
    /** [param] last instruction that writes the parameter's gradient, or -1. */
    int *grad_ready;
    cod_sets moved; /**< sets whose states it moves */
} ir_program;

/**
 * Results of a node that a program keeps, and how it computed them; programs that resume the node must compute it in
 * the same way.
 */
typedef struct ir_kept {
    bool known;          /**< the other members are set */
    bool wide, by_batch; /**< by_batch: of a normalisation */
    int norm, shuffle, activation;
    cod_value residual, output;
    /** in the io buffer: output and, if the node has them, mean and inverse deviation, or indices */
    size_t offsets[3];
} ir_kept;

/** Data that all programs of an executable share: shapes and fixed places in the io buffer. */
typedef struct ir_context {
    cod_graph *graph;
    const cod_compile_options *options;
    cod_dtype param_dtype;
    cod_shape *shapes;     /**< [value]; n == 0: unknown, because an input's shape is not given */
    size_t *input_offset;  /**< [node] of INPUT nodes */
    size_t *output_offset; /**< [value]; SIZE_MAX: no output */
    size_t *loss_offset;   /**< [value] of losses */
    size_t *scalar_index;  /**< [scalar] among the executable's */
    size_t *range_index;   /**< [node] its range on 8-bit integers among the executable's; SIZE_MAX: none */
    size_t *affine_offset; /**< [node] of AFFINE nodes: their constants in the io buffer */
    /** [value] for values that cross a cut, followed by their gradients; SIZE_MAX: not placed yet */
    size_t *pass_offset;
    struct ir_kept *kept; /**< [node] results kept for programs that resume them; NULL = nothing is kept */
    size_t value_count;
    size_t io_bytes;
    size_t range_count, range_offset; /**< number of ranges, and their offset in the io buffer */
} ir_context;

/** Type of inputs, outputs and loss operands: full precision of the program. */
static inline cod_dtype ir_wide_dtype(const ir_context *context)
{
    return context->options->activation == COD_F64 ? COD_F64 : COD_F32;
}

/** Index of the root of a tensor's views. */
int ir_root(const ir_program *program, int tensor);
/** The instruction as an op, without its views. */
static inline cod_op ir_op(const ir_instr *instr, bool deterministic)
{
    return (cod_op){.kind = instr->kind,
                    .accumulate = instr->accumulate,
                    .deterministic = deterministic,
                    .attr = instr->attr,
                    .name = instr->name};
}

/** View of the tensor without a buffer; its offset is relative to its place's buffer. */
cod_view ir_view(const ir_program *program, int tensor);
/** One past the last instruction that runs in one plan with `first`, which is the first of them. */
size_t ir_group_end(const ir_program *program, size_t first);
/** Makes tensor 0 of an empty program, which stands for none, and for each that there is no memory for. */
COD_MUST_CHECK cod_status ir_begin(ir_program *program);
/** Appends; 0 / -1 when memory is short. */
int ir_add_tensor(ir_program *program, ir_tensor tensor);
int ir_add_instr(ir_program *program, ir_instr instr);
void ir_program_clear(ir_program *program);

/** Computes the shapes of all values from the shapes of the inputs; fails, naming the node, if they do not fit. */
COD_MUST_CHECK cod_status ir_infer_shapes(ir_context *context);

/** Fuses, lowers and differentiates one program. */
COD_MUST_CHECK cod_status ir_lower(ir_context *context, const cod_program_spec *spec, ir_program *out);

/**
 * Converts a program, lowered for one band of its input, to run in bands.
 * @return COD_ERR_UNSUPPORTED if an op cannot run in bands
 */
COD_MUST_CHECK cod_status ir_make_bands(const ir_context *context, ir_program *program);

/**
 * Repeats the instructions around the losses for each of several slices of the batch, as far as pictures of the batch
 * do not depend on each other. Gradients are then summed in another order.
 * @param wanted  largest number of slices; 0 = as many as save memory and cost almost no time
 */
COD_MUST_CHECK cod_status ir_slice(ir_program *program, int64_t wanted);

/**
 * Joins instructions that the backend runs as one plan; the order of other instructions may change. Not for programs in
 * bands.
 * @param buckets  buckets of gradients, which must be completed one after another
 */
COD_MUST_CHECK cod_status ir_fuse(const ir_context *context, const cod_backend *backend, cod_device *device,
                                  const cod_bucket *buckets, size_t bucket_count, ir_program *program);

/**
 * Repeats cheap ops of the forward pass in the backward pass if that lowers the peak of live bytes; see recompute.c.
 * The order of the other instructions does not change. To be called before ir_work_in_place().
 */
COD_MUST_CHECK cod_status ir_recompute(const ir_context *context, ir_program *program);

/** Lets ops that may work in place overwrite inputs that they read for the last time. Not for programs in bands. */
COD_MUST_CHECK cod_status ir_work_in_place(ir_program *program);

/** Finds the peak of live bytes of arena tensors, and the first instruction at that peak. */
COD_MUST_CHECK cod_status ir_find_peak(const ir_program *program, size_t *peak, size_t *at);

/** Gives every arena tensor an offset, so that tensors alive at the same time do not overlap. */
COD_MUST_CHECK cod_status ir_plan_memory(ir_program *program);

#endif

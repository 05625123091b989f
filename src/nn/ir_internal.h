/**
 * @file
 * The compiler's intermediate form of one program: tensors with a place, and instructions in order of execution.
 */
#ifndef COD_NN_IR_INTERNAL_H
#define COD_NN_IR_INTERNAL_H

#include "nn/compile.h"

/** Where a tensor lies. */
typedef enum ir_place {
    IR_ARENA,   /**< within a run only; the memory plan gives it an offset */
    IR_IO,      /**< inputs, outputs, losses, folded weights: for the executable's life */
    IR_SCALARS, /**< what the host sets between runs */
    IR_VALUES,  /**< the weights' flat buffer */
    IR_GRADS,   /**< the flat gradient buffer */
    IR_PLACES
} ir_place;

typedef struct ir_tensor {
    cod_shape shape;
    cod_dtype dtype;
    ir_place place;
    size_t offset; /**< bytes from the start of the place's buffer, of the root */
    /** A view of another tensor: its channels from `channel` on (or, for a reshape, all of it); own index when it is none. */
    int root;
    int64_t channel;
    bool reshaped;
    int64_t row;    /**< of a view: its first row in the root */
    bool lasting;   /**< keeps its contents from run to run */
    cod_sets sets;  /**< whose parameter or state it is, or is folded from */
    bool of_states; /**< is a state, or folded with some */
} ir_tensor;

/** A tensor of a program that runs in bands; see bands.c. */
typedef struct ir_image {
    int64_t rows, scale; /**< new rows in each step, and for each unit; rows 0: no picture */
    int64_t delay;       /**< units that it is behind */
    int64_t kept;        /**< rows before the new ones */
    int64_t overlap;     /**< of a resize: rows above and below the new ones, of no use */
    bool repeats;        /**< outside of the picture its border, not zeros */
} ir_image;

/** When an instruction of a program in bands runs. */
typedef enum ir_when {
    IR_EACH,  /**< in each step that has rows of the picture for it */
    IR_KEEPS, /**< in each step */
    IR_FIRST, /**< in the first */
} ir_when;

typedef struct ir_instr {
    cod_op_kind kind;
    cod_op_attr attr;
    bool accumulate;
    bool prepare;                  /**< depends on parameters alone: run when they changed, not in every run */
    bool joins;                    /**< runs in one plan with the instruction before it */
    int inputs[COD_OP_MAX_INPUTS]; /**< tensors; 0 is none */
    int outputs[COD_OP_MAX_OUTPUTS];
    ir_when when;
    size_t node; /**< of the graph */
    const char *name;
} ir_instr;

/** A value that passes a cut; see cod_passing. */
typedef struct ir_passing {
    cod_value value;
    int tensor, gradient; /**< gradient 0: it has none */
} ir_passing;

typedef struct ir_program {
    ir_tensor *tensors; /**< [0] is none */
    size_t tensor_count, tensor_capacity;
    ir_instr *instrs;
    size_t instr_count, instr_capacity;
    size_t backward; /**< the first instruction that is not of the forward pass */
    size_t arena_bytes;
    ir_passing *taken, *handed; /**< by value */
    size_t taken_count, handed_count;
    int64_t band;     /**< units in a band; 0 = runs whole; see bands.c */
    int64_t unit;     /**< rows of the input in a unit */
    ir_image *images; /**< [tensor, before bands were made]; NULL where it runs whole */
    /** [param] last instruction that writes the parameter's gradient, or -1. */
    int *grad_ready;
    cod_sets moved; /**< sets whose states it moves */
} ir_program;

/** What a program leaves of a node that it keeps, and how it computed it, which programs that resume it must do alike. */
typedef struct ir_kept {
    bool known;          /**< the rest is set */
    bool wide, by_batch; /**< by_batch: of a normalisation */
    int norm, shuffle, activation;
    cod_value residual, output;
    size_t offsets[3]; /**< in the io buffer: output, and, where it has them, mean and inverse deviation or indices */
} ir_kept;

/** What all programs of one executable share: shapes and the fixed places in the io buffer. */
typedef struct ir_context {
    cod_graph *graph;
    const cod_compile_options *options;
    cod_dtype param_dtype;
    cod_shape *shapes;     /**< [value]; n == 0: unknown, for want of an input's shape */
    size_t *input_offset;  /**< [node] of INPUT nodes */
    size_t *output_offset; /**< [value]; SIZE_MAX: no output */
    size_t *loss_offset;   /**< [value] of losses */
    size_t *scalar_index;  /**< [scalar] among the executable's */
    size_t *range_index;   /**< [node] its range on 8-bit integers among the executable's; SIZE_MAX: none */
    size_t *affine_offset; /**< [node] of AFFINE nodes: their constants in the io buffer */
    size_t *pass_offset;   /**< [value] that passes a cut, and then its gradient; SIZE_MAX: not yet placed */
    struct ir_kept *kept;  /**< [node] what stays of it for programs that resume it; NULL = programs compute all anew */
    size_t value_count;
    size_t io_bytes;
    size_t range_count, range_offset; /**< where these ranges lie in the io buffer */
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

/** The tensor without a buffer: its offset is that in its place's buffer. */
cod_view ir_view(const ir_program *program, int tensor);
/** One past the last instruction that runs in one plan with `first`, which is the first of them. */
size_t ir_group_end(const ir_program *program, size_t first);
/** Appends; 0 / -1 when memory is short. */
int ir_add_tensor(ir_program *program, ir_tensor tensor);
int ir_add_instr(ir_program *program, ir_instr instr);
void ir_program_clear(ir_program *program);

/** Shapes of all values from the shapes of the inputs; fails, naming the node, where they do not fit. */
COD_MUST_CHECK cod_status ir_infer_shapes(ir_context *context);

/** Fuses, lowers and differentiates one program. */
COD_MUST_CHECK cod_status ir_lower(ir_context *context, const cod_program_spec *spec, ir_program *out);

/**
 * Makes the program, lowered for one band of its input, one that runs in bands.
 * @return COD_ERR_UNSUPPORTED where an op cannot
 */
COD_MUST_CHECK cod_status ir_make_bands(const ir_context *context, ir_program *program);

/**
 * Writes the instructions around the losses, as far as no picture of the batch depends on another, once for each of several slices of
 * the batch. Gradients are then sums in another order.
 * @param wanted  slices at most; 0 = as many as save memory and cost next to no time
 */
COD_MUST_CHECK cod_status ir_slice(ir_program *program, int64_t wanted);

/**
 * Joins instructions that the backend runs as one plan; the order of the others may change with it. Not for programs in
 * bands.
 * @param buckets  of gradients, which are to be complete one after another
 */
COD_MUST_CHECK cod_status ir_fuse(const ir_context *context, const cod_backend *backend, cod_device *device,
                                  const cod_bucket *buckets, size_t bucket_count, ir_program *program);

/**
 * Repeats cheap ops of the forward pass in the backward pass, where that lowers the most bytes that are live at once; see recompute.c.
 * The order of the other instructions stays. Before ir_work_in_place().
 */
COD_MUST_CHECK cod_status ir_recompute(const ir_context *context, ir_program *program);

/** Lets ops that may do so write where they read for the last time. Not for programs in bands. */
COD_MUST_CHECK cod_status ir_work_in_place(ir_program *program);

/** The most bytes of arena tensors that are live at once, and the first instruction where they are. */
COD_MUST_CHECK cod_status ir_find_peak(const ir_program *program, size_t *peak, size_t *at);

/** Gives every arena tensor an offset, so that tensors alive at the same time do not overlap. */
COD_MUST_CHECK cod_status ir_plan_memory(ir_program *program);

#endif

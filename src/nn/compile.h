/**
 * @file
 * Compilation: turns a graph, shapes and a device into named programs, which share one arena and are ready to run.
 *
 * A program computes the given outputs and losses and, when it trains a parameter set, the gradients of the weighted
 * sum of its losses with respect to that set. Passes: liveness of nodes, fusion of nodes, lowering, autodiff, fusion of
 * ops (where the backend has op_fuses()), recomputing, memory plan, plans.
 */
#ifndef COD_NN_COMPILE_H
#define COD_NN_COMPILE_H

#include "core/queue.h"
#include "nn/scalars.h"
#include "nn/stage.h"
#include "nn/weights.h"

enum {
    COD_PROGRAM_MAX_LOSSES = 16,
    COD_PROGRAM_MAX_OUTPUTS = 16,
    COD_PROGRAM_MAX_GIVEN = 8,
    COD_PROGRAM_MAX_SPANS = 4
};

/** The nodes on all paths from one value to another; a path also ends at an input of the graph. `to` 0 = none. */
typedef struct cod_span {
    cod_value from, to;
} cod_span;

typedef struct cod_program_spec {
    const char *name;
    /**
     * Parameter set to train; NULL: no gradients. All other sets are frozen: gradients flow through them, but none are
     * computed for their parameters, and their statistics do not move.
     */
    const char *trains;
    /**
     * Further sets that normalise by the batch's statistics. The trained set always does, and also moves its running
     * statistics. All other sets use running statistics, folded into the convolution before them.
     */
    cod_sets batch_statistics;
    bool accumulate; /**< adds to the gradients instead of overwriting them: later micro-batches */
    cod_value losses[COD_PROGRAM_MAX_LOSSES];
    cod_value outputs
        [COD_PROGRAM_MAX_OUTPUTS]; /**< values readable after a run, until a program with the same outputs runs again */
    /**
     * Outputs of other programs of the executable, which this program reads instead of computing them. The last of
     * these programs to run must have had the same inputs. No gradient flows through these outputs.
     */
    cod_value given[COD_PROGRAM_MAX_GIVEN];
    /**
     * Spans whose results stay for programs that resume them, with the values that their backward passes need. This
     * program must need all nodes of the spans. It moves the running statistics in them, whatever it trains.
     */
    cod_span keeps[COD_PROGRAM_MAX_SPANS];
    /**
     * Spans that other programs keep: their forward pass does not run again, and their running statistics do not move
     * again. The last program to run that keeps them must have had the same inputs and weights. If the backend fuses
     * ops, which excludes keeping, the spans are computed again. Not allowed with spectral normalisation, whose trained
     * states move before a pass.
     */
    cod_span resumes[COD_PROGRAM_MAX_SPANS];
    const char *awaited; /**< input for which cod_program_await() may be called; NULL = none */
    /**
     * Computes in floats what other programs compute on 8-bit integers, and gives them, on the device, the ranges of
     * its convolutions' inputs for their later runs. Not for training, nor in bands.
     */
    bool observes;
    cod_stage stage; /**< nodes that cod_program_run_forward() and _backward() run; all zero = all nodes */
} cod_program_spec;

typedef struct cod_input_shape {
    const char *name;
    cod_shape shape; /**< C is the graph's */
} cod_input_shape;

/** Bytes of device memory that programs need, without weights and memory that plans keep for themselves. */
typedef struct cod_compile_memory {
    size_t arena; /**< activations and their gradients: the most that one program needs, as all share the arena */
    size_t io;    /**< inputs, outputs, losses and folded weights */
} cod_compile_memory;

typedef struct cod_compile_options {
    cod_dtype activation; /**< F32, BF16, or F64 (then weights are F64 too) */
    const cod_input_shape *inputs;
    size_t input_count;
    size_t bucket_bytes; /**< gradients are signalled in ranges of about this size; 0 = one bucket */
    bool deterministic;
    bool no_fusion; /**< for checks: every node becomes one op, and every op one plan */
    /**
     * Largest number of slices of the batch in which a training program runs the part after its last normalisation by
     * the batch's statistics, if the backend fuses ops; see slices.c. 0 = up to 4, if the slices' tensors stay large.
     */
    int64_t slices;
    /**
     * Bytes that may be kept so that weight gradients can become one plan, if the backend fuses ops; see sink.c. 0 = 80
     * MiB.
     */
    size_t gradient_bytes;
    /**
     * Training programs compute values of cheap ops again in the backward pass, if that lowers their memory; see
     * recompute.c.
     */
    bool recompute;
    cod_scalars *scalars; /**< memory of the graph's scalars, borrowed; NULL = the executable makes its own */
    /**
     * Queue of all programs and their preparation, borrowed; NULL = the device's default queue. A caller that gives a
     * queue must order it, by events, with work that writes weights and inputs or reads outputs.
     */
    cod_queue *queue;
    bool bands; /**< the input is a band of a picture, and programs run by cod_program_run_band() */
    /**
     * [node count] ranges, borrowed during cod_compile(); NULL = none. If a CONV2D's range is > 0, programs that use
     * running statistics compute it on 8-bit integers, which stand for inputs from -range to range. Nodes that share
     * weights share a range.
     */
    const float *int8_ranges;
    /** filled before the memory is allocated, and therefore also if there is not enough; may be NULL */
    cod_compile_memory *memory;
} cod_compile_options;

typedef struct cod_executable cod_executable;
typedef struct cod_program cod_program;

/** Compiles `count` programs. The graph, the weights and the device are borrowed and must outlive the executable. */
COD_MUST_CHECK cod_status cod_compile(cod_graph *graph, cod_weights *weights, const cod_compile_options *options,
                                      const cod_program_spec *specs, size_t count, cod_executable **out);
void cod_executable_destroy(cod_executable *executable);

/** The program of this name; NULL when there is none. */
cod_program *cod_executable_program(cod_executable *executable, const char *name);
/** View of an input, for uploads and for writing by the host; view.buffer is NULL for an unknown name. */
cod_view cod_executable_input(cod_executable *executable, const char *name);
/** View of an output of any program. */
cod_view cod_executable_output(cod_executable *executable, cod_value value);
/** Bytes of the arena and of inputs, outputs and folded weights. */
size_t cod_executable_bytes(const cod_executable *executable);

/** A value that passes from one stage to the next, and its gradient back. */
typedef struct cod_passing {
    cod_value value;
    cod_view values;   /**< in the type that the whole program uses for it */
    cod_view gradient; /**< buffer NULL: nothing before the cut is trained through it */
} cod_passing;

/** Sets a named scalar (a loss weight) for programs that run later. */
COD_MUST_CHECK cod_status cod_executable_set_scalar(cod_executable *executable, const char *name, float value);
/**
 * Sets new ranges, [node count], of convolutions on 8-bit integers for programs that run later, as if compiled with
 * them, but without making plans, buffers or recordings. This uploads, so it is not for use in steps, where programs
 * that observe set the ranges.
 *
 * @return COD_ERR_ARGUMENT, and no range is set, if other nodes have ranges > 0 than in cod_compile()
 */
COD_MUST_CHECK cod_status cod_executable_set_int8_ranges(cod_executable *executable, const float *ranges);
/** View of these ranges, f32 {1,1,1,ranges}, for copying them to the host; view.buffer is NULL if there are none. */
cod_view cod_executable_int8_view(const cod_executable *executable);
/** Converts such a copy to a table. @param[out] ranges [node count]; 0 = not on integers */
void cod_executable_int8_table(const cod_executable *executable, const float *copied, float *ranges);
/**
 * Reads a loss's unweighted value of the last program run that computed it; waits for that run. See nn/readback.h for
 * steps.
 */
COD_MUST_CHECK cod_status cod_executable_loss(cod_executable *executable, cod_value loss, float *out);
/** View of a loss's unweighted value: f32 {1}, or f64 in f64 programs; view.buffer is NULL if the value is no loss. */
cod_view cod_executable_loss_view(const cod_executable *executable, cod_value loss);

/** A range of the flat gradient buffer, in elements, that is complete when it is signalled. */
typedef struct cod_bucket {
    size_t first, count;
} cod_bucket;

size_t cod_program_bucket_count(const cod_program *program);
cod_bucket cod_program_bucket(const cod_program *program, size_t index);

/**
 * Called during a run when all work for bucket `index` is queued; a failure ends the run.
 *
 * @param complete  event that is reached when the bucket is complete; borrowed until the program's next run, which
 *                  records it again. NULL = the bucket is complete
 */
typedef cod_status (*cod_bucket_ready)(void *context, size_t index, cod_event *complete);

/**
 * Queues a program. Before it, queues the preparation of weights of sets that have changed (packing, folding, spectral
 * normalisation), and the scalars that were set. If the backend records, instructions between which the host has
 * nothing to do are recorded together in the first run and replayed later; this is the whole program if no bucket is
 * signalled and no event awaited.
 *
 * @param ready  may be NULL
 */
COD_MUST_CHECK cod_status cod_program_run(cod_program *program, cod_bucket_ready ready, void *context);

/** Recorded segments of programs. */
typedef struct cod_recordings {
    struct cod_recorded *list;
    size_t count;
} cod_recordings;

void cod_recordings_clear(const cod_backend *backend, cod_recordings *recordings);

/** Work that follows each run of a program, such as an update, and is recorded together with its last instructions. */
typedef struct cod_sequel {
    cod_queue_work work;
    void *context;
    /** zeroed at first; call cod_recordings_clear() before you free the program or what `work` uses */
    cod_recordings recordings;
} cod_sequel;

/** Runs a program as cod_program_run() without bucket signals, and then queues the sequel's work in the same queue. */
COD_MUST_CHECK cod_status cod_program_run_followed(cod_program *program, cod_sequel *sequel);

/**
 * Makes the program's next run wait, on the device, for an event that is recorded after the work that writes its
 * awaited input. The run waits just before the first instruction that reads the input, so that all earlier instructions
 * run meanwhile.
 *
 * @param event  borrowed until that run is queued; NULL = do not wait
 */
void cod_program_await(cod_program *program, cod_event *event);

/**
 * The values that a stage's program takes from the stage before (values to be written before its forward pass,
 * gradients to be read after its backward pass), and those that it passes to the next stage (the other way round); in
 * the order of values, as in the neighbour. A value that only passes through is in both lists, in the same memory.
 */
const cod_passing *cod_program_taken(const cod_program *program, size_t *count);
const cod_passing *cod_program_handed(const cod_program *program, size_t *count);

/**
 * Runs only the forward pass of a training program. The backward pass needs its results, so no other program of the
 * executable may run in between. Losses are known after the backward pass.
 */
COD_MUST_CHECK cod_status cod_program_run_forward(cod_program *program);
COD_MUST_CHECK cod_status cod_program_run_backward(cod_program *program, cod_bucket_ready ready, void *context);

/** Number of rows by which a banded program's first output lags behind its input. */
int64_t cod_program_delay(const cod_program *program);

/**
 * Runs one step of a banded program: step 0 begins a picture, and steps follow until all rows of the picture have been
 * output.
 *
 * Before the step, fill the input's view with the next B rows of the picture; below the picture's last row, repeat that
 * row. After step k, the output's view holds R rows, kR - delay … (k + 1)R - delay, of the whole picture's output.
 * Ignore rows outside the picture.
 *
 * @param height  of the picture, rows: a multiple of the factors of all pixel unshuffles
 * @return COD_ERR_ARGUMENT if it is not a multiple
 */
COD_MUST_CHECK cod_status cod_program_run_band(cod_program *program, int64_t step, int64_t height);

/** Folds and packs weights that have changed since the last run. Running a program does this, too. */
COD_MUST_CHECK cod_status cod_program_prepare(cod_program *program);
/**
 * Ops of a program in order, for benches: name, kind and views; false past the last. Ops that run as one plan count as
 * one, with the kind and the views of the convolution and a name that lists the other ops.
 */
bool cod_program_op(const cod_program *program, size_t index, cod_op *out);
/** Where the program is queued: cod_compile_options.queue. */
cod_queue *cod_program_queue(const cod_program *program);
/** The node of the graph that an op is for. */
size_t cod_program_op_node(const cod_program *program, size_t index);
/** Number of ops in the plan at `index`; 1 = a single op. */
size_t cod_program_op_parts(const cod_program *program, size_t index);
/** One of these ops, in the order in which they take effect. @return the graph node of the op */
size_t cod_program_op_part(const cod_program *program, size_t index, size_t part, cod_op *out);
/** cod_op_flops() of all of them. */
double cod_program_op_flops(const cod_program *program, size_t index);
/**
 * Least number of bytes that the plan reads and writes: each tensor of its ops once for reading and once for writing;
 * tensors that one of its ops computes are not read again.
 */
double cod_program_op_bytes(const cod_program *program, size_t index);
/** Runs one op alone. */
COD_MUST_CHECK cod_status cod_program_run_op(cod_program *program, size_t index);

#endif

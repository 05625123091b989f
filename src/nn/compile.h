/**
 * @file
 * Compilation: graph + shapes + device -> named programs that share one arena and only need to be run.
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

/** The nodes on all ways from one value to another; inputs of the graph end a way, too. `to` 0 = none. */
typedef struct cod_span {
    cod_value from, to;
} cod_span;

typedef struct cod_program_spec {
    const char *name;
    /**
     * Parameter set; NULL: no gradients. All other sets are frozen: no gradients are computed of their parameters, but flow through
     * them, and their statistics never move.
     */
    const char *trains;
    /**
     * Sets that normalise by the batch's statistics, beside the trained one, which always does and also moves its running ones; all
     * others use running statistics, folded into the convolution before them.
     */
    cod_sets batch_statistics;
    bool accumulate; /**< adds to the gradients instead of overwriting them: later micro-batches */
    cod_value losses[COD_PROGRAM_MAX_LOSSES];
    cod_value outputs
        [COD_PROGRAM_MAX_OUTPUTS]; /**< values readable after a run, until a program that has them too runs again */
    /**
     * Outputs of other programs of the executable, read where they lie instead of being computed anew: the last of these to run
     * must have run on the same inputs. No gradient flows to what they were computed from.
     */
    cod_value given[COD_PROGRAM_MAX_GIVEN];
    /**
     * What this program computes of these spans, of which it needs all, stays for programs that resume them, with what their backward
     * passes need; it moves the running statistics there, whatever it trains.
     */
    cod_span keeps[COD_PROGRAM_MAX_SPANS];
    /**
     * Spans that other programs keep: their forward pass is not run again, and their running statistics are not moved again. The last
     * program to run that keeps them must have run on the same inputs and weights. Where the backend fuses ops, which does not go with
     * keeping, they are computed again all the same. Not with spectral normalisation, whose trained states move before a pass.
     */
    cod_span resumes[COD_PROGRAM_MAX_SPANS];
    const char *awaited; /**< an input that cod_program_await() may be called for; NULL = none */
    /**
     * Computes in floats what other programs compute on 8-bit integers, and gives these, for their later runs, the ranges of what its own
     * convolutions met, on the device. Not for training, nor in bands.
     */
    bool observes;
    cod_stage
        stage; /**< only what these nodes do of it, by cod_program_run_forward() and _backward(); all zero = all of it */
} cod_program_spec;

typedef struct cod_input_shape {
    const char *name;
    cod_shape shape; /**< C is the graph's */
} cod_input_shape;

/** Device memory that programs need beside weights and what plans keep for themselves; bytes. */
typedef struct cod_compile_memory {
    size_t arena; /**< activations and their gradients: of the program that needs most, as all programs share it */
    size_t io;    /**< inputs, outputs, losses and folded weights */
} cod_compile_memory;

typedef struct cod_compile_options {
    cod_dtype activation; /**< F32, BF16, or F64 (then weights are F64 too) */
    const cod_input_shape *inputs;
    size_t input_count;
    size_t bucket_bytes; /**< gradients are signalled in ranges of about this size; 0 = one bucket */
    bool deterministic;
    bool no_fusion; /**< for checks: every node is an op of its own, and every op a plan */
    /**
     * In how many slices of the batch, at most, a training program runs what lies behind its last normalisation by the batch's
     * statistics, if the backend fuses ops; see slices.c. 0 = up to 4, where the slices' tensors stay large.
     */
    int64_t slices;
    /** Bytes that weight gradients may keep to become one plan, if the backend fuses ops; see sink.c. 0 = 80 MiB. */
    size_t gradient_bytes;
    /** Training programs make values of cheap ops again in their backward pass where that lowers their memory; see recompute.c. */
    bool recompute;
    cod_scalars *scalars; /**< where the graph's scalars are kept, borrowed; NULL = some of its own */
    /**
     * Where all programs, and what prepares them, are queued, borrowed; NULL = the device's default queue. Whoever gives one orders
     * its work with what writes weights and inputs, and reads outputs, by events.
     */
    cod_queue *queue;
    bool bands; /**< the input is a band of a picture, and programs are for cod_program_run_band() */
    /**
     * [node count], borrowed during cod_compile(); NULL = none. Where a CONV2D's is > 0, programs that use running statistics compute
     * it on 8-bit integers that stand for its input from -range to range. Nodes that share weights share a range.
     */
    const float *int8_ranges;
    cod_compile_memory
        *memory; /**< filled before the memory is asked for, so also where there is not enough; NULL = not wanted */
} cod_compile_options;

typedef struct cod_executable cod_executable;
typedef struct cod_program cod_program;

/** Compiles `count` programs. The graph, the weights and the device are borrowed and must outlive the executable. */
COD_MUST_CHECK cod_status cod_compile(cod_graph *graph, cod_weights *weights, const cod_compile_options *options,
                                      const cod_program_spec *specs, size_t count, cod_executable **out);
void cod_executable_destroy(cod_executable *executable);

/** The program of this name; NULL when there is none. */
cod_program *cod_executable_program(cod_executable *executable, const char *name);
/** Where an input lies, for uploads and for writing through the host; view.buffer is NULL for an unknown name. */
cod_view cod_executable_input(cod_executable *executable, const char *name);
/** Where an output of any program lies. */
cod_view cod_executable_output(cod_executable *executable, cod_value value);
/** Bytes of the arena and of inputs, outputs and folded weights. */
size_t cod_executable_bytes(const cod_executable *executable);

/** A value that passes from one stage to the next, and its gradient back. */
typedef struct cod_passing {
    cod_value value;
    cod_view values;   /**< in the type that the whole program has it in */
    cod_view gradient; /**< buffer NULL: nothing before the cut is trained by it */
} cod_passing;

/** Sets a named scalar (a loss weight); acts on programs run later. */
COD_MUST_CHECK cod_status cod_executable_set_scalar(cod_executable *executable, const char *name, float value);
/**
 * Gives convolutions on 8-bit integers other ranges, [node count], for programs run later: as if compiled with them, but no
 * plan, buffer or recording is made. An upload, so not for steps: programs that observe set ranges there.
 *
 * @return COD_ERR_ARGUMENT, and nothing is done, where other nodes have ranges > 0 than cod_compile() was given
 */
COD_MUST_CHECK cod_status cod_executable_set_int8_ranges(cod_executable *executable, const float *ranges);
/** Where these ranges lie, f32 {1,1,1,ranges}, for those who copy them to the host; view.buffer is NULL where there are none. */
cod_view cod_executable_int8_view(const cod_executable *executable);
/** Such a copy as a table. @param[out] ranges  [node count]; 0 = not on integers */
void cod_executable_int8_table(const cod_executable *executable, const float *copied, float *ranges);
/** Reads a loss's unweighted value of the last program run that computed it; waits for that run. See nn/readback.h for steps. */
COD_MUST_CHECK cod_status cod_executable_loss(cod_executable *executable, cod_value loss, float *out);
/** Where a loss's unweighted value lies: f32 {1}, f64 in f64 programs; view.buffer is NULL where it is no loss. */
cod_view cod_executable_loss_view(const cod_executable *executable, cod_value loss);

/** A range of the flat gradient buffer that is complete when its signal comes; elements. */
typedef struct cod_bucket {
    size_t first, count;
} cod_bucket;

size_t cod_program_bucket_count(const cod_program *program);
cod_bucket cod_program_bucket(const cod_program *program, size_t index);

/**
 * Called during a run when all work that bucket `index` takes is queued; a failure ends the run.
 *
 * @param complete  reached when the bucket is complete; borrowed, recorded again by the program's next run. NULL = it is
 */
typedef cod_status (*cod_bucket_ready)(void *context, size_t index, cod_event *complete);

/**
 * Queues a program; before it what prepares weights of sets that have changed (packing, folding, spectral
 * normalisation), and the scalars that were set. Where the backend records, instructions between which the host has
 * nothing to do are recorded together in the first run, and replayed later: all of a program where no bucket is
 * signalled and no event awaited.
 *
 * @param ready  may be NULL
 */
COD_MUST_CHECK cod_status cod_program_run(cod_program *program, cod_bucket_ready ready, void *context);

/** Segments of programs that were recorded. */
typedef struct cod_recordings {
    struct cod_recorded *list;
    size_t count;
} cod_recordings;

void cod_recordings_clear(const cod_backend *backend, cod_recordings *recordings);

/** Work that follows each run of a program, such as an update, and is recorded with the last of its instructions. */
typedef struct cod_sequel {
    cod_queue_work work;
    void *context;
    cod_recordings
        recordings; /**< zeroed before; cod_recordings_clear() ends them, before the program and what `work` uses */
} cod_sequel;

/** As cod_program_run() with nobody who hears of buckets; then the sequel's work is queued, where the program is. */
COD_MUST_CHECK cod_status cod_program_run_followed(cod_program *program, cod_sequel *sequel);

/**
 * The program's next run waits, on the device, for an event that is recorded behind what writes its awaited input: just before the
 * first instruction that reads that, so that all earlier ones are done meanwhile.
 *
 * @param event  borrowed until that run is queued; NULL is reached
 */
void cod_program_await(cod_program *program, cod_event *event);

/**
 * What the program of a stage takes from the stage before (values to be written before its forward pass, gradients to be read
 * after its backward pass), and hands on to the next (the other way round); by value, as the neighbour has them. What only
 * passes through is in both, at one place.
 */
const cod_passing *cod_program_taken(const cod_program *program, size_t *count);
const cod_passing *cod_program_handed(const cod_program *program, size_t *count);

/**
 * Runs the forward pass of a training program alone. The backward pass needs what it leaves behind: no other program of the
 * executable may run in between. Losses are known after the backward pass.
 */
COD_MUST_CHECK cod_status cod_program_run_forward(cod_program *program);
COD_MUST_CHECK cod_status cod_program_run_backward(cod_program *program, cod_bucket_ready ready, void *context);

/** Rows of a banded program's first output that it is behind its input. */
int64_t cod_program_delay(const cod_program *program);

/**
 * Runs one step of a banded program: step 0 begins a picture, and steps follow until as many rows of the output have come as the picture has.
 *
 * Before it the input's view is filled with the next rows of the picture, B in all; below the picture's last row, that row again.
 * Afterwards the output's view holds the rows kR - delay … (k + 1)R - delay, R of them, of the whole picture's output; those
 * outside of it are of no use.
 *
 * @param height  of the picture, rows: a multiple of the factors of all pixel unshuffles
 * @return COD_ERR_ARGUMENT when it is none
 */
COD_MUST_CHECK cod_status cod_program_run_band(cod_program *program, int64_t step, int64_t height);

/** Folds and packs the weights where they changed since the last run, as running does by itself. */
COD_MUST_CHECK cod_status cod_program_prepare(cod_program *program);
/**
 * Ops of a program in order, for benches: name, kind and views; false past the last. Ops that run as one plan are one
 * here: it has the kind and the views of its convolution and a name that says what else it does.
 */
bool cod_program_op(const cod_program *program, size_t index, cod_op *out);
/** Where the program is queued: cod_compile_options.queue. */
cod_queue *cod_program_queue(const cod_program *program);
/** The node of the graph that an op is for. */
size_t cod_program_op_node(const cod_program *program, size_t index);
/** How many ops are one plan there; 1 = it is itself alone. */
size_t cod_program_op_parts(const cod_program *program, size_t index);
/** One of them, in the order in which they take effect. @return the node of the graph that it is for */
size_t cod_program_op_part(const cod_program *program, size_t index, size_t part, cod_op *out);
/** cod_op_flops() of all of them. */
double cod_program_op_flops(const cod_program *program, size_t index);
/**
 * Bytes that the plan reads and writes at least: each tensor of its ops once each way, but those that one of the ops
 * makes are not read again.
 */
double cod_program_op_bytes(const cod_program *program, size_t index);
/** Runs one op alone. */
COD_MUST_CHECK cod_status cod_program_run_op(cod_program *program, size_t index);

#endif

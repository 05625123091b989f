/**
 * @file
 * What the files of infer share: the part of a graph that a model's output needs, writing tensors, and messages for
 * lack of memory.
 */
#ifndef COD_INFER_INFER_INTERNAL_H
#define COD_INFER_INFER_INTERNAL_H

#include "infer/model_file.h"
#include "io/torch_file.h"
#include "nn/compile.h"

/** The part of a graph that a model's output is computed from. */
typedef struct graph_part {
    bool *nodes;  /**< [node count] */
    bool *params; /**< [param count] */
    int *readers; /**< [node count] readers of the node's output within the part; the model's output counts as one */
} graph_part;

COD_MUST_CHECK cod_status cod_graph_part_find(const cod_model *model, cod_arena *arena, graph_part *part);

/** Index of a node of the graph. */
size_t cod_node_index(const cod_graph *graph, const cod_node *node);

/** Low-resolution pixels that an output pixel depends on, to each side; -1 when there is no bound or no fixed scale. */
int64_t cod_model_halo(const cod_model *model, const graph_part *part);

/** Fails unless a model can upscale pictures: RGB in, RGB out, a scale. The message says what is missing. */
COD_MUST_CHECK cod_status cod_model_check_upscales(const cod_model *model);

/** A tensor of a model file: values in our layout under PyTorch's name. */
typedef struct named_tensor {
    cod_param param; /**< name, shape, rank, flattened */
    const float *values;
} named_tensor;

COD_MUST_CHECK cod_status cod_tensors_write(const char *path, const named_tensor *tensors, size_t count,
                                            const cod_st_text *metadata, size_t metadata_count, bool bf16);
/** cod_model_save(), or with values rounded to bf16. */
COD_MUST_CHECK cod_status cod_model_save_as(const char *path, const cod_model *model, const float *values,
                                            const cod_st_text *extra, size_t extra_count, bool bf16);

/** Kind and options named by the file's metadata; *kind is NULL when it names none. */
COD_MUST_CHECK cod_status cod_model_metadata_read(const cod_st_file *file, cod_arena *arena,
                                                  const cod_model_kind **kind, void **options);

/**
 * Kind and options of a well-known foreign architecture, from names and shapes alone; *kind is NULL when it is none.
 */
COD_MUST_CHECK cod_status cod_model_recognise(const cod_st_file *file, cod_arena *arena, const cod_model_kind **kind,
                                              void **options);

/** The tensors of one network in a file. */
typedef struct model_source {
    const cod_st_file *file;      /**< the network's, by its own names */
    cod_st_file *whole, *network; /**< all that was opened; the one network of a foreign file, or NULL */
    cod_torch_file *torch;        /**< in the place of `whole`: a file of torch.save() */
    cod_arena arena;
} model_source;

/**
 * Opens a file of ours as it is; of another file the network that cod_foreign_choose() takes, or all without one. Of
 * torch.save()'s files, which may hold anything, only a network is taken; without one the message names the command
 * that converts them.
 */
COD_MUST_CHECK cod_status model_source_open(const char *path, model_source *source);
/** Also one that was not opened. */
void model_source_close(model_source *source);

/** The kind's default options with `count` of them set from texts; new in `arena`. */
COD_MUST_CHECK cod_status cod_model_options(const cod_model_kind *kind, const cod_st_text *settings, size_t count,
                                            cod_arena *arena, void **options);

/**
 * If `status` says that the device's memory did not suffice, adds to this thread's message how much memory the network
 * needs, how much is free, and how to need less. @param memory of cod_compile_options @return status
 */
cod_status infer_explain_memory(const cod_weights *weights, const cod_compile_memory *memory, cod_status status,
                                const char *less);

#endif

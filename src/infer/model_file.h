/**
 * @file
 * Model files: a model's weights in safetensors under PyTorch's names and layout, its architecture in the metadata.
 *
 * Metadata: "codistill.model" is the kind, "codistill.options" a JSON object of its options as texts, "format" is "pt".
 * Tensors are F32; running statistics are among them, BatchNorm's num_batches_tracked is neither written nor needed.
 * Values travel as one flat host array, laid out as cod_graph_layout() says, so a model's own weights, its EMA and a
 * checkpoint's copy are all saved alike. Only what the model's output needs is saved and loaded: losses, further
 * networks of the same graph and their parameters are left out.
 */
#ifndef COD_INFER_MODEL_FILE_H
#define COD_INFER_MODEL_FILE_H

#include "io/safetensors.h"
#include "nn/model.h"
#include "nn/weights.h"

/** In a file of ours: which architecture the model has. */
#define COD_KIND_METADATA "codistill.model"
#define COD_DATA_METADATA "codistill.data"
/** In a checkpoint of a run: the name of the array that holds the model's values, [trainable + state]. */
#define COD_VALUES_METADATA "codistill.values"

/** A model with its values, in host memory. Zeroed = empty. */
typedef struct cod_saved_model {
    cod_arena arena; /**< holds the options */
    cod_model model;
    cod_layout layout;
    float *values;    /**< [layout.trainable + layout.state] */
    const char *int8; /**< the file's ranges for 8-bit integers, as int8.h keeps them; NULL = none */
    const char *data; /**< what a classifier was trained on, as classifier.h keeps it; NULL = nothing is said */
} cod_saved_model;

void cod_saved_model_clear(cod_saved_model *saved);

/**
 * {"codistill.model", "codistill.options", "format"}: what a file says of the model that it holds; texts in `arena`.
 */
enum { COD_MODEL_METADATA_COUNT = 3 };
COD_MUST_CHECK cod_status cod_model_metadata(const cod_model_kind *kind, const void *options, cod_arena *arena,
                                             cod_st_text metadata[COD_MODEL_METADATA_COUNT]);

/**
 * Writes `path` atomically.
 *
 * @param[in] values  [trainable + state] of the model's graph
 * @param[in] extra   [extra_count] further metadata, such as the step; may be NULL
 * @return COD_ERR_NUMERIC, naming the tensor, when a value is not finite: such a file is of no use to anyone
 */
COD_MUST_CHECK cod_status cod_model_save(const char *path, const cod_model *model, const float *values,
                                         const cod_st_text *extra, size_t extra_count);

/** cod_model_save() of what lies on a device. */
COD_MUST_CHECK cod_status cod_model_save_weights(const char *path, const cod_model *model, const cod_weights *weights,
                                                 const cod_st_text *extra, size_t extra_count);

/**
 * Reads a model file, every tensor of which must match, or a group's part of a checkpoint (train/checkpoint.h). A file
 * without our metadata is recognised by its tensors, from which its size is inferred, if it is of BasicSR's MSRResNet,
 * RRDBNet or EDSR, or of Real-ESRGAN's SRVGGNetCompact, below whatever prefix (foreign.h).
 *
 * @param[out] saved  new; cod_saved_model_clear() ends it; empty on failure
 * @return COD_ERR_IO when it cannot be read, COD_ERR_FORMAT when it is damaged, no model, or its tensors do not fit,
 *         COD_ERR_NUMERIC when a value is not finite; messages name the file and the tensors
 */
COD_MUST_CHECK cod_status cod_model_load(const char *path, cod_saved_model *saved);

typedef enum cod_load_mode {
    COD_LOAD_STRICT, /**< the file holds exactly the model's tensors */
    COD_LOAD_PARTIAL /**< for fine-tuning: what matches in name and shape is loaded, the rest of `values` stays */
} cod_load_mode;

/** What became of the tensors. */
typedef struct cod_load_counts {
    size_t loaded;
    size_t missing;    /**< in the model but not in the file */
    size_t unexpected; /**< in the file but not in the model */
    size_t misshapen;  /**< in both, with different shapes */
} cod_load_counts;

/**
 * Loads a file's tensors into the values of a model made by the caller, whatever the file's metadata says.
 *
 * @param[in,out] values  [trainable + state] of the model's graph; may be half changed on failure
 * @param[out]    counts  may be NULL
 * @return COD_ERR_FORMAT, listing the first tensors at fault, when STRICT and something differs, or when PARTIAL and
 *         nothing at all matches
 */
COD_MUST_CHECK cod_status cod_model_load_values(const char *path, const cod_model *model, cod_load_mode mode,
                                                float *values, cod_load_counts *counts);

/** cod_model_load_values() for weights on a device. */
COD_MUST_CHECK cod_status cod_model_load_weights(const char *path, const cod_model *model, cod_load_mode mode,
                                                 cod_weights *weights, cod_load_counts *counts);

/**
 * Loads a parameter set from a file that holds all its tensors, perhaps beside others. Parameters whose starting values
 * the graph gives (cod_param.start) keep them.
 *
 * @return COD_ERR_FORMAT, listing the first tensors at fault, when one is missing or of another shape
 */
COD_MUST_CHECK cod_status cod_set_load_weights(const char *path, int set, cod_weights *weights);

/** Writes all tensors of a parameter set, under their names and in PyTorch's layout, without metadata. */
COD_MUST_CHECK cod_status cod_set_save_weights(const char *path, int set, const cod_weights *weights);

#endif

/**
 * @file
 * Folding normalisation into the layer before it, for exports: w' = w·γ/√(σ²+ε), b' = β + (b-μ)·γ/√(σ²+ε), in double.
 */
#ifndef COD_INFER_FOLD_H
#define COD_INFER_FOLD_H

#include "infer/model_file.h"

/** A convolution or linear layer to be exported. */
typedef struct cod_folded_layer {
    const cod_node *node;
    const cod_node *norm; /**< the normalisation that was folded in; NULL = none, and the tensors are the model's own */
    cod_value output;     /**< output of the norm, or of the node if there is none */
    const float *weight;  /**< shape and layout of the node's weight */
    const float *bias;    /**< [O], or NULL */
} cod_folded_layer;

/** All layers that the output needs, in the graph's order. Zeroed = empty. */
typedef struct cod_folded {
    cod_arena arena;
    size_t count;
    cod_folded_layer *layers;
} cod_folded;

/**
 * Folds every normalisation that directly follows a layer and is its only reader; others stay as they are.
 *
 * @param[in]  values  [trainable + state]; borrowed as long as `folded` lives
 * @param[out] folded  new; cod_folded_clear()
 */
COD_MUST_CHECK cod_status cod_model_fold(const cod_model *model, const float *values, cod_folded *folded);
void cod_folded_clear(cod_folded *folded);

/** The layer whose output (or whose norm's output) `value` is, or NULL. */
const cod_folded_layer *cod_folded_find(const cod_folded *folded, cod_value value);

/**
 * Writes the model with normalisation folded as a model file. If its kind can be built with `norm: none`, the metadata
 * says so and cod_model_load() can read the file; otherwise the file has only the tensors.
 *
 * @param[in]  int8      the model's ranges in the form that files keep (int8.h); written with the names of the folded
 *                       layers. NULL = none
 * @param[in]  bf16      whether weights are rounded to bf16, which takes half the bytes
 * @param[out] loadable  whether our own commands can read the file; may be NULL
 */
COD_MUST_CHECK cod_status cod_model_save_folded(const char *path, const cod_model *model, const float *values,
                                                const char *int8, bool bf16, bool *loadable);

#endif

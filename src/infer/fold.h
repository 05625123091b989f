/**
 * @file
 * Folding normalisation into the layer before it, for exports: w' = w·γ/√(σ²+ε), b' = β + (b-μ)·γ/√(σ²+ε), in double.
 */
#ifndef COD_INFER_FOLD_H
#define COD_INFER_FOLD_H

#include "infer/model_file.h"

/** A convolution or linear layer as it is to be exported. */
typedef struct cod_folded_layer {
    const cod_node *node;
    const cod_node *norm; /**< what was folded in; NULL = nothing, and the tensors are the model's own */
    cod_value output;     /**< of the norm, else of the node */
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
 * Writes the model with normalisation folded as a model file. Where its kind can be built with `norm: none`, the metadata
 * says so and cod_model_load() reads it; otherwise the file has the tensors alone.
 *
 * @param[in]  int8      the model's ranges as a file keeps them (int8.h), kept in this one under its own names; NULL = none
 * @param[in]  bf16      whether weights are rounded to bf16, which takes half the bytes
 * @param[out] loadable  whether our own commands can read the file; may be NULL
 */
COD_MUST_CHECK cod_status cod_model_save_folded(const char *path, const cod_model *model, const float *values,
                                                const char *int8, bool bf16, bool *loadable);

#endif

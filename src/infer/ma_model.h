/**
 * @file
 * The file with the forests of Ma's score.
 *
 * The authors publish them as model.mat of MATLAB (github.com/chaoma99/sr-metric). It is not shipped here.
 * `tools/ma_model.py model.mat ma.safetensors` makes this file of it:
 *
 * | tensor | |
 * |---|---|
 * | `linear` | F64 [4]: the constant, and the factors of the forests of `blocks`, `bands` and `patches` |
 * | `blocks.roots` | I32 [trees]: the first node of each tree |
 * | `blocks.value` | F64 [nodes]: the threshold, features up to which go left; a leaf's prediction |
 * | `blocks.feature` | I32 [nodes]: from 0 on; -1 = a leaf |
 * | `blocks.left` | I32 [nodes]: the left child, which lies behind its parent; the right one is the next node |
 *
 * and the same four of `bands` and `patches` (data/ma.h).
 */
#ifndef COD_INFER_MA_MODEL_H
#define COD_INFER_MA_MODEL_H

#include "data/ma.h"

/**
 * @param[out] model  new; cod_ma_model_clear()
 * @return COD_ERR_IO or COD_ERR_FORMAT, with the path and the tensor at fault
 */
COD_MUST_CHECK cod_status cod_ma_model_load(const char *path, cod_ma_model *model);
void cod_ma_model_clear(cod_ma_model *model);

#endif

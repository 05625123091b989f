/**
 * @file
 * The file with NIQE's model of natural pictures.
 */
#ifndef COD_INFER_NIQE_MODEL_H
#define COD_INFER_NIQE_MODEL_H

#include "data/niqe.h"

/**
 * Reads `niqe_pris_params.npz` as BasicSR ships it: arrays `mu_pris_param` [36] and `cov_pris_param` [36, 36], float64,
 * saved by numpy.savez().
 *
 * @return COD_ERR_IO, COD_ERR_FORMAT or COD_ERR_UNSUPPORTED, with the path and what would be right
 */
COD_MUST_CHECK cod_status cod_niqe_model_load(const char *path, cod_niqe_model *model);

#endif

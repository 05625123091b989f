/**
 * @file
 * The kinds that model.c registers.
 */
#ifndef COD_NN_MODELS_INTERNAL_H
#define COD_NN_MODELS_INTERNAL_H

#include "nn/model.h"

extern const cod_model_kind cod_model_srresnet;
extern const cod_model_kind cod_model_msrresnet;
extern const cod_model_kind cod_model_compact;
extern const cod_model_kind cod_model_mlp;

#endif

/**
 * @file
 * The `ref` backend: every op of core/backend.h in plain C, written for clarity, not for speed.
 *
 * It is the oracle that the other backends are compared with, and the only one that computes in f64. Parameters and
 * statistics are f32 or f64; activations f32, f64 or bf16, each view its own. Sums are accumulated in double. One
 * thread; work is done when a call returns; results are the same on every run.
 */
#ifndef COD_REF_REF_H
#define COD_REF_REF_H

#include "core/backend.h"

extern const cod_backend cod_ref_backend;

#endif

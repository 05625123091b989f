/**
 * @file
 * The `diloco` strategy: groups train alone for H steps; the averaged change of their weights is the gradient of an
 * outer optimiser, SGD with Nesterov's momentum.
 *
 * Douillard et al. 2023, "DiLoCo: Distributed low-communication training of language models" (arXiv:2311.08105),
 * Algorithm 1: Δ = Σ_g (n_g / Σ n) (θ - θ_g);  u ← μ·u + Δ;  θ ← θ - η·(Δ + μ·u), with η = 0.7, μ = 0.9 and AdamW as
 * the inner optimiser (train.optimiser), whose moments stay each group's own. η = 1 and μ = 0 is `local_sgd`, bit for
 * bit. Statistics of normalisation are averaged.
 *
 * With `fragments: P` it is Streaming DiLoCo (Douillard et al. 2025, arXiv:2501.18512, Algorithm 2): the weights are
 * cut into P equal ranges, and one of them is averaged every H/P steps, so that each is averaged every H steps and a
 * meeting moves a P-th of the bytes. With `overlap_steps: T` groups continue training while a range is averaged: its
 * values at step t are averaged, and T steps later θ ← α·θ + (1-α)·θ', where θ' is the result of the outer step and α =
 * `keep_local`. After the last step all ranges are averaged, and all groups have θ'.
 *
 * `codec: int8` sends each group's θ - θ_g in blocks of 256 8-bit integers with a scale each. Rounding errors are not
 * carried over to the next meeting: Streaming DiLoCo found no loss even with 4 bits.
 */
#ifndef COD_STRATEGIES_DILOCO_H
#define COD_STRATEGIES_DILOCO_H

#include <stdint.h>

typedef struct cod_diloco_options {
    int64_t period;
    double outer_rate, outer_momentum;
    int codec; /**< index into {f32, int8} */
    int64_t fragments, overlap_steps;
    double keep_local; /**< NaN = 0.5 if overlap_steps is above 0, else 0 */
} cod_diloco_options;

/** Registers `train.strategy: diloco`, with its section `diloco`. */
void cod_strategy_register_diloco(void);

#endif

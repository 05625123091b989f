/**
 * @file
 * The `diloco` strategy: groups train alone for H steps; what their weights changed by, averaged, is the gradient of an outer
 * optimiser, SGD with Nesterov's momentum.
 *
 * Douillard et al. 2023, "DiLoCo: Distributed low-communication training of language models" (arXiv:2311.08105), Algorithm 1:
 * Δ = Σ_g (n_g / Σ n) (θ - θ_g);  u ← μ·u + Δ;  θ ← θ - η·(Δ + μ·u), with η = 0.7, μ = 0.9 and AdamW as the inner optimiser
 * (train.optimiser), whose moments stay each group's own. η = 1 and μ = 0 is `local_sgd`, bit for bit. Statistics of
 * normalisation are averaged.
 *
 * `codec: int8` sends each group's θ - θ_g in blocks of 256 8-bit integers with a scale each. What rounding loses is not
 * made up for at the next meeting: Douillard et al. 2025, "Streaming DiLoCo" (arXiv:2501.18512), found no loss even with 4 bits.
 */
#ifndef COD_DISTILL_DILOCO_H
#define COD_DISTILL_DILOCO_H

#include <stdint.h>

typedef struct cod_diloco_options {
    int64_t period;
    double outer_rate, outer_momentum;
    int codec; /**< index into {f32, int8} */
} cod_diloco_options;

/** Makes `train.strategy: diloco` known, with its section `diloco`. */
void cod_strategy_register_diloco(void);

#endif

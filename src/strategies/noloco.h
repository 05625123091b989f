/**
 * @file
 * The `noloco` strategy: groups train alone for H steps; then each meets one other group, drawn again each time, and
 * both take an outer step with momentum that also draws their weights together. Nothing is averaged over all groups.
 *
 * Kolehmainen et al. 2025, "NoLoCo: No-all-reduce low communication training method for large models"
 * (arXiv:2506.10911). Group i started from φ_i and has trained to θ_i; means are over the pair; Δ_i = φ_i - θ_i: δ_i ←
 * α·δ_i - β·mean(Δ) - γ·(φ_i - mean(φ)); φ_i ← φ_i + δ_i, from which group i continues.
 *
 * (The formula, α = 0.5 and β = 0.7 are from quotations of the paper, whose text was not available; γ = 1 is our
 * choice.)
 *
 * With an odd number of groups one has no partner in a round, and its means are its own values. Both groups of a pair
 * count equally, whatever their numbers of ranks. Normalisation statistics become the pair's mean. Groups end with
 * different weights.
 */
#ifndef COD_STRATEGIES_NOLOCO_H
#define COD_STRATEGIES_NOLOCO_H

#include <stddef.h>
#include <stdint.h>

typedef struct cod_noloco_options {
    int64_t period;
    double outer_momentum, outer_rate, pull; /**< the paper's α, β, γ */
} cod_noloco_options;

/**
 * The group that `group` meets after `step` steps, in a random matching that depends on the arguments alone.
 *
 * @param groups  below 2³²
 * @param order   [groups] scratch
 * @return `group` itself if it has no partner in this round
 */
int cod_noloco_partner(uint64_t seed, int64_t step, int groups, int group, uint32_t *order);

/**
 * A group's outer step.
 *
 * @param[in,out] outer        [count] φ of this group
 * @param[in,out] momentum     [count] δ of this group
 * @param values               [count] θ of this group
 * @param their_outer,theirs   [count] φ and θ of its partner; the group's own if it has none
 */
void cod_noloco_step(const cod_noloco_options *options, float *outer, float *momentum, const float *values,
                     const float *their_outer, const float *theirs, size_t count);

/** Registers `train.strategy: noloco`, with its section `noloco`. */
void cod_strategy_register_noloco(void);

#endif

/**
 * @file
 * The recipe `pair`, of tests: the configured classifier, and a critic that tells its output from the truth.
 *
 * A step is three sub-steps: "look" leaves the model's output, "critic" trains the critic on it, "model" trains the
 * model to be right and to please the critic. The first two run every pair.every steps.
 */
#ifndef COD_TESTS_PAIR_H
#define COD_TESTS_PAIR_H

/**
 * Registers it. `pair.flaw` names what is wrong with it, `pair.distils` the sub-step that a strategy may add losses
 * to.
 */
void pair_register(void);

#endif

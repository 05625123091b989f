/**
 * @file
 * The recipe `toy`, of the tests: the smallest that has two networks, each with an optimiser of its own, and three
 * programs a step.
 *
 * A critic learns to tell the logits of the configured classifier from one-hot truths; the classifier learns the task,
 * and to be taken for the truth. The classifier travels between groups, the critic stays with its group.
 *
 *     sub-step   trains   losses
 *     forward    nothing  leaves the classifier's logits
 *     critic     critic   critic_fake and critic_real, of the logits that it was given and of the truth
 *     model      model    task and adversarial, the second through the frozen critic
 *
 * The critic is frozen with its running statistics, which thus bear on the gradient of the classifier. Its parameters
 * have the names that `cnn` gives to its own. It reads the section `toy`.
 */
#ifndef COD_TESTS_DISTILL_TOY_RECIPE_H
#define COD_TESTS_DISTILL_TOY_RECIPE_H

void toy_recipe_register(void);

#endif

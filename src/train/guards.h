/**
 * @file
 * Guards: bands for the recipe's losses and figures (cod_recipe_guard), checked during training.
 *
 * A guard is out from the first check that finds its value outside the band to the next one that finds it inside. The
 * first check of such a stretch warns. Values are means over the steps since the last line of metrics, equal on all
 * ranks of a group.
 */
#ifndef COD_TRAIN_GUARDS_H
#define COD_TRAIN_GUARDS_H

#include "train/recipe.h"

typedef struct cod_guards {
    const cod_recipe *recipe;             /**< borrowed */
    int64_t since[COD_RECIPE_MAX_GUARDS]; /**< step of the first check of the stretch; 0 = inside the band */
    double value[COD_RECIPE_MAX_GUARDS];  /**< value at the last check that had one */
} cod_guards;

/** The mean of a loss or a figure, by its name; NaN = no step had it. */
typedef double cod_guards_mean(const void *context, const char *name);

void cod_guards_init(cod_guards *guards, const cod_recipe *recipe);

/**
 * Checks all guards. A guard without a value, because no step had its figures, keeps its state.
 *
 * @param step  steps done, above 0
 * @param group group, for the log; negative = log nothing
 */
void cod_guards_look(cod_guards *guards, int64_t step, int group, cod_guards_mean *mean, const void *context);

/** The first guard that is out and that makes the model unusable (cod_recipe_guard.spoils); NULL = none. */
const cod_recipe_guard *cod_guards_spoilt(const cod_guards *guards);

/** "detail.fake / detail.real is 0.05, expected at least 0.1, since step 600: ADVICE", of a guard that is out. */
void cod_guards_describe(const cod_guards *guards, const cod_recipe_guard *guard, char *text, size_t bytes);

#endif

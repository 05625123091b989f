/**
 * @file
 * Switches on one of the faults that tools/mutants.sh plants in its copy of the sources, where this is core/mutant.h.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { COD_MUTANTS = 4096 };

extern int cod_mutant_chosen;
extern unsigned char cod_mutant_reached[COD_MUTANTS];

/** Creates the file `number` in the folder COD_MUTANTS_REACHED, where that is set. */
void cod_mutant_reach(int number);

/** Whether the environment's COD_MUTANT is `number`, which must be below COD_MUTANTS. */
static inline int cod_mutant(int number)
{
    if (!__atomic_load_n(&cod_mutant_reached[number], __ATOMIC_RELAXED))
        cod_mutant_reach(number);
    return number == cod_mutant_chosen;
}

#ifdef __cplusplus
}
#endif

/**
 * @file
 * All strategies of the project, for programs that train by any of them.
 */
#ifndef COD_TOOLS_STRATEGIES_H
#define COD_TOOLS_STRATEGIES_H

/** Registers every strategy, in the order in which help and messages list them. */
void cod_strategies_register_all(void);

#endif

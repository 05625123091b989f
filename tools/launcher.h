/**
 * @file
 * The program that starts ranks: which it is, and what each MPI's must be told. Inside a Slurm allocation every one of
 * them starts the ranks on its nodes.
 */
#ifndef COD_TOOLS_LAUNCHER_H
#define COD_TOOLS_LAUNCHER_H

#include "train/config.h"

#include <stdbool.h>

/** $COD_MPIEXEC, else the launcher of the MPI that this program was built with, else mpirun of $PATH. */
const char *cod_launcher_program(void);

/** Whether it is MPICH's, Hydra, which writes its own messages to standard output. */
bool cod_launcher_is_hydra(void);

/** Nodes of the Slurm allocation around this process; 0 = there is none. */
int cod_launcher_nodes(void);

/** Whether ranks must be started by the launcher even where there is one only: this is not a node of the allocation. */
bool cod_launcher_is_elsewhere(void);

/** Ranks to start: the configuration's, or with one group a node the allocation's tasks, or a rank a node. */
int cod_launcher_ranks(const cod_run_config *config);

/**
 * Ranks to put on each node, in order, so that no group lies on more nodes than it needs and all nodes are used; 0
 * leaves it to the launcher. A group of more ranks than a node's share takes whole nodes.
 */
int cod_launcher_ranks_per_node(const cod_run_config *config, int ranks, int nodes);

/** Environment of what `codistill train` has started as ranks. */
#define COD_LAUNCHER_VARIABLE "COD_LAUNCHED"

/** Environment that the launcher reads, unless the user has said otherwise. */
void cod_launcher_set_environment(void);

enum { COD_LAUNCHER_ARGUMENTS = 5 };

/**
 * Its name and its own arguments.
 *
 * @param[out] args  borrowed texts; valid until the next call
 * @return how many
 */
int cod_launcher_arguments(int ranks, int ranks_per_node, char *args[COD_LAUNCHER_ARGUMENTS]);

#endif

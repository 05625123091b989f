/**
 * @file
 * Which rank of a job died first. A launcher that ends the others at once may name one of these: Hydra does, as it
 * takes the first process that it finds dead. Each rank holds a connection to the launching process, which the kernel
 * closes while the process dies; that is before the launcher can know of it, and the order of the closings is kept.
 */
#ifndef COD_TOOLS_DEATHS_H
#define COD_TOOLS_DEATHS_H

#include <stdbool.h>

enum { COD_DEATHS_MOST = 4096 };

typedef struct cod_deaths {
    int listening, order; /**< a socket, and an epoll of the connections; -1 = nobody is watched */
    int connections[COD_DEATHS_MOST], ranks[COD_DEATHS_MOST], pids[COD_DEATHS_MOST], count;
} cod_deaths;

/** Tells ranks by the environment where to connect to. Without such sockets nobody is watched. */
void cod_deaths_open(cod_deaths *deaths);
/** In a rank, before it tells of itself: connects, where the launching process is on this node and wants it. */
void cod_deaths_join(void);
/** A process has told that it is this rank. */
void cod_deaths_note(cod_deaths *deaths, int rank, int pid);
/** The rank that died first; -1 where that is not known, as some of `told` ranks are on another node. */
int cod_deaths_first(const cod_deaths *deaths, int told);
/** Whether all ranks on this node that were there are dead. */
bool cod_deaths_are_complete(cod_deaths *deaths);
/** Kills the ranks on this node that are still there. */
void cod_deaths_kill(cod_deaths *deaths);
void cod_deaths_close(cod_deaths *deaths);

#endif

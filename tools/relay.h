/**
 * @file
 * What a launching process reads of its job: the ranks' words, which it shows, their news, and what the launcher says
 * about ranks that died.
 */
#ifndef COD_TOOLS_RELAY_H
#define COD_TOOLS_RELAY_H

#include "tools/deaths.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { COD_RELAY_MOST = COD_DEATHS_MOST }; /**< ranks whose news are kept */

typedef struct cod_relay {
    const char *token; /**< of news */
    cod_deaths *deaths;
    FILE *held; /**< mpirun's own messages: between rules of dashes, and what it says about them */
    char *held_text;
    size_t held_bytes;
    bool in_banner, spoken;         /**< a rank has said why the job fails */
    int code;                       /**< that the first rank told, or -1 */
    bool over;                      /**< and that the job has, which has ended without ranks that hang */
    int pids[COD_RELAY_MOST];       /**< of ranks, as they told; else 0 */
    bool has_heard[COD_RELAY_MOST]; /**< the request to end */
    int told, heard;                /**< ranks that did */
} cod_relay;

/** A rank that died without a word. */
typedef struct cod_relay_death {
    int rank;       /**< -1 = none */
    char text[160]; /**< where and how: "rank 1 on node7 was killed by signal 9 (Killed)" */
} cod_relay_death;

/** @param token, deaths  borrowed. @return whether there is memory */
bool cod_relay_begin(cod_relay *relay, const char *token, cod_deaths *deaths);
/** One line of the job's standard error; a cod_lines_reader whose context is the relay. */
void cod_relay_line(void *relay, const char *line, size_t bytes);
/** A rank that told, but has not heard the request to end; -1 = none. */
int cod_relay_deaf(const cod_relay *relay);
/** No more lines come: held_text is whole. Finds in it who died. */
void cod_relay_end(cod_relay *relay, cod_relay_death *death);
/** Frees. */
void cod_relay_clear(cod_relay *relay);

#endif

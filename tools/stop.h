/**
 * @file
 * Requests to end: signals of users, terminals and schedulers. They are caught before anything else is begun, and one
 * that comes early is remembered.
 */
#ifndef COD_TOOLS_STOP_H
#define COD_TOOLS_STOP_H

#include <stdatomic.h>
#include <stdbool.h>

/**
 * Catches SIGINT, SIGTERM, SIGHUP (the terminal is gone), SIGUSR1, SIGUSR2 (a batch system's warning), SIGXCPU and
 * SIGXFSZ (a limit is reached), and ignores SIGPIPE: an output that nobody reads any more is no reason to end. What was
 * ignored when the program started stays so, as nohup wants it.
 */
void cod_stop_catch(void);
/** Whether cod_stop_catch() was called. */
bool cod_stop_is_caught(void);
/** In a child, before it becomes another program: all that is caught has its default action again. */
void cod_stop_release(void);

/** The first signal that came; 0 = none. */
const atomic_int *cod_stop_signal(void);
/** How often this signal came. */
int cod_stop_count(int signal);
/**
 * Whether the user does not want to wait for checkpoints: SIGINT or SIGTERM came a second or more after the first
 * request. Sooner it is the same request on another way: `timeout` signals a process and its group, and so do shells.
 */
bool cod_stop_is_pressing(void);

/**
 * Has `heard` called, in the handler, for each request; and at once if one has come already.
 *
 * @param heard  may do what signal handlers may. `by_terminal`: the terminal has told all processes in its foreground
 */
void cod_stop_on_request(void (*heard)(int signal, bool by_terminal));

#endif

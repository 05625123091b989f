/**
 * @file
 * Lets one thread see which file operation another thread is waiting for.
 *
 * On storage that hangs, such as a network mount whose server is away, calls of the system do not return and cannot be
 * cancelled. When a thread has started a watch, each system call that it makes through this module is noted, and
 * another thread can read how long the call has taken.
 */
#ifndef COD_IO_FILE_WATCH_H
#define COD_IO_FILE_WATCH_H

#include "core/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct cod_file_watch cod_file_watch;

/** A call of the system that has not returned yet. */
typedef struct cod_file_wait {
    uint64_t number; /**< counts the thread's calls: the same number is the same call */
    double since_s;  /**< cod_clock_s() when it began */
    char verb[32];   /**< what is done to the file: "write", "flush", "open" */
    char path[PATH_MAX];
} cod_file_wait;

/**
 * Starts to note the calling thread's file operations. A thread may have one watch. @param[out] watch new;
 * cod_file_watch_end()
 */
COD_MUST_CHECK cod_status cod_file_watch_begin(cod_file_watch **watch);
/**
 * Ends a watch. To be called by the thread that began it, when no other thread reads it any more; NULL does nothing.
 */
void cod_file_watch_end(cod_file_watch *watch);

/**
 * Any thread.
 *
 * @return whether the watched thread is in a call of the system.
 * @param[out] wait  which; set where there is one
 */
bool cod_file_watch_read(cod_file_watch *watch, cod_file_wait *wait);

#endif

/**
 * @file
 * Error handling: one status type, a per-thread message, and macros that keep call sites short.
 *
 * A function that can fail returns cod_status. The one that notices the failure calls cod_fail() with the reason;
 * the callers above it pass the status on with COD_TRY or COD_THEN. Only `tools` prints the message, and only `tools`
 * exits.
 */
#ifndef COD_CORE_STATUS_H
#define COD_CORE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum cod_status {
    COD_OK = 0,
    COD_ERR_ARGUMENT,    /**< the caller or the user asked for something invalid */
    COD_ERR_MEMORY,      /**< an allocation failed */
    COD_ERR_IO,          /**< the operating system refused: open, read, write, rename, disk full */
    COD_ERR_FORMAT,      /**< bytes that should have a known format do not */
    COD_ERR_UNSUPPORTED, /**< valid, but not by this build, backend or processor */
    COD_ERR_MPI,         /**< the message layer failed */
    COD_ERR_BACKEND,     /**< a compute library failed */
    COD_ERR_NUMERIC,     /**< NaN or infinity where a number must be */
    COD_ERR_PEER,        /**< another rank failed; its own message says why */
    COD_ERR_INTERRUPTED, /**< a signal or a time limit asked to stop */
} cod_status;

#define COD_MUST_CHECK         __attribute__((warn_unused_result))
#define COD_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/** Short name of a status, such as "argument"; static string. */
const char *cod_status_name(cod_status status);

/**
 * Stores the reason of a failure for this thread, with the place, and returns `code`. Control characters, newlines too,
 * become "\xNN": names from outside stand in reasons, and a terminal must not obey them.
 */
#define cod_fail(code, ...) cod_fail_at((code), __FILE__, __LINE__, __func__, __VA_ARGS__)

cod_status cod_fail_at(cod_status code, const char *file, int line, const char *func, const char *fmt, ...)
    COD_PRINTF(5, 6);

/**
 * The same with a reason of several lines. Each of them that has names from outside has been made by cod_show().
 */
cod_status cod_fail_lines(cod_status code, const char *lines);

/** Puts "`context`: " before this thread's message and returns `code`; for callers that know what was being done. */
cod_status cod_fail_prefix(cod_status code, const char *fmt, ...) COD_PRINTF(2, 3);

/**
 * Notes that another rank reports this thread's last failure, so that this rank need not report it when the job ends.
 * The thread's next failure is its own again. @return `code`
 */
cod_status cod_fail_said_elsewhere(cod_status code);
bool cod_error_said_elsewhere(void);

/** The reason of this thread's last failure, for people; never NULL. Valid until the thread's next failure. */
const char *cod_error_message(void);

/** Where this thread's last failure was noticed: "file:line function"; never NULL. */
const char *cod_error_place(void);

/** Returns from the calling function when `call` fails. For functions that have nothing to give back. */
#define COD_TRY(call)                                                                                                  \
    do {                                                                                                               \
        const cod_status cod_try_status_ = (call);                                                                     \
        if (cod_try_status_ != COD_OK)                                                                                 \
            return cod_try_status_;                                                                                    \
    } while (0)

/**
 * Makes `call` and stores its status in `status`, unless `status` is a failure already. For functions that give
 * something back at their end: their steps follow one another like this, the first failure skips the rest, and what
 * comes behind them always runs. Where there are loops or several statements between the steps, the work is an inner
 * function that uses COD_TRY.
 */
#define COD_THEN(status, call)                                                                                         \
    do {                                                                                                               \
        if ((status) == COD_OK)                                                                                        \
            (status) = (call);                                                                                         \
    } while (0)

/** Fails with COD_ERR_ARGUMENT and the formatted reason unless `cond` holds. */
#define COD_REQUIRE(cond, ...)                                                                                         \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            return cod_fail(COD_ERR_ARGUMENT, __VA_ARGS__);                                                            \
    } while (0)

/** Fails with COD_ERR_MEMORY unless `pointer` is set. */
#define COD_REQUIRE_MEMORY(pointer)                                                                                    \
    do {                                                                                                               \
        if ((pointer) == NULL)                                                                                         \
            return cod_fail(COD_ERR_MEMORY, "out of memory (%s)", #pointer);                                           \
    } while (0)

#endif

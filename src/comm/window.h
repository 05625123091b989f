/**
 * @file
 * Windows: memory of each rank that any other rank reads without the owner's help.
 *
 * A job makes one window over all ranks and keeps it. The protocol of readers and owners (module distill) defines its
 * content; for this module it is bytes.
 */
#ifndef COD_COMM_WINDOW_H
#define COD_COMM_WINDOW_H

#include "comm/comm.h"

typedef struct cod_window cod_window;

/**
 * Makes a window of `bytes` zeroed bytes (each rank its own number, 0 allowed) at a 64-byte boundary and reads 64 bytes
 * once from each rank that this rank is going to read, so that no later get waits for a connection. Collective on all
 * ranks.
 *
 * @param sources   [source_count] world ranks whose parts this rank may read; they may repeat. NULL = of all
 * @param[out] out  new; end it with cod_window_destroy()
 */
COD_MUST_CHECK cod_status cod_window_create(cod_comm *comm, size_t bytes, const int *sources, size_t source_count,
                                            cod_window **out);

/**
 * Ends the window. Collective on all ranks: waits until all have come here, or one has shown no sign of
 * life for teardown_timeout_s.
 *
 * @param window  taken; NULL does nothing
 * @return COD_ERR_INTERRUPTED if some ranks did not come; the memory then stays, and `tools` ends the process by
 *         cod_comm_abort()
 */
COD_MUST_CHECK cod_status cod_window_destroy(cod_window *window);

/**
 * This rank's part. Other ranks may read it at any time; the protocol must detect values that they read while they
 * change.
 */
void *cod_window_memory(cod_window *window);
/** Size of a rank's part in bytes. */
size_t cod_window_bytes(const cod_window *window, int world_rank);

/** Makes this rank's writes to its part visible to readers, in the order of the calls. */
COD_MUST_CHECK cod_status cod_window_sync(cod_window *window);

/**
 * Starts reading `bytes` of a rank's part from byte `offset` on; several may be in flight, and they may end in any
 * order. The progress thread requests large reads in pieces, from the first byte on; the caller need not test the
 * request meanwhile.
 *
 * @param[out] target   [bytes] borrowed until the request is done
 * @param[out] request  new; end it with cod_request_test(), cod_request_wait() or, when the owner is lost,
 *   cod_request_abandon()
 * @return COD_ERR_ARGUMENT when the range lies outside the owner's part, or the owner is none of the window's sources
 */
COD_MUST_CHECK cod_status cod_window_get_start(cod_window *window, int world_rank, size_t offset, void *target,
                                               size_t bytes, cod_request **request);

/** Bytes received so far by a get in pieces, which shows whether it makes progress; 0 for shorter gets and for NULL. */
size_t cod_window_get_arrived(const cod_request *request);

#endif

/**
 * @file
 * The part of MPI that comm uses, for ranks that are threads of one process, so that the thread sanitizer sees both
 * sides of every message. Chosen by COD_MPI=inprocess; a job begins with cod_inprocess_run().
 *
 * As strict as the standard allows. Nothing moves but in a call that progresses (MPI_Testall, MPI_Iprobe, blocking
 * calls), in an order drawn by lot and large gets in pieces; a send completes only when it has been received; windows
 * begin at odd addresses. What the standard calls erroneous (collectives that do not match, gets outside a window,
 * requests left at MPI_Finalize) ends the process with a message. Buffers are read and written where the thread
 * sanitizer sees it, so that touching one before its request is done is reported, as is a call that another thread's
 * call of the same rank does not happen before (MPI_THREAD_SERIALIZED).
 */
#ifndef COD_TESTS_INPROCESS_MPI_H
#define COD_TESTS_INPROCESS_MPI_H

#include <stddef.h>
#include <stdint.h>

typedef struct inprocess_communicator *MPI_Comm;
typedef struct inprocess_request *MPI_Request;
typedef struct inprocess_window *MPI_Win;
typedef intptr_t MPI_Aint;
typedef int MPI_Info, MPI_Errhandler;

typedef enum MPI_Datatype { MPI_BYTE, MPI_CHAR, MPI_FLOAT, MPI_DOUBLE } MPI_Datatype;
typedef enum MPI_Op { MPI_SUM, MPI_MIN, MPI_MAX } MPI_Op;

typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    size_t bytes;
} MPI_Status;

enum { MPI_SUCCESS, MPI_ERR_TRUNCATE };
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
enum { MPI_ANY_SOURCE = -1, MPI_ANY_TAG = -2 };
enum { MPI_MAX_ERROR_STRING = 256, MPI_MAX_PROCESSOR_NAME = 256, MPI_MAX_LIBRARY_VERSION_STRING = 256 };
enum { MPI_INFO_NULL, MPI_ERRORS_RETURN, MPI_MODE_NOCHECK };

#define MPI_COMM_WORLD   ((MPI_Comm)(intptr_t)1)
#define MPI_COMM_NULL    ((MPI_Comm)0)
#define MPI_REQUEST_NULL ((MPI_Request)0)
#define MPI_WIN_NULL     ((MPI_Win)0)
enum { MPI_WIN_MODEL = 1, MPI_WIN_UNIFIED, MPI_WIN_SEPARATE };
#define MPI_IN_PLACE        ((void *)(intptr_t)1)
#define MPI_STATUS_IGNORE   ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm comm, int code);
int MPI_Error_string(int code, char *text, int *length);
int MPI_Get_processor_name(char *name, int *length);
int MPI_Get_library_version(char *version, int *length);

int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out);
int MPI_Comm_free(MPI_Comm *comm);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);

int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count, MPI_Datatype out_type,
                  MPI_Comm comm);
int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int MPI_Iallgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int out_count, MPI_Datatype out_type,
                   MPI_Comm comm, MPI_Request *request);
int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request);
int MPI_Ireduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request *request);
int MPI_Ibcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request);
int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request);

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request);
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *found, MPI_Status *status);
int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count);
int MPI_Testall(int count, MPI_Request *requests, int *done, MPI_Status *statuses);

int MPI_Win_allocate(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win);
int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *win);
int MPI_Win_shared_query(MPI_Win win, int of, MPI_Aint *bytes, int *unit, void *base);
int MPI_Win_set_errhandler(MPI_Win win, MPI_Errhandler handler);
int MPI_Win_lock_all(int assertion, MPI_Win win);
int MPI_Win_unlock_all(MPI_Win win);
int MPI_Win_sync(MPI_Win win);
int MPI_Win_get_attr(MPI_Win win, int key, void *value, int *known);
int MPI_Win_free(MPI_Win *win);
int MPI_Rget(void *data, int count, MPI_Datatype type, int from, MPI_Aint at, int from_count, MPI_Datatype from_type,
             MPI_Win win, MPI_Request *request);

#endif

/**
 * @file
 * NCCL, loaded when a group of several ranks first averages: what is used of its interface, which is the same in all of
 * NCCL 2. Declared here, as its header is not everywhere; a test compares this with the header where there is one.
 */
#ifndef COD_CUDA_NCCL_CUH
#define COD_CUDA_NCCL_CUH

#include "cuda/cuda_internal.h"

typedef struct nccl_comm nccl_comm;

struct nccl_id {
    char bytes[128];
};

enum nccl_result { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum { NCCL_FLOAT32 = 7, NCCL_SUM = 0 };

/** NULL where it is absent. */
struct nccl_calls {
    char version[32];
    char absent[256]; /**< why, else empty */
    nccl_result (*get_version)(int *version);
    nccl_result (*get_unique_id)(nccl_id *id);
    nccl_result (*comm_init_rank)(nccl_comm **comm, int size, nccl_id id, int rank);
    nccl_result (*comm_destroy)(nccl_comm *comm);
    nccl_result (*comm_abort)(nccl_comm *comm);
    nccl_result (*comm_get_async_error)(nccl_comm *comm, nccl_result *error);
    nccl_result (*all_reduce)(const void *source, void *target, size_t count, int type, int operation, nccl_comm *comm,
                              cudaStream_t stream);
    const char *(*get_error_string)(nccl_result result);
    const char *(*get_last_error)(nccl_comm *comm);
};

/** Loads it at the first call. From any thread. */
const nccl_calls *nccl_library();

/* The backend's functions of collectives. */
cod_status nccl_name(cod_device *device, unsigned char name[COD_COLLECTIVE_NAME_BYTES]);
cod_status nccl_create(cod_device *device, const unsigned char name[COD_COLLECTIVE_NAME_BYTES], int rank, int size,
                       cod_collective **out);
void nccl_destroy(cod_device *device, cod_collective *collective);

#endif

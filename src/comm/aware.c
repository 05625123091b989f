/* Whether the MPI library takes addresses in a GPU's memory. There is no standard way to ask. */
#include "comm/comm_internal.h"

#include <stdlib.h>
#include <string.h>

#if defined OPEN_MPI && defined __has_include
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif

/** Sets `aware` to the library's answer. @return false if the library cannot be asked */
static bool ask_library(int *aware)
{
#if defined OMPI_HAVE_MPI_EXT_CUDA && OMPI_HAVE_MPI_EXT_CUDA
    *aware = MPIX_Query_cuda_support(); /* asks the library that runs; MPIX_CUDA_AWARE_SUPPORT describes the build */
    return true;
#elif defined MPIX_GPU_SUPPORT_CUDA
    return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, aware) == MPI_SUCCESS;
#else
    *aware = 0;
    return false;
#endif
}

cod_status cod_comm_takes_devices(cod_comm *comm)
{
    const char *cray = getenv("MPICH_GPU_SUPPORT_ENABLED");
    int aware = 0;
    comm_lock(comm);
    const bool answered = ask_library(&aware);
    comm_unlock(comm);
    if (answered && aware != 0)
        return COD_OK;
    if (strstr(comm->library, "CRAY MPICH") == NULL)
        return cod_fail(COD_ERR_UNSUPPORTED, "%s does not say that it is CUDA-aware", comm->library);
    if (cray != NULL && strcmp(cray, "1") == 0)
        return COD_OK;
    return cod_fail(COD_ERR_UNSUPPORTED, "%s takes a GPU's memory only where MPICH_GPU_SUPPORT_ENABLED is 1",
                    comm->library);
}

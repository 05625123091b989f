/*
 * Preloaded before an MPI that is not CUDA-aware, it says that it is. Beside the emulated GPU, whose memory is the
 * host's, that is true. COD_MPI_UNAWARE_RANK: a rank that says no, as if its host had another library.
 */
#include <stdlib.h>
#include <string.h>

int MPIX_Query_cuda_support(void);
int MPIX_GPU_query_support(int gpu_type, int *is_supported);

static int is_aware(void)
{
    const char *unaware = getenv("COD_MPI_UNAWARE_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank == NULL)
        rank = getenv("PMI_RANK");
    return unaware == NULL || rank == NULL || strcmp(unaware, rank) != 0;
}

int MPIX_Query_cuda_support(void)
{
    return is_aware();
}

/** MPICH's. */
int MPIX_GPU_query_support(int gpu_type, int *is_supported)
{
    (void)gpu_type;
    *is_supported = is_aware();
    return 0;
}

#include "support/test.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

TEST(promised_ranks_are_read_from_the_launcher)
{
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMI_SIZE");
    unsetenv("SLURM_PROCID");
    assert_int_equal(cod_comm_launched_ranks(), 0);
    setenv("SLURM_STEP_NUM_TASKS", "8", 1); /* a batch script's own step: nothing was launched */
    assert_int_equal(cod_comm_launched_ranks(), 0);
    setenv("SLURM_PROCID", "0", 1);
    assert_int_equal(cod_comm_launched_ranks(), 8);
    setenv("PMI_SIZE", "3", 1);
    assert_int_equal(cod_comm_launched_ranks(), 3);
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("PMI_SIZE");
}

TEST(prterun_does_not_say_how_many_ranks_it_starts)
{
    setenv("PMIX_NAMESPACE", "prterun-node-4711@1", 1);
    assert_int_equal(cod_comm_launched_ranks(), 1);
    setenv("PMIX_NAMESPACE", "slurm.pmix.7.0", 1); /* srun has variables of its own, and so has what it starts */
    assert_int_equal(cod_comm_launched_ranks(), 0);
    unsetenv("PMIX_NAMESPACE");
}

TEST(a_shell_that_slurm_opened_is_no_launch)
{
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    setenv("SLURM_STEP_ID", "4294967290", 1); /* salloc's interactive step */
    assert_int_equal(cod_comm_launched_ranks(), 0);
    setenv("SLURM_STEP_ID", "0", 1);
    assert_int_equal(cod_comm_launched_ranks(), 1);
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_STEP_ID");
}

TEST(srun_without_means_for_mpi_is_refused)
{
    cod_comm *comm = NULL;
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    unsetenv("PMIX_RANK");
    assert_fails(COD_ERR_UNSUPPORTED, "srun started 2 tasks without the means for ", cod_comm_init(NULL, &comm));
    cod_test_assert_contains(cod_error_message(), "start them by srun --mpi=pmi");
    unsetenv("SLURM_PROCID");
    unsetenv("SLURM_STEP_NUM_TASKS");
}

TEST(another_mpi_s_launcher_is_named)
{
    cod_comm *comm = NULL;
    char built[160] = "built with ";
    cod_comm_describe_library(built + strlen(built), sizeof built - strlen(built));
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_fails(COD_ERR_UNSUPPORTED, "Open MPI's mpirun promised 4 ranks", cod_comm_init(NULL, &comm));
    cod_test_assert_contains(cod_error_message(), built);
    cod_test_assert_contains(cod_error_message(), "is alone");
    cod_test_assert_contains(cod_error_message(), "start it with");
    assert_null(comm);
}

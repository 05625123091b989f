#include "support/test.h"

#include "comm/comm.h"

#include <stdlib.h>

static void promised_ranks_are_read_from_the_launcher(void **state)
{
    (void)state;
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

static void another_mpi_s_launcher_is_named(void **state)
{
    (void)state;
    cod_comm *comm = NULL;
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    assert_fails(COD_ERR_UNSUPPORTED, "Open MPI's mpirun promised 4 ranks", cod_comm_init(NULL, &comm));
    cod_test_assert_contains(cod_error_message(), "built with Open MPI v");
    cod_test_assert_contains(cod_error_message(), "is alone");
    cod_test_assert_contains(cod_error_message(), "start it with");
    assert_null(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promised_ranks_are_read_from_the_launcher),
        cmocka_unit_test(another_mpi_s_launcher_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "comm/job.h"

#include "comm/group.h"

#include <stdio.h>
#include <string.h>

cod_comm *job;

int job_setup(void **state)
{
    (void)state;
    const cod_status status = cod_comm_init(NULL, &job);
    if (status != COD_OK)
        fprintf(stderr, "%s\n", cod_error_message());
    return status == COD_OK ? 0 : -1;
}

int job_teardown(void **state)
{
    (void)state;
    return cod_comm_finalize(job) == COD_OK ? 0 : -1;
}

void job_check(cod_status status, const char *what, const char *file, int line)
{
    const cod_status agreed = cod_group_agree(cod_comm_world(job), status, NULL);
    if (agreed == COD_OK)
        return;
    print_error("rank %d: %s: %s [%s]\n", cod_comm_rank(job), what, cod_error_message(), cod_error_place());
    _fail(file, line);
}

bool job_failed(cod_status status, cod_status expected, const char *part)
{
    return status == expected && strstr(cod_error_message(), part) != NULL;
}

#include "ranks.h"

#include "support/test.h"

#include <inprocess.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct rank_call {
    rank_body body;
    void *context;
} rank_call;

static cod_status join_and_run(const rank_call *call)
{
    cod_comm *comm;
    COD_TRY(cod_comm_init(NULL, &comm));
    COD_TRY(call->body(comm, call->context));
    return cod_comm_finalize(comm);
}

static int rank_main(void *context)
{
    const cod_status status = join_and_run(context);
    if (status == COD_OK)
        return 0;
    fprintf(stderr, "a rank failed (%s): %s [%s]\n", cod_status_name(status), cod_error_message(), cod_error_place());
    cod_comm_abort(EXIT_FAILURE);
}

void run_ranks(int size, rank_body body, void *context)
{
    assert_int_equal(cod_inprocess_run(size, 2, rank_main, &(rank_call){body, context}), 0);
}

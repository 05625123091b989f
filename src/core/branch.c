#include "core/branch.h"

#include "core/queue.h"

cod_status cod_branch_init(cod_branch *branch, const cod_backend *backend, cod_device *device)
{
    *branch = (cod_branch){.backend = backend};
    COD_TRY(cod_event_create(backend, device, &branch->forked));
    COD_TRY(cod_event_create(backend, device, &branch->joined));
    return cod_queue_create(backend, device, &branch->queue);
}

void cod_branch_clear(cod_branch *branch)
{
    if (branch->backend == NULL)
        return;
    cod_queue_destroy(branch->backend, branch->queue);
    cod_event_destroy(branch->backend, branch->forked);
    cod_event_destroy(branch->backend, branch->joined);
    *branch = (cod_branch){0};
}

cod_status cod_branch_fork(cod_branch *branch)
{
    COD_TRY(cod_event_record(branch->backend, branch->forked, NULL));
    return cod_queue_wait(branch->backend, branch->queue, branch->forked);
}

cod_status cod_branch_join(cod_branch *branch, cod_event **joined)
{
    *joined = branch->joined;
    return cod_event_record(branch->backend, branch->joined, branch->queue);
}

cod_status cod_branch_wait(cod_branch *branch)
{
    cod_event *joined;
    COD_TRY(cod_branch_join(branch, &joined));
    return cod_queue_wait(branch->backend, NULL, joined);
}

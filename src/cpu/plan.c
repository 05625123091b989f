/* What all plans have, and the scratch memory that they share. */
#include "cpu/cpu_internal.h"

#include "core/memory.h"

cod_status cpu_plan_create(cod_device *device, const cod_op *op, cpu_plan_constructor *construct, cod_plan **out)
{
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, sizeof(cod_plan)));
    cod_plan *plan = memory;
    plan->device = device;
    plan->op = *op;
    const cod_status status = construct(plan);
    if (status != COD_OK) {
        cpu_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return COD_OK;
}

void cpu_plan_destroy(cod_plan *plan)
{
    if (plan == NULL)
        return;
    if (plan->state != NULL)
        (plan->destroy ? plan->destroy : cod_aligned_free)(plan->state);
    cod_aligned_free(plan);
}

cod_status cpu_plan_alloc_state(cod_plan *plan, size_t bytes)
{
    return cod_aligned_alloc(&plan->state, bytes);
}

/** Moving it is safe because plans read the device's pointer when they run: nothing is recorded with its address. */
cod_status cpu_device_need_scratch(cod_device *device, size_t bytes)
{
    if (bytes <= device->scratch_bytes)
        return COD_OK;
    void *memory;
    COD_TRY(cod_aligned_alloc(&memory, bytes));
    cod_aligned_free(device->scratch);
    device->scratch = memory;
    device->scratch_bytes = bytes;
    return COD_OK;
}

cod_status cpu_plan_need_scratch(cod_plan *plan, size_t bytes)
{
    return cpu_device_need_scratch(plan->device, bytes);
}

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

/** Moving the memory is safe because plans read its address when they run: nothing is recorded with it. */
static cod_status grow(void **memory, size_t *bytes, size_t needed)
{
    if (needed <= *bytes)
        return COD_OK;
    void *larger;
    COD_TRY(cod_aligned_alloc(&larger, needed));
    cod_aligned_free(*memory);
    *memory = larger;
    *bytes = needed;
    return COD_OK;
}

cod_status cpu_device_need_scratch(cod_device *device, size_t bytes)
{
    void *memory = device->scratch;
    const cod_status status = grow(&memory, &device->scratch_bytes, bytes);
    device->scratch = memory;
    return status;
}

cod_status cpu_device_need_between(cod_device *device, size_t bytes)
{
    return grow(&device->between.host, &device->between.bytes, bytes);
}

cod_status cpu_plan_need_scratch(cod_plan *plan, size_t bytes)
{
    return cpu_device_need_scratch(plan->device, bytes);
}

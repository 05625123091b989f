/*
 * A convolution and the sum of its output and a residual, as two plans: for implementations that do not add while they
 * store.
 */
#include "cpu/cpu_internal.h"

#include "core/memory.h"

typedef struct added_state {
    cod_plan *convolution, *sum;
} added_state;

static void added_destroy(void *memory)
{
    added_state *state = memory;
    cpu_plan_destroy(state->convolution);
    cpu_plan_destroy(state->sum);
    cod_aligned_free(state);
}

static cod_status added_prepare(cod_plan *plan)
{
    cod_plan *convolution = ((added_state *)plan->state)->convolution;
    return convolution->prepare != NULL ? convolution->prepare(convolution) : COD_OK;
}

static cod_status added_run(cod_plan *plan)
{
    const added_state *state = plan->state;
    COD_TRY(state->convolution->run(state->convolution));
    return state->sum->run(state->sum);
}

cod_status cpu_plan_added(cod_plan *plan, cpu_plan_constructor *construct)
{
    COD_TRY(cpu_plan_alloc_state(plan, sizeof(added_state)));
    plan->destroy = added_destroy;
    added_state *state = plan->state;
    cod_op convolution = plan->op;
    convolution.inputs[4] = (cod_view){.buffer = NULL};
    const cod_op sum = {.kind = COD_OP_ADD,
                        .attr = {.alpha = 1},
                        .accumulate = true,
                        .inputs = {plan->op.inputs[4]},
                        .outputs = {plan->op.outputs[0]},
                        .name = plan->op.name};
    COD_TRY(cpu_plan_create(plan->device, &convolution, construct, &state->convolution));
    COD_TRY(cpu_plan_create(plan->device, &sum, cpu_plan_add, &state->sum));
    plan->prepare = added_prepare;
    plan->pack = state->convolution->pack;
    plan->run = added_run;
    return COD_OK;
}

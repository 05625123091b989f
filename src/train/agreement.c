#include "train/agreement_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

cod_status trainer_agreements_init(trainer_agreements *agreements, int64_t within, size_t losses, size_t flags)
{
    /* Two steps hide a reduction; ranks that run apart need as many more. */
    agreements->delay = 1 + (within > 1 ? within : 1);
    agreements->count = losses + 1 + flags;
    agreements->pending = calloc((size_t)agreements->delay, sizeof *agreements->pending);
    COD_REQUIRE_MEMORY(agreements->pending);
    for (int64_t i = 0; i < agreements->delay; i++) {
        trainer_agreement *agreement = &agreements->pending[i];
        agreement->losses = calloc(agreements->count, sizeof *agreement->losses);
        COD_REQUIRE_MEMORY(agreement->losses);
        agreement->stop = agreement->losses + losses;
        agreement->flags = agreement->stop + 1;
    }
    return COD_OK;
}

void trainer_agreements_clear(trainer_agreements *agreements)
{
    for (int64_t i = 0; agreements->pending != NULL && i < agreements->delay; i++)
        free(agreements->pending[i].losses);
    free(agreements->pending);
    *agreements = (trainer_agreements){0};
}

static trainer_agreement *agreement_on(trainer_agreements *agreements, int64_t step)
{
    return &agreements->pending[step % agreements->delay];
}

trainer_agreement *trainer_agreement_begin(trainer_agreements *agreements, int64_t step)
{
    trainer_agreement *agreement = agreement_on(agreements, step);
    memset(agreement->losses, 0, agreements->count * sizeof *agreement->losses);
    return agreement;
}

cod_status trainer_agreement_start(trainer_agreements *agreements, int64_t step)
{
    trainer_agreement *agreement = agreement_on(agreements, step);
    const bool together = agreements->together_every > 0 && (step + 1) % agreements->together_every == 0;
    agreement->world_stop = together ? *agreement->stop : 0;
    if (together)
        COD_TRY(cod_group_reduce_start(agreements->world, &agreement->world_stop, 1, COD_REDUCE_MAX,
                                       &agreement->world_request));
    if (cod_group_size(agreements->group) == 1)
        return COD_OK;
    return cod_group_reduce_start(agreements->group, agreement->losses, agreements->count, COD_REDUCE_SUM,
                                  &agreement->request);
}

cod_status trainer_agreement_wait(trainer_agreements *agreements, int64_t step, trainer_agreement **agreement)
{
    *agreement = agreement_on(agreements, step);
    return cod_request_wait(&(*agreement)->request, INFINITY);
}

cod_status trainer_agreement_read_stop(trainer_agreements *agreements, trainer_agreement *agreement, bool *stop)
{
    COD_TRY(cod_request_wait(&agreement->world_request, INFINITY));
    const double asked = agreements->together_every > 0 ? agreement->world_stop : *agreement->stop;
    *stop = *stop || asked > 0;
    return COD_OK;
}

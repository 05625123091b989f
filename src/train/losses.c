#include "train/losses_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

cod_status trainer_losses_init(trainer_losses *losses, const cod_recipe *recipe)
{
    const size_t most = recipe->step_count * (COD_PROGRAM_MAX_LOSSES + COD_PROGRAM_MAX_OUTPUTS);
    *losses = (trainer_losses){.items = calloc(most, sizeof *losses->items)};
    COD_REQUIRE_MEMORY(losses->items);
    for (size_t i = 0; i < recipe->step_count; i++) {
        const cod_sub_step *step = &recipe->steps[i];
        for (size_t k = 0; k < COD_PROGRAM_MAX_LOSSES && step->losses[k] != NULL; k++)
            losses->items[losses->count++] =
                (trainer_loss){.name = step->losses[k], .value = step->program.losses[k], .sub_step = step};
        for (size_t k = 0; k < COD_PROGRAM_MAX_OUTPUTS && step->figure_names[k] != NULL; k++)
            losses->items[losses->count++] = (trainer_loss){
                .name = step->figure_names[k], .value = step->figures[k], .sub_step = step, .is_figure = true};
    }
    return COD_OK;
}

cod_status trainer_losses_connect(trainer_losses *losses, const cod_train_session *session, bool computes)
{
    for (size_t i = 0; i < losses->count; i++) {
        trainer_loss *loss = &losses->items[i];
        loss->view = loss->is_figure ? cod_executable_output(session->executable, loss->value)
                                     : cod_executable_loss_view(session->executable, loss->value);
    }
    if (!computes)
        return COD_OK;
    losses->batches = session->config->train.accumulate;
    losses->delay = cod_backend_runs_at_once(session->backend) ? 0 : 1;
    return cod_readback_create(session->backend, session->device, NULL, (size_t)losses->delay + 1,
                               losses->count * (size_t)losses->batches, &losses->readback);
}

void trainer_losses_clear(trainer_losses *losses)
{
    cod_readback_destroy(losses->readback);
    free(losses->items);
    *losses = (trainer_losses){0};
}

static size_t slot_of(const trainer_losses *losses, int64_t step)
{
    return (size_t)(step % (losses->delay + 1));
}

/** Place of a value in its slot. */
static size_t place_of(const trainer_losses *losses, size_t loss, int64_t batch)
{
    return loss * (size_t)losses->batches + (size_t)batch;
}

void trainer_losses_begin(trainer_losses *losses, int64_t step)
{
    cod_readback_open(losses->readback, slot_of(losses, step));
}

cod_status trainer_losses_put(trainer_losses *losses, int64_t step, const cod_sub_step *sub_step, int64_t batch)
{
    for (size_t i = 0; i < losses->count; i++)
        if (losses->items[i].sub_step == sub_step)
            COD_TRY(cod_readback_put(losses->readback, slot_of(losses, step), place_of(losses, i, batch),
                                     &losses->items[i].view));
    return COD_OK;
}

cod_status trainer_losses_end(trainer_losses *losses, int64_t step)
{
    return cod_readback_close(losses->readback, slot_of(losses, step));
}

/** The mean over the mini-batches. */
static cod_status read_loss(const trainer_losses *losses, int64_t step, size_t loss, double *mean)
{
    *mean = 0;
    for (int64_t b = 0; b < losses->batches; b++) {
        double value;
        COD_TRY(cod_readback_get(losses->readback, slot_of(losses, step), place_of(losses, loss, b), &value));
        *mean += value / (double)losses->batches;
    }
    return COD_OK;
}

cod_status trainer_losses_read(const trainer_losses *losses, int64_t step, double *values)
{
    for (size_t i = 0; i < losses->count; i++) {
        values[i] = 0;
        if (!cod_sub_step_is_due(losses->items[i].sub_step, step))
            continue;
        if (losses->readback == NULL)
            values[i] = losses->items[i].computed;
        else
            COD_TRY(read_loss(losses, step, i, &values[i]));
        values[i] = isfinite(values[i]) ? values[i] : NAN;
    }
    return COD_OK;
}

const trainer_loss *trainer_losses_add(trainer_losses *losses, int64_t step, const double *sums, int ranks)
{
    for (size_t i = 0; i < losses->count; i++) {
        trainer_loss *loss = &losses->items[i];
        if (!cod_sub_step_is_due(loss->sub_step, step))
            continue;
        if (!isfinite(sums[i]))
            return loss;
        loss->sum += sums[i] / ranks;
        loss->steps++;
    }
    return NULL;
}

double trainer_loss_mean(const trainer_loss *loss)
{
    return loss->steps > 0 ? loss->sum / (double)loss->steps : NAN;
}

double trainer_losses_mean_by_name(const void *context, const char *name)
{
    const trainer_losses *losses = context;
    for (size_t i = 0; i < losses->count; i++)
        if (strcmp(losses->items[i].name, name) == 0)
            return trainer_loss_mean(&losses->items[i]);
    return NAN;
}

double trainer_losses_mean_of(const trainer_losses *losses, cod_value value)
{
    for (size_t i = 0; i < losses->count; i++)
        if (losses->items[i].value == value)
            return trainer_loss_mean(&losses->items[i]);
    return NAN;
}

void trainer_losses_restart(trainer_losses *losses)
{
    for (size_t i = 0; i < losses->count; i++)
        losses->items[i].sum = 0, losses->items[i].steps = 0;
}

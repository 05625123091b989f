#include "support/late_internal.h"

#include <stdlib.h>

void late_capture_add(cod_queue *queue, const late_step *step)
{
    cod_recording *recording = queue->capture;
    if (recording->count == recording->capacity) {
        recording->capacity = 2 * recording->capacity + 8;
        recording->steps = realloc(recording->steps, recording->capacity * sizeof *recording->steps);
        if (recording->steps == NULL)
            abort();
    }
    recording->steps[recording->count++] = *step;
}

static bool step_names(const late_step *step, const cod_plan *plan, const late_buffer *buffer)
{
    if (plan != NULL || step->plan == NULL)
        return plan != NULL ? step->plan == plan : step->range.target == buffer || step->range.source == buffer;
    for (size_t k = 0; k < step->plan->count; k++) {
        const cod_op *op = &step->plan->ops[k];
        for (size_t i = 0; i < COD_OP_MAX_INPUTS + COD_OP_MAX_OUTPUTS; i++) {
            const cod_view *view = i < COD_OP_MAX_INPUTS ? &op->inputs[i] : &op->outputs[i - COD_OP_MAX_INPUTS];
            if (view->buffer == &buffer->base)
                return true;
        }
    }
    return false;
}

static bool break_if_named(cod_recording *recording, const cod_plan *plan, const late_buffer *buffer)
{
    for (size_t i = 0; i < recording->count && !recording->broken; i++)
        if (step_names(&recording->steps[i], plan, buffer))
            return recording->broken = true;
    return false;
}

bool late_recordings_break(cod_device *device, const cod_plan *plan, const late_buffer *buffer)
{
    bool found = false;
    for (cod_recording *recording = device->recordings; recording != NULL; recording = recording->next)
        found |= break_if_named(recording, plan, buffer);
    for (int slot = 0; slot < LATE_SLOTS; slot++)
        if (device->queues[slot] != NULL && device->queues[slot]->capture != NULL)
            found |= break_if_named(device->queues[slot]->capture, plan, buffer);
    return found;
}

cod_status late_capture_begin(cod_queue *queue)
{
    COD_REQUIRE(queue->capture == NULL, "late: capture_begin() within a capture");
    queue->capture = late_new(sizeof *queue->capture);
    queue->capture->device = queue->device;
    return COD_OK;
}

cod_status late_capture_end(cod_queue *queue, cod_recording **out)
{
    cod_device *device = queue->device;
    COD_REQUIRE(queue->capture != NULL, "late: capture_end() without capture_begin()");
    cod_recording *recording = queue->capture;
    queue->capture = NULL;
    recording->next = device->recordings;
    device->recordings = recording;
    *out = recording;
    return COD_OK;
}

cod_status late_recording_run(cod_recording *recording, cod_queue *queue)
{
    COD_REQUIRE(queue->capture == NULL, "late: recording_run() within a capture");
    COD_REQUIRE(!recording->broken, "late: something of the recording was destroyed");
    for (size_t i = 0; i < recording->count; i++) {
        const late_step *step = &recording->steps[i];
        if (step->updated)
            late_updated_check(step->plan);
        if (step->plan != NULL)
            late_queue_plan(queue, step->plan, step->kind, step);
        else
            late_queue_copy(queue, &step->range);
    }
    return COD_OK;
}

void late_recording_free(cod_recording *recording)
{
    free(recording->steps);
    free(recording);
}

void late_recording_destroy(cod_recording *recording)
{
    cod_recording **link = &recording->device->recordings;
    while (*link != NULL && *link != recording)
        link = &(*link)->next;
    if (*link != NULL)
        *link = recording->next;
    late_recording_free(recording);
}

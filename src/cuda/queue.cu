#include "cuda/cuda_internal.h"

#include <chrono>
#include <cstdlib>

cod_status cuda_queue_create(cod_device *device, cod_queue **out)
{
    cod_queue *queue = static_cast<cod_queue *>(calloc(1, sizeof *queue));
    COD_REQUIRE_MEMORY(queue);
    queue->device = device;
    cuda_use(device);
    const cod_status status = COD_CUDA(cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking));
    if (status != COD_OK) {
        free(queue);
        return status;
    }
    *out = queue;
    return COD_OK;
}

void cuda_queue_destroy(cod_queue *queue)
{
    if (queue == nullptr)
        return;
    cudaStreamSynchronize(queue->stream);
    cudaStreamDestroy(queue->stream);
    cuda_chain_end(queue->device); /* another queue's stream may be at the same address */
    free(queue);
}

cod_status cuda_event_create(cod_device *device, cod_event **out)
{
    cod_event *event = static_cast<cod_event *>(calloc(1, sizeof *event));
    COD_REQUIRE_MEMORY(event);
    event->device = device;
    cuda_use(device);
    const cod_status status =
        COD_CUDA(cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming | cudaEventBlockingSync));
    if (status != COD_OK) {
        free(event);
        return status;
    }
    *out = event;
    return COD_OK;
}

void cuda_event_destroy(cod_event *event)
{
    if (event == nullptr)
        return;
    cudaEventDestroy(event->event);
    free(event);
}

cod_status cuda_event_record(cod_event *event, cod_queue *queue)
{
    cuda_chain_end(event->device);
    return COD_CUDA(cudaEventRecord(event->event, cuda_stream(event->device, queue)));
}

cod_status cuda_event_query(cod_event *event, bool *reached)
{
    const cudaError_t error = cudaEventQuery(event->event);
    *reached = error == cudaSuccess;
    return error == cudaErrorNotReady ? COD_OK : COD_CUDA(error);
}

/**
 * Asks for a while before it sleeps: a sleeping thread wakes tens of microseconds after its event, which is long for
 * steps of 100 us.
 */
cod_status cuda_event_wait(cod_event *event)
{
    static const auto awake = std::chrono::microseconds(100);
    const auto begin = std::chrono::steady_clock::now();
    cudaError_t error;
    do
        error = cudaEventQuery(event->event);
    while (error == cudaErrorNotReady && std::chrono::steady_clock::now() - begin < awake);
    return error == cudaErrorNotReady ? COD_CUDA(cudaEventSynchronize(event->event)) : COD_CUDA(error);
}

cod_status cuda_queue_wait(cod_queue *queue, cod_event *event)
{
    cuda_chain_end(event->device);
    return COD_CUDA(cudaStreamWaitEvent(cuda_stream(event->device, queue), event->event, 0));
}

cod_status cuda_capture_begin(cod_device *device, cod_queue *queue)
{
    if (device->alone)
        return cod_fail(COD_ERR_UNSUPPORTED, "COD_CUDA_SYNC=1: nothing is recorded");
    cuda_chain_end(device);
    return COD_CUDA(cudaStreamBeginCapture(cuda_stream(device, queue), cudaStreamCaptureModeThreadLocal));
}

cod_status cuda_capture_end(cod_device *device, cod_queue *queue, cod_recording **out)
{
    cuda_chain_end(device);
    cudaGraph_t graph;
    COD_TRY(COD_CUDA(cudaStreamEndCapture(cuda_stream(device, queue), &graph)));
    cod_recording *recording = static_cast<cod_recording *>(calloc(1, sizeof *recording));
    cod_status status = recording != nullptr ? COD_OK : cod_fail(COD_ERR_MEMORY, "out of memory");
    if (status == COD_OK) {
        recording->device = device;
        status = COD_CUDA(cudaGraphInstantiate(&recording->graph, graph, 0));
    }
    cudaGraphDestroy(graph);
    if (status != COD_OK)
        free(recording);
    else
        *out = recording;
    return status;
}

cod_status cuda_recording_run(cod_recording *recording, cod_queue *queue)
{
    cuda_chain_end(recording->device);
    return COD_CUDA(cudaGraphLaunch(recording->graph, cuda_stream(recording->device, queue)));
}

void cuda_recording_destroy(cod_recording *recording)
{
    if (recording == nullptr)
        return;
    cudaGraphExecDestroy(recording->graph); /* replays that are queued still run */
    free(recording);
}

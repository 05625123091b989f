#include "infer/stream.h"

#include "core/memory.h"

cod_status cod_stream_init(cod_stream *stream, const cod_backend *backend, cod_device *device, cod_view input,
                           cod_view output)
{
    const size_t in = cod_view_span_bytes(&input), out = cod_view_span_bytes(&output);
    void *low = NULL, *high = NULL;
    *stream = (cod_stream){.backend = backend, .device = device, .input = input, .output = output};
    COD_REQUIRE(input.buffer != NULL && input.dtype == COD_F32 && cod_view_is_dense(&input),
                "the model's input is not dense f32");
    COD_REQUIRE(output.buffer != NULL && output.dtype == COD_F32 && cod_view_is_dense(&output),
                "the model's output is not dense f32");
    if (!cod_backend_runs_at_once(stream->backend)) {
        COD_TRY(cod_slots_init(&stream->sent, backend, device, in));
        return cod_slots_init(&stream->received, backend, device, out);
    }
    COD_TRY(cod_aligned_alloc(&low, in));
    stream->low = low;
    COD_TRY(cod_aligned_alloc(&high, out));
    stream->high = high;
    return COD_OK;
}

void cod_stream_clear(cod_stream *stream)
{
    cod_slots_clear(&stream->sent);
    cod_slots_clear(&stream->received);
    cod_aligned_free(stream->low);
    cod_aligned_free(stream->high);
    *stream = (cod_stream){0};
}

size_t cod_stream_bytes(const cod_stream *stream)
{
    const size_t slots = cod_slots_bytes(&stream->sent) + cod_slots_bytes(&stream->received);
    return stream->low == NULL ? slots : cod_view_span_bytes(&stream->input) + cod_view_span_bytes(&stream->output);
}

cod_status cod_stream_load(cod_stream *stream, const cod_stream_steps *steps, size_t step)
{
    const cod_view *in = &stream->input;
    void *host;
    if (cod_backend_runs_at_once(stream->backend)) {
        COD_TRY(steps->fill(steps->context, step, stream->low));
        return stream->backend->upload(stream->device, NULL, in->buffer, in->offset, stream->low,
                                       cod_view_span_bytes(in));
    }
    COD_TRY(cod_slots_open(&stream->sent, &host));
    COD_TRY(steps->fill(steps->context, step, host));
    return cod_slots_send(&stream->sent, in, 1);
}

static cod_status run_at_once(cod_stream *stream, const cod_stream_steps *steps, size_t step)
{
    const cod_view *out = &stream->output;
    COD_TRY(cod_stream_load(stream, steps, step));
    COD_TRY(steps->run(steps->context, step));
    COD_TRY(stream->backend->download(stream->device, NULL, stream->high, out->buffer, out->offset,
                                      cod_view_span_bytes(out)));
    return steps->store(steps->context, step, stream->high);
}

/** Stores a step's output when it has come. @param back  steps that were queued after it */
static cod_status store(cod_stream *stream, const cod_stream_steps *steps, size_t step, size_t back)
{
    const void *host;
    COD_TRY(cod_slots_take(&stream->received, back, &host));
    return steps->store(steps->context, step, host);
}

cod_status cod_stream_run(cod_stream *stream, const cod_stream_steps *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (cod_backend_runs_at_once(stream->backend)) {
            COD_TRY(run_at_once(stream, steps, i));
            continue;
        }
        COD_TRY(cod_stream_load(stream, steps, i));
        COD_TRY(steps->run(steps->context, i));
        COD_TRY(cod_slots_receive(&stream->received, &stream->output));
        if (i > 0)
            COD_TRY(store(stream, steps, i - 1, 1));
    }
    return cod_backend_runs_at_once(stream->backend) || count == 0 ? COD_OK : store(stream, steps, count - 1, 0);
}

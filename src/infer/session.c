#include "infer/session.h"

#include "core/processors.h"

#include <stddef.h>
#include <string.h>

#define FIELD(name) offsetof(cod_session_options, name)
static const cod_option options_table[] = {
    {"device", COD_OPTION_CHOICE, FIELD(device), "auto", 0, 0, cod_device_names,
     "what computes; auto: a GPU where there is one"},
    {"backend", COD_OPTION_STRING, FIELD(backend), COD_BACKEND_AUTO, 0, 0, NULL,
     "a backend by its name, whatever `device` says; auto: as `device` says"},
    {"threads", COD_OPTION_INT, FIELD(threads), "0", 0, 1024, NULL, "threads; 0 = as many as the process may use"},
    {"precision", COD_OPTION_CHOICE, FIELD(precision), "auto", 0, 0, cod_precision_names_with_int8,
     "auto, f32, bf16: activations' type; auto takes bf16 where the processor is fast at it. int8: convolutions on "
     "8-bit integers"},
    {"tile", COD_OPTION_INT, FIELD(tile), "0", 0, COD_IMAGE_MAX_SIDE, NULL,
     "side in low-resolution pixels of a tile, at least 8; 0 = no tiles but bands of rows, where the network allows "
     "it"},
    {"scale", COD_OPTION_INT, FIELD(scale), "0", 0, 16, NULL, "upscaling factor; 0 = the model's, and 4 for bicubic"},
};
#undef FIELD

const cod_option_table cod_session_option_table = {"session", "How a model is run", options_table,
                                                   sizeof options_table / sizeof options_table[0],
                                                   sizeof(cod_session_options)};

cod_status cod_session_open_device(const cod_session_options *options, cod_session *session)
{
    const int threads = options->threads > 0 ? (int)options->threads : cod_usable_threads();
    const cod_device_choice choice = {
        .device = (cod_device_kind)options->device, .backend = options->backend, .setting = "--device"};
    char reason[COD_DEVICE_REASON];
    *session = (cod_session){0};
    COD_TRY(cod_device_open(&choice, &(cod_device_options){.threads = threads}, &session->backend, &session->device,
                            reason));
    cod_device_tell(reason);
    return COD_OK;
}

static cod_status model_open(const char *model, const cod_session_options *options, cod_session *session)
{
    const cod_upscaler_options upscaler = {.precision = (cod_precision)options->precision, .tile = options->tile};
    COD_TRY(cod_session_open_device(options, session));
    COD_TRY(cod_upscaler_open(model, session->backend, session->device, &upscaler, &session->upscaler));
    const int scale = cod_upscaler_scale(session->upscaler);
    COD_REQUIRE(options->scale == 0 || options->scale == scale, "%s upscales by %d, not by %lld", model, scale,
                (long long)options->scale);
    return COD_OK;
}

cod_status cod_session_open(const char *model, const cod_session_options *options, cod_session *session)
{
    *session = (cod_session){0};
    if (strcmp(model, COD_BICUBIC) == 0)
        return cod_upscaler_create_bicubic(options->scale > 0 ? (int)options->scale : 4, &session->upscaler);
    const cod_status status = model_open(model, options, session);
    if (status != COD_OK)
        cod_session_close(session);
    return status;
}

void cod_session_close(cod_session *session)
{
    cod_upscaler_destroy(session->upscaler);
    if (session->device != NULL)
        session->backend->close(session->device);
    *session = (cod_session){0};
}

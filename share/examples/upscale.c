/* Upscales a picture: upscale MODEL PICTURE OUT.png, where MODEL is a .safetensors file or `bicubic`. */
#include "core/backend.h"
#include "cpu/cpu.h"
#include "data/image.h"
#include "infer/session.h"

#include <stdio.h>

static cod_status upscale(const char *model, const char *picture, const char *out)
{
    cod_session_options options;
    cod_session session = {0};
    cod_image low = {0}, high = {0};
    cod_arena texts = {0};
    cod_status status = cod_options_set_defaults(&cod_session_option_table, &options, &texts);
    COD_THEN(status, cod_session_open(model, &options, &session));
    COD_THEN(status, cod_image_read(picture, &low));
    COD_THEN(status, cod_upscaler_run(session.upscaler, &low, NULL, NULL, &high));
    COD_THEN(status, cod_image_write_png(out, &high));
    if (status == COD_OK)
        printf("%s: %lldx%lld\n", out, (long long)high.width, (long long)high.height);
    cod_image_clear(&high);
    cod_image_clear(&low);
    cod_session_close(&session);
    cod_arena_clear(&texts);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: upscale MODEL PICTURE OUT.png\n");
        return 2;
    }
    cod_status status = cod_backend_register(&cod_cpu_backend);
    COD_THEN(status, upscale(argv[1], argv[2], argv[3]));
    if (status != COD_OK)
        fprintf(stderr, "upscale: %s\n", cod_error_message());
    return status == COD_OK ? 0 : 1;
}

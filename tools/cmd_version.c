/* `codistill --version`: what was built, the libraries that it runs with, and what this machine offers them. */
#include "tools/cmd.h"

#include "codec/codec.h"
#include "comm/comm.h"
#include "config/config.h"
#include "core/backend.h"
#include "core/hash.h"
#include "core/processors.h"
#include "data/image.h"
#include "io/json.h"
#include "report/report.h"
#include "tools/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Whether a backend has code for it. */
static bool is_of_use(const char *feature)
{
    static const char *const known[] = {"avx2",     "fma",         "f16c",        "avx_vnni", "avx512f",
                                        "avx512bw", "avx512_vnni", "avx512vl",    "avx512dq", "amx_tile",
                                        "amx_bf16", "amx_int8",    "avx512_bf16", "asimd",    "sve"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(feature, known[i]) == 0)
            return true;
    return false;
}

/** The value of a line "KEY : VALUE"; NULL when it is another key's. */
static char *value_of(char *line, const char *key)
{
    char *colon = strchr(line, ':');
    if (colon == NULL || strncmp(line, key, strlen(key)) != 0)
        return NULL;
    colon[1 + strcspn(colon + 1, "\n")] = '\0';
    return colon + 1 + strspn(colon + 1, " ");
}

static void print_features(char *features)
{
    for (char *rest = NULL, *one = strtok_r(features, " ", &rest); one != NULL; one = strtok_r(NULL, " ", &rest))
        if (is_of_use(one))
            cod_print(stdout, " %s", one);
}

static void print_processor(void)
{
    const cod_processors set = cod_processors_allowed();
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = NULL, *value;
    size_t capacity = 0;
    bool named = false, featured = false;
    printf("processor:");
    while (file != NULL && getline(&line, &capacity, file) > 0 && !featured)
        if (!named && (value = value_of(line, "model name")) != NULL) {
            cod_print(stdout, " %s:", value);
            named = true;
        } else if ((value = value_of(line, "flags")) != NULL || (value = value_of(line, "Features")) != NULL) {
            print_features(value);
            featured = true;
        }
    printf("; %d cores to use, %d threads\n", cod_processors_cores(&set, COD_TOPOLOGY_FOLDER),
           cod_processors_count(&set));
    free(line);
    if (file != NULL)
        fclose(file);
}

static void print_libraries(void)
{
    static void (*const describe[])(char *text, size_t bytes) = {
        cod_comm_describe_library, cod_image_libraries, cod_config_library,    cod_codec_library,
        cod_hash_library,          cod_json_library,    cod_report_png_library};
    printf("libraries: ");
    for (size_t i = 0; i < sizeof describe / sizeof describe[0]; i++) {
        char text[256];
        describe[i](text, sizeof text);
        cod_print(stdout, "%s%s", i ? ", " : "", text);
    }
    putchar('\n');
}

int cod_cmd_version(void)
{
    const cod_device_options options = {.threads = 1};
    cod_device *device = NULL;
    cod_print(stdout, "codistill %s\n", cod_version);
    print_libraries();
    print_processor();
    for (size_t i = 0; cod_backend_name_at(i) != NULL; i++) {
        const cod_backend *backend = cod_backend_find(cod_backend_name_at(i));
        if (backend->open(&options, &device) != COD_OK) {
            cod_print(stdout, "backend %s: %s\n", backend->name, cod_error_message());
            continue;
        }
        cod_print(stdout, "backend %s: %s\n", backend->name, backend->describe(device));
        backend->close(device);
    }
    return COD_EXIT_OK;
}
